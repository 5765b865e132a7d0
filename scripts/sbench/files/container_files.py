"""Examine HDF5 files that together hold arrays: which datasets can be converted, and which cannot, with the reasons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import h5py

from sbench.files import chunking
from sbench.files.chunking import Kind
from sbench.files.patterns import MOST_AXES
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.studies.shots.inputs import Source
from sbench.studies.shots.manifest import select_datasets

_LEAST_AXES = 2


@dataclass(frozen=True)
class Array:
    """A dataset, joined from all files along its first axis.

    Attributes:
        name: name in its group.
        kind: shape, chunks and size of its elements.
        rows: length of the first axis in each file.
        chunkings: chunk shapes in the files; more than one if the files differ.
    """

    name: str
    kind: Kind
    rows: tuple[int, ...]
    chunkings: tuple[tuple[int, ...], ...]

    @property
    def bytes(self) -> int:
        """The size of its values in bytes."""
        return chunking.count_selected_bytes(self.kind, "all")


@dataclass(frozen=True)
class Contents:
    """The arrays of some files.

    Attributes:
        group: group of the arrays.
        arrays: the arrays that can be converted.
        dropped: names of the other datasets in the group, except the scales of the arrays' dimensions.
        is_named: whether the arrays have dimension scales.
        coordinates: sizes in bytes of the coordinates that belong to the scales.
        times: number of coordinates that xarray decodes as times.
        left_out: a sentence for each dataset that cannot be converted.
    """

    group: str
    arrays: list[Array]
    dropped: list[str]
    is_named: bool
    coordinates: list[int]
    times: int
    left_out: list[str]

    @property
    def largest(self) -> Array:
        """The array with the most bytes."""
        return max(self.arrays, key=lambda array: array.bytes)

    def find_misfit(self) -> str:
        """Return why references cannot join the files; an empty string if they can."""
        for array in self.arrays:
            if len(array.chunkings) > 1:
                shapes = " and ".join(map(str, array.chunkings[:2]))
                return f"the chunks of {array.name} differ among the files: {shapes}"
            chunks = array.chunkings[0]
            if chunks and any(rows % chunks[0] for rows in array.rows[:-1]):
                rows = next(rows for rows in array.rows if rows % chunks[0])
                return f"a file has {rows} rows of {array.name}, not a multiple of the {chunks[0]} rows of a chunk"
        return ""


def read_contents(files: Sequence[Source], patterns: Sequence[str]) -> Contents:
    """Examine the datasets of files that are joined along the first axis.

    Args:
        files: the files, in their order along that axis.
        patterns: patterns of the datasets to read.

    Raises:
        Problem: no dataset can be converted.
    """
    left_out: list[str] = []
    with files[0].open_hdf5() as file:
        candidates = {}
        obstacles: dict[str, list[str]] = {}
        for dataset in select_datasets(file, patterns, files[0].where):
            if file[dataset.name].is_scale:
                continue
            if reason := _find_obstacle(dataset):
                obstacles.setdefault(reason, []).append(dataset.name)
            else:
                candidates[dataset.name] = dataset.size * dataset.dtype.itemsize
        for reason, names in obstacles.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            left_out.append(f"{names[0]}{more}: {reason}")
        if not candidates:
            text = f": {left_out[0]}" if left_out else ""
            raise Problem(
                f"{files[0].where} has no array of numbers with {_LEAST_AXES} to {MOST_AXES} dimensions{text}"
            )
        group = str(PurePosixPath(max(candidates, key=candidates.get)).parent)
        if others := [name for name in candidates if str(PurePosixPath(name).parent) != group]:
            count = sizes.format_count(len(others), "dataset")
            left_out.append(f"{others[0]}: in another group than {group} ({count}); name them with --datasets")
        names = [name for name in candidates if str(PurePosixPath(name).parent) == group]
        first = _get_dimension(file[max(names, key=candidates.get)])
        for name in [name for name in names if _get_dimension(file[name]) != first]:
            left_out.append(f"{name}: its first dimension is not {first or 'without a scale'}")
            names.remove(name)
    arrays = [array for name in names if (array := _join_files(name, files, left_out))]
    if not arrays:
        raise Problem(f"the files do not join along the first axis: {left_out[-1]}")
    with files[0].open_hdf5() as file:
        kept = {array.name for array in arrays}
        scales = {scale for array in arrays for scale in _list_scales(file[f"{group}/{array.name}"])}
        members = [name for name, member in file[group].items() if isinstance(member, h5py.Dataset)]
        dropped = [name for name in members if name not in kept | scales]
        coordinates = [file[group][name] for name in sorted(scales) if name in members]
        times = sum(" since " in str(coordinate.attrs.get("units", "")) for coordinate in coordinates)
        held = [coordinate.size * coordinate.dtype.itemsize for coordinate in coordinates]
        return Contents(group, arrays, dropped, bool(first), held, times, left_out)


def _find_obstacle(dataset: h5py.Dataset) -> str:
    """Return why a dataset is not an array that can be converted; an empty string if it is."""
    if dataset.dtype.kind not in "iuf":
        return f"values of the type {dataset.dtype} are not numbers"
    axes = len(dataset.shape or ())
    if not _LEAST_AXES <= axes <= MOST_AXES:
        return f"{axes}-dimensional, not {_LEAST_AXES} to {MOST_AXES}"
    return "" if dataset.size else "it is empty"


def _get_dimension(dataset: h5py.Dataset) -> str:
    """Return the path of the scale of the first axis; an empty string if it has none."""
    return dataset.dims[0][0].name if len(dataset.dims[0]) else ""


def _list_scales(dataset: h5py.Dataset) -> Iterator[str]:
    for axis in dataset.dims:
        yield from (PurePosixPath(scale.name).name for scale in axis.values())


def _join_files(name: str, files: Sequence[Source], left_out: list[str]) -> Array | None:
    """Return a dataset of all files, or None with the reason in `left_out` if it cannot be joined."""
    kinds: list[Kind] = []
    types = set()
    for source in files:
        with source.open_hdf5() as file:
            dataset = file.get(name)
            if not isinstance(dataset, h5py.Dataset) or not dataset.shape:
                left_out.append(f"{name}: {source.where} lacks it")
                return None
            kinds.append(chunking.get_kind(dataset))
            types.add(dataset.dtype)
        if kinds[-1].shape[1:] != kinds[0].shape[1:] or len(types) > 1:
            left_out.append(
                f"{name}: {kinds[-1].shape} of {source.where} does not join with {kinds[0].shape} of {files[0].where}"
            )
            return None
    rows = tuple(kind.shape[0] for kind in kinds)
    stored = round(sum(kind.stored * size for kind, size in zip(kinds, rows, strict=True)) / max(1, sum(rows)), 2)
    kind = kinds[0]._replace(shape=(sum(rows), *kinds[0].shape[1:]), stored=stored)
    return Array(name.rpartition("/")[2], kind, rows, tuple(dict.fromkeys(kind.chunks for kind in kinds)))


def link_files(files: Sequence[Source], folder: Path) -> list[Path]:
    """Make files available in a folder, by symbolic links or copies, under names that sort in the order of `files`.

    Returns:
        Their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [Path(source.name).name for source in files]
    if names != sorted(set(names)):
        names = [f"{number:05}-{name}" for number, name in enumerate(names)]
    for source, name in zip(files, names, strict=True):
        path = folder / name
        path.unlink(missing_ok=True)
        if source.reader:
            with source.open_raw() as content, open(path, "wb") as copy:
                for block in iter(lambda: content.read(2**22), b""):
                    copy.write(block)
        else:
            path.symlink_to(Path(source.where).resolve())
    return [folder / name for name in names]
