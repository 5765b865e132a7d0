"""Build the manifest of a set of user files: a list of all reads, with checksums of the values."""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import h5py

from sbench.drivers import BESIDE, IN_PLACE, LINKS, WITHIN
from sbench.probe import hdf5_tree
from sbench.probe.formats import format_error
from sbench.probe.program import Problem, Unable
from sbench.studies.shots import selection
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.addresses import IN_BUCKET
from sbench.studies.shots.checksums import compute_checksum
from sbench.studies.shots.choice import choose_datasets, describe_empty_choice, describe_left_out
from sbench.studies.shots.datasets import Dataset, Entry
from sbench.studies.shots.elsewhere import find_holders
from sbench.studies.shots.files import get_common_value, get_creation_facts, list_extents
from sbench.studies.shots.gathered import open_gathered
from sbench.studies.shots.inputs import Source, find_sources

# Maximum number of reads in a manifest, because each measurement loads it.
_MOST_READS = 200_000
_TOO_MANY = (
    f"more than {_MOST_READS:,} reads of datasets or chunks; name fewer datasets or files, or a smaller selection"
)


def describe_set(settings: dict) -> dict:
    """Build the manifest of a set of files. It lists the datasets to read, with sizes, checksums and selected parts.

    Files with nothing to read, and datasets that cannot be read, are omitted and counted.

    Args:
        settings: {"files", "datasets", "layout"}, optionally "selection", and "at" with the store's entry for files in
            a bucket.

    Raises:
        Problem: a file is not HDF5, values cannot be read, or a pattern matches no dataset.
    """
    files = find_sources(settings["files"], settings.get("at"))
    contents = _Contents(settings.get("selection", selection.ALL), settings["datasets"])
    for one in files:
        with open_gathered(one, settings.get("at")) as (source, file):
            contents.add_file(source, file)
    contents.expect_all(settings["layout"])
    entries = [entry for held in contents.objects.values() for entry in held.values()]
    return {
        "generator": None,
        "settings": {},
        **({"in_place": _get_root_key(files[0])} if "at" in settings else {}),
        "files": list((contents.companions | {entry["name"]: entry for entry in contents.files}).values()),
        "layout": {
            "layout": settings["layout"],
            **{key: get_common_value({fact[key] for fact in contents.facts}) for key in ("paged", "page_size")},
            "files": len(contents.files),
            "files_left_out": len(files) - len(contents.files),
            "dataset_reads": sum(len(entry["datasets"]) for entry in entries),
            "datasets_left_out": len(contents.left_out),
            "datasets_without_selection": contents.without,
        },
        "left_out": list(_count_reasons(contents.left_out)),
        "datasets": {pattern: list(paths) for pattern, paths in contents.groups.items()},
        "objects": contents.objects,
    }


def compute_data_sha256(objects: Mapping[str, Mapping[str, dict]]) -> str:
    """Return a hash of all values in a set of files that does not depend on how many files there are or their names."""
    held = (entry for of_file in objects.values() for entry in of_file.values())
    return hashlib.sha256(
        json.dumps(sorted(line[1:3] for entry in held for line in entry["datasets"])).encode()
    ).hexdigest()


def _get_root_key(source: Source) -> str:
    key = source.where.removeprefix(IN_BUCKET).partition("/")[2]
    return key.removesuffix(source.name).rstrip("/")


@dataclass
class _Contents:
    """The content of a manifest: the planned reads from a set of files, collected file by file."""

    level: str
    patterns: Sequence[str]
    files: list[dict] = field(default_factory=list)
    # Other files that contain values of datasets in `files`, keyed by name.
    companions: dict[str, dict] = field(default_factory=dict)
    facts: list[dict] = field(default_factory=list)
    objects: dict[str, dict[str, dict]] = field(default_factory=dict)
    # For each pattern, the paths of matching datasets, in the keys of a dict.
    groups: dict[str, dict[str, None]] = field(default_factory=dict)
    left_out: list[Entry] = field(default_factory=list)
    # For each pattern, the entries that cannot be read in the first file with such entries.
    first_left_out: dict[str, list[Entry]] = field(default_factory=dict)
    lacking: str = ""
    # Number of datasets in which the selection contains no element.
    without: int = 0

    def add_file(self, source: Source, file: h5py.File) -> None:
        held = self._read_tree(source, file) if self.level == selection.METADATA else self._read_datasets(source, file)
        if not held:
            return
        self.objects[source.name] = held
        self.facts.append(get_creation_facts(file))
        path = {} if source.reader else {"path": source.where}
        self.files.append({"name": source.name, "bytes": source.bytes, **source.version, **path})
        if sum(len(entry["datasets"]) for of in self.objects.values() for entry in of.values()) > _MOST_READS:
            raise Problem(_TOO_MANY)

    def _read_tree(self, source: Source, file: h5py.File) -> dict[str, dict]:
        # The tree as read by HDF5 itself is the reference for all drivers.
        from sbench.drivers import native

        self.groups.setdefault(self.level, {})["/"] = None
        needs = {"needs": LINKS} if any(map(_is_odd, hdf5_tree.walk_links(file))) else {}
        return {
            "/": _build_entry(source, [["/", *compute_checksum(list(native.walk_file(file))), selection.WALK]]) | needs
        }

    def _read_datasets(self, source: Source, file: h5py.File) -> dict[str, dict]:
        choice = choose_datasets(file, self.patterns, source.where, self.level, source.root)
        held = {}
        for pattern, datasets in choice.meant.items():
            for dataset in datasets:
                try:
                    entry = _read_entry(source, dataset, self.level)
                except Unable as error:
                    choice.add_entry(
                        pattern, Entry(dataset.name, reason="h5py cannot read its values", detail=str(error))
                    )
                    continue
                self.groups.setdefault(pattern, {})[dataset.name] = None
                if entry["datasets"]:
                    held[dataset.name] = entry | self._resolve_needs(source, dataset)
                else:
                    self.without += 1
        self.left_out += choice.list_left_out()
        self.first_left_out = choice.left_out | self.first_left_out
        if not held:
            self.lacking = self.lacking or describe_empty_choice(choice, self.patterns, source.where)
        return held

    def _resolve_needs(self, source: Source, dataset: Dataset) -> dict:
        """Record the other files that contain a dataset's values.

        Returns:
            {"needs": feature} with the feature that a driver needs to read such a dataset, otherwise an empty dict.
        """
        if not dataset.elsewhere:
            return {}
        held = find_holders(dataset)
        for path in sorted(held.files):
            name, state = os.path.relpath(path, source.root), path.stat()
            facts = {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns, "path": str(path)}
            self.companions[name] = {"name": name, **source.gathered.get(name, facts)}
        return {"needs": IN_PLACE if held.fixed else BESIDE if held.files else WITHIN}

    def expect_all(self, layout: str) -> None:
        """Raise Problem if there is nothing to read for one of the patterns, or in the whole set."""
        if not self.groups:
            raise Problem(self.lacking)
        wanted = [pattern for pattern in self.patterns if not pattern.startswith("!")]
        idle = [one for one in wanted if one not in self.groups and self.level != selection.METADATA]
        if idle and (entries := self.first_left_out.get(idle[0])):
            raise Problem(f"no readable dataset of {layout} matches {idle[0]}: {describe_left_out(entries)}")
        if idle:
            raise Problem(f"no dataset in the files of {layout} matches {idle[0]}; correct the pattern")
        if not self.objects:
            raise Problem(f"the selection {self.level} is empty for these datasets; choose a larger selection")


def _is_odd(link: hdf5_tree.Link) -> bool:
    """Return whether a link is soft, repeated or not UTF-8. Libraries may treat such links differently."""
    return bool(link.kind or not link.first or not hdf5_tree.is_utf8(link.path))


def _count_reasons(entries: Sequence[Entry]) -> Iterator[dict]:
    for why in dict.fromkeys(entry.reason for entry in entries):
        of = [entry for entry in entries if entry.reason == why]
        yield {"reason": why, "count": len(of), "first": str(of[0])}


def select_datasets(file: h5py.File, patterns: Sequence[str], where: str, level: str = "") -> list[Dataset]:
    """Return the matching datasets whose values are in the file itself. For the arguments, see `choose_datasets`.

    Raises:
        Problem: no dataset matches.
    """
    choice = choose_datasets(file, patterns, where, level, inside=True)
    if not choice.meant:
        raise Problem(describe_empty_choice(choice, patterns, where))
    return choice.list_meant()


def list_datasets(file: h5py.File, patterns: Sequence[str], where: str, accesses: Accesses) -> list[h5py.Dataset]:
    """Return the datasets that can be read with each selection in `accesses` other than "metadata".

    The list is empty if there is no such selection. For the other arguments, see `choose_datasets`.

    Raises:
        Problem: no dataset matches the patterns, can be read and fits into memory.
    """
    levels = [level for level in accesses.shares if level != selection.METADATA]
    read = [select_datasets(file, patterns, where, level) for level in levels]
    common = set.intersection(*({one.name for one in of} for of in read)) if read else set()
    return [one for one in (read or [[]])[0] if one.name in common]


def _read_entry(source: Source, dataset: Dataset, level: str) -> dict:
    """Read a dataset, and build its manifest entry: the checksum and stored bytes of each selected part."""
    lines, stored = [], []
    stored_of = _build_size_lookup(dataset)
    for place in selection.iter_places(level, dataset.shape or (), dataset.chunks):
        lines.append([dataset.name, *_compute_place_checksum(source, dataset, place), *([place] if place else [])])
        stored.append(stored_of(place))
        if len(lines) > _MOST_READS:
            raise Problem(_TOO_MANY)
    return _build_entry(source, lines, stored)


def _compute_place_checksum(source: Source, dataset: Dataset, place: selection.Place) -> tuple[int, int]:
    try:
        return compute_checksum(dataset[selection.convert_to_slices(place)])
    except (TypeError, ValueError, MemoryError) as error:
        raise Unable(format_error(error)) from error
    except (OSError, RuntimeError) as error:
        remedy = f'exclude it with the pattern "!{dataset.name}"'
        raise Problem(f"{source.where}: {dataset.name} cannot be read: {format_error(error)}; {remedy}") from error


def _build_size_lookup(dataset: Dataset) -> Callable[[selection.Place], int]:
    """Build a function that returns how many bytes in the file store a given part of a dataset."""
    if dataset.elsewhere:
        return lambda place: 0
    if not dataset.chunks:
        whole, shape = sum(end - start for start, end in list_extents(dataset)), dataset.shape or ()
        # A read from a dataset without chunks takes no more bytes than the whole dataset.
        return lambda place: (
            min(whole, selection.count_elements(place, shape) * dataset.dtype.itemsize) if place else whole
        )
    sizes: dict[tuple, int] = {}
    dataset.id.chunk_iter(lambda chunk: sizes.update({chunk.chunk_offset: chunk.size}))
    return lambda place: sum(sizes.get(offset, 0) for offset in _list_touched_chunks(place, dataset.chunks, sizes))


def _list_touched_chunks(place: selection.Place, chunks: tuple[int, ...], there: Collection[tuple]) -> Iterable[tuple]:
    """Return the offsets of the chunks that intersect a part of a dataset.

    The search covers the range of chunks around the part or all stored chunks, whichever are fewer.
    """
    if not place:
        return there
    ranges = [range(begin // size * size, end, size) for (begin, end, _), size in zip(place, chunks, strict=True)]
    few = math.prod(map(len, ranges)) < len(there)
    return (
        offset
        for offset in (itertools.product(*ranges) if few else there)
        if selection.is_chunk_touched(place, offset, chunks)
    )


def _build_entry(source: Source, lines: list, stored: list | None = None) -> dict:
    return {"file": source.name, "datasets": lines} | ({} if stored is None else {"stored_bytes": stored})
