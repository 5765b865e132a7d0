"""Summarise the contents of HDF5 files within seconds, and list the consequences for reading them over a network."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sbench.files import icechunk_stores, zarr_stores
from sbench.files.chunking import compute_price, find_unsuited, name_kinds
from sbench.files.conclusions import list_conclusions
from sbench.files.contents import read_contents
from sbench.files.icechunk_stores import is_remote_repository, is_repository
from sbench.files.looked import Looked
from sbench.files.place import ELSEWHERE
from sbench.files.zarr_look import LookedStore
from sbench.files.zarr_stores import ZarrStore
from sbench.probe.formats import is_named_hdf5
from sbench.probe.program import Problem, print_json
from sbench.studies.shots import accesses
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.addresses import get_bucket
from sbench.studies.shots.choice import ALL
from sbench.studies.shots.files import get_creation_facts
from sbench.studies.shots.inputs import Source, build_store_entry, find_sources
from sbench.studies.shots.manifest import list_datasets

# Maximum number of files to examine in detail (evenly spaced among all), and time limit for doing so.
_DEEP_FILES, _DEEP_S = 20, 4.0
_NAMED = 5
_WILD = frozenset("*?[")
# Minimum time between two lines of progress output.
_PROGRESS_S = 2.0


def print_contents(files: Sequence[str], access: str, datasets: Sequence[str], as_json: bool = False) -> int:
    """Print the contents of files and the consequences for reading them over a network.

    Args:
        files: files, folders, patterns, or s3://bucket/prefix/*.h5.
        access: how the files will be read (`accesses.parse_accesses`), to check whether their chunks are suitable; an
            empty string to skip this check.
        datasets: patterns of the datasets to read; empty for all.
        as_json: whether to print JSON.

    Returns:
        Exit status 0.

    Raises:
        Problem: some files cannot be read; it is raised after printing the contents of all other files.
    """
    read = accesses.parse_accesses(access)
    bucket = get_bucket(files)
    begin = time.monotonic()
    spec = build_store_entry(bucket) if bucket else None
    looked, parts, others = Looked(), {}, []
    for path in files:
        if not (of_zarr := _find_zarr_store(path, spec)):
            others.append(path)
            continue
        store = LookedStore(of_zarr, read if access else None, datasets)
        parts.setdefault("stores", []).append(_report(store, list(store.list_conclusions()), as_json))
        looked.bad.extend(of_zarr.faults)
    if others:
        of_set = find_sources(others, spec)
        faults, looked = looked.bad, read_file_set(of_set)
        looked.bad[:0] = faults
        suited = describe_access(of_set, read, datasets or [ALL]) if access else []
        parts |= _report(looked, [*suited, *list_conclusions(looked)], as_json)
    if as_json:
        print_json(parts)
    print(f"read in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    if looked.bad:
        more = [f"{len(looked.bad) - _NAMED} more"] * (len(looked.bad) > _NAMED)
        raise Problem("; ".join([*looked.bad[:_NAMED], *more]))
    return 0


def _find_zarr_store(path: str, spec: dict | None) -> ZarrStore | None:
    """Return the Zarr store or Icechunk repository at a path, or at an address in the bucket `spec`; None if none."""
    if spec:
        if is_named_hdf5(path) or not _WILD.isdisjoint(path):
            return None
        if is_remote_repository(path, spec):
            return icechunk_stores.read_repository(path, spec)
        return zarr_stores.find_remote_store(path, spec)
    place = Path(path).expanduser()
    if is_repository(place):
        return icechunk_stores.read_repository(str(place))
    return zarr_stores.read_store(place) if zarr_stores.is_store(place) else None


def _report(looked: Looked | LookedStore, meaning: Sequence[str], as_json: bool) -> dict:
    """Print contents with their consequences, unless JSON is wanted, and return them as JSON."""
    if not as_json:
        print(*looked.format_lines(), "", "Reading over a network", *(f"  {line}" for line in meaning), sep="\n")
    return looked.to_json() | {"meaning": list(meaning)}


def read_file_set(of_set: Sequence[Source]) -> Looked:
    """Read the creation properties of all files, and the contents of some of them.

    Raises:
        Problem: none of the files can be read.
    """
    looked, begin, progress = Looked(), time.monotonic(), _Progress(len(of_set))
    step = -(-len(of_set) // _DEEP_FILES)
    for number, source in enumerate(of_set):
        try:
            with source.open_hdf5() as file:
                facts = get_creation_facts(file)
                if not looked.contents or (number % step == 0 and time.monotonic() - begin < _DEEP_S):
                    looked.contents.append(read_contents(source, file, progress.build_reporter(number, source.where)))
        except Problem as problem:
            looked.bad.append(str(problem))
            continue
        progress.build_reporter(number, source.where)(0)
        looked.bytes.append(source.bytes)
        looked.pages[facts["page_size"]] += 1
        looked.superblocks[facts["superblock"]] += 1
    if not looked.bytes:
        raise Problem(looked.bad[0])
    return looked


def describe_access(of_set: Sequence[Source], read: Accesses, datasets: Sequence[str]) -> list[str]:
    """Describe whether the chunks suit the given accesses, based on the first file that has matching datasets.

    Raises:
        Problem: none of the first files has matching datasets.
    """
    problem = None
    for source in of_set[:_DEEP_FILES]:
        try:
            with source.open_hdf5() as file:
                meant = list_datasets(file, datasets, source.where, read)
                unsuited = find_unsuited(name_kinds(meant), read, compute_price(ELSEWHERE))
                return unsuited or [f"The chunks of {source.where} suit {', '.join(read.shares)}."]
        except Problem as error:
            problem = problem or error
    raise problem


class _Progress:
    """Reports progress on standard error, at most once per `_PROGRESS_S` seconds."""

    def __init__(self, files: int) -> None:
        self._files, self._printed = files, time.monotonic()

    def build_reporter(self, number: int, where: str) -> Callable[[int], None]:
        """Return a function to call with the number of objects read so far in file `number` (from 0)."""

        def print_progress(objects: int) -> None:
            if time.monotonic() - self._printed > _PROGRESS_S:
                self._printed = time.monotonic()
                within = f", {objects:,} objects" if objects else ""
                print(f"file {number + 1} of {self._files}: {where}{within}", file=sys.stderr)

        return print_progress
