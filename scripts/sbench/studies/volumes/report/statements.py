"""Statements on limits of volumes and on their ratios, each with the check that it holds.

They are checked against the jobs of valid batteries (samples.csv), without what found them. A percentile of several
jobs together lies between the least and the most of their own, so a figure that does not cannot be theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MEETS, MISSES = "meets", "misses"
LESS, MORE, TOO_FEW = "faster", "slower", "too few repeats"
# Jobs of each side that a verdict needs.
_LEAST = 6
# fio's buckets are 1/64 of their value wide, and tables have twelve digits.
_BUCKET, _CLOSE = 1 / 64, 1e-9
# What a side of a comparison may have in place of its level: all hosts together, or nothing.
_ALL_HOSTS, _NOTHING = "all", ""
Levels = tuple[tuple[str, str], ...]


class Jobs:
    """The jobs of valid batteries: factors, `repeat`, `number`, and figures such as `p99_ms` and `iops`."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Take the samples of a run, where `status` and `valid` say what counts."""
        counts = (table["status"] == "done") & table["valid"].astype(bool) if len(table) else []
        self._rows = table[counts].sort_values(["repeat", "number"], kind="stable") if len(table) else table

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return len(self._rows) > 0

    def get_values(self, levels: Levels, column: str) -> dict[int, np.ndarray]:
        """Return a figure of the jobs at some levels by battery, in their order, NaN where it is not known."""
        rows = self._rows
        if rows.empty:
            return {}
        for name, level in levels:
            if level != _NOTHING and (name, level) != ("host", _ALL_HOSTS):
                rows = rows[rows[name].isin((level, _NOTHING) if name == "start_credits" else (level,))]
        values = pd.to_numeric(rows[column], errors="coerce") if column in rows else pd.Series(np.nan, rows.index)
        return {int(repeat): values[own.index].to_numpy(float) for repeat, own in rows.groupby("repeat")}


@dataclass(frozen=True)
class Segment:
    """Jobs of one battery that were judged together.

    Attributes:
        repeat: number of the battery.
        first: place of its first job among the valid ones of the battery, from 0.
        jobs: how many jobs.
        over: how many of them reached the limit by themselves.
        value: their p99 in ms, NaN where there are only bounds.
        low: lower end of its interval.
        high: upper end.
        outcome: whether they met the limit.
    """

    repeat: int
    first: int
    jobs: int
    over: int
    value: float
    low: float
    high: float
    outcome: str

    def is_supported_by(self, values: np.ndarray, limit_ms: float) -> bool:
        """Return whether the battery has these jobs, their p99 is possible, and the outcome follows from it."""
        own = values[self.first : self.first + self.jobs]
        if len(own) != self.jobs or np.nansum(own >= limit_ms) != self.over:
            return False
        if np.isfinite([*own, self.value]).all() and not _is_within(self.value, own):
            return False
        if self.outcome == MEETS:
            return self.high < limit_ms and self.over < self.jobs
        return self.outcome != MISSES or self.low >= limit_ms


@dataclass(frozen=True)
class Limit:
    """What became of a limit of the p99 on one series, segment by segment.

    Attributes:
        levels: those of the series.
        limit_ms: the limit.
        outcome: that on the whole series.
        segments: all of its batteries' jobs, in time order.
    """

    levels: Levels
    limit_ms: float
    outcome: str
    segments: tuple[Segment, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether each segment holds, together they are all jobs, and the outcome is that of the segments."""
        batteries = jobs.get_values(self.levels, "p99_ms")
        if sum(map(len, batteries.values())) != sum(one.jobs for one in self.segments):
            return False
        if not all(
            one.is_supported_by(batteries.get(one.repeat, np.array([])), self.limit_ms) for one in self.segments
        ):
            return False
        outcomes = {one.outcome for one in self.segments}
        if self.outcome == MEETS:
            return outcomes == {MEETS}
        return self.outcome != MISSES or MISSES in outcomes

    @property
    def claims(self) -> Iterator[tuple[Any, Any]]:
        """What it says of what."""
        yield (self.levels, self.limit_ms), self.outcome


def build_limit(levels: Levels, whole: Mapping, segments: Sequence[Mapping]) -> Limit:
    """Return what became of a limit on a series: of rows of `limits.judge_limits`, that of the whole and the rest.

    The segments of a battery lie one after the other.
    """
    done: dict[int, int] = {}
    read = []
    for row in segments:
        # A series without a valid battery has no row but the whole one.
        if row["segment"] != "all":
            repeat, jobs = int(row.get("repeat", 1)), int(row["jobs"])
            figures = (float(row[name]) for name in ("value_ms", "low_ms", "high_ms"))
            read.append(Segment(repeat, done.get(repeat, 0), jobs, int(row["jobs_over"]), *figures, row["verdict"]))
            done[repeat] = done.get(repeat, 0) + jobs
    return Limit(levels, float(whole["limit_ms"]), whole["verdict"], tuple(read))


@dataclass(frozen=True)
class Ratio:
    """How a figure of two series compares: contender / baseline.

    Attributes:
        baseline: the levels of a series.
        contender: those of the other.
        column: of the samples.
        part: of the jobs: "all", or those before or after a change.
        outcome: that of METHOD 17.
        values: the figure of the baseline and of the contender, NaN where it is not known.
        ratio: with the ends of its interval.
        low: lower end.
        high: upper end.
        more_is_faster: whether the figure is a rate.
    """

    baseline: Levels
    contender: Levels
    column: str
    part: str
    outcome: str
    values: tuple[float, float]
    ratio: float
    low: float
    high: float
    more_is_faster: bool = False

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether both figures, and their ratio, are possible, and the outcome follows from the interval."""
        sides = [jobs.get_values(levels, self.column) for levels in (self.baseline, self.contender)]
        pooled = [np.concatenate([*side.values()]) if side else np.array([]) for side in sides]
        if not all(map(len, pooled)):
            return False
        if all(np.isfinite(own).all() for own in (*pooled, self.values)):
            if not all(_is_within(value, own) for value, own in zip(self.values, pooled, strict=True)):
                return False
            most, least = (pooled[1].max() / pooled[0].min(), pooled[1].min() / pooled[0].max())
            if np.isfinite(self.ratio) and not _is_within(self.ratio, np.array([least, most])):
                return False
        is_less = self.high < 1 and self.outcome == (MORE if self.more_is_faster else LESS)
        is_more = self.low > 1 and self.outcome == (LESS if self.more_is_faster else MORE)
        if self.outcome in (LESS, MORE):
            return (is_less or is_more) and min(map(len, pooled)) >= _LEAST
        if self.outcome != TOO_FEW or not np.isfinite(self.values).all():
            return True
        return bool(np.isclose(self.values[1] / self.values[0], self.ratio, rtol=1e-6))

    @property
    def claims(self) -> Iterator[tuple[Any, Any]]:
        """What it says of what."""
        yield (self.baseline, self.contender, self.column, self.part), self.outcome


@dataclass(frozen=True)
class VolumeChoice:
    """Which volume to use of those that keep a limit.

    Attributes:
        chosen: those that may be used: one that is the only one or lower than the others, or all that keep it.
        others: of the same limit, those that do not keep it.
        ratios: the comparisons between those that keep the limit.
        kept: what became of the limit on each that keeps it.
    """

    chosen: tuple[Limit, ...]
    others: tuple[Limit, ...]
    kept: tuple[Limit, ...]
    ratios: tuple[Ratio, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether those that keep the limit do, the others do not, and the chosen one won against each."""
        if not all(one.is_supported_by(jobs) for one in (*self.kept, *self.others, *self.ratios)):
            return False
        if any(one.outcome != MEETS for one in self.kept) or any(one.outcome == MEETS for one in self.others):
            return False
        stores = {_get_store(one.levels) for one in self.kept}
        beats_all = {own for own in stores if stores - {own} and stores - {own} <= self._find_beaten(own)}
        # Where any may be used, none was shown to be lower than all others.
        if len(self.chosen) == len(self.kept):
            return not beats_all
        return {_get_store(one.levels) for one in self.chosen} == beats_all

    def _find_beaten(self, own: str) -> set[str]:
        """Return the volumes that one was shown to be lower than."""
        return {
            _get_store(one.baseline if _get_store(one.contender) == own else one.contender)
            for one in self.ratios
            if (one.outcome, own) in ((LESS, _get_store(one.contender)), (MORE, _get_store(one.baseline)))
        }

    @property
    def claims(self) -> Iterator[tuple[Any, Any]]:
        """What it says of what."""
        for one in (*self.kept, *self.others, *self.ratios):
            yield from one.claims


def _get_store(levels: Levels) -> str:
    return dict(levels)["store"]


def _is_within(value: float, values: Sequence[float] | np.ndarray) -> bool:
    """Return whether a figure lies between the least and the most of some, give or take a bucket of fio's."""
    wide = 1 + _BUCKET + _CLOSE
    return bool(np.min(values) / wide <= value <= np.max(values) * wide)
