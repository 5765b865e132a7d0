"""Record the reads of a file: the bytes that HDF5 asks for, in order."""

import io
from typing import BinaryIO

# (offset, length) of each read, in bytes.
Reads = list[tuple[int, int]]


class Watched(io.RawIOBase):
    """A file object that records its reads while `noting` is true."""

    def __init__(self, raw: BinaryIO | io.RawIOBase) -> None:
        """Wrap a file that is open for reading."""
        self._raw, self.reads, self.noting = raw, Reads(), True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek, as in any file."""
        return self._raw.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:
        """Read, and record offset and length."""
        if self.noting:
            self.reads.append((self._raw.tell(), len(buffer)))
        return self._raw.readinto(buffer) or 0
