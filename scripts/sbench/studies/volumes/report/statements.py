"""Statements about limits and ratios that can be verified against the raw samples.

The verification uses the jobs of valid batteries (samples.csv), and shares no code with the analysis that produced the
statement. A percentile over several jobs must be between the minimum and the maximum of their percentiles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MEETS, MISSES = "meets", "misses"
LESS, MORE, TOO_FEW = "faster", "slower", "too few repeats"
# Minimum number of jobs on each side for a verdict.
_LEAST = 6
# Tolerances: fio's buckets are 1/64 of their value wide, and tables have twelve digits.
_BUCKET, _CLOSE = 1 / 64, 1e-9
# Values that replace a level on a side of a comparison: all hosts combined, or any level.
_ALL_HOSTS, _NOTHING = "all", ""
Levels = tuple[tuple[str, str], ...]


class Jobs:
    """The jobs of valid batteries, against which statements are verified."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Select the finished jobs of valid batteries from the samples of a run.

        The samples have the columns `status`, `valid`, `repeat` and `number`, the factors, and metrics such as
        `p99_ms` and `iops`.
        """
        counts = (table["status"] == "done") & table["valid"].astype(bool) if len(table) else []
        self._rows = table[counts].sort_values(["repeat", "number"], kind="stable") if len(table) else table

    def __bool__(self) -> bool:
        """Return whether jobs are available."""
        return len(self._rows) > 0

    def get_values(self, levels: Levels, column: str) -> dict[int, np.ndarray]:
        """Return the values of a column for the jobs at the given levels, as {battery: values in job order}.

        Missing values are NaN.
        """
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
    """Consecutive jobs of a battery at the same latency level, and the verdict on them.

    Attributes:
        repeat: number of the battery.
        first: index of the first job among the valid jobs of the battery, from 0.
        jobs: number of jobs.
        over: number of jobs whose p99 is at or above the limit.
        value: p99 over all jobs in ms; NaN if only bounds are known.
        low: lower end of its confidence interval.
        high: upper end of its confidence interval.
        outcome: verdict on the limit.
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
        """Return whether these jobs exist, their p99 is plausible, and the outcome follows from it.

        `values` are the p99s of all jobs of the battery.
        """
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
    """The statement that the p99 of a series meets or misses a limit.

    Attributes:
        levels: factor levels of the series.
        limit_ms: the limit in ms.
        outcome: verdict on the entire series.
        segments: segments that cover all jobs of its batteries, in time order.
    """

    levels: Levels
    limit_ms: float
    outcome: str
    segments: tuple[Segment, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether the jobs support all segments, and the segments cover all jobs and imply the outcome."""
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
        """Yield the subject (series and limit) and the outcome."""
        yield (self.levels, self.limit_ms), self.outcome


def build_limit(levels: Levels, whole: Mapping, segments: Sequence[Mapping]) -> Limit:
    """Build a statement from rows of `limits.judge_limits`: the row of the entire series, and its segments in order."""
    done: dict[int, int] = {}
    read = []
    for row in segments:
        # Without a valid battery, there is only the row for the entire series.
        if row["segment"] != "all":
            repeat, jobs = int(row.get("repeat", 1)), int(row["jobs"])
            figures = (float(row[name]) for name in ("value_ms", "low_ms", "high_ms"))
            read.append(Segment(repeat, done.get(repeat, 0), jobs, int(row["jobs_over"]), *figures, row["verdict"]))
            done[repeat] = done.get(repeat, 0) + jobs
    return Limit(levels, float(whole["limit_ms"]), whole["verdict"], tuple(read))


@dataclass(frozen=True)
class Ratio:
    """The statement that a metric of two series has a certain ratio (contender / baseline).

    Attributes:
        baseline: factor levels of the baseline.
        contender: factor levels of the contender.
        column: column of the samples that contains the metric.
        part: "all" jobs, or the phase before or after a level change.
        outcome: verdict by METHOD 17.
        values: value of the baseline and of the contender; NaN if unknown.
        ratio: estimated ratio.
        low: lower end of its confidence interval.
        high: upper end of its confidence interval.
        more_is_faster: whether the metric is a rate.
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
        """Return whether both values and their ratio are plausible, and the outcome follows from the interval."""
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
        """Yield the subject (both series, column and part) and the outcome."""
        yield (self.baseline, self.contender, self.column, self.part), self.outcome


@dataclass(frozen=True)
class VolumeChoice:
    """The recommendation of one volume that meets a limit, or of all of them.

    Attributes:
        chosen: the recommended volume, which is the only one or has a lower latency than all others; otherwise all
            volumes that meet the limit.
        others: outcomes on the volumes that do not meet the limit.
        kept: outcomes on the volumes that meet the limit.
        ratios: comparisons between the volumes that meet the limit.
    """

    chosen: tuple[Limit, ...]
    others: tuple[Limit, ...]
    kept: tuple[Limit, ...]
    ratios: tuple[Ratio, ...]

    def is_supported_by(self, jobs: Jobs) -> bool:
        """Return whether the jobs support all outcomes and comparisons, and these support the recommendation."""
        if not all(one.is_supported_by(jobs) for one in (*self.kept, *self.others, *self.ratios)):
            return False
        if any(one.outcome != MEETS for one in self.kept) or any(one.outcome == MEETS for one in self.others):
            return False
        stores = {_get_store(one.levels) for one in self.kept}
        beats_all = {own for own in stores if stores - {own} and stores - {own} <= self._find_beaten(own)}
        # A recommendation of all volumes requires that no volume has a lower latency than all others.
        if len(self.chosen) == len(self.kept):
            return not beats_all
        return {_get_store(one.levels) for one in self.chosen} == beats_all

    def _find_beaten(self, own: str) -> set[str]:
        """Return the volumes that comparisons found to have a higher latency than the volume `own`."""
        return {
            _get_store(one.baseline if _get_store(one.contender) == own else one.contender)
            for one in self.ratios
            if (one.outcome, own) in ((LESS, _get_store(one.contender)), (MORE, _get_store(one.baseline)))
        }

    @property
    def claims(self) -> Iterator[tuple[Any, Any]]:
        """Yield the subject and outcome of each statement on limits and ratios that the recommendation is based on."""
        for one in (*self.kept, *self.others, *self.ratios):
            yield from one.claims


def _get_store(levels: Levels) -> str:
    return dict(levels)["store"]


def _is_within(value: float, values: Sequence[float] | np.ndarray) -> bool:
    """Return whether a value is between the minimum and maximum of `values`, with a tolerance of one fio bucket."""
    wide = 1 + _BUCKET + _CLOSE
    return bool(np.min(values) / wide <= value <= np.max(values) * wide)
