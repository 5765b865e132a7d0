import html
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from sbench.pages import cell_figures, curves, notebook, stops
from sbench.probe.program import Problem
from sbench.studies.shots.report import format_hdf5_version, results
from tests.helpers.pages import write, write_words

NOTEBOOK = "notebooks/shots.ipynb"


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("shots")


@pytest.fixture(scope="module")
def page(report_of: Callable[[str], Path]) -> Path:
    return report_of("shots")


def test_what_failed_is_told_with_its_reason_and_as_it_is(page: Path):
    for text in (page.read_text(encoding="utf-8"), page.with_suffix(".md").read_text(encoding="utf-8")):
        assert "worker 1 was killed (signal 9)" in text
        assert "driver ros3 does not read a posix store" in text
        assert "server ended <early> in mid-cell" in html.unescape(text)
        assert "<early" not in text
        assert "[INVALID]" in text


def test_published_data_go_through_the_same_notebook(published: Path, tmp_path: Path):
    shutil.copy(published / "ros3-shots" / "ec2-s3.csv", tmp_path / "samples.csv")
    (tmp_path / "facts.json").write_text('{"settings": {"page_size": 8000000}}')
    text = write("shots", tmp_path, tmp_path / "shots.html").with_suffix(".md").read_text(encoding="utf-8")
    assert "There are no verdicts" in text
    assert "a signal of all shots (base: 8 workers" in text
    assert "shots_files/object-times.svg" in text


def test_a_library_of_another_study_does_not_rename_that_of_this_one():
    known = {name: {"hdf5": "2.0.0"} for name in ("hdf5-2.0.0", "arrays")}
    assert format_hdf5_version("hdf5-2.0.0", {"libraries": known}) == "hdf5-2.0.0"
    of_study = {"libraries": known, "settings": {"matrix": {"library": ["hdf5-2.0.0"]}}}
    assert format_hdf5_version("hdf5-2.0.0", of_study) == "HDF5 2.0.0"


@pytest.mark.parametrize("left", ["no cell", "no scaling"])
def test_figures_are_empty_and_not_in_error_where_nothing_can_be_drawn(left: str, tables: Path):
    run = results.load_results(tables, tables / "facts.json")
    if left == "no cell":
        run = replace(run, cells=run.cells.assign(n=0, failed=6))
    else:
        run = replace(run, report=replace(run.report, scaling=None))
    drawn = [
        curves.draw_speedup(run),
        cell_figures.draw_lone_cells(run),
        cell_figures.draw_time_parts(run, "parts", "", results.PARTS, "", ""),
    ]
    drawn += [curves.draw_curves(run, "workers"), cell_figures.draw_boxes(run, "boxes", "", "mean-obj-time", "", "")]
    assert [bool(figure.panels) for figure in drawn] == ([False] * 5 if left == "no cell" else [False, *[True] * 4])
    assert left == "no cell" or stops.describe_stops(run) == []


@pytest.fixture
def with_cell(tmp_path: Path, monkeypatch) -> Callable[[str], Path]:
    """Return a function source -> notebook of one cell, in a working directory with nothing but notebooks."""
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.chdir(tmp_path)

    def written(source: str) -> Path:
        content = json.loads(Path(NOTEBOOK).read_text(encoding="utf-8"))
        parameters = next(cell for cell in content["cells"] if cell["metadata"].get("tags") == ["parameters"])
        content["cells"] = [parameters, parameters | {"metadata": {}, "source": source, "id": "look"}]
        Path("look.ipynb").write_text(json.dumps(content), encoding="utf-8")
        return Path("look.ipynb")

    return written


def test_what_a_cell_prints_and_its_last_value_are_shown_and_nothing_else_is_left(with_cell: Callable):
    book = with_cell("import os\nprint(sorted(os.listdir()))\nfiles.rpartition('/')[2]")
    notebook.build_page(book, {}, Path("reports/look.html").resolve())
    text = Path("reports/look.md").read_text(encoding="utf-8")
    assert "['look.ipynb', 'notebooks', 'reports']" in text
    assert "'look_files'" in text
    assert sorted(path.name for path in Path().iterdir()) == ["look.ipynb", "notebooks", "reports"]


# What goes wrong


def test_unknown_parameter_is_named(tables: Path, tmp_path: Path):
    with pytest.raises(Problem, match=r"notebooks/shots.ipynb: unknown parameter shot; known: tables, facts"):
        notebook.build_page(Path(NOTEBOOK), {"tables": str(tables), "shot": "1"}, tmp_path / "shots.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "source, error, said",
    [
        ("1 / 0", "ZeroDivisionError: division", "----> 1 1 / 0"),
        ("1 /", "SyntaxError: invalid", "1 /"),
        ("raise SystemExit(0)", "SystemExit: 0", "SystemExit"),
    ],
)
@pytest.mark.filterwarnings("ignore:To exit")
def test_a_cell_that_fails_is_named_with_its_traceback(source: str, error: str, said: str, with_cell: Callable, capsys):
    with pytest.raises(Problem, match=f"^look.ipynb: cell 1 failed: {error}"):
        notebook.build_page(with_cell(source), {}, Path("look.html").resolve())
    assert not Path("look.html").exists()
    assert said in capsys.readouterr().err


def test_a_failure_leaves_the_earlier_report(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = shutil.copytree(page.parent, tmp_path / "reports")
    (tmp_path / "samples.csv").write_text("worker#,obj-id\n1,2\n")
    (tmp_path / "facts.json").write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(Problem, match=r"^\S+samples.csv lacks the column obj-type$"):
        write_words("shots", tmp_path, folder / "shots.html")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert "Traceback" not in capsys.readouterr().err
