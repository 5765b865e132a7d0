"""An object of a store as a Python file, for what reads files and is not measured: blocks are fetched and kept."""

import io
from functools import lru_cache

from sbench.stores.reading import Reader

_BLOCK, _BLOCKS = 4 * 2**20, 32


class AsFile(io.RawIOBase):
    """An object, read in blocks of 4 MiB of which the last 32 are kept."""

    def __init__(self, reader: Reader, name: str) -> None:
        """Ask for the object's size and version.

        Raises:
            Problem: it is not there, or cannot be asked for; `read` raises one if it has changed since.
        """
        self._reader, self._name, self._position = reader, name, 0
        self.identity = reader.fetch_identity(name)
        self._block = lru_cache(_BLOCKS)(self._fetch_block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as in any file."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.identity.size}[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        """Read all that is asked for and there: h5py does not ask for what a shorter read leaves out."""
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
