"""Draws what each process gets of the objects in each pattern: the panels of docs/images/patterns.svg of this run."""

from pathlib import Path
from xml.etree import ElementTree

from scripts.report.markup import code
from scripts.report.page import Drawing
from scripts.studies.blobs.report import PATTERNS
from scripts.studies.blobs.report.results import Results

DRAWN = Path("docs/images/patterns.svg")
SVG = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT, COLUMNS = 316, 238, 3  # pixels from panel to panel
EXPLAINED = {
    "single-file": "every process reads the whole of one object (SFMR)",
    "multiple-files": "rank i reads the whole of object i (MFMR)",
    "broadcast": "rank 0 reads the whole object, MPI_Bcast gives all of it to every process; compare single-file",
    "sections": "every process reads its own contiguous section of one object",
    "sections-interleaved": "every process reads every P-th piece of one object",
    "scatter": "rank 0 reads the whole object, MPI_Scatterv gives each process its section; compare sections",
    "mpi-io": "sections through MPI_File_read_at, each process by itself",
    "mpi-io-interleaved": "interleaved pieces through an MPI file view, each process by itself",
    "mpi-io-collective": "sections through MPI_File_read_at_all: the MPI library decides who reads what",
    "mpi-io-collective-interleaved": "interleaved pieces through a file view, read together: the MPI library decides "
    "who reads what",
}


def draw(run: Results) -> Drawing:
    """Return the panels of the run's patterns; sections of objects of each process's own have a panel of their own."""
    ElementTree.register_namespace("", SVG)
    picture = ElementTree.parse(DRAWN).getroot()
    cells = set(zip(run.cells["pattern"], run.cells["objects"] == "own", strict=True))
    shown = {f"{pattern}-own-objects" if own else pattern for pattern, own in cells}
    panels = [panel for panel in picture.findall(f"{{{SVG}}}g") if panel.get("id") in shown]
    for panel in picture.findall(f"{{{SVG}}}g"):
        if panel not in panels:
            picture.remove(panel)
    for number, panel in enumerate(panels):
        panel.set("transform", f"translate({number % COLUMNS * WIDTH},{number // COLUMNS * HEIGHT})")
    size = min(COLUMNS, len(panels)) * WIDTH, -(-len(panels) // COLUMNS) * HEIGHT
    picture.set("viewBox", f"0 0 {size[0]} {size[1]}")
    picture.set("width", str(size[0]))
    picture.set("height", str(size[1]))
    caption = (
        "What four processes get of the objects. Thick arrows: reads from the store; thin ones: messages between "
        "processes. Each process holds what is drawn in it; colours say whose section a block is."
    )
    return Drawing("patterns", "Patterns", caption, ElementTree.tostring(picture, encoding="unicode") + "\n")


def in_words(run: Results) -> list[str]:
    """Return a sentence for each pattern of the run."""
    patterns = set(run.cells["pattern"])
    lines = [f"{code(pattern)}: {EXPLAINED[pattern]}." for pattern in PATTERNS if pattern in patterns]
    if (run.cells["objects"] == "own").any():
        lines.append("own objects: rank i reads its section of object i, so that no two read the same object.")
    return lines
