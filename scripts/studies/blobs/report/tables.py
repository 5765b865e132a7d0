"""Tables that only this study has: the published layout, iterations, the ceiling, memory, and what read."""

from collections.abc import Iterator

import pandas as pd

from scripts.report import account, names, prose
from scripts.report.declaration import Column
from scripts.report.listings import WHOLE, of_readers, table
from scripts.report.page import Table
from scripts.report.results import Results
from scripts.studies.blobs.patterns import PATTERNS
from scripts.studies.blobs.report import MIB, MOST, printed
from scripts.studies.blobs.report.results import is_printed, processes_of, reads

# What has rows of its own where it varies, beside the size.
ROWS = ("processes", "operation_size", "chunk_size", "concurrency", "cache")
# What each store has a column of: the number, as a printed table calls it, in a head, and in digits.
SHOWN = (
    ("latency_s", "latency", "latency / s", prose.number),
    ("mib_s", "bandwidth", "MiB/s", names.rate),
)
ENDS = ("", "_low", "_high")
NUMBERS = (*(column + end for column, *_ in SHOWN for end in ENDS), "n", "failed", "invalid", "edited")


def by_size(run: Results) -> Iterator[Table]:
    """Yield a table for each pattern that was measured, objects of each process's own apart: sizes by stores."""
    cells = run.cells[run.cells["control"] == ""]
    for name, pattern in PATTERNS.items():
        for own in (False, True):
            rows = cells[(cells["pattern"] == name) & ((cells["objects"] == "own") == own)]
            if len(rows):
                title = pattern.title + (", each of an object of its own" if own else "")
                yield _by_size(rows, f"table-{name}{'-own' if own else ''}", title, run)


def _by_size(cells: pd.DataFrame, name: str, title: str, run: Results) -> Table:
    varies = run.varying(cells, ROWS)
    keys = [*varies, "size"]
    rows = pd.DataFrame(run.names.sorted_rows(cells, keys), columns=keys)
    frame = rows.apply(lambda levels: levels.map(lambda level: run.names.cell(levels.name, level)))
    frame.columns = [*(run.report.factor(key).title for key in varies), "size of an object"]
    over = {}
    for store in cells["store"].unique():
        own = rows.merge(cells[cells["store"] == store], on=keys, how="left")
        for column, as_printed, head, digits in SHOWN:
            head = f"{run.names.store(store)} {head}"
            frame[head] = [
                cell[as_printed] if as_printed in cell else _text(cell, column, digits)
                for cell in own.to_dict("records")
            ]
            over[head] = list(own["invalid"] > 0)
    how = (
        "as printed"
        if is_printed(run)
        else "latency: median of the iterations after the first (of a single one, that one); bandwidth: all bytes "
        "divided by all time, with the first iteration; [95 % CI] over the repeats, where they are 6 or more"
    )
    same = {factor: cells[factor].iloc[0] for factor in ROWS if factor not in varies}
    shared = ", ".join(run.names.level(*level) for level in same.items() if level[1] not in ("", "any"))
    return Table(
        name,
        f"{title}: {how}. {prose.capital(shared)}{'.' if shared else ''}",
        frame.fillna(""),
        over=over,
        meaning="a repeat of the cell broke a rule of measuring",
        numbers=rows.merge(cells, on=keys)[["pattern", "objects", *keys, "store", *NUMBERS]],
    )


def _text(cell: dict, column: str, digits) -> str:
    """A cell's number with its interval, or why there is none."""
    if not cell["n"] > 0:
        trouble = cell["invalid"] > 0 or cell["failed"] > 0
        return account.mark(cell) if trouble else "not measured" if cell["n"] == 0 else ""
    return "" if pd.isna(cell[column]) else names.with_interval(*(cell[column + end] for end in ENDS), digits)


def audit(run: Results) -> Table:
    """Return the printed cells whose bandwidth does not follow from size and latency."""
    processes = processes_of(run.facts)
    wrong = printed.disagreeing(run.cells, processes) if is_printed(run) else pd.DataFrame()
    if wrong.empty:
        return Table("audit", "", pd.DataFrame())
    heads = {
        "latency": "latency / s",
        "bandwidth": "bandwidth / MiB/s",
        "recomputed": "recomputed / MiB/s",
        "percent": "printed against it / %",
    }
    frame = wrong[["pattern", "size", "store", *heads]].rename(columns=heads)
    caption = (
        f"{len(wrong)} of {len(run.cells)} printed bandwidths that do not follow from the size and the latency printed "
        f"beside them ({processes} processes), even if both were rounded."
    )
    formats = {"size": names.size, heads["recomputed"]: "{:.3f}".format, heads["percent"]: "{:+.2f}".format}
    numbers = wrong[[*printed.COLUMNS, "recomputed", "least", "most", "percent"]]
    return Table("audit", caption, frame, formats, numbers=numbers)


def iterations(run: Results) -> Table:
    """Return how the iterations and the processes of each cell's records differ."""
    counts = run.records[run.records["valid"]].groupby("cell")["iterations"].median()
    if counts.empty:
        return Table("iterations", "", pd.DataFrame())
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


def _slowest(run: Results) -> pd.Series:
    """The rank that was last in most of a cell's iterations, and in how many of them, by cell."""
    rows = reads(run.samples)
    rows = rows[rows["valid"] & (rows.get("rank_s", "") != "")]
    seconds = rows["rank_s"].str.split(expand=True).astype(float) if len(rows) else pd.DataFrame()
    last = seconds[seconds.count(axis=1) > 1].idxmax(axis=1)
    return last.groupby(rows["cell"]).agg(
        lambda ranks: f"{ranks.mode()[0]} ({100 * (ranks == ranks.mode()[0]).mean():.0f} %)"
    )


def ceiling(run: Results) -> Table:
    """Return the share of the store's ceiling that each cell reaches, paired within each record."""
    shares = [
        Column(f"share{end.replace('_', ' ')} / %", lambda _, cells, end=end: 100 * cells[f"share{end}"], prose.number)
        for end in ENDS
    ]
    return table(
        run,
        "ceiling",
        "Bandwidth of each cell beside that of bare concurrent requests (on a file system: plain reads) in the same "
        "records: median share with its 95 % CI. One reader that gives to the others can exceed 100 %: its bytes are "
        "fetched once and delivered to all.",
        (
            Column("bandwidth / MiB/s", "mib_s", names.rate),
            Column("ceiling / MiB/s", "ceiling_mib_s", names.rate),
            *shares,
            Column("threads", of_readers("ceiling.threads"), WHOLE),
            Column("requests per round", of_readers("ceiling.requests"), MOST),
        ),
        run.measured[run.measured["ceiling_mib_s"].notna()],
    )


def memory(run: Results) -> Table:
    """Return how much memory a process took beyond its start, against what an operation may take."""
    if "memory.ranks" not in run.readers:
        return Table("memory", "", pd.DataFrame())
    facts = run.readers.dropna(subset="memory.ranks")

    def largest(key: str) -> pd.Series:
        return facts["memory.ranks"].map(lambda ranks: max((rank[key] for rank in ranks), default=0))

    columns = {
        "cell": facts["cell"],
        "allowed / MiB": facts["memory.allowed_bytes"] / MIB,
        "at the start / MiB": largest("start_bytes") / MIB,
        "peak / MiB": largest("peak_bytes") / MIB,
        "growth / MiB": facts["memory.growth_bytes"] / MIB,
    }
    most = pd.DataFrame(columns).groupby("cell").max()
    over = {"growth / MiB": lambda growth, cells: growth > cells["cell"].map(most["allowed / MiB"])}
    return table(
        run,
        "memory",
        "The largest process of any repeat. At the start: interpreter, MPI and client are loaded; growth: from there "
        "to the peak; allowed: an operation and 64 MiB, whatever the size of the object.",
        [
            Column(
                title, lambda _, cells, title=title: cells["cell"].map(most[title]), MOST, over.get(title), "too much"
            )
            for title in most
        ],
        run.cells[(run.cells["control"] == "") & run.cells["cell"].isin(most.index)],
    )


def software(run: Results) -> Table:
    """Return MPI, launcher and client by store, one row for each that occurred."""
    if "effective.client" not in run.valid_readers:
        return Table("software", "", pd.DataFrame())
    facts = run.valid_readers.drop_duplicates("cell", keep="last")
    frame = pd.DataFrame(
        {
            "store": facts["cell"].map(run.cells.set_index("cell")["store"]).map(run.names.store),
            "client": facts["effective.client"],
            "MPI": facts["effective.mpi"],
            "started by": facts["effective.launcher"],
            "hosts": facts["effective.hosts"].str.len(),
        }
    )
    caption = "The software that read: client of the store, MPI and its launcher."
    return Table("software", caption, account.without_empty(frame.drop_duplicates(ignore_index=True)))
