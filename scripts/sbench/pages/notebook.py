"""Execute a notebook on a study's tables and write a self-contained HTML page, and Markdown with SVG figures."""

import argparse
import re
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import papermill
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbconvert import HTMLExporter, MarkdownExporter, TemplateExporter
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

from sbench.probe.program import Problem, write_text

TEMPLATES = Path("notebooks/templates")
# Cells with these tags contain paths specific to a run. Hiding them makes pages reproducible: equal tables give equal
# pages.
NOT_SHOWN = {"parameters", "injected-parameters"}
_HASHES = "HASHES-OF-THE-SCRIPTS"
_PAGE = re.compile(r"\]\(([\w.-]+)\.html\)")


def main(argv: list[str] | None = None) -> int:
    """Write the HTML page `--out`, and next to it a Markdown version and a directory of figures and numbers.

    If the notebook produces a summary, it is written as `<stem>_answers.json`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", type=Path, required=True, help="the notebook to execute")
    parser.add_argument("--out", type=Path, required=True, help="the HTML page, which names all other files")
    parser.add_argument("--facts", default="", help="JSON: run, machine, libraries, stores, settings, question, limits")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tables", help="folder of samples.csv, cells.csv, verdicts.csv and matrix.csv")
    source.add_argument("--table", help="the long table of a run, for a notebook that reads only this")
    source.add_argument("--answers", nargs="+", help="answers of the studies, for the page that opens with them")
    parser.add_argument("--extra", nargs="*", help="artefacts of the user's notebooks, for the same page")
    given = parser.parse_args(argv)
    parameters = {name: vars(given)[name] for name in ("tables", "table", "answers", "extra") if vars(given)[name]}
    build_page(given.notebook, parameters | ({"facts": given.facts} if given.tables else {}), given.out.resolve())
    return 0


def build_page(notebook: Path, parameters: dict, out: Path) -> None:
    """Execute a notebook and write its page.

    The page consists of `out` (HTML), its Markdown, `<stem>_files/` and, if the notebook produces it, the summary
    `<stem>_answers.json`. All files are built in a temporary directory and moved at the end, so that a failure leaves
    an earlier page unchanged.

    Raises:
        Problem: the notebook is missing, does not accept a parameter, or one of its cells fails.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.stem}.", dir=out.parent) as work:
        files = Path(work) / f"{out.stem}_files"
        files.mkdir()
        executed = run_notebook(notebook, parameters | {"files": str(files)})
        page, text = _render_html(executed, out.stem), _render_markdown(executed)
        answers = files / "answers.json"
        if answers.exists():
            write_text(out.with_name(f"{out.stem}_answers.json"), answers.read_text(encoding="utf-8"))
            answers.unlink()
        _replace_folder(files, out.parent / files.name)
        write_text(out.with_suffix(".md"), text)
        write_text(out, page)


def run_notebook(path: Path, parameters: dict):
    """Execute a notebook and return it.

    Raises:
        Problem: the notebook is missing, does not accept a parameter, or one of its cells fails.
    """
    if not path.is_file():
        raise Problem(f"{path} does not exist; name a notebook in notebooks/")
    declared = papermill.inspect_notebook(str(path))
    if unknown := sorted(parameters.keys() - declared.keys()):
        raise Problem(f"{path}: unknown parameter {unknown[0]}; known: {', '.join(declared)}")
    try:
        return papermill.execute_notebook(
            str(path), None, parameters, engine_name=InProcess.name, kernel_name="python3", progress_bar=False
        )
    except CellFailed as error:
        raise Problem(f"{path}: {error}") from error


class CellFailed(Exception):
    """Raised if a notebook cell fails, with the cell's number and exception."""


class InProcess(Engine):
    """A papermill engine that runs cells in this process, because a kernel takes seconds to start and import modules.

    The user's IPython configuration does not affect the cells.
    """

    name = "in-process"

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **_: object) -> None:
        """Run the notebook's cells in order."""
        cells = [cell for cell in nb_man.nb.cells if "injected-parameters" not in cell.metadata.tags]
        with tempfile.TemporaryDirectory(prefix="report.") as home:
            # Use a separate module, because the default would replace this program's __main__.
            shell = InteractiveShell.instance(
                config=Config(HistoryManager={"enabled": False}), ipython_dir=home, user_module=ModuleType("notebook")
            )
            plots = shell.display_formatter.mimebundle_formatter
            plots.for_type_by_name("holoviews.core.dimension", "Dimensioned", partial(_draw_plot, shell.user_ns))
            try:
                for cell in nb_man.nb.cells:
                    if cell.cell_type == "code":
                        number = cells.index(cell) if cell in cells else 0
                        cell.outputs = _run_cell(shell, cell.source, f"cell {number}")
            finally:
                InteractiveShell.clear_instance()


papermill_engines.register(InProcess.name, InProcess)


def _draw_plot(names: dict, plot: object) -> dict[str, str]:
    """Render a HoloViews plot as HTML that works offline, and as Markdown with an SVG file in the directory `files`."""
    # Import HoloViews here, because the import takes seconds and few notebooks need it.
    import holoviews as hv

    from sbench.pages import plot_html

    folder = Path(names["files"])
    number = len(list(folder.glob("plot-*.svg"))) + 1
    picture = folder / f"plot-{number}.svg"
    drawn, axes = hv.render(plot, backend="matplotlib"), hv.render(plot, backend="bokeh")
    drawn.set_size_inches(9, 4)
    for part in drawn.axes:
        part.set_aspect("auto")
        part.tick_params(axis="x", rotation=30)
    drawn.savefig(picture, bbox_inches="tight")
    axes.update(sizing_mode="stretch_width", width=None)
    panel = f'<div class="panel">{plot_html.render_axes(axes, picture.stem)}</div>'
    return {
        "text/html": panel if number > 1 else plot_html.render_loader() + panel,
        "text/markdown": f"![Plot {number}]({folder.name}/{picture.name})",
    }


def _run_cell(shell: InteractiveShell, source: str, where: str) -> list[NotebookNode]:
    with capture_output() as shown:
        shell.display_trap.hook = sys.displayhook  # show the value of a last line, as Jupyter does
        result = shell.run_cell(source)
    try:
        result.raise_error()
    except Problem:
        raise
    except (Exception, SystemExit) as error:
        print(*strip_ansi(shown.stdout + shown.stderr).splitlines(), sep="\n", file=sys.stderr)
        raise CellFailed(f"{where} failed: {type(error).__name__}: {error}") from error
    printed = {"stdout": shown.stdout, "stderr": shown.stderr}
    return [
        *(new_output("stream", name=name, text=text) for name, text in printed.items() if text),
        *(
            new_output("display_data", output.data, metadata=output.metadata)
            for output in shown.outputs
            # Outputs without text initialise Jupyter for the first HoloViews plot.
            if output.data.keys() & {"text/markdown", "text/plain"}
        ),
    ]


def _select_shown_cells(notebook):
    cells = [cell for cell in notebook.cells if not NOT_SHOWN & set(cell.metadata.get("tags", []))]
    if not notebook.metadata.get("show_code"):
        cells = list(_filter_chapters(cells))
    return type(notebook)({**notebook, "cells": cells})


def _filter_chapters(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Yield the cells of a notebook without the chapters that contain only a title."""
    chapters: list[list[NotebookNode]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            chapters.append([])
        chapters[-1].append(cell)
    for number, chapter in enumerate(chapters):
        shown = [cell.get("outputs") or (cell.cell_type == "markdown" and "\n" in cell.source) for cell in chapter]
        if not number or any(shown):
            yield from chapter


def _render_html(notebook, stem: str) -> str:
    exporter = HTMLExporter(template_name="offline", extra_template_basedirs=[str(TEMPLATES.resolve())])
    resources = {"metadata": {"name": stem}, "scripts_hashes": _HASHES}
    # HTMLExporter's method would parse the page again to name pictures; here, all pictures have names.
    text, _ = TemplateExporter.from_notebook_node(exporter, _select_shown_cells(notebook), resources)
    return text.replace(_HASHES, " ".join(_compute_script_hashes(text)) or "'none'")


def _compute_script_hashes(page: str) -> list[str]:
    """Return the hash of each inline script of a page, for its content security policy.

    Script elements of other types are ignored, because they contain data.
    """
    scripts = re.findall(r"<script(?: | type=\"text/javascript\")?>(.*?)</script>", page, re.DOTALL)
    return [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]


def _render_markdown(notebook) -> str:
    priority = {"display_data_priority": ["text/markdown", "text/plain"]}
    # Only tutorial notebooks show their code.
    exporter = MarkdownExporter(
        exclude_input=not notebook.metadata.get("show_code"), config=Config(NbConvertBase=priority)
    )
    text, _ = exporter.from_notebook_node(_select_shown_cells(notebook))
    lines = [line.rstrip() for line in text.splitlines()]
    kept = [line for number, line in enumerate(lines) if line or (number and lines[number - 1])]
    # Links in Markdown point to Markdown pages.
    return _PAGE.sub(r"](\1.md)", "\n".join(kept).strip() + "\n")


def _replace_folder(new: Path, old: Path) -> None:
    """Replace the directory `old` with `new`, so that no files of an earlier report remain."""
    aside = new.with_name("old")
    if old.exists():
        old.rename(aside)
    if any(new.iterdir()):
        shutil.move(new, old)
