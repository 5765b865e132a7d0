"""What was found in words: headline, reason, advice, findings on limits, credits, differences; what is not known."""

from collections.abc import Iterator

import pandas as pd

from scripts.report import answer, pages, prose
from scripts.report.findings import Finding
from scripts.report.markup import bold, code
from scripts.statistics import MIN_BLOCKS
from scripts.studies.volumes.compare import TOO_FEW
from scripts.studies.volumes.report import REPORT, courses, phrases
from scripts.studies.volumes.report.batteries import Results, of
from scripts.studies.volumes.report.courses import Course
from scripts.studies.volumes.series import FACTORS

REASONS = 3
SAID = {
    "meets": "stayed below",
    "misses": "did not stay below",
    "undecided": "may or may not be below",
    "not judged": "cannot be judged against",
}
CREDITS = "burst credits"


def find(run: Results) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Return what was decided, missed limits first, what of the other metrics was, and what was not decided."""
    primary, secondary = pages.of_run(run)
    # That a comparison has too few batteries is said once, as what to do next.
    compared = [one for one in primary if one.verdict != TOO_FEW]
    limits = sorted(_limits(run), key=lambda finding: finding.verdict == "meets")
    findings = [*limits, *_credits(run), *compared]
    return [one for one in findings if one.decided], secondary, [one for one in findings if not one.decided]


def headline(run: Results) -> str:
    """Return which volumes keep the first limit, in one bold sentence."""
    first = _first_limit(run)
    if run.measured.empty or not first:
        return answer.headline(run, [], [])
    whole, parts = first[0].whole, []
    for verdict, text in SAID.items():
        series = [_kept(course, run) for course in first if course.outcome == verdict]
        if series:
            limit = "it" if parts else phrases.limit(whole)
            parts.append(f"{text} {limit} on {phrases.some(series)}")
    what = phrases.operation([course.whole for course in first], run)
    return bold(f"{REPORT.metric(whole['metric']).title} of {what} {'; '.join(parts)}.")


def reasons(run: Results) -> list[str]:
    """Return what the model of burst credits says of what was seen."""
    return [f"{prose.capital(one.where)}: {one.text}" for one in _credits(run)][:REASONS]


def advice(run: Results) -> list[str]:
    """Return which volume to take, what a volume that ran out of credits lacks, and what would decide the rest."""
    first, lines = _first_limit(run), []
    kept = [course for course in first if course.whole["verdict"] == "meets"]
    if kept and len(first) > 1:
        best = min(kept, key=lambda course: course.deciding["value_ms"])
        of = f"the lowest of the {len(kept)}" if len(kept) > 1 else "the only one"
        what = f"Use {bold(phrases.label(best.whole, run))}: {best.whole['metric']} {phrases.latency(best.deciding)}"
        lines.append(f"{what}, {of} that stayed below {phrases.limit(best.whole)}.")
    lines += _larger(run)
    between = [phrases.label(course.whole, run) for course in first if course.outcome == "undecided"]
    if between:
        who = prose.listing(between)
        lines.append(f"Raise {code('jobs')} and run again to decide on {who}: more jobs narrow the interval.")
    for course in first:
        if course.outcome == "not judged":
            lines.append(f"Measure {phrases.label(course.whole, run)} again: {course.deciding['reason']}.")
    if len(run.verdicts) and (run.verdicts["verdict"] == TOO_FEW).any():
        lines.append(
            f"Raise {code('batteries')} to {MIN_BLOCKS} or more to compare volumes: fewer cannot tell a slower volume "
            "from a busier hour."
        )
    return lines


def limitations(run: Results) -> list[str]:
    """Return what these data cannot say."""
    series = [tuple(trace.levels.values()) for trace in run.traces]
    hosts: dict[str, set] = {}
    for trace in run.traces:
        named = trace.jobs.get("node_name", pd.Series(dtype=str))
        hosts.setdefault(trace.levels["store"], set()).update({trace.levels["host"], *named} - {""})
    differ = len(set().union(*hosts.values())) > 1 and len(set(map(frozenset, hosts.values()))) > 1
    lacking = sum(not run.has_bins(trace) for trace in run.traces)
    lines = {
        "Each volume was measured in one battery: the intervals hold for that battery's operations and say nothing "
        "of another day, another volume of the same type or another machine. A difference between volumes cannot "
        "be told from one between two hours.": series and len({*series}) == len(series),
        "fio counts latencies in buckets about 0.8 % wide, and a percentile is a bucket's value: a difference of that "
        "size means nothing, and a percentile can exceed the maximum.": True,
        f"{lacking} of {len(run.traces)} batteries came without histograms (fio's json+): the p99 of several jobs "
        "together is not known. What stands for it is the median of the jobs' own, in brackets the smallest and "
        "the largest of them; limits are judged by these.": lacking,
        "The times of some jobs are not known: how long a limit was kept follows from latencies and pauses.": any(
            trace.jobs["minutes"].isna().any() for trace in run.traces
        ),
        "Volumes were measured on different hosts: a difference between them may be one between the hosts.": differ,
        "Nothing was measured here: of the machines these results came from nothing is known beyond the files, neither "
        "what else ran nor what the volumes had spent before.": not any(
            battery.get("position") is not None for battery in run.facts.get("batteries") or []
        ),
        "What hypervisor, controller and device keep in caches of their own is not seen; a disk that acknowledges "
        "before data are safe looks fast.": True,
        f"{prose.count(len(run.facts.get('left_out') or []), 'file')} of the import could not be used: see "
        '"Failed, invalid and left out".': run.facts.get("left_out"),
    }
    return [line for line, holds in lines.items() if holds]


def _first_limit(run: Results) -> list[Course]:
    every = courses.courses(run)
    return [course for course in every if course.whole["limit"] == every[0].whole["limit"]]


def _kept(course: Course, run: Results) -> str:
    """A series, with the value that decided, and how long it kept a limit that it missed later."""
    name, value = phrases.label(course.whole, run), course.deciding["value_ms"]
    missed = course.whole["verdict"] == "misses" and course.kept_jobs
    time = phrases.duration(course.whole["kept_s"]) or prose.count(course.kept_jobs, "job")
    later = f" after {time}" if missed else ""
    return f"{name}{later}{f' ({prose.number(value)} ms)' if pd.notna(value) else ''}"


def _limits(run: Results) -> Iterator[Finding]:
    for group in courses.alike(run):
        rows = pd.DataFrame([course.whole for course in group])[[*FACTORS, "limit", "metric", "verdict"]]
        where, verdict = phrases.where(rows.to_dict("records"), run), group[0].whole["verdict"]
        text = courses.sentence(group, run)
        yield Finding(where, text, "limit", group[0].whole["metric"], verdict, {}, rows.assign(factor="limit"))


def _credits(run: Results) -> Iterator[Finding]:
    """Yield what the credit model says, against what was seen; series of which it says the same stand together."""
    for text, own in run.collapses.groupby("text", sort=False) if len(run.collapses) else ():
        rows = own[[*FACTORS]].assign(factor=CREDITS, metric="p99", verdict="modelled")
        where = phrases.where(rows.to_dict("records"), run)
        yield Finding(where, f"{text.rstrip('.')}.", CREDITS, "p99", "modelled", {}, rows)


def _larger(run: Results) -> Iterator[str]:
    """What volumes were asked for before their credits were gone, beside what they have without any."""
    for row in run.collapses.to_dict("records") if "modelled_iops" in run.samples else ():
        jobs = of(run.samples, row)
        demand = jobs.loc[jobs["number"] < row["observed_number"], "modelled_iops"].median()
        if demand > row["baseline_iops"]:
            yield (
                f"In place of {phrases.volume(row['store'], run)}, take a volume with a baseline of at least "
                f"{demand:,.0f} IOPS, which these jobs ask for: its {row['baseline_iops']:,.0f} are all that it has "
                "without credits."
            )
