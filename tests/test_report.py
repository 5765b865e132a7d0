import csv
import html
import json
import re
import shutil
from pathlib import Path

import pytest

from scripts import report
from scripts.analysis.markup import markdown_line
from scripts.lib.program import Problem
from tests import browser
from tests.pages import Links, write
from tests.report_tables import build

NOTEBOOK = "notebooks/shots.ipynb"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def page(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("shots", tables, tmp_path_factory.mktemp("reports") / "shots.html")


def test_no_element_of_the_page_names_another_place(page: Path):
    found = Links(page.read_text(encoding="utf-8"))
    assert found.elsewhere == []
    assert found.policy.startswith("default-src 'none'")
    for link in found.inside:
        assert not re.match(r"[a-z]+:", link), link
        assert link.startswith("#") or (page.parent / link).is_file(), link


def test_page_asks_for_nothing_in_a_browser_and_draws_all(page: Path):
    if not browser.browser():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed: only the page's text was checked")
    seen = browser.visit(page)
    assert [url for url in seen.requests if not url.startswith("data:")] == [page.resolve().as_uri()]
    assert seen.errors == []
    assert seen.seen["panels"] == Links(page.read_text(encoding="utf-8")).panels > 10
    assert seen.seen["drawn"] == seen.seen["panels"]
    assert seen.seen["tall"]


def test_every_figure_has_its_picture_and_its_numbers(page: Path):
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(pictures) >= 9
    for picture in pictures:
        assert (page.parent / picture).read_text(encoding="utf-8").startswith("<?xml")
        numbers = picture.replace(".svg", ".csv")
        assert f"({numbers})" in text
        assert len(list(csv.DictReader((page.parent / numbers).open(encoding="utf-8")))) > 1
    left = {f"shots_files/{path.name}" for path in (page.parent / "shots_files").iterdir()}
    assert left == {target for target in re.findall(r"\]\((shots_files/.*?)\)", text)}


def test_same_tables_give_the_same_bytes(page: Path, tables: Path, tmp_path: Path):
    again = write("shots", tables, tmp_path / "elsewhere" / "shots.html")
    names = ["shots.html", "shots.md", "shots_answers.json"]
    names += [f"shots_files/{path.name}" for path in (page.parent / "shots_files").iterdir()]
    for name in names:
        assert (again.parent / name).read_bytes() == (page.parent / name).read_bytes(), name
    assert sorted(path.name for path in again.parent.iterdir()) == sorted(path.name for path in page.parent.iterdir())


def test_what_failed_is_told_with_its_reason_and_as_it_is(page: Path):
    for text in (page.read_text(encoding="utf-8"), page.with_suffix(".md").read_text(encoding="utf-8")):
        assert "worker 1 was killed (signal 9)" in text
        assert "driver ros3 does not read a posix store" in text
        assert "server ended <early> in mid-cell" in html.unescape(text)
        assert "<early" not in text
        assert "[INVALID]" in text


def test_code_is_there_and_folded(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text.count('<details class="code">') > 20
    assert "<details open" not in text
    assert str(page.parent) not in text


def test_published_data_go_through_the_same_notebook(published: Path, tmp_path: Path):
    shutil.copy(published / "ros3-shots" / "ec2-s3.csv", tmp_path / "samples.csv")
    (tmp_path / "facts.json").write_text('{"settings": {"page_size": 8000000}}')
    text = write("shots", tmp_path, tmp_path / "shots.html").with_suffix(".md").read_text(encoding="utf-8")
    assert "There are no verdicts" in text
    assert "By signal (base: 8 workers" in text
    assert "shots_files/object-times.svg" in text


def test_index_opens_with_the_answers_and_leads_to_the_page(page: Path, tables: Path):
    index = page.with_name("index.html")
    told = page.with_name("shots_answers.json")
    arguments = ["--index", "--notebook", "notebooks/index.ipynb", "--answers", str(told)]
    assert report.main([*arguments, "--out", str(index)]) == 0
    text = index.with_suffix(".md").read_text(encoding="utf-8")
    assert text.startswith("# What was found on laptop\n\n## Reading shot files\n\n> Does HDF5 2.0.0's")
    for answer in json.loads(told.read_text(encoding="utf-8"))["answers"]:
        assert markdown_line(answer["text"]) in text
    assert "shots.html" in Links(index.read_text(encoding="utf-8")).inside


# What goes wrong


def test_unknown_parameter_is_named(tables: Path, tmp_path: Path):
    with pytest.raises(Problem, match=r"notebooks/shots.ipynb: unknown parameter shot; known: tables, facts"):
        report.build(Path(NOTEBOOK), {"tables": str(tables), "shot": "1"}, tmp_path / "shots.html")
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


@pytest.mark.parametrize("name", ["notebooks/shots.ipynb", "notebooks/index.ipynb"])
def test_notebooks_have_short_cells_and_no_outputs(name: str):
    cells = json.loads(Path(name).read_text(encoding="utf-8"))["cells"]
    assert all(len(cell["source"]) <= 8 for cell in cells)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
