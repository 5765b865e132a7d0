"""Opens files through h5py with one of HDF5's own drivers, and reads back what the library made of it (METHOD 10)."""

import sys

import h5py
import numpy as np

from scripts.studies.shots.drivers import UNSET, Access


def versions() -> dict:
    """Return what this interpreter's library is: {"hdf5", "h5py", "numpy", "python", "ros3"}."""
    return {
        "hdf5": h5py.version.hdf5_version,
        "h5py": h5py.version.version,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
        "ros3": bool(h5py.get_config().ros3),
    }


def access_list(access: Access) -> h5py.h5p.PropFAID:
    """Return HDF5's file access property list for `access`, with the default driver.

    The low-level list is used because `h5py.File(page_buf_size=0)` means "unset": only here can 0 be asked for.
    """
    plist = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    elements, slots, _, preemption = plist.get_cache()
    plist.set_cache(elements, slots, access.rdcc_nbytes, preemption)
    if access.page_buffer != UNSET:
        plist.set_page_buffer_size(access.page_buffer, 0, 0)
    return plist


class File:
    """A file that is open for reading."""

    def __init__(self, address: str, plist: h5py.h5p.PropFAID) -> None:
        """Open the file at `address` (a path or a URL) with an access list."""
        self._file = h5py.File(h5py.h5f.open(address.encode(), h5py.h5f.ACC_RDONLY, plist))

    def read(self, path: str) -> np.ndarray:
        """Return all values of the dataset at `path`."""
        return self._file[path][()]

    def effective(self) -> dict:
        """Return what holds for the file, as the library and the file tell it.

        {"page_buffer_bytes", "rdcc_nbytes", "rdcc_nslots", "paged", "page_size", "driver"}; sizes in bytes.
        """
        plist = self._file.id.get_access_plist()
        creation = self._file.id.get_create_plist()
        strategy = creation.get_file_space_strategy()[0]
        _, slots, nbytes, _ = plist.get_cache()
        return {
            "driver": self._file.driver,
            "page_buffer_bytes": plist.get_page_buffer_size()[0],
            "rdcc_nbytes": nbytes,
            "rdcc_nslots": slots,
            "paged": strategy == h5py.h5f.FSPACE_STRATEGY_PAGE,
            "page_size": creation.get_file_space_page_size(),
        }

    def close(self) -> None:
        """Close it."""
        self._file.close()
