"""Files of the user's own, of any tree, read where they lie: what they hold, for a dataset's manifest."""

import contextlib
import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import h5py

from scripts.lib.program import Problem
from scripts.stores import store as stores
from scripts.stores.as_file import AsFile
from scripts.stores.reading import Absent
from scripts.stores.transfer import ACCESS
from scripts.studies.shots import selection
from scripts.studies.shots.files import SUFFIXES, common, extents, reason
from scripts.studies.shots.reader import fingerprint
from scripts.studies.shots.sets import IN_BUCKET

# What a manifest, which each cell reads, may hold.
_MOST_READS = 200_000
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
# Those that each HDF5 and each h5py has.
BUILT_IN = set(_FILTERS.values()) - {"szip"}
# Registered with The HDF Group; h5py has them with a plugin only.
_PLUGINS = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32026: "blosc2",
}


@dataclass(frozen=True)
class Source:
    """One file: its name within what all have in common, its bytes, and what changes when it does."""

    name: str
    bytes: int
    version: dict
    where: str
    reader: object = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[h5py.File]:
        """Open it for the length of a `with` block, by h5py: from a bucket through requests of our own.

        Raises:
            Problem: it is not HDF5, or cannot be read.
        """
        with contextlib.ExitStack() as stack:
            try:
                raw: BinaryIO | str = AsFile(self.reader, self.name) if self.reader else self.where
                if isinstance(raw, AsFile):
                    self._expect_hdf5(raw)
                file = stack.enter_context(h5py.File(raw, "r"))
            except OSError as error:
                if not self.reader:
                    with contextlib.suppress(OSError), open(self.where, "rb") as content:
                        self._expect_hdf5(content)
                raise Problem(f"{self.where} cannot be read as HDF5: {reason(error)}") from error
            try:
                yield file
            except (OSError, RuntimeError, KeyError) as error:
                # Its beginning can be read, and something further in cannot.
                raise Problem(f"{self.where} cannot be read as HDF5: {reason(error)}") from error

    def _expect_hdf5(self, content: BinaryIO) -> None:
        """See that it begins as HDF5 does, if need be behind a block of the user's own."""
        size = content.seek(0, os.SEEK_END)
        for offset in (0, *(512 * 2**power for power in range(24))):
            if offset >= size:
                break
            content.seek(offset)
            if content.read(len(_SIGNATURE)) == _SIGNATURE:
                return
        content.seek(0)
        begin = content.read(512).lstrip().lower()
        kind = (
            "a page of HTML: is it the address of a web page?"
            if begin.startswith((b"<!doctype html", b"<html"))
            else ""
        )
        raise Problem(f"{self.where} is not an HDF5 file" + (f" but {kind}" if kind else ""))


def sources(what: str | Sequence[str], store: dict | None = None) -> list[Source]:
    """Return the files that paths, folders and patterns mean, in the order of their names.

    Args:
        what: files, folders, and globs of local files, `**` in them any folders; or addresses and patterns in a bucket.
        store: the store's entry in the configuration, for those.

    Raises:
        Problem: one means no file, or a bucket cannot be listed.
    """
    wanted = [what] if isinstance(what, str) else list(what)
    return _in_bucket(wanted, store) if store else _here(wanted)


def _here(wanted: Iterable[str]) -> list[Source]:
    paths: list[str] = []
    for one in wanted:
        there = (
            sorted(str(path) for path in Path(one).glob("*") if path.suffix in SUFFIXES) if Path(one).is_dir() else []
        )
        there = there or sorted(path for path in glob.glob(one, recursive=True) if not os.path.isdir(path))
        if not there:
            raise Problem(
                f"{one}: no file is there (of a folder, {', '.join(SUFFIXES)}); correct the path or the pattern"
            )
        paths += [os.path.abspath(path) for path in there]
    paths = sorted(set(paths))
    root = (
        os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath([os.path.dirname(path) for path in paths])
    )
    files = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError as error:
            raise Problem(f"{path} cannot be read: {error.strerror}") from error
        files.append(Source(os.path.relpath(path, root), state.st_size, {"mtime_ns": state.st_mtime_ns}, path))
    return files


def _in_bucket(wanted: Iterable[str], spec: dict) -> list[Source]:
    store = stores.of(spec)
    keys: dict[str, tuple[int, str]] = {}
    for one in wanted:
        key = one.removeprefix(IN_BUCKET).partition("/")[2]
        literal = re.split(r"[*?\[]", key)[0]
        listed = {}
        with contextlib.suppress(Absent):
            listed = store.listed(literal, [key] if literal == key else [])
        matching = {
            name: entry for name, entry in listed.items() if literal == key or re.fullmatch(_pattern(key), name)
        }
        if not matching:
            raise Problem(f"{one}: no object is there; correct the address or the pattern")
        keys |= matching
    root = os.path.commonpath([os.path.dirname(key) for key in keys])
    reader = store.reader({"key": root}, ACCESS, store.locate({"location": {"key": root}}, None, dict(os.environ))[1])
    return [
        Source(
            os.path.relpath(key, root) if root else key,
            size,
            {"etag": etag},
            f"{IN_BUCKET}{spec['bucket']}/{key}",
            reader,
        )
        for key, (size, etag) in sorted(keys.items())
    ]


def manifest(settings: dict) -> dict:
    """Return the facts of a set of files: which datasets are read, their sizes, checksums and places.

    Args:
        settings: {"files", "datasets", "layout", "selection" where it is not all of them, "at": the store's entry where
            they lie in a bucket}.

    Raises:
        Problem: a file is not HDF5, holds no dataset that is named, or something of them that cannot be read.
    """
    level, patterns = settings.get("selection", selection.ALL), settings["datasets"]
    files, objects, groups, facts = [], {}, {}, []
    reads, skipped = 0, 0
    for source in (of_set := sources(settings["files"], settings.get("at"))):
        with source.opened() as file:
            facts.append(creation(file))
            if level == selection.METADATA:
                held = {"/": _entry(source, [["/", *fingerprint(list(_walk(file))), selection.WALK]])}
                groups.setdefault(level, {})["/"] = None
            else:
                by_pattern, references = chosen(file, patterns, source.where)
                skipped += references
                held = {}
                for pattern, datasets in by_pattern.items():
                    for dataset in datasets:
                        held[dataset.name] = _lines(source, dataset, level)
                        reads += len(held[dataset.name]["datasets"])
                        groups.setdefault(pattern, {})[dataset.name] = None
        if reads > _MOST_READS:
            raise Problem(
                f"more than {_MOST_READS:,} reads of datasets or chunks; narrow data.datasets, files, or the selection"
            )
        objects[source.name] = {path: entry for path, entry in held.items() if entry["datasets"]}
        path = {} if source.reader else {"path": source.where}
        files.append({"name": source.name, "bytes": source.bytes, **source.version, **path})
    if not any(objects.values()):
        raise Problem(f"the selection {level} leaves nothing to read of these datasets; choose a larger one")
    return {
        "generator": None,
        "settings": {},
        **({"in_place": _root(of_set[0])} if "at" in settings else {}),
        "files": files,
        "layout": {
            "layout": settings["layout"],
            **{key: common({fact[key] for fact in facts}) for key in ("paged", "page_size")},
            "files": len(files),
            "dataset_reads": sum(len(entry["datasets"]) for held in objects.values() for entry in held.values()),
            "references_left_out": skipped,
        },
        "datasets": {pattern: list(paths) for pattern, paths in groups.items()},
        "objects": objects,
    }


def data_sha256(objects: Mapping[str, Mapping[str, dict]]) -> str:
    """Return one hash for the values of all files, whatever these are called and however they are laid out."""
    lines = [
        sorted(line[1:3] for entry in held.values() for line in entry["datasets"])
        for _, held in sorted(objects.items())
    ]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


def creation(file: h5py.File) -> dict:
    """Return what a file's creation fixed: {"paged", "page_size" (bytes; None without pages), "superblock"}."""
    created = file.id.get_create_plist()
    paged = created.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return {
        "paged": paged,
        "page_size": created.get_file_space_page_size() if paged else None,
        "superblock": created.get_version()[0],
    }


def datasets_of(file: h5py.File) -> Iterator[h5py.Dataset]:
    """Yield each dataset of a file once; links to other files are not followed."""
    items: list[h5py.Dataset] = []
    file.visititems(lambda _, item: items.append(item) if isinstance(item, h5py.Dataset) else None)
    yield from items


def filters_of(dataset: h5py.Dataset) -> list[str]:
    """Return the names of a dataset's filters in their order."""
    created = dataset.id.get_create_plist()
    numbers = [created.get_filter(index)[0] for index in range(created.get_nfilters())]
    return [_FILTERS.get(number) or _PLUGINS.get(number) or f"filter {number}" for number in numbers]


def _root(source: Source) -> str:
    key = source.where.removeprefix(IN_BUCKET).partition("/")[2]
    return key.removesuffix(source.name).rstrip("/")


def _walk(file: h5py.File) -> Iterator[tuple]:
    # What HDF5's own drivers do is what the others are held against.
    from scripts.drivers import hdf5

    yield from hdf5.walk(file)


def chosen(file: h5py.File, patterns: Sequence[str], where: str) -> tuple[dict[str, list[h5py.Dataset]], int]:
    """Return the datasets that each pattern means, and how many were left out: references mean nothing elsewhere."""
    wanted = [(pattern, re.compile(_pattern(pattern))) for pattern in patterns if not pattern.startswith("!")]
    unwanted = [re.compile(_pattern(pattern[1:])) for pattern in patterns if pattern.startswith("!")]
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
        if _of_references(dataset):
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
            lacking = ", ".join(name for name in filters_of(dataset) if name not in BUILT_IN)
            why = f"it needs {lacking}, which HDF5 has only as a plugin" if lacking else reason(error)
            remedy = f'leave it out ("!{dataset.name}" in data.datasets)'
            raise Problem(f"{source.where}: {dataset.name} cannot be read: {why}; {remedy}") from error
        lines.append([dataset.name, *fingerprint(values), *([place] if place else [])])
        stored.append(stored_of(place))
    return _entry(source, lines, stored)


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


def _pattern(pattern: str) -> str:
    """Return a pattern of paths as a regular expression: `*` and `?` within a name, `**` across several."""
    kinds = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(kinds.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", pattern) if part)
