"""What only this study shows and says: the published layout, iterations, memory, patterns, limits of its data."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from scripts.report import account, comparisons, listings, names, prose
from scripts.report.declaration import Column, Value
from scripts.report.listings import WHOLE, of_readers
from scripts.report.markup import code
from scripts.report.page import Drawing, Table
from scripts.report.plot import Figure
from scripts.report.results import Results
from scripts.studies.blobs.patterns import FROM_ONE, PATTERNS
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
# The panels of this picture are named after the patterns.
DRAWN = Path("docs/images/patterns.svg")
SVG = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT, COLUMNS = 316, 238, 3  # pixels from panel to panel
# One reader that gives to the others, and the pattern in which everyone reads the same.
ONE_READER = ({"broadcast", "single-file"}, {"scatter", "sections"})


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
    heads = {**{key: run.report.factor(key).title for key in varies}, "size": "size of an object"}
    frame = pd.DataFrame({head: [run.names.cell(key, level) for level in rows[key]] for key, head in heads.items()})
    over = {}
    for store in cells["store"].unique():
        own = rows.merge(cells[cells["store"] == store], on=keys, how="left")
        for column, as_printed, head, digits in SHOWN:
            texts = own.get(as_printed, [_text(cell, column, digits) for cell in own.to_dict("records")])
            frame[f"{run.names.store(store)} {head}"] = texts
            over[f"{run.names.store(store)} {head}"] = list(own["invalid"] > 0)
    how = (
        "latency: median of the iterations after the first (of a single one, that one); bandwidth: all bytes divided "
        "by the time, without the first iteration; [95 % CI] over the repeats, where they are 6 or more"
    )
    same = {factor: cells[factor].iloc[0] for factor in ROWS if factor not in varies}
    shared = ", ".join(run.names.level(*level) for level in same.items() if level[1] not in ("", "any"))
    return Table(
        name,
        f"{title}: {'as printed' if is_printed(run) else how}. {prose.capital(shared)}{'.' if shared else ''}",
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
    recomputed, percent = "recomputed / MiB/s", "printed against it / %"
    heads = {"latency": "latency / s", "bandwidth": "bandwidth / MiB/s", "recomputed": recomputed, "percent": percent}
    caption = (
        f"{len(wrong)} of {len(run.cells)} printed bandwidths that do not follow from the size and the latency printed "
        f"beside them ({processes} processes), even if both were rounded."
    )
    formats = {"size": names.size, recomputed: "{:.3f}".format, percent: "{:+.2f}".format}
    numbers = wrong[[*printed.COLUMNS, "recomputed", "least", "most", "percent"]]
    frame = wrong[["pattern", "size", "store", *heads]].rename(columns=heads)
    return Table("audit", caption, frame, formats, numbers=numbers)


def iterations(run: Results) -> Table:
    """Return how the iterations and the processes of each cell's records differ."""
    columns = (
        Column("iterations per record", "iterations", WHOLE),
        Column("first / s", "first_s", prose.number),
        # Of records with one iteration the latency is that of the first.
        Column("later / s", lambda _, cells: cells["latency_s"].where(cells["first_ratio"].notna()), prose.number),
        Column("first / later", "first_ratio", prose.ratio),
        Column("slowest / fastest iteration", "spread", prose.ratio),
        Column("last / first process done", "imbalance", prose.ratio),
        Column("slowest rank", _slowest),
    )
    caption = (
        "Medians over the repeats. Later: the median of a record's iterations after the first; slowest / fastest "
        "iteration: of the later ones; slowest rank: the one that took longest in most iterations, and in how many."
    )
    return listings.table(run, "iterations", caption, columns, about=columns[:1])


def _slowest(run: Results, cells: pd.DataFrame) -> pd.Series:
    """The rank that was last in most of a cell's iterations, and in how many of them."""
    rows = reads(run.samples)
    rows = rows[rows["valid"] & (rows.get("rank_s", "") != "")] if len(rows) else rows
    seconds = rows["rank_s"].str.split(expand=True).astype(float) if len(rows) else pd.DataFrame()
    last = seconds[seconds.count(axis=1) > 1].idxmax(axis=1)

    def most(ranks: pd.Series) -> str:
        return f"{ranks.mode()[0]} ({100 * (ranks == ranks.mode()[0]).mean():.0f} %)"

    return cells["cell"].map(last.groupby(rows["cell"]).agg(most)).fillna("") if len(last) else cells["cell"].map({})


def memory(run: Results) -> Table:
    """Return how much memory a process took beyond its start, against what an operation may take."""

    def largest(key: str):
        return of_readers(
            "memory.ranks", "max", lambda ranks: max((rank[key] for rank in ranks), default=0) / MIB, False
        )

    def mib(fact: str):
        return of_readers(f"memory.{fact}", "max", lambda value: value / MIB, False)

    columns = (
        Column("allowed / MiB", mib("allowed_bytes"), MOST),
        Column("at the start / MiB", largest("start_bytes"), MOST),
        Column("peak / MiB", largest("peak_bytes"), MOST),
        Column("growth / MiB", mib("growth_bytes"), MOST, lambda mib, cells: mib > cells["allowed / MiB"], "too much"),
    )
    caption = (
        "The largest process of any repeat. At the start: interpreter, MPI and client are loaded; growth: from there "
        "to the peak; allowed: an operation and 64 MiB, whatever the size of the object."
    )
    read = run.cells["cell"].isin(run.readers["cell"]) & (run.cells["control"] == "")
    return listings.table(run, "memory", caption, columns, run.cells[read], columns)


def software(run: Results) -> Table:
    """Return MPI, launcher and client by store, one row for each that occurred."""
    facts = run.valid_readers.drop_duplicates("cell", keep="last")
    if "effective.client" not in facts:
        return Table("software", "", pd.DataFrame())
    stores = facts["cell"].map(run.cells.set_index("cell")["store"]).map(run.names.store)
    heads = {"client": "client", "mpi": "MPI", "launcher": "started by"}
    frame = pd.DataFrame({"store": stores, **{head: facts[f"effective.{key}"] for key, head in heads.items()}})
    frame = frame.assign(hosts=facts["effective.hosts"].str.len()).drop_duplicates(ignore_index=True)
    caption = "The software that read: client of the store, MPI and its launcher."
    return Table("software", caption, account.without_empty(frame))


def draw(run: Results) -> Drawing:
    """Return the panels of the run's patterns; sections of objects of each process's own have a panel of their own."""
    ElementTree.register_namespace("", SVG)
    picture = ElementTree.parse(DRAWN).getroot()
    own = run.cells["objects"] == "own"
    shown = {*run.cells.loc[~own, "pattern"], *(run.cells.loc[own, "pattern"] + "-own-objects")}
    number = 0
    for panel in picture.findall(f"{{{SVG}}}g"):
        if panel.get("id") in shown:
            panel.set("transform", f"translate({number % COLUMNS * WIDTH},{number // COLUMNS * HEIGHT})")
            number += 1
        else:
            picture.remove(panel)
    width, height = min(COLUMNS, number) * WIDTH, -(-number // COLUMNS) * HEIGHT
    for attribute, value in {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}.items():
        picture.set(attribute, str(value))
    caption = (
        "What four processes get of the objects. Thick arrows: reads from the store; thin ones: messages between "
        "processes. Each process holds what is drawn in it; colours say whose section a block is."
    )
    return Drawing("patterns", "Patterns", caption, ElementTree.tostring(picture, encoding="unicode") + "\n")


def in_words(run: Results) -> list[str]:
    """Return a sentence for each pattern of the run."""
    there = set(run.cells["pattern"])
    lines = [f"{code(name)}: {pattern.explained}." for name, pattern in PATTERNS.items() if name in there]
    if (run.cells["objects"] == "own").any():
        lines.append("own objects: rank i reads its section of object i, so that no two read the same object.")
    return lines


def compared(run: Results) -> list[Figure]:
    """Return every judged pair of patterns that differ in nothing else, a figure for each kind of pair."""
    pairs = pd.concat([run.comparisons(), run.contest])
    pairs = pairs[pairs["factor"] == "pattern"]
    kinds = np.array([_kind(*sides) for sides in zip(pairs["baseline"], pairs["contender"], strict=True)])
    titles = {
        "one-reader": "One reader that gives to the others against everyone reading",
        "everyone": "Everyone reads: patterns compared",
        "mpi-io": "MPI-IO, independent and collective",
    }
    return [
        comparisons.of_rows(run, pairs[kinds == kind], f"comparison-{kind}", title) for kind, title in titles.items()
    ]


def _kind(baseline: str, contender: str) -> str:
    if {baseline, contender} in ONE_READER:
        return "one-reader"
    if PATTERNS[baseline].mpi_io or PATTERNS[contender].mpi_io:
        return "mpi-io"
    return "" if baseline in FROM_ONE or contender in FROM_ONE else "everyone"


def limits(run: Results) -> list[str]:
    """Return what only this study's data cannot say."""
    if is_printed(run):
        return ["The numbers are those of printed tables, without intervals and single repeats."]
    lines, readers = [], run.readers
    hosts = readers.get("effective.hosts", pd.Series(dtype=object)).dropna().str.len()
    if len(hosts) and hosts.max() < 2:
        lines.append(
            "All processes ran on one machine: broadcasts go through its memory, not over a network between machines."
        )
    refused = readers.get("ceiling.problem", pd.Series()).dropna()
    if len(refused):
        many = prose.count(len(refused), "record")
        lines.append(f"The bare client could not be measured in {many}: {refused.iloc[0]}.")
    # Records of before have bare requests, and do not say by how many processes.
    threads, processes = (listings.column(readers, f"ceiling.{name}") for name in ("threads", "processes"))
    if alone := int((threads.notna() & processes.isna()).sum()):
        lines.append(
            f"In {prose.count(alone, 'record')} of an earlier version the bare client was threads of one process on "
            "one machine, which may get less than several."
        )
    if beyond := int((run.measured["share"] > 1.05).sum()):
        lines.append(
            f"In {prose.count(beyond, 'cell')} the processes got more than the bare client, by more than 5 %: what it "
            "gets is measured, and there it is not a bound."
        )
    if retried := int(listings.numbers(readers, "retries").sum()):
        lines.append(f"The clients retried {prose.count(retried, 'request')}; the times include that.")
    if idle := int((listings.numbers(readers, "effective.idle_processes") > 0).sum()):
        lines.append(f"In {prose.count(idle, 'record')} some processes had nothing to read.")
    return lines


def by_store(run: Results, value: Value, text: str) -> list[str]:
    """Return a sentence per store about a value; `text` holds its median: "the first iteration took {}× as long …"."""
    lines = []
    for store in run.levels("store"):
        own = run.measured.loc[run.measured["store"] == store, value.column].dropna()
        if len(own):
            summary = f"median of {prose.count(len(own), 'cell')}; {prose.span(own)}"
            lines.append(f"{run.names.store(store)}: {text.format(prose.ratio(own.median()))} ({summary}).")
    return lines
