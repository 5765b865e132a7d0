"""Load the results of the blobs study, and build the tables and sentences that only its report has."""

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from sbench.pages import cell_tables, judgement, names, prose, results, run_files
from sbench.pages.cell_tables import WHOLE
from sbench.pages.declaration import Column
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts
from sbench.studies.blobs.patterns import FROM_ONE, PATTERNS
from sbench.studies.blobs.report import MIB, REPORT, words

FACTORS = REPORT.names
NEEDED = ("cell", "repeat", "phase", "iteration", "latency_s", "bytes", *FACTORS)
# Factors, in addition to the size, that have separate rows in the tables of sizes if they vary.
ROWS = ("processes", "nodes", "operation_size", "chunk_size", "concurrency", "cache")
# Columns for each store in the tables of sizes: value, header, format.
SHOWN = (("latency_s", "latency / s", prose.format_number), ("mib_s", "MiB/s", names.format_rate))
ENDS = ("", "_low", "_high")
NUMBERS = (*(column + end for column, *_ in SHOWN for end in ENDS), "n", "failed", "invalid", "edited")
# In the image, the panels are named after the patterns.
PICTURE = Path("docs/images/patterns.svg")
PICTURED = words.fill("picture")


def load_results(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load the results of a run.

    Args:
        tables: directory that contains samples.csv, cells.csv, verdicts.csv and matrix.csv.
        facts: JSON file with the workflow's facts about machine, stores and settings, if any.

    Raises:
        Problem: samples and cells are both missing, or samples lack a column.
    """
    folder = Path(tables)
    frames = run_files.read_tables(folder, REPORT, ("phase", "rank_s"), NEEDED)
    if "throughput_mib_s" in frames["cells"]:
        frames["cells"]["mib_s"] = frames["cells"]["throughput_mib_s"]
    return results.build_results(frames, _compute_records, read_facts(facts), REPORT, folder)


def _compute_records(samples: pd.DataFrame) -> pd.DataFrame:
    """Aggregate samples into one row per record, indexed by cell and repeat.

    "Later iterations" are those after the first of each launch of the processes, or the only one of a launch.

    Returns:
        A DataFrame with validity, factors, the number of iterations, and:
        - total_s, bytes: time in seconds and bytes of the later iterations; byte_s and mib_s are their ratios.
        - latency_s: median latency of the later iterations.
        - first_s, first_ratio: latency of the first iteration (the median over launches), and its ratio to latency_s.
        - spread: slowest divided by fastest of the later iterations.
        - imbalance: median over all iterations of the last process's time divided by the first process's time.
        - ceiling_mib_s, share: rate of the bare client, and the bandwidth as a fraction of it; only if each process
          reads.
        - read_share, distributing_s, bare_distributing_s: only if rank 0 reads for all processes: the fraction of the
          latency that it spends reading, the rest of the latency in seconds, and the median time that MPI alone takes
          to distribute the same bytes.
    """
    rows = samples[samples["phase"] == "read"]
    first_done = pd.to_numeric(rows.get("first_done_s"), errors="coerce")
    records, groups, timed = results.group_by_record(rows.assign(imbalance=rows["latency_s"] / first_done), REPORT)
    of_launch = rows.groupby([*results.RECORD, results.get_launches(rows)], sort=False)
    records["first_s"] = of_launch["latency_s"].first().groupby(results.RECORD, sort=False).median()
    records[["total_s", "bytes"]] = timed[["latency_s", "bytes"]].sum()
    records["byte_s"] = records["total_s"] / records["bytes"]
    records["mib_s"] = records["bytes"] / MIB / records["total_s"]
    records["latency_s"] = timed["latency_s"].median()
    several = records["iterations"] > records["launches"]
    records["spread"] = (timed["latency_s"].max() / timed["latency_s"].min()).where(several)
    records["first_ratio"] = (records["first_s"] / records["latency_s"]).where(several)
    records["imbalance"] = groups["imbalance"].median().where(records["processes"] != "1")
    rounds = samples[samples["phase"] == "ceiling"].groupby(results.RECORD, sort=False)[["bytes", "latency_s"]].sum()
    # If rank 0 reads for all processes, a byte counts once per process that receives it, so the bare client's rate is
    # not an upper bound.
    each_reads = ~records["pattern"].isin(FROM_ONE)
    records["ceiling_mib_s"] = (rounds["bytes"] / MIB / rounds["latency_s"]).where(each_reads)
    # If rank 0 reads for all processes: the time it reads, the rest, and the time to distribute the same bytes from its
    # memory.
    apart = timed[["latency_s", "read_s"]].sum(min_count=1) if "read_s" in rows else pd.DataFrame()
    records["read_share"] = apart["read_s"] / apart["latency_s"] if len(apart) else math.nan
    records["distributing_s"] = records["latency_s"] * (1 - records["read_share"])
    bare = samples[samples["phase"] == "distribution"].groupby(results.RECORD, sort=False)["latency_s"].median()
    records["bare_distributing_s"] = bare
    records["share"] = records["mib_s"] / records["ceiling_mib_s"]
    return records


def build_size_tables(run: Results) -> Iterator[Table]:
    """Yield a table for each measured pattern, with a row per object size and a group of columns per store.

    If cells differ in whether each process has a separate object, they are in separate tables.
    """
    cells = run.cells[run.cells["control"] == ""]
    for name, pattern in PATTERNS.items():
        for own, rows in cells[cells["pattern"] == name].groupby(cells["objects"] == "own"):
            title = words.fill("of own objects", pattern=pattern.title) if own else pattern.title
            yield _build_size_table(rows, f"table-{name}{'-own' if own else ''}", title, run)


def _build_size_table(cells: pd.DataFrame, name: str, title: str, run: Results) -> Table:
    varies = run.select_varying_factors(cells, ROWS)
    keys = [*varies, "size"]
    rows = pd.DataFrame(run.names.list_combinations(cells, keys), columns=keys)
    heads = {**{key: run.report.get_factor(key).title for key in varies}, "size": "size of an object"}
    frame = pd.DataFrame(
        {head: [run.names.format_table_level(key, level) for level in rows[key]] for key, head in heads.items()}
    )
    over = {}
    for store in cells["store"].unique():
        own = rows.merge(cells[cells["store"] == store], on=keys, how="left")
        for column, head, digits in SHOWN:
            title_of = f"{run.names.format_store(store)} {head}"
            frame[title_of] = [_format_cell(cell, column, digits) for cell in own.to_dict("records")]
            over[title_of] = list(own["invalid"] > 0)
    how = words.fill("how as published" if "published" in run.facts else "how")
    same = {factor: cells[factor].iloc[0] for factor in ROWS if factor not in varies}
    unsaid = run.report.added
    shared = ", ".join(
        run.names.format_level(*level) for level in same.items() if level[1] not in ("", "any", unsaid.get(level[0]))
    )
    return Table(
        name,
        f"{title}: {how}. {prose.capitalize_first(shared)}{'.' if shared else ''}",
        frame.fillna(""),
        over=over,
        meaning=words.fill("colours of trouble"),
        numbers=rows.merge(cells, on=keys)[["pattern", "objects", *keys, "store", *NUMBERS]],
    )


def _format_cell(cell: dict, column: str, digits) -> str:
    if not cell["n"] > 0:
        trouble = cell["invalid"] > 0 or cell["failed"] > 0
        return cell_tables.get_trouble_mark(cell) if trouble else "not measured" if cell["n"] == 0 else ""
    return "" if pd.isna(cell[column]) else names.format_with_interval(*(cell[column + end] for end in ENDS), digits)


def build_iteration_table(run: Results) -> Table:
    """Build a table of variation across iterations and processes. For published results, it is empty."""
    if "published" in run.facts:
        return Table("iterations", "", pd.DataFrame())
    columns = (
        Column("iterations per record", "iterations", WHOLE),
        Column("first / s", "first_s", prose.format_number),
        # Omit the latency if there is a single iteration, because it is then the first iteration's latency.
        Column(
            "later / s", lambda _, cells: cells["latency_s"].where(cells["first_ratio"].notna()), prose.format_number
        ),
        Column("first / later", "first_ratio", prose.format_ratio),
        Column("slowest / fastest iteration", "spread", prose.format_ratio),
        Column("last / first process done", "imbalance", prose.format_ratio),
    )
    return cell_tables.build_table(run, "iterations", words.fill("table of iterations"), columns, about=columns[:1])


def build_distribution_table(run: Results) -> Table:
    """Build a table that splits the latency into reading and distributing, if rank 0 reads for all processes.

    It also contains the time to distribute without reading, which is a lower bound.
    """
    columns = (
        Column("latency / s", "latency_s", prose.format_number),
        Column("reading / %", lambda _, cells: 100 * cells["read_share"], names.format_percentage),
        Column("distributing / s", "distributing_s", prose.format_number),
        Column("bare MPI / s", "bare_distributing_s", prose.format_number),
    )
    cells = run.measured[run.measured["pattern"].isin(FROM_ONE)]
    return cell_tables.build_table(
        run, "distribution", words.fill("table of distribution"), columns, cells, columns[1:2]
    )


def describe_patterns(run: Results) -> list[str]:
    """Return a sentence for each pattern of the run that explains the pattern."""
    lines = judgement.list_explanations(run, "pattern", {name: pattern.explained for name, pattern in PATTERNS.items()})
    return [*lines, words.fill("own objects")] if (run.cells["objects"] == "own").any() else lines


def list_limits(run: Results) -> list[str]:
    """Return the sentences on limitations that are specific to this study."""
    lines, readers = [], run.readers
    hosts = cell_tables.get_column(readers, "effective.hosts").dropna().astype(object).str.len()
    if len(hosts) and hosts.max() < 2:
        lines.append(words.fill("one machine"))
    refused = cell_tables.get_column(readers, "ceiling.problem").dropna()
    if len(refused):
        lines.append(words.fill("refused", many=prose.format_count(len(refused), "record"), reason=refused.iloc[0]))
    # In records of earlier versions, the bare client was a single process, and its number of processes is missing.
    threads, processes = (cell_tables.get_column(readers, f"ceiling.{name}") for name in ("threads", "processes"))
    counts = {
        "threads": ("record", (threads.notna() & processes.isna()).sum()),
        "above bare client": ("cell", (run.measured["share"] > 1.05).sum()),
        "retried": ("request", cell_tables.get_numbers(readers, "retries").sum()),
        "idle": ("record", (cell_tables.get_numbers(readers, "effective.idle_processes") > 0).sum()),
    }
    return lines + [
        words.fill(what, many=prose.format_count(int(many), of)) for what, (of, many) in counts.items() if many
    ]
