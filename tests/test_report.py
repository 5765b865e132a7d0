import html
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.lib.program import Problem
from scripts.report import notebook
from tests.pages import write

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
    assert "One signal of all shots (base: 8 workers" in text
    assert "shots_files/object-times.svg" in text


# What goes wrong


def test_unknown_parameter_is_named(tables: Path, tmp_path: Path):
    with pytest.raises(Problem, match=r"notebooks/shots.ipynb: unknown parameter shot; known: tables, facts"):
        notebook.build(Path(NOTEBOOK), {"tables": str(tables), "shot": "1"}, tmp_path / "shots.html")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_earlier_report(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = shutil.copytree(page.parent, tmp_path / "reports")
    (tmp_path / "samples.csv").write_text("worker#,obj-id\n1,2\n")
    (tmp_path / "facts.json").write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(Problem, match=r"^\S+samples.csv lacks the column obj-type$"):
        write("shots", tmp_path, folder / "shots.html")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert "Traceback" not in capsys.readouterr().err
