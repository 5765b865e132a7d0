"""Generate synthetic objects: random bytes that do not compress, and any part of which can be made again by itself.

A piece of at most 4 MiB is raw bits of numpy's SFC64, seeded with (seed, size, object, piece) by SeedSequence; both are
fixed by numpy's compatibility policy, so the bytes are the same on every machine. A block is a piece, or several.
"""

import hashlib
import io
import zlib
from collections.abc import Iterator

from sbench.probe import sizes

PIECE = 1 << 22


def iter_pieces(content: dict, size: int, start: int = 0) -> Iterator[bytes]:
    """Yield the bytes of an object from `start`, in pieces of at most 4 MiB; no piece crosses the end of a block.

    Args:
        content: {"seed", "object", "block_bytes"}, as in a manifest's entry.
        size: bytes of the object; the last block may be shorter.
        start: offset of the first byte; the part of its piece before it is made and dropped.
    """
    # Every module for stores imports this module, and few make an object: importing numpy takes longer than many a
    # cell.
    import numpy as np

    length = min(PIECE, content["block_bytes"])
    for number in range(start // length, -(-size // length)):
        bits = np.random.SFC64(np.random.SeedSequence([content["seed"], size, content["object"], number]))
        begin = number * length
        count = min(length, size - begin)
        piece = bits.random_raw(-(-count // 8)).astype("<u8", copy=False).tobytes()
        yield piece[max(0, start - begin) : count]


def build_entry(name: str, size: int, seed: int, number: int) -> dict:
    """Build a manifest's entry for an object: {"name", "bytes", "sha256", "crc32", "content"}.

    crc32 has a number per block, so that it covers any section given to a reader: sections are whole blocks.
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
    """Open the bytes of an entry as a seekable file to read from; no byte is on a disk."""
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
