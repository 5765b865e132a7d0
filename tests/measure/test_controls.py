"""What a run can tell apart: cells slowed on purpose, as they are measured, counted and reported."""

import json
from pathlib import Path

import pandas as pd
import pytest
from blob_cells import Cell
from conftest import program

from sbench.measure import gather
from sbench.pages import judgement
from sbench.pages.results import Results
from sbench.probe.program import compute_file_digest
from sbench.studies.shots.report import results
from sbench.verdicts import stats
from tests.helpers.pages import write_words
from tests.helpers.records import synthetic_cells, write_synthetic_run
from tests.helpers.report_tables import build, changed

MACHINE = {"node": "one", "cpu": "fast", "ram_bytes": 2**34}
SLOWED = {"slow5": 1.05, "slow10": 1.1}
# What each study makes its data of, with its seed.
STUDY_DATA = {
    "shots": {"layout": "shot-major", "shots": 2, "signals": 4, "page_size": 4096, "paged": True, "deflate": 4}
    | {"seed": 1},
    "blobs": {"size": "64KiB", "objects": 2, "seed": 1},
    "particles": {"particles": 2000, "per_file": 1500, "seed": 1},
    "arrays": {"shape": "50x40", "chunks": "20x15", "compression": "none", "values": "formula", "seed": 1},
}


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
@pytest.mark.parametrize("levels", [{}, {"store": "s3", "driver": "ros3"}], ids=["disk", "s3"])
def test_a_copied_twin_reads_other_files_with_the_same_content(shots_cell, levels):
    here = shots_cell(twins=["copied"], **levels)
    first, copied = here.cells
    original, files = here.measure(), list(map(Path, here.provided["local_files"]))
    twin, others = here.turn_to(copied).make().measure(), list(map(Path, here.provided["local_files"]))
    assert twin["valid"], twin["reasons"]
    assert (twin["cell"]["control"], copied.twin_of) == ("copied", first.name)
    assert not set(files) & set(others)
    assert [file.name for file in files] == [file.name for file in others]
    assert list(map(compute_file_digest, files)) == list(map(compute_file_digest, others))
    assert twin["work"]["checksum"] == original["work"]["checksum"]
    assert twin["provenance"]["data_sha256"] == original["provenance"]["data_sha256"]
    for file in files:
        file.write_bytes(b"")
    assert here.measure()["valid"], "nothing of the other files is read"


@pytest.mark.rule(6)
@pytest.mark.parametrize("study, data", STUDY_DATA.items())
def test_a_further_copy_of_data_is_the_same_in_another_place(tmp_path: Path, study: str, data: dict):
    made = []
    for name, settings in (("one", data), ("two", data | {"copy": "copied"})):
        out = tmp_path / name / "manifest.json"
        done = program(
            f"sbench.studies.{study}.make", "--dataset", "d", "--settings", json.dumps(settings), "--out", out
        )
        assert done.returncode == 0, done.stderr
        made.append(json.loads(out.read_text(encoding="utf-8")))
    assert made[0] == made[1]


@pytest.mark.rule(3, 6)
def test_a_control_that_did_not_wait_is_invalid(shots_cell):
    here = shots_cell(control_cells=1)
    here.pretend("from sbench.probe import slowed\nslowed.report_waited = lambda control, seconds: {}")
    record = here.measure(cell=here.cells[-1])
    assert record["reasons"] == ["control slow10 did not wait after its reads (rule 6)"]
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
    gather.write_results(config, "shots", folder / name, {})
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
def test_twins_with_something_anew_are_counted_apart_from_false_alarms(tmp_path: Path):
    first = run(tmp_path, "monday", SLOWED | {"copied": 1.0, "rebuilt": 1.3})
    assert (first["alarms"], first["copied"], first["rebuilt"]) == ([0, 1], [0, 1], [1, 1])
    second = run(tmp_path, "tuesday", SLOWED)
    assert (second["alarms"], second["copied"], second["rebuilt"]) == ([0, 2], [0, 1], [1, 1])


@pytest.mark.rule(6)
def test_the_page_says_what_placing_and_building_anew_changed_or_that_neither_was_done(tmp_path: Path):
    folder = build(tmp_path / "tables")
    page = write_words("shots", folder, tmp_path / "none.html").with_suffix(".md").read_text()
    assert "Verdicts hold for a single placement of the data and a single build." in page
    facts = json.loads((folder / "facts.json").read_text())
    facts["controls"] |= {"copied": [1, 3], "rebuilt": [0, 0]}
    (folder / "facts.json").write_text(json.dumps(facts))

    def anew(rows: pd.DataFrame) -> pd.DataFrame:
        slowed = rows[rows["control"] == "slow10"]
        copied = slowed.assign(control="copied", verdict="slower", ratio="1.2", ratio_low="1.1", ratio_high="1.3")
        return pd.concat([rows, copied])

    changed(tmp_path, folder, "verdicts.csv", anew)
    page = write_words("shots", tmp_path / "changed", tmp_path / "one.html").with_suffix(".md").read_text()
    assert "Another copy of the data: slower, 1.20 [1.10, 1.30] times the time; different in 1 of 3 runs on" in page
    assert "Verdicts hold for a single build." in page
    assert "2 cells measured twice" in page


@pytest.mark.rule(6)
def test_the_page_says_what_the_run_tells_apart_and_warns_where_a_tenth_is_missed(tmp_path: Path):
    folder = build(tmp_path / "tables")

    def missed(rows: pd.DataFrame, ratio: str = "1.3") -> pd.DataFrame:
        is_slowed = rows["control"] == "slow10"
        rows["detectable_ratio"] = rows["detectable_ratio"].mask(is_slowed, ratio)
        return rows.assign(verdict=rows["verdict"].mask(is_slowed, "no evidence"))

    page = write_words("shots", folder, tmp_path / "found.html").with_suffix(".md").read_text()
    assert "planted slowdowns detected: 10 % in 3 of 3, 5 % in 1 of 3; false alarms: 0 of 6 (upper bound 39 %)." in page
    assert "2 cells measured twice" in page
    assert "cannot be detected" not in page
    few = {"runs": 1, "slow10": [0, 0], "slow5": [0, 0], "alarms": [0, 0], "reached": {}}
    assert judgement.describe_slowed({"controls": few}).endswith(
        "of 10 % and 5 %: too few complete blocks to judge any."
    )
    changed(tmp_path, folder, "verdicts.csv", missed)
    page = write_words("shots", tmp_path / "changed", tmp_path / "missed.html").with_suffix(".md").read_text()
    answers = json.loads((tmp_path / "missed_answers.json").read_text())
    caution = "differences below about 30 % cannot be detected"
    assert caution in answers["caution"]
    assert page.index(answers["headline"].strip("\x01\x02")) < page.index(caution) < page.index("![")
    # Bad luck: the control was missed, although it is larger than what its blocks can detect.
    changed(tmp_path / "again", folder, "verdicts.csv", lambda rows: missed(rows, "1.09"))
    page = write_words("shots", tmp_path / "again/changed", tmp_path / "unlucky.html").with_suffix(".md").read_text()
    assert "to detect 10 % there, raise `repeats` to 8" in page


def test_a_run_of_before_says_nothing_of_slowed_controls(tmp_path: Path):
    folder = build(tmp_path)
    verdicts = pd.read_csv(folder / "verdicts.csv", dtype=str, keep_default_na=False)
    verdicts[~verdicts["control"].str.startswith("slow")].assign(control="").to_csv(
        folder / "verdicts.csv", index=False
    )
    facts = json.loads((folder / "facts.json").read_text())
    del facts["controls"]
    (folder / "facts.json").write_text(json.dumps(facts))
    loaded: Results = results.load_results(folder, folder / "facts.json")
    assert judgement.describe_slowed(loaded.facts) == judgement.find_insensitivity(loaded) == ""
    assert "2 cells measured twice" in judgement.describe_control(loaded.verdicts)
    assert gather.count_controls(loaded.verdicts) == {"alarms": [0, 2]}


@pytest.mark.rule(6)
def test_the_bound_on_false_alarms_is_exact():
    # Of n without an event: 1 - 0.05^(1/n).
    assert [stats.compute_upper_bound(0, n) for n in (1, 2, 20)] == pytest.approx([0.95, 1 - 0.05**0.5, 1 - 0.05**0.05])
    assert stats.compute_upper_bound(2, 2) == 1
