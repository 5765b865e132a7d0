"""The tables of the study, and what only this study shows and says of them."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from sbench.pages import cell_tables, names, prose, results, run_files
from sbench.pages.declaration import Column
from sbench.pages.headline import Said
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts
from sbench.studies.arrays.pieces import TRIALS, of_levels
from sbench.studies.arrays.report import BACKENDS, MIB, REPORT, words

FACTORS = REPORT.names
NEEDED = ("cell", "repeat", "total_s", *FACTORS)
OF_SERVICE = (
    ("CPU of the service node / s", "service_node_cpu_s", 1),
    ("CPU of the busiest data node / s", "data_node_cpu_s", 1),
    ("CPU of all data nodes / s", "data_nodes_cpu_s", 1),
    ("peak of the service node / MiB", "service_node_peak_bytes", MIB),
    ("peak of the largest data node / MiB", "data_node_peak_bytes", MIB),
)


def load(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Return what the folder `tables` holds, and what the workflow wrote about it in `facts`, a JSON object.

    Raises:
        Problem: there are neither samples nor cells, or samples lack a column.
    """
    folder = Path(tables)
    frames = run_files.read_tables(folder, REPORT, (), NEEDED)
    # Trials take no time that is compared: `trials` has what came of them.
    tried = {name: frames[name].get("operation", pd.Series(dtype=str)).isin(TRIALS) for name in ("samples", "cells")}
    frames["samples"] = frames["samples"][~tried["samples"]]
    times = [name for name in frames["cells"] if name.startswith("total_s")]
    frames["cells"].loc[tried["cells"], times] = float("nan")
    return results.complete(frames, _records, read_facts(facts), REPORT, folder)


def _records(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per record: cell, repeat, valid, factors, total_s, bytes, and the report's values."""
    samples = samples.assign(control=samples.get("control", ""))
    groups = samples.groupby(results.RECORD, sort=False)
    records = groups[["valid", "control", *FACTORS, "total_s"]].first()
    records["bytes"] = groups["bytes"].sum()
    records["rate"] = records["bytes"] / MIB / records["total_s"]
    acknowledged = groups["acknowledged_s"].first() if "acknowledged_s" in samples else float("nan")
    # As of the total time, so that both rates are summarised alike.
    records["acknowledged_bytes"] = records["bytes"] * records["total_s"] / acknowledged
    records["acknowledged_rate"] = records["bytes"] / MIB / acknowledged
    return records


def why(run: Results) -> Iterator[Said]:
    """Yield how much of a service's time for writing is that until it acknowledges."""
    cells = run.measured
    written = cells[(cells["backend"] == "hsds") & (cells["operation"] == "write") & cells["acknowledged_rate"].notna()]
    for (store, compression), alike in written.groupby(["store", "compression"], sort=False):
        said = {"store": run.names.store(store), "compression": run.names.within("compression", [compression])}
        said["acknowledged"] = prose.span(alike["acknowledged_rate"], names.rate)
        said["stored"] = prose.span(alike["rate"], names.rate)
        yield words.fill("acknowledged", service=BACKENDS["hsds"], **said), ()


def cores(run: Results) -> Iterator[Said]:
    """Yield the CPU seconds of a service's nodes for a write with gzip, by their number, against the library's."""
    cells, named = run.measured.query("operation == 'write' and compression == 'gzip'"), run.names
    nodes = _taken(run, cells, "service_node_cpu_s") + _taken(run, cells, "data_nodes_cpu_s")
    cells = cells.assign(cpu=nodes.where(cells["backend"] == "hsds", cell_tables.numbers(cells, "cpu_s")))

    def spent(rows: pd.DataFrame, factor: str) -> str:
        sides = named.sort(rows, [factor])[["cpu", factor]].itertuples(index=False, name=None)
        return prose.listing(f"{prose.number(cpu)} with {named.subject(factor, level)}" for cpu, level in sides)

    same = [name for name in FACTORS if name not in ("backend", "nodes", "clients")]
    for _, rows in cells[cells["cpu"].notna()].groupby(same, sort=False):
        service, library = rows.query("backend == 'hsds' and clients == '1'"), rows.query("backend == 'library'")
        if len(service) > 1 and len(library):
            what = named.subject("shape", rows["shape"].iloc[0]), named.within("values", rows["values"].unique())
            said = {"place": prose.capital(run.place(rows.iloc[0])), "what": " ".join(what)}
            said |= {"service": spent(service, "nodes"), "library": spent(library, "clients")}
            yield words.fill("cores", **said), ()


def durable(run: Results) -> Table:
    """Return, of writing, the rates until acknowledged and until stored; what was published is timed to the former."""
    cells = run.measured[run.measured["operation"] == "write"]
    columns = [
        cell_tables.estimated("until acknowledged / MiB/s", "acknowledged_rate"),
        cell_tables.estimated("until stored / MiB/s", "rate"),
        Column("stored / s", "total_s", prose.number),
    ]
    if "published" in run.facts:
        columns = [
            cell_tables.estimated("until acknowledged / MiB/s", "rate"),
            Column("acknowledged / s", "total_s", prose.number),
        ]
    return cell_tables.table(run, "durable", words.fill("table of writing"), columns, cells)


def service(run: Results) -> Table:
    """Return what the nodes of a service took: CPU seconds, and the peak of their memory against a request."""
    cells = run.measured[run.measured["backend"] == "hsds"]
    of_array = [of_levels(*levels).bytes / MIB for levels in zip(cells["shape"], cells["chunks"], strict=True)]
    taken = {name: _taken(run, cells, name) / unit for _, name, unit in OF_SERVICE}
    columns = [Column(title, name, prose.number) for title, name, _ in (("array / MiB", "array_mib", 1), *OF_SERVICE)]
    cells = cells.assign(array_mib=of_array, **taken)
    return cell_tables.table(run, "service", words.fill("table of nodes"), columns, cells, columns[1:])


def _taken(run: Results, cells: pd.DataFrame, name: str) -> pd.Series:
    return cell_tables.of_readers(f"effective.{name}", "median")(run, cells)


def limits(run: Results) -> list[str]:
    """Return what only this study's data cannot say."""
    is_beside = "published" not in run.facts and (run.measured["backend"] == "hsds").any()
    lines = [words.fill("beside client")] if is_beside else []
    problem = run.facts.get("not_printed")
    return lines + ([words.fill("not printed", problem=problem)] if problem else [])
