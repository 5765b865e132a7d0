"""Load the results of the containers study, and build the tables and sentences that only its report has."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sbench.pages import cell_tables, costs, headline, pages, prose, results, run_files
from sbench.pages.cell_tables import MIB, WHOLE, from_readers, from_readers_in_mib
from sbench.pages.declaration import Column
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold
from sbench.pages.names import format_seconds
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts
from sbench.pages.sentences import name_sides
from sbench.studies.containers.report import REPORT, SOURCE, words
from sbench.verdicts import stats

FACTORS = REPORT.names
NEEDED = ("cell", "repeat", "total_s", *FACTORS)
# Factors of a container that its source does not share.
_OF_CONTAINER = ("container", "container_chunks", "shard_chunks", "codec", "concurrency", "threads", "coalescing")
# Factors of a read, which do not affect the conversion.
_OF_READ = ("access", "cache", "opening", "client", "concurrency", "threads", "coalescing", "workers", "read_cache")
# Maximum number of sentences on requests.
_MOST = 5


class Payoff(NamedTuple):
    """The number of reads after which a container has saved the time of its conversion.

    Attributes:
        cell: the container's cell.
        source: the cell of the source files.
        reads: estimate; infinite if a read saves nothing.
        low, high: ends of its 95 % confidence interval, which may be infinite; NaN with too few blocks.
        cost_s, saved_s: medians of the time of the conversion, and of the time that a read saves.
    """

    cell: dict
    source: dict
    reads: float
    low: float
    high: float
    cost_s: float
    saved_s: float


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
    return results.build_results(frames, _compute_records, read_facts(facts), REPORT, folder)


def _compute_records(samples: pd.DataFrame) -> pd.DataFrame:
    samples = samples.assign(control=samples.get("control", ""))
    groups = samples.groupby(results.RECORD, sort=False)
    return groups[["valid", "control", *FACTORS, "total_s"]].first()


def write_headline(run: Results) -> str:
    """Return the headline: the containers with the fewest requests, followed by the verdict on time."""
    verdict = pages.select_headline([headline.write_headline(run)], run)
    fewest = run.select_sentences(describe_fewest(run))
    return " ".join([*map(bold, fewest), verdict]) if fewest else bold(verdict)


def describe_fewest(run: Results) -> Iterator[Sentence]:
    """Yield a sentence on which containers send the fewest requests for each access, if all hold the same array."""
    cells = run.measured[run.measured["requests"].notna()]
    same = [factor.name for factor in REPORT.factors if factor.place or (factor.given and factor.name != "access")]
    if len(cells[same].drop_duplicates()) > 1:
        return
    best: dict[tuple[str, ...], dict[str, int]] = {}
    for access, alike in cells.groupby("access", sort=False):
        fewest = alike[alike["requests"] == alike["requests"].min()]
        if alike["container"].nunique() > 1:
            best.setdefault(tuple(fewest["container"].unique()), {})[str(access)] = int(fewest["requests"].iloc[0])
    cases = [
        words.fill(
            "fewest case",
            container=prose.format_list(run.names.format_level("container", container) for container in containers),
            accesses=prose.format_list(run.names.format_level("access", access) for access in counts),
            counts=prose.format_span(counts.values(), "{:,}".format),
        )
        for containers, counts in best.items()
    ]
    if cases:
        yield words.fill("fewest", cases="; ".join(cases)), ()


def describe_requests(run: Results) -> Iterator[Sentence]:
    """Yield a sentence for each pair of levels whose requests differ, with the largest differences first."""
    counts = run.cells.set_index("cell")["requests"] if "requests" in run.cells else pd.Series(dtype=float)
    if (rows := run.get_comparisons()).empty:
        return
    rows = rows.assign(new=rows["contender_cell"].map(counts), old=rows["baseline_cell"].map(counts))
    rows = rows.assign(size=(rows["new"] / rows["old"]).map(lambda ratio: max(ratio, 1 / ratio)))
    rows = rows[rows["size"] > 1].sort_values("size", ascending=False, kind="stable")
    for row in rows.drop_duplicates(["factor", "baseline", "contender"]).head(_MOST).to_dict("records"):
        new, old = name_sides(row, run)
        fields = {
            "new": prose.capitalize_first(new),
            "old": old,
            "access": run.names.format_level("access", row["access"]),
        }
        yield (
            words.fill(
                "requests", many=prose.format_count(int(row["new"]), "request"), few=f"{row['old']:,.0f}", **fields
            ),
            (),
        )


def compute_payoffs(run: Results) -> list[Payoff]:
    """Compare each converted container with the source files in the same blocks, and compute when it pays off."""
    readers = run.valid_readers
    if readers.empty or "conversion.convert_s" not in readers:
        return []
    records = run.records[run.records["valid"]].merge(
        readers[["cell", "repeat", "conversion.convert_s"]], on=["cell", "repeat"], how="left"
    )
    alike = [name for name in FACTORS if name not in _OF_CONTAINER]
    payoffs = []
    for cell in run.measured.to_dict("records"):
        same = run.measured[(run.measured[alike] == [cell[name] for name in alike]).all(axis=1)]
        source = same[same["container"] == SOURCE]
        blocks = records[records["cell"] == cell["cell"]].set_index("repeat")
        if source.empty or cell["container"] == SOURCE or blocks["conversion.convert_s"].isna().all():
            continue
        of_source = records[records["cell"] == source.iloc[0]["cell"]].set_index("repeat")["total_s"]
        saved = (of_source - blocks["total_s"]).dropna()
        if saved.empty:
            continue
        cost = blocks["conversion.convert_s"].loc[saved.index]
        # The saving per second of conversion, whose median inverts to the number of reads, even where it is negative.
        share = stats.estimate_median(saved / cost)
        payoffs.append(
            Payoff(
                cell,
                source.iloc[0].to_dict(),
                _invert(share.value),
                _invert(share.high) if math.isfinite(share.high) else math.nan,
                _invert(share.low) if math.isfinite(share.low) else math.nan,
                float(cost.median()),
                float(saved.median()),
            )
        )
    return payoffs


def describe_soonest(run: Results) -> Iterator[Sentence]:
    """Yield a sentence for each access on the container whose conversion pays off after the fewest reads."""
    accesses = set()
    for payoff in sorted(compute_payoffs(run), key=lambda payoff: payoff.reads):
        if math.isfinite(payoff.high) and payoff.cell["access"] not in accesses:
            accesses.add(payoff.cell["access"])
            yield _describe_payoff(payoff, run), ()


def describe_payoffs(run: Results) -> Iterator[str]:
    """Yield a sentence for each container and access whose conversion pays off, on after how many reads it does."""
    for payoff in compute_payoffs(run):
        if math.isfinite(payoff.reads):
            yield _describe_payoff(payoff, run)


def _describe_payoff(payoff: Payoff, run: Results) -> str:
    rest = [name for name in FACTORS if name not in ("container", "cache", "library")]
    telling = run.select_telling_factors(run.measured, ["access", *(name for name in rest if name != "access")])
    fields = {"container": prose.capitalize_first(run.names.format_level("container", payoff.cell["container"]))}
    fields |= {"access": run.names.format_row(payoff.cell, telling)}
    fields |= {"source": run.names.format_level("container", SOURCE)}
    fields |= {"reads": prose.format_count(math.ceil(payoff.reads), "read")}
    if not math.isfinite(payoff.high):
        return words.fill("pays perhaps", **fields)
    interval = words.fill("interval", low=_format_reads(payoff.low), high=_format_reads(payoff.high))
    times = {"cost": format_seconds(payoff.cost_s), "saved": format_seconds(payoff.saved_s)}
    return words.fill("pays", interval=interval, **times, **fields)


def build_requests_table(run: Results) -> Table:
    """Build the table of requests and bytes of a read, beside their forecast."""
    forecast = from_readers("work.forecast_requests", "median")
    columns = [
        Column("requests", "requests", WHOLE),
        Column(
            "forecast",
            forecast,
            WHOLE,
            over=lambda values, rows: values.notna() & (values != rows["requests"]),
            meaning=words.fill("forecast differs"),
        ),
        Column("requests per call", _compute_requests_per_call, prose.format_number),
        Column("delivered / MiB", _get_delivered_mib, prose.format_number),
        Column("read / MiB", from_readers_in_mib("work.logical_bytes"), prose.format_number),
        Column("time / s", "total_s", prose.format_number),
        Column("CPU / s", "cpu_s", prose.format_number),
        *cell_tables.COSTS,
    ]
    caption = words.fill("table of requests", prices=costs.describe_prices(run))
    return cell_tables.build_table(run, "requests", caption, columns, about=columns[:1])


def build_conversion_table(run: Results) -> Table:
    """Build the table of the cost of each conversion."""
    columns = [
        Column("time / s", from_readers("conversion.convert_s", "median"), prose.format_number),
        Column("CPU / s", from_readers("conversion.cpu_s", "median"), prose.format_number),
        Column("requests", from_readers("conversion.requests", "median", _sum_counts), WHOLE),
        Column("objects", from_readers("conversion.objects", "median"), WHOLE),
        Column("container / MiB", from_readers_in_mib("conversion.bytes"), prose.format_number),
    ]
    made = run.measured[run.measured["container"] != SOURCE]
    cells = made.drop_duplicates([name for name in FACTORS if name not in _OF_READ]).assign(
        **dict.fromkeys(_OF_READ, "")
    )
    return cell_tables.build_table(run, "conversion", words.fill("table of conversion"), columns, cells, columns)


def build_payoff_table(run: Results) -> Table:
    """Build the table of reads after which each container pays off."""
    payoffs = {payoff.cell["cell"]: payoff for payoff in compute_payoffs(run)}
    cells = run.measured[run.measured["cell"].isin(payoffs)]
    if cells.empty:
        return Table("payoff", "", pd.DataFrame())

    def format_cells(_: Results, rows: pd.DataFrame) -> list[str]:
        return [_format_payoff(payoffs[cell]) for cell in rows["cell"]]

    columns = [
        Column("reads", format_cells),
        Column("saved / s", lambda _, rows: rows["cell"].map(lambda cell: payoffs[cell].saved_s), prose.format_number),
    ]
    source = run.names.format_level("container", SOURCE)
    return cell_tables.build_table(run, "payoff", words.fill("table of payoff", source=source), columns, cells)


def list_limits(run: Results) -> list[str]:
    """Return the sentences on limitations that are specific to this study."""
    lines = [words.fill("one array")]
    if (run.measured["client"] == "default").all():
        lines.append(words.fill("usual client"))
    return lines


def _compute_requests_per_call(_: Results, cells: pd.DataFrame) -> pd.Series:
    calls = cell_tables.get_numbers(cells, "tasks")
    return (cell_tables.get_numbers(cells, "requests") / calls).where(calls > 1)


def _get_delivered_mib(_: Results, cells: pd.DataFrame) -> pd.Series:
    return cell_tables.get_numbers(cells, "bytes_delivered") / MIB


def _sum_counts(requests: dict) -> int:
    return sum(method["count"] for method in requests.values())


def _invert(share: float) -> float:
    return 1 / share if share > 0 else math.inf


def _format_reads(reads: float) -> str:
    return f"{math.ceil(reads):,}" if math.isfinite(reads) else "∞"


def _format_payoff(payoff: Payoff) -> str:
    if math.isinf(payoff.low):
        return "never"
    interval = "" if math.isnan(payoff.low) else f" [{_format_reads(payoff.low)}, {_format_reads(payoff.high)}]"
    return _format_reads(payoff.reads) + interval
