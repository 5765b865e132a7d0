"""Published data beside a run's own: drawn in its figures, and in nothing else."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ROOT, copy_project
from small_runs import TINY, snakemake
from small_runs import write as configure

from sbench.court import tables
from sbench.design import config as configuration
from sbench.pages import cell_figures, curves, references, words
from sbench.pages.plot import GREY
from sbench.pages.results import Results
from sbench.probe.program import Problem, read_json
from sbench.studies.arrays.report import results as of_arrays
from sbench.studies.shots.report import results
from tests.helpers import report_tables
from tests.helpers.pages import write_words

CAPTION = words.fill("grey marks")


ABOUT = {"title": "An older study", "by": "others", "date": "2020", "address": "https://example.org"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with what pages are made with the working directory; return it."""
    for name in ("config", "docs", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def publish(study: str, project: Path) -> None:
    """Make the tables of a published study of what is committed; of `shots`, whose data are not, synthetic ones."""
    folder = project / f"results/published/{study}/tables"
    if study == "shots":
        publish_shots(folder)
    else:
        given = {"study": study, "sources": "config/published.yaml", "printed": ROOT / f"results/published/{study}"}
        given |= {"raw": project / "config", "out": folder}
        assert tables.main([f"--{name}={value}" for name, value in given.items()]) == 0


def publish_shots(folder: Path, **levels: object) -> None:
    """Write the synthetic run, with `levels` changed, as if it was published."""
    report_tables.build(folder, repeats=1)
    for path in folder.glob("*.csv"):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table.assign(**{name: level for name, level in levels.items() if name in table}).to_csv(path, index=False)
    facts = report_tables.facts() | {"published": ABOUT, "limits": ["ec2.csv: it was moved"]}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def referring(study: str, folder: Path) -> Path:
    """Let the facts of a run name the published study; return its folder."""
    facts = read_json(folder / "facts.json")
    facts["settings"] = (facts.get("settings") or {}) | {"reference": [f"published/{study}"]}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("study", ["arrays", "blobs", "particles", "shots", "volumes"])
def test_published_data_change_captions_and_limits_alone(study: str, project: Path, synthetic: Callable[[str], Path]):
    folder = shutil.copytree(synthetic(study), project / study)
    pages = {}
    for name in ("without", "with"):
        page = write_words(study, folder, project / f"reports/{name}/{study}.html")
        pages[name] = page.with_suffix(".md").read_text(encoding="utf-8").splitlines()
        if name == "without":
            publish(study, project)
            referring(study, folder)
    added = [line for line in pages["with"] if line not in pages["without"]]
    drawn = [line for line in added if CAPTION in line]
    assert drawn
    assert all(CAPTION in line or line.startswith("- Published: ") for line in added)
    unchanged = {line.replace(f" {CAPTION}", "") for line in pages["with"]}
    assert set(pages["without"]) <= unchanged
    for name in ("verdicts", "best", "harness", "requests", "conditions"):
        files = [project / f"reports/{which}/{study}_files/{name}.csv" for which in pages]
        assert len({path.read_text(encoding="utf-8") for path in files if path.exists()}) <= 1


@pytest.fixture
def shots(project: Path, synthetic: Callable[[str], Path]) -> Callable[..., Results]:
    """Return a function levels -> the synthetic run beside a published one with these levels in all its cells."""

    def made(**levels: object) -> Results:
        publish_shots(project / "results/published/shots/tables", **levels)
        folder = shutil.copytree(synthetic("shots"), project / "shots", dirs_exist_ok=True)
        return references.load_with_published(results.load_results, referring("shots", folder), folder / "facts.json")

    return made


def test_they_are_told_apart_in_legend_look_and_numbers(shots: Callable[..., Results]):
    run = shots(cache="any")
    for figure in (curves.draw_curves(run, "workers"), cell_figures.draw_lone_cells(run)):
        marks = [mark for panel in figure.panels for mark in panel.marks if mark.look.colour == GREY]
        marks = [mark for mark in marks if mark.label != "[INVALID]"]
        assert {mark.label.partition(" · ")[0] for mark in marks} == {"published: An older study"}
        assert not any(mark.look.filled for mark in marks)
        numbers = figure.numbers[figure.numbers["published"].notna()]
        assert set(numbers["cell"]) <= set(run.references[0].cells["cell"])
        assert sum(len(mark.points) for mark in marks) == len(numbers)
    assert "published" not in curves.draw_curves(replace(run, references=()), "workers").numbers


@pytest.mark.parametrize("kind, drawn", [("posix", True), ("azure-files", False)])
def test_a_store_of_another_name_is_the_same_kind_of_place(kind: str, drawn: bool, shots: Callable[..., Results]):
    run = shots(store="elsewhere")
    facts = run.references[0].facts | {"stores": {"elsewhere": {"kind": kind}}}
    run = replace(run, references=(replace(run.references[0], facts=facts),))
    assert ("published" in curves.draw_curves(run, "workers").numbers) == drawn


@pytest.mark.parametrize(
    "levels, said",
    [
        ({"workers": "96"}, "is missing from figures over workers: this run has no matching level"),
        ({"layout": "another"}, "is missing from figures over workers: this run"),
        ({}, ""),
    ],
)
def test_one_without_a_level_of_the_axis_is_left_out_and_the_limits_say_so(
    levels: dict, said: str, shots: Callable[..., Results]
):
    run = shots(**levels)
    lines = list(references.list_limits(run))
    assert lines[0] == "Published: An older study: ec2.csv: it was moved."
    assert [said in line for line in lines[1:]] == [True] * bool(said)
    assert ("published" in curves.draw_curves(run, "workers").numbers) == (not said)


def test_one_that_agrees_with_nothing_is_in_no_figure(project: Path, synthetic: Callable[[str], Path]):
    publish("arrays", project)
    folder = referring("arrays", shutil.copytree(synthetic("arrays"), project / "arrays"))
    run = references.load_with_published(of_arrays.load_results, folder, folder / "facts.json")
    run = replace(run, cells=run.measured.query("operation == 'write' and shape == '2200x12000'"))
    assert list(references.list_limits(run)) == []
    other = replace(run.references[0], cells=run.references[0].cells.assign(shape="1x1"))
    (line,) = references.list_limits(replace(run, references=(other,)))
    assert line == "Published: HSDS Streaming is not drawn: this run lacks comparable cells."


@pytest.mark.parametrize("name", ["published/nothing", "published/blobs", "shots", ["published/shots", "ec2-s3"]])
def test_a_reference_that_is_not_there_is_one_line(name: object, tmp_path: Path):
    config = json.loads(json.dumps(TINY))
    config["studies"]["shots"]["reference"] = name
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    wrong = name if isinstance(name, str) else name[-1]
    line = f"own.yaml: studies.shots.reference: '{wrong}' is not published data of shots; name published/shots$"
    with pytest.raises(Problem, match=line):
        configuration.load_config(path)


def test_a_page_waits_for_its_reference_and_no_cell_is_another(tmp_path: Path):
    clone = copy_project(tmp_path / "clone", published=True)
    configure(clone, TINY)
    before = snakemake(clone, "-n", "reports/tiny/shots.html").stdout
    config = json.loads(json.dumps(TINY))
    config["studies"]["shots"]["reference"] = "published/shots"
    configure(clone, config)
    after = snakemake(clone, "-n", "reports/tiny/shots.html").stdout
    assert ["tables of shots as published" in text for text in (before, after)] == [False, True]
    cells, others = (set(re.findall(r"records/[^/]+/repeat=\d+", text)) for text in (before, after))
    assert cells == others != set()
