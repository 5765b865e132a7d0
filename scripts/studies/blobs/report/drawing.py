"""Draws what each process gets of the objects in each pattern: from the plan that the reading processes themselves use.

A panel a pattern: objects above, cut into blocks; four processes below, each holding what it was given, in its colour.
Thick arrows are reads from the store, thin ones messages between processes.
"""

from html import escape

import pandas as pd

from scripts.report.markup import code
from scripts.report.page import Drawing
from scripts.report.plot import COLOURS
from scripts.studies.blobs import patterns
from scripts.studies.blobs.report import PATTERNS
from scripts.studies.blobs.report.data import Results

PROCESSES, BLOCK, BLOCKS = 4, 4096, 8
WIDTH, HEIGHT, GAP, COLUMNS = 300, 222, 16, 3
FONT = "font-family=\"'DejaVu Sans', 'Liberation Sans', Arial, sans-serif\""
GREY, INK = "#c9ccd1", "#333333"
OBJECT_Y, PROCESS_Y = 46, 130
EXPLAINED = {
    "single-file": "every process reads the whole of one object (SFMR)",
    "multiple-files": "process i reads the whole of object i (MFMR)",
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


def draw(results: Results) -> Drawing:
    """Return a panel for each pattern of the run, and for sections of objects of each process's own."""
    cells = results.cells
    found = set(zip(cells["pattern"], cells["objects"] == "own", strict=True))
    shown = [(pattern, own) for pattern in PATTERNS for own in (False, True) if (pattern, own) in found]
    panels, rows = [], []
    for number, (pattern, own) in enumerate(shown):
        plan = _plan(pattern, own)
        x = (number % COLUMNS) * (WIDTH + GAP)
        y = (number // COLUMNS) * (HEIGHT + GAP)
        title = f"{pattern}, own objects" if own else pattern
        panels.append(f'<g transform="translate({x},{y})">{_panel(plan, title)}</g>')
        rows += _rows(plan, title)
    columns, lines = min(COLUMNS, len(shown)), -(-len(shown) // COLUMNS)
    size = columns * (WIDTH + GAP) - GAP, lines * (HEIGHT + GAP) - GAP
    caption = (
        f"What {PROCESSES} processes get of the objects. Thick arrows: reads from the store; thin ones: messages "
        "between processes. Each process holds what is drawn in it; colours say whose section a block is."
    )
    return Drawing("patterns", "Patterns", caption, _document(*size, "".join(panels)), pd.DataFrame(rows))


def in_words(results: Results) -> list[str]:
    """Return a sentence for each pattern of the run."""
    there = set(results.cells["pattern"])
    lines = [f"{code(pattern)}: {EXPLAINED[pattern]}." for pattern in PATTERNS if pattern in there]
    if (results.cells["objects"] == "own").any():
        lines.append("own objects: process i reads its section of object i, so that no two read the same object.")
    return lines


def _plan(pattern: str, own: bool) -> patterns.Plan:
    asked = {"operation_bytes": BLOCK * BLOCKS, "chunk_bytes": BLOCK, "concurrency": 1, "own": own}
    return patterns.Plan(pattern, PROCESSES, BLOCK * BLOCKS, BLOCK, asked)


def _blocks(operations: list[patterns.Operation]) -> list[tuple[int, int]]:
    """(object, block) of all that some operations bring."""
    return [
        (one.object, block)
        for one in operations
        for offset, length in one.extents
        for block in range(offset // BLOCK, -(-(offset + length) // BLOCK))
    ]


def _rows(plan: patterns.Plan, title: str) -> list[dict]:
    """The drawing's numbers: which blocks of which objects each process reads, and which it is given."""
    rows = []
    for rank in range(PROCESSES):
        sides = {"reads": plan.fetched(rank), "gets": plan.operations(rank)}
        told = {side: " ".join(f"{number}:{block}" for number, block in _blocks(one)) for side, one in sides.items()}
        rows.append({"pattern": title, "process": rank, **told})
    return rows


def _panel(plan: patterns.Plan, title: str) -> str:
    collective = plan.pattern.startswith("mpi-io-collective")
    objects = _object_boxes(plan)
    gets = {rank: _blocks(plan.operations(rank)) for rank in range(PROCESSES)}
    reads = {rank: _blocks(plan.fetched(rank)) for rank in range(PROCESSES)}
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff" stroke="#dddddd"/>',
        _text(10, 20, title, weight="bold", anchor="start"),
    ]
    owners = {one: [rank for rank, got in gets.items() if one in got] for got in gets.values() for one in got}
    for number, (x, width) in objects.items():
        parts.append(_bar(x, OBJECT_Y, width, 20, [_colour(owners.get((number, b), []), plan) for b in range(BLOCKS)]))
        parts.append(_text(x + width / 2, OBJECT_Y - 6, f"object {number}", size=10))
    for rank, got in gets.items():
        x = _process_x(rank)
        parts.append(
            f'<rect x="{x - 30}" y="{PROCESS_Y}" width="60" height="48" rx="5" fill="#f5f6f8" stroke="{INK}"/>'
        )
        parts.append(_text(x, PROCESS_Y + 17, f"process {rank}", size=10))
        held = dict(got)
        colours = [_colour(owners[number, block], plan) for number, block in got] if held else []
        width = 48 if len(got) == BLOCKS else 48 * len(got) / BLOCKS + 6
        parts.append(_bar(x - width / 2, PROCESS_Y + 26, width, 14, colours))
    parts += _collective(objects[0]) if collective else _reads(reads, objects, plan)
    parts += _messages(plan) if plan.pattern in patterns.FROM_ONE else []
    return "".join(parts)


def _object_boxes(plan: patterns.Plan) -> dict[int, tuple[float, float]]:
    """Where each object lies: its left edge and width."""
    if plan.objects == 1:
        return {0: (50.0, 200.0)}
    return {number: (_process_x(number) - 29, 58.0) for number in range(plan.objects)}


def _process_x(rank: int) -> float:
    return 42 + rank * 72


def _reads(reads: dict[int, list], objects: dict, plan: patterns.Plan) -> list[str]:
    """Arrows from the parts of the objects to the processes that read them; several pieces have one each."""
    parts = []
    for rank, found in reads.items():
        target = _process_x(rank)
        whole = len(found) == BLOCKS
        for number in dict.fromkeys(number for number, _ in found):
            x, width = objects[number]
            blocks = [block for own, block in found if own == number]
            colour = INK if whole else COLOURS[rank]
            for start, stop in _runs(blocks):
                middle = x + width * (start + stop) / 2 / BLOCKS
                # Readers of one whole object begin beside each other, not in one point.
                aside = (rank - (PROCESSES - 1) / 2) * 22 if whole and plan.pattern == "single-file" else 0
                parts.append(_arrow(middle + aside, OBJECT_Y + 22, target, PROCESS_Y - 2, colour, 2.2))
    return parts


def _collective(box: tuple[float, float]) -> list[str]:
    x, width = box
    parts = [
        f'<rect x="30" y="88" width="{WIDTH - 60}" height="18" rx="4" fill="#eef1f5" stroke="{INK}"/>',
        _text(WIDTH / 2, 101, "the MPI library reads for all", size=10),
    ]
    parts += [_arrow(x + width * part, OBJECT_Y + 22, x + width * part, 86, INK, 2.2) for part in (0.25, 0.75)]
    ranks = map(_process_x, range(PROCESSES))
    return parts + [_arrow(place, 107, place, PROCESS_Y - 2, INK, 1.1) for place in ranks]


def _messages(plan: patterns.Plan) -> list[str]:
    """Curved arrows below the processes, from process 0 to the others."""
    below = PROCESS_Y + 48
    parts = []
    for rank in range(1, PROCESSES):
        start, end = _process_x(0) - 6 + 6 * rank, _process_x(rank)
        colour = INK if plan.pattern == "broadcast" else COLOURS[rank]
        deep = below + 8 + 9 * rank
        parts.append(
            f'<path d="M{start} {below} C{start} {deep}, {end} {deep}, {end} {below + 2}" fill="none" '
            f'stroke="{colour}" stroke-width="1.3" marker-end="url(#{_marker(colour)})"/>'
        )
    name = "MPI_Bcast" if plan.pattern == "broadcast" else "MPI_Scatterv"
    return [*parts, _text(WIDTH - 12, HEIGHT - 10, name, size=10, anchor="end")]


def _runs(blocks: list[int]) -> list[tuple[int, int]]:
    """Blocks beside each other as (first, one past the last)."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and runs[-1][1] == block:
            runs[-1] = (runs[-1][0], block + 1)
        else:
            runs.append((block, block + 1))
    return runs


def _colour(owners: list[int], plan: patterns.Plan) -> str:
    """A section has its process's colour; what all are given, or an object has that no one else reads, is grey."""
    if not owners:
        return "#ffffff"
    return GREY if len(owners) > 1 else COLOURS[owners[0]]


def _bar(x: float, y: float, width: float, height: float, colours: list[str]) -> str:
    step = width / max(len(colours), 1)
    cells = "".join(
        f'<rect x="{x + step * place:.2f}" y="{y}" width="{step:.2f}" height="{height}" fill="{colour}" '
        f'stroke="#ffffff" stroke-width="0.8"/>'
        for place, colour in enumerate(colours)
    )
    return f'{cells}<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="none" stroke="{INK}"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float, colour: str, width: float) -> str:
    return (
        f'<line x1="{x:.2f}" y1="{y}" x2="{to_x:.2f}" y2="{to_y}" stroke="{colour}" stroke-width="{width}" '
        f'marker-end="url(#{_marker(colour)})"/>'
    )


def _marker(colour: str) -> str:
    return f"arrow-{colour.removeprefix('#').lower()}"


def _text(x: float, y: float, text: str, size: int = 12, weight: str = "normal", anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.2f}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{INK}">{escape(text)}</text>'
    )


def _document(width: int, height: int, body: str) -> str:
    heads = "".join(
        f'<marker id="{_marker(colour)}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for colour in (INK, *COLOURS[:PROCESSES])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {FONT}><title>What each process gets of the objects in each pattern</title><defs>{heads}</defs>'
        f"{body}</svg>\n"
    )
