"""From records to samples.csv and cells.csv, on synthetic records."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.helpers.records import (
    FACTORS,
    FEW,
    MIB,
    at,
    chosen,
    failed,
    gather,
    newer_is,
    synthetic_cells,
    write_synthetic_run,
)

PUBLISHED = (
    "worker#,obj-id,open+read-data-time,wrkr-num-objs,mean-obj-time,num-dsets,mean-dset-time,pb-size,num-workers,obj-type,"
    "tot-num-obj,total-runtime"
)
CELLS = (
    "cell,{levels},n,failed,invalid,edited,n_used,total_s,total_s_low,total_s_high,open_s,open_s_low,open_s_high,first_s,first_s_low,"
    "first_s_high,rest_s,rest_s_low,rest_s_high,plan_s,null_s,cluster_start_s,verify_s,throughput_mib_s,logical_bytes,tasks,"
    "requests,requests_spread,gets,puts,lists,bytes_offered,bytes_delivered,opens,connections,in_flight,task_cpu_s,cpu_s,server_cpu_s,round_trip_s,rate_mib_s,modelled_s,amplification,page_buffer_bytes,hdf5,h5py,oversubscribed,"
    "idle_workers,resident_before,resident_after,outlying_repeats,disturbed_repeats,cache_state,reasons"
)
VERDICTS = (
    "factor,baseline,contender,{levels},metric,role,blocks,baseline_s,contender_s,ratio,ratio_low,ratio_high,p,looks,"
    "verdict,detectable_ratio,mean_ratio,mean_low,mean_high,slow_baseline,slow_contender,slow_ratio,"
    "attempts_baseline,failed_baseline,attempts_contender,failed_contender,note,used_blocks,harness_percent,serial_p"
)


def test_columns_are_those_the_report_reads(tmp_path):
    samples, cells, judged = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW)))
    levels = [*FACTORS, "control"]
    assert ",".join(samples).startswith(PUBLISHED)
    assert set(samples) > {"cell", *levels, "repeat", "status", "valid", "open-time", "opens", "worker-pid"}
    assert ",".join(cells) == CELLS.format(levels=",".join(levels))
    assert ",".join(judged) == VERDICTS.format(levels=",".join(levels))


def test_the_same_records_give_the_same_bytes(tmp_path):
    run = write_synthetic_run(tmp_path / "run", synthetic_cells(**FEW))
    gather(run, "one")
    copy = tmp_path / "copy"
    for path in sorted(run.glob("records/*/*"), reverse=True):
        (copy / path.relative_to(run)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy / path.relative_to(run))
    shutil.copy(run / "matrix.csv", copy)
    gather(copy, "one")
    for name in ("samples.csv", "cells.csv", "verdicts.csv"):
        assert (run / "one" / name).read_bytes() == (copy / "one" / name).read_bytes()
        assert not list((run / "one").glob(".*"))


def test_numbers_read_back_as_they_were_measured(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(**FEW))
    samples, cells, _ = gather(run)
    record = json.loads(next(run.glob(f"records/{cells['cell'][0]}/repeat=1.json")).read_text())
    first = chosen(samples, cell=cells["cell"][0], repeat=1)
    assert first["open-time"].tolist() == [sample["open-time"] for sample in record["samples"]]


def test_levels_stay_text(tmp_path):
    cells = synthetic_cells(library=("3.10", "3.9"), twins=0, **FEW)
    samples, summary, judged = gather(
        write_synthetic_run(tmp_path, cells), compare=[{"factor": "library", "baseline": "3.10"}]
    )
    assert list(samples["library"].unique()) == ["3.10", "3.9"]
    assert list(summary["library"].unique()) == ["3.10", "3.9"]
    assert set(judged["baseline"]) == {"3.10"}


@pytest.mark.rule(23)
def test_invalid_records_are_shown_and_take_no_part(tmp_path):
    def change(record):
        if at(record, 2, library="hdf5-2.0.0"):
            record |= {"valid": False, "reasons": ["the page cache was warm, expected cold"]}
        return record

    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), repeats=7, change=change)
    samples, cells, judged = gather(run)
    row = chosen(cells, library="hdf5-2.0.0").iloc[0]
    assert (row["n"], row["failed"], row["invalid"]) == (6, 0, 1)
    assert row["reasons"] == "repeat 2: the page cache was warm, expected cold"
    assert set(chosen(samples, library="hdf5-2.0.0", repeat=2)["valid"]) == {False}
    rows = chosen(judged, factor="library", metric="total")
    assert set(rows["blocks"]) == {6}
    assert rows["note"].str.contains("block 2 failed, invalid or missing").all()
    assert set(chosen(judged, factor="page_buffer", library="hdf5-1.14.6")["blocks"]) == {7}


def test_failed_and_missing_records_are_counted_and_leave_too_few(tmp_path):
    def change(record):
        if at(record, 1, library="hdf5-2.0.0"):
            return failed(record, "worker 1 was killed")
        missing = at(record, 6, library="hdf5-2.0.0") or at(record, 7, library="hdf5-1.14.6")
        return None if missing else record

    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), 7, ratio=newer_is(2), change=change)
    samples, cells, judged = gather(run)
    row = chosen(cells, library="hdf5-2.0.0").iloc[0]
    assert (row["n"], row["failed"], row["invalid"]) == (5, 2, 0)
    assert row["reasons"].startswith("repeat 1: worker 1 was killed; repeat 6: ")
    assert row["reasons"].endswith("repeat=6.json is missing, so the record counts as lost")
    assert row["total_s_low"] == ""
    assert len(chosen(samples, cell=row["cell"], repeat=1)) == 0
    rows = chosen(judged, factor="library", metric="total")
    assert set(rows["verdict"]) == {"too few repeats"}
    assert rows["p"].isna().all()
    assert (rows["ratio"] > 1.5).all()
    assert rows["note"].str.startswith("4 complete blocks, a verdict needs 6; blocks 1, 6, 7 failed").all()


def test_a_broken_record_is_named_and_counts_as_failed(tmp_path, capsys):
    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW))
    broken = sorted(run.glob("records/*/repeat=3.json"))
    broken[0].write_text('{"record": 1, "status": "do')
    broken[1].write_text('{"record": 1, "status": "done", "study": "shots"}')
    broken[2].write_text("[]")
    cells = gather(run)[1].set_index("cell")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for path in broken[:3]:
        assert sum(str(path) in line for line in lines) == 1
        assert tuple(cells.loc[path.parent.name, ["n", "failed"]]) == (5, 1)
        assert path.name in cells.loc[path.parent.name, "reasons"]


def test_a_record_in_the_wrong_folder_counts_as_failed(tmp_path, capsys):
    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW))
    here, there = sorted(run.glob("records/*/repeat=1.json"))[:2]
    shutil.copy(here, there)
    cells = gather(run)[1].set_index("cell")
    assert cells.loc[there.parent.name, "failed"] == 1
    assert "is a record of another cell" in capsys.readouterr().err


def test_records_of_cells_that_the_matrix_no_longer_has_are_left_out(tmp_path, capsys):
    cells = synthetic_cells(twins=0, **FEW)
    run = write_synthetic_run(tmp_path, cells)
    pd.DataFrame(cells[1:]).to_csv(run / "matrix.csv", index=False)
    samples, summary, _ = gather(run)
    assert cells[0]["cell"] not in set(samples["cell"]) | set(summary["cell"])
    assert "1 cells that are not in the matrix" in capsys.readouterr().err


@pytest.mark.rule(11, 16)
def test_a_cell_is_summarised_over_its_valid_repeats(tmp_path):
    def change(record):
        record["requests"]["GET"] |= {"count": 20 + (record["repeat"] == 2), "bytes_delivered": None}
        record["requests"]["HEAD"] = {"count": 1, "bytes_offered": 0, "bytes_delivered": None}
        record["valid"] = record["repeat"] != 7
        return record

    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), repeats=7, drift=0.5, change=change)
    cell = gather(run)[1].iloc[0]
    records = [json.loads((run / "records" / cell["cell"] / f"repeat={n}.json").read_text()) for n in range(1, 7)]
    totals = [record["seconds"]["total"] for record in records]
    assert cell["total_s"] == pytest.approx(np.median(totals))
    assert (float(cell["total_s_low"]), float(cell["total_s_high"])) == pytest.approx((min(totals), max(totals)))
    assert cell["throughput_mib_s"] == pytest.approx(6 * records[0]["work"]["logical_bytes"] / MIB / sum(totals))
    assert (cell["requests"], cell["requests_spread"]) == (21, 1)
    assert (cell["bytes_delivered"], cell["amplification"]) == ("", 0.5)
    assert cell["page_buffer_bytes"] == 0
    assert cell["invalid"] == 1


@pytest.mark.rule(11)
@pytest.mark.parametrize("groups, spread", [(1, 5), (3, 3), (6, "")])
def test_requests_are_compared_between_repeats_that_read_the_same_objects(tmp_path, groups, spread):
    def change(record):
        record["read"] = [record["repeat"] % groups]
        record["requests"]["GET"]["count"] = record["repeat"]
        return record

    cells = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), change=change))[1]
    assert set(cells["requests_spread"]) == {spread}


def test_a_method_that_offers_nothing_delivers_nothing(tmp_path):
    def change(record):
        record["requests"]["GET"] |= {"bytes_offered": 2 * MIB, "bytes_delivered": 3 * MIB}
        record["requests"]["HEAD"] = {"count": 1, "bytes_offered": 0, "bytes_delivered": None}
        return record

    cell = gather(write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), change=change))[1].iloc[0]
    assert cell["bytes_delivered"] == 3 * MIB
    assert cell["amplification"] == pytest.approx(3 * MIB / cell["logical_bytes"])


def test_a_store_that_is_not_embedded_has_no_requests(tmp_path):
    cells = synthetic_cells(twins=0, store=("disk",), driver=("sec2",), **FEW)
    summary = gather(write_synthetic_run(tmp_path, cells))[1]
    for column in ("requests", "requests_spread", "bytes_offered", "bytes_delivered", "amplification"):
        assert set(summary[column]) == {""}
    assert (summary["throughput_mib_s"] > 0).all()


def test_metrics_of_another_study_need_no_code(tmp_path):
    def change(record):
        seconds = record["seconds"]
        record["seconds"] = {"total": seconds["total"], "flush": seconds["first"], "plan": 0.1}
        record["samples"] = [{"iteration": n, "latency": n / 7} for n in range(3)]
        return record

    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), ratio=newer_is(2), change=change)
    samples, cells, judged = gather(run)
    assert list(samples)[:3] == ["iteration", "latency", "cell"]
    assert [name for name in cells if "_s" in name][:7] == [
        *("total_s", "total_s_low", "total_s_high", "flush_s", "flush_s_low", "flush_s_high", "plan_s")
    ]
    assert set(chosen(judged, factor="library", metric="flush")["verdict"]) == {"slower"}


def test_a_run_in_which_everything_failed_has_its_tables(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(**FEW), change=lambda record: failed(record, "no\nserver"))
    samples, cells, judged = gather(run)
    assert samples.empty
    assert set(cells["reasons"]) == {"repeats 1, 2, 3, 4, 5, 6: no server"}
    assert {"total_s", "rest_s_high", "plan_s", "requests_spread", "cache_state"} <= set(cells)
    assert set(judged["verdict"]) == {"too few repeats"}
    assert set(judged["metric"]) == {"total", "open", "first", "rest"}


def test_a_run_without_records_or_comparisons_has_its_tables(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(twins=0, **FEW), repeats=0)
    samples, cells, judged = gather(run, compare=[])
    assert (len(samples), set(cells["n"]), len(judged)) == (0, {0}, 0)
    assert "verdict" in judged


@pytest.mark.rule(19)
@pytest.mark.parametrize("beyond, outlying", [(1.4, ""), (1.6, "8")])
def test_a_repeat_is_outlying_beyond_one_and_a_half_interquartile_ranges(tmp_path, beyond, outlying):
    times = np.array([10, 11, 12, 13, 14, 15, 16])
    # The quartiles of eight values of which the last is the largest: numpy's linear interpolation.
    low, high = np.quantile([*times, 99], [0.25, 0.75])
    last = high + beyond * (high - low)

    def change(record: dict) -> dict:
        record["seconds"]["total"] = float([*times, last][record["repeat"] - 1])
        return record

    _, cells, _ = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW), repeats=8, change=change))
    assert set(cells["outlying_repeats"].fillna("").astype(str).str.removesuffix(".0")) == {outlying}


@pytest.mark.rule(14)
@pytest.mark.parametrize(
    "load, disturbed",
    [
        ({"steal_s": 0.5}, "3"),
        ({"steal_s": 0.01}, ""),
        ({"major_faults": 900}, "3"),
        ({"busy_s": 4.0}, "3"),
        ({"cpu_pressure_s": None}, ""),
        ({"cpu_pressure_s": 2.6}, ""),
        ({"cpu_pressure_s": 2.8}, "3"),
        ({}, ""),
    ],
)
def test_a_repeat_that_others_disturbed_is_named_and_stays(tmp_path, load, disturbed):
    """The pressure that all repeats have is the cell's own; what the kernel does not tell disturbs nobody."""
    usual = {"steal_s": 0.0, "cpu_pressure_s": 0.9, "major_faults": 3, "busy_s": 1.0, "throttled_s": None}

    def change(record: dict) -> dict:
        machine = usual | (load if record["repeat"] == 3 else {})
        reader = {"user_s": 0.7, "system_s": 0.2, "peak_bytes": 1}
        return record | {"resources": {"window_s": 1.0, "reader": reader, "machine": machine}}

    _, cells, _ = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW), repeats=8, change=change))
    assert set(cells["disturbed_repeats"].fillna("").astype(str).str.removesuffix(".0")) == {disturbed}
    assert set(cells["n"]) == {8}
    assert np.allclose(cells["cpu_s"], 0.9)


@pytest.mark.rule(19)
def test_an_outlying_repeat_is_named_and_stays(tmp_path):
    def slow(record: dict) -> dict:
        factor = 10 if record["repeat"] == 4 else 1
        return record | {"seconds": {name: factor * value for name, value in record["seconds"].items()}}

    _, cells, _ = gather(write_synthetic_run(tmp_path, synthetic_cells(**FEW), repeats=8, change=slow))
    assert all("4" in repeats.split() for repeats in cells["outlying_repeats"].astype(str))
    assert not any("5" in repeats.split() for repeats in cells["outlying_repeats"].astype(str))
    assert set(cells["n"]) == {8}
