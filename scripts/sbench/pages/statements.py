"""Statements of a page, each with the comparisons or cells that it rests on, and the check that it holds.

A statement is checked against raw records (records.csv), without what found it: this module imports nothing of the
project. A page prints the statements that hold and that do not contradict each other.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "same", "too few repeats"
# The column of records.csv with the figure that decides.
DECIDES = "value"
# Blocks of a verdict; of those of an order, the share that has to agree with it.
MIN_BLOCKS, _AGREE = 6, 0.75
# Tables have twelve digits.
CLOSE = 1e-9


class Records:
    """Raw records: one row per record of records.csv, by cell and block.

    Records of several runs have a column `unit_of`, which names the session of each.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        """Take records.csv; one without rows has no records."""
        valid = table["valid"].astype(str).str.lower().eq("true") if len(table) else []
        self._rows = table[valid].set_index(["cell", "repeat"]) if len(table) else table
        self._columns: dict[str, dict] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return len(self._rows) > 0

    def get_values(self, cell: str, column: str, blocks: Sequence[int]) -> np.ndarray:
        """Return a column of a cell's valid records in some blocks, NaN where there is none."""
        if column not in self._columns:
            there = column in self._rows
            values = pd.to_numeric(self._rows[column], errors="coerce") if there else pd.Series(dtype=float)
            self._columns[column] = values.to_dict()
        return np.array([self._columns[column].get((cell, block), math.nan) for block in blocks], dtype=float)

    def list_blocks(self, cell: str) -> list[int]:
        """Return the blocks in which a cell has a valid record."""
        return [block for name, block in self._rows.index if name == cell] if len(self._rows) else []

    def compute_median(self, cell: str, column: str) -> float:
        """Return the median of a column over a cell's valid records, NaN of none."""
        values = self.get_values(cell, column, self.list_blocks(cell))
        values = values[np.isfinite(values)]
        return float(np.median(values)) if len(values) else math.nan

    def get_sessions(self, cell: str, column: str) -> dict[str, float]:
        """Return the median of a column of a cell's valid records by session."""
        rows = self._rows[self._rows.index.get_level_values("cell") == cell] if len(self._rows) else self._rows
        rows = rows[rows[column] > 0] if len(rows) else rows
        return rows.groupby("unit_of")[column].median().to_dict() if len(rows) else {}


# What something is said of, and what is said of it: a page says one thing of each.
Claim = tuple[Hashable, Hashable]


class Statement(Protocol):
    """What a page states."""

    @property
    def claims(self) -> Iterable[Claim]:
        """What it says of what."""
        ...

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records bear it out."""
        ...


@dataclass(frozen=True)
class Comparison:
    """The outcome of one comparison: contender / baseline, block by block.

    Attributes:
        baseline: name of a cell.
        contender: name of the other.
        column: of the records, in seconds, `DECIDES` of the metric that decides.
        outcome: that of METHOD 17.
        blocks: numbers of the blocks that it used.
        ratio: the median ratio with the ends of its interval; NaN where there is none.
        low: lower end.
        high: upper end.
        same_within: the share within which two times count as the same.
        is_bound: whether the ratio is the one closest to 1 that the harness's own time leaves possible (METHOD 13).
    """

    baseline: str
    contender: str
    column: str
    outcome: str
    blocks: tuple[int, ...]
    ratio: float
    low: float
    high: float
    same_within: float = 0.05
    is_bound: bool = False

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records have the blocks, the ratio and the order of the outcome."""
        if math.isnan(self.ratio):
            return self.outcome not in (FASTER, SLOWER, SAME)
        d = self._compute_log_ratios(records)
        if not len(d) or not np.isfinite(d).all() or abs(np.median(d) - math.log(self.ratio)) > CLOSE:
            return False
        match self.outcome:
            case "faster":
                return self.high < 1 and len(d) >= MIN_BLOCKS and (d < 0).mean() >= _AGREE
            case "slower":
                return self.low > 1 and len(d) >= MIN_BLOCKS and (d > 0).mean() >= _AGREE
            case "same":
                bound = (1 + self.same_within) * (1 + CLOSE)
                return len(d) >= MIN_BLOCKS and 1 / bound <= self.low <= self.high <= bound
            case "too few repeats":
                return len(d) < MIN_BLOCKS
        return True

    @property
    def claims(self) -> Iterator[Claim]:
        """The outcome, and on the figure that decides which cell lost."""
        yield (self.baseline, self.contender, self.column), self.outcome
        if self.loser_and_winner:
            yield ("lost", *self.loser_and_winner), True

    @property
    def loser_and_winner(self) -> tuple[str, str] | None:
        """The loser and the winner on the figure that decides; None where there are none."""
        if not self.winner or self.column != DECIDES:
            return None
        return (self.contender if self.winner == self.baseline else self.baseline), self.winner

    @property
    def winner(self) -> str:
        """The cell that was shown to take less time; "" where none was."""
        return {FASTER: self.contender, SLOWER: self.baseline}.get(self.outcome, "")

    def compute_gain(self, winner: str) -> float:
        """Return how many times as fast a side is as the other."""
        return 1 / self.ratio if winner == self.contender else self.ratio

    def _compute_log_ratios(self, records: Records) -> np.ndarray:
        base, other = (records.get_values(cell, self.column, self.blocks) for cell in (self.baseline, self.contender))
        if self.is_bound:
            # The harness may have taken all of it from one arm: the arm that took longer took at least the rest.
            longer, cell = (base, self.baseline) if self.ratio < 1 else (other, self.contender)
            longer -= records.get_values(cell, "null_s", self.blocks)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(other) - np.log(base)


class _OfComparisons:
    """A statement that says nothing but what its comparisons do."""

    comparisons: Iterable[Comparison]

    @property
    def claims(self) -> Iterator[Claim]:
        """Those of the comparisons."""
        yield from _iter_claims(self.comparisons)


@dataclass(frozen=True)
class Outcomes(_OfComparisons):
    """Comparisons of the same two levels that came out alike, under conditions that tell them from the others."""

    comparisons: tuple[Comparison, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether each comparison holds."""
        return all(one.is_supported_by(records) for one in self.comparisons)


@dataclass(frozen=True)
class Gain(_OfComparisons):
    """That a way gains against what is usual: it won a comparison at least, and takes less over all accesses.

    Attributes:
        comparisons: those with what is usual, one for each access, of which it is the contender.
        shares: of all reads the share of each access.
    """

    comparisons: tuple[Comparison, ...]
    shares: tuple[float, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether each comparison holds, one is won, and the medians of all together are less."""
        won = any(one.outcome == FASTER for one in self.comparisons)
        both = zip(self.comparisons, self.shares, strict=True)
        weighed = [(share, records.compute_median(one.baseline, DECIDES), one.ratio) for one, share in both]
        before, after = (sum(share * time * ratio**power for share, time, ratio in weighed) for power in (0, 1))
        return won and after < before and all(one.is_supported_by(records) for one in self.comparisons)


@dataclass(frozen=True)
class NoGain(_OfComparisons):
    """That none of several ways gains: none was shown to be faster in all of its comparisons with what is usual.

    Attributes:
        ways: the comparisons of each way, of which it is the contender.
    """

    ways: tuple[tuple[Comparison, ...], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether each comparison holds, and no way won all of its own."""
        won = any(own and all(one.outcome == FASTER for one in own) for own in self.ways)
        return not won and all(one.is_supported_by(records) for one in self.comparisons)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Those of all ways."""
        return tuple(itertools.chain(*self.ways))


@dataclass(frozen=True)
class Choice:
    """What to choose of one factor at the levels of the rest: the comparisons that the recommended cell won."""

    factor: str
    level: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Recommendation:
    """One whole configuration for one situation: the cell that took the least time of all that do the same work.

    Attributes:
        situation: the levels that a reader's own work decides.
        cell: name of the recommended cell.
        cells: names of all cells of the situation.
        choices: the factors that matter at the levels of the rest.
    """

    situation: tuple[tuple[str, str], ...]
    cell: str
    cells: tuple[str, ...]
    choices: tuple[Choice, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether no cell of the situation took less, and each choice was won by the recommended cell."""
        medians = {cell: records.compute_median(cell, DECIDES) for cell in self.cells}
        least = min((value for value in medians.values() if value == value), default=math.nan)
        return medians[self.cell] <= least * (1 + CLOSE) and all(
            one.is_supported_by(records) and one.winner == self.cell
            for choice in self.choices
            for one in choice.comparisons
        )

    @property
    def claims(self) -> Iterator[Claim]:
        """The choice for the situation, that the cell lost against no other, and those of the comparisons."""
        yield self.situation, self.cell
        yield from ((("lost", self.cell, other), False) for other in self.cells)
        yield from _iter_claims(one for choice in self.choices for one in choice.comparisons)


@dataclass(frozen=True)
class Leader(_OfComparisons):
    """The arms that no other was shown to beat among those that deliver the same, at some levels.

    Attributes:
        cells: names of the leading cells by level.
        others: names of the other cells that were judged, by level.
        unjudged: names of the cells that were judged against none of these, by level.
        comparisons: those that decided.
        is_alone: whether each leader is one arm that beat all others; else nobody is called the fastest.
    """

    cells: tuple[tuple[str, ...], ...]
    others: tuple[tuple[str, ...], ...]
    unjudged: tuple[tuple[str, ...], ...]
    comparisons: tuple[Comparison, ...]
    is_alone: bool

    def is_supported_by(self, records: Records) -> bool:
        """Return whether no leader lost, one that is alone won against all, and no arm without a verdict took less."""
        if not all(one.is_supported_by(records) for one in self.comparisons):
            return False
        lost = {one.loser_and_winner for one in self.comparisons}
        for leaders, others, unjudged in zip(self.cells, self.others, self.unjudged, strict=True):
            if any((leader, other) in lost for other in others for leader in leaders):
                return False
            if self.is_alone and not all((other, leaders[0]) in lost for other in others):
                return False
            least = min(records.compute_median(leader, DECIDES) for leader in leaders)
            if any(records.compute_median(cell, DECIDES) < least * (1 - CLOSE) for cell in unjudged):
                return False
        return True


@dataclass(frozen=True)
class Counts:
    """Exact counts of two sides, medians over the records of a side's cells: requests, bytes, opens, connections.

    Attributes:
        cells: names of the cells of the contender, then of the baseline.
        counts: (column, least and most of the contender, least and most of the baseline).
    """

    cells: tuple[tuple[str, ...], tuple[str, ...]]
    counts: tuple[tuple[str, tuple[float, float], tuple[float, float]], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the medians of the records reach from the least to the most."""
        for column, *spans in self.counts:
            for names, span in zip(self.cells, spans, strict=True):
                medians = [records.compute_median(cell, column) for cell in names]
                if not np.allclose([min(medians), max(medians)], span, rtol=1e-6):
                    return False
        return True

    @property
    def claims(self) -> Iterator[Claim]:
        """The amounts of each side."""
        for column, *spans in self.counts:
            yield from (((cells, column), span) for cells, span in zip(self.cells, spans, strict=True))


class Stated:
    """What a page has stated so far, by which it sees what cannot be printed beside that."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._claims: dict[Hashable, Hashable] = {}

    def add_statements(self, statements: Iterable[Statement]) -> bool:
        """Take statements, all or, where one contradicts what was stated before, none; return whether they were."""
        claims = [claim for one in statements for claim in one.claims]
        together = self._claims | dict(claims)
        if any(together[about] != what or self._claims.get(about, what) != what for about, what in claims):
            return False
        self._claims = together
        return True


def _iter_claims(comparisons: Iterable[Comparison]) -> Iterator[Claim]:
    for one in comparisons:
        yield from one.claims
