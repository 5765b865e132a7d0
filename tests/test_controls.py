"""What a run can tell apart: cells slowed on purpose, as they are measured, counted and reported."""

import json
from pathlib import Path

import pandas as pd
import pytest
from blob_cells import Cell

from scripts import gather
from scripts.report import judgement
from scripts.report.results import Results
from scripts.statistics import stats
from scripts.studies.shots.report import results
from tests.pages import write_words
from tests.records import synthetic_cells, write_synthetic_run
from tests.report_tables import build, changed

MACHINE = {"node": "one", "cpu": "fast", "ram_bytes": 2**34}
SLOWED = {"slow5": 1.05, "slow10": 1.1}


@pytest.mark.rule(6)
def test_a_slowed_cell_waits_a_tenth_of_its_reads_and_no_other_cell_does(shots_cell):
    here = shots_cell(control_cells=1)
    for cell in here.cells:
        record = here.measure(cell=cell)
        assert record["valid"], record["reasons"]
        assert record["cell"]["control"] == cell.levels["control"]
        waited = record["work"].get("waited_s")
        if cell.levels["control"] == "slow10":
            reads = sum(
                row[name] for row in record["samples"] for name in ("open-time", "first-dset-time", "rest-time")
            )
            assert 0.099 * reads <= waited < record["seconds"]["total"]
            assert sum(row["open+read-data-time"] for row in record["samples"]) >= reads + waited
        elif not cell.levels["control"]:
            assert waited is None


@pytest.mark.rule(3, 6)
def test_a_control_that_did_not_wait_is_invalid(shots_cell):
    here = shots_cell(control_cells=1)
    here.pretend("from scripts.lib import slowed\nslowed.waited = lambda control, seconds: {}")
    record = here.measure(cell=here.cells[-1])
    assert record["reasons"] == ["control slow10 did not wait after its reads"]
    assert here.measure()["valid"]


@pytest.mark.rule(6)
@pytest.mark.parametrize("pattern", ["single-file", "broadcast", "mpi-io-collective"])
def test_mpi_processes_wait_a_tenth_of_each_iteration(tmp_path: Path, pattern: str):
    cell = Cell(tmp_path, iterations=1, pattern=pattern, control="slow10", size="4MiB", processes="2").fill()
    record = cell.measure()
    assert record["reasons"] == []
    slowest = max(map(float, record["samples"][0]["rank_s"].split()))
    assert 0.099 * (slowest - record["work"]["waited_s"]) <= record["work"]["waited_s"] < record["seconds"]["total"]
    assert "waited_s" not in record["samples"][0]


def run(folder: Path, name: str, slowed: dict[str, float], machine: dict = MACHINE) -> dict:
    """Gather a synthetic run of shots on a machine, with cells slowed so much; returns what is said of its controls."""

    def change(record: dict) -> dict:
        record["run"] = name
        record["host"] = machine
        if record["cell"]["control"] in slowed:
            ratio = slowed[record["cell"]["control"]]
            record["work"]["waited_s"] = record["seconds"]["total"] * (1 - 1 / ratio)
        return record

    cells = synthetic_cells(slowed=(*slowed,), workers=("1",))
    ratio = {"noise": 0.002, "ratio": lambda cell: slowed.get(cell["control"], 1)}
    write_synthetic_run(folder / name / "shots", cells, 8, change=change, **ratio)
    (folder / name / "shots/plan.json").write_text('{"cells": {}}')
    section = {"question": "Which?", "compare": [{"factor": "library", "baseline": "hdf5-1.14.6"}]}
    config = {"run": name, "seed": 1, "repeats": 8, "equivalence_percent": 2, "libraries": {}}
    config |= {"stores": {"s3": {"kind": "s3", "server": "embedded"}}, "studies": {"shots": section}}
    given = ["--config", json.dumps(config), "--study", "shots", "--results", str(folder / name)]
    assert gather.main([*given, "--imported"]) == 0
    return json.loads((folder / name / "shots/facts.json").read_text())["controls"]


@pytest.mark.rule(6)
def test_controls_are_counted_over_the_runs_of_one_machine_and_kept_for_elsewhere(tmp_path: Path):
    first = run(tmp_path, "monday", SLOWED)
    assert (first["runs"], first["slow10"], first["slow5"], first["alarms"]) == (1, [1, 1], [1, 1], [0, 1])
    assert first["reached"] == pytest.approx({"slow5": 0.05, "slow10": 0.1})
    run(tmp_path, "elsewhere", SLOWED, MACHINE | {"node": "two"})
    # Of before there were slowed controls: its twins count.
    assert run(tmp_path, "before", {}) == {}
    second = run(tmp_path, "tuesday", {"slow5": 1, "slow10": 1.1})
    assert (second["runs"], second["slow10"], second["slow5"], second["alarms"]) == (3, [2, 2], [1, 2], [0, 3])
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "tuesday").rename(moved / "tuesday")
    assert run(moved, "tuesday", {"slow5": 1, "slow10": 1.1}) == second
    for broken in ("{", '"text"', "[]"):
        (tmp_path / "monday/shots/facts.json").write_text(broken)
        assert run(tmp_path, "tuesday", SLOWED)["runs"] == 2


@pytest.mark.rule(6)
def test_the_page_says_what_the_run_tells_apart_and_warns_where_a_tenth_is_missed(tmp_path: Path):
    folder = build(tmp_path / "tables")

    def missed(rows: pd.DataFrame) -> pd.DataFrame:
        is_slowed = rows["control"] == "slow10"
        rows["detectable_ratio"] = rows["detectable_ratio"].mask(is_slowed, "1.3")
        return rows.assign(verdict=rows["verdict"].mask(is_slowed, "no evidence"))

    page = write_words("shots", folder, tmp_path / "found.html").with_suffix(".md").read_text()
    assert "This run tells 10 % apart: 3 of 3; 5 %: 1 of 3; false alarms 0 of 6 (at most 39 %)." in page
    assert "2 cells measured twice" in page
    assert "cannot be seen in this run" not in page
    few = {"runs": 1, "slow10": [0, 0], "slow5": [0, 0], "alarms": [0, 0], "reached": {}}
    assert judgement.slowed({"controls": few}).endswith("by 10 % and 5 %: too few complete blocks to judge any.")
    changed(tmp_path, folder, "verdicts.csv", missed)
    page = write_words("shots", tmp_path / "changed", tmp_path / "missed.html").with_suffix(".md").read_text()
    answers = json.loads((tmp_path / "missed_answers.json").read_text())
    caution = "Differences below about 30 % cannot be seen in this run; "
    assert answers["caution"].startswith(caution)
    assert page.index(answers["headline"].strip("\x01\x02")) < page.index(caution) < page.index("![")


def test_a_run_of_before_says_nothing_of_slowed_controls(tmp_path: Path):
    folder = build(tmp_path)
    verdicts = pd.read_csv(folder / "verdicts.csv", dtype=str, keep_default_na=False)
    verdicts[~verdicts["control"].str.startswith("slow")].assign(control="").to_csv(
        folder / "verdicts.csv", index=False
    )
    facts = json.loads((folder / "facts.json").read_text())
    del facts["controls"]
    (folder / "facts.json").write_text(json.dumps(facts))
    loaded: Results = results.load(folder, folder / "facts.json")
    assert judgement.slowed(loaded.facts) == judgement.find_insensitivity(loaded) == ""
    assert "2 cells measured twice" in judgement.control(loaded.verdicts)
    assert gather.control_counts(loaded.verdicts) == {"alarms": [0, 2]}


@pytest.mark.rule(6)
def test_the_bound_on_false_alarms_is_exact():
    # Of n without an event: 1 - 0.05^(1/n).
    assert [stats.at_most(0, n) for n in (1, 2, 20)] == pytest.approx([0.95, 1 - 0.05**0.5, 1 - 0.05**0.05])
    assert stats.at_most(2, 2) == 1
