"""What was asked, how it was measured, and what the data cannot say."""

import pandas as pd

from scripts.report import judgement, names, prose
from scripts.report.markup import code
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report.data import Results

HARNESS = 0.1  # of the time; more is said and marked


def method(results: Results) -> list[str]:
    """Return how it was measured and judged, in short."""
    if results.is_printed:
        return ["Each value is drawn as it is printed; there are no repeats to judge differences by."]
    return [
        "A repeat is a block: every cell once, in a seeded random order, nothing else running. A record starts the MPI "
        "processes once and reads many times; iterations are summarised within the record.",
        "An iteration lies between two barriers. Its latency counts from when the first process begins until the last "
        "is done, by the machine's clock (of several machines: the longest); what each process took is in the samples. "
        "Start of the processes and the first broadcast are timed apart.",
        "The state of the page cache is set before every iteration, outside the time, and what was in memory is in the "
        "samples.",
        "Bandwidth is all bytes that reached the processes divided by all time: an object that is read once and "
        "broadcast to four processes counts four times. Latency is the median of the iterations after the first; of "
        "both the interval is one over repeats.",
        *judgement.method(results.facts),
        f"Stores and patterns that {code('compare')} does not name are compared each with each where they deliver the "
        f"same: all these pairs together are one more family, {code('contest')} in {code('verdicts.csv')}.",
        "Verdicts use the time of all iterations of a record, the first among them. Patterns that give each process a "
        "whole object are not compared with those that give it a section: the bytes differ.",
        "The ceiling is what as many bare requests in flight as the cell's processes have get of the same store, "
        "objects and cache state in the same record: no MPI, no SDK, their bytes dropped; on a file system, "
        "plain reads.",
        "After each iteration, outside the time, every block that a process holds is checked against the manifest, and "
        "its buffer changed. Where an iteration takes several operations, that is the last of them; all are checked in "
        "a pass of its own. The objects are random bytes that do not compress.",
    ]


def limits(results: Results) -> list[str]:
    """Return what these data cannot say."""
    lines = [f"{prose.capital(str(line).rstrip('.'))}." for line in results.facts.get("limits") or []]
    cells, effective = results.measured, _effective(results)
    if any(one.get("oversubscribed") for one in effective):
        many = sum(bool(one.get("oversubscribed")) for one in effective)
        lines.append(
            f"In {prose.count(many, 'record')} more MPI processes ran than there are cores: they wait for each other, "
            "and a speed-up by more processes says little."
        )
    if effective and all(len(one.get("hosts") or []) < 2 for one in effective):
        lines.append(
            "All processes ran on one machine: broadcasts go through its memory, not over a network between machines."
        )
    elif effective:
        lines.append("The ceiling was measured from one machine; several may get more out of the store than it shows.")
    if (cells["cache"] == "cold").any():
        lines.append(
            '"Cold" is said of page caches of the machines that read, and of an embedded server\'s: caches of '
            "hypervisor, disk and remote services are not controlled."
        )
    ceilings = [one for one in results.readers.get("ceiling", []) if isinstance(one, dict)]
    if refused := [one["problem"] for one in ceilings if one.get("problem")]:
        lines.append(f"No ceiling was measured in {prose.count(len(refused), 'record')}: {refused[0]}.")
    lines += _of_first_iterations(results) + _of_the_harness(cells)
    beyond = int(((cells["share"] > 1.05) & ~cells["pattern"].isin(FROM_ONE)).sum())
    if beyond:
        lines.append(
            f"In {prose.count(beyond, 'cell')} the processes got more than the ceiling: its requests are threads of "
            "one process, and where a read takes no longer than that costs, what they get is no bound."
        )
    odd = cells[(cells["cache_state"] != "") & (cells["cache_state"] != cells["cache"])]
    odd = odd[~odd["cache"].isin(("any", "direct"))]
    if len(odd):
        lines.append(f"The cache state that was asked for could not be verified in {prose.count(len(odd), 'cell')}.")
    if dropped := results.left_out:
        told = "is not told: its" if dropped == 1 else "are not told: their"
        lines.append(f"{prose.count(dropped, 'comparison')} of those asked for {told} arms deliver different amounts.")
    if retried := sum(int(one) for one in results.readers.get("retries", []) if one == one):
        lines.append(f"The clients sent {prose.count(retried, 'request')} again; the time that took is in the figures.")
    if idle := sum(bool(one.get("idle_processes")) for one in effective):
        lines.append(f"In {prose.count(idle, 'record')} some processes had nothing to read.")
    if results.is_printed:
        return [*lines, "The numbers are those of printed tables, without intervals and single repeats."]
    return [*lines, *judgement.of_trouble(results.cells), *results.absent]


def _of_first_iterations(results: Results) -> list[str]:
    """What the first iteration weighs where sizes are not read equally often."""
    records = results.records[results.records["valid"] & (results.records["control"] == "")]
    if records["iterations"].nunique() < 2:
        return []
    share = records["first_s"] / records["total_s"]
    by_size = share.groupby(records["size"], sort=False).median().sort_values()
    least, most = by_size.index[0], by_size.index[-1]
    counts = records.groupby("size")["iterations"].median()
    told = [
        f"{100 * by_size[size]:.0f} % at {names.size(size)} ({prose.count(int(counts[size]), 'iteration')} a record)"
        for size in (least, most)
    ]
    return [
        f"The first iteration, which opens connections and files, takes {told[0]} to {told[1]} of the time that "
        "decides: sizes are not read equally often. The latency is without it."
    ]


def _of_the_harness(cells: pd.DataFrame) -> list[str]:
    """In how many cells the harness takes a tenth of the time or more."""
    if "null_s" not in cells:
        return []
    share = cells["null_s"] / cells["total_s"]
    many = int((share > HARNESS).sum())
    if not many:
        return []
    return [
        f"In {prose.count(many, 'cell')} the harness itself takes more than {100 * HARNESS:.0f} % of the time that "
        f"decides, up to {100 * share.max():.0f} %: see the table of its cost."
    ]


def _effective(results: Results) -> list[dict]:
    return [one for one in results.readers.get("effective", []) if isinstance(one, dict)]
