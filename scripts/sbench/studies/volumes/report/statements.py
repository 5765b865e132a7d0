"""Build statements on limits of volumes and on their ratios, each with its check.

The check uses the jobs of valid batteries (samples.csv), without the code that found the statement. A percentile of
several jobs is between the least and the largest of theirs, so any other figure is impossible.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MEETS, MISSES = "meets", "misses"
LESS, MORE, TOO_FEW = "faster", "slower", "too few repeats"
# Fewest jobs of each side for a verdict.
_LEAST = 6
# fio's buckets are 1/64 of their value wide, and tables have twelve digits.
_BUCKET, _CLOSE = 1 / 64, 1e-9
# Values of a side of a comparison in place of a level: all hosts together, or nothing.
_ALL_HOSTS, _NOTHING = "all", ""
Levels = tuple[tuple[str, str], ...]


class Jobs:
    """The jobs of valid batteries: factors, `repeat`, `number`, and figures such as `p99_ms` and `iops`."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Take the samples of a run; `status` and `valid` select the jobs."""
        counts = (table["status"] == "done") & table["valid"].astype(bool) if len(table) else []
        self._rows = table[counts].sort_values(["repeat", "number"], kind="stable") if len(table) else table

    def __bool__(self) -> bool:
        """Return whether jobs are available."""
        return len(self._rows) > 0

    def get_values(self, levels: Levels, column: str) -> dict[int, np.ndarray]:
        """Return a figure of the jobs at some levels by battery, in their order, NaN if unknown."""
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
    """Jobs of a battery that share a verdict.

    Attributes:
        repeat: number of the battery.
        first: place of its first job among the valid jobs of the battery, from 0.
        jobs: number of jobs.
        over: number of jobs whose p99 reached the limit.
        value: their p99 in ms, NaN if only bounds are known.
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
    """The outcome of a limit of the p99 on a series, segment by segment.

    Attributes:
        levels: levels of the series.
        limit_ms: the limit.
        outcome: outcome on the whole series.
        segments: all jobs of its batteries, in time order.
    """

    levels: Levels
    limit_ms: float
    outcome: str
    segments: tuple[Segment, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether each segment holds, the segments cover all jobs, and the outcome follows from them."""
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
        """Yield the levels with the limit, and the outcome."""
        yield (self.levels, self.limit_ms), self.outcome


def build_limit(levels: Levels, whole: Mapping, segments: Sequence[Mapping]) -> Limit:
    """Return the outcome of a limit on a series from rows of `limits.judge_limits`, segments in time order."""
    done: dict[int, int] = {}
    read = []
    for row in segments:
        # A series without a valid battery has only the row of the whole.
        if row["segment"] != "all":
            repeat, jobs = int(row.get("repeat", 1)), int(row["jobs"])
            figures = (float(row[name]) for name in ("value_ms", "low_ms", "high_ms"))
            read.append(Segment(repeat, done.get(repeat, 0), jobs, int(row["jobs_over"]), *figures, row["verdict"]))
            done[repeat] = done.get(repeat, 0) + jobs
    return Limit(levels, float(whole["limit_ms"]), whole["verdict"], tuple(read))


@dataclass(frozen=True)
class Ratio:
    """The ratio of a figure between two series: contender / baseline.

    Attributes:
        baseline: levels of a series.
        contender: levels of the other series.
        column: column of the samples.
        part: "all" jobs, or the jobs before or after a change.
        outcome: outcome by METHOD 17.
        values: the figure of the baseline and of the contender, NaN if unknown.
        ratio: the ratio of the values.
        low: lower end of its interval.
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
        """Yield the compared series, column and part, and the outcome."""
        yield (self.baseline, self.contender, self.column, self.part), self.outcome


@dataclass(frozen=True)
class VolumeChoice:
    """The volume to use among the volumes that keep a limit.

    Attributes:
        chosen: the volume to use if it is the only one or lower than the others, else all that keep the limit.
        others: volumes that do not keep the same limit.
        ratios: comparisons between volumes that keep the limit.
        kept: outcome of the limit on each volume that keeps it.
    """

    chosen: tuple[Limit, ...]
    others: tuple[Limit, ...]
    kept: tuple[Limit, ...]
    ratios: tuple[Ratio, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether `kept` keep the limit, `others` do not, and the chosen volume won against each."""
        if not all(one.is_supported_by(jobs) for one in (*self.kept, *self.others, *self.ratios)):
            return False
        if any(one.outcome != MEETS for one in self.kept) or any(one.outcome == MEETS for one in self.others):
            return False
        stores = {_get_store(one.levels) for one in self.kept}
        beats_all = {own for own in stores if stores - {own} and stores - {own} <= self._find_beaten(own)}
        # If any may be used, no volume was shown to be lower than all others.
        if len(self.chosen) == len(self.kept):
            return not beats_all
        return {_get_store(one.levels) for one in self.chosen} == beats_all

    def _find_beaten(self, own: str) -> set[str]:
        """Return the volumes that a volume was shown to be lower than."""
        return {
            _get_store(one.baseline if _get_store(one.contender) == own else one.contender)
            for one in self.ratios
            if (one.outcome, own) in ((LESS, _get_store(one.contender)), (MORE, _get_store(one.baseline)))
        }

    @property
    def claims(self) -> Iterator[tuple[Any, Any]]:
        """Yield the claims of all limits and ratios."""
        for one in (*self.kept, *self.others, *self.ratios):
            yield from one.claims


def _get_store(levels: Levels) -> str:
    return dict(levels)["store"]


def _is_within(value: float, values: Sequence[float] | np.ndarray) -> bool:
    """Return whether a figure is between the least and the largest of some, within a bucket of fio's."""
    wide = 1 + _BUCKET + _CLOSE
    return bool(np.min(values) / wide <= value <= np.max(values) * wide)
