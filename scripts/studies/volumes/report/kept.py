"""Limits in words: kept or missed, for how long, and what the latency did where that changed."""

import itertools
import math
from dataclasses import dataclass

import pandas as pd

from scripts.report import prose
from scripts.report.markup import bold
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Levels, Results
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
    def series(self) -> Levels:
        """Whose course it is."""
        return Levels(*(self.whole[factor] for factor in FACTORS))

    @property
    def shape(self) -> tuple[str, ...]:
        """The verdicts, the whole's first: courses of one shape are told in one sentence."""
        return (self.whole["verdict"], *(stretch[0]["verdict"] for stretch in self.stretches))


def courses(results: Results) -> list[list[Course]]:
    """Return the courses that are told in one sentence each, in the order of the series, then of the limits.

    Hosts of a volume on which it came out alike stand together; where there are many series, volumes do too.
    """
    by_course: dict[tuple, list[dict]] = {}
    for row in results.verdicts.to_dict("records"):
        by_course.setdefault((*(row[factor] for factor in FACTORS), row["limit"]), []).append(row)
    every = [_course(rows) for rows in by_course.values()]
    many = len({course.series for course in every}) > FEW
    by_shape: dict[tuple, list[Course]] = {}
    for course in every:
        store, job, background, _ = course.series.key
        place = ("" if many else store, job, background)
        by_shape.setdefault((*place, course.whole["limit"], course.shape), []).append(course)
    return list(by_shape.values())


def sentence(alike: list[Course], results: Results) -> str:
    """Return what became of a limit, for courses of one shape."""
    whole = alike[0].whole
    what = words.metric_of(whole["metric"], words.operation(whole["operation"], alike[0].series, results))
    limit, verdict = words.limit(whole), whole["verdict"]
    why = f"; {_why(alike)}" if verdict == "undecided" else ""
    firsts = [course.stretches[0] for course in alike]
    if len(alike[0].stretches) > 1:
        clauses = [_first(what, limit, alike, results)]
        later = zip(*(course.stretches[1:] for course in alike), strict=True)
        clauses += [_next(list(stretches), results) for stretches in later]
        return f"{', then '.join(clauses)}{why}."
    if verdict == "undecided":
        return f"{bold(verdict)} whether {what} keeps {limit}{_value(firsts)}{why}."
    since = "" if verdict == "meets" else " from the first job on"
    return f"{what} {bold(verdict)} {limit}{since}{_value(firsts)}, {_extent(alike, results)}{_over(firsts)}."


def _course(rows: list[dict]) -> Course:
    whole = next((row for row in rows if row["segment"] == "all"), rows[0])
    segments = sorted((row for row in rows if row["segment"] != "all"), key=lambda row: int(row["segment"]))
    groups = itertools.groupby(segments or [whole], key=lambda row: row["verdict"])
    return Course(whole, tuple(tuple(group) for _, group in groups))


def _first(what: str, limit: str, alike: list[Course], results: Results) -> str:
    stretches = [course.stretches[0] for course in alike]
    verdict = stretches[0][0]["verdict"]
    verb = bold(verdict) if verdict in ("meets", "misses") else "cannot be said to keep"
    count = _jobs(stretches)
    kept = [course.whole["kept_s"] for course in alike if pd.notna(course.whole["kept_s"])]
    if verdict != "meets" or not kept:
        value = _value(stretches, " (")
        return f"{what} {verb} {limit} in the first {count}{value and f'{value})'}"
    time = prose.span(kept, words.duration)
    if _timed(alike, results):
        return f"{what} {verb} {limit} for the first {time} ({count}{_value(stretches)})"
    about = f"about {time} by their latencies and pauses"
    return f"{what} {verb} {limit} for the first {count} ({about}{_value(stretches, '; ')})"


def _next(stretches: list[Stretch], results: Results) -> str:
    """A later stretch: "misses it: p99 rose 7.7-fold at job g3 (the 33rd), to 18.5 ms"."""
    heads = [stretch[0] for stretch in stretches]
    verdict = heads[0]["verdict"]
    again = {"meets": " it again", "misses": " it"}
    verb = f"{bold(verdict)}{again[verdict]}" if verdict in again else f"it is {bold('undecided')}"
    segments = [_segment(head, results) for head in heads]
    jumps = [jump for segment in segments if math.isfinite(jump := segment.get("jump", math.nan))]
    jobs = list(
        dict.fromkeys(
            words.job(head["first_job"], segment.get("first_number"))
            for head, segment in zip(heads, segments, strict=True)
        )
    )
    at = jobs[0] if len(jobs) == 1 else f"jobs from {jobs[0].removeprefix('job ')} to {jobs[-1].removeprefix('job ')}"
    value = _value(stretches, "")
    if not jumps:
        return f"{verb} from {at} on{value and f' ({value})'}"
    rose = "rose" if jumps[0] >= 1 else "fell"
    size = prose.span([max(jump, 1 / jump) for jump in jumps], words.fold)
    ends = (segments[0]["jump_low"], segments[0]["jump_high"]) if len(heads) == 1 else (math.nan, math.nan)
    if jumps[0] < 1:
        # The fold is the reciprocal, and so are the ends of its interval.
        ends = 1 / ends[1], 1 / ends[0]
    bounds = words.interval(*ends, "{:.1f}".format)
    return f"{verb}: {heads[0]['metric']} {rose} {size}{bounds} at {at}{value and f', to {value}'}"


def _deciding(stretch: Stretch) -> dict:
    """The segment that says most of the verdict: the slowest that meets the limit, the fastest that misses it."""
    measured = [row for row in stretch if pd.notna(row["value_ms"])] or list(stretch[:1])
    choose = min if stretch[0]["verdict"] == "misses" else max
    return choose(measured, key=lambda row: row["value_ms"])


def _value(stretches: list[Stretch], before: str = ": ") -> str:
    """After `before`, "2.41 ms [2.40, 2.42]", or the span of several; nothing where no percentile could be given."""
    rows = [row for row in map(_deciding, stretches) if pd.notna(row["value_ms"])]
    if not rows:
        return ""
    if len(rows) > 1:
        return f"{before}{prose.span([row['value_ms'] for row in rows], prose.number)} ms"
    return f"{before}{words.ms(rows[0]['value_ms'])}{words.interval(rows[0]['low_ms'], rows[0]['high_ms'])}"


def _why(alike: list[Course]) -> str:
    """Why a limit is undecided: what the segments say that are, else what the whole says."""
    rows = [row for course in alike for stretch in course.stretches for row in stretch]
    reasons = dict.fromkeys(row["reason"] for row in rows if row["verdict"] == "undecided" and row["reason"])
    return prose.listing(reasons) if reasons else "no reason is known"


def _jobs(stretches: list[Stretch]) -> str:
    many = prose.span([sum(row["jobs"] for row in stretch) for stretch in stretches], "{:.0f}".format)
    return "1 job" if many == "1" else f"{many} jobs"


def _extent(alike: list[Course], results: Results) -> str:
    """How many jobs in what time: "50 jobs in 1 h 22 min"."""
    count = _jobs([(course.whole,) for course in alike])
    keys = {course.series.key for course in alike}
    ends = [
        60 * rows["minutes"].max() + float(rows.get("runtime_s", pd.Series([0.0])).iloc[-1])
        for series, rows in results.traces
        if series.key in keys and rows["minutes"].notna().all()
    ]
    return f"{count} in {prose.span(ends, words.duration)}" if ends else count


def _over(stretches: list[Stretch]) -> str:
    over = [sum(row["jobs_over"] for row in stretch) for stretch in stretches]
    if not any(over):
        return ""
    many = prose.span(over, "{:.0f}".format)
    return f"; {many} of {_jobs(stretches)} by {'itself is' if many == '1' else 'themselves are'} over it"


def _timed(alike: list[Course], results: Results) -> bool:
    """Whether the jobs' times were measured, not derived."""
    keys = {course.series.key for course in alike}
    return all(rows["minutes"].notna().all() for series, rows in results.traces if series.key in keys)


def _segment(head: dict, results: Results) -> dict:
    rows = results.of("segments", Levels(*(head[factor] for factor in FACTORS)))
    rows = rows[rows["segment"] == head["segment"]] if len(rows) else rows
    return rows.iloc[0].to_dict() if len(rows) else {}
