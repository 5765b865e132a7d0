"""Wrap an object in a store as a Python file object, for reads that are not measured."""

import io
from functools import lru_cache

from sbench.stores.reading import Reader

_BLOCK, _BLOCKS = 4 * 2**20, 32


class AsFile(io.RawIOBase):
    """A read-only file object for an object in a store. It caches the 32 most recently used blocks of 4 MiB."""

    def __init__(self, reader: Reader, name: str) -> None:
        """Fetch the object's size and version.

        Raises:
            Problem: the object is missing or the request fails; later reads raise it if the object has changed.
        """
        self._reader, self._name, self._position = reader, name, 0
        self.identity = reader.fetch_identity(name)
        self._block = lru_cache(_BLOCKS)(self._fetch_block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set and return the position; see `io.IOBase.seek`."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.identity.size}[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        """Read until `buffer` is full or the object ends, because h5py does not continue after a short read."""
        done, there = 0, max(0, min(len(buffer), self.identity.size - self._position))
        while done < there:
            number, begin = divmod(self._position, _BLOCK)
            piece = self._block(number)[begin : begin + there - done]
            buffer[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def _fetch_block(self, number: int) -> bytes:
        offset = number * _BLOCK
        block = bytearray(min(_BLOCK, self.identity.size - offset))
        self._reader.read(self._name, [(offset, len(block))], memoryview(block), self.identity)
        return bytes(block)
