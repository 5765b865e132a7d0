"""Any two runs beside each other: verdicts with the session as the unit, exact counts, and what else differs."""

import getpass
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ROOT, artefact, copy_project, sbench
from small_runs import TINY, snakemake

from sbench.measure import gather
from sbench.probe import host
from sbench.probe.program import Problem, write_json
from sbench.runs import compare, sides
from sbench.runs.rules import FAILED, judge_rules, parse_rules
from sbench.verdicts.outcomes import Outcome
from tests.helpers.records import FEW, synthetic_cells, write_synthetic_run

CELLS = synthetic_cells(**FEW)
SETTINGS = {"compare": [], "matrix": {}}
NEWER = {"library": "hdf5-2.0.0"}


def measured(results: Path, run: str, session: str, ratio: float = 1.0, requests: int = 5, **changes) -> Path:
    """Write the tables of a run of two repeats in one session, the newer library's times and requests as given."""
    seed = sum(map(ord, run + session))

    def change(record: dict) -> dict:
        newer = record["cell"]["library"] == "hdf5-2.0.0"
        count = {"count": requests if newer else 5, "bytes_offered": 100, "bytes_delivered": 100}
        return record | {"run": run, "session": session, "requests": {"GET": count}, "read": ["a"]} | changes

    folder, cells = results / run / "shots", changes.pop("cells", CELLS)
    newer = lambda cell: ratio if cell["library"] == "hdf5-2.0.0" else 1.0  # noqa: E731
    write_synthetic_run(folder, cells, 2, seed=seed, noise=0.004, drift=0.004, ratio=newer, change=change)
    config = {"run": run, "equivalence_percent": 5, "seed": 1, "stores": {}, "studies": {"shots": SETTINGS}}
    matrix, kept = gather.read_study(folder, run, "shots")
    gather.write_tables(gather.build_tables(config, "shots", matrix, kept, {}), folder)
    said = {"run": run, "study": "shots", "name": f"shots-{run}", "sessions": [session], "config": config}
    write_json(folder / "facts.json", said | {"machines": [{"node": "a", "cpu": run[:3]}], "libraries": {}})
    return folder


def eight_runs(results: Path) -> None:
    """Write runs old-1 … old-4 and new-1 … new-4 of one session each, in the order A B B A, the new ones slower."""
    for day in range(1, 5):
        measured(results, f"old-{day}", f"2026-11-0{day}T0{2 - day % 2}:00:00Z")
        measured(results, f"new-{day}", f"2026-11-0{day}T0{1 + day % 2}:00:00Z", ratio=1.25, requests=8)


@pytest.fixture
def results(once: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of results of eight runs, in the working directory."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(once("compared", eight_runs), tmp_path / "results")


def names(side: str, count: int = 4) -> list[str]:
    return [f"{side}-{day}" for day in range(1, count + 1)]


def of(a: list[str], b: list[str], **options: object) -> tuple[dict, dict[str, pd.DataFrame]]:
    return compare.compare_study("shots", sides.load_side(a), sides.load_side(b), **options)


def newer(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["library"] == "hdf5-2.0.0"]


def test_four_sessions_on_each_side_say_which_cells_got_slower(results):
    facts, made = of(names("old"), names("new"))
    verdicts = made["verdicts"]
    assert facts["sessions_of"] == [4, 4]
    assert len(verdicts) == len([cell for cell in CELLS if not cell["control"]]) == 4
    assert set(newer(verdicts)["verdict"]) == {"slower"}
    assert newer(verdicts)["ratio"].tolist() == pytest.approx([1.25] * 2, rel=0.03)
    others = verdicts[verdicts["library"] != "hdf5-2.0.0"]
    assert set(others["verdict"]) == {"same"}
    back = of(names("new"), names("old"))[1]["verdicts"]
    assert set(newer(back)["verdict"]) == {"faster"}


def apart(results: Path, ratio: float = 1.25) -> tuple[list[str], list[str]]:
    """Write four runs of a week and four slower ones of the week behind it; return their names."""
    for day in range(1, 5):
        measured(results, f"week1-{day}", f"2026-11-0{day}T01:00:00Z")
        measured(results, f"week2-{day}", f"2026-11-1{day}T01:00:00Z", ratio=ratio, requests=8)
    return names("week1"), names("week2")


@pytest.mark.rule(17)
@pytest.mark.parametrize("paired", [False, True])
def test_sides_that_do_not_take_turns_have_no_verdict_but_on_their_sessions(results, paired):
    weeks = apart(results)
    for day in (5, 6):  # pairs are six
        weeks[0].append(measured(results, f"week1-{day}", f"2026-11-0{day}T01:00:00Z").parent.name)
        weeks[1].append(
            measured(results, f"week2-{day}", f"2026-11-1{day}T01:00:00Z", ratio=1.25, requests=8).parent.name
        )
    rules = parse_rules("slower > 10 %, faster, fewer requests")
    facts, made = of(*weeks, paired=paired, rules=rules)
    assert facts["apart"] == ["days"]
    assert set(made["verdicts"]["verdict"]) == {"not comparable"}
    assert set(made["verdicts"]["note"]) == {"measured on other days"}
    assert newer(made["verdicts"])["of_sessions"].tolist() == ["slower"] * 2
    assert newer(made["verdicts"])["ratio"].tolist() == pytest.approx([1.25] * 2, rel=0.03)
    assert facts["outcome"]["broken"] == []
    assert facts["outcome"]["warned"] == ["slower > 10 % in 2 of 4 cells"]
    assert facts["outcome"]["open"] == ["faster"]
    # Requests repeat exactly, whenever they are counted.
    assert set(newer(made["counts"])["requests"]) == {"more"}


@pytest.mark.rule(17)
def test_sides_of_two_machines_have_no_verdict_also_by_a_baseline_of_before(results):
    """Records of an earlier version have no machine: it is that of their run."""
    for side, node in (("old", "a"), ("new", "b")):
        for name in names(side):
            path = results / name / "shots"
            records = pd.read_csv(path / "records.csv", dtype=str, keep_default_na=False)
            records.drop(columns="machine").to_csv(path / "records.csv", index=False)
            machines = [{"node": node, "cpu": "a CPU", "ram_bytes": 1}]
            write_json(path / "facts.json", artefact(path / "facts.json") | {"machines": machines})
    sides.write_baseline(sides.load_side(names("old")), Path("before.json"))
    assert of(["before.json"], names("new"))[0]["apart"] == ["machines"]


def test_one_session_on_each_side_shows_a_difference_and_decides_nothing_about_time(results):
    _, made = of(["old-1"], ["new-1"])
    assert set(made["verdicts"]["verdict"]) == {Outcome.TOO_FEW}
    assert newer(made["verdicts"])["ratio"].tolist() == pytest.approx([1.25] * 2, rel=0.05)
    assert made["verdicts"][["ratio_low", "p"]].isna().all(axis=None)
    # Requests repeat exactly: two repeats of each side decide.
    assert newer(made["counts"])["requests"].tolist() == ["more"] * 2
    assert (made["counts"]["bytes"] == "same").all()


def test_pairs_of_sessions_are_judged_by_their_ratios(results):
    for day in (5, 6):
        measured(Path("results"), f"old-{day}", f"2026-11-0{day}T01:00:00Z")
        measured(Path("results"), f"new-{day}", f"2026-11-0{day}T02:00:00Z", ratio=1.25)
    verdicts = of(names("old", 6), names("new", 6), paired=True)[1]["verdicts"]
    assert set(newer(verdicts)["verdict"]) == {"slower"}
    assert set(verdicts["blocks"]) == {6}
    with pytest.raises(Problem, match=r"equal numbers of sessions \(got 6 and 5\)"):
        of(names("old", 6), names("new", 5), paired=True)


def test_failed_records_count_as_attempts_and_in_no_time(results):
    folder = measured(Path("results"), "new-5", "2026-11-05T02:00:00Z", ratio=9, valid=False, reasons=["lost pages"])
    assert not pd.read_csv(folder / "records.csv")["valid"].any()
    verdicts = of(names("old"), names("new", 5))[1]["verdicts"]
    assert set(verdicts["attempts_contender"]) == {10}
    assert set(verdicts["failed_contender"]) == {2}
    assert newer(verdicts)["ratio"].tolist() == pytest.approx([1.25] * 2, rel=0.03)


@pytest.mark.rule(17)
def test_cells_of_a_side_that_lost_a_record_are_not_the_same(results):
    assert "same" in set(of(names("old"), names("new"))[1]["verdicts"]["verdict"])
    folder = measured(Path("results"), "new-5", "2026-11-05T02:00:00Z", valid=False, reasons=["lost pages"])
    assert not pd.read_csv(folder / "records.csv")["valid"].any()
    verdicts = of(names("old"), names("new", 5))[1]["verdicts"]
    assert set(newer(verdicts)["verdict"]) == {"slower"}
    others = verdicts[verdicts["library"] != "hdf5-2.0.0"]
    assert set(others["verdict"]) == {"no evidence"}
    assert set(others["note"]) == {"records were lost, which may be the slow ones: 0 and 2 of the two sides"}


@pytest.mark.rule(17)
def test_sides_of_which_one_is_always_first_have_no_verdict_but_on_their_sessions(results):
    """A load on every second day, or one that the first run of a day meets, would be a difference of the sides."""
    for day in range(1, 5):
        measured(results, f"first-{day}", f"2026-11-0{day}T01:00:00Z")
        measured(results, f"second-{day}", f"2026-11-0{day}T02:00:00Z", ratio=1.25)
    facts, made = of(names("first"), names("second"))
    assert facts["apart"] == ["turns"]
    assert set(made["verdicts"]["verdict"]) == {"not comparable"}
    assert set(made["verdicts"]["note"]) == {"measured in strict turn"}
    assert newer(made["verdicts"])["of_sessions"].tolist() == ["slower"] * 2


def test_cells_of_one_side_are_listed_and_controls_are_none(results):
    measured(
        Path("results"), "few", "2026-11-09T01:00:00Z", cells=[cell for cell in CELLS if cell["page_buffer"] == "0"]
    )
    made = of(["old-1"], ["few"])[1]
    assert len(made["verdicts"]) == 2
    assert made["alone"]["only in"].tolist() == ["old-1"] * 2
    assert set(made["alone"]["page_buffer"]) == {"64MiB"}


def test_other_data_are_not_compared_and_other_machines_are_listed(results):
    provenance = {"code_sha256": "c0de", "data_sha256": "0ther"}
    measured(Path("results"), "xyz", "2026-11-09T01:00:00Z", provenance=provenance)
    _, made = of(["old-1"], ["xyz"])
    assert set(made["verdicts"]["verdict"]) == {"not comparable"}
    assert set(made["counts"]["requests"]) == {""}
    differences = made["differences"].set_index("what")
    assert differences.loc["machine cpu"].tolist() == ["old", "xyz"]
    # That runs have other names is no difference.
    assert not differences.index.str.startswith("configuration run").any()


def test_another_order_of_reads_is_listed(results):
    for run, digest in (("old-1", "a"), ("new-1", "b")):
        path = results / run / "shots/facts.json"
        write_json(path, artefact(path) | {"reads": [{"access": "shots", "sha256": digest, "first": [["f", "/x"]]}]})
    differences = of(["old-1"], ["new-1"])[1]["differences"].set_index("what")
    assert differences.loc["order of reads by shots"].tolist() == ["a", "b"]


def test_records_of_a_run_that_has_the_name_of_comparisons_are_left_alone(results):
    shutil.copytree(results / "old-1", results / compare.OUT)
    with pytest.raises(Problem, match="belongs to a run named compare"):
        compare.report_comparison(sides.load_side(["old-1"]), sides.load_side(["new-1"]))
    assert list((results / compare.OUT / "shots/records").iterdir())


def test_what_stands_on_both_sides_is_refused(results):
    with pytest.raises(Problem, match=r"both sides have run old-1, session 2026-11-01T01:00:00Z"):
        compare.report_comparison(sides.load_side(["old-1", "old-2"]), sides.load_side(["old-1"]))


@pytest.mark.parametrize("source", ["old-1", "./old-1", "kept.json"])
def test_a_run_that_one_side_names_twice_is_refused(results, tmp_path, source):
    """Else each of its records would count twice, and one repeat be taken for two."""
    sides.write_baseline(sides.load_side(["old-1"]), tmp_path / "kept.json")
    with pytest.raises(Problem, match=r"run old-1, session 2026-11-01T01:00:00Z, is named twice on the same side"):
        sides.load_side(["old-1", source])


@pytest.mark.rule(17)
def test_pairs_keep_their_partners_where_a_session_has_no_time(results):
    """Session 2 of one side and 5 of the other have no valid record: four whole pairs are left, and no crossed ones."""
    for day in (5, 6):
        measured(Path("results"), f"old-{day}", f"2026-11-0{day}T01:00:00Z")
        measured(Path("results"), f"new-{day}", f"2026-11-0{day}T02:00:00Z", ratio=1.25)
    measured(Path("results"), "old-2", "2026-11-02T01:00:00Z", valid=False, reasons=["lost pages"])
    measured(Path("results"), "new-5", "2026-11-05T02:00:00Z", valid=False, reasons=["lost pages"])
    facts, made = of(names("old", 6), names("new", 6), paired=True)
    assert set(made["verdicts"]["blocks"]) == {4}
    assert set(made["verdicts"]["verdict"]) == {Outcome.TOO_FEW}
    assert (facts["sessions_of"], facts["sessions_due"]) == ([5, 5], 6)


def test_other_figures_are_not_compared(results):
    path = results / "new-1/shots/records.csv"
    path.write_text(path.read_text().replace(",total,", ",open,"))
    with pytest.raises(Problem, match="old-1 has total in s, new-1 has open in s; compare runs of the same version"):
        of(["old-1"], ["new-1"])


def test_what_cannot_be_compared_leaves_the_comparison_before_alone(results, tmp_path):
    (tmp_path / "reports/compare").mkdir(parents=True)
    with pytest.raises(Problem, match=r"equal numbers of sessions \(got 4 and 3\)"):
        compare.report_comparison(sides.load_side(names("old", 4)), sides.load_side(names("new", 3)), paired=True)
    assert (tmp_path / "reports/compare").exists()


def test_a_name_may_have_blanks(results):
    shutil.copytree(results / "old-1", results / "my run")
    assert compare.sides.load_side(["my run", "old-2"]).get_name("shots") == "old-1 and old-2"


@pytest.mark.parametrize(
    "rule, broken, is_open",
    [
        ("slower", 2, False),
        ("slower > 10 %", 2, False),
        ("slower > 40 %", 0, False),
        ("faster", 0, False),
        ("more requests", 2, False),
        ("more requests > 50 %", 2, False),
        ("more requests > 70 %", 0, False),
        ("fewer requests", 0, False),
        ("more connections", 0, True),
    ],
)
def test_rules_fail_where_what_they_name_is_decided(results, rule, broken, is_open):
    outcome = of(names("old"), names("new"), rules=parse_rules(rule))[0]["outcome"]
    assert outcome["broken"] == ([f"{rule} in {broken} of 4 cells"] if broken else [])
    assert outcome["open"] == ([rule] if is_open else [])


def test_a_rule_that_passes_says_in_how_many_cells_that_was_decided(results):
    measured(Path("results"), "few", "2026-11-09T01:00:00Z", cells=CELLS[:1])
    rules = parse_rules("faster, fewer requests")
    both = (["old-1", "old-2", "old-3", "few"], names("new"))
    outcome = of(*both, rules=rules)[0]["outcome"]
    assert outcome["passed"] == ["faster (decided in 1 of 4 cells)", "fewer requests"]
    assert outcome["open"] == outcome["broken"] == []


@pytest.mark.parametrize(
    "rule, verdict, low, high, passes",
    [
        ("slower > 10 %", "no evidence", 0.95, 1.3, False),
        ("slower > 10 %", "no evidence", 0.95, 1.08, True),
        ("slower", "no evidence", 0.95, 1.08, False),
        ("slower", "same", 0.98, 1.02, True),
        ("faster > 10 %", "no evidence", 0.8, 1.1, False),
        ("faster > 10 %", "no evidence", 0.92, 1.2, True),
        ("slower > 10 %", "slower", 1.02, 1.15, True),
    ],
)
def test_a_rule_passes_only_where_the_interval_leaves_out_what_it_names(rule, verdict, low, high, passes):
    row = {"verdict": verdict, "ratio": 1.05, "ratio_low": low, "ratio_high": high, "of_sessions": ""}
    verdicts = pd.DataFrame([row])
    outcome = judge_rules(parse_rules(rule), verdicts, pd.DataFrame())
    assert (outcome["passed"], outcome["open"]) == (([rule], []) if passes else ([], [rule]))


def test_a_rule_about_time_is_open_with_one_session_and_one_about_requests_is_not(results):
    rules = parse_rules("slower > 10 %, more requests")
    outcome = of(["old-1"], ["new-1"], rules=rules)[0]["outcome"]
    assert outcome["open"] == ["slower > 10 %"]
    assert outcome["broken"] == ["more requests in 2 of 4 cells"]


def test_a_baseline_that_was_kept_compares_as_its_runs_do(results, tmp_path):
    sides.write_baseline(sides.load_side(names("old")), tmp_path / "baseline.json")
    expected, made = of(names("old"), names("new"))
    facts, kept = of(["baseline.json"], names("new"))
    assert facts["sessions_of"] == expected["sessions_of"]
    pd.testing.assert_frame_equal(kept["verdicts"], made["verdicts"])
    pd.testing.assert_frame_equal(kept["counts"], made["counts"])
    # A line per record, so that a change of it can be read.
    lines = (tmp_path / "baseline.json").read_text(encoding="utf-8").splitlines()
    assert sum("hdf5-2.0.0" in line for line in lines) >= 4 * 4


# What must not be in a file that is committed: a boot, a machine, a user's folders, an endpoint.
SECRETS = (
    "3d0c1f6e-8a27-4e43-9b6f-0d1c2b3a4f5e",
    "node-17.lab",
    "/home/ada",
    "minio.lab:9000",
    "10.0.0.7",
    "/dev/nvme",
)


def write_secrets(folder: Path, node: str) -> None:
    """Write into the facts of a run where and on what it was measured."""
    facts = artefact(folder / "facts.json")
    boot = SECRETS[0]
    machine = {"node": node, "boot": boot, "instance": f"{boot} m5.large", "cpu": "a CPU", "kernel": "6.1.0-13-amd64"}
    machine |= {
        "mount_point": "/home/ada",
        "device": "/dev/nvme0n1",
        "mount_options": "rw,lowerdir=/home/ada/a,addr=10.0.0.7",
    }
    build = {"hdf5_source": "conda /home/ada/env", "s3_stack": None}
    library = {"python": "/home/ada/venv/bin/python", "hdf5": "2.0.0", "build": build}
    config = facts["config"] | {"libraries": {"mine": {"with": [{"from": "/home/ada/s3fs", "ref": "main"}]}}}
    config |= {"data": "../../home/ada/x.h5", "lock": "envs/readers.lock", "note": "s3fs/h5py and 1/10 of it"}
    stores = {"s3": {"kind": "s3", "bucket": "b", "endpoint": "http://minio.lab:9000"}}
    changed = {
        "machines": [machine],
        "machine": machine,
        "libraries": {"mine": library},
        "config": config,
        "stores": stores,
    }
    write_json(folder / "facts.json", facts | changed)


def test_a_baseline_names_no_machine_boot_folder_or_endpoint_and_still_tells_them_apart(results, tmp_path):
    write_secrets(results / "old-1/shots", "node-17.lab")
    write_secrets(results / "old-2/shots", "node-18.lab")
    write_secrets(results / "new-1/shots", "node-17.lab")
    sides.write_baseline(sides.load_side(["old-1", "old-2"]), tmp_path / "kept.json")
    text = (tmp_path / "kept.json").read_text(encoding="utf-8")
    assert [secret for secret in SECRETS if secret in text] == []
    assert re.findall(r'(?<![\w.])(?:~|/)[\w.][^\s"]*', text) == []
    first, second = (facts["machines"][0] for facts in artefact(tmp_path / "kept.json")["studies"]["shots"]["facts"])
    assert first["node"] != second["node"]
    assert (first["cpu"], first["kernel"]) == ("a CPU", "6.1.0-13-amd64")
    kept = sides.load_side([str(tmp_path / "kept.json")]).facts["shots"][0]
    assert (kept["config"]["lock"], kept["config"]["note"]) == ("envs/readers.lock", "s3fs/h5py and 1/10 of it")
    # The same machine and folder on both sides is no difference, and another machine is one.
    made = {side: of([side], ["new-1"])[1]["differences"].set_index("what") for side in ("old-1", "kept.json")}
    assert not made["old-1"].index.str.startswith(("machine node", "library mine", "configuration libraries")).any()
    assert made["kept.json"].loc["machine node"].tolist()[1] == first["node"]


def test_a_baseline_of_before_is_read_and_written_again_without_names(results, tmp_path):
    side = sides.load_side(["old-1"])
    named = [facts | {"machines": [{"node": "node-17.lab", "boot": SECRETS[0]}]} for facts in side.facts["shots"]]
    sides.write_baseline(sides.Side(side.records, {"shots": named}), tmp_path / "older.json")
    assert "node-17.lab" in (tmp_path / "older.json").read_text(encoding="utf-8")
    sides.write_baseline(sides.load_side([str(tmp_path / "older.json")]), tmp_path / "newer.json")
    assert not [secret for secret in SECRETS if secret in (tmp_path / "newer.json").read_text(encoding="utf-8")]


def test_a_baseline_of_a_real_run_names_nothing_of_this_machine(tiny_run, monkeypatch):
    monkeypatch.chdir(tiny_run)
    sides.write_baseline(sides.load_side(["tiny"]), Path("kept.json"))
    text = Path("kept.json").read_text(encoding="utf-8")
    facts = host.read_facts(".")
    known = [facts["node"], facts["boot"], getpass.getuser(), str(Path.home()), str(tiny_run)]
    assert [name for name in known if re.search(rf"\b{re.escape(name)}\b", text)] == []
    assert re.findall(r'(?<![\w.])(?:~|/)[\w.][^\s"]*', text) == []


@pytest.mark.parametrize(
    "source, words",
    [
        ("nothing", "'nothing' is not a run in results/, an archive"),
        ("bad.json", "bad.json is not a baseline; write one to a new file: sbench compare RUN… --keep NEW.json"),
        ("damaged.json", "damaged.json is damaged (facts); restore it, or write a new file"),
        ("cut.json", "cut.json is not JSON (Expecting ',' delimiter: line 1 column 15 (char 14)); restore it"),
        ("published/nothing", "results/published/nothing/tables contains no tables; write them with sbench published"),
        ("older", "results/older/shots/records.csv is missing: the tables are from an earlier version"),
    ],
)
def test_a_side_that_cannot_be_compared_is_one_line(results, tmp_path, source, words):
    write_json(tmp_path / "bad.json", {"cells": []})
    write_json(tmp_path / "damaged.json", {"baseline": 1, "studies": {"shots": {"facts": []}}})
    (tmp_path / "cut.json").write_text('{"baseline": 1', encoding="utf-8")
    shutil.copytree(results / "old-1", results / "older")
    (results / "older/shots/records.csv").unlink()
    with pytest.raises(Problem) as problem:
        sides.load_side([source])
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("facts", "abc", "(facts)"),
        ("facts", [], "(facts)"),
        ("facts", [{"name": "shots-1"}], "(facts: run)"),
        ("facts", [{"run": "a", "libraries": [1]}], "(facts: libraries)"),
        ("facts", [{"run": "a", "equivalence_percent": "5"}], "(facts: equivalence_percent)"),
        ("facts", [3], "is damaged ("),
        ("records", ["cell,repeat", "a,1"], "('run')"),
        ("records", ["a,b", "1,2,3", "4,5,6,7"], "is damaged (Error tokenizing data."),
    ],
)
def test_a_baseline_that_was_changed_by_hand_is_one_line(results, tmp_path, key, value, words):
    path = tmp_path / "baseline.json"
    sides.write_baseline(sides.load_side(["old-1"]), path)
    content = artefact(path)
    content["studies"]["shots"][key] = value
    write_json(path, content)
    with pytest.raises(Problem) as problem:
        sides.load_side([str(path)])
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("value", ["inf", "NaN", "-1", "0", "abc"])
def test_times_that_are_none_are_left_out(results, tmp_path, value):
    path = results / "old-1/shots/records.csv"
    records = pd.read_csv(path, dtype=str, keep_default_na=False)
    records.assign(value=value).to_csv(path, index=False)
    facts, made = of(names("old"), names("new"))
    assert facts["sessions_of"] == [3, 4]
    assert set(made["verdicts"]["verdict"]) == {Outcome.TOO_FEW}


@pytest.fixture(scope="module")
def project(once: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with eight runs, as `results` has them."""
    clone = copy_project(tmp_path_factory.mktemp("compare") / "clone")
    shutil.copytree(once("compared", eight_runs), clone / "results", dirs_exist_ok=True)
    return clone


def test_the_program_prints_what_its_pages_open_with_and_ends_with_status_3(project):
    rules = "slower > 10 %, more requests"
    done = sbench("compare", *names("old"), "--with", *names("new"), "--fail-on", rules, cwd=project)
    assert done.returncode == FAILED, done.stderr
    fails = "Fails: slower > 10 % in 2 of 4 cells and more requests in 2 of 4 cells."
    counts = "old-1 … old-4 → new-1 … new-4: 20 → 26 requests and 400 B → 400 B, 4 cells together."
    assert f"Reading HDF5 files: new-1 … new-4 vs old-1 … old-4: {counts} {fails}" in done.stdout
    page = (project / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert f"\n\n**{counts}** **{fails}**" in page
    assert "% longer than old-1 … old-4" in page
    assert "Requests: same in 2 and **more** in 2 of 4 cells." in page
    assert "in 8 requests" in page
    index = (project / "reports/compare/index.md").read_text(encoding="utf-8")
    assert f"**{counts}** **{fails}**" in index
    assert "To cite" not in index
    # It is pasted elsewhere, where neither pictures nor pages are: the table has both sides of each cell.
    assert "](" not in index
    assert index.count("| 5 → 8 (more) | 100 B → 100 B (same) |") == 2
    assert index.index("5 → 8 (more)") < index.index("5 → 5 (same)")
    first = (project / "reports/compare/index.html").read_text(encoding="utf-8")
    assert "<img" in first
    assert 'href="shots.html"' in first
    html = (project / "reports/compare/shots.html").read_text(encoding="utf-8")
    assert html.count("<table") >= 2


@pytest.mark.rule(17)
def test_a_rule_about_time_warns_where_sides_do_not_take_turns_and_one_about_requests_fails(project):
    weeks = apart(project / "results")
    arguments = (*weeks[0], "--with", *weeks[1], "--fail-on")
    done = sbench("compare", *arguments, "slower > 10 %", cwd=project)
    assert done.returncode == 0, done.stderr
    where = "week2-1 … week2-4 was measured on other days than week1-1 … week1-4"
    warning = (
        f"warning: slower > 10 %: not judged, because {where}; from these sessions only: slower > 10 % in 2 of 4 cells;"
    )
    assert warning in done.stderr
    assert "Neither fails nor passes; warning, from these sessions only: slower > 10 % in 2 of 4 cells." in done.stdout
    assert f"{where}, so the change itself gets no verdict. These sessions only:" in done.stdout
    page = (project / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert "Measure both sides in turn on the same machine" in page
    assert "these sessions alone" in page
    done = sbench("compare", *arguments, "slower > 10 %, more requests", cwd=project)
    assert done.returncode == FAILED


def test_two_runs_alone_are_never_said_to_be_more_than_these_two(project):
    done = sbench("compare", "old-1", "new-1", "--fail-on", "slower", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "requests and 400 B → 400 B, 4 cells together. Neither fails nor passes; not decided: slower." in done.stdout
    assert "Between these two, old-1 and new-1," in done.stdout
    page = (project / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert "which 1 session on each side cannot decide; 4 on each side can" in page
    assert "Measure 3 more sessions" in page
    assert "library is" not in page


def test_what_is_lacking_is_said_of_the_rule_that_is_applied(project):
    done = sbench("compare", *names("old"), "--with", *names("new"), "--paired", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "which 4 sessions on each side cannot decide; 6 pairs can." in done.stdout
    page = (project / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert "Measure 2 more sessions of each side" in page


@pytest.mark.late
def test_snakemake_compares_what_the_configuration_names_and_fails_where_a_rule_does(project):
    comparison = {"a": names("old"), "b": names("new"), "fail_on": ["more requests"]}
    (project / "config/compare.yaml").write_text(yaml.safe_dump(TINY | {"comparison": comparison}), encoding="utf-8")
    done = snakemake(project, "compare", "--configfile", "config/compare.yaml")
    assert done.returncode == 1
    assert (project / "reports/compare/index.html").exists()
    comparison["fail_on"] = ["fewer requests"]
    (project / "config/compare.yaml").write_text(yaml.safe_dump(TINY | {"comparison": comparison}), encoding="utf-8")
    done = snakemake(project, "compare", "--configfile", "config/compare.yaml")
    assert done.returncode == 0, done.stderr
    assert "Passes: fewer requests" in (project / "reports/compare/shots.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "name two sides: sbench compare RUN RUN"),
        (("old-1", "--keep=kept.txt"), "the name of a baseline must end with .json (got --keep kept.txt)"),
        (("--with", "new-1"), "name two sides: sbench compare RUN RUN"),
        (("old-1", "--with"), "name two sides: sbench compare RUN RUN"),
        (
            ("old-1", "new-1", "--fail-on", "slow"),
            "--fail-on must be a rule such as 'slower > 10 %, more requests' (got 'slow')",
        ),
    ],
)
def test_what_is_asked_wrongly_is_one_line(project, arguments, words):
    done = sbench("compare", *arguments, cwd=project)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr


def test_sides_without_a_cell_in_common_say_so_and_list_what_each_has(project):
    """A published study is a side like any other: what it has in common with a run is compared, the rest is listed."""
    made = project / "results/published/shots/tables"
    shutil.copytree(project / "results/old-1/shots", made)
    records = pd.read_csv(made / "records.csv", dtype=str, keep_default_na=False)
    records.assign(library="unknown").to_csv(made / "records.csv", index=False)
    write_json(made / "facts.json", artefact(made / "facts.json") | {"run": "published", "sessions": []})
    done = sbench("compare", "published/shots", "new-1", "--fail-on", "slower", cwd=project)
    shutil.rmtree(project / "results/published")
    assert done.returncode == 0, done.stderr
    assert "new-1 vs published/shots: Neither fails nor passes" in done.stdout
    page = (project / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert "The two sides share no cells." in page
    assert "| published/shots | unknown |" in page
