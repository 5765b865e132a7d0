"""The tables of a report: iterations, the ceiling, requests and retries, memory, what did not work, the harness."""

import numpy as np
import pandas as pd

from scripts.report import account, names, prose
from scripts.report.page import Table
from scripts.studies.blobs.report import words
from scripts.studies.blobs.report.caveats import HARNESS
from scripts.studies.blobs.report.data import MIB, Results, reads

WHOLE = "{:,.0f}".format
AGAIN = "sent again, all repeats"


def troubled(results: Results) -> Table:
    """Return cells with failed or invalid repeats, and why."""
    return account.troubled(ordered(results.cells, results), lambda cells: levels(cells, results))


def iterations(results: Results) -> Table:
    """Return how the iterations and the processes of each cell's records differ."""
    cells = ordered(results.measured, results)
    if results.records.empty or cells.empty:
        return Table("iterations", "", pd.DataFrame())
    records = results.records[results.records["valid"]]
    frame = levels(cells, results)
    frame["iterations per record"] = cells["cell"].map(records.groupby("cell")["iterations"].median())
    # Of records with one iteration the latency is that of the first.
    later = cells["latency_s"].where(cells["first_ratio"].notna())
    frame["first / s"], frame["later / s"] = cells["first_s"], later
    frame["first / later"] = cells["first_ratio"]
    frame["slowest / fastest iteration"] = cells["spread"]
    frame["last / first process done"] = cells["imbalance"]
    frame["slowest process"] = cells["cell"].map(_slowest(results)).fillna("")
    formats = dict.fromkeys(("first / s", "later / s"), prose.number) | {"iterations per record": WHOLE}
    formats |= dict.fromkeys(("first / later", "slowest / fastest iteration", "last / first process done"), prose.ratio)
    return Table(
        "iterations",
        "Medians over the repeats. Later: the median of a record's iterations after the first; slowest / fastest "
        "iteration: of the later ones; slowest process: the number of the one that took longest in most "
        "iterations, and in how many of them.",
        frame,
        formats,
    )


def ceiling(results: Results) -> Table:
    """Return the share of the store's ceiling that each cell reaches, paired within each record."""
    cells = ordered(results.measured, results)
    cells = cells[cells["ceiling_mib_s"].notna()].reset_index(drop=True)
    if cells.empty:
        return Table("ceiling", "", pd.DataFrame())
    frame = levels(cells, results)
    frame["bandwidth / MiB/s"], frame["ceiling / MiB/s"] = cells["mib_s"], cells["ceiling_mib_s"]
    frame["share / %"] = 100 * cells["share"]
    frame["interval"] = [
        words.interval(100 * row.share_low, 100 * row.share_high).strip() for row in cells.itertuples()
    ]
    told = told_of(results, "ceiling")
    for key, name in (("threads", "threads"), ("requests", "requests a round")):
        frame[name] = cells["cell"].map(told.map(lambda one, key=key: one.get(key))) if len(told) else np.nan
    formats = {"bandwidth / MiB/s": words.rate, "ceiling / MiB/s": words.rate, "share / %": prose.number}
    numbers = frame.assign(**{"share low / %": 100 * cells["share_low"], "share high / %": 100 * cells["share_high"]})
    return Table(
        "ceiling",
        "Bandwidth of each cell beside that of bare concurrent requests (on a file system: plain reads) in the same "
        "records: median share with its 95 % CI. One reader that gives to the others can exceed 100 %: its "
        "bytes are fetched once and delivered to all.",
        account.without_empty(frame),
        formats | dict.fromkeys(("threads", "requests a round"), WHOLE),
        numbers=account.without_empty(numbers.drop(columns="interval")),
    )


def requests(results: Results) -> Table:
    """Return what was sent to the stores in each cell: requests at the server, at the client, and retries."""
    cells, readers = ordered(results.measured, results), _valid_readers(results)
    if readers.empty and ("requests" not in cells or cells["requests"].isna().all()):
        return Table("requests", "", pd.DataFrame())
    frame = levels(cells, results)
    frame["data / MiB"] = cells.get("logical_bytes", np.nan) / MIB
    for column, name in (("requests", "requests at the server"), ("requests_spread", "spread over repeats")):
        frame[name] = pd.to_numeric(cells.get(column), errors="coerce") if column in cells else np.nan
    for column in ("offered", "delivered"):
        frame[f"{column} / MiB"] = cells[f"bytes_{column}"] / MIB if f"bytes_{column}" in cells else np.nan
    for column, name, how in (("attempts", "sent by the clients", "median"), ("retries", AGAIN, "sum")):
        grouped = readers.groupby("cell")[column].agg(how) if column in readers else pd.Series(dtype=float)
        frame[name] = cells["cell"].map(grouped)
    counts = ("requests at the server", "spread over repeats", "sent by the clients", AGAIN)
    over = {
        AGAIN: frame[AGAIN].fillna(0) > 0,
        "spread over repeats": frame["spread over repeats"].fillna(0) > 0,
    }
    formats = dict.fromkeys(counts, WHOLE)
    formats |= dict.fromkeys(("data / MiB", "offered / MiB", "delivered / MiB"), prose.number)
    shown = account.without_empty(frame)
    return Table(
        "requests",
        f"Requests within the timed window, medians over the repeats; {AGAIN}: by the clients, not a median. "
        "Data: what reached the processes.",
        shown,
        formats,
        {column: flags for column, flags in over.items() if column in shown},
        "requests that a client sent again, and requests that differ between repeats of one cell",
    )


def memory(results: Results) -> Table:
    """Return how much memory a process took beyond its start, against what an operation may take."""
    told = told_of(results, "memory", valid=False)
    cells = ordered(results.cells[(results.cells["control"] == "") & results.cells["cell"].isin(told.index)], results)
    if cells.empty:
        return Table("memory", "", pd.DataFrame())
    readers = results.readers[results.readers["memory"].map(lambda one: isinstance(one, dict))]
    grown = readers.assign(
        growth=readers["memory"].map(lambda one: one["growth_bytes"]),
        start=readers["memory"].map(lambda one: max((rank["start_bytes"] for rank in one.get("ranks", [])), default=0)),
        peak=readers["memory"].map(lambda one: max((rank["peak_bytes"] for rank in one.get("ranks", [])), default=0)),
    )
    most = grown.groupby("cell")[["start", "peak", "growth"]].max() / MIB
    frame = levels(cells, results)
    frame["allowed / MiB"] = cells["cell"].map(told.map(lambda one: one["allowed_bytes"] / MIB))
    for column, name in (("start", "at the start / MiB"), ("peak", "peak / MiB"), ("growth", "growth / MiB")):
        frame[name] = cells["cell"].map(most[column])
    formats = {column: "{:,.0f}".format for column in frame if column.endswith("MiB")}
    return Table(
        "memory",
        "The largest process of any repeat. At the start: interpreter, MPI and client are loaded; growth: from there "
        "to the peak; allowed: an operation and 64 MiB, whatever the size of the object.",
        frame,
        formats,
        {"growth / MiB": (frame["growth / MiB"] > frame["allowed / MiB"]).tolist()},
        "a process took more than is allowed",
    )


def harness(results: Results) -> Table:
    """Return what the harness itself costs beside the results."""
    cells = ordered(results.measured, results)
    columns = {
        "ranks_start_s": "start of the processes / s",
        "first_broadcast_s": "first broadcast / s",
        "null_s": "empty iterations / s",
        "verify_s": "verifying / s",
    }
    if "null_s" not in cells:
        return Table("harness", "", pd.DataFrame())
    frame = levels(cells, results)
    frame["all iterations / s"] = cells["total_s"]
    for column, name in columns.items():
        frame[name] = cells.get(column)
    share = 100 * cells["null_s"] / cells["total_s"]
    frame["empty iterations / %"] = share
    return Table(
        "harness",
        "Median cost of the harness. Start, first broadcast and verifying are outside the time; empty iterations: as "
        "many, operation by operation, that bring no bytes, which is what the harness takes within it.",
        frame,
        dict.fromkeys(("all iterations / s", *columns.values()), prose.number)
        | {"empty iterations / %": "{:.1f}".format},
        {"empty iterations / %": share > 100 * HARNESS},
        f"empty iterations above {100 * HARNESS:.0f} % of the time",
    )


def ordered(cells: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return cells by pattern, store and size, then by the other factors."""
    columns = ["pattern", "objects", "store", "size", *words.FACTORS[3:]]
    rank = {store: place for place, store in enumerate(cells["store"].unique())}
    found = cells.assign(store=cells["store"].map(rank).astype(str))[columns].itertuples(index=False, name=None)
    keys = [[results.names.order(*level) for level in zip(columns, row, strict=True)] for row in found]
    return cells.iloc[sorted(range(len(cells)), key=keys.__getitem__)].reset_index(drop=True)


def levels(cells: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return the columns that tell the cells of the run apart, as people read them."""
    frame = pd.DataFrame({"store": [results.names.store(store) for store in cells["store"]]})
    frame["pattern"] = [words.pattern_of(row) for row in cells.to_dict("records")]
    frame["size"] = cells["size"].map(names.size)
    for factor in words.FACTORS[3:]:
        if factor != "objects" and results.cells[factor].nunique() > 1:
            column = cells[factor].map(names.size) if factor in words.SIZES else cells[factor]
            frame[account.plain_name(factor)] = column
    return frame


def told_of(results: Results, part: str, valid: bool = True) -> pd.Series:
    """Return what the facts say of a part of each cell's last repeat, by cell: a mapping each."""
    readers = _valid_readers(results) if valid else results.readers
    if readers.empty or part not in readers:
        return pd.Series(dtype=object)
    known = readers[readers[part].map(lambda one: isinstance(one, dict))]
    return known.drop_duplicates("cell", keep="last").set_index("cell")[part]


def _valid_readers(results: Results) -> pd.DataFrame:
    readers, records = results.readers, results.records
    if readers.empty or records.empty:
        return readers
    good = set(records[records["valid"]][["cell", "repeat"]].itertuples(index=False, name=None))
    return readers[[pair in good for pair in zip(readers["cell"], readers["repeat"], strict=True)]]


def _slowest(results: Results) -> dict[str, str]:
    """The process that was last in most of a cell's iterations, and in how many of them."""
    rows = reads(results.samples)
    rows = rows[rows["valid"] & (rows["rank_s"].fillna("") != "")]
    last = rows["rank_s"].map(lambda text: int(np.argmax(np.array(text.split(), dtype=float))))
    many = rows["rank_s"].map(lambda text: len(text.split()))
    found = {}
    for cell, ranks in last[many > 1].groupby(rows["cell"], sort=False):
        counts = ranks.value_counts().sort_index()
        rank = int(counts.idxmax())
        found[cell] = f"{rank} ({100 * counts[rank] / len(ranks):.0f} %)"
    return found
