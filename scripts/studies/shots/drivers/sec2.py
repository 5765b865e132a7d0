"""HDF5's own driver for files of this machine's file systems."""

from typing import TYPE_CHECKING

from scripts.studies.shots.drivers import Access, Driver, File

if TYPE_CHECKING:
    from scripts.stores.store import Store


class Sec2(Driver):
    """POSIX calls."""

    def reads(self, store: "Store") -> bool:
        """Return whether the store's objects are files."""
        return store.files

    def open(self, address: str, access: Access) -> File:
        """Open a file."""
        from scripts.studies.shots import hdf5

        return hdf5.File(address, hdf5.access_list(access))


DRIVER = Sec2()
