"""Select the datasets of a file that match patterns, and record why matching datasets cannot be read."""

import heapq
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import h5py

from sbench.probe import hdf5_tree
from sbench.probe.program import Problem
from sbench.studies.shots.datasets import Dataset, Entry, build_entry, describe_excess
from sbench.studies.shots.elsewhere import find_holders
from sbench.studies.shots.files import build_regex

ALL = "/**"
_NAMED = 3


class Pattern:
    """A path pattern. A leading `!`, which marks an exclusion, is ignored."""

    def __init__(self, text: str) -> None:
        """Compile a pattern as given in the configuration, with or without a leading `!`."""
        self.text = text.removeprefix("!")
        self._compiled = re.compile(build_regex(self.text))
        # The prefixes of the pattern that the path of a group, with a trailing slash, may match.
        ends = [part.end() for part in re.finditer(r"\*\*/?|/(?!\*\*)", self.text)]
        ends = [end for end in ends if end < len(self.text) or self.text.endswith("**")]
        self._leading = [re.compile(build_regex(self.text[:end])) for end in ends]

    def matches(self, path: str) -> bool:
        """Return whether the whole path matches the pattern."""
        return bool(self._compiled.fullmatch(path))

    def find_positions_below(self, group: str) -> frozenset[int]:
        """Return the indices of the pattern's prefixes that a group's path matches.

        The set is empty if no path below the group can match the pattern.
        """
        path = f"{group.rstrip('/')}/"
        return frozenset(number for number, one in enumerate(self._leading) if one.fullmatch(path))


@dataclass
class Choice:
    """The datasets of a file that match patterns.

    Attributes:
        meant: readable datasets, keyed by the pattern that they match.
        left_out: matching entries that cannot be read, keyed by pattern.
        others: paths of the first few datasets that match no pattern, for messages.
    """

    meant: dict[str, list[Dataset]] = field(default_factory=dict)
    left_out: dict[str, list[Entry]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def add_entry(self, pattern: str, entry: Entry) -> None:
        """Add a dataset or broken link that matches `pattern`."""
        if entry.reason:
            self.left_out.setdefault(pattern, []).append(entry)
        else:
            self.meant.setdefault(pattern, []).append(entry.dataset)

    def list_meant(self) -> list[Dataset]:
        """Return the readable datasets that match any pattern."""
        return [dataset for of_pattern in self.meant.values() for dataset in of_pattern]

    def list_left_out(self) -> list[Entry]:
        """Return the entries that match any pattern but cannot be read."""
        return [entry for of_pattern in self.left_out.values() for entry in of_pattern]


def choose_datasets(
    file: h5py.File, patterns: Sequence[str], where: str, level: str = "", root: str = "", inside: bool = False
) -> Choice:
    """Select the datasets in a file that match patterns.

    Each dataset is selected at most once per pattern, under the first of its paths that matches. Its first hard link,
    as found by `hdf5_tree.walk_links`, comes before all other links.

    Args:
        file: an open file.
        patterns: path patterns. A leading `!` excludes matches.
        where: path or URL of the file, for messages.
        level: level of the factor `selection`. Datasets whose selected part exceeds free memory are left out.
        root: directory of all files of a set. Datasets with values in files outside it are left out.
        inside: whether to leave out datasets with values in any other file.

    Raises:
        Problem: two patterns match the same path.
    """
    chooser, links = _Chooser(patterns, where, level, root, inside), []
    for link in hdf5_tree.walk_links(file):
        if link.object is not None and not link.first:
            links.append(link)
        else:
            chooser.add_link(link)
    if any(pattern.text != ALL for pattern in chooser.wanted):
        for link in chooser.walk_links(links):
            chooser.add_link(link)
    return chooser.choice


def list_datasets_elsewhere(file: h5py.File, patterns: Sequence[str], where: str) -> list[Entry]:
    """Return entries for the matching datasets that cannot be read because their values are in other files."""
    entries = choose_datasets(file, patterns, where, inside=True).list_left_out()
    return [entry for entry in entries if entry.dataset is not None and entry.dataset.elsewhere]


class _Chooser:
    def __init__(self, patterns: Sequence[str], where: str, level: str, root: str, inside: bool) -> None:
        self.wanted = [Pattern(pattern) for pattern in patterns if not pattern.startswith("!")]
        self._unwanted = [Pattern(pattern) for pattern in patterns if pattern.startswith("!")]
        self._where, self._level, self._root, self._inside, self.choice = where, level, root, inside, Choice()
        # Pairs of pattern and dataset that are done: further links to the same dataset are ignored.
        self._done: set[tuple[str, hdf5_tree.Address]] = set()

    def add_link(self, link: hdf5_tree.Link) -> None:
        if link.object is None:
            self._add_broken_link(link)
        elif isinstance(link.object, h5py.h5d.DatasetID):
            self._add_dataset(link)

    def _add_broken_link(self, link: hdf5_tree.Link) -> None:
        entry = build_entry(link)
        for pattern in self.wanted:
            below = pattern.text != ALL and pattern.find_positions_below(link.name)
            if (below or pattern.matches(link.name)) and not self._is_unwanted(link):
                self.choice.add_entry(pattern.text, entry)

    def _add_dataset(self, link: hdf5_tree.Link) -> None:
        meaning = [one.text for one in self.wanted if one.matches(link.name)]
        new = [text for text in meaning if (text, link.address) not in self._done]
        self._done |= {(text, link.address) for text in meaning}
        if not meaning and len(self.choice.others) < _NAMED:
            self.choice.others.append(link.name)
        if not new or self._is_unwanted(link):
            return
        if len(new) > 1:
            raise Problem(
                f"{self._where}: {link.name} matches both {new[0]} and {new[1]}; remove one of these patterns"
            )
        entry = build_entry(link)
        if not entry.reason and (obstacle := self._find_obstacle(entry.dataset)):
            entry = replace(entry, reason=obstacle[0], detail=obstacle[1])
        self.choice.add_entry(new[0], entry)

    def _find_obstacle(self, dataset: Dataset) -> tuple[str, str] | None:
        if self._level and (detail := describe_excess(dataset, self._level)):
            return "too large", detail
        if self._inside and dataset.elsewhere:
            return dataset.elsewhere, "its values are in other files"
        if self._root and (where := dataset.elsewhere):
            outside = [path for path in find_holders(dataset).files if not path.is_relative_to(self._root)]
            if outside:
                at = os.path.relpath(min(outside), self._root)
                return where, f"{at} is outside the folder of the set; add it to the files"
        return None

    def _is_unwanted(self, link: hdf5_tree.Link) -> bool:
        return any(pattern.matches(link.name) for pattern in self._unwanted)

    def walk_links(self, links: list[hdf5_tree.Link]) -> Iterator[hdf5_tree.Link]:
        """Follow links to objects that were already reached by another path, and yield all links below them.

        Groups in which nothing can match the patterns are skipped.
        """
        # Shallow paths come first. A group is entered once per tuple of matched prefixes of the patterns.
        rest = [(link.path.count(b"/"), link.path, link) for link in links]
        heapq.heapify(rest)
        entered = set()
        while rest:
            *_, link = heapq.heappop(rest)
            if not isinstance(link.object, h5py.h5g.GroupID):
                yield link
                continue
            positions = tuple(pattern.find_positions_below(link.name) for pattern in self.wanted)
            if any(positions) and (link.address, positions) not in entered:
                entered.add((link.address, positions))
                for member in hdf5_tree.list_members(link):
                    heapq.heappush(rest, (member.path.count(b"/"), member.path, member))


def describe_left_out(entries: Iterable[Entry]) -> str:
    """Describe entries that cannot be read: for each reason, the first such entry and how many more there are."""
    by_reason: dict[str, list[Entry]] = {}
    for entry in entries:
        by_reason.setdefault(entry.reason, []).append(entry)
    return ", ".join(f"{of[0]}{f' and {len(of) - 1:,} more' * (len(of) > 1)}" for of in by_reason.values())


def describe_empty_choice(choice: Choice, patterns: Sequence[str], where: str) -> str:
    """Return a message that explains why the patterns select no readable dataset in a file."""
    if left_out := choice.list_left_out():
        return f"{where} contains nothing readable: {describe_left_out(left_out)}"
    if list(patterns) == [ALL]:
        return f"{where} contains no datasets"
    some = f"; available: {', '.join(choice.others)}" if choice.others else ""
    return f"no dataset of {where} matches {', '.join(patterns)}{some}"
