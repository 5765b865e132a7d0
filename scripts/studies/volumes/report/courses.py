"""What became of a limit along a series: met or missed, for how long, and what the latency did where that changed."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scripts.report import names, prose
from scripts.report.markup import bold
from scripts.studies.volumes.report import REPORT, phrases
from scripts.studies.volumes.report.batteries import Results
from scripts.studies.volumes.series import FACTORS

Stretch = tuple[dict, ...]
# Series up to which each volume has sentences of its own; of more, those that came out alike share one.
FEW = 8


@dataclass(frozen=True)
class Course:
    """One series and limit: the row of the whole, and its segments in time order, those of one verdict together."""

    whole: dict
    stretches: tuple[Stretch, ...]

    @property
    def shape(self) -> tuple[str, ...]:
        """The verdicts, the whole's first: courses of one shape are told in one sentence."""
        return (self.whole["verdict"], *(stretch[0]["verdict"] for stretch in self.stretches))

    @property
    def deciding(self) -> dict:
        """The segment that decided: the slowest of those with the verdict of the whole, which stands for none."""
        return _slowest(
            [row for stretch in self.stretches for row in stretch if row["verdict"] == self.shape[0]] or [self.whole]
        )

    @property
    def outcome(self) -> str:
        """The verdict; `not judged` where it is open for another reason than that the limit lies in the interval."""
        low, high = self.deciding["low_ms"], self.deciding["high_ms"]
        apart = self.shape[0] == "undecided" and not low < self.whole["limit_ms"] <= high
        return "not judged" if apart else self.shape[0]

    @property
    def kept_jobs(self) -> int:
        """How many jobs met the limit before one segment did not."""
        first = self.stretches[0]
        return sum(row["jobs"] for row in first) if first[0]["verdict"] == "meets" else 0


def courses(run: Results) -> list[Course]:
    """Return what became of each limit, in the order of the series, then of the limits."""
    every = []
    for _, table in run.limits.groupby([*FACTORS, "limit"], sort=False) if len(run.limits) else ():
        rows = table.to_dict("records")
        whole = next((row for row in rows if row["segment"] == "all"), rows[0])
        segments = sorted((row for row in rows if row["segment"] != "all"), key=lambda row: int(row["segment"]))
        stretches = itertools.groupby(segments or [whole], key=lambda row: row["verdict"])
        every.append(Course(whole, tuple(tuple(stretch) for _, stretch in stretches)))
    return every


def alike(run: Results) -> list[list[Course]]:
    """Return the courses that are told in one sentence each.

    Hosts of a volume on which it came out alike stand together; where there are many series, volumes do too.
    """
    every = courses(run)
    many = len({tuple(course.whole[name] for name in FACTORS) for course in every}) > FEW
    groups: dict[tuple, list[Course]] = {}
    for course in every:
        place = tuple(course.whole[name] for name in ("job", "background", "limit"))
        groups.setdefault(("" if many else course.whole["store"], place, course.shape), []).append(course)
    return list(groups.values())


def sentence(group: Sequence[Course], run: Results) -> str:
    """Return what became of a limit, for courses of one shape."""
    whole, wholes = group[0].whole, [course.whole for course in group]
    what = f"{REPORT.metric(whole['metric']).title} of {phrases.operation(wholes, run)}"
    first, *later = zip(*(course.stretches for course in group), strict=True)
    verb = bold(first[0][0]["verdict"])
    if first[0][0]["verdict"] == "undecided":
        text = f"it is {verb} whether {what} meets {phrases.limit(whole)}"
    else:
        text = f"{what} {verb} {phrases.limit(whole)}"
    text += _extent(group, bool(later), run)
    value = _values([_slowest(stretch) for stretch in first])
    clauses = [text + (f": {value}" if value else ""), *(_change([one[0] for one in stretches]) for stretches in later)]
    over = [sum(row["jobs_over"] for row in stretch) for stretch in first]
    if any(over) and not later:
        clauses.append(f"{_counted(over)} over it by {'itself' if max(over) == 1 else 'themselves'}")
    rows = [row for course in group for stretch in course.stretches for row in stretch]
    reasons = dict.fromkeys(row["reason"] for row in rows if row["verdict"] == "undecided" and row["reason"])
    return f"{'; '.join([*clauses, *(reasons if whole['verdict'] == 'undecided' else ())])}."


def _slowest(rows: Sequence[dict]) -> dict:
    return max(rows, key=lambda row: row["value_ms"] if pd.notna(row["value_ms"]) else -1)


def _extent(group: Sequence[Course], first: bool, run: Results) -> str:
    """Over how many jobs in what time, of the first stretch or of all; times that were derived are called so."""
    levels = [{name: course.whole[name] for name in FACTORS} for course in group]
    measured = [trace.seconds for trace in run.traces if trace.levels in levels]
    if first:
        jobs = [sum(row["jobs"] for row in course.stretches[0]) for course in group]
        seconds = [course.whole["kept_s"] for course in group if course.kept_jobs]
    else:
        jobs, seconds = [course.whole["jobs"] for course in group], measured
    finite = [one for one in seconds if np.isfinite(one)]
    about = "" if np.isfinite(measured).all() else "about "
    time = f" ({about}{prose.span(finite, phrases.duration)})" if finite else ""
    return f" in {'the first' if first else 'all'} {_counted(jobs)}{time}" if any(jobs) else ""


def _change(heads: Sequence[dict]) -> str:
    """How a later stretch begins: "then misses it from job 33 (g3) on: p99 was 7.7× as high [7.5, 7.9], 18.5 ms"."""
    verdict = heads[0]["verdict"]
    again = {"meets": " it again", "misses": " it"}
    verb = f"{'' if verdict in again else 'is '}{bold(verdict)}{again.get(verdict, '')}"
    jobs = list(dict.fromkeys(filter(None, (phrases.job(row["first_number"], row["first_job"]) for row in heads))))
    at = f" from {' or '.join(jobs if len(jobs) < 3 else [jobs[0], f'as late as {jobs[-1]}'])} on" if jobs else ""
    jumps = [row["jump"] for row in heads if pd.notna(row["jump"])]
    said = []
    if jumps and (min(jumps) > 1) == (max(jumps) > 1):
        ends = min(row["jump_low"] for row in heads), max(row["jump_high"] for row in heads)
        rise = names.effect(jumps, *ends, is_time=False)
        said.append(f"{REPORT.metric(heads[0]['metric']).title} {rise.text} {rise.interval}")
    said += filter(None, [_values(heads)])
    return f"then {verb}{at}" + (f": {', '.join(said)}" if said else "")


def _values(rows: Sequence[dict]) -> str:
    """A latency with its interval, or the span of several; "" where no percentile could be given."""
    rows = [row for row in rows if pd.notna(row["value_ms"])]
    if len(rows) > 1:
        return f"{prose.span((row['value_ms'] for row in rows), prose.number)} ms"
    return phrases.latency(rows[0]) if rows else ""


def _counted(jobs: Sequence[int]) -> str:
    many = prose.span(jobs, "{:.0f}".format)
    return f"{many} job{'' if many == '1' else 's'}"
