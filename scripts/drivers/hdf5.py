"""HDF5's own drivers, opened through h5py; what the library made of an access list is read back (METHOD 10)."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from scripts.drivers import UNSET, Access, Driver, Where
from scripts.lib.program import Problem
from scripts.stores.s3 import KEYS

if TYPE_CHECKING:
    import h5py
    import numpy as np

    from scripts.stores.store import Store


class Sec2(Driver):
    """POSIX calls, for files of this machine's file systems."""

    page_buffers = True

    def reads(self, store: "Store") -> bool:
        """Return whether the store's objects are files."""
        return store.files

    def open(self, address: str, access: Access) -> "File":
        """Open a file."""
        return File(address, access_list(access))


class Ros3(Driver):
    """Ranged GETs, signed with the environment's credentials unless the store is anonymous; read-only.

    On libcurl in HDF5 1.14, on aws-c-s3 from 2.0.
    """

    optional = True
    page_buffers = True

    def reads(self, store: "Store") -> bool:
        """Return whether the store speaks S3."""
        return store.spec["kind"] == "s3"

    def open(self, address: str, access: Access) -> "File":
        """Open an object."""
        plist = access_list(access)
        if not hasattr(plist, "set_fapl_ros3"):
            raise Problem("this library has no ROS3 driver; name a library of kind source")
        key, secret, token = (word.encode() for word in credentials(access.store))
        plist.set_fapl_ros3(access.store["region"].encode(), key, secret)
        if token:
            plist.set_fapl_ros3_token(token)
        return File(address, plist)


class File:
    """A file that is open for reading."""

    def __init__(self, address: str, plist: "h5py.h5p.PropFAID") -> None:
        """Open the file at `address` (a path or a URL) with an access list."""
        import h5py

        self._file = h5py.File(h5py.h5f.open(address.encode(), h5py.h5f.ACC_RDONLY, plist))

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        """Return the values of the dataset at `path`, all of them or those at `where`."""
        return self._file[path][where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        """Yield path, shape and attributes of all groups and datasets; each object has the first of its names."""
        yield from walk(self._file)

    def effective(self) -> dict:
        """Return what holds for the file, as the library and the file tell it.

        {"page_buffer_bytes", "rdcc_nbytes", "rdcc_nslots", "paged", "page_size", "driver"}; sizes in bytes.
        """
        from h5py import h5f

        plist, creation = self._file.id.get_access_plist(), self._file.id.get_create_plist()
        _, slots, nbytes, _ = plist.get_cache()
        return {
            "driver": self._file.driver,
            "page_buffer_bytes": plist.get_page_buffer_size()[0],
            "rdcc_nbytes": nbytes,
            "rdcc_nslots": slots,
            "paged": creation.get_file_space_strategy()[0] == h5f.FSPACE_STRATEGY_PAGE,
            "page_size": creation.get_file_space_page_size(),
        }

    def close(self) -> None:
        """Close it."""
        self._file.close()


def walk(file: "h5py.File") -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
    """Yield path, shape and attributes of all groups and datasets of a file that h5py has opened."""
    import h5py

    objects = [file]
    # A visitor that returns something ends the visit.
    file.visititems(lambda _, item: objects.append(item))
    for item in objects:
        if isinstance(item, h5py.Group | h5py.Dataset):
            yield item.name, (item.shape or ()) if isinstance(item, h5py.Dataset) else None, dict(item.attrs)


def credentials(store: dict) -> tuple[str, str, str]:
    """Return key, secret and token of an S3 store from the environment, the token "" without; all "" if anonymous.

    Raises:
        Problem: they are not there.
    """
    if store["anonymous"]:
        return "", "", ""
    key, secret, token = (os.environ.get(name, "") for name in (*KEYS, "AWS_SESSION_TOKEN"))
    if not (key and secret):
        raise Problem("no S3 credentials in the environment; set them, or say anonymous: true")
    return key, secret, token


def access_list(access: Access) -> "h5py.h5p.PropFAID":
    """Return HDF5's file access property list for `access`, with the default driver.

    The low-level list is used because `h5py.File(page_buf_size=0)` means "unset": only here can 0 be asked for.
    """
    from h5py import h5f, h5p

    plist = h5p.create(h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5f.CLOSE_STRONG)
    elements, slots, _, preemption = plist.get_cache()
    plist.set_cache(elements, slots, access.rdcc_nbytes, preemption)
    if access.page_buffer != UNSET:
        plist.set_page_buffer_size(access.page_buffer, 0, 0)
    return plist


DRIVERS = {"sec2": Sec2(), "ros3": Ros3()}
