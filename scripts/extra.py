"""Execute a user's notebook (notebooks/extra/) on the table of a run's observations, and write its page."""

import argparse
from pathlib import Path

import nbformat

from sbench.pages import notebook
from sbench.pages.page import draw_aside
from sbench.probe.program import run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Write the page, and an artefact with the notebook's title."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", type=Path, required=True, help="the notebook, with parameters table and files")
    parser.add_argument("--table", required=True, help="the long table of the run, Parquet")
    parser.add_argument("--page", type=Path, required=True, help="the HTML page; all other files share its name")
    parser.add_argument("--out", type=Path, required=True, help="the artefact, JSON")
    given = parser.parse_args(argv)
    notebook.build_page(given.notebook, {"table": given.table}, given.page.resolve())
    write_json(given.out, {"status": "done", "title": read_title(given.notebook)})
    return 0


def read_title(path: Path) -> str:
    """Return a notebook's first heading, or its file name if it has no headings."""
    cells = nbformat.read(path, as_version=4).cells
    lines = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.splitlines()]
    return next((line.lstrip("#").strip() for line in lines if line.startswith("#")), path.name)


if __name__ == "__main__":
    draw_aside()
    run_main(main)
