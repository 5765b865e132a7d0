"""Rounds of a run that measures until its comparisons are decided: what each look orders, and the verdicts that follow.

Records are synthetic, as only their times decide, but for the last tests.
"""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sbench.design import blocks
from sbench.design.config import load_config
from sbench.measure import gather, judging, rounds
from sbench.probe.program import read_json
from tests.helpers.records import failed
from tests.helpers.rounds import STUDY, Simulation, configure
from tests.helpers.small_runs import PAGE, TINY, launch, planned, records, write

NAMES = ["factor", "baseline", "contender", "page_buffer", "metric"]


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def apart(large: float, small: float) -> Callable[[dict], float]:
    """Return the times of four cells: the accesses differ by one ratio without and another with a page buffer."""
    return lambda levels: 1.0 if levels["access"] == "shots" else large if levels["page_buffer"] == "0" else small


def judge(config: dict, folder: Path) -> pd.DataFrame:
    """Return verdicts.csv of the total, by page buffer and control."""
    table, kept = gather.read_study(folder, config["run"], STUDY)
    made = gather.build_tables(config, STUDY, table, kept, {})["verdicts"]
    return made[made["metric"] == "total"].reset_index(drop=True)


def list_states(look: dict) -> dict[tuple[str, str], str]:
    """Return the last state of each comparison of a look, by page buffer and control."""
    return {(row["page_buffer"], row["control"]): row["decision"] for row in look["comparisons"]}


@pytest.mark.rule(5)
def test_a_round_measures_the_cells_of_undecided_comparisons_alone():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.1), noise=0.06)
    first, *later = simulation.call()
    assert list_states(first) == {("0", ""): "decided", ("64MiB", ""): "open"}
    needed = [cell.name for cell in simulation.cells if cell.levels["page_buffer"] == "64MiB"]
    assert (first["cells"], first["blocks"], first["round"]) == (needed, [7, 8], 2)
    assert [len(simulation.measured[block]) for block in (6, 7, 8)] == [4, 2, 2]
    assert later[-1]["blocks"] == []
    assert list_states(later[-1])["64MiB", ""] in ("decided", "given up", "open")
    assert max(simulation.measured) in (8, 10, 12, 16, 20)


def test_a_run_ends_when_nothing_is_open():
    simulation = Simulation(configure(Path(), most_repeats=20), apart(1.5, 1.4))
    (look,) = simulation.call()
    assert look["reasons"] == ["after 6 blocks, 2 of 2 comparisons decided; no further blocks"]
    assert sorted(simulation.measured) == [1, 2, 3, 4, 5, 6]


def test_a_run_ends_at_the_most_repeats():
    simulation = Simulation(configure(Path(), most_repeats=12), apart(1.5, 1.05), noise=0.05, seed=3)
    *_, last = simulation.call()
    assert "1 open; stopped at most_repeats (12)" in last["reasons"][0]
    assert max(simulation.measured) == 12


def test_a_round_begins_only_if_the_budget_has_room_for_it():
    """The first round takes 6 blocks of 4 steps of 2 s; each block of a later round takes 4 s."""
    config = configure(Path(), most_repeats=20, budget_s=60)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    *_, last = simulation.call()
    assert max(simulation.measured) == 8
    assert last["seconds"] == {"spent": 56.0, "round": 8.0}
    assert last["reasons"][0].endswith("stopped: 56 s of budget_s (60 s) are spent, a round would take 8 s")


@pytest.mark.rule(5)
@pytest.mark.parametrize("seed", range(3))
def test_a_budget_of_nothing_gives_the_verdicts_of_fixed_repeats(seed: int):
    ratios = apart(1.3, 1.1)
    fixed = configure(Path())
    Simulation(fixed, ratios, seed=seed).call()
    before = judge(fixed, Path("results/synthetic/shots"))
    shutil.rmtree("results")
    none = configure(Path(), most_repeats=20, budget_s=0)
    (look,) = Simulation(none, ratios, seed=seed).call()
    assert look["blocks"] == []
    after = judge(none, Path("results/synthetic/shots"))
    for column in ("verdict", "blocks", "ratio", "ratio_low", "ratio_high", "p", "used_blocks"):
        assert after[column].tolist() == pytest.approx(before[column].tolist(), nan_ok=True), column
    assert "look" not in before


@pytest.mark.rule(5)
def test_a_verdict_stays_when_its_cells_leave():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    first, *_, last = simulation.call()
    assert list_states(first)["0", ""] == "decided"
    of_first = [row for row in last["comparisons"] if row["look"] == 1]
    assert of_first == first["comparisons"], "a later look sees the first as it was"
    row = judge(config, simulation.folder).set_index("page_buffer").loc["0"]
    assert (row["look"], row["blocks"], row["decision"], row["most_repeats"]) == (1, 6, "decided", 20)
    assert row["used_blocks"] == "1 2 3 4 5 6"


@pytest.mark.rule(17)
def test_exchanged_arms_mirror_the_verdicts_of_all_looks():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.1), noise=0.06)
    simulation.call()
    mirrored = copy.deepcopy(config)
    mirrored["studies"][STUDY]["compare"] = [{"factor": "access", "baseline": "signals"}]
    rows, others = (judge(one, simulation.folder).set_index("page_buffer") for one in (config, mirrored))
    exchanged = {"faster": "slower", "slower": "faster"}
    assert [exchanged.get(verdict, verdict) for verdict in rows["verdict"]] == others["verdict"].tolist()
    assert rows["ratio"].tolist() == pytest.approx((1 / others["ratio"]).tolist())
    for column in ("look", "blocks", "decision", "p"):
        assert rows[column].tolist() == others[column].tolist()


@pytest.mark.rule(5)
def test_the_looks_follow_from_the_records_alone():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.1), noise=0.06)
    *_, last = simulation.call()
    shutil.rmtree(simulation.folder / "looks")
    (simulation.folder / "blocks.json").unlink()
    # Files in another order.
    for path in sorted((simulation.folder / "records").glob("*/*.json"), reverse=True):
        text = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(text, encoding="utf-8")
    table, kept = gather.read_study(simulation.folder, config["run"], STUDY)
    made = gather.build_tables(config, STUDY, table, kept, {})["looks"]
    assert json.loads(made.to_json(orient="records", double_precision=15)) == [
        pytest.approx(row) for row in json.loads(json.dumps(last["comparisons"]))
    ]


@pytest.mark.rule(5)
def test_a_look_that_does_not_follow_from_the_records_is_named():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.1), noise=0.06)
    simulation.call()
    table, kept = gather.read_study(simulation.folder, config["run"], STUDY)
    replayed = gather.build_tables(config, STUDY, table, kept, {})["looks"]
    assert gather.list_changed_looks(simulation.folder, replayed) == []
    path = simulation.folder / "looks/2.json"
    look = read_json(path)
    look["comparisons"][0]["verdict"] = "faster"
    path.write_text(json.dumps(look), encoding="utf-8")
    (line,) = gather.list_changed_looks(simulation.folder, replayed)
    assert line.startswith("looks/2.json disagrees with the records (1 verdict): ")


def test_a_failed_record_of_a_round_is_replaced_before_the_next_look():
    def change(record: dict) -> dict:
        is_broken = record["repeat"] == 8 and record["cell"]["access"] == "signals"
        return failed(record, "no server") | {"round": 2, "most_repeats": 20} if is_broken else record

    config = configure(Path(), most_repeats=20, extra_blocks=2)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3, change=change)
    first, second, third, *_ = simulation.call()
    assert first["blocks"] == [7, 8]
    assert second["reasons"] == ["1 block more, as 1 are missing"]
    assert (second["blocks"], second["cells"], second["round"]) == ([9], first["cells"], 2)
    assert third["round"] == 3
    assert third["blocks"] == [10, 11]


def test_a_failed_record_is_replaced_in_the_first_round_before_the_first_look():
    def change(record: dict) -> dict:
        return failed(record, "no server") if record["repeat"] == 2 and record["cell"]["access"] == "shots" else record

    config = configure(Path(), most_repeats=20, extra_blocks=2)
    first, second = Simulation(config, apart(1.5, 1.4), change=change).call()
    assert (first["blocks"], first["cells"], first["round"]) == ([7], None, 1)
    assert second["reasons"] == ["after 7 blocks, 2 of 2 comparisons decided; no further blocks"]
    assert second["ends"] == [7], "the block that replaces another belongs to its round"


def test_a_cell_that_always_fails_keeps_no_comparison_open():
    def change(record: dict) -> dict:
        is_broken = record["cell"]["page_buffer"] == "64MiB" and record["cell"]["access"] == "signals"
        return failed(record, "no server") if is_broken else record

    (look,) = Simulation(configure(Path(), most_repeats=20), apart(1.5, 1.5), change=change).call()
    assert look["blocks"] == []
    assert look["reasons"] == ["after 6 blocks, 1 of 2 comparisons decided, 1 without valid records; no further blocks"]


def test_controls_that_always_fail_have_no_time_and_keep_no_comparison_open():
    def change(record: dict) -> dict:
        kept = failed(record, "no server") | {"round": record["round"], "most_repeats": record["most_repeats"]}
        return kept if record["cell"]["control"] or record["cell"]["page_buffer"] == "0" else record

    config = configure(Path(), controls=1, most_repeats=8, extra_blocks=0)
    *_, last = Simulation(config, apart(1.5, 1.05), noise=0.05, seed=3, change=change).call()
    assert last["blocks"] == []
    assert last["seconds"]["round"] >= 0


@pytest.mark.rule(5)
def test_a_call_goes_on_with_the_round_that_an_earlier_call_did_not_measure():
    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    first, *_ = simulation.call(most_looks=1)
    for path in simulation.folder.glob("records/*/repeat=[78].json"):
        path.unlink()
    opened = blocks.open_blocks(config, simulation.cells, simulation.cells)
    assert (opened.blocks, opened.cells, opened.round) == ([7, 8], first["cells"], 2)
    *_, last = simulation.call()
    assert [look["round"] for look in simulation.looks] == sorted(look["round"] for look in simulation.looks)
    assert last["ends"][:3] == [6, 8, 10]
    assert json.dumps(last["levels"][:2]) == json.dumps(first["levels"] + last["levels"][1:2])


@pytest.mark.rule(5)
def test_a_call_with_more_repeats_leaves_the_earlier_looks_alone():
    config = configure(Path(), most_repeats=8)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    *_, before = simulation.call()
    assert "stopped at most_repeats (8)" in before["reasons"][0]
    simulation.config = config | {"most_repeats": 16}
    simulation.call()
    *_, after = simulation.looks
    many = len(before["levels"])
    assert after["levels"][:many] == before["levels"]
    assert after["comparisons"][:many] == before["comparisons"][:many]
    assert max(simulation.measured) in (10, 12, 16)


@pytest.mark.rule(5)
@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_of_a_call_with_fixed_repeats_after_a_round_are_a_round(seed: int):
    config = configure(Path(), most_repeats=8)
    simulation = Simulation(config, apart(1.5, 1.04), noise=0.05, seed=seed)
    assert simulation.call()[-1]["ends"] == [6, 8]
    for repeats, ends in ((10, [6, 8, 12]), (12, [6, 8, 12, 14])):
        simulation.config = configure(Path(), repeats=repeats)
        simulation.call()
        matrix, kept = gather.read_study(simulation.folder, config["run"], STUDY)
        looks = gather.build_tables(simulation.config, STUDY, matrix, kept, {})["looks"]
        assert set(looks["at"]) <= set(ends)
        assert ends[-1] in set(looks["at"])
    # A call that goes on measuring until it can decide continues these looks, also if the looks of before are gone.
    for path in (simulation.folder / "looks").glob("*.json"):
        path.unlink()
    simulation.config = configure(Path(), most_repeats=20)
    *_, last = simulation.call()
    assert last["ends"][:4] == [6, 8, 12, 14]
    assert last["ends"] == sorted(last["ends"])
    assert last["levels"] == sorted(last["levels"])
    assert last["levels"][-1] <= 0.05


@pytest.mark.rule(5)
@pytest.mark.parametrize("block", [3, 8])
def test_a_block_in_which_all_records_failed_is_no_look(block: int):
    """Failed records do not contain their round."""

    def change(record: dict) -> dict:
        return failed(record) | {"session": record["session"]} if record["repeat"] == block else record

    config = configure(Path(), most_repeats=8, extra_blocks=0)
    *_, last = Simulation(config, apart(1.5, 1.04), noise=0.05, seed=3, change=change).call()
    assert last["ends"][0] == 6
    assert block - 1 not in last["ends"]


@pytest.mark.rule(5)
def test_a_run_can_be_reported_after_a_call_with_as_many_most_repeats_as_repeats():
    config = configure(Path(), most_repeats=8)
    simulation = Simulation(config, apart(1.5, 1.04), noise=0.05, seed=3)
    simulation.call()
    simulation.config = configure(Path(), repeats=10, most_repeats=10)
    simulation.call()
    assert max(judge(simulation.config, simulation.folder)["blocks"]) == 12


def test_only_selected_cells_are_in_a_round():
    config = configure(Path(), most_repeats=20)
    names = [cell.name for cell in Simulation(config).cells]
    of_buffer = configure(Path(), most_repeats=20) | {"only": {"page_buffer": ["64MiB"]}}
    simulation = Simulation(of_buffer, apart(1.07, 1.07), noise=0.05, seed=3)
    look, *_ = simulation.call()
    assert set(look["cells"]) < set(names)
    assert all(len(measured) == 2 for measured in simulation.measured.values())


@pytest.mark.rule(5, 15)
def test_the_slowed_control_and_its_twin_are_in_every_round():
    config = configure(Path(), controls=1, most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    look, *_ = simulation.call()
    by_name = {cell.name: cell.levels["control"] for cell in simulation.cells}
    original = next(cell.twin_of for cell in simulation.cells if cell.twin_of)
    assert {by_name[name] for name in look["cells"]} == {"", "twin", "slow10"}
    assert original in look["cells"]


@pytest.mark.rule(5)
def test_what_a_round_leaves_out_is_neither_missing_nor_judged_again():
    config = configure(Path(), controls=1, most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3)
    *_, last = simulation.call()
    assert max(simulation.measured) > 6
    rows = judge(config, simulation.folder)
    assert not rows["note"].str.contains("missing").any()
    slow5 = rows[rows["contender"].str.contains("slow5")].iloc[0]
    assert (slow5["look"], slow5["blocks"]) == (1, 6)
    assert [row["look"] for row in last["comparisons"] if row["control"] == "slow5"] == [1]


def test_the_slowed_control_stays_open_until_its_slowdown_is_found():
    config = configure(Path(), controls=1, most_repeats=20)
    slowed = {"slow10": 1.1, "slow5": 1.05}
    simulation = Simulation(config, lambda levels: slowed.get(levels["control"], 1.0), noise=0.06, seed=2)
    look, *_ = simulation.call()
    assert list_states(look)["0", "slow10"] == "open"
    assert look["cells"]


@pytest.mark.rule(5, 17)
def test_rounds_that_differ_from_the_first_end_the_run_and_do_not_count():
    def change(record: dict) -> dict:
        if record["round"] > 1 and record["cell"]["access"] == "signals":
            record["seconds"] = {name: 1.4 * value for name, value in record["seconds"].items()}
        return record

    config = configure(Path(), most_repeats=20)
    simulation = Simulation(config, apart(1.5, 1.07), noise=0.05, seed=3, change=change)
    *_, last = simulation.call()
    assert last["shifted"] > 1
    assert last["reasons"][0].endswith("stopped: later blocks differ from the first round, which alone counts")
    row = judge(config, simulation.folder).set_index("page_buffer").loc["64MiB"]
    assert (row["look"], row["blocks"], row["verdict"]) == (1, 6, "no evidence")


def test_leaders_of_a_contest_are_the_cells_that_no_other_beats():
    def judged(base: str, other: str, ratio: float) -> judging.Judged:
        return judging.Judged("contest", {"cell": base}, {"cell": other}, "total", "decides", {"ratio": ratio}, [])

    contests = [judged("a", "b", 0.5), judged("a", "c", 2.0), judged("b", "c", 3.0)]
    assert rounds._list_leaders(contests) == {"b"}


def test_a_look_names_the_code_that_judged():
    (look,) = Simulation(configure(Path(), most_repeats=20), apart(1.5, 1.4)).call()
    assert len(look["code_sha256"]) == 64
    assert read_json(Path("results/synthetic/shots/looks/1.json")) == json.loads(json.dumps(look))


def test_the_workflow_measures_the_round_that_a_look_orders(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """The first round is synthetic, with an undecided comparison; a call of fixed repeats has made its tables."""
    monkeypatch.chdir(tiny)
    write(tiny, TINY | {"repeats": 6})
    Simulation(load_config("config/config.yaml"), apart(1.07, 1.07), noise=0.05, seed=3).call(most_looks=0)
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no further blocks" in done.stdout + done.stderr
    write(tiny, TINY | {"repeats": 6, "most_repeats": 8})
    done = launch(tiny)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    folder = tiny / "results/tiny/shots"
    first, last = blocks.read_orders(folder / "looks")
    assert (first.blocks, first.round, last.blocks) == ([7, 8], 2, [])
    measured = [record for record in records(tiny).values() if record["repeat"] > 6]
    assert {(record["repeat"], record["round"], record["block_cells"]) for record in measured} == {(7, 2, 2), (8, 2, 2)}
    assert len({record["position"] for record in measured}) == 4
    for number in (1, 2):
        assert read_json(folder / f"looks/{number}.json")["reasons"][0] in text
    assert " of at most 8 blocks: " in (tiny / PAGE).with_suffix(".md").read_text("utf-8")
    assert "measure" not in planned(tiny)


def test_a_call_with_a_budget_of_nothing_measures_one_round(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tiny)
    write(tiny, TINY | {"repeats": 6, "most_repeats": 8})
    Simulation(load_config("config/config.yaml"), apart(1.07, 1.07), noise=0.05, seed=3).call(most_looks=0)
    done = launch(tiny, "--budget", "0s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped: 24 s of budget_s (0 s) are spent, a round would take 8 s" in done.stdout + done.stderr
    assert {record["round"] for record in records(tiny).values()} == {1}
