"""h5py over a Python file object, for files and for objects that anybody may ask for over HTTP."""

import io
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.drivers import Access, Driver, File, Where, native

if TYPE_CHECKING:
    import numpy as np

    from sbench.stores.store import Store


class FileObject(Driver):
    """HDF5's driver `fileobj`."""

    def supports_store(self, store: "Store") -> bool:
        """Return whether the store's objects are files, or at a URL that needs no credentials."""
        return store.files or getattr(store, "plain", False)

    def open(self, address: str, access: Access) -> File:
        """Open a file or an object."""
        return _File(_Object(address) if "://" in address else open(address, "rb"), access)


class _File:
    def __init__(self, source: io.IOBase, access: Access) -> None:
        import h5py

        self._source, self._file = source, h5py.File(source, "r", **access.chunk_cache)

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        return self._file[path][where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        return native.walk_file(self._file)

    def read_settings(self) -> dict:
        return {"driver": self._file.driver, **native.read_chunk_cache(self._file)}

    def close(self) -> None:
        self._file.close()
        self._source.close()


class _Object(io.RawIOBase):
    """An object at a URL; each read is a request."""

    def __init__(self, url: str) -> None:
        self._url, self._position = url, 0
        with self._get("bytes=0-0") as answer:
            self._size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        with self._get(f"bytes={self._position}-{self._position + count - 1}") as answer:
            count = answer.readinto(buffer[:count])
        self._position += count
        return count

    def _get(self, span: str):
        return urllib.request.urlopen(urllib.request.Request(self._url, headers={"Range": span}))


class Samba(FileObject):
    """The same over a network that few libraries speak."""

    needs = ("smbprotocol",)


DRIVERS = {"fileobj": FileObject(), "samba": Samba()}
