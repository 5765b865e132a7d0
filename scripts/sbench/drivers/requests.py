"""Record which byte ranges of a file HDF5 reads, and convert these reads to the requests of a driver.

Together they forecast requests without using the driver. Forecasts assume sequential requests.
"""

import bisect
import io
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from sbench.drivers import DEFAULT, ROS3_FIRST_BYTES
from sbench.probe import sizes

# Maximum size of a request of ROS3 in bytes, and the default read cache of s3fs.
_PART, _READAHEAD = 8 * 2**20, "readahead-50MiB"
# HDF5's own drivers use a sieve buffer, here with its default size (H5Pset_sieve_buf_size); file objects do not.
SIEVE = 2**16
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


def apply_sieve(watched: Reads, spans: Sequence[tuple[int, int]]) -> Reads:
    """Convert reads recorded without a sieve buffer to the reads that HDF5 would make with a sieve buffer.

    HDF5 fills this buffer on small reads of contiguous datasets.

    Args:
        watched: reads without a sieve buffer.
        spans: (begin, end) in bytes of each contiguous extent of values, in ascending order.
    """
    starts, held, reads_of = [begin for begin, _ in spans], (0, 0), []
    for offset, length in watched:
        number = bisect.bisect_right(starts, offset) - 1
        if number < 0 or offset >= spans[number][1] or length > SIEVE:
            reads_of.append((offset, length))
        elif not held[0] <= offset <= offset + length <= held[1]:
            held = offset, min(offset + SIEVE, spans[number][1])
            reads_of.append((offset, held[1] - offset))
    return reads_of


def compute_requests(driver: str, read_cache: str, reads_of: Iterable[tuple[int, int]], size: int) -> dict:
    """Return the number of requests that a driver sends to serve HDF5's reads, and the bytes that it transfers.

    Args:
        driver: name of the driver.
        read_cache: level of the factor `read_cache`.
        reads_of: HDF5's reads, (offset, length) in bytes.
        size: size of the file in bytes.
    """
    requests = [(0, min(ROS3_FIRST_BYTES, size))] if driver == "ros3" else []
    if driver == "ros3":
        # ROS3 fetches the first 16 MiB when it opens the file, and later each read that ends beyond them.
        requests += [(offset, length) for offset, length in reads_of if offset + length > min(ROS3_FIRST_BYTES, size)]
        requests = [part for request in requests for part in _split_request(*request)]
    elif driver == "s3fs":
        from fsspec import caching

        kind, _, block = (_READAHEAD if read_cache == DEFAULT else read_cache).partition("-")
        # The cache "none" has no blocks.
        held = sizes.parse_size(block) if block else 0
        cache = caching.caches[kind](held, lambda *ends: _record_request(requests, *ends, size), size)
        for offset, length in reads_of:
            cache._fetch(offset, min(offset + length, size))
    else:
        requests = list(reads_of)
    # All drivers but sec2 first request the size of the object.
    return {"requests": len(requests) + (driver != "sec2"), "bytes": sum(length for _, length in requests)}


def merge_ranges(ranges: Iterable[tuple[int, int]], gap: int, maximum: int) -> list[tuple[int, int]]:
    """Merge byte ranges (begin, end) as zarr 3.3 and later do for the chunks of a shard (zarr.core._coalesce).

    Args:
        ranges: the ranges, in any order.
        gap: largest number of bytes between two ranges that are merged.
        maximum: largest size of a merged range in bytes.
    """
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin - merged[-1][1] <= gap and max(end, merged[-1][1]) - merged[-1][0] <= maximum:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _record_request(requests: Reads, start: int, end: int, size: int) -> bytes:
    requests.append((start, min(end, size) - start))
    return bytes(requests[-1][1])


def _split_request(offset: int, length: int) -> Reads:
    return [(begin, min(_PART, offset + length - begin)) for begin in range(offset, offset + length, _PART)]
