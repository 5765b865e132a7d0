"""Record which byte ranges of a file HDF5 reads, in order."""

import io
from typing import BinaryIO

# (offset, length) of each read, in bytes.
Reads = list[tuple[int, int]]


class Watched(io.RawIOBase):
    """A file object that wraps another file object and records reads while `noting` is true.

    Attributes:
        reads: (offset, length) of the recorded reads, in bytes.
        noting: whether reads are recorded.
    """

    def __init__(self, raw: BinaryIO | io.RawIOBase) -> None:
        """Wrap a file object that is open for reading."""
        self._raw, self.reads, self.noting = raw, Reads(), True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek in the wrapped file."""
        return self._raw.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:
        """Read from the wrapped file, and record the offset and the requested length."""
        if self.noting:
            self.reads.append((self._raw.tell(), len(buffer)))
        return self._raw.readinto(buffer) or 0
