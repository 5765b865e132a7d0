"""The tables of one study as a report reads them: what is there, and a sentence for each part that is not.

A measured run has samples, cells, verdicts and matrix; a published study has samples alone, with the twelve published
columns. Both end here in the same form.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.report import results
from scripts.report.inputs import read_facts, read_table
from scripts.studies.shots.report import REPORT

FACTORS = ("library", "store", "driver", "layout", "access", "workers", "page_buffer", "cache")
PLACE = ("store", "driver", "cache")
KEYS = (*FACTORS, "control", "cell", "baseline", "contender", "obj-id", "omitted", "twin_of", "reasons", "note", "hdf5")
ABSENT = {
    "samples": "There is no table of samples: nothing is drawn from single tasks.",
    "cells": "There is no table of cells: medians are taken from the samples, without intervals, requests or phases.",
    "verdicts": "There are no verdicts: these data have no repeated blocks, so differences are shown and not judged.",
    "matrix": "There is no table of the matrix: cells that were left out are not known.",
}


@dataclass(frozen=True)
class Results(results.Results):
    """The tables of the study, and its records."""

    @cached_property
    def records(self) -> pd.DataFrame:
        """A row a record that was done: cell, factors, repeat, valid, total_s, and phases where measured.

        open_s is the mean of the record's opens, first_s its tasks' median first dataset, rest_s the sum of all
        other reads, in seconds.
        """
        if self.samples.empty:
            empty = pd.DataFrame(columns=["cell", *FACTORS, "repeat", "valid", "total_s"])
            return empty.astype({"valid": bool, "total_s": float})
        samples = self.samples
        groups = samples.groupby(["cell", "repeat"], sort=False, observed=True)
        records = groups[[*FACTORS, "valid", "total-runtime"]].first().rename(columns={"total-runtime": "total_s"})
        if "open-time" in samples:
            sums = groups[["open-time", "opens", "rest-time", "num-dsets", "first-dset-time"]].sum()
            records["open_s"] = sums["open-time"] / sums["opens"]
            records["open_sum_s"], records["first_sum_s"] = sums["open-time"], sums["first-dset-time"]
            records["first_s"] = groups["first-dset-time"].median()
            records["rest_s"] = sums["rest-time"]
            records["later_s"] = sums["rest-time"] / (sums["num-dsets"] - groups.size()).clip(lower=1)
        return records.reset_index()

    def levels(self, factor: str) -> list[str]:
        """Return the levels of a factor as measured: in the order of the cells, numbers by size."""
        levels = [level for level in self.measured[factor].unique() if level]
        return sorted(levels, key=float) if all(map(_is_number, levels)) else levels

    @property
    def arms(self) -> list[str]:
        """The levels of `library`, which decide colour and marker everywhere."""
        return self.levels("library") or [""]


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what `tables` holds.

    Args:
        tables: the folder of samples.csv and, where a run was measured, cells.csv, verdicts.csv and matrix.csv.
        facts: the JSON object that the workflow wrote about machine, libraries and settings.

    Raises:
        Problem: neither samples nor cells are there, or samples lack published columns.
    """
    folder = Path(tables)
    found = {name: read_table(folder / f"{name}.csv", KEYS) for name in ABSENT}
    if found["samples"].empty and found["cells"].empty:
        raise Problem(f"{folder} has neither samples.csv nor cells.csv with rows; measure first")
    told = read_facts(facts)
    samples = _complete_samples(found["samples"], told, folder)
    cells = _complete_cells(found["cells"], samples)
    samples = _with_effective_buffer(samples, cells)
    if len(samples) and not cells["workers"].map(_is_number).all():
        # "2x" is said of cores; what ran is a number.
        ran = samples.groupby("cell")["num-workers"].first().astype(str)
        cells["workers"] = cells["cell"].map(ran).fillna(cells["workers"])
        samples["workers"] = samples["num-workers"].astype(str)
    verdicts, matrix = found["verdicts"], found["matrix"]
    for column in (*FACTORS, "note"):
        if len(verdicts) and column not in verdicts:
            verdicts[column] = ""
    absent = tuple(sentence for name, sentence in ABSENT.items() if found[name].empty)
    return Results(samples, cells, verdicts, matrix, told, absent, REPORT)


def effective_buffer(asked: int, page_size: int) -> int:
    """Return the page buffer, in bytes, that HDF5 makes of a request: whole pages, one at the least; 0 stays 0."""
    return asked if asked <= 0 or not page_size else max(asked // page_size, 1) * page_size


def buffer_label(size: int) -> str:
    """Return a page buffer's size in the unit in which it is a whole number, as in 264MB, 64MiB, off, unset."""
    if size < 0:
        return "unset"
    for unit, name in ((2**20, "MiB"), (10**6, "MB")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B" if size else "off"


def describe_object_times(samples: pd.DataFrame, by: tuple[str, ...] = ("buffer", "workers")) -> pd.DataFrame:
    """Return count, mean, std, min, quartiles and max of `mean-obj-time` in s by the columns `by`, numbers by size."""
    table = samples.groupby(list(by), sort=False, observed=True)["mean-obj-time"].describe()
    table["count"] = table["count"].astype(int)
    return table.loc[sorted(table.index, key=in_order)]


def numbers(column: pd.Series) -> pd.Series:
    """Return a column as numbers; NaN where repeats of a cell disagreed ("0 | 1") or nothing is known."""
    return pd.to_numeric(column, errors="coerce")


def in_order(levels: object) -> list[tuple]:
    """Return a sort key of one level or a tuple of levels: numbers by size and before words."""
    levels = levels if isinstance(levels, tuple) else (levels,)
    return [(0, float(level), "") if _is_number(level) else (1, 0.0, str(level)) for level in levels]


def _complete_samples(samples: pd.DataFrame, facts: dict, folder: Path) -> pd.DataFrame:
    """Give samples of the twelve published columns the factors, cells and repeats that ours carry."""
    if samples.empty:
        return samples
    needed = ("obj-type", "num-workers", "pb-size", "total-runtime", "mean-obj-time")
    if lacking := [column for column in needed if column not in samples]:
        raise Problem(f"{folder / 'samples.csv'} lacks the column {lacking[0]}")
    samples["valid"] = samples["valid"].astype(str).str.lower().eq("true") if "valid" in samples else True
    if "cell" in samples:
        return samples
    page_size = int(facts.get("settings", {}).get("page_size") or 0)
    for factor in FACTORS:
        if factor not in samples:
            samples[factor] = ""
    samples["access"], samples["workers"] = samples["obj-type"], samples["num-workers"].astype(str)
    sizes = {size: buffer_label(effective_buffer(int(size), page_size)) for size in samples["pb-size"].unique()}
    samples["page_buffer"] = samples["buffer"] = samples["pb-size"].map(sizes)
    samples["cell"] = samples[list(FACTORS)].apply(lambda row: "_".join(filter(None, row)), axis=1)
    samples["repeat"] = samples.groupby("cell", observed=True)["total-runtime"].rank("dense").astype(int)
    return samples


def _with_effective_buffer(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Add `buffer`: the effective page buffer of the sample's cell where that was read back, else the level asked."""
    if samples.empty or "buffer" in samples:
        return samples
    labels = dict(zip(cells["cell"], cells["page_buffer"], strict=True))
    if "page_buffer_bytes" in cells:
        known = cells[numbers(cells["page_buffer_bytes"]).notna()]
        labels |= {
            cell: buffer_label(int(size)) for cell, size in zip(known["cell"], known["page_buffer_bytes"], strict=True)
        }
    return samples.assign(buffer=samples["cell"].map(labels))


def _complete_cells(cells: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    if cells.empty:
        first = samples[samples["valid"]].groupby(["cell", "repeat"], sort=False)[[*FACTORS, "total-runtime"]].first()
        cells = first.groupby("cell", sort=False)[list(FACTORS)].first()
        cells["n"] = first.groupby("cell").size()
        cells["total_s"] = first.groupby("cell")["total-runtime"].median()
        cells = cells.reset_index()
    for factor in (*FACTORS, "control", "reasons"):
        if factor not in cells:
            cells[factor] = ""
    for column in ("n", "failed", "invalid", "edited"):
        if column not in cells:
            cells[column] = 0
    for column in ("total_s", "total_s_low", "total_s_high"):
        if column not in cells:
            cells[column] = np.nan
    return cells


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
