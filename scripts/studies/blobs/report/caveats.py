"""What the data of the study cannot say beside what those of every study cannot, and sentences about its iterations."""

import pandas as pd

from scripts.report import listings, names, prose
from scripts.report.declaration import Value
from scripts.report.results import Results
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report.results import is_printed


def limits(run: Results) -> list[str]:
    """Return what only this study's data cannot say."""
    if is_printed(run):
        return ["The numbers are those of printed tables, without intervals and single repeats."]
    lines, cells = [], run.measured
    hosts = run.readers.get("effective.hosts", pd.Series(dtype=object)).dropna().str.len()
    if len(hosts) and hosts.max() < 2:
        lines.append(
            "All processes ran on one machine: broadcasts go through its memory, not over a network between machines."
        )
    elif len(hosts):
        lines.append("The ceiling was measured from one machine; several may get more out of the store than it shows.")
    refused = run.readers.get("ceiling.problem", pd.Series()).dropna()
    if len(refused):
        lines.append(f"No ceiling was measured in {prose.count(len(refused), 'record')}: {refused.iloc[0]}.")
    lines += _of_first_iterations(run)
    if beyond := int(((cells["share"] > 1.05) & ~cells["pattern"].isin(FROM_ONE)).sum()):
        lines.append(
            f"In {prose.count(beyond, 'cell')} the processes got more than the ceiling: its requests are threads of "
            "one process, and where their overhead exceeds the time of a read, what they get is not a bound."
        )
    if retried := int(listings.numbers(run.readers, "retries").sum()):
        lines.append(f"The clients retried {prose.count(retried, 'request')}; the times include that.")
    if idle := int((listings.numbers(run.readers, "effective.idle_processes") > 0).sum()):
        lines.append(f"In {prose.count(idle, 'record')} some processes had nothing to read.")
    return lines


def by_store(run: Results, value: Value, text: str) -> list[str]:
    """Return a sentence per store about a value; `text` holds its median: "the first iteration took {}× as long …"."""
    lines = []
    for store in run.levels("store"):
        own = run.measured[(run.measured["store"] == store) & run.measured[value.column].notna()][value.column]
        if len(own):
            many = prose.count(len(own), "cell")
            what = text.format(prose.ratio(own.median()))
            lines.append(f"{run.names.store(store)}: {what} (median of {many}; {prose.span(own)}).")
    return lines


def _of_first_iterations(run: Results) -> list[str]:
    """What the first iteration weighs where sizes are not read equally often."""
    records = run.records[run.records["valid"] & (run.records["control"] == "")]
    if records["iterations"].nunique() < 2:
        return []
    share = records["first_s"] / records["total_s"]
    by_size = share.groupby(records["size"], sort=False).median().sort_values()
    counts = records.groupby("size")["iterations"].median()
    least, most = (
        f"{100 * by_size[size]:.0f} % at {names.size(size)} ({prose.count(int(counts[size]), 'iteration')} per record)"
        for size in (by_size.index[0], by_size.index[-1])
    )
    return [
        f"The first iteration, which opens connections and files, takes {least} to {most} of the time that decides, "
        "since sizes are not read equally often. The latency leaves it out."
    ]
