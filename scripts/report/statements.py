"""Statements of a page, each with the comparisons or cells that it rests on, and the check that it holds.

A statement is checked against raw records (records.csv), without what found it: this module imports nothing of the
project. A page prints the statements that hold and that do not contradict each other.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "same", "too few repeats"
# Blocks of a verdict; of those of an order, the share that has to agree with it.
_MIN_BLOCKS, _AGREE = 6, 0.75
# Tables have twelve digits.
_CLOSE = 1e-9


class Records:
    """Raw records: one row per record of records.csv, by cell and block."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Take records.csv; one without rows has no records."""
        valid = table["valid"].astype(str).str.lower().eq("true") if len(table) else []
        self._rows = table[valid].set_index(["cell", "repeat"]) if len(table) else table
        self._columns: dict[str, dict] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return len(self._rows) > 0

    def get(self, cell: str, column: str, blocks: Sequence[int]) -> np.ndarray:
        """Return a column of a cell's valid records in some blocks, NaN where there is none."""
        if column not in self._columns:
            there = column in self._rows
            values = pd.to_numeric(self._rows[column], errors="coerce") if there else pd.Series(dtype=float)
            self._columns[column] = values.to_dict()
        return np.array([self._columns[column].get((cell, block), math.nan) for block in blocks], dtype=float)

    def blocks(self, cell: str) -> list[int]:
        """Return the blocks in which a cell has a valid record."""
        return [block for name, block in self._rows.index if name == cell] if len(self._rows) else []

    def median(self, cell: str, column: str) -> float:
        """Return the median of a column over a cell's valid records, NaN of none."""
        values = self.get(cell, column, self.blocks(cell))
        values = values[np.isfinite(values)]
        return float(np.median(values)) if len(values) else math.nan


class Statement(Protocol):
    """What a page states."""

    def holds(self, records: Records) -> bool:
        """Return whether the records bear it out."""
        ...


@dataclass(frozen=True)
class Comparison:
    """The outcome of one comparison: contender / baseline, block by block.

    Attributes:
        baseline: name of a cell.
        contender: name of the other.
        column: of the records, in seconds, "value" of the metric that decides.
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

    def holds(self, records: Records) -> bool:
        """Return whether the records have the blocks, the ratio and the order of the outcome."""
        if math.isnan(self.ratio):
            return self.outcome not in (FASTER, SLOWER, SAME)
        d = self._differences(records)
        if not len(d) or not np.isfinite(d).all() or abs(np.median(d) - math.log(self.ratio)) > _CLOSE:
            return False
        match self.outcome:
            case "faster":
                return self.high < 1 and len(d) >= _MIN_BLOCKS and (d < 0).mean() >= _AGREE
            case "slower":
                return self.low > 1 and len(d) >= _MIN_BLOCKS and (d > 0).mean() >= _AGREE
            case "same":
                bound = (1 + self.same_within) * (1 + _CLOSE)
                return len(d) >= _MIN_BLOCKS and 1 / bound <= self.low <= self.high <= bound
            case "too few repeats":
                return len(d) < _MIN_BLOCKS
        return True

    @property
    def winner(self) -> str:
        """The cell that was shown to take less time; "" where none was."""
        return {FASTER: self.contender, SLOWER: self.baseline}.get(self.outcome, "")

    def gain(self, winner: str) -> float:
        """Return how many times as fast a side is as the other."""
        return 1 / self.ratio if winner == self.contender else self.ratio

    def _differences(self, records: Records) -> np.ndarray:
        base, other = (records.get(cell, self.column, self.blocks) for cell in (self.baseline, self.contender))
        if self.is_bound:
            # The harness may have taken all of it from one arm: the arm that took longer took at least the rest.
            longer, cell = (base, self.baseline) if self.ratio < 1 else (other, self.contender)
            longer -= records.get(cell, "null_s", self.blocks)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(other) - np.log(base)


@dataclass(frozen=True)
class Outcomes:
    """Comparisons of the same two levels that came out alike, under conditions that tell them from the others."""

    comparisons: tuple[Comparison, ...]

    def holds(self, records: Records) -> bool:
        """Return whether each comparison holds."""
        return all(one.holds(records) for one in self.comparisons)


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

    def holds(self, records: Records) -> bool:
        """Return whether no cell of the situation took less, and each choice was won by the recommended cell."""
        medians = {cell: records.median(cell, "value") for cell in self.cells}
        least = min((value for value in medians.values() if value == value), default=math.nan)
        return medians[self.cell] <= least * (1 + _CLOSE) and all(
            one.holds(records) and one.winner == self.cell for choice in self.choices for one in choice.comparisons
        )


@dataclass(frozen=True)
class Leader:
    """The arms that no other was shown to beat among those that deliver the same, at some levels.

    Attributes:
        cells: names of the leading cells by level.
        others: names of the other cells by level.
        comparisons: those that decided.
        is_alone: whether each leader is one arm that beat all others; else nobody is called the fastest.
    """

    cells: tuple[tuple[str, ...], ...]
    others: tuple[tuple[str, ...], ...]
    comparisons: tuple[Comparison, ...]
    is_alone: bool

    def holds(self, records: Records) -> bool:
        """Return whether the comparisons hold, no leader lost one, and one that is alone has won against all."""
        lost = {cell for one in self.comparisons if one.winner for cell in (one.baseline, one.contender)}
        lost -= {one.winner for one in self.comparisons}
        if not all(one.holds(records) for one in self.comparisons):
            return False
        won = {(one.winner, *({one.baseline, one.contender} - {one.winner})) for one in self.comparisons if one.winner}
        for leaders, others in zip(self.cells, self.others, strict=True):
            if any((other, leader) in won for other in others for leader in leaders):
                return False
            if self.is_alone and not all((leaders[0], other) in won for other in others):
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

    def holds(self, records: Records) -> bool:
        """Return whether the medians of the records reach from the least to the most."""
        for column, *spans in self.counts:
            for names, span in zip(self.cells, spans, strict=True):
                medians = [records.median(cell, column) for cell in names]
                if not np.allclose([min(medians), max(medians)], span, rtol=1e-6):
                    return False
        return True


def find_contradictions(statements: Iterable[Statement]) -> list[tuple[Statement, Statement]]:
    """Return the pairs of statements that cannot both be printed.

    These are two outcomes of one comparison, two recommendations for one situation, and a recommendation or a leader
    that lost a comparison which another statement has.
    """
    statements = list(statements)
    pairs = []
    for number, one in enumerate(statements):
        pairs += [(one, other) for other in statements[number + 1 :] if _contradict(one, other)]
    return pairs


def _contradict(first: Statement, second: Statement) -> bool:
    if isinstance(first, Recommendation) and isinstance(second, Recommendation):
        return first.situation == second.situation and first.cell != second.cell
    first, second = ({_key(each): each.outcome for each in _comparisons(side)} for side in (first, second))
    return any(second.get(key, outcome) != outcome for key, outcome in first.items())


def _comparisons(statement: Statement) -> Iterable[Comparison]:
    if isinstance(statement, Recommendation):
        return [one for choice in statement.choices for one in choice.comparisons]
    return getattr(statement, "comparisons", ())


def _key(comparison: Comparison) -> tuple[str, str, str]:
    return comparison.baseline, comparison.contender, comparison.column
