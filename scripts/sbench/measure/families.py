"""Judge a family of comparisons with a joint error rate, from the paired records in each block (METHOD 6, 7, 17).

The two cells of a comparison are its arms: the baseline and the contender.
"""

import json
import math
from collections.abc import Iterable, Iterator
from functools import cached_property, partial

import numpy as np
import pandas as pd

from sbench.design import fingerprint
from sbench.design.study import REBUILT
from sbench.measure.tables import PLACES
from sbench.verdicts import HARNESS, MIN_BLOCKS, stats
from sbench.verdicts.looks import GIVEN_UP, Schedule, State, judge_looks, plan_schedule
from sbench.verdicts.outcomes import ORDERED, Outcome
from sbench.verdicts.stats import Flags, Floats

# Columns that must be equal in both arms of a block, with the note to write if they differ.
OTHER_CODE = "the measuring code differs"
NOT_USED = "not used"
_SAME = {
    "code": OTHER_CODE,
    "data": "the data differ",
    "logical_bytes": "the amount of data differs",
    "packages": "the Python packages differ",
    "verified": "the place of checksums, inside or outside the timed pass, differs",
}
LOST = "records were lost, which may be the slow ones"
OTHER_SOFTWARE = "the software differs"
# The maximum number of software differences to list; further differences are only counted.
_NAMED = 3
# Columns that define a block (METHOD 2). If the two arms differ in any of them, the comparison excludes the block.
_TOGETHER = {
    "session": "in different sessions",
    "node": "on different nodes",
    "machine": "on different machines",
    "device": "on different devices or mounts",
    "time": "too far apart in time",
}
# The arms of a block are too far apart in time if their starts differ by more than `FAR_S` seconds and by more than
# `FAR_TIMES` times the total duration of the block's jobs. This can happen if cluster jobs wait in the queue.
FAR_S, FAR_TIMES = 3600, 2
# Columns that are used even if the measurement was stopped by its time limit.
_OF_TIMED_OUT = ("seconds total", "session", "timed_out")
# An arm is slow in a block if its ratio to the other arm exceeds this multiple of the median ratio.
SLOW = 1.5
_ORDINALS = {2: "2nd", 3: "3rd"}
JUDGEMENT = (
    *("blocks", "baseline_s", "contender_s", "ratio", "ratio_low", "ratio_high", "p", "looks", "verdict"),
    *("detectable_ratio", "mean_ratio", "mean_low", "mean_high", "slow_baseline", "slow_contender", "slow_ratio"),
    *("attempts_baseline", "failed_baseline", "attempts_contender", "failed_contender", "note", "used_blocks"),
    "harness_percent",
)
# Additional columns of verdicts.csv in runs that measure until they can decide.
LOOKED = ("look", "most_repeats", "decision")
Pair = tuple[dict, dict]


class Blocks:
    """Arrays (block, cell) of the columns in the table of runs, created on demand and cached.

    Attributes:
        blocks: the sorted block numbers.
        seconds: the total duration of the jobs of each block.
        schedule: the looks at the runs; None if the number of repeats is fixed.
    """

    def __init__(self, runs: pd.DataFrame) -> None:
        """Index the rows of `runs` by block and cell."""
        self._runs = runs
        self._arrays: dict[str, np.ndarray] = {}
        self.blocks, self._block_of = np.unique(runs["repeat"], return_inverse=True)
        self._cell_of, cells = pd.factorize(runs["cell"])
        self._places = {cell: place for place, cell in enumerate(cells)}
        steps = runs["step_seconds"] if "step_seconds" in runs else pd.Series(0.0, runs.index)
        self.seconds = steps.groupby(self._block_of).sum().to_numpy(dtype=float)
        self.schedule = self._read_schedule()

    def _read_schedule(self) -> Schedule | None:
        """Build the schedule of looks, one after each round; return None if no record contains its round.

        Blocks without a round come from a call with a fixed number of repeats. Before the first round they belong to
        it; after it, the blocks of a session are a separate round, whose maximum is its last block.
        """
        if "round" not in self._runs or self._runs["round"].isna().all():
            return None
        columns = ["round", "most_repeats", "session", "counts"]
        of_block = self._runs.reindex(columns=columns).groupby(self._block_of)
        rounds, mosts = (of_block[name].max().astype(float) for name in columns[:2])
        # Failed records do not contain their round. A block without any other belongs to the round before it.
        counts = of_block["counts"].any()
        fixed = (rounds.isna() & rounds.ffill().notna() & counts).to_numpy()
        largest = pd.Series(np.where(fixed, np.arange(len(mosts)) + 1.0, mosts)).cummax().ffill().bfill()
        named = pd.Series(np.where(fixed, of_block["session"].first().astype(str), rounds.bfill().astype(str)))
        names = named.where(counts).ffill().bfill().to_numpy()
        last = np.flatnonzero(np.append(names[1:] != names[:-1], True))
        return plan_schedule([int(place) + 1 for place in last], [int(largest[place]) for place in last])

    def get_column(self, column: str, cells: Iterable[str]) -> np.ndarray:
        """Return a column as an array (block, cell), with missing values where no usable record exists.

        The column `status` includes unusable records, and the columns in `_OF_TIMED_OUT` include timed-out records.
        """
        if column not in self._arrays:
            which = "attempted" if column == "status" else "counts" if column in _OF_TIMED_OUT else "ok"
            rows = self._runs[which].to_numpy(dtype=bool)
            values = self._runs[column].to_numpy()[rows] if column in self._runs else np.nan
            # The last column is for cells without any record.
            shape, kind = (len(self.blocks), len(self._places) + 1), np.asarray(values).dtype.kind
            array = np.full(shape, np.nan, dtype=float if kind == "f" else object)
            array[self._block_of[rows], self._cell_of[rows]] = values
            self._arrays[column] = array
        return self._arrays[column][:, [self._places.get(cell, -1) for cell in cells]]


class Family:
    """A group of comparisons that are judged together, with a joint error rate.

    Attributes:
        differences: metric -> array (block, comparison) of log ratios, called d in `stats`, for each judged metric.
    """

    def __init__(
        self, by_block: Blocks, pairs: list[Pair], equivalence_percent: float, seed: int, resolve_percent: float = 10
    ) -> None:
        """Store the compared pairs of cells and the settings.

        Args:
            by_block: the runs.
            pairs: the (baseline, contender) rows of the matrix.
            equivalence_percent: arms that differ by at most this percentage are the `same`.
            seed: seed of the resampling.
            resolve_percent: the difference to resolve. A comparison that would need too many blocks for it is given up.
        """
        self._by_block, self._pairs, self._percent, self._seed = by_block, pairs, equivalence_percent, seed
        self._resolve_percent = resolve_percent
        self._blocks, self._schedule = by_block.blocks, by_block.schedule
        # The number of blocks at the first look. Their harness times also determine how later blocks are judged.
        self._first = self._schedule.ends[0] if self._schedule else len(self._blocks)
        self._columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.differences: dict[str, Floats] = {}

    def judge_metric(self, name: str, beside: Floats | None = None) -> list[tuple[dict, list[State]]]:
        """Judge all comparisons on a metric.

        Args:
            name: the metric.
            beside: log ratios (block, comparison) of other comparisons to include in the family.

        Returns:
            For each comparison, its values of the columns `JUDGEMENT` (and `LOOKED`), and its state at each look. The
            list of states is empty if the number of repeats is fixed.
        """
        base, other = (table.astype(float) for table in self._get_arms(f"seconds {name}"))
        complete = (base > 0) & (base < math.inf) & (other > 0) & (other < math.inf)
        # If both arms hit the time limit, it is unknown which one is faster.
        complete &= ~np.logical_and(*map(is_true, self._get_arms("timed_out")))
        used = complete & ~self._any_mismatch
        base, other = (np.where(used, table, math.nan) for table in (base, other))
        harness = self._harness_shares if name == "total" else np.zeros(len(self._pairs))
        d = np.where(harness > HARNESS, self._compute_beyond_harness(base, other), np.log(other) - np.log(base))
        d = np.where([not text for text in self._difference_notes], d, math.nan)
        estimate_mean = partial(self._estimate_mean, base, other)
        if self._schedule:
            settings = (self._percent, self._resolve_percent, estimate_mean, self._count_losses, beside, self._seed)
            states = judge_looks(d, self._schedule, *settings)
            verdicts = [of_pair[-1].verdict for of_pair in states]
            ends = [self._schedule.ends[of_pair[-1].look - 1] for of_pair in states]
            levels = [self._schedule.levels[of_pair[-1].look - 1] for of_pair in states]
            places = [of_pair[-1].look for of_pair in states]
            counted = [len(self._schedule.ends)] * len(states)
        else:
            sessions = self._get_arms("session")[0]
            counted = [stats.count_looks(of_arm[rows]) for of_arm, rows in zip(sessions.T, used.T, strict=True)]
            means = [estimate_mean(len(d), number) for number in range(len(self._pairs))]
            verdicts = stats.judge_family(d, self._percent, self._seed, counted, means, beside)
            states, ends = [[] for _ in verdicts], [len(d)] * len(verdicts)
            levels, places = [stats.compute_level(number) for number in counted], counted
        # Ignore the blocks after the look at which a comparison ended.
        within = np.arange(len(d))[:, None] < np.array(ends, dtype=int)
        used, complete = used & within, complete & within
        base, other, d = (np.where(used, table, math.nan) for table in (base, other, d))
        self.differences[name] = d
        judgements = []
        for number, (verdict, share) in enumerate(zip(verdicts, harness, strict=True)):
            differing, is_bound = self._difference_notes[number], share > HARNESS
            if is_bound and not differing and verdict.verdict not in ORDERED:
                differing = f"the harness takes {share:.0f} % of an arm's time"
                verdict = stats.Verdict(Outcome.NOT_COMPARABLE, verdict.blocks, *[math.nan] * 5)
            attempts, *lost = self._count_losses(ends[number], number)
            outcome = stats.apply_losses(verdict.verdict, *lost)
            flattered = outcome != verdict.verdict
            split = self._any_mismatch[:, number] & within[:, number]
            never = not used[:, number].any() and split.any()
            # The nodes of cluster jobs vary by chance, so both arms may be on the same node in further blocks.
            by_chance = never and (self._mismatches["node"] | self._mismatches["time"])[split, number].all()
            mean = estimate_mean(ends[number], number)
            why = "" if never else _describe_verdict(verdict, levels[number], places[number], mean, self._percent)
            why = f"{LOST}: {lost[0]} of {attempts} in the baseline, {lost[1]} in the contender" if flattered else why
            given_up = [self._describe_given_up(states[number][-1])] if states[number] and not flattered else []
            notes = [
                *(differing or why, *given_up),
                *self._describe_dropped_blocks(number, complete[:, number], used[:, number], ends[number]),
            ]
            outcome = Outcome.NOT_COMPARABLE if differing or never > by_chance else outcome
            values = (
                *(int(used[:, number].sum()), *(stats.estimate_median(arm[:, number]).value for arm in (base, other))),
                *(verdict.ratio, verdict.low, verdict.high, verdict.p, counted[number]),
                *(outcome, verdict.detectable_ratio),
                *(
                    *mean[:3],
                    *_count_slow_blocks(d[:, number]),
                    *self._count_attempts(number, ends[number]),
                    "; ".join(filter(None, notes)),
                ),
                *(" ".join(map(str, self._blocks[used[:, number]])), share if is_bound else math.nan),
            )
            row = dict(zip(JUDGEMENT, values, strict=True))
            if self._schedule:
                last = states[number][-1]
                name = "" if outcome == Outcome.NOT_COMPARABLE else last.name
                row |= dict(zip(LOOKED, (last.look, self._schedule.most, name), strict=True))
            judgements.append((row, states[number]))
        return judgements

    def _estimate_mean(self, base: Floats, other: Floats, blocks: int, number: int) -> stats.Estimate:
        """Estimate the ratio of the mean times of comparison `number` over the first `blocks` blocks."""
        return stats.estimate_total_ratio(other[:blocks, number], base[:blocks, number], self._seed)

    def _describe_given_up(self, last: State) -> str:
        if last.name != GIVEN_UP:
            return ""
        return (
            f"given up after {last.verdict.blocks} blocks: ×{1 + self._resolve_percent / 100:.2f} would need about"
            f" {math.ceil(last.needed)}"
        )

    def find_differing(self, column: str) -> Flags:
        """Return, for each comparison, whether its arms have different values of a column in any block."""
        base, other = self._get_arms(column)
        differs: Flags = (pd.notna(base) & pd.notna(other) & (base != other)).any(axis=0)
        return differs

    def _describe_dropped_blocks(self, number: int, complete: Flags, used: Flags, end: int) -> Iterator[str]:
        """Describe the blocks that a comparison excludes, and those with an arm that hit the time limit.

        Consider only the first `end` blocks.
        """
        status, ended = ([table[:, number] for table in self._get_arms(column)] for column in ("status", "timed_out"))
        status = [np.where(np.arange(len(of_arm)) < end, of_arm, np.nan) for of_arm in status]
        both, either = pd.notna(status[0]) & pd.notna(status[1]), pd.notna(status[0]) | pd.notna(status[1])
        # Later rounds may measure only one of the arms, for another comparison.
        due = np.where(np.arange(len(both)) < self._first, either, both)
        gone = {"failed, invalid or missing in an arm": ~complete & due}
        for column, what in _TOGETHER.items():
            gone[f"measured {what}, {NOT_USED}"] = complete & self._mismatches[column][:, number]
        gone["ended by the time limit in an arm, with the limit as its time"] = used & (
            is_true(ended[0]) | is_true(ended[1])
        )
        for how, those in gone.items():
            if those.any():
                yield f"{_format_blocks(self._blocks[those])} {how}"

    def _count_losses(self, end: int, number: int) -> tuple[int, int, int]:
        """Count the blocks with attempts at both arms among the first `end`, and the unusable records in them.

        Returns:
            The number of blocks, and the numbers of unusable records of the baseline and the contender.
        """
        status, ok = ([table[:end, number] for table in self._get_arms(column)] for column in ("status", "ok"))
        both = pd.notna(status[0]) & pd.notna(status[1])
        lost = [int(np.sum(both & pd.isna(arm))) for arm in ok]
        return int(both.sum()), lost[0], lost[1]

    def _count_attempts(self, number: int, end: int) -> tuple[int, ...]:
        """Count the attempts and failures of the baseline, then those of the contender, in the first `end` blocks."""
        status = [table[:end, number] for table in self._get_arms("status")]
        status = [of_arm[pd.notna(of_arm)] for of_arm in status]
        return tuple(int(count) for of_arm in status for count in (len(of_arm), (of_arm != "done").sum()))

    @cached_property
    def _harness_shares(self) -> Floats:
        """Return, for each comparison, the percentage of an arm's total time that the harness takes; 0 if unknown.

        Of the two arms, use the one with the larger percentage.
        """
        arms = zip(self._get_arms("seconds null"), self._get_arms("seconds total"), strict=True)
        shares = [
            [
                stats.estimate_median(of_arm).value / stats.estimate_median(total).value
                for of_arm, total in zip(null[: self._first].T, totals[: self._first].T, strict=True)
            ]
            for null, totals in arms
        ]
        largest = 100 * np.max(shares, axis=0)
        return np.where(np.isfinite(largest), largest, 0.0)

    def _compute_beyond_harness(self, base: Floats, other: Floats) -> Floats:
        """Return ln(contender / baseline) after subtracting the harness time from the slower arm only.

        This is the smallest difference that is consistent with the harness time. It is NaN if it no longer shows which
        arm is faster.
        """
        null_base, null_other = (null.astype(float) for null in self._get_arms("seconds null"))
        with np.errstate(divide="ignore", invalid="ignore"):
            lowest, highest = np.log(other - null_other) - np.log(base), np.log(other) - np.log(base - null_base)
            usual = _compute_medians((np.log(other) - np.log(base))[: self._first])
        d = np.where(usual < 0, highest, lowest)
        return np.where(_compute_medians(d[: self._first]) * usual > 0, d, math.nan)

    def _get_arms(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a column of the runs as two matrices (block, comparison), for baselines and contenders; cache them."""
        if column not in self._columns:
            base, other = ([pair[arm]["cell"] for pair in self._pairs] for arm in (0, 1))
            self._columns[column] = self._by_block.get_column(column, base), self._by_block.get_column(column, other)
        return self._columns[column]

    @cached_property
    def _mismatches(self) -> dict[str, Flags]:
        """Find the blocks whose two arms were measured in different sessions or places, or too far apart in time.

        Returns:
            Column that differs -> flags (block, comparison).
        """
        apart = {}
        for column in ("session", *PLACES):
            base, other = self._get_arms(column)
            apart[column] = pd.notna(base) & pd.notna(other) & (base != other)
        # Arms with different numbers of nodes are comparable if one set of nodes contains the other.
        nested = self._find_nested()
        for column in ("node", "machine"):
            apart[column] &= ~nested
        # If the stores differ, the devices differ as well.
        stores = [base.get("store") == other.get("store") for base, other in self._pairs]
        apart["device"] &= np.array(stores, dtype=bool)
        apart["time"] = self._find_far_apart()
        # Report only the first cause for each excluded block.
        beyond = np.zeros_like(apart["session"])
        for column, those in apart.items():
            apart[column], beyond = those & ~beyond, beyond | those
        return apart

    def _find_nested(self) -> Flags:
        """Flag (block, comparison) where the nodes of one arm are a proper subset of the other arm's nodes.

        Only comparisons of arms with different numbers of nodes are considered.
        """
        base, other = self._get_arms("node")
        nested = np.zeros(base.shape, dtype=bool)
        for number in [n for n, (one, another) in enumerate(self._pairs) if one.get("nodes") != another.get("nodes")]:
            for block, nodes in enumerate(zip(base[:, number], other[:, number], strict=True)):
                one, another = (
                    set(str(json.loads(node)[0]).split(", ")) if pd.notna(node) else set() for node in nodes
                )
                nested[block, number] = one < another or another < one
        return nested

    def _find_far_apart(self) -> Flags:
        base, other = (table.astype(float) for table in self._get_arms("began_s"))
        with np.errstate(invalid="ignore"):
            far: Flags = np.abs(base - other) > np.maximum(FAR_S, FAR_TIMES * self._by_block.seconds[:, None])
        return far

    @cached_property
    def _any_mismatch(self) -> Flags:
        split: Flags = np.any(np.stack(list(self._mismatches.values())), axis=0)
        return split

    @cached_property
    def _difference_notes(self) -> list[str]:
        """Describe the differences in code, data or software between the arms of each comparison, in usable blocks.

        The text is an empty string if the arms do not differ.
        """
        notes: list[list[str]] = [[] for _ in self._pairs]
        fingerprints = self._get_arms("software")
        unseen = pd.isna(fingerprints[0]) | pd.isna(fingerprints[1])
        for column, what in _SAME.items():
            base, other = self._get_arms(column)
            differs = ~self._any_mismatch & pd.notna(base) & pd.notna(other) & (base != other)
            # If both arms have a fingerprint, it is compared below; it is more precise than the hash of the lock file.
            differs &= unseen if column == "packages" else True
            for number in np.flatnonzero(differs.any(axis=0)).tolist():
                notes[number].append(f"{what} between the arms in {_format_blocks(self._blocks[differs[:, number]])}")
        differs = ~self._any_mismatch & ~unseen & (fingerprints[0] != fingerprints[1])
        for number in np.flatnonzero(differs.any(axis=0)).tolist():
            notes[number] += self._describe_other_software(number, differs[:, number])
        return ["; ".join(parts) for parts in notes]

    def _describe_other_software(self, number: int, differs: Flags) -> Iterator[str]:
        """Describe the unintended software differences between a comparison's arms, with the blocks."""
        libraries = ((arm.get(fingerprint.ENVIRONMENT), arm.get("control") == REBUILT) for arm in self._pairs[number])
        environments = len(set(libraries)) > 1
        by_words: dict[str, list[int]] = {}
        arms = (arm[differs, number] for arm in self._get_arms("software"))
        for block, *fingerprints in zip(self._blocks[differs], *arms, strict=True):
            named = fingerprint.describe_differences(*fingerprints, environments)
            more = (f"{len(named) - _NAMED} more",) if len(named) > _NAMED else ()
            by_words.setdefault(", ".join(named[:_NAMED] + more), []).append(block)
        by_words.pop("", None)
        for words, blocks in by_words.items():
            yield f"{OTHER_SOFTWARE} between the arms in {_format_blocks(blocks)}: {words}"


def _compute_medians(d: Floats) -> Floats:
    return np.array([stats.estimate_median(column).value for column in d.T])


def is_true(values: np.ndarray) -> Flags:
    """Return a boolean array that is True where `values` is True, and False where it is False or missing."""
    flags: Flags = np.equal(values, True).astype(bool)
    return flags


def _describe_verdict(
    verdict: stats.Verdict, level: float, look: int, mean: stats.Estimate, equivalence_percent: float
) -> str:
    if verdict.verdict == Outcome.TOO_FEW:
        return f"{verdict.blocks} complete blocks, a verdict needs {MIN_BLOCKS}"
    if verdict.verdict != Outcome.NO_EVIDENCE:
        return ""
    bound = 1 + equivalence_percent / 100
    if 1 / bound <= verdict.low and verdict.high <= bound:
        return f"the medians are the same, the means may not be: {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
    needed = f"{level:.2g}" + (f" at the {_ORDINALS.get(look, f'{look}th')} look" if look > 1 else "")
    if verdict.p <= level:
        return f"p <= {needed}, but the interval includes 1"
    excludes = verdict.low > 1 or verdict.high < 1
    return f"the interval excludes 1, but p > {needed}" if excludes else ""


def _count_slow_blocks(d: Floats) -> tuple[int, int, float]:
    """Count the blocks with an unusually slow baseline or contender, which medians do not show.

    Returns:
        The number of slow blocks of the baseline, that of the contender, and the median factor by which the ratio
        deviates from the median ratio in these blocks.
    """
    d = d[np.isfinite(d)]
    off = d - np.median(d) if len(d) else d
    slow = np.abs(off) > math.log(SLOW)
    ratio = float(np.exp(np.median(np.abs(off[slow])))) if slow.any() else math.nan
    return int((off[slow] < 0).sum()), int((off[slow] > 0).sum()), ratio


def _format_blocks(blocks: Iterable[int]) -> str:
    numbers = [str(block) for block in sorted(blocks)]
    return f"block{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
