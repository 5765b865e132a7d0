"""The history of a configuration: changes of the machine and of an arm, versions beside them, and other sessions."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from conftest import artefact, copy_project, sbench

from sbench.measure import gather, session_records, tables
from sbench.probe.program import Problem, write_json
from sbench.runs import history, history_page, sides
from tests.helpers.records import COMPARE, FEW, synthetic_cells, write_synthetic_run

CELLS = synthetic_cells(**FEW, page_buffer=("0",))
OLD, NEW = "hdf5-1.14.6", "hdf5-2.0.0"
HOST = {"node": "a", "cpu": "a CPU", "ram_bytes": 1, "kernel": "6.1"}
SECTION = {"compare": COMPARE[:1], "matrix": {}}


def write_session(
    results: Path,
    number: int,
    ratios: dict[str, float] | None = None,
    host: dict | None = None,
    versions: dict | None = None,
    cells: list[dict] = CELLS,
    config: dict | None = None,
    provenance: dict | None = None,
    section: dict = SECTION,
) -> str:
    """Write the tables of a run with one session of six blocks, and return its name.

    `ratios` are the times of the libraries in units of the usual.
    """
    name, session = f"day-{number:02}", f"2026-11-{number:02}T01:00:00Z"
    machine = {**HOST, **(host or {})}

    def change(record: dict) -> dict:
        own = {"provenance": record["provenance"] | (provenance or {})}
        return record | {"run": name, "session": session, "host": machine} | own

    folder = results / name / "shots"
    scale = lambda cell: (ratios or {}).get(cell["library"], 1.0)  # noqa: E731
    write_synthetic_run(folder, cells, 6, seed=number, noise=0.01, drift=0.02, ratio=scale, change=change)
    made = {"run": name, "equivalence_percent": 5, "seed": 1, "stores": {}, "studies": {"shots": section}}
    made |= config or {}
    matrix, kept = gather.read_study(folder, name, "shots")
    runs, _ = tables.build_runs_and_samples(matrix, kept)
    tables.write_table(session_records.build_records_table(matrix, runs), folder / "records.csv", 12)
    facts = {"run": name, "study": "shots", "name": f"shots-{name}", "sessions": [session], "config": made}
    facts |= {"settings": section, "machines": [machine]}
    usual = {"h5py": "3.15.0", "promised": {"h5py": "3.15.0"}}
    libraries = {OLD: {"hdf5": "1.14.6", **usual}, NEW: {"hdf5": "2.0.0", **usual}}
    for library, of_library in (versions or {}).items():
        libraries[library] |= of_library
    write_json(folder / "facts.json", facts | {"libraries": libraries})
    return name


def write_steady(results: Path) -> None:
    """Write twelve sessions without a change."""
    for number in range(1, 13):
        write_session(results, number)


@pytest.fixture
def results(once: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of results of twelve sessions, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(once("history", write_steady), tmp_path / "results")


DAYS = [f"day-{number:02}" for number in range(1, 13)]


def build(*sources: str) -> tuple[dict, dict[str, pd.DataFrame]]:
    return history.build_history("shots", sides.load_side(sources))


def step(results: Path, first: int, **changes: object) -> None:
    """Write the sessions from `first` on again, with these changes."""
    for number in range(first, 13):
        write_session(results, number, **changes)


def get_sessions(made: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return made["sessions"].set_index("run")


def test_sessions_without_a_change_have_a_series_in_the_order_of_their_times(results):
    facts, made = build(*reversed(DAYS))
    assert facts["headline"] == "12 sessions, 1 comparison: no change of 10 % or more."
    assert (facts["sentences"], facts["notes"]) == ([], [])
    assert made["sessions"]["run"].tolist() == DAYS
    assert made["sessions"]["number"].tolist() == list(range(1, 13))
    series = made["series"]
    assert series["number"].tolist() == list(range(1, 13))
    assert set(series["comparison"]) == {f"{NEW} vs {OLD}"}
    # All six blocks of a session count, and the ratio scatters less than the times, because blocks share their drift.
    assert set(series["blocks"]) == {6}
    assert (series["ratio_low"] <= 1.02).all()
    assert (series["ratio_high"] >= 0.98).all()
    assert series["ratio"].std() < series["contender_value"].std() / series["contender_value"].mean()


def test_a_step_of_both_arms_is_of_the_machine_and_named_with_what_changed_there(results):
    step(results, 7, ratios={OLD: 1.3, NEW: 1.3}, host={"kernel": "6.5"})
    facts, made = build(*DAYS)
    (sentence,) = facts["sentences"]
    assert facts["headline"].endswith("1 change (1 of the machine).")
    assert sentence.startswith("Session 7 (2026-11-07T01:00:00Z, run day-07): 2.1")
    assert "a change of the machine, because both arms share it in 1 of 1 comparison" in sentence
    assert sentence.endswith("Changed in this session: machine kernel 6.1 → 6.5.")
    row = made["changes"].iloc[0]
    assert (row["owner"], row["arm"], row["number"]) == ("machine", "", 7)
    assert row["baseline_jump"] == pytest.approx(1.3, rel=0.05)
    assert row["ratio_low"] <= 1 <= row["ratio_high"]
    assert get_sessions(made)["kernel"].tolist() == ["6.1"] * 6 + ["6.5"] * 6


@pytest.mark.parametrize("library", [OLD, NEW])
def test_a_step_of_one_arm_is_of_its_library_and_named_with_its_version(results, library):
    step(results, 7, ratios={library: 1.3}, versions={library: {"h5py": "3.16.0", "promised": {"h5py": "3.16.0"}}})
    facts, made = build(*DAYS)
    (sentence,) = facts["sentences"]
    assert f"a change of library {library} alone, in 1 of 1 comparison" in sentence
    assert sentence.endswith(f"Changed in this session: library {library} h5py 3.15.0 → 3.16.0.")
    assert made["changes"]["arm"].tolist() == [f"library {library}"]
    versions = f"{OLD}: hdf5 1.14.6, h5py 3.15.0; {NEW}: hdf5 2.0.0, h5py 3.15.0"
    assert get_sessions(made).loc["day-01", "versions"] == versions


def test_a_cause_that_was_recorded_a_session_later_is_named_as_such(results):
    step(results, 7, ratios={NEW: 1.3})
    step(results, 8, ratios={NEW: 1.3}, host={"kernel": "6.5"})
    assert build(*DAYS)[0]["sentences"][0].endswith("Changed a session later: machine kernel 6.1 → 6.5.")
    step(results, 7, ratios={NEW: 1.3})
    assert build(*DAYS)[0]["sentences"][0].endswith("No recorded property of machine or versions changed.")


def test_a_step_of_versions_alone_is_listed_and_is_no_change(results):
    step(results, 7, versions={NEW: {"hdf5": "2.1.0"}})
    facts, made = build(*DAYS)
    assert facts["sentences"] == []
    changed = get_sessions(made)["changed"]
    assert changed[changed != ""].to_dict() == {"day-07": f"library {NEW} hdf5 2.0.0 → 2.1.0"}


def test_arms_that_share_a_library_do_not_blame_the_machine_for_it(results):
    """Both page buffers are read with the slower library, so that in their comparison both arms change."""
    both = {"cells": synthetic_cells(**FEW), "section": {"compare": COMPARE, "matrix": {}}}
    step(results, 1, **both)
    step(results, 7, **both, ratios={NEW: 1.4})
    facts, made = build(*DAYS)
    assert facts["comparisons"] == 4
    assert set(made["changes"]["comparison"]) == {
        f"library: {NEW} vs {OLD} · 0",
        f"library: {NEW} vs {OLD} · 64MiB",
        f"page_buffer: 64MiB vs 0 · {NEW}",
    }
    assert set(made["changes"]["arm"]) == {f"library {NEW}"}
    assert len(facts["sentences"]) == 1
    assert f"a change of library {NEW} alone, in 3 of 4 comparisons" in facts["sentences"][0]
    step(results, 7, **both, ratios={NEW: 1.4, OLD: 1.4})
    assert set(build(*DAYS)[1]["changes"]["owner"]) == {"machine"}


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"config": {"seed": 2}}, "configuration seed is 2 instead of 1"),
        ({"config": {"stores": {"s3": {"kind": "s3"}}}}, "configuration stores s3 kind is s3 instead of absent"),
        ({"provenance": {"code_sha256": "0ther"}}, "measuring code is 0ther instead of c0de"),
        ({"provenance": {"data_sha256": "0ther"}}, "it read other data"),
    ],
)
def test_sessions_of_another_kind_are_left_out_and_named(results, changes, reason):
    write_session(results, 12, ratios={NEW: 5}, **changes)
    facts, made = build(*DAYS)
    assert facts["notes"] == [f"Left out: session 2026-11-12T01:00:00Z of run day-12: {reason}."]
    assert facts["sessions"] == 11
    assert made["series"]["number"].max() == 11
    assert get_sessions(made).loc["day-12", "left_out"] == reason


def test_versions_in_the_configuration_are_part_of_a_history(results):
    step(results, 7, config={"libraries": {NEW: {"kind": "source", "hdf5": "2.1.0"}}})
    facts, made = build(*DAYS)
    assert (facts["sessions"], facts["notes"]) == (12, [])
    assert f"configuration libraries {NEW} hdf5 absent → 2.1.0" in get_sessions(made).loc["day-07", "changed"]


def test_of_two_configurations_with_as_many_sessions_the_later_is_shown(results):
    step(results, 7, config={"seed": 2})
    facts, made = build(*DAYS)
    assert (facts["sessions"], len(facts["notes"])) == (6, 6)
    assert made["sessions"]["number"].isna().tolist() == [True] * 6 + [False] * 6


@pytest.mark.parametrize("number, missing", [(1, 5), (4, 2), (5, 1), (6, 0)])
def test_too_few_sessions_report_how_many_are_missing(results, number, missing):
    facts, _ = build(*DAYS[:number])
    assert facts["missing_sessions"] == missing
    needs = f"a change point needs 6 sessions (3 before and 3 after it); {missing} more are missing."
    assert (needs in facts["headline"]) == bool(missing)


def test_a_comparison_with_gaps_reports_that_it_has_too_few_sessions(results):
    for number in range(1, 8):
        write_session(results, number, cells=CELLS[:1])
    facts, made = build(*DAYS)
    assert made["series"]["number"].tolist() == [8, 9, 10, 11, 12]
    assert facts["notes"] == ["1 comparison with fewer than 6 sessions that measured both arms: no change points."]


def test_a_second_machine_is_noted(results):
    step(results, 10, host={"node": "b"})
    facts, made = build(*DAYS)
    assert facts["notes"] == ["The sessions are of 2 machines: a change may be a change of machine."]
    assert "machine node" in get_sessions(made).loc["day-10", "changed"]


def test_baselines_give_the_same_history(results):
    step(results, 7, ratios={NEW: 1.3})
    sides.write_baseline(sides.load_side(DAYS[:5]), Path("old.json"))
    expected, kept = (build(*sources) for sources in (DAYS, ["old.json", *DAYS[5:]]))
    assert expected[0] == kept[0]
    for name, table in expected[1].items():
        pd.testing.assert_frame_equal(table, kept[1][name])


def test_a_session_is_named_once_and_needs_a_comparison(results):
    with pytest.raises(Problem, match=r"run day-01, session 2026-11-01T01:00:00Z, is named twice"):
        history.report_history([*DAYS, "day-01"])
    for name in DAYS:
        path = results / name / "shots/facts.json"
        write_json(path, artefact(path) | {"settings": {"compare": []}})
    with pytest.raises(
        Problem, match=r"^shots: no session has both arms of a comparison that the configuration names$"
    ):
        history.report_history(DAYS)


def test_records_whose_session_the_facts_lack_are_one_line(results):
    path = results / "day-03/shots/facts.json"
    write_json(path, artefact(path) | {"sessions": ["2026-11-30T01:00:00Z"]})
    with pytest.raises(Problem, match="the facts of run day-03 lack its session 2026-11-03T01:00:00Z"):
        history.report_history(DAYS)


def test_sessions_without_a_time_have_no_history(results):
    for name in DAYS:
        path = results / name / "shots/records.csv"
        records = pd.read_csv(path, dtype=str, keep_default_na=False)
        records.assign(session="").to_csv(path, index=False)
        facts = results / name / "shots/facts.json"
        write_json(facts, artefact(facts) | {"sessions": []})
    with pytest.raises(Problem, match="no source has a session with a time"):
        history.report_history(DAYS)


@pytest.fixture(scope="module")
def project(once: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with twelve sessions; from the seventh on, the newer library is slower."""
    clone = copy_project(tmp_path_factory.mktemp("history") / "clone")
    shutil.copytree(once("history", write_steady), clone / "results", dirs_exist_ok=True)
    step(clone / "results", 7, ratios={NEW: 1.3}, versions={NEW: {"hdf5": "2.1.0"}})
    return clone


def test_the_command_prints_a_line_per_change_and_writes_a_page_that_later_comparisons_keep(project):
    done = sbench("compare", "--history", *DAYS, cwd=project)
    assert done.returncode == 0, done.stderr
    headline = "12 sessions, 1 comparison: 1 change (1 of a single arm)."
    first, sentence, last = done.stdout.splitlines()
    assert first == f"History of Reading HDF5 files: {headline}"
    assert sentence.startswith("Session 7 (2026-11-07T01:00:00Z, run day-07): 2.")
    assert sentence.endswith(f"Changed in this session: library {NEW} hdf5 2.0.0 → 2.1.0.")
    assert last == "report: reports/compare/history/index.html"
    folder = project / "reports/compare/history"
    page = (folder / "shots.md").read_text(encoding="utf-8")
    assert f"**{headline}**" in page
    assert sentence in page
    assert f"library {NEW} hdf5 2.0.0 → 2.1.0 |" in page
    picture = (folder / "shots_files/history.svg").read_text(encoding="utf-8")
    assert f"library {NEW} ×1.3" in picture
    assert "2026-11-12" in picture
    assert headline in (folder / "index.md").read_text(encoding="utf-8")
    assert len(pd.read_csv(folder / "shots_files/history.csv")) == 12
    done = sbench("compare", *DAYS[:2], cwd=project)
    assert done.returncode == 0, done.stderr
    assert (folder / "index.html").exists()


def test_comparisons_that_are_too_many_to_draw_are_counted_and_in_the_numbers(results, monkeypatch):
    monkeypatch.setattr(history_page, "_DRAWN", 1)
    both = {"cells": synthetic_cells(**FEW), "section": {"compare": COMPARE, "matrix": {}}}
    for number in (1, 2):
        write_session(results, number, **both)
    about, made = build(*DAYS[:2])
    names = list(dict.fromkeys(made["series"]["comparison"]))
    shifts = made["changes"].reindex(columns=["comparison"])
    figure = history_page.draw_series("more", names, made["series"], shifts, made["sessions"], about)
    assert (len(names), len(figure.panels), figure.numbers["comparison"].nunique()) == (4, 2, 4)
    assert figure.caption.endswith("3 more comparisons without a picture: see the numbers.")


def test_the_object_has_the_series_the_changes_and_the_sessions(project):
    done = sbench("compare", "--history", *DAYS, "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["studies"]["shots"]
    assert len(made["series"]) == len(made["sessions"]) == 12
    assert made["changes"][0]["arm"] == f"library {NEW}"
    assert made["sessions"][6]["changed"] == f"library {NEW} hdf5 2.0.0 → 2.1.0"
    assert made["missing_sessions"] == 0


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "name the sessions: sbench compare --history RUN…"),
        (("day-01", "--with", "day-02"), "--history takes runs, archives and baselines, and --json; it does not take"),
        (("day-01", "--fail-on", "slower"), "it does not take --fail-on"),
        (("day-01", "--detect", "5"), "it does not take --detect"),
        (("nowhere",), "'nowhere' is not a run in results/"),
    ],
)
def test_what_a_history_cannot_take_is_one_line(project, arguments, words):
    done = sbench("compare", "--history", *arguments, cwd=project)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr
