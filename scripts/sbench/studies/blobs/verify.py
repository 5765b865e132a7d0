"""Compare the blocks that a process has read with the checksums in the manifest."""

import hashlib
import zlib
from collections.abc import Iterable

from sbench.studies.blobs.patterns import Operation


class Verifier:
    """Verifies blocks in the order in which they are read. A block may span several successive operations.

    Attributes:
        right: number of blocks with the expected checksum.
        wrong: number of blocks with another checksum.
        lines: (object number, block number, bytes, crc32) of all blocks.
    """

    def __init__(self, files: list[dict], block: int) -> None:
        """Prepare to verify objects. `files` are their manifest entries, and `block` is the block size in bytes."""
        self._files, self._block = files, block
        self._running: dict[tuple[int, int], int] = {}
        self.right = self.wrong = 0
        self.lines: set[tuple[int, int, int, int]] = set()

    def check_blocks(self, operation: Operation, view: memoryview) -> None:
        """Verify the blocks in `view`, the bytes of an operation. Skip blocks whose first bytes were not read."""
        number, at = operation.object, 0
        for offset, length in operation.extents:
            end = offset + length
            while offset < end:
                block = offset // self._block
                start = block * self._block
                stop = min(start + self._block, self._files[number]["bytes"])
                count = min(stop, end) - offset
                checksum = self._running.pop((number, block), 0 if offset == start else None)
                if checksum is not None:
                    checksum = self._running[number, block] = zlib.crc32(view[at : at + count], checksum)
                    if offset + count == stop:
                        self._record_block(number, block, stop - start)
                offset, at = offset + count, at + count

    def _record_block(self, number: int, block: int, count: int) -> None:
        checksum = self._running.pop((number, block))
        self.lines.add((number, block, count, checksum))
        if checksum == self._files[number]["crc32"][block]:
            self.right += 1
        else:
            self.wrong += 1


def get_manifest_lines(
    files: list[dict], block: int, numbers: Iterable[tuple[int, int]]
) -> set[tuple[int, int, int, int]]:
    """Look up blocks in the manifest, and return (object number, block number, bytes, crc32) for each.

    Args:
        files: the manifest's entries of the objects.
        block: block size in bytes.
        numbers: (object number, block number) of each block.
    """
    return {
        (number, one, min(block, files[number]["bytes"] - one * block), files[number]["crc32"][one])
        for number, one in numbers
    }


def compute_checksum(lines: Iterable[tuple[int, int, int, int]]) -> str:
    """Return the SHA-256 of a set of blocks, computed from sorted, distinct lines "object block bytes crc32".

    It does not depend on how the blocks were divided among processes.
    """
    text = "\n".join(sorted({"{} {} {} {}".format(*line) for line in lines}))
    return hashlib.sha256(text.encode()).hexdigest()
