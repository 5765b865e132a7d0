"""Load the results of the arrays study, and build the tables and sentences that only its report has."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from sbench.pages import cell_tables, names, prose, results, run_files
from sbench.pages.declaration import Column
from sbench.pages.headline import Sentence
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts
from sbench.studies.arrays.pieces import TRIALS, parse_shape
from sbench.studies.arrays.report import BACKENDS, MIB, REPORT, words

FACTORS = REPORT.names
NEEDED = ("cell", "repeat", "total_s", *FACTORS)
OF_SERVICE = (
    ("CPU of the service node / s", "service_node_cpu_s", 1),
    ("CPU of the busiest data node / s", "data_node_cpu_s", 1),
    ("CPU of all data nodes / s", "data_nodes_cpu_s", 1),
    ("peak memory of the service node / MiB", "service_node_peak_bytes", MIB),
    ("peak memory of the largest data node / MiB", "data_node_peak_bytes", MIB),
)


def load_results(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load the results of a run.

    Args:
        tables: directory of the CSV tables.
        facts: JSON file with the workflow's facts about the run, if any.

    Raises:
        Problem: samples and cells are both missing, or samples lack a column.
    """
    folder = Path(tables)
    frames = run_files.read_tables(folder, REPORT, (), NEEDED)
    # The times of trials are not compared; the module `trials` reports their outcomes.
    tried = {name: frames[name].get("operation", pd.Series(dtype=str)).isin(TRIALS) for name in ("samples", "cells")}
    frames["samples"] = frames["samples"][~tried["samples"]]
    times = [name for name in frames["cells"] if name.startswith("total_s")]
    frames["cells"].loc[tried["cells"], times] = float("nan")
    return results.build_results(frames, _compute_records, read_facts(facts), REPORT, folder)


def _compute_records(samples: pd.DataFrame) -> pd.DataFrame:
    """Aggregate samples into one row per record, indexed by cell and repeat.

    Returns:
        A DataFrame with validity, control, the factors, `total_s`, `bytes`, and the rates in MiB/s.
    """
    samples = samples.assign(control=samples.get("control", ""))
    groups = samples.groupby(results.RECORD, sort=False)
    records = groups[["valid", "control", *FACTORS, "total_s"]].first()
    records["bytes"] = groups["bytes"].sum()
    records["rate"] = records["bytes"] / MIB / records["total_s"]
    records["acknowledged_s"] = groups["acknowledged_s"].first() if "acknowledged_s" in samples else float("nan")
    records["acknowledged_rate"] = records["bytes"] / MIB / records["acknowledged_s"]
    return records


def describe_acknowledged(run: Results) -> Iterator[Sentence]:
    """Yield sentences that compare the HSDS write rate until acknowledgement with the rate until data are stored."""
    cells = run.measured
    written = cells[(cells["backend"] == "hsds") & (cells["operation"] == "write") & cells["acknowledged_rate"].notna()]
    for (store, compression), alike in written.groupby(["store", "compression"], sort=False):
        fields = {
            "store": run.names.format_store(store),
            "compression": run.names.format_condition("compression", [compression]),
        }
        fields["acknowledged"] = prose.format_span(alike["acknowledged_rate"], names.format_rate)
        fields["stored"] = prose.format_span(alike["rate"], names.format_rate)
        yield words.fill("acknowledged", service=BACKENDS["hsds"], **fields), ()


def describe_cores(run: Results) -> Iterator[Sentence]:
    """Yield sentences that compare the CPU time of gzip-compressed writes by HSDS and by the HDF5 library."""
    cells, named = run.measured.query("operation == 'write' and compression == 'gzip'"), run.names
    nodes = _get_node_usage(run, cells, "service_node_cpu_s") + _get_node_usage(run, cells, "data_nodes_cpu_s")
    cells = cells.assign(cpu=nodes.where(cells["backend"] == "hsds", cell_tables.get_numbers(cells, "cpu_s")))

    def format_spent(rows: pd.DataFrame, factor: str) -> str:
        sides = named.sort_rows(rows, [factor])[["cpu", factor]].itertuples(index=False, name=None)
        return prose.format_list(
            f"{prose.format_number(cpu)} with {named.format_subject(factor, level)}" for cpu, level in sides
        )

    same = [name for name in FACTORS if name not in ("backend", "nodes", "clients")]
    for _, rows in cells[cells["cpu"].notna()].groupby(same, sort=False):
        service, library = rows.query("backend == 'hsds' and clients == '1'"), rows.query("backend == 'library'")
        if len(service) > 1 and len(library):
            what = (
                named.format_subject("shape", rows["shape"].iloc[0]),
                named.format_condition("values", rows["values"].unique()),
            )
            fields = {"place": prose.capitalize_first(run.describe_place(rows.iloc[0])), "array": " ".join(what)}
            fields |= {"service": format_spent(service, "nodes"), "library": format_spent(library, "clients")}
            yield words.fill("cores", **fields), ()


def build_writing_table(run: Results) -> Table:
    """Build a table of write rates until acknowledgement (as in the publication) and until data are stored."""
    cells = run.measured[run.measured["operation"] == "write"]
    columns = [
        cell_tables.build_estimate_column("until acknowledged / MiB/s", "acknowledged_rate"),
        cell_tables.build_estimate_column("until stored / MiB/s", "rate"),
        Column("stored / s", "total_s", prose.format_number),
    ]
    if "published" in run.facts:
        columns = [
            cell_tables.build_estimate_column("until acknowledged / MiB/s", "rate"),
            Column("acknowledged / s", "total_s", prose.format_number),
        ]
    return cell_tables.build_table(run, "durable", words.fill("table of writing"), columns, cells)


def build_service_table(run: Results) -> Table:
    """Build a table of the CPU seconds and peak memory of HSDS nodes, next to the array size."""
    cells = run.measured[run.measured["backend"] == "hsds"]
    of_array = [parse_shape(*levels).bytes / MIB for levels in zip(cells["shape"], cells["chunks"], strict=True)]
    taken = {name: _get_node_usage(run, cells, name) / unit for _, name, unit in OF_SERVICE}
    columns = [
        Column(title, name, prose.format_number) for title, name, _ in (("array / MiB", "array_mib", 1), *OF_SERVICE)
    ]
    cells = cells.assign(array_mib=of_array, **taken)
    return cell_tables.build_table(run, "service", words.fill("table of nodes"), columns, cells, columns[1:])


def _get_node_usage(run: Results, cells: pd.DataFrame, name: str) -> pd.Series:
    return cell_tables.from_readers(f"effective.{name}", "median")(run, cells)


def list_limits(run: Results) -> list[str]:
    """Return the sentences on limitations that are specific to this study."""
    is_beside = "published" not in run.facts and (run.measured["backend"] == "hsds").any()
    lines = [words.fill("beside client")] if is_beside else []
    problem = run.facts.get("not_printed")
    return lines + ([words.fill("not printed", problem=problem)] if problem else [])
