"""Summarise a set of HDF5 files: the creation properties of all files, and the contents of some."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from sbench.drivers import ROS3_FIRST_BYTES
from sbench.files.contents import Contents, Stored
from sbench.probe import sizes
from sbench.studies.shots.choice import describe_left_out

# Fewer bytes take less than 1 ms to transfer, a twentieth of a round trip of 20 ms, at the 85 MB/s per connection that
# Amazon reports ("Best practices design patterns: optimizing Amazon S3 performance").
SMALL = 64 * 2**10


@dataclass
class Looked:
    """The properties of a set of files.

    Attributes:
        bytes: size of each file in bytes.
        pages: number of files by page size in bytes; the key None is for files without pages.
        superblocks: number of files by superblock version.
        contents: contents of some of the files.
        bad: error messages for the files that could not be read.
    """

    bytes: list[int] = field(default_factory=list)
    pages: Counter = field(default_factory=Counter)
    superblocks: Counter = field(default_factory=Counter)
    contents: list[Contents] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def datasets(self) -> list[Stored]:
        """The datasets in `contents` whose values are in the same file."""
        return [dataset for held in self.contents for dataset in held.datasets]

    @property
    def elsewhere(self) -> int:
        """The number of datasets in `contents` whose values are in other files."""
        return sum(held.elsewhere for held in self.contents)

    def to_json(self) -> dict:
        """Convert the summary to a JSON-serialisable dict, with sizes in bytes and datasets listed by file."""
        inside = [
            {"file": held.where, "datasets": list(map(asdict, held.datasets)), "datasets_elsewhere": held.elsewhere}
            | {"metadata_bytes": held.metadata, "reads_to_find_all": len(held.reads), "beyond_the_first": held.requests}
            for held in self.contents
        ]
        return {
            **{"files": len(self.bytes), "bytes": sum(self.bytes), "unreadable": self.bad, "inside": inside},
            "files_by_page_size": {str(size or "not paged"): number for size, number in self.pages.items()},
            "files_by_superblock": {str(version): number for version, number in self.superblocks.items()},
        }

    def format_lines(self) -> Iterator[str]:
        """Yield the summary as lines of text."""
        each = f", {_format_span(self.bytes, sizes.format_size)} each" if len(self.bytes) > 1 else ""
        yield f"{sizes.format_count(len(self.bytes), 'file')}, {sizes.format_size(sum(self.bytes))}{each}"
        yield "; ".join(_format_pages(size, number) for size, number in self.pages.most_common())
        yield "superblock " + ", ".join(f"{version} ({number})" for version, number in sorted(self.superblocks.items()))
        if any(held.datasets or held.elsewhere or held.left_out for held in self.contents):
            yield from self._describe_data()
        yield from self._describe_space()

    def _describe_data(self) -> Iterator[str]:
        numbers = [held.number_of_datasets for held in self.contents]
        of = "" if len(numbers) == len(self.bytes) else f", in {len(numbers)} of the files"
        several = " per file" if len(self.bytes) > 1 else ""
        small = [dataset for dataset in self.datasets if dataset.bytes < SMALL]
        held = format_share(count_bytes(small), count_bytes(self.datasets))
        words = f"; {len(small):,} of {len(self.datasets):,} take less than {sizes.format_size(SMALL)} in the file"
        words = f"{words}, together {held}" if self.datasets else ""
        datasets = "dataset" if set(numbers) == {1} else "datasets"
        yield f"{_format_span(numbers, '{:,}'.format)} {datasets}{several}{of}{words}"
        if self.elsewhere:
            yield f"{sizes.format_count(self.elsewhere, 'dataset')} with values in other files (virtual or external)"
        if left_out := [entry for held in self.contents for entry in held.left_out]:
            yield f"not readable here: {describe_left_out(left_out)}"
        if chunked := [dataset for dataset in self.datasets if dataset.chunk]:
            chunks = f"chunks of {_format_span([dataset.chunk for dataset in chunked], sizes.format_size)}"
            numbers = _format_span([dataset.chunks for dataset in chunked], "{:,}".format)
            yield f"{sizes.format_count(len(chunked), 'dataset')} in {chunks}; {numbers} of them per dataset"
        filters = Counter(name for dataset in self.datasets for name in dataset.filters)
        yield "filters: " + (", ".join(f"{name} ({number:,})" for name, number in filters.most_common()) or "none")

    def _describe_space(self) -> Iterator[str]:
        parts = {"values": "raw", "metadata": "metadata", "global heap": "heap", "free or unaccounted for": "unused"}
        amounts = {name: sum(getattr(held, part) or 0 for held in self.contents) for name, part in parts.items()}
        yield "space: " + ", ".join(f"{sizes.format_size(amount)} {name}" for name, amount in amounts.items() if amount)
        reads = [len(held.reads) for held in self.contents]
        beyond = [held.requests for held in self.contents]
        yield (
            f"opening a file and finding all its objects takes {_format_span(reads, '{:,}'.format)} reads,"
            f" {_format_span(beyond, '{:,}'.format)} of them beyond the first {sizes.format_size(ROS3_FIRST_BYTES)}"
        )


def count_bytes(datasets: Iterable[Stored]) -> int:
    """Return the total number of bytes that datasets occupy in their files."""
    return sum(dataset.bytes for dataset in datasets)


def format_share(part: int, whole: int) -> str:
    """Format a fraction of bytes, as in "0.1 % of the bytes"."""
    percent = 100 * part / whole if whole else 0
    return f"{percent:.0f} % of the bytes" if percent >= 1 or not part else f"{percent:.2g} % of the bytes"


def _format_span(values: list[int], text: Callable[[int], str]) -> str:
    """Format the range of values, with the low median if more than two values are distinct."""
    least, middle, most = min(values), statistics.median_low(values), max(values)
    if least == most:
        return text(least)
    between = f" ({text(middle)} in the median)" if len(set(values)) > 2 else ""
    return f"{text(least)} to {text(most)}{between}"


def _format_pages(page_size: int | None, number: int) -> str:
    files = sizes.format_count(number, "file")
    return f"{files} not paged" if page_size is None else f"{files} in pages of {sizes.format_size(page_size)}"
