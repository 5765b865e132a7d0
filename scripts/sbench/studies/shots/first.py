"""A set of files as its first file shows it, before anything is measured."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import h5py

from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.studies.shots import selection
from sbench.studies.shots.choice import Choice, choose, describe, nothing_to_read
from sbench.studies.shots.datasets import Dataset, Entry, excess
from sbench.studies.shots.files import creation
from sbench.studies.shots.gathered import open_gathered
from sbench.studies.shots.inputs import Source, sources

# So many files may lack what is read of the others.
_TRIED = 20


@dataclass(frozen=True)
class First:
    """What one file of a set is: whether it is paged, and in words; and how many files the set has."""

    paged: bool
    words: str
    files: int


def describe_first(data: dict, levels: Iterable[str] = ()) -> First:
    """Describe the first file of a set that has something to read, what selections leave of it, and what is left out.

    Args:
        data: {"files", "datasets", "at": the store's entry where they lie in a bucket}.
        levels: of the factor `selection`; without any, whole datasets are read.

    Raises:
        Problem: it cannot be read; no file has something to read, or a selection leaves nothing.
    """
    of_set, lacking = sources(data["files"], data.get("at")), []
    for one in of_set[:_TRIED]:
        with open_gathered(one, data.get("at")) as (source, file):
            choice = choose(file, data["datasets"], source.where, root=source.root)
            if choice.meant:
                words = _words(file, source, choice, list(levels) or [selection.ALL])
                also = f"; {len(lacking)} before it with nothing to read" if lacking else ""
                return First(creation(file)["paged"], f"{words}, {sizes.count(len(of_set), 'file')}{also}", len(of_set))
            lacking.append(nothing_to_read(choice, data["datasets"], source.where))
    raise Problem(lacking[0])


def _words(file: h5py.File, source: Source, choice: Choice, levels: Sequence[str]) -> str:
    facts = creation(file)
    paged = f"paged ({facts['page_size']} bytes)" if facts["paged"] else "not paged"
    meant = choice.all_meant()
    left_out = choice.all_left_out() + [entry for level in levels for entry in _too_large(source, meant, level)]
    also = f" ({describe(left_out)} left out)" if left_out else ""
    fewer = "".join(f", {some} by {level}" for level, some in _left(source, meant, levels) if some < len(meant))
    return f"{source.where} is {paged}, {sizes.count(len(meant), 'dataset')} of it read{fewer}{also}"


def _too_large(source: Source, meant: Sequence[Dataset], level: str) -> list[Entry]:
    """Return the datasets of which memory has no room for a part; a Problem if these are all."""
    large = [(dataset, excess(dataset, level)) for dataset in meant]
    entries = [Entry(one.name, one, reason=f"too large to be read by {level}", detail=why) for one, why in large if why]
    if len(entries) == len(meant):
        raise Problem(f"{source.where} has nothing that can be read: {describe(entries)}")
    return entries


def _left(source: Source, meant: Sequence[Dataset], levels: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield of how many datasets a selection reads something; a Problem if of none."""
    for level in levels:
        if level.startswith("["):
            places = (selection.places(level, one.shape or (), one.chunks) for one in meant)
            some = sum(next(of_dataset, None) is not None for of_dataset in places)
            if not some:
                raise Problem(f"the selection {level} leaves nothing to read of {source.where}; choose a larger one")
            yield level, some
