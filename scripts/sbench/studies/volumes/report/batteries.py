"""Load the tables of the volumes study for its report, and split the samples by battery.

The data may be measured, imported or published. Published samples have only nine columns.
"""

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
# Messages about empty tables: the consequence and the remedy.
_ABSENT = {
    "samples": "single jobs are unknown; measure or import again",
    "cells": "jobs are not summarised by series; build the tables again",
    "verdicts": "no limit is judged; add limits for these operations",
    "segments": "changes of level are unknown; build the tables again",
    "percentiles": "percentile curves are unknown; run fio with --output-format=json+",
    "comparisons": "nothing is compared; add a second volume or a background load",
    "credits": "burst credits are not modelled; add size_gib to the volume",
}
# Columns with job names such as a1 … a5, b1 … of imported results; jobs measured here are shown by number only.
LABELS = ("job_Id", "first_job", "last_job", "predicted_job", "observed_job")
TEXTS = (
    *(*REPORT.names, *run_files.TEXTS, *LABELS, "node_name", "battery_id", "layout", "operation", "limit", "source"),
    *("segment", "reason", "method", "interval", "text", "volume_type"),
)
TABLES = ("samples", "cells", "verdicts", "segments", "percentiles", "comparisons", "credits", "collapses", "matrix")


@dataclass(frozen=True, eq=False)
class Trace:
    """A battery (a series of fio jobs) as shown in the report.

    Attributes:
        levels: level of each factor.
        repeat: number of the battery within its series.
        jobs: samples of its jobs in time order.
    """

    levels: dict[str, str]
    repeat: int
    jobs: pd.DataFrame

    @property
    def volume(self) -> tuple[str, str]:
        """Return the name of the volume and of the host."""
        return self.levels["store"], self.levels["host"]

    @property
    def times(self) -> pd.Series:
        """Return the positions of the jobs on the time axis, indexed by job number."""
        return self.jobs.set_index("number")["time"]

    @property
    def seconds(self) -> float:
        """Return the seconds from the start of the first job to the end of the last; NaN if unknown."""
        last = self.jobs.iloc[-1]
        return 60 * last["minutes"] + last.get("runtime_s", 0.0)


@dataclass(frozen=True, eq=False)
class Results(results.Results):
    """The tables of a run of the volumes study. The inherited `verdicts` are those on comparisons.

    The inherited `samples` have additional columns for the operation whose latency is reported: `operation`, N and
    p50_ms … stddev_ms. Further columns are `iops` and `mib_s` (reads plus writes), `device_iops`, `minutes` since the
    start of the battery, `time` (minutes, or job numbers), and `credits_million` (modelled credits as the job starts).

    Attributes:
        limits: verdicts on latency limits, with the jump of each segment.
        segments: segments of constant latency level.
        percentiles: percentile curves.
        collapses: a row per battery on a volume of known type, with the modelled and observed end of burst credits.
        traces: valid batteries, in the order of the samples.
        invalid_traces: batteries that violate a measurement rule; they appear in plots, but not in verdicts.
    """

    limits: pd.DataFrame = field(default_factory=pd.DataFrame)
    segments: pd.DataFrame = field(default_factory=pd.DataFrame)
    percentiles: pd.DataFrame = field(default_factory=pd.DataFrame)
    collapses: pd.DataFrame = field(default_factory=pd.DataFrame)
    traces: list[Trace] = field(default_factory=list)
    invalid_traces: list[Trace] = field(default_factory=list)

    @cached_property
    def traces_by_job(self) -> dict[str, list[Trace]]:
        """Return the valid batteries, grouped by fio job."""
        jobs = dict.fromkeys(trace.levels["job"] for trace in self.traces)
        return {job: [trace for trace in self.traces if trace.levels["job"] == job] for job in jobs}

    @property
    def time_title(self) -> str:
        """Return the title of the time axis."""
        minutes = self.samples["minutes"].notna().all()
        return "Minutes since the battery's first job began" if minutes else "Number of the job"

    @property
    def changes(self) -> pd.DataFrame:
        """Return all segments that begin with a change of the latency level, not with the battery."""
        return self.segments[self.segments["jump"].notna()] if len(self.segments) else self.segments

    @cached_property
    def checks(self) -> Jobs:
        """Return the jobs that statements are verified against."""
        return Jobs(self.samples)

    @property
    def is_checked(self) -> bool:
        """Return whether samples are available to verify statements."""
        return bool(self.checks)

    def to_comparisons(self, rows: pd.DataFrame) -> tuple[Ratio, ...]:
        """Convert rows of `get_comparisons` to statements that can be verified."""
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
        """Return whether any volume of the run has, or may have, burst credits."""
        return "credits_million" in self.samples or _has_credits(self.collapses)

    def has_bins(self, trace: Trace) -> bool:
        """Return whether the percentiles of a battery's series were computed from merged histograms."""
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
    """Select the rows of a series, or of a single battery if `repeat` is given and the table has that column."""
    if table.empty:
        return table
    rows = table[(table[list(FACTORS)] == [levels[name] for name in FACTORS]).all(axis=1)]
    return rows[rows["repeat"] == repeat] if repeat and "repeat" in rows else rows


def load_results(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load the tables in a directory, and `facts`, a JSON file about the run that the workflow wrote.

    Raises:
        Problem: there are neither samples nor cells, or the samples lack a required column.
    """
    folder, run_facts = Path(tables), read_facts(facts)
    frames = {name: read_table(folder / f"{name}.csv", TEXTS) for name in TABLES}
    # Tables of older versions lack the factor start_credits.
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
    """Add the columns that the shared code for reports requires in a table of verdicts.

    Comparisons of all jobs are dropped if there are comparisons of phases, which are more informative.
    """
    if rows.empty:
        return rows
    phases = rows.groupby(["factor", "baseline", "contender", *FACTORS], sort=False)["phase"].transform("nunique")
    rows = rows[(rows["phase"] != "all") | (phases == 1)]
    jobs = rows[["n_baseline", "n_contender"]].min(axis=1)
    return rows.assign(blocks=jobs, detectable_ratio=np.nan, role="", note=rows["method"])


def _complete_samples(samples: pd.DataFrame, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Add columns for the reported operation to the samples, and columns that published samples lack.

    Raises:
        Problem: the samples lack job ids or latencies.
    """
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
    # Use the operation stated in the table of cells, or else the first with latencies in the series.
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
