"""The tables of one study as a report reads them: what is there, and a sentence for each part that is not.

A measured run has samples, cells, verdicts and matrix; printed tables (a row a size, latency and bandwidth of each
store) have one number a cell. Both end here in the same form.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.report import names, results
from scripts.report.inputs import read_facts, read_table
from scripts.report.judgement import is_true
from scripts.statistics import resampling, stats
from scripts.studies.blobs.report import REPORT
from scripts.studies.blobs.report import printed as printed_tables
from scripts.studies.blobs.report.words import FACTORS

TEXTS = (
    *(*FACTORS, "control", "cell", "factor", "baseline", "contender", "omitted", "twin_of", "reasons", "note"),
    *("verdict", "metric", "role", "status", "phase", "rank_s", "cache_state"),
)
MIB = 2**20
# Values of a record that figures show: column, and whether they are totals by totals (else medians of the records).
VALUES = ("mib_s", "latency_s", "first_s", "first_ratio", "spread", "imbalance", "ceiling_mib_s", "share")
ABSENT = {
    "samples": "There is no table of iterations: first iterations, single processes and ceilings are not known.",
    "cells": "There is no table of cells: failed and invalid cells are not known.",
    "verdicts": "There are no verdicts: nothing is compared block by block, so differences are shown and not judged.",
    "matrix": "There is no table of the matrix: cells that were left out are not known.",
}


@dataclass(frozen=True)
class Results(results.Results):
    """One study's tables, factors as text; an absent table is empty and has a sentence in `absent`.

    `cells` has for each of VALUES its summary over the valid repeats with `_low` and `_high`, NaN where not known, and
    `bytes`, the size of an object.
    """

    records: pd.DataFrame = field(default_factory=pd.DataFrame)
    printed: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def is_printed(self) -> bool:
        """Whether these are printed tables alone: one number a cell."""
        return self.samples.empty and len(self.printed) > 0

    @cached_property
    def readers(self) -> pd.DataFrame:
        """What the facts tell of each record: cell, repeat, effective, memory, retries, attempts, ceiling, requests."""
        found = [one for one in self.facts.get("readers") or [] if isinstance(one, dict)]
        return pd.DataFrame(found, columns=None if found else ["cell", "repeat"])

    def levels(self, factor: str) -> list[str]:
        """Return the levels of a factor as measured, in order; stores in that of the matrix."""
        found = [level for level in self.measured[factor].unique() if level]
        return found if factor == "store" else sorted(found, key=lambda level: self.names.order(factor, level))


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what `tables` holds.

    Args:
        tables: the folder of samples.csv, cells.csv, verdicts.csv and matrix.csv, or of printed tables.
        facts: the JSON object that the workflow wrote about machine, stores and settings.

    Raises:
        Problem: there are neither samples nor cells nor printed tables, or samples lack a column.
    """
    folder = Path(tables)
    found = {name: read_table(folder / f"{name}.csv", TEXTS) for name in ABSENT}
    told = read_facts(facts)
    printed = printed_tables.read(printed_tables.files(folder)) if folder.is_dir() else pd.DataFrame()
    if found["samples"].empty and found["cells"].empty:
        if printed.empty:
            raise Problem(f"{folder} has neither samples.csv nor cells.csv with rows; measure first")
        found["cells"] = _of_printed(printed, processes_of(told))
    samples = _complete_samples(found["samples"], folder)
    records = _records(samples)
    cells = _complete_cells(found["cells"], records)
    verdicts = found["verdicts"]
    for column in (*FACTORS, "note"):
        if len(verdicts) and column not in verdicts:
            verdicts[column] = ""
    matrix = found["matrix"]
    if len(matrix):
        matrix = matrix.astype(str).replace("nan", "")
    absent = tuple(sentence for name, sentence in ABSENT.items() if found[name].empty)
    return Results(samples, cells, verdicts, matrix, told, absent, REPORT, records, printed)


def processes_of(facts: dict) -> int:
    """Return by how many processes printed tables were measured: as the facts say, else as in the published study."""
    return int(facts.get("processes") or printed_tables.PROCESSES)


def reads(samples: pd.DataFrame, phase: str = "read") -> pd.DataFrame:
    """Return the rows of one phase: `read`, iterations; `ceiling`, rounds of bare requests."""
    return samples[samples["phase"] == phase] if len(samples) else samples


def _complete_samples(samples: pd.DataFrame, folder: Path) -> pd.DataFrame:
    if samples.empty:
        return samples
    for column in ("cell", "repeat", "phase", "iteration", "latency_s", "bytes", *FACTORS):
        if column not in samples:
            raise Problem(f"{folder / 'samples.csv'} lacks the column {column}")
    samples["valid"] = is_true(samples["valid"]) if "valid" in samples else True
    for column in ("control", "rank_s"):
        samples[column] = samples.get(column, "")
    for column in ("first_done_s", "resident_before", "retries"):
        samples[column] = pd.to_numeric(samples[column], errors="coerce") if column in samples else np.nan
    return samples


def _records(samples: pd.DataFrame) -> pd.DataFrame:
    """A row a record: cell, repeat, valid, factors, iterations, total_s, bytes, and VALUES.

    latency_s is the median of the iterations after the first (of a single one, that one), first_ratio the first's by
    it, spread the slowest by the fastest of them, imbalance the median of last by first process done, share the
    bandwidth by the ceiling's.
    """
    columns = ["cell", "repeat", "valid", "control", *FACTORS, "iterations", "total_s", "bytes", *VALUES]
    found = reads(samples)
    if found.empty:
        return pd.DataFrame(columns=columns).astype({"valid": bool})
    keys = ["cell", "repeat"]
    found = found.sort_values([*keys, "iteration"], kind="stable")
    groups = found.groupby(keys, sort=False)
    records = groups[["valid", "control", *FACTORS]].first()
    records["iterations"], records["total_s"] = groups.size(), groups["latency_s"].sum()
    records["bytes"], records["first_s"] = groups["bytes"].sum(), groups["latency_s"].first()
    records["mib_s"] = records["bytes"] / MIB / records["total_s"]
    later = found[groups.cumcount() > 0].groupby(keys, sort=False)["latency_s"]
    records["latency_s"] = later.median().reindex(records.index).fillna(records["first_s"])
    records["spread"] = later.max() / later.min()
    records["first_ratio"] = (records["first_s"] / records["latency_s"]).where(records["iterations"] > 1)
    apart = found["latency_s"] / found["first_done_s"]
    records["imbalance"] = apart.groupby([found[key] for key in keys], sort=False).median()
    records["imbalance"] = records["imbalance"].where(records["processes"] != "1")
    rounds = reads(samples, "ceiling").groupby(keys, sort=False)[["bytes", "latency_s"]].sum()
    records["ceiling_mib_s"] = rounds["bytes"] / MIB / rounds["latency_s"]
    records["share"] = records["mib_s"] / records["ceiling_mib_s"]
    return records.replace([np.inf, -np.inf], np.nan).reset_index()[columns]


def _complete_cells(cells: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    if cells.empty:
        cells = records.groupby("cell", sort=False)[[*FACTORS, "control"]].first().reset_index()
        cells["n"] = cells["cell"].map(records.groupby("cell")["valid"].sum()).astype(int)
        cells["invalid"] = cells["cell"].map((~records["valid"]).groupby(records["cell"]).sum()).astype(int)
    for column in (*FACTORS, "control", "reasons", "cache_state"):
        cells[column] = cells[column].fillna("").astype(str) if column in cells else ""
    for column in ("n", "failed", "invalid", "edited"):
        cells[column] = cells[column].fillna(0).astype(int) if column in cells else 0
    if "throughput_mib_s" in cells:
        cells["mib_s"] = cells["throughput_mib_s"]
    for name in VALUES:
        for column in (name, f"{name}_low", f"{name}_high"):
            cells[column] = pd.to_numeric(cells[column], errors="coerce") if column in cells else np.nan
    cells["bytes"] = cells["size"].map(names.amount)
    for cell, own in records[records["valid"]].groupby("cell", sort=False):
        where = cells["cell"] == cell
        for name in VALUES:
            if own[name].notna().any():
                cells.loc[where, [name, f"{name}_low", f"{name}_high"]] = _summary(own, name)[:3]
    return cells


def _summary(own: pd.DataFrame, name: str) -> stats.Estimate:
    """A value over a cell's valid records: totals by totals for the bandwidth (METHOD 16), else the median.

    Fewer than 6 records have no interval: their range holds the median in too few cases.
    """
    if name != "mib_s":
        return stats.median(own[name])
    found = resampling.total_over_total(own["bytes"] / MIB, own["total_s"])
    return found if found.n >= resampling.LEAST else found._replace(low=np.nan, high=np.nan)


def _of_printed(printed: pd.DataFrame, processes: int) -> pd.DataFrame:
    """Cells of printed tables: one number each, without interval."""
    cells = printed[["store", "pattern", "size"]].assign(
        cell=printed[["store", "pattern", "size"]].agg("_".join, axis=1),
        processes=str(processes),
        n=1,
        latency_s=printed["latency"].astype(float),
        mib_s=printed["bandwidth"].astype(float),
    )
    return cells.reset_index(drop=True)
