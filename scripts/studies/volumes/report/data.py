"""The tables of the volumes study as its report reads them: what is there, and a sentence for each part that is not.

A run has all tables; the published table alone (battery_id, node_name, layout, job_Id and five columns of latencies) is
read as samples of the same form.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.report.inputs import read_facts, read_table
from scripts.studies.volumes.series import FACTORS

OPERATIONS = ("sync", "read", "write")
METRICS = ("p50", "p99", "p99.9", "p99.99", "max", "mean", "stddev")
TEXTS = (
    *(*FACTORS, "cell", "node_name", "battery_id", "layout", "job_Id", "status", "reasons", "note", "operation"),
    *("limit", "source", "segment", "first_job", "last_job", "verdict", "reason", "metric", "phase", "method"),
    *("factor", "baseline", "contender", "predicted_job", "observed_job", "text", "volume_type", "omitted", "interval"),
    *("device", "ios_per_write_source", "started_utc", "percentile"),
)
# Columns that call a job by its id: a1 … a5, b1 … as fio_battery.sh does, or as imported results say.
LABELS = ("job_Id", "first_job", "last_job", "predicted_job", "observed_job")
OF_SERIES = ("cells", "verdicts", "segments", "percentiles", "credits", "collapses")
ABSENT = {
    "samples": "There is no table of samples: nothing is drawn from single jobs.",
    "cells": "There is no table of series: latencies merged over the jobs are not known.",
    "verdicts": "There are no verdicts: nothing is said about limits.",
    "segments": "There is no table of segments: changes within a series were not looked for.",
    "percentiles": "There are no percentile curves.",
    "comparisons": "No comparison was made.",
    "credits": "No burst credits were modelled.",
    "collapses": "",
    "matrix": "",
}


class Levels(NamedTuple):
    """The levels of a series; `battery` counts from 1 where a volume was measured again."""

    store: str
    job: str
    background: str
    host: str
    battery: int = 1

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The levels alone, which the tables but the samples have."""
        return self[:4]


@dataclass(frozen=True)
class Results:
    """One study's tables, levels as text; an absent table is empty and has a sentence in `absent`.

    `samples` has, beside the columns of the file, the latency of the operation that the report is about: `operation`,
    N and p50_ms … stddev_ms, `iops` and `mib_s` of reads and writes together, and `minutes` since the battery began.
    """

    samples: pd.DataFrame
    cells: pd.DataFrame
    verdicts: pd.DataFrame
    segments: pd.DataFrame
    percentiles: pd.DataFrame
    comparisons: pd.DataFrame
    credits: pd.DataFrame
    collapses: pd.DataFrame
    matrix: pd.DataFrame
    facts: dict = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @cached_property
    def series(self) -> list[Levels]:
        """The series with a valid job, in the order of the table of series."""
        return [series for series, _ in self.traces]

    @cached_property
    def traces(self) -> list[tuple[Levels, pd.DataFrame]]:
        """Each series with its valid samples in time order."""
        return self._traces(valid=True)

    @cached_property
    def invalid(self) -> list[tuple[Levels, pd.DataFrame]]:
        """The series of batteries that broke a rule of measuring: drawn, and in no verdict."""
        return self._traces(valid=False)

    @cached_property
    def arms(self) -> list[tuple[str, str]]:
        """The volumes: (store, host), which decide colour and marker everywhere."""
        return list(dict.fromkeys((series.store, series.host) for series, _ in [*self.traces, *self.invalid]))

    @property
    def limits(self) -> pd.DataFrame:
        """The limits of the run: limit, metric, limit_ms, source; in the order of the configuration."""
        columns = ["limit", "metric", "limit_ms", "source"]
        if self.verdicts.empty:
            return pd.DataFrame(columns=columns)
        return self.verdicts[columns].drop_duplicates(["limit", "metric", "limit_ms"]).reset_index(drop=True)

    @cached_property
    def _by_series(self) -> dict[str, dict[tuple, pd.DataFrame]]:
        tables = {name: getattr(self, name) for name in OF_SERIES}
        return {
            name: dict(iter(table.groupby(list(FACTORS), sort=False))) if len(table) else {}
            for name, table in tables.items()
        }

    def of(self, table: str, series: Levels) -> pd.DataFrame:
        """Return the rows of a table, by its name, that belong to a series."""
        return self._by_series[table].get(series.key, getattr(self, table).iloc[:0])

    def of_battery(self, table: str, series: Levels) -> pd.DataFrame:
        """Return the rows of a table, by its name, that belong to one battery of a series."""
        rows = self.of(table, series)
        return rows[rows["repeat"] == series.battery] if "repeat" in rows else rows

    def cell(self, series: Levels) -> pd.Series:
        """Return the row of a series in the table of series; empty where there is none."""
        rows = self.of("cells", series)
        return rows.iloc[0] if len(rows) else pd.Series(dtype=object)

    def has_bins(self, series: Levels) -> bool:
        """Return whether a series' percentiles are of merged histograms."""
        return str(self.cell(series).get("interval", "")).startswith("bins")

    def battery(self, series: Levels) -> dict:
        """Return what is known of a series' battery: options, device, volume, versions."""
        batteries = [
            battery
            for battery in self.facts.get("batteries") or []
            if tuple(str(battery.get(factor) or "") for factor in FACTORS) == series.key
        ]
        return batteries[min(series.battery, len(batteries)) - 1] if batteries else {}

    def levels(self, factor: str) -> list[str]:
        """Return the levels of a factor that occur."""
        return list(dict.fromkeys(getattr(series, factor) for series in self.series))

    def _traces(self, valid: bool) -> list[tuple[Levels, pd.DataFrame]]:
        samples = self.samples
        if samples.empty:
            return []
        samples = samples[(samples["valid"] == valid) & (samples["status"] == "done")]
        traces = [
            (Levels(*levels[:4], int(levels[4])), rows.sort_values("number", kind="stable"))
            for levels, rows in samples.groupby([*FACTORS, "repeat"], sort=False)
        ]
        order = {key: place for place, key in enumerate(self.cells[list(FACTORS)].itertuples(index=False, name=None))}
        return sorted(traces, key=lambda trace: (order.get(trace[0].key, len(order)), trace[0].battery))


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what `tables` holds.

    Args:
        tables: the folder of samples.csv and, where a run was measured or imported, of the study's other tables.
        facts: the JSON object that the workflow wrote about batteries, machines and settings.

    Raises:
        Problem: neither samples nor series are there, or samples lack latencies.
    """
    folder = Path(tables)
    frames = {name: read_table(folder / f"{name}.csv", TEXTS) for name in ABSENT}
    if frames["samples"].empty and frames["cells"].empty:
        raise Problem(f"{folder} has neither samples.csv nor cells.csv with rows; measure or import first")
    cells = _complete_cells(frames.pop("cells"))
    samples = _complete_samples(frames.pop("samples"), cells, folder)
    absent = [name for name, table in {"samples": samples, "cells": cells, **frames}.items() if table.empty]
    sentences = tuple(ABSENT[name] for name in ABSENT if name in absent and ABSENT[name])
    run_facts = read_facts(facts)
    numbers = _numbers(samples, run_facts)
    samples, frames = _numbered(samples, numbers), {name: _numbered(table, numbers) for name, table in frames.items()}
    return Results(samples, cells, **frames, facts=run_facts, absent=sentences)


def number_of(job: str, rows: pd.DataFrame) -> int | None:
    """Return which job in time order a job's id is, from the samples of its series."""
    numbers = rows.loc[rows["job_Id"] == job, "number"]
    return int(numbers.iloc[0]) if len(numbers) else None


def _numbers(samples: pd.DataFrame, facts: dict) -> dict[tuple, str]:
    """Return the number of each job by its series and id, of series measured here; imported jobs keep their labels."""
    here = {
        tuple(str(battery.get(factor) or "") for factor in FACTORS)
        for battery in facts.get("batteries") or []
        if battery.get("position") is not None
    }
    columns = [*FACTORS, "job_Id", "number"]
    rows = samples[columns].itertuples(index=False, name=None) if len(samples) else ()
    return {tuple(key): f"{number:.0f}" for *key, number in rows if tuple(key[:-1]) in here}


def _numbered(table: pd.DataFrame, numbers: dict[tuple, str]) -> pd.DataFrame:
    """Call the jobs of a table by their numbers."""
    labels = [name for name in LABELS if name in table] if set(FACTORS) <= set(table) else []
    heads = list(table[list(FACTORS)].itertuples(index=False, name=None)) if labels else []
    named = {
        name: [numbers.get((*head, job), job) for head, job in zip(heads, table[name], strict=True)] for name in labels
    }
    return table.assign(**named)


def _complete_cells(cells: pd.DataFrame) -> pd.DataFrame:
    if cells.empty:
        return pd.DataFrame(columns=[*FACTORS, "operation", "reasons", "n", "failed", "invalid", "edited"])
    for column in (*FACTORS, "operation", "reasons", "note"):
        if column not in cells:
            cells[column] = ""
    for column in ("n", "failed", "invalid", "edited"):
        cells[column] = cells[column].fillna(0).astype(int) if column in cells else 0
    return cells


def _complete_samples(samples: pd.DataFrame, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Give samples of the published columns what ours carry, and all samples the latency that the report is about."""
    if samples.empty:
        return samples
    if "job_Id" not in samples or not any(f"{operation}_lat_p99_ms" in samples for operation in OPERATIONS):
        lacking = "job_Id" if "job_Id" not in samples else "sync_lat_p99_ms"
        raise Problem(f"{folder / 'samples.csv'} lacks the column {lacking}")
    for factor, published in (("store", "layout"), ("host", "node_name"), ("job", ""), ("background", "")):
        if factor not in samples:
            samples[factor] = samples.get(published, "")
    samples["valid"] = samples["valid"].astype(str).str.lower().eq("true") if "valid" in samples else True
    for column, usual in (("status", "done"), ("repeat", 1)):
        samples[column] = samples.get(column, usual)
    keys = [*FACTORS, "repeat"]
    if "number" not in samples:
        samples["number"] = samples.groupby(keys, sort=False).cumcount() + 1
    operation = _operations(samples, cells)
    columns = {"operation": operation}
    for metric in (*(f"lat_{metric}_ms" for metric in METRICS), "N"):
        column = pd.Series(np.nan, index=samples.index)
        for name in OPERATIONS:
            if f"{name}_{metric}" in samples:
                column = column.where(operation != name, samples[f"{name}_{metric}"])
        columns[metric.removeprefix("lat_")] = column
    for total, parts in (("iops", ("read_iops", "write_iops")), ("mib_s", ("read_mib_s", "write_mib_s"))):
        summands = [samples[part] for part in parts if part in samples]
        columns[total] = pd.concat(summands, axis=1).sum(axis=1, min_count=1) if summands else np.nan
    columns["minutes"] = samples["started_s"] / 60 if "started_s" in samples else np.nan
    return samples.assign(**columns)


def _operations(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.Series:
    """The operation of each sample's series: as the table of series says, else the first whose latencies are there."""
    by_cell = {tuple(row[factor] for factor in FACTORS): row["operation"] for row in cells.to_dict("records")}
    operations = pd.Series("", index=samples.index)
    for levels, rows in samples.groupby(list(FACTORS), sort=False):
        measured = (name for name in OPERATIONS if rows.get(f"{name}_lat_p99_ms", pd.Series(dtype=float)).notna().any())
        operations[rows.index] = by_cell.get(levels) or next(measured, OPERATIONS[0])
    return operations
