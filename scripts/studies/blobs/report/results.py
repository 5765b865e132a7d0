"""The tables of the study, measured or printed: a printed table has one number per store and size."""

from pathlib import Path

import numpy as np
import pandas as pd

from scripts.report import results
from scripts.report.inputs import read_facts
from scripts.report.results import Results
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
    frames = results.read_tables(folder, REPORT, ("phase", "rank_s"))
    if frames["samples"].empty and frames["cells"].empty:
        frames["cells"] = _of_printed(printed.read(folder), run_facts)
    if "throughput_mib_s" in frames["cells"]:
        frames["cells"]["mib_s"] = frames["cells"]["throughput_mib_s"]
    frames["samples"] = samples = results.checked_samples(frames["samples"], NEEDED, folder)
    for column in ("first_done_s", "retries") if len(samples) else ():
        samples[column] = pd.to_numeric(samples[column], errors="coerce") if column in samples else np.nan
    return results.complete(frames, _records(samples), run_facts, REPORT, folder)


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

    latency_s is the median of the iterations after the first (of a single one, that one), first_ratio the first's
    divided by it, spread the slowest by the fastest of them, imbalance the median of last by first process done, share
    the bandwidth by the ceiling's.
    """
    rows = reads(samples)
    if rows.empty:
        columns = ["cell", "repeat", "valid", "control", *FACTORS, "iterations", "first_s", "total_s"]
        return pd.DataFrame(columns=columns).astype({"valid": bool})
    keys = ["cell", "repeat"]
    rows = rows.sort_values([*keys, "iteration"], kind="stable")
    groups = rows.assign(control=rows.get("control", "")).groupby(keys, sort=False)
    records = groups[["valid", "control", *FACTORS]].first()
    records["iterations"], records["total_s"] = groups.size(), groups["latency_s"].sum()
    records["bytes"], records["first_s"] = groups["bytes"].sum(), groups["latency_s"].first()
    records["byte_s"] = records["total_s"] / records["bytes"]
    records["mib_s"] = records["bytes"] / MIB / records["total_s"]
    later = rows[groups.cumcount() > 0].groupby(keys, sort=False)["latency_s"]
    records["latency_s"] = later.median().reindex(records.index).fillna(records["first_s"])
    records["spread"] = later.max() / later.min()
    records["first_ratio"] = (records["first_s"] / records["latency_s"]).where(records["iterations"] > 1)
    apart = rows["latency_s"] / rows["first_done_s"]
    records["imbalance"] = apart.groupby([rows[key] for key in keys], sort=False).median()
    records["imbalance"] = records["imbalance"].where(records["processes"] != "1")
    rounds = reads(samples, "ceiling").groupby(keys, sort=False)[["bytes", "latency_s"]].sum()
    records["ceiling_mib_s"] = rounds["bytes"] / MIB / rounds["latency_s"]
    records["share"] = records["mib_s"] / records["ceiling_mib_s"]
    return records.replace([np.inf, -np.inf], np.nan).reset_index()


def _of_printed(cells: pd.DataFrame, facts: dict) -> pd.DataFrame:
    """Cells of printed tables: one number each, without interval."""
    if cells.empty:
        return cells
    return cells.assign(
        cell=cells[["store", "pattern", "size"]].agg("_".join, axis=1),
        processes=str(processes_of(facts)),
        n=1,
        latency_s=cells["latency"].astype(float),
        mib_s=cells["bandwidth"].astype(float),
    ).reset_index(drop=True)
