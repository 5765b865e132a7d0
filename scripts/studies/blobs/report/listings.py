"""Tables that only this study has: iterations, the ceiling, memory, and what read."""

import numpy as np
import pandas as pd

from scripts.report import account, names, prose
from scripts.report.declaration import Column
from scripts.report.listings import WHOLE, table
from scripts.report.page import Table
from scripts.studies.blobs.report import MIB
from scripts.studies.blobs.report.results import Results, reads

MOST = "{:,.0f}".format


def iterations(run: Results) -> Table:
    """Return how the iterations and the processes of each cell's records differ."""
    if run.records.empty:
        return Table("iterations", "", pd.DataFrame())
    counts = run.records[run.records["valid"]].groupby("cell")["iterations"].median()
    slowest = _slowest(run)
    return table(
        run,
        "iterations",
        "Medians over the repeats. Later: the median of a record's iterations after the first; slowest / fastest "
        "iteration: of the later ones; slowest rank: the one that took longest in most iterations, and in how many.",
        (
            Column("iterations per record", lambda _, cells: cells["cell"].map(counts), WHOLE),
            Column("first / s", "first_s", prose.number),
            # Of records with one iteration the latency is that of the first.
            Column("later / s", lambda _, cells: cells["latency_s"].where(cells["first_ratio"].notna()), prose.number),
            Column("first / later", "first_ratio", prose.ratio),
            Column("slowest / fastest iteration", "spread", prose.ratio),
            Column("last / first process done", "imbalance", prose.ratio),
            Column("slowest rank", lambda _, cells: cells["cell"].map(slowest).fillna("")),
        ),
    )


def ceiling(run: Results) -> Table:
    """Return the share of the store's ceiling that each cell reaches, paired within each record."""
    cells = run.measured[run.measured["ceiling_mib_s"].notna()]
    facts = run.last("ceiling")

    def of(key: str):
        return lambda _, cells: cells["cell"].map({cell: fact.get(key) for cell, fact in facts.items()})

    return table(
        run,
        "ceiling",
        "Bandwidth of each cell beside that of bare concurrent requests (on a file system: plain reads) in the same "
        "records: median share with its 95 % CI. One reader that gives to the others can exceed 100 %: its bytes are "
        "fetched once and delivered to all.",
        (
            Column("bandwidth / MiB/s", "mib_s", names.rate),
            Column("ceiling / MiB/s", "ceiling_mib_s", names.rate),
            Column("share / %", lambda _, cells: 100 * cells["share"], prose.number),
            Column("share low / %", lambda _, cells: 100 * cells["share_low"], prose.number),
            Column("share high / %", lambda _, cells: 100 * cells["share_high"], prose.number),
            Column("threads", of("threads"), WHOLE),
            Column("requests per round", of("requests"), MOST),
        ),
        cells,
    )


def memory(run: Results) -> Table:
    """Return how much memory a process took beyond its start, against what an operation may take."""
    readers = (
        run.readers[run.readers["memory"].map(lambda facts: isinstance(facts, dict))] if len(run.readers) else None
    )
    if readers is None or readers.empty:
        return Table("memory", "", pd.DataFrame())

    def most(key: str) -> pd.Series:
        ranks = readers["memory"].map(lambda facts: max((rank[key] for rank in facts.get("ranks", [])), default=0))
        return ranks.groupby(readers["cell"]).max() / MIB

    allowed, growth = (
        readers["memory"].map(lambda facts, key=key: facts[key]) for key in ("allowed_bytes", "growth_bytes")
    )
    columns = {
        "allowed / MiB": allowed.groupby(readers["cell"]).last() / MIB,
        "at the start / MiB": most("start_bytes"),
        "peak / MiB": most("peak_bytes"),
        "growth / MiB": growth.groupby(readers["cell"]).max() / MIB,
    }
    over = {"growth / MiB": lambda growth, cells: growth > cells["cell"].map(columns["allowed / MiB"])}
    return table(
        run,
        "memory",
        "The largest process of any repeat. At the start: interpreter, MPI and client are loaded; growth: from there "
        "to the peak; allowed: an operation and 64 MiB, whatever the size of the object.",
        [
            Column(title, lambda _, cells, values=values: cells["cell"].map(values), MOST, over.get(title), "too much")
            for title, values in columns.items()
        ],
        run.cells[(run.cells["control"] == "") & run.cells["cell"].isin(readers["cell"])],
    )


def software(run: Results) -> Table:
    """Return MPI, launcher and client by store, one row for each that occurred."""
    stores = dict(zip(run.cells["cell"], run.cells["store"], strict=True))
    rows = [
        {
            "store": run.names.store(stores.get(cell, "")),
            "client": str(effective.get("client") or ""),
            "MPI": str(effective.get("mpi") or ""),
            "started by": str(effective.get("launcher") or ""),
            "hosts": len(effective.get("hosts") or []),
        }
        for cell, effective in run.last("effective").items()
    ]
    caption = "The software that read: client of the store, MPI and its launcher."
    return Table("software", caption, account.without_empty(pd.DataFrame(rows).drop_duplicates(ignore_index=True)))


def _slowest(run: Results) -> dict[str, str]:
    """The rank that was last in most of a cell's iterations, and in how many of them."""
    rows = reads(run.samples)
    rows = rows[rows["valid"] & (rows["rank_s"].fillna("") != "")]
    last = rows["rank_s"].map(lambda text: int(np.argmax(np.array(text.split(), dtype=float))))
    many = rows["rank_s"].map(lambda text: len(text.split()))
    slowest = {}
    for cell, ranks in last[many > 1].groupby(rows["cell"], sort=False):
        counts = ranks.value_counts().sort_index()
        rank = int(counts.idxmax())
        slowest[cell] = f"{rank} ({100 * counts[rank] / len(ranks):.0f} %)"
    return slowest
