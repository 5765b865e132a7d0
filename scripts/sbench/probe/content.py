"""Generate synthetic objects of incompressible random bytes. Any part can be regenerated independently.

Each piece of at most 4 MiB consists of raw bits from numpy's SFC64, seeded with (seed, size, object number, piece
number) by SeedSequence. numpy's compatibility policy fixes the output of both, so the bytes are the same on every
machine. A block consists of one or more pieces.
"""

import hashlib
import io
import zlib
from collections.abc import Iterator

from sbench.probe import sizes

PIECE = 1 << 22


def iter_pieces(content: dict, size: int, start: int = 0) -> Iterator[bytes]:
    """Yield the bytes of an object from `start`, in pieces of at most 4 MiB that do not cross block boundaries.

    Args:
        content: "seed", "object" (its number) and "block_bytes", as in a manifest's entry.
        size: size of the object in bytes; the last block may be shorter than the others.
        start: offset of the first byte. The bytes before it in its piece are generated and discarded.
    """
    # Imported here because all modules for stores import this module but few generate objects, and importing numpy
    # takes longer than measuring some cells.
    import numpy as np

    length = min(PIECE, content["block_bytes"])
    for number in range(start // length, -(-size // length)):
        bits = np.random.SFC64(np.random.SeedSequence([content["seed"], size, content["object"], number]))
        begin = number * length
        count = min(length, size - begin)
        piece = bits.random_raw(-(-count // 8)).astype("<u8", copy=False).tobytes()
        yield piece[max(0, start - begin) : count]


def build_entry(name: str, size: int, seed: int, number: int) -> dict:
    """Build a manifest's entry for an object, with "name", "bytes", "sha256", "crc32" and "content".

    "crc32" is a list with a checksum per block, so that any section of whole blocks can be verified.
    """
    content = {"seed": seed, "object": number, "block_bytes": sizes.compute_block_bytes(size)}
    whole, checksums, position = hashlib.sha256(), [], 0
    for piece in iter_pieces(content, size):
        whole.update(piece)
        if position % content["block_bytes"] == 0:
            checksums.append(0)
        checksums[-1] = zlib.crc32(piece, checksums[-1])
        position += len(piece)
    return {"name": name, "bytes": size, "sha256": whole.hexdigest(), "crc32": checksums, "content": content}


def open_stream(entry: dict) -> io.BufferedReader:
    """Open an object, given its manifest entry, as a seekable binary stream that is generated while it is read."""
    return io.BufferedReader(_Stream(entry), 1 << 20)


class _Stream(io.RawIOBase):
    def __init__(self, entry: dict) -> None:
        self._content, self._size = entry["content"], entry["bytes"]
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: getattr(self, "_position", 0), io.SEEK_END: self._size}[whence]
        self._position = base + offset
        self._pieces, self._rest = iter_pieces(self._content, self._size, self._position), memoryview(b"")
        return self._position

    def readinto(self, buffer: memoryview) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._position += count
        return count
