"""The tables of the study, measured or printed: a printed table has one number per store and size."""

from pathlib import Path

import numpy as np
import pandas as pd

from scripts.report import results
from scripts.report.inputs import read_facts
from scripts.report.results import Results
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report import MIB, REPORT, printed

FACTORS = REPORT.names
NEEDED = ("cell", "repeat", "phase", "iteration", "latency_s", "bytes", *FACTORS)


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what `tables` holds.

    Args:
        tables: the folder of samples.csv, cells.csv, verdicts.csv and matrix.csv, or of printed tables.
        facts: the JSON object that the workflow wrote about machine, stores and settings.

    Raises:
        Problem: there are neither samples nor cells nor printed tables, or samples lack a column.
    """
    folder, run_facts = Path(tables), read_facts(facts)
    frames = results.read_tables(folder, REPORT, ("phase", "rank_s"), NEEDED)
    if frames["samples"].empty and frames["cells"].empty:
        frames["cells"] = printed.cells(folder, processes_of(run_facts))
    if "throughput_mib_s" in frames["cells"]:
        frames["cells"]["mib_s"] = frames["cells"]["throughput_mib_s"]
    return results.complete(frames, _records(frames["samples"]), run_facts, REPORT, folder)


def is_printed(run: Results) -> bool:
    """Return whether these are printed tables alone: one number per cell, as text in `latency` and `bandwidth`."""
    return "bandwidth" in run.cells


def processes_of(facts: dict) -> int:
    """Return by how many processes printed tables were measured: as the facts say, else as in the published study."""
    return int(facts.get("processes") or printed.PROCESSES)


def reads(samples: pd.DataFrame, phase: str = "read") -> pd.DataFrame:
    """Return the rows of one phase: `read`, iterations; `ceiling`, rounds of bare requests."""
    return samples[samples["phase"] == phase] if len(samples) else samples


def _records(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per record: cell, repeat, valid, factors, iterations, total_s, bytes, byte_s and the report's values.

    total_s and bytes are those of the iterations after the first (of a single one, of that), latency_s their median,
    first_ratio the first's
    divided by it, spread the slowest by the fastest of them, imbalance the median of last by first process done, share
    the bandwidth by the ceiling's where each process reads.
    """
    rows = reads(samples)
    if rows.empty:
        columns = ["cell", "repeat", "valid", "control", *FACTORS, "iterations", "first_s", "total_s"]
        return pd.DataFrame(columns=columns).astype({"valid": bool})
    keys = ["cell", "repeat"]
    first_done = pd.to_numeric(rows.get("first_done_s"), errors="coerce")
    rows = rows.assign(control=rows.get("control", ""), imbalance=rows["latency_s"] / first_done)
    rows = rows.sort_values([*keys, "iteration"], kind="stable")
    groups = rows.groupby(keys, sort=False)
    records = groups[["valid", "control", *FACTORS]].first()
    records["iterations"], records["first_s"] = groups.size(), groups["latency_s"].first()
    # The first iteration opens connections and files; where there is another, it has figures of its own.
    alone = groups["iteration"].transform("size") == 1
    timed = rows[(groups.cumcount() > 0) | alone].groupby(keys, sort=False)
    records[["total_s", "bytes"]] = timed[["latency_s", "bytes"]].sum()
    records["byte_s"] = records["total_s"] / records["bytes"]
    records["mib_s"] = records["bytes"] / MIB / records["total_s"]
    later = rows[groups.cumcount() > 0].groupby(keys, sort=False)["latency_s"]
    records["latency_s"] = later.median().reindex(records.index).fillna(records["first_s"])
    records["spread"] = later.max() / later.min()
    records["first_ratio"] = (records["first_s"] / records["latency_s"]).where(records["iterations"] > 1)
    records["imbalance"] = groups["imbalance"].median().where(records["processes"] != "1")
    rounds = reads(samples, "ceiling").groupby(keys, sort=False)[["bytes", "latency_s"]].sum()
    # What one process reads for all counts once for each of them, so that the ceiling says nothing of it.
    each_reads = ~records["pattern"].isin(FROM_ONE)
    records["ceiling_mib_s"] = (rounds["bytes"] / MIB / rounds["latency_s"]).where(each_reads)
    records["share"] = records["mib_s"] / records["ceiling_mib_s"]
    return records.replace([np.inf, -np.inf], np.nan).reset_index()
