"""What the page shows of the patterns: a drawing, a sentence about each, and figures that compare them."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from scripts.report import comparisons
from scripts.report.markup import code
from scripts.report.page import Drawing
from scripts.report.plot import Figure
from scripts.report.results import Results
from scripts.statistics.verdicts import CONTEST
from scripts.studies.blobs.patterns import FROM_ONE, PATTERNS

# The panels of this picture are named after the patterns.
DRAWN = Path("docs/images/patterns.svg")
SVG = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT, COLUMNS = 316, 238, 3  # pixels from panel to panel
# One reader that gives to the others, and the pattern in which everyone reads the same.
ONE_READER = ({"broadcast", "single-file"}, {"scatter", "sections"})


def draw(run: Results) -> Drawing:
    """Return the panels of the run's patterns; sections of objects of each process's own have a panel of their own."""
    ElementTree.register_namespace("", SVG)
    picture = ElementTree.parse(DRAWN).getroot()
    own = {f"{pattern}-own-objects" for pattern in run.cells.loc[run.cells["objects"] == "own", "pattern"]}
    shown = own | set(run.cells.loc[run.cells["objects"] != "own", "pattern"])
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
    """Return figures of patterns compared: one reader against all, patterns in which everyone reads, and MPI-IO."""
    rows = _pairs(run)
    return [
        comparisons.of_rows(run, rows[rows["kind"] == kind], f"comparison-{kind}", title)
        for kind, title in (
            ("one-reader", "One reader that gives to the others against everyone reading"),
            ("everyone", "Everyone reads: patterns compared"),
            ("mpi-io", "MPI-IO, independent and collective"),
        )
    ]


def _pairs(run: Results) -> pd.DataFrame:
    """Every judged pair of patterns that differ in nothing else: those under `compare`, and those of the contests."""
    rows = run.verdicts
    if rows.empty:
        return pd.DataFrame(columns=["kind"])
    levels = run.cells.set_index("cell")[list(run.report.names)]
    pairs = rows[(rows["factor"] == CONTEST) & rows[["baseline", "contender"]].isin(levels.index).all(axis=1)]
    sides = {side: levels.loc[pairs[side]].set_axis(pairs.index) for side in ("baseline", "contender")}
    differ = (sides["baseline"] != sides["contender"]).drop(columns="pattern")
    states = dict(zip(run.cells["cell"], run.states(run.cells), strict=True))
    pairs = pairs.assign(factor="pattern", state=pairs["baseline"].map(states))
    pairs = pairs.assign(**{side: table["pattern"] for side, table in sides.items()})[~differ.any(axis=1)]
    compared = run.comparisons("total")
    pairs = pd.concat([compared[compared["factor"] == "pattern"], pairs])
    return pairs.assign(kind=list(map(_kind, pairs["baseline"], pairs["contender"])))


def _kind(baseline: str, contender: str) -> str:
    if {baseline, contender} in ONE_READER:
        return "one-reader"
    if PATTERNS[baseline].mpi_io or PATTERNS[contender].mpi_io:
        return "mpi-io"
    return "" if baseline in FROM_ONE or contender in FROM_ONE else "everyone"
