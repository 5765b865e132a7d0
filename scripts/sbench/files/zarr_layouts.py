"""Describe where the chunks of a Zarr array are: the sizes of its objects, and the indexes of its shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sbench.probe.zarr_shards import ShardIndex

# The position of an object in the grid of chunks, or of shards.
Position = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the chunks of an array are.

    Attributes:
        sizes: size in bytes of each object that takes requests, by position; None if all objects take requests and
            their sizes are not known.
        index: index of its shards; None for an array without shards.
        read_index: function that returns the bytes of the index of the shard at a position, and the name of the shard
            for messages; None instead of bytes if there is no shard. None if indexes are not read.
        split: size in bytes above which an object is requested in parts, and maximum number of parts; () if a request
            fetches any number of bytes.
    """

    sizes: Mapping[Position, int] | None = None
    index: ShardIndex | None = None
    read_index: Callable[[Position], tuple[bytes | None, str]] | None = None
    split: tuple[int, int] | tuple[()] = ()

    def count_parts(self, size: int) -> int:
        """Return the number of requests that fetch this number of contiguous bytes."""
        return max(1, min(-(-size // self.split[0]), self.split[1])) if self.split else 1

    def read_ranges(self, position: Position) -> np.ndarray | None:
        """Return the offset and size in bytes of each chunk of a shard, or None if there is no shard.

        Raises:
            Problem: the index cannot be read.
        """
        data, where = self.read_index(position)
        return None if data is None else self.index.parse(data, where)
