"""The tables of the study, measured or printed: a printed table has one number per store and size."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.report import results
from scripts.report.inputs import read_facts
from scripts.report.judgement import is_true
from scripts.studies.blobs.report import MIB, REPORT
from scripts.studies.blobs.report import printed as printed_tables

FACTORS = REPORT.names
VALUES = tuple(value.column for value in REPORT.values)


@dataclass(frozen=True)
class Results(results.Results):
    """The study's tables, and the printed ones."""

    printed: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def is_printed(self) -> bool:
        """Whether these are printed tables alone: one number per cell."""
        return self.samples.empty and len(self.printed) > 0

    @cached_property
    def readers(self) -> pd.DataFrame:
        """What the facts say of each record: cell, repeat, effective, memory, retries, attempts, ceiling, requests."""
        readers = [one for one in self.facts.get("readers") or [] if isinstance(one, dict)]
        return pd.DataFrame(readers, columns=None if readers else ["cell", "repeat"])

    @cached_property
    def valid_readers(self) -> pd.DataFrame:
        """Those of valid records."""
        if self.readers.empty or self.records.empty:
            return self.readers
        valid = self.records[self.records["valid"]][["cell", "repeat"]]
        return self.readers.merge(valid, on=["cell", "repeat"])

    def last(self, part: str, valid: bool = True) -> dict[str, dict]:
        """Return what the facts say of a part of each cell's last record, by cell."""
        readers = self.valid_readers if valid else self.readers
        rows = zip(readers["cell"], readers[part], strict=True) if part in readers else ()
        return {cell: fact for cell, fact in rows if isinstance(fact, dict)}


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
    absent = tuple(sentence for name, sentence in results.ABSENT.items() if frames[name].empty)
    printed = printed_tables.read(printed_tables.files(folder)) if folder.is_dir() else pd.DataFrame()
    cells = frames["cells"]
    if frames["samples"].empty and cells.empty:
        if printed.empty:
            raise results.nothing(folder)
        cells = _of_printed(printed, processes_of(run_facts))
    if "throughput_mib_s" in cells:
        cells["mib_s"] = cells["throughput_mib_s"]
    samples = _complete_samples(frames["samples"], folder)
    records = _records(samples)
    cells = results.complete_cells(cells, records, REPORT)
    return Results(samples, cells, frames["verdicts"], frames["matrix"], run_facts, absent, REPORT, records, printed)


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
    """One row per record: cell, repeat, valid, factors, iterations, total_s, bytes, byte_s and the report's values.

    latency_s is the median of the iterations after the first (of a single one, that one), first_ratio the first's
    divided by it, spread the slowest by the fastest of them, imbalance the median of last by first process done, share
    the bandwidth by the ceiling's.
    """
    columns = ["cell", "repeat", "valid", "control", *FACTORS, "iterations", "total_s", "bytes", "byte_s", *VALUES]
    rows = reads(samples)
    if rows.empty:
        return pd.DataFrame(columns=columns).astype({"valid": bool})
    keys = ["cell", "repeat"]
    rows = rows.sort_values([*keys, "iteration"], kind="stable")
    groups = rows.groupby(keys, sort=False)
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
    return records.replace([np.inf, -np.inf], np.nan).reset_index()[columns]


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
