"""What was asked, how it was measured and judged, which rules do not apply, and what the data cannot say."""

import pandas as pd

from scripts.report import judgement, prose
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Results

# METHOD 23: a rule that cannot apply is declared, with the reason; numbers and names are those of docs/method.md.
NOT_APPLICABLE = {
    "2, blocks in random order": "what a volume has spent of its credits carries over from job to job and from battery "
    "to battery, so a battery is one series in time order; the order of the volumes and the pauses are shown instead",
    "5, repeats": "a battery is one record; its jobs are a series, not independent repeats of a block",
    "6, A/A control": "measuring a volume twice is measuring it with other credits",
    "8, cache state": "each write is forced to the disk, and what reads find in memory is fio's own setting (direct, "
    "invalidate) and not verified",
    "9, checksum": "fio writes values of its own making; jobs, bytes and operations done are compared with those asked",
    "11, requests": "a file system counts no requests; what the device did is shown where the kernel tells",
    "13, the harness's own cost": "fio starts its own clock; nothing of the workflow runs between its operations",
    "17, comparisons of blocks": "there are no blocks: jobs of two series are compared, by the method given "
    "beside each comparison",
}


def nothing_decided(results: Results) -> str:
    """Return what to say where no sentence tells of a verdict."""
    return "There are no verdicts." if results.verdicts.empty else "Nothing was decided."


def no_change(results: Results) -> str:
    """Return what to say where no series has more than one segment."""
    return "" if results.segments.empty else "No series changed its level."


def notes(results: Results) -> list[str]:
    """Return what has to be known of the figures of single series, one note for all that share it."""
    series_by_note: dict[str, list[str]] = {}
    for series in results.series:
        if series.battery == 1 and (note := str(results.cell(series).get("note", ""))):
            series_by_note.setdefault(note, []).append(words.label(series, results))
    every = {note: len(who) == len(results.series) > 1 for note, who in series_by_note.items()}
    return [f"{'All series' if every[note] else prose.listing(who)}: {note}." for note, who in series_by_note.items()]


def not_applicable() -> list[str]:
    """Return the rules of measuring that cannot apply to this study, and why."""
    return [f"Rule {rule}: {reason}." for rule, reason in NOT_APPLICABLE.items()]


def method(results: Results) -> list[str]:
    """Return how it was measured and judged, in short."""
    percent = f"±{judgement.equivalence(results.facts):g} %"
    return [
        "A battery is one fio job many times in a row on one volume, with a pause between; its jobs are shown in time "
        "order, each as it is, none left out as an outlier.",
        "Latencies are those that fio measured around each operation. Percentiles of several jobs come from their "
        "merged histograms, never from averaged percentiles, and are refused where fewer than 10 operations lie above "
        "them. 95 % CI come from resampling whole jobs. Rates are all operations or bytes divided by all time.",
        "A limit is met if the 95 % CI of the percentile lies below it, missed if above it, else undecided. "
        "A series is judged segment by segment: it meets a limit if every segment does, and misses it if any does.",
        "Segments are found by a search for changes in the level of the jobs' p99; a jump is the ratio of the medians "
        "of the jobs on both sides.",
        "Credits follow the published rules of the volume's type: spent by what the device does above its baseline, "
        "refilled at the baseline. What a write costs is counted by the device, or follows from the jobs after the "
        "credits were gone (hindsight), or is assumed; the answer says which.",
        f"Comparisons are in percent of the baseline, apart for the jobs before the first change and after the last: "
        f"an interval within {percent} is the same, one without 0 higher or lower, any other no evidence.",
    ]


def limits(results: Results) -> list[str]:
    """Return what these data cannot say."""
    lines = [f"{prose.capital(str(line).rstrip('.'))}." for line in results.facts.get("limits") or []]
    batteries = pd.Series([series.key for series in results.series], dtype=object).value_counts()
    if len(batteries) and (batteries == 1).all():
        lines.append(
            "Each volume was measured in one battery: the intervals hold for that battery's operations and say nothing "
            "of another day, another volume of the same type or another machine. A difference between volumes cannot "
            "be told from one between two hours."
        )
    lines.append(
        "fio counts latencies in buckets about 0.8 % wide, and a percentile is a bucket's value: a difference of that "
        "size means nothing, and a percentile can exceed the maximum."
    )
    lines += [*_without_bins(results), *_without_times(results), *_of_hosts(results), *_of_imports(results)]
    lines.append(
        "What hypervisor, controller and device keep in caches of their own is not seen; a disk that acknowledges "
        "before data are safe looks fast."
    )
    return [*lines, *_of_trouble(results), *results.absent]


def _without_bins(results: Results) -> list[str]:
    """Where percentiles of jobs cannot be merged, since their histograms are not known."""
    lacking = [series for series in results.series if not results.has_bins(series)]
    if not lacking:
        return []
    who = "No series has" if len(lacking) == len(results.series) else f"{len(lacking)} series came without"
    return [
        f"{who} histograms (fio's json+): the p99 of several jobs together is not known. What stands for it is the "
        "median of the jobs' own, in brackets the smallest and the largest of them; limits are judged by these."
    ]


def _without_times(results: Results) -> list[str]:
    lacking = [series for series, rows in results.traces if rows["minutes"].isna().any()]
    if not lacking:
        return []
    who = "No battery has" if len(lacking) == len(results.series) else f"{len(lacking)} batteries lack"
    return [f"{who} the times of its jobs: how long a limit was kept is said in jobs, and pauses are not known."]


def _of_hosts(results: Results) -> list[str]:
    hosts: dict[str, set] = {}
    for series, rows in results.traces:
        names = rows["node_name"] if "node_name" in rows else pd.Series(dtype=str)
        hosts.setdefault(series.store, set()).update({series.host, *names} - {""})
    if len(hosts) < 2 or len(set.union(*hosts.values())) < 2 or len(set(map(frozenset, hosts.values()))) < 2:
        return []
    return ["Volumes were measured on different hosts: a difference between them may be one between the hosts."]


def _of_imports(results: Results) -> list[str]:
    if any(battery.get("position") is not None for battery in results.facts.get("batteries") or []):
        return []
    return [
        "Nothing was measured here: of the machines these results came from nothing is known beyond the files, "
        "neither what else ran nor what the volumes had spent before."
    ]


def _of_trouble(results: Results) -> list[str]:
    lines = []
    cells = results.cells
    troubles = {
        "broke a rule of measuring and are in no verdict": cells["invalid"] - cells["edited"],
        "were edited after they were written and are in no verdict": cells["edited"],
        "failed": cells["failed"],
    }
    for what, counts in troubles.items():
        if number := int(counts.sum()):
            batteries = "1 battery" if number == 1 else f"{number} batteries"
            if number == 1:
                what = what.replace(" are ", " is ").replace("were edited", "was edited").replace("they were", "it was")
            lines.append(f'{batteries} {what}: see "Failed, invalid and left out".')
    if left := len(results.facts.get("left_out") or []):
        files = prose.count(left, "file")
        lines.append(f'{files} of the import could not be used: see "Failed, invalid and left out".')
    return lines
