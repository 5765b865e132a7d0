"""Statements on a page about comparisons or cells, which can be checked against the raw records.

Checks use the raw records (records.csv) and none of the code that derived the statements: this module imports nothing
from the project. A page prints the statements that are supported by the records and do not contradict each other.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "same", "too few repeats"
DECIDES = "value"  # column of records.csv with the primary metric
# The minimum number of blocks for a verdict, and the proportion of blocks that must agree with an order.
MIN_BLOCKS, _AGREE = 6, 0.75
CLOSE = 1e-9  # relative tolerance; tables have twelve digits


class Records:
    """Raw records (rows of records.csv), by cell and block.

    Records of several runs have a column `unit_of` with the session of each record.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        """Store the valid records of records.csv."""
        valid = table["valid"].astype(str).str.lower().eq("true") if len(table) else []
        self._rows = table[valid].set_index(["cell", "repeat"]) if len(table) else table
        self._columns: dict[str, dict] = {}

    def __bool__(self) -> bool:
        """Return whether there are any valid records."""
        return len(self._rows) > 0

    def get_values(self, cell: str, column: str, blocks: Sequence[int]) -> np.ndarray:
        """Return the values of a column in a cell's valid records, one per given block, with NaN for missing blocks."""
        if column not in self._columns:
            there = column in self._rows
            values = pd.to_numeric(self._rows[column], errors="coerce") if there else pd.Series(dtype=float)
            self._columns[column] = values.to_dict()
        return np.array([self._columns[column].get((cell, block), math.nan) for block in blocks], dtype=float)

    def list_blocks(self, cell: str) -> list[int]:
        """List the blocks in which a cell has a valid record."""
        return [block for name, block in self._rows.index if name == cell] if len(self._rows) else []

    def compute_median(self, cell: str, column: str) -> float:
        """Return the median of a column over a cell's valid records; NaN if there are no values."""
        values = self.get_values(cell, column, self.list_blocks(cell))
        values = values[np.isfinite(values)]
        return float(np.median(values)) if len(values) else math.nan

    def get_sessions(self, cell: str, column: str) -> dict[str, float]:
        """Return the median of a column per session, over a cell's valid records with positive values."""
        rows = self._rows[self._rows.index.get_level_values("cell") == cell] if len(self._rows) else self._rows
        rows = rows[rows[column] > 0] if len(rows) else rows
        return rows.groupby("unit_of")[column].median().to_dict() if len(rows) else {}


# A claim's subject and value. A page must not claim different values for a subject.
Claim = tuple[Hashable, Hashable]


class Statement(Protocol):
    """A statement that can be checked against raw records."""

    @property
    def claims(self) -> Iterable[Claim]:
        """Return the statement's claims, as (subject, value) pairs."""
        ...

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records support the statement."""
        ...


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison of two cells, by the ratio contender / baseline in each block.

    Attributes:
        baseline: name of the baseline's cell.
        contender: name of the contender's cell.
        column: column of the records, in seconds; `DECIDES` for the primary metric.
        outcome: outcome by METHOD 17.
        blocks: numbers of the blocks used.
        ratio: median ratio; NaN if unknown.
        low: lower confidence limit of the ratio.
        high: upper confidence limit of the ratio.
        same_within: relative difference within which two times count as the same.
        is_bound: whether the ratio is a bound: the value closest to 1 that is possible, given the harness's time
            (METHOD 13).
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
        """Return whether the blocks, the ratio and the order in the records agree with the outcome."""
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
        """Yield the outcome as a claim and, if a cell lost on the primary metric, this as another claim."""
        yield (self.baseline, self.contender, self.column), self.outcome
        if self.loser_and_winner:
            yield ("lost", *self.loser_and_winner), True

    @property
    def loser_and_winner(self) -> tuple[str, str] | None:
        """Return (loser, winner), or None if neither cell won or if the column is not the primary metric."""
        if not self.winner or self.column != DECIDES:
            return None
        return (self.contender if self.winner == self.baseline else self.baseline), self.winner

    @property
    def winner(self) -> str:
        """Return the cell that was faster according to the outcome, or an empty string if neither was."""
        return {FASTER: self.contender, SLOWER: self.baseline}.get(self.outcome, "")

    def compute_gain(self, winner: str) -> float:
        """Return the speedup of the cell `winner` relative to the other cell."""
        return 1 / self.ratio if winner == self.contender else self.ratio

    def _compute_log_ratios(self, records: Records) -> np.ndarray:
        base, other = (records.get_values(cell, self.column, self.blocks) for cell in (self.baseline, self.contender))
        if self.is_bound:
            # The harness's time may have affected only one arm. The slower arm then took at least the remaining time.
            longer, cell = (base, self.baseline) if self.ratio < 1 else (other, self.contender)
            longer -= records.get_values(cell, "null_s", self.blocks)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(other) - np.log(base)


class _OfComparisons:
    """Base class of statements that consist of comparisons and make no further claims."""

    comparisons: Iterable[Comparison]

    @property
    def claims(self) -> Iterator[Claim]:
        """Yield the claims of the comparisons."""
        yield from _iter_claims(self.comparisons)


@dataclass(frozen=True)
class Outcomes(_OfComparisons):
    """The outcomes of comparisons that one sentence describes."""

    comparisons: tuple[Comparison, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records support each comparison."""
        return all(one.is_supported_by(records) for one in self.comparisons)


@dataclass(frozen=True)
class Gain(_OfComparisons):
    """The claim that an access method is better than the usual one.

    It is faster in at least one comparison, and takes less time in total over all access patterns.

    Attributes:
        comparisons: one comparison per access pattern, with the usual method as the baseline.
        shares: proportion of all reads with each access pattern.
    """

    comparisons: tuple[Comparison, ...]
    shares: tuple[float, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records support the comparisons, at least one is faster, and the total time is less.

        The total is the sum of the median times, weighted by `shares`.
        """
        won = any(one.outcome == FASTER for one in self.comparisons)
        both = zip(self.comparisons, self.shares, strict=True)
        weighed = [(share, records.compute_median(one.baseline, DECIDES), one.ratio) for one, share in both]
        before, after = (sum(share * time * ratio**power for share, time, ratio in weighed) for power in (0, 1))
        return won and after < before and all(one.is_supported_by(records) for one in self.comparisons)


@dataclass(frozen=True)
class NoGain(_OfComparisons):
    """The claim that no access method is faster than the usual one in all of its comparisons.

    Attributes:
        ways: the comparisons of each method, with the usual method as the baseline.
    """

    ways: tuple[tuple[Comparison, ...], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records support all comparisons, and no method is faster in all of its comparisons."""
        won = any(own and all(one.outcome == FASTER for one in own) for own in self.ways)
        return not won and all(one.is_supported_by(records) for one in self.comparisons)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the comparisons of all methods."""
        return tuple(itertools.chain(*self.ways))


@dataclass(frozen=True)
class Choice:
    """The recommended level of a factor, given the levels of the other factors.

    Attributes:
        factor: name of the factor.
        level: recommended level.
        comparisons: comparisons that the recommended cell won.
    """

    factor: str
    level: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Recommendation:
    """A recommended configuration: the cell with the least time among all cells that do the same work.

    Attributes:
        situation: levels that the reader's work determines.
        cell: name of the recommended cell.
        cells: names of all cells in this situation.
        choices: factors that matter, given the levels of the other factors.
    """

    situation: tuple[tuple[str, str], ...]
    cell: str
    cells: tuple[str, ...]
    choices: tuple[Choice, ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether no cell in the situation took less time, and the recommended cell won each choice."""
        medians = {cell: records.compute_median(cell, DECIDES) for cell in self.cells}
        least = min((value for value in medians.values() if value == value), default=math.nan)
        return medians[self.cell] <= least * (1 + CLOSE) and all(
            one.is_supported_by(records) and one.winner == self.cell
            for choice in self.choices
            for one in choice.comparisons
        )

    @property
    def claims(self) -> Iterator[Claim]:
        """Yield the claims that the cell is recommended and lost to no other cell and the claims of its comparisons."""
        yield self.situation, self.cell
        yield from ((("lost", self.cell, other), False) for other in self.cells)
        yield from _iter_claims(one for choice in self.choices for one in choice.comparisons)


@dataclass(frozen=True)
class Leader(_OfComparisons):
    """The arms that no other arm with the same result beat, at some levels.

    Attributes:
        cells: names of the leading cells, by level.
        others: names of the other judged cells, by level.
        unjudged: names of the cells not judged against any of these, by level.
        comparisons: decisive comparisons.
        is_alone: whether a single arm leads and beat all others; otherwise, no arm is called the fastest.
    """

    cells: tuple[tuple[str, ...], ...]
    others: tuple[tuple[str, ...], ...]
    unjudged: tuple[tuple[str, ...], ...]
    comparisons: tuple[Comparison, ...]
    is_alone: bool

    def is_supported_by(self, records: Records) -> bool:
        """Return whether no leader lost, a lone leader beat all other arms, and no unjudged arm took less time."""
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
    """Exact counts of both sides of a comparison, such as requests, bytes, opens and connections.

    Each count is the median over a cell's records.

    Attributes:
        cells: names of the contender's cells, and of the baseline's cells.
        counts: (column, minimum and maximum of the contender, minimum and maximum of the baseline).
    """

    cells: tuple[tuple[str, ...], tuple[str, ...]]
    counts: tuple[tuple[str, tuple[float, float], tuple[float, float]], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the medians in the records have the stated minimum and maximum."""
        for column, *spans in self.counts:
            for names, span in zip(self.cells, spans, strict=True):
                medians = [records.compute_median(cell, column) for cell in names]
                if not np.allclose([min(medians), max(medians)], span, rtol=1e-6):
                    return False
        return True

    @property
    def claims(self) -> Iterator[Claim]:
        """Yield the counts of each side."""
        for column, *spans in self.counts:
            yield from (((cells, column), span) for cells, span in zip(self.cells, spans, strict=True))


@dataclass(frozen=True)
class Cost:
    """The costs of cells, each the sum of its counts times their prices.

    Attributes:
        cells: for each cell, its name, its cost in US dollars, and tuples (column of a count, price in US dollars).
            Each count is the median over the cell's records.
    """

    cells: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the medians in the records result in the stated costs."""
        sums = [
            (usd, sum(price * records.compute_median(cell, column) for column, price in prices))
            for cell, usd, prices in self.cells
        ]
        return all(math.isclose(usd, of_records, rel_tol=1e-6) for usd, of_records in sums)

    @property
    def claims(self) -> Iterator[Claim]:
        """Yield the cost of each cell."""
        yield from ((("cost", cell), usd) for cell, usd, _ in self.cells)


class Stated:
    """The claims made on a page so far, which later statements must not contradict."""

    def __init__(self) -> None:
        """Start without claims."""
        self._claims: dict[Hashable, Hashable] = {}

    def add_statements(self, statements: Iterable[Statement]) -> bool:
        """Add statements unless any of their claims contradicts another claim, and return whether they were added."""
        claims = [claim for one in statements for claim in one.claims]
        together = self._claims | dict(claims)
        if any(together[about] != what or self._claims.get(about, what) != what for about, what in claims):
            return False
        self._claims = together
        return True


def _iter_claims(comparisons: Iterable[Comparison]) -> Iterator[Claim]:
    for one in comparisons:
        yield from one.claims
