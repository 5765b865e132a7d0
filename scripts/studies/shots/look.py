"""Looks at HDF5 files of any tree, in seconds, and says what they are and what that means for who reads them."""

import argparse
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import h5py

from scripts.lib import sizes
from scripts.lib.program import Problem, run
from scripts.studies.shots.files import BUILT_IN, creation, datasets_of, filters_of, is_elsewhere
from scripts.studies.shots.inputs import Source, sources, store_of
from scripts.studies.shots.sets import bucket_of

# Of many files the datasets of some are looked at, evenly spaced, until this time is over.
_DEEP_FILES, _DEEP_S = 20, 4.0
_SMALL = 64 * 2**10
_NAMED = 5
# What ROS3 fetches at an open and keeps.
_KEPT = 16 * 2**20


@dataclass
class Looked:
    """What was seen; sizes in bytes, one entry per file, dataset or chunk.

    Attributes:
        paged, page_sizes, superblocks: how many files have which.
        deep: how many files' datasets were looked at; the lists below are of these.
        datasets: how many datasets each has.
        stored: the bytes that each dataset takes in its file.
        chunks: (bytes of a chunk in memory, number of chunks) of each dataset that has some.
        filters: how many datasets have which.
        spread: of each file, which share of it lies between its first and its last object header.
        beyond: of each file, which share of its object headers lies behind the first 16 MiB.
        elsewhere: how many datasets have their values in other files.
        bad: why files could not be looked at.
    """

    bytes: list[int] = field(default_factory=list)
    paged: Counter = field(default_factory=Counter)
    superblocks: Counter = field(default_factory=Counter)
    deep: int = 0
    datasets: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    chunks: list[tuple[int, int]] = field(default_factory=list)
    filters: Counter = field(default_factory=Counter)
    spread: list[float] = field(default_factory=list)
    beyond: list[float] = field(default_factory=list)
    elsewhere: int = 0
    bad: list[str] = field(default_factory=list)

    @property
    def all_paged(self) -> bool:
        """Whether each file is paged."""
        return None not in self.paged

    def lines(self) -> list[str]:
        """Return what was seen, a line for each thing."""
        each = sizes.text(statistics.median(self.bytes))
        lines = [f"{_count(len(self.bytes), 'file')}, {sizes.text(sum(self.bytes))}, {each} each in the median"]
        lines.append("; ".join(_paged(size, count) for size, count in self.paged.most_common()))
        lines.append(
            "superblock " + ", ".join(f"{version} ({count})" for version, count in sorted(self.superblocks.items()))
        )
        if not self.stored:
            return lines
        small = sum(size < _SMALL for size in self.stored)
        of = "" if self.deep == len(self.bytes) else f", in {self.deep} of the files"
        many = f"{_count(statistics.median(self.datasets), 'dataset')} per file{of}"
        lines.append(f"{many}; {small} of {len(self.stored)} take less than {sizes.text(_SMALL)} in the file")
        if self.elsewhere:
            lines.append(f"{_count(self.elsewhere, 'dataset')} with values in other files (virtual or external)")
        if self.chunks:
            size, count = (statistics.median(values) for values in zip(*self.chunks, strict=True))
            many = _count(len(self.chunks), "dataset")
            lines.append(f"{many} in chunks: {sizes.text(size)} each, {count:g} per dataset in the median")
        filters = ", ".join(f"{name} ({count})" for name, count in self.filters.most_common())
        lines.append(f"filters: {filters or 'none'}")
        lines.append(
            f"metadata: object headers are spread over {statistics.median(self.spread):.0%} of a file, "
            f"{statistics.median(self.beyond):.0%} of them behind its first 16 MiB"
        )
        return lines

    def meaning(self) -> list[str]:
        """Return what that means for somebody who reads the files over a network."""
        lines = []
        scattered = self.spread and statistics.median(self.spread) > 0.1 and statistics.median(self.bytes) > _KEPT
        if None in self.paged:
            lines.append('Without pages HDF5\'s page buffer has no effect: leave page_buffer at unset or "0".')
        if None in self.paged and scattered:
            lines.append(
                "Metadata lie among the data, so opening and finding datasets takes many small requests; a copy with"
                " pages brings them together: h5repack -S PAGE -G 1048576 original.h5 copy.h5"
            )
        if self.bytes and max(self.bytes) <= _KEPT:
            lines.append(
                "ROS3 fetches the first 16 MiB of a file when it opens it, so all of these files come whole with that,"
                " however they are laid out and whatever is read."
            )
        if self.all_paged:
            largest = max(self.paged)
            lines.append(f'With pages a page buffer works: measure "0", {sizes.text(largest)} and several pages.')
        if self.stored and sum(size < _SMALL for size in self.stored) > len(self.stored) / 2:
            lines.append(
                "Most datasets are small, so round trips take longer than bytes: reading ahead or keeping blocks gains."
            )
        if any(size < _SMALL and count > 100 for size, count in self.chunks):
            lines.append(
                "Chunks are small and many: each is a request where nothing is kept; larger chunks need fewer."
            )
        if lacking := sorted(name for name in self.filters if name not in BUILT_IN):
            lines.append(f"HDF5 has {', '.join(lacking)} only as a plugin; leave such datasets out of data.datasets.")
        lines.append("What is worth it for what you read is tried by make advise.")
        return lines


def main(argv: list[str] | None = None) -> int:
    """Print what files are."""
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.studies.shots.look", description=__doc__)
    parser.add_argument(
        "--files", required=True, help="files, folders, patterns, or s3://bucket/prefix/*.h5; blanks between"
    )
    files = shlex.split(parser.parse_args(argv).files)
    if not files:
        raise Problem("say which: make look FILES='data/*.h5'")
    bucket = bucket_of(files)
    begin = time.monotonic()
    looked = look(sources(files, store_of(bucket) if bucket else None))
    print("\n".join(looked.lines()))
    print("\n".join(["", "What that means", *(f"  {line}" for line in looked.meaning())]))
    print(f"looked at in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    if looked.bad:
        raise Problem(
            "; ".join([*looked.bad[:_NAMED], *([f"{len(looked.bad) - _NAMED} more"] * (len(looked.bad) > _NAMED))])
        )
    return 0


def look(of_set: Sequence[Source]) -> Looked:
    """Look at files: at how each was made, and at the datasets of some.

    Raises:
        Problem: none can be read.
    """
    looked, begin = Looked(), time.monotonic()
    step = max(1, len(of_set) // _DEEP_FILES)
    for number, source in enumerate(of_set):
        try:
            with source.opened() as file:
                facts = creation(file)
                if not looked.deep or (number % step == 0 and time.monotonic() - begin < _DEEP_S):
                    _deep(file, source.bytes, looked)
        except Problem as problem:
            looked.bad.append(str(problem))
            continue
        looked.bytes.append(source.bytes)
        looked.paged[facts["page_size"]] += 1
        looked.superblocks[facts["superblock"]] += 1
    if not looked.bytes:
        raise Problem(looked.bad[0])
    return looked


def _deep(file: h5py.File, size: int, looked: Looked) -> None:
    addresses, count = [h5py.h5o.get_info(file.id).addr], 0
    for dataset in datasets_of(file):
        count += 1
        addresses.append(h5py.h5o.get_info(dataset.id).addr)
        if is_elsewhere(dataset):
            looked.elsewhere += 1
            continue
        looked.stored.append(dataset.id.get_storage_size())
        looked.filters.update(filters_of(dataset))
        if dataset.chunks and dataset.size:
            looked.chunks.append((_nbytes(dataset.chunks, dataset.dtype.itemsize), dataset.id.get_num_chunks()))
    looked.deep += 1
    looked.datasets.append(count)
    looked.spread.append((max(addresses) - min(addresses)) / max(size, 1))
    looked.beyond.append(sum(address >= _KEPT for address in addresses) / len(addresses))


def _nbytes(shape: Iterable[int], itemsize: int) -> int:
    for length in shape:
        itemsize *= length
    return itemsize


def _paged(page_size: int | None, count: int) -> str:
    files = _count(count, "file")
    return f"{files} not paged" if page_size is None else f"{files} in pages of {sizes.text(page_size)}"


def _count(number: float, what: str) -> str:
    return f"{number:,.10g} {what}{'s' * (number != 1)}"


if __name__ == "__main__":
    run(main)
