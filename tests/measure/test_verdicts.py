"""From records to verdicts.csv, and where an arm stops scaling, on synthetic records."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from sbench.measure import families, judging, tables
from sbench.measure import gather as gather_program
from sbench.verdicts import looks
from sbench.verdicts.scaling import find_stops
from tests.helpers.records import (
    COMPARE,
    FEW,
    at,
    chosen,
    failed,
    gather,
    newer_is,
    sealed,
    synthetic_cells,
    write_synthetic_run,
)


def test_a_slower_library_is_found_and_the_page_buffer_left_alone(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(workers=("1",)), repeats=10, ratio=newer_is(1.3))
    judged = gather(run)[2]
    library = chosen(judged, factor="library", metric="total")
    assert len(library) == 8
    assert set(library["verdict"]) == {"slower"}
    assert (library["p"] <= 0.05).all()
    assert library["ratio"].between(1.2, 1.4).all()
    assert (library["library"] == "").all()
    assert set(library["page_buffer"]) == {"0", "64MiB"}
    assert not set(chosen(judged, factor="page_buffer", metric="total")["verdict"]) & {"faster", "slower"}


@pytest.mark.rule(7)
def test_total_decides_and_the_other_metrics_are_secondary(tmp_path):
    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW), ratio=newer_is(1.3)))[2]
    assert set(chosen(judged, metric="total", control="")["role"]) <= {"decides", "control"}
    for metric in ("open", "first", "rest"):
        rows = chosen(judged, factor="library", metric=metric)
        assert set(rows["role"]) == {"secondary"}
        assert set(rows["verdict"]) == {"slower"}


@pytest.mark.rule(17)
def test_each_metric_is_corrected_for_all_comparisons_of_its_factor_and_for_no_other_metric(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, workers=("1", "2")), repeats=8)
    matrix = tables.read_matrix(run / "matrix.csv")
    _, kept = gather_program.read_study(run, "synthetic", "shots")
    runs, _ = tables.build_runs_and_samples(matrix, kept)
    together = judging.build_verdicts_table(matrix, runs, COMPARE[:1])
    by_itself = pd.concat(
        judging.build_verdicts_table(part, runs, COMPARE[:1])
        for _, part in matrix.groupby(["layout", "access", "workers", "page_buffer"], sort=False)
    )
    for metric in ("total", "open", "first", "rest"):
        whole, alone = (chosen(table, metric=metric) for table in (together, by_itself))
        assert len(whole) == len(alone) == 16
        assert alone["ratio"].tolist() == whole["ratio"].tolist()
        assert (whole["p"].to_numpy() >= alone["p"].to_numpy()).all()
        assert whole["p"].min() > alone["p"].min()
        others = [column for column in runs if column.startswith("seconds ") and column != f"seconds {metric}"]
        # Without the other metrics it is the same; `total` is judged in any case.
        without = judging.build_verdicts_table(matrix, runs.drop(columns=set(others) - {"seconds total"}), COMPARE[:1])
        assert chosen(without, metric=metric)["p"].tolist() == whole["p"].tolist()


@pytest.mark.rule(17)
def test_a_contest_compares_every_two_of_its_cells_that_nothing_else_compares(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(**{**FEW, "workers": ("1", "2")}), repeats=8)
    matrix = tables.read_matrix(run / "matrix.csv")
    runs, _ = tables.build_runs_and_samples(matrix, gather_program.read_study(run, "synthetic", "shots")[1])
    judged = judging.build_verdicts_table(matrix, runs, COMPARE[:1], contest=lambda cell: cell["page_buffer"] or None)
    cells = {cell["cell"]: cell for cell in matrix[matrix["twin_of"] == ""].to_dict("records")}
    rows = chosen(judged, factor="contest")
    pairs = {frozenset(pair) for pair in zip(rows["baseline"], rows["contender"], strict=True)}
    compared = judging._list_pairs(matrix, "library", COMPARE[0]["baseline"])
    named = {frozenset((base["cell"], other["cell"])) for base, other in compared}
    alike = {
        frozenset(pair)
        for pair in itertools.combinations(cells, 2)
        if len({cells[c]["page_buffer"] for c in pair}) == 1
    }
    assert pairs == alike - named
    assert named & alike
    assert len(rows) == len(pairs)
    assert set(rows["metric"]) == {"total"}


@pytest.mark.rule(7)
def test_what_is_of_single_tasks_is_compared_where_there_are_as_many(tmp_path):
    def change(record):
        record["work"]["tasks_done"] = record["work"]["tasks_asked"] = 4 * int(record["cell"]["workers"])
        record["seconds"]["wait"] = 0.1
        return record

    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **{**FEW, "workers": ("1", "2")}), change=change)
    judged = gather(run, compare=[*COMPARE, {"factor": "workers", "baseline": "1"}])[2]
    assert set(chosen(judged, factor="library")["metric"]) == {"total", "open", "first", "rest", "wait"}
    assert set(chosen(judged, factor="workers")["metric"]) == {"total", "open", "wait"}


@pytest.mark.rule(13)
def test_the_harness_is_a_bound_and_an_order_that_no_share_of_it_can_turn_is_decided(tmp_path):
    """The contender takes twice as long; of 9.9 % nothing is taken off, of 12 % all, and 60 % may be all there is."""
    shares = {"0": 0.099, "64MiB": 0.12, "256MiB": 0.6}

    def change(record):
        if record["cell"]["library"] == "hdf5-2.0.0":
            record["seconds"]["null"] = shares[record["cell"]["page_buffer"]] * record["seconds"]["total"]
        return record

    cells = synthetic_cells(twins=0, **{**FEW, "page_buffer": tuple(shares)})
    judged = gather(write_synthetic_run(tmp_path, cells, ratio=newer_is(2), change=change))[2]
    rows = chosen(judged, factor="library", metric="total").set_index("page_buffer")
    assert rows["verdict"].to_dict() == {"0": "slower", "64MiB": "slower", "256MiB": "not comparable"}
    whole = rows["contender_s"] / rows["baseline_s"]
    assert rows["ratio"]["0"] == pytest.approx(whole["0"], rel=0.1)
    assert rows["ratio"]["64MiB"] == pytest.approx(0.88 * whole["64MiB"], rel=0.1)
    assert rows["harness_percent"].to_dict() == {"0": "", "64MiB": "12", "256MiB": "60"}
    assert rows.loc["256MiB", "note"] == "the harness takes 60 % of an arm's time"
    assert not any(rows.loc["256MiB", ["ratio_low", "ratio_high"]])
    assert rows.loc["256MiB", ["ratio", "p"]].isna().all()
    assert set(chosen(judged, factor="library", metric="rest")["verdict"]) == {"slower"}


@pytest.mark.rule(17)
def test_a_verdict_names_the_blocks_that_it_used(tmp_path):
    def change(record):
        is_broken = record["cell"]["library"] == "hdf5-2.0.0" and record["repeat"] in (2, 5)
        return failed(record, "no server") if is_broken else record

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), 8, change=change))[2]
    assert set(chosen(judged, factor="library")["used_blocks"]) == {"1 3 4 6 7 8"}


@pytest.mark.rule(15)
def test_attempts_that_failed_stay_with_their_arm_and_what_was_skipped_is_none(tmp_path):
    def change(record):
        if record["cell"]["library"] != "hdf5-2.0.0" or record["repeat"] not in (2, 5, 7):
            return record
        return failed(record, "no server") | ({"cause": "servers.json"} if record["repeat"] == 7 else {})

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), 10, change=change))[2]
    columns = ["attempts_baseline", "failed_baseline", "attempts_contender", "failed_contender", "blocks"]
    assert chosen(judged, factor="library", metric="total")[columns].to_numpy().tolist() == [[10, 0, 9, 2, 7]] * 2


@pytest.mark.rule(15)
def test_a_time_limit_is_a_time_of_at_least_that_and_no_hole(tmp_path):
    def change(record):
        late = record["repeat"] in (1, 2, 3)
        if late and (record["cell"]["library"] == "hdf5-2.0.0" or record["repeat"] == 1):
            ended = failed(record, "the time limit") | {"session": record.get("session", ""), "timed_out_s": 1000.0}
            return ended
        return record

    cells = synthetic_cells(twins=0, **FEW)
    judged = gather(write_synthetic_run(tmp_path, cells, 8, ratio=newer_is(1.5), change=change))[2]
    for row in chosen(judged, factor="library", metric="total").to_dict("records"):
        assert (row["blocks"], row["verdict"]) == (7, "slower"), "of the block in which both ended nothing is known"
        assert row["mean_ratio"] > 10
        assert "blocks 2, 3 ended by the time limit in an arm, with the limit as its time" in row["note"]
        assert "block 1 failed, invalid or missing in an arm" in row["note"]
        assert (row["failed_baseline"], row["failed_contender"]) == (1, 3)
    assert set(chosen(judged, factor="library", metric="open")["blocks"]) == {5}


@pytest.mark.rule(6)
def test_twins_are_the_control_and_nothing_else(tmp_path):
    cells = synthetic_cells(twins=3, **FEW)
    judged = gather(write_synthetic_run(tmp_path, cells))[2]
    control = chosen(judged, role="control", metric="total")
    assert set(control["factor"]) == {"control"}
    assert control["baseline"].tolist() == [cell["twin_of"] for cell in cells if cell["twin_of"]]
    assert control["contender"].tolist() == [cell["cell"] for cell in cells if cell["twin_of"]]
    assert set(control["verdict"]) <= {"same", "no evidence"}
    assert len(chosen(judged, factor="library", metric="total")) == 2


SLOWED = {"slow5": 1.05, "slow10": 1.1}


@pytest.mark.rule(6)
def test_slowed_controls_are_found_as_any_difference_of_their_size_would_be_and_enter_nothing_else(tmp_path):
    def judged(folder, slowed, noise):
        cells = synthetic_cells(slowed=slowed, workers=("1",))
        run = write_synthetic_run(
            tmp_path / folder, cells, 8, noise=noise, ratio=lambda cell: SLOWED.get(cell["control"], 1)
        )
        return gather(run)[2].drop(columns="note")

    table = judged("slowed", (*SLOWED,), 0.002)
    rows = table[table["control"].isin(SLOWED)]
    assert set(rows["factor"]) == set(rows["role"]) == {"control"}
    assert rows.set_index("control")["metric"].to_dict() == dict.fromkeys(SLOWED, "total")
    assert rows.set_index("control").loc["slow10", "verdict"] == "slower"
    assert rows.set_index("control")["ratio"].to_dict() == pytest.approx(SLOWED, rel=0.01)
    # With 9 members, not alone: of 8 blocks, one comparison by itself has p = 2 / 2**8 where all of them agree.
    noisy = judged("noisy", ("slow10",), 0.1)
    assert chosen(noisy, control="slow10")["verdict"].tolist() == ["no evidence"]
    alone = tables.read_matrix(tmp_path / "noisy/matrix.csv")
    alone = alone[alone["cell"].isin([*chosen(noisy, control="slow10")[["baseline", "contender"]].iloc[0]])]
    _, kept = gather_program.read_study(tmp_path / "noisy", "synthetic", "shots")
    runs, _ = tables.build_runs_and_samples(alone, [one for one in kept if one.cell in set(alone["cell"])])
    by_itself = judging.build_verdicts_table(alone, runs, [])
    assert by_itself["p"].iloc[0] < chosen(noisy, control="slow10")["p"].iloc[0]
    # Records of the same cells without slowed controls give the same rows.
    matrix = tables.read_matrix(tmp_path / "slowed/matrix.csv")
    without = matrix[~matrix["control"].isin(SLOWED)]
    _, kept = gather_program.read_study(tmp_path / "slowed", "synthetic", "shots")
    runs, _ = tables.build_runs_and_samples(without, [one for one in kept if one.cell in set(without["cell"])])
    others = judging.build_verdicts_table(without, runs, COMPARE).drop(columns="note").reset_index(drop=True)
    kept_rows = table[~table["control"].isin(SLOWED)].reset_index(drop=True)
    assert kept_rows["verdict"].tolist() == others["verdict"].tolist()
    assert kept_rows["p"].tolist() == pytest.approx(others["p"].tolist(), nan_ok=True)


@pytest.mark.rule(14, 17)
@pytest.mark.parametrize(
    "part, key, value, told",
    [
        ("provenance", "code_sha256", "edited", "the measuring code differs"),
        ("provenance", "data_sha256", "other", "the data differ"),
        ("work", "logical_bytes", 5, "the amount of data differs"),
        ("provenance", "lock_sha256", "other", "the Python packages differ"),
        (
            None,
            "verified",
            "within the timed pass",
            "the place of checksums, inside or outside the timed pass, differs",
        ),
    ],
)
def test_arms_of_different_code_data_or_packages_are_not_comparable(tmp_path, part, key, value, told):
    def change(record):
        if at(record, 4, library="hdf5-2.0.0", page_buffer="0"):
            (record[part] if part else record)[key] = value
        return record

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), change=change))[2]
    rows = chosen(judged, factor="library", metric="total").set_index("page_buffer")
    assert rows.loc["0", "verdict"] == "not comparable"
    assert rows.loc["0", "note"] == f"{told} between the arms in block 4"
    assert math.isnan(rows.loc["0", "ratio"])
    assert rows.loc["64MiB", "verdict"] != "not comparable"


@pytest.mark.rule(2, 14)
@pytest.mark.parametrize(
    "change, told",
    [
        ({"session": "2026-11-23T08:00:00Z"}, "in different sessions"),
        ({"host": {"boot": "another"}}, "on different machines"),
        ({"host": {"node": "another"}}, "on different nodes"),
        ({"host": {"ram_bytes": 2**30}}, "on different machines"),
        ({"host": {"cpu_quota": 1.5}}, "on different machines"),
        ({"host": {"device": "/dev/sdb", "mount_point": "/data"}}, "on different devices or mounts"),
        ({"started_utc": "2030-01-01T00:00:00Z"}, "too far apart in time"),
    ],
)
def test_a_block_counts_only_where_both_arms_were_measured_in_one_session_on_one_machine(tmp_path, change, told):
    def elsewhere(record):
        record["started_utc"] = "2026-11-23T08:00:00Z"
        if at(record, 4, library="hdf5-2.0.0", page_buffer="0"):
            record |= change
        return record

    cells = synthetic_cells(twins=0, **FEW)
    judged = gather(write_synthetic_run(tmp_path, cells, 7, ratio=newer_is(1.3), change=elsewhere))[2]
    rows = chosen(judged, factor="library", metric="total").set_index("page_buffer")
    assert rows.loc["0", ["blocks", "verdict", "note"]].tolist() == [6, "slower", f"block 4 measured {told}, not used"]
    assert rows.loc["64MiB", ["blocks", "verdict", "note"]].tolist() == [7, "slower", ""]


@pytest.mark.rule(2, 14)
def test_arms_that_were_never_measured_together_are_not_comparable(tmp_path):
    def later(record):
        # As after `sbench run --again` of one library on another day.
        return record | ({"session": "2026-11-23"} if record["cell"]["library"] == "hdf5-2.0.0" else {})

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), ratio=newer_is(2), change=later))[2]
    rows = chosen(judged, factor="library", metric="total")
    assert set(rows["verdict"]) == {"not comparable"}
    assert set(rows["note"]) == {"blocks 1, 2, 3, 4, 5, 6 measured in different sessions, not used"}
    assert rows["ratio"].isna().all()
    assert set(chosen(judged, factor="page_buffer")["blocks"]) == {6}


@pytest.mark.rule(2, 17)
@pytest.mark.parametrize(
    "change, told",
    [
        ({"host": {"node": "b"}}, "on different nodes"),
        ({"started_utc": "2030-01-01T00:00:00Z"}, "too far apart in time"),
    ],
)
def test_arms_that_a_cluster_measured_on_different_nodes_or_hours_apart_have_too_few_repeats(tmp_path, change, told):
    def scheduled(record):
        here = {"host": {"node": "a"}, "started_utc": "2026-11-23T08:00:00Z"}
        return record | here | (change if record["cell"]["library"] == "hdf5-2.0.0" else {})

    cells = synthetic_cells(twins=0, **FEW)
    judged = gather(write_synthetic_run(tmp_path, cells, ratio=newer_is(2), change=scheduled))[2]
    rows = chosen(judged, factor="library", metric="total")
    assert set(rows["verdict"]) == {"too few repeats"}
    assert set(rows["note"]) == {f"blocks 1, 2, 3, 4, 5, 6 measured {told}, not used"}


@pytest.mark.rule(2, 14)
@pytest.mark.parametrize("alone, verdict", [(("n1", "n2"), "slower"), (("n3", "n4"), "too few repeats")])
def test_a_cell_on_several_nodes_is_compared_with_one_on_some_of_them(alone, verdict):
    matrix = pd.DataFrame({"cell": ["a", "b"], "nodes": ["1", "2"], "twin_of": ""})
    rows = [
        {
            "cell": cell,
            "repeat": block,
            "status": "done",
            "ok": True,
            "seconds total": time + block / 100,
            "session": "",
        }
        | {"node": json.dumps([node]), "machine": json.dumps([node, "boot"])}
        for block in range(1, 9)
        for cell, time, node in (("a", 1.0, alone[block % 2]), ("b", 2.0, "n1, n2"))
    ]
    compared = judging.build_verdicts_table(matrix, pd.DataFrame(rows), [{"factor": "nodes", "baseline": "1"}])
    (row,) = compared[compared["metric"] == "total"].to_dict("records")
    assert row["verdict"] == verdict, row["note"]


@pytest.mark.rule(2)
def test_arms_of_a_long_block_may_be_hours_apart(tmp_path):
    def later(record):
        hour = 10 if record["cell"]["library"] == "hdf5-2.0.0" else 8
        return record | {"started_utc": f"2026-11-23T{hour:02d}:00:00Z", "step_seconds": 1800.0}

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), ratio=newer_is(2), change=later))[2]
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}


def two_arms(base, other, sessions, later=None):
    """What is said of two libraries that took so long, block by block, in these sessions, the second one in `later`.

    Where a time is NaN, the record has failed.
    """
    matrix = pd.DataFrame({"cell": ["a", "b"], "library": ["old", "new"], "twin_of": ""})
    parts = [("a", base, sessions), ("b", other, later or sessions)]
    rows = [
        {"cell": cell, "repeat": block, "seconds total": time, "session": session}
        | {"status": "done" if np.isfinite(time) else "failed", "ok": bool(np.isfinite(time))}
        for cell, times, when in parts
        for block, (time, session) in enumerate(zip(times, when, strict=True), 1)
    ]
    compare = [{"factor": "library", "baseline": "old"}]
    return judging.build_verdicts_table(matrix, pd.DataFrame(rows), compare).iloc[0]


def simulated(runs, judge):
    """How many of so many runs, each with its own random numbers, are judged faster or slower."""
    return sum(judge(np.random.default_rng(seed)) in ("faster", "slower") for seed in range(runs))


@pytest.mark.rule(2, 14)
def test_a_second_session_that_is_slower_makes_no_contender_slower():
    def judge(random):
        base, other = np.exp(random.normal(0, 0.02, (2, 10)))
        other[4:] *= 1.05
        return two_arms(base, other, ["1"] * 10, ["1"] * 4 + ["2"] * 6)["verdict"]

    assert simulated(100, judge) == 0


@pytest.mark.rule(5, 17)
def test_looking_again_after_adding_repeats_is_counted():
    def judge(random):
        base, other = np.exp(random.normal(0, 0.02, (2, 10)))
        first = two_arms(base[:6], other[:6], ["1"] * 6)["verdict"]
        return first if first != "no evidence" else two_arms(base, other, ["1"] * 6 + ["2"] * 4)["verdict"]

    assert simulated(200, judge) <= 14
    blocks = np.linspace(1, 1.1, 10)
    whens = ("1" * 10, "1" * 6 + "2" * 4, "1" * 5 + "2" * 5, "2" * 6 + "1" * 4)
    looks = [two_arms(blocks, blocks * 2, when)["looks"] for when in whens]
    # Where the clock was set back between two sessions, the later one has the earlier name.
    assert looks == [1, 2, 1, 2], "fewer than 6 blocks tell nothing, so they were not looked at"


@pytest.mark.rule(17)
@pytest.mark.parametrize("ratio, verdict", [(1, "same"), (0.8, "faster"), (1.2, "slower")])
def test_an_arm_that_loses_records_the_other_one_keeps_may_have_lost_the_slow_ones(ratio, verdict):
    base, other = np.exp(np.random.default_rng(1).normal(0, 0.01, (2, 10)))
    sessions, lost = ["1"] * 10, np.where(np.arange(10) < 2, np.nan, 1)
    assert two_arms(base, ratio * other, sessions)["verdict"] == verdict
    both = two_arms(base * lost, ratio * other * lost, sessions)["verdict"]
    assert both == ("no evidence" if verdict == "same" else verdict), "both lost them"
    row = two_arms(base, ratio * other * lost, sessions)
    # Of an arm that is slower although it lost its slow records no less is known.
    assert row["verdict"] == ("slower" if verdict == "slower" else "no evidence")
    words = f"{families.LOST}: 0 of 10 in the baseline, 2 in the contender"
    assert row["note"].startswith(words) == (verdict != "slower")
    of_baseline = two_arms(base * lost, ratio * other, sessions)["verdict"]
    assert of_baseline == ("faster" if verdict == "faster" else "no evidence")
    assert row["blocks"] == 8


@pytest.mark.rule(17)
def test_a_record_whose_file_is_missing_is_a_lost_record_unless_its_call_ended_before_it(tmp_path):
    """Who removes slow records could make one arm look as good as the other, or better."""
    cells = synthetic_cells(twins=0, **FEW)
    change = lambda record: record | {"session": "1"}  # noqa: E731
    run = write_synthetic_run(tmp_path, cells, repeats=8, noise=0.002, drift=0.002, change=change)
    judge = lambda: chosen(gather(run)[2], factor="library", metric="total").iloc[-1]  # noqa: E731
    newer = cells[-1]["cell"]
    (run / "records" / newer / "repeat=8.json").unlink()
    row = judge()
    assert (row["verdict"], row["failed_contender"]) == ("same", 0), "the last block, in which the call may have ended"
    # Cells of the last block that were measured again, or are no longer in the configuration, leave a gap there.
    older = cells[0]["cell"]
    path = run / "records" / older / "repeat=8.json"
    path.write_text(sealed(json.loads(path.read_text()) | {"session": "2"}), encoding="utf-8")
    assert judge()["verdict"] == "same"
    (run / "records" / newer / "repeat=3.json").unlink()
    row = judge()
    assert (row["verdict"], row["failed_contender"], row["blocks"]) == ("no evidence", 1, 6)
    assert row["note"].startswith(f"{families.LOST}: 0 of 7 in the baseline, 1 in the contender")
    of_newer = chosen(gather(run)[1], cell=newer).iloc[0]
    assert of_newer["failed"] == 1
    assert "repeat=3.json is missing, so the record counts as lost" in of_newer["reasons"]


@pytest.mark.rule(5)
@pytest.mark.rule(17)
def test_a_comparison_that_lost_a_record_has_another_round_and_is_given_up_then():
    d = np.random.default_rng(1).normal(0, 0.005, (20, 1))
    schedule = looks.plan_schedule(looks.list_looks(6, 20), [20] * 6)
    names = {
        lost: [state.name for state in looks.judge_looks(d, schedule, count_losses=lambda *_: (6, *lost))[0]]  # noqa: B023
        for lost in ((0, 0), (0, 1), (1, 1))
    }
    assert names == {(0, 0): ["same"], (0, 1): ["open", "given up"], (1, 1): ["open", "given up"]}


@pytest.mark.rule(17)
@pytest.mark.thorough
def test_arms_of_which_one_fails_now_and_then_are_the_same_only_where_no_failure_was_met():
    def judge(random):
        base, other = np.exp(random.normal(0, 0.01, (2, 10)))
        return two_arms(base, np.where(random.random(10) < 0.2, np.nan, other), ["1"] * 10)["verdict"] == "same"

    assert sum(judge(np.random.default_rng(seed)) for seed in range(200)) <= 200 * 0.8**10 + 15


@pytest.mark.rule(17)
def test_all_comparisons_have_the_p_of_blocks_that_resemble_those_before_them():
    wave = np.exp(0.1 * np.sin(np.arange(12) * 0.6))
    noise = np.exp(np.random.default_rng(3).normal(0, 0.01, 12))
    assert two_arms(noise, wave, "1" * 12)["serial_p"] < 0.01 < two_arms(noise, noise[::-1], "1" * 12)["serial_p"]


@pytest.mark.rule(17)
@pytest.mark.parametrize("repeats", [10, 20, 30])
def test_a_contender_that_is_slow_now_and_then_is_not_the_same(repeats):
    same = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        base, other = np.exp(random.normal(0, 0.01, (2, repeats)))
        slow = random.random(repeats) < 0.2
        if slow.any():
            row = two_arms(base, other * np.where(slow, 3, 1), ["1"] * repeats)
            same.append(row["verdict"] == "same")
            assert 2 * slow.sum() >= repeats or row["slow_contender"] == slow.sum()
    assert len(same) > 80
    assert sum(same) <= 5


@pytest.mark.rule(17)
@pytest.mark.parametrize(
    "sessions, shift, seed, note",
    [
        ("1" * 8, 1, 1, ""),
        ("1" * 8, 1.08, 7, "p <= 0.05, but the interval includes 1"),
        ("1" * 6 + "2" * 6, 1.15, 3, "p <= 0.0094 at the 2nd look, but the interval includes 1"),
        ("1" * 6 + "2" * 6 + "3" * 6, 1.08, 2, "the interval excludes 1, but p > 0.0047 at the 3rd look"),
        ("1" * 6 + "2" * 6 + "3" * 6, 1, 11, "the interval excludes 1, but p > 0.0047 at the 3rd look"),
    ],
)
def test_where_interval_and_p_part_a_note_says_so(sessions, shift, seed, note):
    base, other = np.exp(np.random.default_rng(seed).normal(0, 0.1, (2, len(sessions))))
    row = two_arms(base, other * shift, sessions)
    assert (row["verdict"], row["note"]) == ("no evidence", note)
    assert ("includes" in note or not note) == (row["ratio_low"] <= 1 <= row["ratio_high"])


@pytest.mark.rule(17)
def test_where_medians_are_the_same_and_means_may_not_be_a_note_says_so():
    base, other = np.exp(np.random.default_rng(1).normal(0, 0.01, (2, 10)))
    other[3] *= 3
    row = two_arms(base, other, "1" * 10)
    assert row["verdict"] == "no evidence"
    assert row["note"] == "the medians are the same, the means may not be: 1.20 [0.99, 1.80]"


def test_repeats_that_take_much_longer_are_counted_for_the_arm_that_was_slow():
    base, other = np.ones(8), np.ones(8)
    base[2], other[[4, 5]] = 3, 3
    row = two_arms(base, other, ["1"] * 8)
    assert row[["slow_baseline", "slow_contender", "slow_ratio"]].tolist() == [1, 2, pytest.approx(3)]
    row = two_arms(base.clip(max=1.49), other.clip(max=1.49), ["1"] * 8)
    assert row[["slow_baseline", "slow_contender"]].tolist() == [0, 0]
    assert math.isnan(row["slow_ratio"])


def test_blocks_measured_by_new_code_in_both_arms_are_comparable(tmp_path):
    def change(record):
        if record["repeat"] > 3:
            record["provenance"]["code_sha256"] = "edited"
        return record

    judged = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW), ratio=newer_is(2), change=change))[2]
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}


def scaling(tmp_path, ratios, repeats=6):
    """Where two arms stop scaling whose time at each number of workers is told, in units of one worker's."""
    cells = synthetic_cells(twins=0, **{**FEW, "workers": tuple(map(str, ratios))}, page_buffer=("0",))
    run = write_synthetic_run(
        tmp_path, cells, repeats, ratio=lambda cell: ratios[int(cell["workers"])] * int(cell["workers"])
    )
    samples = gather(run)[0]
    return find_stops(samples, ["library", "layout"], time="total-runtime")


def test_an_arm_stops_scaling_where_more_workers_take_no_less_time(tmp_path):
    found = scaling(tmp_path, {1: 1, 2: 0.5, 4: 0.3, 8: 0.3, 10: 0.35})
    assert list(found["stops_at"]) == [4, 4]
    assert list(found["next"]) == [8, 8]
    assert set(found["outcome"]) == {"stops"}
    assert ((found["ratio_low"] < 1) & (found["ratio_high"] > 1)).all()
    assert found["ratio"].between(0.9, 1.1).all(), "that of 8 workers, not of 10"
    assert ((found["ratio_low"] <= found["ratio"]) & (found["ratio"] <= found["ratio_high"])).all()


def test_an_arm_that_pauses_and_goes_on_has_not_stopped(tmp_path):
    found = scaling(tmp_path, {1: 1, 2: 0.5, 4: 0.5, 8: 0.2})
    assert found["stops_at"].isna().all()
    assert set(found["outcome"]) == {"gains"}


@pytest.mark.parametrize("gain, outcome", [(1.0495, "stops"), (1.0502, "gains"), (1.06, "gains")])
def test_a_gain_within_five_percent_is_none(gain, outcome):
    times = {"1": 1.0, "2": 1 / gain}
    rows = [{"arm": "a", "workers": many, "repeat": block, "t": times[many]} for many in times for block in range(1, 9)]
    found = find_stops(pd.DataFrame(rows), ["arm"], time="t")
    assert list(found["outcome"]) == [outcome]


def test_where_few_repeats_leave_scaling_open_it_is_said(tmp_path):
    found = scaling(tmp_path, {1: 1, 2: 0.5}, repeats=5)
    assert found["stops_at"].isna().all()
    assert set(found["outcome"]) == {"few"}
    assert set(scaling(tmp_path / "one", {4: 1})["outcome"]) == {"single"}
