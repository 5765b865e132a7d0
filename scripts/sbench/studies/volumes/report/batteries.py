"""Load the tables of the study, measured, imported or published (only nine columns of samples), by battery."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.pages import results, run_files
from sbench.pages.run_files import is_true, read_facts, read_table
from sbench.probe.program import Problem
from sbench.studies.volumes.credits import NO_CREDITS
from sbench.studies.volumes.fio_output import OPERATIONS
from sbench.studies.volumes.report import REPORT
from sbench.studies.volumes.report.statements import Jobs, Levels, Ratio
from sbench.studies.volumes.series import FACTORS

LATENCIES = ("p50", "p99", "p99.9", "p99.99", "max", "mean", "stddev")
# The meaning of empty tables, with a remedy.
_ABSENT = {
    "samples": "single jobs are unknown; measure or import again",
    "cells": "jobs are not summarised by series; build the tables again",
    "verdicts": "no limit is judged; add limits for these operations",
    "segments": "changes of level are unknown; build the tables again",
    "percentiles": "percentile curves are unknown; run fio with --output-format=json+",
    "comparisons": "nothing is compared; add a second volume or a background load",
    "credits": "burst credits are not modelled; add size_gib to the volume",
}
# Columns with the names of jobs in imported results, a1 … a5, b1 …; jobs measured here have numbers only.
LABELS = ("job_Id", "first_job", "last_job", "predicted_job", "observed_job")
TEXTS = (
    *(*REPORT.names, *run_files.TEXTS, *LABELS, "node_name", "battery_id", "layout", "operation", "limit", "source"),
    *("segment", "reason", "method", "interval", "text", "volume_type"),
)
TABLES = ("samples", "cells", "verdicts", "segments", "percentiles", "comparisons", "credits", "collapses", "matrix")


@dataclass(frozen=True, eq=False)
class Trace:
    """A battery: its levels by factor, its number if a volume was measured again, its jobs in time order."""

    levels: dict[str, str]
    repeat: int
    jobs: pd.DataFrame

    @property
    def volume(self) -> tuple[str, str]:
        """Return the volume and its host."""
        return self.levels["store"], self.levels["host"]

    @property
    def times(self) -> pd.Series:
        """Return the positions of jobs on the axis of time, by their numbers."""
        return self.jobs.set_index("number")["time"]

    @property
    def seconds(self) -> float:
        """Return the time from the start of the first job to the end of the last; NaN if unknown."""
        last = self.jobs.iloc[-1]
        return 60 * last["minutes"] + last.get("runtime_s", 0.0)


@dataclass(frozen=True, eq=False)
class Results(results.Results):
    """The tables of the study; `verdicts` are the verdicts on comparisons.

    `samples` adds to the columns of the file the latency of the operation that the report is about: `operation`, N and
    p50_ms … stddev_ms, `iops` and `mib_s` of reads and writes together, `device_iops`, `minutes` since the battery
    began, `time` (minutes, or the number of the job), and modelled burst credits at its start, `credits_million`.
    `limits` are the verdicts on limits, with the jump of each segment; `traces` the valid batteries, in the order of
    the samples; `invalid_traces` broke a rule of measuring and are in figures, but in no verdict.
    """

    limits: pd.DataFrame = field(default_factory=pd.DataFrame)
    segments: pd.DataFrame = field(default_factory=pd.DataFrame)
    percentiles: pd.DataFrame = field(default_factory=pd.DataFrame)
    collapses: pd.DataFrame = field(default_factory=pd.DataFrame)
    traces: list[Trace] = field(default_factory=list)
    invalid_traces: list[Trace] = field(default_factory=list)

    @cached_property
    def traces_by_job(self) -> dict[str, list[Trace]]:
        """Return the valid batteries by their fio job."""
        jobs = dict.fromkeys(trace.levels["job"] for trace in self.traces)
        return {job: [trace for trace in self.traces if trace.levels["job"] == job] for job in jobs}

    @property
    def time_title(self) -> str:
        """Return the title of the axis of time."""
        minutes = self.samples["minutes"].notna().all()
        return "Minutes since the battery's first job began" if minutes else "Number of the job"

    @property
    def changes(self) -> pd.DataFrame:
        """Return the segments that follow another segment."""
        return self.segments[self.segments["jump"].notna()] if len(self.segments) else self.segments

    @cached_property
    def checks(self) -> Jobs:
        """Return the jobs against which statements are checked."""
        return Jobs(self.samples)

    @property
    def is_checked(self) -> bool:
        """Return whether jobs are available."""
        return bool(self.checks)

    def to_comparisons(self, rows: pd.DataFrame) -> tuple[Ratio, ...]:
        """Convert comparisons, rows of `get_comparisons`, to the form for statements."""
        return tuple(
            Ratio(
                *(_get_levels(row | {row["factor"]: row[side]}) for side in ("baseline", "contender")),
                column=row["metric"] if (is_rate := row["metric"] == "iops") else f"{row['metric']}_ms",
                part=row["phase"],
                outcome=row["verdict"],
                values=tuple(float(row.get(f"{side}_value", np.nan)) for side in ("baseline", "contender")),
                ratio=float(row["ratio"]),
                low=float(row["ratio_low"]),
                high=float(row["ratio_high"]),
                more_is_faster=is_rate,
            )
            for row in rows.to_dict("records")
        )

    @property
    def has_credits(self) -> bool:
        """Return whether a volume of the run has burst credits, or may have."""
        return "credits_million" in self.samples or _has_credits(self.collapses)

    def has_bins(self, trace: Trace) -> bool:
        """Return whether the percentiles of a battery's series come from merged histograms."""
        cells = select_rows(self.cells, trace.levels)
        return bool(len(cells)) and str(cells.iloc[0].get("interval", "")).startswith("bins")

    @cached_property
    def options(self) -> dict[tuple[str, ...], dict]:
        """Return fio's options by store, job and background."""
        batteries = self.facts.get("batteries") or []
        return {tuple(str(one.get(name) or "") for name in FACTORS[:3]): one.get("options") or {} for one in batteries}


def _has_credits(collapses: pd.DataFrame) -> bool:
    return len(collapses) > 0 and not collapses["text"].str.contains(NO_CREDITS, regex=False).all()


def _get_levels(row: Mapping[str, str]) -> Levels:
    return tuple((name, row[name]) for name in FACTORS)


def select_rows(table: pd.DataFrame, levels: Mapping[str, str], repeat: int = 0) -> pd.DataFrame:
    """Return the rows of a series, or of a single battery of it if the table has batteries."""
    if table.empty:
        return table
    rows = table[(table[list(FACTORS)] == [levels[name] for name in FACTORS]).all(axis=1)]
    return rows[rows["repeat"] == repeat] if repeat and "repeat" in rows else rows


def load_results(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load the tables in a folder, and `facts`, the JSON object that the workflow wrote about the run."""
    folder, run_facts = Path(tables), read_facts(facts)
    frames = {name: read_table(folder / f"{name}.csv", TEXTS) for name in TABLES}
    # Old tables lack levels of credits.
    frames = {name: table.assign(start_credits=table.get("start_credits", "")) for name, table in frames.items()}
    if frames["samples"].empty and frames["cells"].empty:
        raise run_files.build_absence_problem(folder)
    relevant = [name for name in _ABSENT if name != "credits" or _has_credits(frames["collapses"])]
    absent = tuple(f"{name}.csv has no rows: {_ABSENT[name]}." for name in relevant if frames[name].empty)
    if not any(battery.get("position") is None for battery in run_facts.get("batteries") or [{}]):
        frames = {name: table.assign(**{one: "" for one in LABELS if one in table}) for name, table in frames.items()}
    samples = _complete_samples(frames["samples"], frames["cells"], folder)
    if len(samples) and len(credits := frames["credits"]):
        keys = [name for name in (*FACTORS, "repeat", "number") if name in credits]
        credits = credits.assign(credits_million=credits["credits_start"] / 1e6)
        samples = samples.merge(credits[[*keys, "credits_million", "modelled_iops"]], on=keys, how="left")
    columns = ["cell", *REPORT.names, "repeat", "valid"]
    records = samples.reindex(columns=columns).drop_duplicates().astype({"valid": bool})
    cells = results.complete_cells(frames["cells"], records, REPORT)
    limits, keys = frames["verdicts"], [*FACTORS, "segment"]
    if len(limits):
        jumps = frames["segments"].reindex(columns=[*keys, "jump", "jump_low", "jump_high", "first_number"])
        limits = limits.merge(jumps, on=keys, how="left")
    traces: dict[bool, list[Trace]] = {True: [], False: []}
    done = samples[samples["status"] == "done"] if len(samples) else samples
    for (*levels, repeat, valid), rows in done.groupby([*FACTORS, "repeat", "valid"], sort=False) if len(done) else ():
        levels = dict(zip(FACTORS, levels, strict=True))
        traces[bool(valid)].append(Trace(levels, int(repeat), rows.sort_values("number", kind="stable")))
    tables = {name: frames[name] for name in ("matrix", "segments", "percentiles", "collapses")}
    tables |= {
        "samples": samples,
        "cells": cells,
        "verdicts": _convert_to_verdicts(frames["comparisons"]),
        "limits": limits,
    }
    rest = {"facts": run_facts, "absent": absent, "report": REPORT, "records": records}
    return Results(**tables, **rest, traces=traces[True], invalid_traces=traces[False])


def _convert_to_verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of verdicts on blocks to comparisons; drop "all" of changed series, whose phases show more."""
    if rows.empty:
        return rows
    phases = rows.groupby(["factor", "baseline", "contender", *FACTORS], sort=False)["phase"].transform("nunique")
    rows = rows[(rows["phase"] != "all") | (phases == 1)]
    jobs = rows[["n_baseline", "n_contender"]].min(axis=1)
    return rows.assign(blocks=jobs, detectable_ratio=np.nan, role="", note=rows["method"])


def _complete_samples(samples: pd.DataFrame, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add the columns that published samples lack, and to all samples the latency that the report is about."""
    if samples.empty:
        return samples
    p99 = samples.reindex(columns=[f"{one}_lat_p99_ms" for one in OPERATIONS]).set_axis(OPERATIONS, axis=1).notna()
    latencies = {f"{one}_lat_{name}_ms" for one in OPERATIONS for name in LATENCIES}
    if "job_Id" not in samples or latencies.isdisjoint(samples):
        lacks = "sync_lat_p99_ms" if "job_Id" in samples else "job_Id"
        raise Problem(f"{folder / 'samples.csv'} lacks the column {lacks}")
    layout = samples.get("layout", "")
    usual = dict.fromkeys(REPORT.names, "") | {"store": layout, "cell": layout, "host": samples.get("node_name", "")}
    usual |= {"valid": True, "status": "done", "repeat": 1}
    samples = samples.assign(**{column: value for column, value in usual.items() if column not in samples})
    if "number" not in samples:
        samples["number"] = samples.groupby([*FACTORS, "repeat"], sort=False).cumcount() + 1
    # Take the operation from the table of series, else the first with latencies in the series.
    operation = p99.groupby([samples[name] for name in FACTORS], sort=False).transform("any").idxmax(axis=1).to_numpy()
    if "operation" in cells:
        stated = samples[list(FACTORS)].merge(cells[[*FACTORS, "operation"]], how="left")["operation"].fillna("")
        operation = np.where(stated != "", stated, operation)

    def select_column(name: str) -> np.ndarray:
        columns = samples.reindex(columns=[f"{one}_{name}" for one in OPERATIONS]).to_numpy(float).T
        return np.select([operation == one for one in OPERATIONS], list(columns), np.nan)

    def compute_total(*parts: str) -> pd.Series:
        return samples.reindex(columns=parts).astype(float).sum(axis=1, min_count=1)

    seconds, minutes = compute_total("runtime_s"), compute_total("started_s") / 60
    return samples.assign(
        valid=is_true(samples["valid"]),
        operation=operation,
        N=select_column("N"),
        **{f"{name}_ms": select_column(f"lat_{name}_ms") for name in LATENCIES},
        iops=compute_total("read_iops", "write_iops"),
        mib_s=compute_total("read_mib_s", "write_mib_s"),
        device_iops=compute_total("device_read_ios", "device_write_ios") / seconds,
        minutes=minutes,
        time=minutes if minutes.notna().all() else samples["number"].astype(float),
    )
