"""Write the text of the report: headline, reasons, advice, findings (limits, credits, comparisons) and limitations.

The outcome of a limit over the course of a series (`Course`) states whether and for how long the series met the limit,
and its latency during that time.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sbench.pages import headline as headlines
from sbench.pages import names, pages, prose
from sbench.pages.findings import Finding
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, code
from sbench.pages.sentences import name_sides
from sbench.pages.statements import Outcomes, Statement
from sbench.studies.volumes.report import METHOD, NOT_APPLICABLE, REPORT, phrases, words
from sbench.studies.volumes.report.batteries import Results, select_rows
from sbench.studies.volumes.report.statements import Limit, VolumeChoice, build_limit
from sbench.studies.volumes.series import FACTORS
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import ORDERED, Outcome

Stretch = tuple[dict, ...]
# With more series than this, volumes with equal outcomes share a sentence.
FEW = 8
REASONS = 3
# Order of verdicts in the headline.
IN_ORDER = (Outcome.MEETS, Outcome.MISSES, Outcome.UNDECIDED, Outcome.NOT_JUDGED)
# Templates for verdicts that follow another verdict in a headline.
SECOND = {
    Outcome.MISSES: "but misses",
    Outcome.UNDECIDED: "but undecided",
    Outcome.NOT_JUDGED: "but not judged",
}
CREDITS = "burst credits"


@dataclass(frozen=True)
class Course:
    """Whether a series met a latency limit, and how this changed over time.

    Attributes:
        whole: row of verdicts for the entire series.
        stretches: rows of its segments in time order, grouped into runs of equal verdicts.
    """

    whole: dict
    stretches: tuple[Stretch, ...]

    @property
    def verdict(self) -> str:
        """Return the verdict on the entire series."""
        return self.whole["verdict"]

    @property
    def deciding_segment(self) -> dict:
        """Return the row of the series, or of its slowest segment with the same verdict, whose latency decides.

        The headline compares series that meet a limit, so their latency is of all jobs, unless missing histograms leave
        it unknown whether the latency of all jobs together is below the limit.
        """
        if self.verdict == Outcome.MEETS and self.whole["high_ms"] < self.whole["limit_ms"]:
            return self.whole
        alike = [row for stretch in self.stretches for row in stretch if row["verdict"] == self.verdict]
        return _find_slowest(alike or [self.whole])

    @property
    def outcome(self) -> str:
        """Return the verdict, or `not judged` if it is undecided for another reason than its confidence interval."""
        within = self.deciding_segment["low_ms"] < self.whole["limit_ms"] <= self.deciding_segment["high_ms"]
        return Outcome.NOT_JUDGED if self.verdict == Outcome.UNDECIDED and not within else self.verdict

    @property
    def statement(self) -> Limit:
        """Convert the outcome to a statement that can be verified."""
        levels = tuple((name, self.whole[name]) for name in FACTORS)
        return build_limit(levels, self.whole, [row for stretch in self.stretches for row in stretch])

    @property
    def kept_jobs(self) -> int:
        """Return the number of jobs before the first segment that does not meet the limit."""
        first = self.stretches[0]
        return sum(row["jobs"] for row in first) if first[0]["verdict"] == Outcome.MEETS else 0


def list_courses(run: Results) -> list[Course]:
    """Return the outcomes of all series for all limits, in the order of the table of limits."""
    every = []
    for _, table in run.limits.groupby([*FACTORS, "limit"], sort=False) if len(run.limits) else ():
        rows = table.to_dict("records")
        whole = next((row for row in rows if row["segment"] == "all"), rows[0])
        segments = sorted((row for row in rows if row["segment"] != "all"), key=lambda row: int(row["segment"]))
        stretches = itertools.groupby(segments or [whole], key=lambda row: row["verdict"])
        every.append(Course(whole, tuple(tuple(stretch) for _, stretch in stretches)))
    return every


def list_course_groups(run: Results) -> list[list[Course]]:
    """Group outcomes that are described together: equal ones on several hosts or, with many series, on any volumes."""
    every = list_courses(run)
    many = len({tuple(course.whole[name] for name in FACTORS) for course in every}) > FEW
    groups: dict[tuple, list[Course]] = {}
    for course in every:
        place = [course.whole[name] for name in ("job", "background", "limit", "verdict")]
        shape = *place, *(stretch[0]["verdict"] for stretch in course.stretches)
        groups.setdefault(("" if many else course.whole["store"], shape), []).append(course)
    return list(groups.values())


def describe_courses(group: Sequence[Course], run: Results) -> str:
    """Write a sentence on whether series with the same sequence of verdicts meet a limit."""
    whole, wholes = group[0].whole, [course.whole for course in group]
    metric = f"{REPORT.get_metric(whole['metric']).title} of {phrases.describe_operation(wholes, run)}"
    first, *later = zip(*(course.stretches for course in group), strict=True)
    verb = bold(first[0][0]["verdict"])
    if first[0][0]["verdict"] == Outcome.UNDECIDED:
        text = words.fill("limit undecided", undecided=verb, metric=metric, limit=phrases.format_limit(whole))
    else:
        text = words.fill("limit", metric=metric, verb=verb, limit=phrases.format_limit(whole))
    text += _describe_extent(group, bool(later), run)
    value = _format_values([_find_slowest(stretch) for stretch in first])
    parts = max(map(len, first))
    value += words.fill("slowest segment", segments=parts) if value and parts > 1 else ""
    clauses = [
        text + (f": {value}" if value else ""),
        *(_describe_change([one[0] for one in stretches]) for stretches in later),
    ]
    over = [sum(row["jobs_over"] for row in stretch) for stretch in first]
    if any(over) and not later:
        clauses.append(words.fill("over", jobs=_format_job_count(over)))
    rows = [row for course in group for stretch in course.stretches for row in stretch]
    reasons = dict.fromkeys(row["reason"] for row in rows if row["verdict"] == Outcome.UNDECIDED and row["reason"])
    return f"{'; '.join([*clauses, *(reasons if whole['verdict'] == 'undecided' else ())])}."


def _find_slowest(rows: Sequence[dict]) -> dict:
    return max(rows, key=lambda row: row["value_ms"] if pd.notna(row["value_ms"]) else -1)


def _describe_extent(group: Sequence[Course], first: bool, run: Results) -> str:
    """Describe the number of jobs and their duration. If `first`, count only jobs before the first change of verdict.

    "about" marks estimated durations.
    """
    levels = [{name: course.whole[name] for name in FACTORS} for course in group]
    measured = seconds = [trace.seconds for trace in run.traces if trace.levels in levels]
    jobs = [course.whole["jobs"] for course in group]
    if first:
        jobs = [sum(row["jobs"] for row in course.stretches[0]) for course in group]
        seconds = [course.whole["kept_s"] for course in group if course.kept_jobs]
    about = "" if np.isfinite(measured).all() else "about "
    time = f" ({about}{prose.format_span(seconds, phrases.format_duration)})" if np.isfinite(seconds).any() else ""
    if not any(jobs):
        return ""
    return words.fill("first jobs" if first else "all jobs", jobs=_format_job_count(jobs), time=time)


def _describe_change(heads: Sequence[dict]) -> str:
    """Describe a change of the verdict: "then misses it from job 33 (g3) on: p99 was 7.7× as high [7.5, 7.9], 18.5 ms".

    `heads` are the first segments with the new verdict, one per series.
    """
    verdict = heads[0]["verdict"]
    again = {Outcome.MEETS: " it again", Outcome.MISSES: " it"}
    verb = f"{'' if verdict in again else 'is '}{bold(verdict)}{again.get(verdict, '')}"
    # Each battery numbers its jobs from 1.
    named = [phrases.format_job(row["first_number"], row["first_job"]) for row in heads if row["first_number"] != 1]
    jobs = list(dict.fromkeys(filter(None, named)))
    late = jobs if len(jobs) < 3 else [jobs[0], words.fill("as late", job=jobs[-1])]
    is_later = any(row["first_number"] == 1 for row in heads)
    at = words.fill("from job", jobs=" or ".join(late)) if jobs else words.fill("later battery") if is_later else ""
    jumps = [row["jump"] for row in heads if pd.notna(row["jump"])]
    fields = []
    if jumps and (min(jumps) > 1) == (max(jumps) > 1):
        ends = min(row["jump_low"] for row in heads), max(row["jump_high"] for row in heads)
        rise = names.describe_effect(jumps, *ends, is_time=False)
        fields.append(f"{REPORT.get_metric(heads[0]['metric']).title} {rise.text} {rise.interval}")
    fields += filter(None, [_format_values(heads)])
    return words.fill("then", verb=verb, at=at) + (f": {', '.join(fields)}" if fields else "")


def _format_values(rows: Sequence[dict]) -> str:
    """Format one latency with its interval, or the range of several. Return an empty string if none is known."""
    values = [row["value_ms"] for row in rows if pd.notna(row["value_ms"])]
    return (
        f"{prose.format_span(values, prose.format_number)} ms"
        if len(values) > 1
        else "".join(map(phrases.format_latency, rows))
    )


def _format_job_count(jobs: Sequence[int]) -> str:
    many = prose.format_span(jobs, "{:.0f}".format)
    return f"{many} job{'' if many == '1' else 's'}"


def list_findings(run: Results) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Return three lists: decided findings (missed limits first), findings on other metrics, and undecided findings."""
    primary, secondary = pages.get_findings(run)
    # Comparisons with too few batteries are mentioned in the advice instead.
    compared = [one for one in primary if one.verdict != Outcome.TOO_FEW]
    limits = sorted(_list_limit_findings(run), key=lambda finding: finding.verdict == Outcome.MEETS)
    findings = [*limits, *_list_credit_findings(run), *compared]
    return [one for one in findings if one.is_decided], secondary, [one for one in findings if not one.is_decided]


def write_headline(run: Results) -> str:
    """Write the headline. It names the volumes that meet the first limit, or rates and latencies without limits."""
    return bold(pages.select_headline([_write_unchecked_headline(run)], run))


def _write_unchecked_headline(run: Results) -> Sentence:
    first = _select_first_limit(run)
    if run.measured.empty or not (first or "iops" in run.measured):
        return headlines.write_headline(run)
    if not first:
        return _describe_rates(run), ()
    limits, outcomes = tuple(course.statement for course in first), {course.outcome for course in first}
    texts = [_describe_counts(first, run)]
    if len(first) <= phrases.NAMED and len(outcomes) <= headlines.CLAUSES:
        texts = [_describe_outcomes(first, run, name_series) for name_series in (_list_values, _name_span)] + texts
    text = next(filter(_is_short, texts), texts[-1])
    if len(outcomes) == 1:
        compared, statements = _describe_largest_effect(run)
        if compared and _is_short(f"{text} {compared}"):
            return f"{text}; {compared}.", (*limits, *statements)
    return f"{text}.", limits


def _is_short(headline: str) -> bool:
    return len(headline.split()) <= headlines.LONGEST


def _describe_outcomes(
    courses: Sequence[Course], run: Results, name_series: Callable[[Sequence[Course], Results, bool], str]
) -> str:
    """Write a clause for each distinct outcome of a limit, in which `name_series` formats the names of the series."""
    text, outcomes = "", [one for one in IN_ORDER if any(course.outcome == one for course in courses)]
    for outcome in outcomes:
        series = name_series([course for course in courses if course.outcome == outcome], run, len(outcomes) == 1)
        text += words.fill(SECOND[outcome] if text else outcome, **_describe_limit(courses, run), series=series)
    return prose.capitalize_first(text)


def _describe_limit(courses: Sequence[Course], run: Results) -> dict[str, str]:
    """Format the limit and the metric to which it applies. All `courses` must be about the same limit."""
    wholes = [course.whole for course in courses]
    title = REPORT.get_metric(wholes[0]["metric"]).title
    metric = f"{title} of {phrases.describe_operation(wholes, run)}"
    return {"metric": metric, "limit": phrases.format_limit(wholes[0])}


def _list_values(courses: Sequence[Course], run: Results, is_only: bool) -> str:
    """List volumes with the latency of each series: "the disk: 0.28 ms alone and 0.47 ms with a second job on …"."""
    volumes: dict[str, list[Course]] = {}
    for course in courses:
        volumes.setdefault(phrases.format_place(course.whole["store"]), []).append(course)
    texts = []
    for volume, own in volumes.items():
        values = [(_format_value(course), phrases.describe_conditions(course.whole, run)) for course in own]
        times = [_format_kept_time(course) for course in own]
        details = [" ".join(filter(None, [*pair, time])) for pair, time in zip(values, times, strict=True)]
        if is_only and len(volumes) == 1 and all(details):
            return f"{volume}: {prose.format_list(details)}"
        if len(own) > 1:
            texts.append(f"{volume} ({', '.join(details)})")
        else:
            value, condition = values[0]
            inside = " ".join(filter(None, [value, times[0]]))
            texts.append(" ".join(filter(None, [volume, condition, inside and f"({inside})"])))
    return prose.format_list(texts)


def _name_span(courses: Sequence[Course], run: Results, is_only: bool) -> str:
    """List the names of series, followed by their range of latencies: "gp3x1 and gp3x2 (3.9–4.1 ms)"."""
    names = [
        " ".join(filter(None, [phrases.format_place(one.whole["store"]), phrases.describe_conditions(one.whole, run)]))
        for one in courses
    ]
    limit_ms, values = courses[0].whole["limit_ms"], [course.deciding_segment["value_ms"] for course in courses]
    inside = []
    if np.isfinite(values).all():
        inside.append(f"{prose.format_span(values, lambda value: phrases.format_near_limit(value, limit_ms))} ms")
    if times := [
        (course.whole["kept_s"], _format_kept_time(course)) for course in courses if _format_kept_time(course)
    ]:
        inside.append(words.fill("at the earliest", time=min(times)[1]))
    return prose.format_list(names) + (f" ({', '.join(inside)})" if inside else "")


def _format_value(course: Course) -> str:
    """Format the latency that decides a verdict, with enough digits to show on which side of the limit it is.

    If the verdict is undecided or the latency is known only within bounds, the interval is shown.
    """
    row = course.deciding_segment
    if course.outcome == Outcome.UNDECIDED or pd.isna(row["value_ms"]):
        return phrases.format_latency(row)
    parts = sum(map(len, course.stretches))
    is_part = course.verdict == Outcome.MEETS and row is not course.whole and parts > 1
    part = words.fill("slowest segment", segments=parts) if is_part else ""
    return f"{phrases.format_near_limit(row['value_ms'], course.whole['limit_ms'])} ms{part}"


def _format_kept_time(course: Course) -> str:
    """Format how long a series met a limit before it missed it: "after 58 min". Return "" for all other series."""
    time = phrases.format_duration(course.whole["kept_s"]) or prose.format_count(course.kept_jobs, "job")
    return f"after {time}" if course.verdict == Outcome.MISSES and course.kept_jobs else ""


def _describe_largest_effect(run: Results) -> tuple[str, tuple[Statement, ...]]:
    """Write a clause on the largest decided difference in the factor that the configuration compares.

    Returns:
        The clause, and the statements to verify it; both are empty without a decided difference.
    """
    rows = run.get_comparisons()
    rows = rows[(rows["factor"] == headlines.list_asked_factors(run)[0]) & rows["verdict"].isin(ORDERED)]
    if rows.empty:
        return "", ()
    largest = rows.loc[[np.log(rows["ratio"].astype(float)).abs().idxmax()]]
    effect, (new, old) = headlines.get_effect(largest, run), name_sides(largest.iloc[0], run)
    return f"{new} {effect.text} {effect.than} {old}", (Outcomes(run.to_comparisons(largest)),)


def _describe_counts(courses: Sequence[Course], run: Results) -> str:
    """Write a sentence on how many series meet a limit, and on the slowest series that misses it."""
    counts = {verdict: [course for course in courses if course.outcome == verdict] for verdict in IN_ORDER}
    slowest = max(
        counts[Outcome.MISSES], key=lambda course: np.nan_to_num(course.deciding_segment["value_ms"]), default=None
    )
    many = {verdict: len(own) for verdict, own in counts.items()}
    kept = "kept by" if len({course.whole["store"] for course in courses}) == len(courses) else "kept by series"
    values = [course.deciding_segment["value_ms"] for course in counts[Outcome.MEETS]]
    limit_ms = courses[0].whole["limit_ms"]
    is_known = len(values) > 0 and bool(np.isfinite(values).all())
    most = words.fill("highest", value=phrases.format_near_limit(max(values), limit_ms)) if is_known else ""
    given = {"many": many[Outcome.MEETS], "of": len(courses), "most": most}
    text = words.fill(kept, **_describe_limit(courses, run), **given)
    others = []
    if slowest:
        value = " ".join(filter(None, [_format_value(slowest), _format_kept_time(slowest)]))
        named = ", ".join(filter(None, [phrases.format_label(slowest.whole, run), value]))
        others.append(words.fill("missed by", many=many[Outcome.MISSES], slowest=named))
    others += [words.fill("open", many=many[Outcome.UNDECIDED])] if many[Outcome.UNDECIDED] else []
    others += [words.fill("unjudged", many=many[Outcome.NOT_JUDGED])] if many[Outcome.NOT_JUDGED] else []
    return text + (words.fill("others", others=", ".join(others)) if others else "")


def _describe_rates(run: Results) -> str:
    """Write a sentence with the rate and p99 of each series. If there are many, name only the fastest and slowest."""
    rows = run.measured.sort_values("iops", ascending=False)
    many = len(rows) > REASONS
    rows = rows.iloc[[0, -1]] if many else rows
    operation = phrases.describe_operation(rows.to_dict("records"), run)
    each = [
        words.fill(
            "reached", iops=row["iops"], series=phrases.format_label(row, run), p99=prose.format_number(row["p99_ms"])
        )
        for row in rows.to_dict("records")
    ]
    of = words.fill("of series", many=len(run.measured), operation=operation) if many else operation
    return words.fill("no limit", of=prose.capitalize_first(of), each=(" to " if many else ", ").join(each))


def list_reasons(run: Results) -> list[str]:
    """List explanations of the results by the model of burst credits."""
    return [f"{prose.capitalize_first(one.where)}: {one.text}" for one in _list_credit_findings(run)][:REASONS]


def list_advice(run: Results) -> list[str]:
    """List advice: a volume to use, volumes whose baseline IOPS are too low, and how to settle undecided verdicts."""
    first, lines = _select_first_limit(run), []
    kept = [course for course in first if course.verdict == Outcome.MEETS]
    # Recommend a volume only if there is a choice of volumes; users cannot choose the load next to the application.
    if kept and len({(course.whole["store"], course.whole["host"]) for course in first}) > 1:
        lines += run.select_sentences([_choose_volume(kept, first, run)])
    lines += _describe_larger_volumes(run)
    here = any(battery.get("position") is not None for battery in run.facts.get("batteries") or [])
    if between := [phrases.format_label(course.whole, run) for course in first if course.outcome == Outcome.UNDECIDED]:
        more = "more jobs here" if here else "more jobs elsewhere"
        lines.append(words.fill(more, jobs=code("jobs"), json=code("json+"), series=phrases.join_names(between)))
    again: dict[str, list[str]] = {}
    for course in first:
        if course.outcome == Outcome.NOT_JUDGED:
            reason = course.deciding_segment["reason"]
            # The table states the length of each battery.
            kind = words.fill("too short") if "too short to meet a limit" in reason else reason
            again.setdefault(kind, []).append((phrases.format_label(course.whole, run), reason))
    for kind, alike in again.items():
        why = alike[0][1] if len(alike) == 1 else kind
        lines.append(words.fill("again", series=phrases.join_names([name for name, _ in alike]), why=why))
    # Consider only the primary metric, as other metrics may be missing.
    if (run.get_comparisons()["verdict"] == Outcome.TOO_FEW).any():
        lines.append(words.fill("more batteries", batteries=code("batteries"), needed=MIN_BLOCKS))
    return lines


def _choose_volume(kept: Sequence[Course], every: Sequence[Course], run: Results) -> Sentence:
    """Recommend the volume with the lowest latency that meets the limit, or any if comparisons do not decide this."""
    best = min(kept, key=lambda course: course.deciding_segment["value_ms"])
    own, rows = best.whole["store"], run.get_comparisons()
    rows = rows[rows["factor"] == "store"]
    as_contender = rows[(rows["contender"] == own) & (rows["verdict"] == Outcome.FASTER)]
    as_baseline = rows[(rows["baseline"] == own) & (rows["verdict"] == Outcome.SLOWER)]
    beaten = {*as_contender["baseline"], *as_baseline["contender"]}
    every_kept = {course.whole["store"] for course in kept}
    stores, between = every_kept - {own}, rows[rows["baseline"].isin(every_kept) & rows["contender"].isin(every_kept)]
    limit, value = (
        phrases.format_limit(best.whole),
        f"{best.whole['metric']} {phrases.format_latency(best.deciding_segment)}",
    )
    kept_limits = tuple(course.statement for course in kept)
    others = tuple(course.statement for course in every if course.verdict != Outcome.MEETS)
    alone = VolumeChoice((best.statement,), others, kept_limits, run.to_comparisons(between))
    fields = {"series": bold(phrases.format_label(best.whole, run)), "value": value, "limit": limit}
    if len(kept) == 1:
        return words.fill("use only", **fields), (alone,)
    if stores and stores <= beaten:
        return words.fill("use lowest", **fields), (alone,)
    named = phrases.join_names([phrases.format_label(course.whole, run) for course in kept])
    return words.fill("use any", series=named, limit=limit), (replace(alone, chosen=kept_limits),)


def list_limitations(run: Results) -> list[str]:
    """List the limitations of the data that apply to this run."""
    series = [tuple(trace.levels.values()) for trace in run.traces]
    hosts: dict[str, set] = {}
    for trace in run.traces:
        named = trace.jobs.get("node_name", pd.Series(dtype=str))
        hosts.setdefault(trace.levels["store"], set()).update({trace.levels["host"], *named} - {""})
    differ = len(set().union(*hosts.values())) > 1 and len(set(map(frozenset, hosts.values()))) > 1
    lacking = sum(not run.has_bins(trace) for trace in run.traces)
    files = prose.format_count(len(run.facts.get("left_out") or []), "file")
    lines = {
        "single battery": series and len({*series}) == len(series),
        "buckets": True,
        "no histograms": lacking,
        "no times": any(trace.jobs["minutes"].isna().any() for trace in run.traces),
        "hosts differ": differ,
        "not measured here": not any(
            battery.get("position") is not None for battery in run.facts.get("batteries") or []
        ),
        "caches of devices": True,
        "files left out": run.facts.get("left_out"),
    }
    counted = {"no histograms": len(run.traces)}
    given = {"lacking": lacking, "files": files, "needed": MIN_BLOCKS, "json": code("--output-format=json+")}
    return [
        words.fill(name, **given, batteries=counted.get(name, code("batteries")))
        for name, holds in lines.items()
        if holds
    ]


def list_rules(run: Results) -> list[str]:
    """List the rules of docs/method.md that do not apply, with reasons."""
    credits = ", except on volumes with burst credits, which carry over to the next battery" * run.has_credits
    return [f"Rule {rule}: {reason.format(credits=credits)}." for rule, reason in NOT_APPLICABLE.items()]


def list_method(run: Results) -> list[str]:
    """Describe how volumes are measured and judged, omitting topics that do not apply to this run."""
    method = [text for name, text in METHOD.items() if name != CREDITS or run.has_credits]
    return [text.format(percent=run.same_percent) for text in method]


def _select_first_limit(run: Results) -> list[Course]:
    every = list_courses(run)
    return [course for course in every if course.whole["limit"] == every[0].whole["limit"]]


def _list_limit_findings(run: Results) -> Iterator[Finding]:
    for group in list_course_groups(run):
        rows = pd.DataFrame([course.whole for course in group])[[*FACTORS, "limit", "metric", "verdict"]]
        where, rows = phrases.describe_place(rows.to_dict("records"), run), rows.assign(factor="limit")
        text, limits = describe_courses(group, run), tuple(course.statement for course in group)
        if run.select_sentences([(text, limits)]):
            yield Finding(where, text, "limit", rows["metric"].iloc[0], group[0].verdict, {}, rows)


def _list_credit_findings(run: Results) -> Iterator[Finding]:
    """Yield findings that compare modelled credits with observations. Series with the same text share a finding."""
    for text, own in run.collapses.groupby("text", sort=False) if run.has_credits and len(run.collapses) else ():
        rows = own[[*FACTORS]].assign(factor=CREDITS, metric="p99", verdict=Outcome.MODELLED)
        where = phrases.describe_place(rows.to_dict("records"), run)
        yield Finding(where, f"{text.rstrip('.')}.", CREDITS, "p99", Outcome.MODELLED, {}, rows)


def _describe_larger_volumes(run: Results) -> Iterator[str]:
    """Yield a sentence for each volume whose load before the collapse exceeded its baseline IOPS."""
    for row in run.collapses.to_dict("records") if "modelled_iops" in run.samples else ():
        jobs = select_rows(run.samples, row)
        demand = jobs.loc[jobs["number"] < row["observed_number"], "modelled_iops"].median()
        if demand > row["baseline_iops"]:
            demand, baseline = f"{demand:,.0f}", f"{row['baseline_iops']:,.0f}"
            volume = phrases.format_volume(row["store"], run)
            yield words.fill("larger", volume=volume, demand=demand, baseline=baseline)
