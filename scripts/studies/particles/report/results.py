"""The tables of the study, and what only this study shows and says of them."""

from pathlib import Path

import numpy as np
import pandas as pd

from scripts.report import prose, results
from scripts.report.markup import code
from scripts.report.results import Results, read_facts
from scripts.studies.particles.methods import METHODS
from scripts.studies.particles.report import MILLION, REPORT, called, counted
from scripts.studies.particles.snapshots import PRESETS

FACTORS = REPORT.names
ALIKE = ("listed", "particles_listed", "empty_s")  # what all samples of a record have
NEEDED = ("cell", "repeat", "iteration", "iteration_s", "chunks", "particles_listed", *FACTORS)


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what `tables` holds; snapshots by name are numbers of particles, as are a user's own that were measured.

    Args:
        tables: the folder of samples.csv, cells.csv, verdicts.csv and matrix.csv.
        facts: the JSON object that the workflow wrote about machine, libraries and settings.

    Raises:
        Problem: there are neither samples nor cells, or samples lack a column.
    """
    folder, run_facts = Path(tables), read_facts(facts)
    frames = results.read_tables(folder, REPORT, (), NEEDED)
    amounts = {name: str(particles) for name, (particles, *_) in PRESETS.items()}
    samples = frames["samples"]
    if len(samples) and len(own := samples[samples["particles"] == "own"]):
        amounts["own"] = str(int(own["particles_listed"].iloc[0]) // int(own["rereads"].iloc[0]))
    for name in ("samples", "cells", "verdicts", "matrix"):
        if "particles" in frames[name]:
            frames[name]["particles"] = frames[name]["particles"].replace(amounts)
    verdicts = frames["verdicts"]
    of_particles = verdicts.get("factor", pd.Series(dtype=str)) == "particles"
    for side in ("baseline", "contender"):
        if of_particles.any():
            verdicts[side] = verdicts[side].where(~of_particles, verdicts[side].replace(amounts))
    return results.complete(frames, _records(frames["samples"]), run_facts, REPORT, folder)


def _records(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per record: cell, repeat, valid, factors, iterations, total_s and the report's values.

    total_s is that of the iterations after the first (of a single one, of that), done the particles that were asked for
    in it.
    """
    if samples.empty:
        columns = ["cell", "repeat", "valid", "control", *FACTORS, "total_s"]
        return pd.DataFrame(columns=columns).astype({"valid": bool})
    keys = ["cell", "repeat"]
    samples = samples.assign(control=samples.get("control", ""))
    iterations = samples.groupby([*keys, "iteration"], sort=False).agg(
        **{"seconds": ("iteration_s", "first"), "most": ("read_s", "max"), "mean": ("read_s", "mean")},
        **{column: (column, "first") for column in ("valid", "control", *FACTORS, *ALIKE)},
    )
    iterations = iterations.reset_index().sort_values([*keys, "iteration"], kind="stable")
    groups = iterations.groupby(keys, sort=False)
    later = iterations[(groups.cumcount() > 0) | (groups["iteration"].transform("size") == 1)].groupby(keys, sort=False)
    records = groups[["valid", "control", *FACTORS, *ALIKE]].first()
    records["iterations"], records["total_s"] = groups.size(), later["seconds"].sum()
    records["iteration_s"] = later["seconds"].median()
    records["done"] = records["particles_listed"] * later.size()
    records["rate"] = records["done"] / MILLION / records["total_s"]
    records["overhead_ms"] = 1000 * records["empty_s"] / records["listed"]
    with_dask = records["method"].map(lambda name: METHODS[name].dask if name in METHODS else False)
    records["spread"] = (later["most"].max() / later["mean"].mean()).where(with_dask)
    return records.replace([np.inf, -np.inf], np.nan).reset_index()


def taken_for_one(run: Results) -> list[str]:
    """Return a sentence for each cell whose equal tasks ran once: what was listed, and what was read."""
    pure = [name for name, method in METHODS.items() if method.pure]
    cells = run.measured[run.measured["method"].isin(pure)]
    lines = []
    for cell in cells.to_dict("records"):
        listed, read = (
            run.samples[run.samples["cell"] == cell["cell"]].groupby(["repeat", "iteration"])[name]
            for name in ("listed", "chunks")
        )
        what = f"{called(cell)}, {counted(cell['particles'])} particles"
        lines.append(
            f"{what}: {listed.first().max():,.0f} chunks were listed and {read.sum().max():,.0f} read: Dask takes "
            "tasks that read the same for one. Its time is not that of reading what was listed."
        )
    return lines


def in_words(run: Results) -> list[str]:
    """Return a sentence for each method of the run."""
    there = set(run.cells["method"])
    return [f"{code(name)}: {method.described}." for name, method in METHODS.items() if name in there]


def limits(run: Results) -> list[str]:
    """Return what only this study's data cannot say."""
    pure = run.measured["method"].map(lambda name: name in METHODS and METHODS[name].pure).astype(bool)
    again = run.measured[(run.measured["rereads"] != "1") & ~pure]
    lines = ["All processes ran on one machine: what they send each other does not cross a network."]
    if len(again):
        many = prose.count(len(again), "cell")
        lines.append(f"In {many} chunks were read more than once: after the first time their bytes were warm.")
    if run.facts.get("not_printed"):
        lines.append(f"The published timings are not shown: {run.facts['not_printed']}.")
    return lines
