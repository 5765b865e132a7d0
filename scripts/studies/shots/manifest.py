"""The manifest of a set of the user's own files: what is read of them, with its checksums."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import h5py

from scripts.lib.formats import reason
from scripts.lib.program import Problem
from scripts.studies.shots import selection
from scripts.studies.shots.checksums import fingerprint
from scripts.studies.shots.files import (
    BUILT_IN,
    common,
    creation,
    datasets_of,
    expression,
    extents,
    filters_of,
    is_elsewhere,
)
from scripts.studies.shots.inputs import Source, sources
from scripts.studies.shots.sets import IN_BUCKET

# What a manifest, which each cell reads, may hold.
_MOST_READS = 200_000


def of_set(settings: dict) -> dict:
    """Return the facts of a set of files: which datasets are read, their sizes, checksums and places.

    Args:
        settings: {"files", "datasets", "layout", "selection" where it is not all of them, "at": the store's entry where
            they lie in a bucket}.

    Raises:
        Problem: a file is not HDF5, holds no dataset that is named, or something of them that cannot be read.
    """
    level, patterns = settings.get("selection", selection.ALL), settings["datasets"]
    files, objects, groups, facts = [], {}, {}, []
    reads, skipped, without = 0, 0, 0
    for source in (files_of := sources(settings["files"], settings.get("at"))):
        with source.opened() as file:
            facts.append(creation(file))
            if level == selection.METADATA:
                held = {"/": _entry(source, [["/", *fingerprint(list(_walk(file))), selection.WALK]])}
                groups.setdefault(level, {})["/"] = None
            else:
                by_pattern, left_out = chosen(file, patterns, source.where)
                skipped += left_out
                held = {}
                for pattern, datasets in by_pattern.items():
                    for dataset in datasets:
                        held[dataset.name] = _lines(source, dataset, level)
                        without += not held[dataset.name]["datasets"]
                        reads += len(held[dataset.name]["datasets"])
                        groups.setdefault(pattern, {})[dataset.name] = None
        if reads > _MOST_READS:
            raise Problem(
                f"more than {_MOST_READS:,} reads of datasets or chunks; narrow data.datasets, files, or the selection"
            )
        objects[source.name] = {path: entry for path, entry in held.items() if entry["datasets"]}
        path = {} if source.reader else {"path": source.where}
        files.append({"name": source.name, "bytes": source.bytes, **source.version, **path})
    if idle := [
        one for one in patterns if not one.startswith("!") and one not in groups and level != selection.METADATA
    ]:
        raise Problem(f"no file of {settings['layout']} has a dataset that {idle[0]} means; correct data.datasets")
    if not any(objects.values()):
        raise Problem(f"the selection {level} leaves nothing to read of these datasets; choose a larger one")
    return {
        "generator": None,
        "settings": {},
        **({"in_place": _root(files_of[0])} if "at" in settings else {}),
        "files": files,
        "layout": {
            "layout": settings["layout"],
            **{key: common({fact[key] for fact in facts}) for key in ("paged", "page_size")},
            "files": len(files),
            "dataset_reads": sum(len(entry["datasets"]) for held in objects.values() for entry in held.values()),
            "datasets_left_out": skipped,
            "datasets_without_selection": without,
        },
        "datasets": {pattern: list(paths) for pattern, paths in groups.items()},
        "objects": objects,
    }


def data_sha256(objects: Mapping[str, Mapping[str, dict]]) -> str:
    """Return one hash for the values of a set, whatever its files are called and however many hold them."""
    held = (entry for of_file in objects.values() for entry in of_file.values())
    return hashlib.sha256(
        json.dumps(sorted(line[1:3] for entry in held for line in entry["datasets"])).encode()
    ).hexdigest()


def _root(source: Source) -> str:
    key = source.where.removeprefix(IN_BUCKET).partition("/")[2]
    return key.removesuffix(source.name).rstrip("/")


def _walk(file: h5py.File) -> Iterator[tuple]:
    # What HDF5's own drivers do is what the others are held against.
    from scripts.drivers import hdf5

    yield from hdf5.walk(file)


def chosen(file: h5py.File, patterns: Sequence[str], where: str) -> tuple[dict[str, list[h5py.Dataset]], int]:
    """Return the datasets that each pattern means, and how many were left out.

    References mean nothing to another reader, and what lies in other files is not there in a store.
    """
    wanted = [(pattern, re.compile(expression(pattern))) for pattern in patterns if not pattern.startswith("!")]
    unwanted = [re.compile(expression(pattern[1:])) for pattern in patterns if pattern.startswith("!")]
    meant: dict[str, list[h5py.Dataset]] = {}
    skipped = 0
    for dataset in datasets_of(file):
        matching = [pattern for pattern, compiled in wanted if compiled.fullmatch(dataset.name)]
        if not matching or any(compiled.fullmatch(dataset.name) for compiled in unwanted):
            continue
        if len(matching) > 1:
            raise Problem(
                f"{where}: {dataset.name} is meant by {matching[0]} and by {matching[1]}; leave one of them out"
            )
        if is_elsewhere(dataset) or _of_references(dataset):
            skipped += 1
            continue
        meant.setdefault(matching[0], []).append(dataset)
    if not meant:
        raise Problem(f"{where} has no dataset that {', '.join(patterns)} means; correct data.datasets")
    return meant, skipped


def _of_references(dataset: h5py.Dataset) -> bool:
    kind = dataset.dtype
    if h5py.check_ref_dtype(kind):
        return True
    # A structure with texts, whose bytes are addresses in memory.
    return kind.names is not None and kind.hasobject


def _lines(source: Source, dataset: h5py.Dataset, level: str) -> dict:
    """Return the entry of a dataset: a line for each place that is read, and the bytes that it takes in the file."""
    lines, stored = [], []
    stored_of = _stored(dataset)
    for place in selection.places(level, dataset.shape or (), dataset.chunks):
        try:
            values = dataset[selection.slices(place)]
        except (OSError, RuntimeError) as error:
            expect_filters(dataset, source.where)
            raise Problem(
                f"{source.where}: {dataset.name} cannot be read: {reason(error)}; {_leave(dataset)}"
            ) from error
        lines.append([dataset.name, *fingerprint(values), *([place] if place else [])])
        stored.append(stored_of(place))
    return _entry(source, lines, stored)


def expect_filters(dataset: h5py.Dataset, where: str) -> None:
    """See that HDF5 has the filters of a dataset itself.

    Raises:
        Problem: it has one as a plugin only.
    """
    if lacking := ", ".join(name for name in filters_of(dataset) if name not in BUILT_IN):
        why = f"it needs {lacking}, which HDF5 has only as a plugin"
        raise Problem(f"{where}: {dataset.name} cannot be read: {why}; {_leave(dataset)}")


def _leave(dataset: h5py.Dataset) -> str:
    return f'leave it out ("!{dataset.name}" in data.datasets)'


def _stored(dataset: h5py.Dataset) -> Callable[[selection.Place], int]:
    """Return a function that gives the bytes in the file that a place of a dataset takes."""
    if not dataset.chunks:
        whole = sum(end - start for start, end in extents(dataset))

        def part(place: selection.Place) -> int:
            # What is read of a dataset without chunks is no more than its bytes.
            count = 1
            for begin, end, step in place:
                count *= len(range(begin, end, step))
            return min(whole, count * dataset.dtype.itemsize) if place else whole

        return part
    pieces: list[tuple[tuple, int]] = []
    dataset.id.chunk_iter(lambda chunk: pieces.append((chunk.chunk_offset, chunk.size)))
    return lambda place: sum(
        size for offset, size in pieces if not place or selection.touches(place, offset, dataset.chunks)
    )


def _entry(source: Source, lines: list, stored: list | None = None) -> dict:
    return {"file": source.name, "datasets": lines} | ({} if stored is None else {"stored_bytes": stored})
