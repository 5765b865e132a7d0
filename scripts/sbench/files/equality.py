"""Compare the values of an HDF5 file and its copy, dataset by dataset, with bounded memory."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import h5py

from sbench.probe.formats import format_error
from sbench.probe.program import Unable
from sbench.studies.shots.checksums import compute_checksum

# Maximum number of bytes, and of variable-length elements, to compare at a time.
_BLOCK, _ELEMENTS = 2**27, 2**18


def find_difference(original: Path, copy: Path, datasets: Iterable[str], within: str = "") -> str:
    """Compare datasets of a file and its copy by checksums.

    The checksums ignore padding between the members of compound types.

    Args:
        original: path of the file.
        copy: path of the copy, in any layout.
        datasets: paths of the datasets in the original.
        within: group of the copy that corresponds to the root group of the original; an empty string for the root.

    Returns:
        An empty string if all values are equal, otherwise the first dataset that differs or cannot be read, and why.
    """
    try:
        # A chunk may belong to several blocks; the chunk cache is large enough to retain it for the next block.
        with h5py.File(original, rdcc_nbytes=_BLOCK) as before, h5py.File(copy, rdcc_nbytes=_BLOCK) as after:
            differences = (_compare_dataset(before, path, after, f"{within}{path}") for path in datasets)
            return next(filter(None, differences), "")
    except OSError as error:
        return f"{copy} cannot be compared with {original}: {format_error(error)}"


def _compare_dataset(before: h5py.File, path: str, after: h5py.File, copied: str) -> str:
    try:
        with _expect_readable("original"):
            original = before[path]
            shape = original.shape
        with _expect_readable("copy"):
            copy = after[copied]
            if copy.shape != shape:
                return f"{path} has the shape {shape} in the original and {copy.shape} in the copy"
            blocks = _list_blocks(original, copy.chunks)
        return (
            ""
            if all(_is_same_block(original, copy, block) for block in blocks)
            else f"{path} has different values in the copy"
        )
    except Unable as error:
        return f"{path} {error}"


@contextlib.contextmanager
def _expect_readable(which: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError) as error:
        raise Unable(f"cannot be read in the {which}: {format_error(error)}") from error


def _is_same_block(original: h5py.Dataset, copy: h5py.Dataset, block: tuple[slice, ...]) -> bool:
    with _expect_readable("original"):
        expected = compute_checksum(original[block])
    with _expect_readable("copy"):
        return compute_checksum(copy[block]) == expected


def _list_blocks(original: h5py.Dataset, chunks: Sequence[int] | None) -> Iterator[tuple[slice, ...]]:
    """Yield blocks that cover a dataset, each as one slice per axis.

    On each axis, a block spans a multiple of the larger of the two files' chunk sizes, unless that exceeds the memory
    limit.
    """
    if not (shape := original.shape):
        yield ()
        return
    kind = original.dtype
    most = _ELEMENTS if kind.hasobject else max(1, _BLOCK // kind.itemsize)
    own = original.chunks or (1,) * len(shape)
    unit = list(map(max, own, chunks or own))
    size = _compute_block_size(unit if math.prod(unit) <= most else own, shape, most)
    starts = (range(0, length, step) for length, step in zip(shape, size, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(slice(start, start + step) for start, step in zip(corner, size, strict=True))


def _compute_block_size(unit: Sequence[int], shape: Sequence[int], most: int) -> list[int]:
    """Return a block shape of at most `most` elements, made by extending `unit` along the last axis first."""
    size = [max(1, min(pair)) for pair in zip(unit, shape, strict=True)]
    for axis in range(len(size)):
        size[axis] = max(1, min(size[axis], most // math.prod(size[axis + 1 :])))
    for axis in reversed(range(len(size))):
        units = most // math.prod(size)
        size[axis] = max(size[axis], min(size[axis] * units, shape[axis]))
    return size
