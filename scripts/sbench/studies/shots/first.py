"""Describe a set of files by its first readable file, before a measurement."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import h5py

from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.studies.shots import selection
from sbench.studies.shots.choice import Choice, choose_datasets, describe_empty_choice, describe_left_out
from sbench.studies.shots.datasets import Dataset, Entry, describe_excess
from sbench.studies.shots.files import get_creation_facts
from sbench.studies.shots.gathered import open_gathered
from sbench.studies.shots.inputs import Source, find_sources

# Maximum number of files to open, because the first files may lack the datasets to read.
_TRIED = 20


@dataclass(frozen=True)
class First:
    """A description of the first file of a set in which there are datasets to read.

    Attributes:
        paged: whether the file uses HDF5's paged allocation.
        words: a description of the file and its set.
        files: number of files in the set.
    """

    paged: bool
    words: str
    files: int


def describe_first(data: dict, levels: Iterable[str] = ()) -> First:
    """Find and describe the first file of a set in which there are datasets to read.

    The description gives the number of datasets that each selection reads, and why other datasets are left out.

    Args:
        data: {"files", "datasets", "at"}, with the store's entry in "at" for files in a bucket.
        levels: levels of the factor `selection`. If there are none, whole datasets are read.

    Raises:
        Problem: a file cannot be read, the first `_TRIED` files lack datasets to read, or a selection is empty.
    """
    of_set, lacking = find_sources(data["files"], data.get("at")), []
    for one in of_set[:_TRIED]:
        with open_gathered(one, data.get("at")) as (source, file):
            choice = choose_datasets(file, data["datasets"], source.where, root=source.root)
            if choice.meant:
                words = _describe_file(file, source, choice, list(levels) or [selection.ALL])
                also = f"; nothing to read in {sizes.format_count(len(lacking), 'file')} before it" if lacking else ""
                return First(
                    get_creation_facts(file)["paged"],
                    f"{words}, {sizes.format_count(len(of_set), 'file')}{also}",
                    len(of_set),
                )
            lacking.append(describe_empty_choice(choice, data["datasets"], source.where))
    raise Problem(lacking[0])


def _describe_file(file: h5py.File, source: Source, choice: Choice, levels: Sequence[str]) -> str:
    facts = get_creation_facts(file)
    paged = f"paged ({facts['page_size']} bytes)" if facts["paged"] else "not paged"
    meant = choice.list_meant()
    left_out = choice.list_left_out() + [entry for level in levels for entry in _list_too_large(source, meant, level)]
    also = f" ({describe_left_out(left_out)} left out)" if left_out else ""
    fewer = "".join(
        f", {some} with selection {level}"
        for level, some in _count_selected(source, meant, levels)
        if some < len(meant)
    )
    return f"{source.where} is {paged}, {sizes.format_count(len(meant), 'dataset')} to read{fewer}{also}"


def _list_too_large(source: Source, meant: Sequence[Dataset], level: str) -> list[Entry]:
    """Return the datasets whose selected part does not fit into memory; raise Problem if this is true of all."""
    large = [(dataset, describe_excess(dataset, level)) for dataset in meant]
    entries = [Entry(one.name, one, reason=f"too large for selection {level}", detail=why) for one, why in large if why]
    if len(entries) == len(meant):
        raise Problem(f"{source.where} contains nothing readable: {describe_left_out(entries)}")
    return entries


def _count_selected(source: Source, meant: Sequence[Dataset], levels: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Count the datasets that each selection of the form "[…]" reads; raise Problem if it reads none."""
    for level in levels:
        if level.startswith("["):
            places = (selection.iter_places(level, one.shape or (), one.chunks) for one in meant)
            some = sum(next(of_dataset, None) is not None for of_dataset in places)
            if not some:
                raise Problem(f"the selection {level} is empty for {source.where}; choose a larger selection")
            yield level, some
