"""What a synthetic object holds: random bytes that do not compress, any block of which can be made again by itself.

A block is `block_bytes` of raw bits of numpy's SFC64, seeded with (seed, size, object, block) by SeedSequence; both are
fixed by numpy's compatibility policy, so the bytes are the same on every machine.
"""

import hashlib
import io
import zlib
from collections.abc import Iterator

import numpy as np

_LEAST_BLOCK = 4096
_MOST_BLOCKS = 4096


def block_bytes(size: int) -> int:
    """Return the bytes of a block of an object of `size` bytes: a power of two from 4 KiB on, 4,096 blocks at most."""
    return max(_LEAST_BLOCK, 1 << (-(-size // _MOST_BLOCKS) - 1).bit_length())


def blocks(content: dict, size: int) -> Iterator[bytes]:
    """Yield the bytes of an object block by block.

    Args:
        content: {"seed", "object", "block_bytes"}, as in a manifest's entry.
        size: of the object in bytes; the last block may be shorter.
    """
    length = content["block_bytes"]
    for number, start in enumerate(range(0, size, length)):
        seed = np.random.SeedSequence([content["seed"], size, content["object"], number])
        count = min(length, size - start)
        yield np.random.SFC64(seed).random_raw(-(-count // 8)).astype("<u8", copy=False).tobytes()[:count]


def entry(name: str, size: int, seed: int, number: int) -> dict:
    """Return a manifest's entry for an object: {"name", "bytes", "sha256", "crc32", "content"}.

    crc32 has one number a block, the checksum of whatever section a reader is given: sections are whole blocks.
    """
    content = {"seed": seed, "object": number, "block_bytes": block_bytes(size)}
    whole, checksums = hashlib.sha256(), []
    for block in blocks(content, size):
        whole.update(block)
        checksums.append(zlib.crc32(block))
    return {"name": name, "bytes": size, "sha256": whole.hexdigest(), "crc32": checksums, "content": content}


def stream(entry: dict) -> io.BufferedReader:
    """Return the bytes of an entry as a file to read from: nothing of them lies on a disk."""
    return io.BufferedReader(_Stream(blocks(entry["content"], entry["bytes"])), 1 << 20)


class _Stream(io.RawIOBase):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._parts, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
