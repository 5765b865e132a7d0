"""Load the tables of a measured run or of the published study, whose samples have only twelve columns."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from sbench.pages import prose, results, run_files
from sbench.pages.page import Table
from sbench.pages.run_files import read_facts
from sbench.studies.shots.report import REPORT, words

FACTORS = REPORT.names
NEEDED = ("obj-type", "num-workers", "pb-size", "total-runtime", "mean-obj-time")
PARTS = {"open_sum_s": "opening", "first_sum_s": "first dataset of a task", "rest_s": "all other datasets"}
DESCRIBED = ("mean", "std", "min", "25%", "50%", "75%", "max")


def load_results(tables: Path | str, facts: Path | str | None = None) -> results.Results:
    """Load the results in the directory `tables`.

    Args:
        tables: directory with samples.csv and, for a measured run, cells.csv, verdicts.csv and matrix.csv.
        facts: path of the workflow's JSON file about the machine, libraries and settings.

    Raises:
        Problem: samples and cells are both missing, or samples lack columns of the published study.
    """
    folder, run_facts = Path(tables), read_facts(facts)
    frames = run_files.read_tables(folder, REPORT, ("obj-id",), NEEDED)
    frames["samples"] = _add_factors(frames["samples"], run_facts)
    run = results.build_results(frames, _compute_records, run_facts, REPORT, folder)
    samples, cells, records = run.samples, run.cells, run.records
    if len(samples) and not cells["workers"].str.isdigit().all():
        # A level such as "2x" is a multiple of the cores: replace it by the number of workers.
        ran = samples.groupby("cell")["num-workers"].first().astype(str)
        cells["workers"] = cells["cell"].map(ran).fillna(cells["workers"])
        for table in (samples, records):
            table["workers"] = table["cell"].map(ran)
    return replace(run, samples=_add_effective_buffer(samples, cells))


def build_described_table(run: results.Results, access: str) -> Table:
    """Build a table that summarises mean-obj-time with pandas' `describe()`, as the published study does."""
    table = compute_object_times(run, access).reset_index()
    table = table.rename(columns={column: column.replace("_", " ") for column in table} | {"buffer": "page buffer"})
    caption = words.fill("table of object times", access=run.names.format_level("access", access))
    shown = table.rename(columns={column: f"{column} / s" for column in DESCRIBED})
    formats = dict.fromkeys((f"{column} / s" for column in DESCRIBED), prose.format_number)
    return Table(f"object-times-described-{access}", caption, shown, formats, numbers=table)


def compute_object_times(run: results.Results, access: str) -> pd.DataFrame:
    """Summarise mean-obj-time in seconds for each combination of page buffer, worker count and other varying factors.

    The columns are count, mean, std, min, quartiles and max.
    """
    samples = run.samples
    if samples.empty:
        return samples
    samples = samples[samples["valid"] & samples["cell"].isin(run.measured["cell"]) & (samples["access"] == access)]
    factors = run.select_varying_factors(
        samples, [name for name in FACTORS if name not in ("access", "page_buffer", "workers")]
    )
    keys = [*factors, "buffer", "workers"]
    table = samples.groupby(keys, sort=False, observed=True)["mean-obj-time"].describe().astype({"count": int})
    return run.names.sort_rows(table.reset_index(), keys).set_index(keys)


def compute_effective_buffer(requested: int, page_size: int) -> int:
    """Round the size of a page buffer in bytes as HDF5 does: down to whole pages, but to at least one page.

    A size of 0 (off) or less (unset) is returned unchanged.
    """
    return requested if requested <= 0 or not page_size else max(requested // page_size, 1) * page_size


def format_buffer(size: int) -> str:
    """Format the size of a page buffer as an integer with a unit ("264MB", "64MiB"), or as "off" or "unset"."""
    if size < 0:
        return "unset"
    for unit, name in ((2**20, "MiB"), (10**6, "MB")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B" if size else "off"


def _compute_records(samples: pd.DataFrame) -> pd.DataFrame:
    """Aggregate samples into a row per record, with cell, repeat, validity, factors, and the total time and its parts.

    The parts are in seconds. open_sum_s, first_sum_s and rest_s are sums over the record's tasks. first_s is the median
    time of a task's first dataset, and later_s is the mean time of all other datasets.
    """
    groups = samples.groupby(["cell", "repeat"], sort=False, observed=True)
    records = groups[[*FACTORS, "valid", "total-runtime"]].first().rename(columns={"total-runtime": "total_s"})
    if "open-time" in samples:
        sums = groups[["open-time", "first-dset-time", "rest-time", "num-dsets"]].sum()
        records[[*PARTS]] = sums[["open-time", "first-dset-time", "rest-time"]]
        records["first_s"] = groups["first-dset-time"].median()
        records["later_s"] = sums["rest-time"] / (sums["num-dsets"] - groups.size()).clip(lower=1)
    return records


def _add_factors(samples: pd.DataFrame, facts: dict) -> pd.DataFrame:
    """Add columns with factors, cells and repeats to samples that have only the twelve published columns."""
    if samples.empty or "cell" in samples:
        return samples
    page_size = int(facts.get("settings", {}).get("page_size") or 0)
    for factor in FACTORS:
        if factor not in samples:
            samples[factor] = ""
    samples["access"], samples["workers"] = samples["obj-type"], samples["num-workers"].astype(str)
    sizes = {
        size: format_buffer(compute_effective_buffer(int(size), page_size)) for size in samples["pb-size"].unique()
    }
    samples["page_buffer"] = samples["buffer"] = samples["pb-size"].map(sizes)
    samples["cell"] = samples[list(FACTORS)].apply(lambda row: "_".join(filter(None, row)), axis=1)
    samples["repeat"] = samples.groupby("cell", observed=True)["total-runtime"].rank("dense").astype(int)
    return samples


def _add_effective_buffer(samples: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Add a column `buffer` with the page buffer as read back, or as requested if it was not read back."""
    if samples.empty or "buffer" in samples:
        return samples
    labels = dict(zip(cells["cell"], cells["page_buffer"], strict=True))
    if "page_buffer_bytes" in cells:
        sizes = pd.to_numeric(cells.set_index("cell")["page_buffer_bytes"], errors="coerce").dropna()
        labels |= {cell: format_buffer(int(size)) for cell, size in sizes.items()}
    return samples.assign(buffer=samples["cell"].map(labels))
