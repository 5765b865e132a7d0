"""A grid of chunks: an array with shards in a Zarr store, or references to chunks in other files."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Mean length of a referenced chunk, in bytes.
_LENGTH = 1_000_000
ORDERS = ("of equal length", "in order", "shuffled", "with gaps")


class References(NamedTuple):
    """References to the chunks of a grid, with a row per file.

    Attributes:
        paths: URL of the file of each chunk, as strings of variable length.
        offsets, lengths: position in the file and length in bytes, as uint64.
    """

    paths: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray


def write_grid(path: Path, shape: Sequence[int], shards: Sequence[int], chunks: Sequence[int], seed: int = 1) -> None:
    """Write an array of random bytes without compression, in Zarr format 3.

    Args:
        path: folder of the array.
        shape: shape of the array.
        shards: shape of a shard.
        chunks: shape of the chunks in a shard.
        seed: seed of the values.
    """
    import zarr

    array = zarr.create_array(
        path, shape=tuple(shape), shards=tuple(shards), chunks=tuple(chunks), dtype="u1", compressors=None
    )
    array[...] = np.random.default_rng(seed).integers(0, 256, tuple(shape), dtype="u1")


def list_references(order: str, files: int, chunks: int, seed: int = 1) -> References:
    """Return references to the chunks of equally large parts of a grid, a file per part.

    Args:
        order: one of `ORDERS`. "of equal length": chunks one after another, as without compression; "in order":
            chunks of different lengths, one after another; "shuffled": the same in random order, as parallel writers
            leave them; "with gaps": in order, with gaps of random length, as between the chunks of other variables.
        files: number of files.
        chunks: number of chunks in each file.
        seed: seed of lengths, order and gaps.

    Raises:
        ValueError: the order is unknown.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)} (got {order})")
    numbers, shape = np.random.default_rng(seed), (files, chunks)
    lengths = np.full(shape, _LENGTH)
    if order != "of equal length":
        lengths = numbers.normal(_LENGTH, _LENGTH / 10, shape).astype("i8").clip(1)
    gaps = numbers.integers(0, 10 * _LENGTH, shape) if order == "with gaps" else np.zeros(shape, "i8")
    places = np.broadcast_to(np.arange(chunks), shape)
    if order == "shuffled":
        places = numbers.permuted(places, axis=1)
    stored = np.take_along_axis(lengths, np.argsort(places, axis=1), axis=1) + gaps
    offsets = np.take_along_axis(stored.cumsum(axis=1) - stored, places, axis=1)
    names = np.array([f"s3://archive/daily/temperature-{number:06d}.nc" for number in range(files)])
    paths = np.repeat(names[:, None], chunks, axis=1).astype(np.dtypes.StringDType())
    return References(paths, offsets.astype("u8"), lengths.astype("u8"))
