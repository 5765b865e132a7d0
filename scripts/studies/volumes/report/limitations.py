"""What the data of this study cannot say, beside what is said of every study."""

import pandas as pd

from scripts.report import prose
from scripts.studies.volumes.report.batteries import Results


def limitations(run: Results) -> list[str]:
    """Return what these data cannot say."""
    batteries = pd.Series([tuple(trace.levels.values()) for trace in run.traces], dtype=object).value_counts()
    lacking = sum(not run.has_bins(trace) for trace in run.traces)
    lines = {
        "Each volume was measured in one battery: the intervals hold for that battery's operations and say nothing "
        "of another day, another volume of the same type or another machine. A difference between volumes cannot "
        "be told from one between two hours.": len(batteries) and (batteries == 1).all(),
        "fio counts latencies in buckets about 0.8 % wide, and a percentile is a bucket's value: a difference of that "
        "size means nothing, and a percentile can exceed the maximum.": True,
        f"{lacking} of {len(run.traces)} batteries came without histograms (fio's json+): the p99 of several jobs "
        "together is not known. What stands for it is the median of the jobs' own, in brackets the smallest and "
        "the largest of them; limits are judged by these.": lacking,
        "The times of some jobs are not known: how long a limit was kept follows from latencies and pauses.": any(
            trace.jobs["minutes"].isna().any() for trace in run.traces
        ),
        "Volumes were measured on different hosts: a difference between them may be one between the "
        "hosts.": _on_different_hosts(run),
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


def _on_different_hosts(run: Results) -> bool:
    """Whether volumes differ in the hosts that measured them."""
    hosts: dict[str, set] = {}
    for trace in run.traces:
        named = trace.jobs.get("node_name", pd.Series(dtype=str))
        hosts.setdefault(trace.levels["store"], set()).update({trace.levels["host"], *named} - {""})
    return len(set().union(*hosts.values())) > 1 and len(set(map(frozenset, hosts.values()))) > 1
