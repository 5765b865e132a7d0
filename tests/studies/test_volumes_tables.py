"""The tables of the volumes study say what the records hold, measured here or elsewhere, whole or not."""

import math
from datetime import datetime, timedelta

import numpy as np
import pytest
from conftest import program

from sbench.probe.program import Problem
from sbench.studies.volumes import tables
from tests.helpers.records import failed
from tests.helpers.volumes_records import (
    JOB,
    OPTIONS,
    STEADY,
    TABLES,
    WRITES,
    battery,
    changed,
    chosen,
    fio_bins,
    gather,
    job_id,
    latencies,
    nth,
    published_records,
    record,
    sample,
    write_run,
)


def test_the_published_volumes_end_to_end(tmp_path, published):
    run = write_run(tmp_path, imported=published_records(published))
    found = gather(run, compare=[{"factor": "store", "baseline": "gp2x1"}])
    assert len(found["samples"]) == 200
    assert list(found["samples"])[:9] == list(tables.SAMPLE)
    cells = found["cells"].set_index("store")
    assert list(cells.index) == ["gp2x1", "gp2x2", "gp3x1", "gp3x2"]
    assert set(cells["interval"]) == {"bounds of the jobs"}
    assert set(cells["N"]) == {50 * WRITES}
    assert cells.loc["gp3x1", ["p99_ms_low", "p99_ms_high"]].tolist() == [3.325952, 5.07904]
    assert cells["p50_ms"].isna().all()
    assert cells["note"].str.contains("medians of the jobs' percentiles").all()
    assert cells["note"].str.contains("follow from job options").all()

    verdicts = chosen(found["verdicts"], segment="all").pivot(index="store", columns="limit", values="verdict")
    assert verdicts["etcd"].tolist() == ["misses", "misses", "meets", "meets"]
    assert verdicts["openshift"].tolist() == ["undecided", "meets", "meets", "meets"]
    parts = chosen(found["verdicts"], store="gp2x1", limit="etcd").set_index("segment")
    assert parts["verdict"].to_dict() == {"all": "misses", "1": "meets", "2": "misses"}
    assert parts.loc["1", ["first_job", "last_job", "jobs"]].tolist() == ["a1", "g2", 32]
    assert parts["jobs_over"].to_dict() == {"all": 18, "1": 0, "2": 18}
    jobs = chosen(found["samples"], store="gp2x1")
    seconds = WRITES * jobs["sync_lat_mean_ms"].iloc[:32].sum() / 1e3 + 320
    assert parts.loc["all", "kept_s"] == pytest.approx(seconds)
    assert "https://etcd.io/" in parts.loc["all", "source"]

    segments = found["segments"].set_index(["store", "segment"])
    assert segments.loc[("gp2x2", "2"), ["first_job", "first_number"]].tolist() == ["h3", 38]
    assert 7.5 < segments.loc[("gp2x1", "2"), "jump"] < 8
    assert len(segments) == 6

    collapses = found["collapses"].set_index("store")
    assert collapses["observed_job"].tolist() == ["g3", "h3", "", ""]
    assert collapses["predicted_job"].tolist() == ["g2", "g5", "", ""]
    assert set(collapses["ios_per_write_source"].iloc[:2]) == {"throttled segment (hindsight)"}
    assert collapses["ios_per_write"].iloc[:2].tolist() == pytest.approx([2.3, 2.3], abs=0.03)
    assert "no burst credits" in collapses.loc["gp3x1", "text"]
    assert set(found["credits"]["store"]) == {"gp2x1", "gp2x2"}

    rows = chosen(found["comparisons"], contender="gp3x1", metric="p99").set_index("phase")
    # One battery each: the figures stand there, and decide nothing.
    phases = ["all", "before the first change", "after the last change"]
    assert rows["verdict"].to_dict() == dict.fromkeys(phases, "too few repeats")
    before = rows.loc["before the first change"]
    assert before["ratio_low"] < before["ratio"] < before["ratio_high"]
    assert before["ratio"] == pytest.approx(1.648, abs=0.001)
    assert (before["n_baseline"], before["n_contender"]) == (32, 32)
    assert rows.loc["after the last change", ["n_baseline", "n_contender"]].tolist() == [18, 18]


def test_without_their_volumes_the_published_series_have_no_model(tmp_path, published):
    found = gather(write_run(tmp_path, imported=published_records(published, volumes=False)))
    assert len(found["collapses"]) == len(found["credits"]) == 0
    assert found["cells"]["ceiling_iops"].isna().all()


def test_a_store_of_the_configuration_describes_its_volume(tmp_path):
    stores = {"disk": {"kind": "posix", "volume": {"type": "gp3", "size_gib": 100}}, "other": {"volume": "instance"}}
    run = write_run(tmp_path, [battery("disk", STEADY), battery("other", STEADY)])
    cells = gather(run, stores=stores)["cells"].set_index("store")
    assert cells.loc["disk", ["volume_type", "size_gib", "ceiling_iops"]].tolist() == ["gp3", 100, 3000]
    assert cells.loc["other", "volume_type"] == ""


def test_percentiles_of_a_series_are_those_of_all_its_operations(tmp_path):
    values = {number: latencies(number, 1 + number / 10) for number in range(1, 9)}
    samples = [sample(one, number) for number, one in values.items()]
    bins = {job_id(number): {"sync": fio_bins(one).tolist()} for number, one in values.items()}
    found = gather(write_run(tmp_path, [record("disk", samples, bins)]))
    together = np.concatenate(list(values.values())) / 1e6
    row = found["cells"].iloc[0]
    for p in (50, 99, 99.9):
        truth = nth(together, p)
        assert row[f"p{p:g}_ms"] == pytest.approx(truth, rel=0.008)
        assert row[f"p{p:g}_ms_low"] < row[f"p{p:g}_ms"] < row[f"p{p:g}_ms_high"]
    assert (row["jobs"], row["n"], row["N"], row["interval"]) == (8, 1, 16_000, "bins: bootstrap of jobs")
    assert row["mean_ms"] == pytest.approx(together.mean())
    assert row["stddev_ms"] == pytest.approx(together.std(ddof=1))
    assert row["max_ms"] == pytest.approx(together.max())
    assert row["iops"] == pytest.approx(1e3 / together.mean())
    assert row["mib_s"] == pytest.approx(2300 / 2**20 * row["iops"])
    assert math.isnan(row["p99.99_ms"])
    assert row["note"] == "p99.99 is refused: 1 of 16,000 operations lie beyond it, 10 are needed"
    curve = found["percentiles"].set_index("percentile")
    assert curve.index.max() == 100
    assert curve.index.is_monotonic_increasing
    assert curve["ms"].is_monotonic_increasing
    assert curve.loc[99, ["ms", "low", "high"]].tolist() == row[["p99_ms", "p99_ms_low", "p99_ms_high"]].tolist()
    assert 99.99 not in curve.index


def test_hosts_of_a_volume_are_merged_in_a_row_of_their_own(tmp_path):
    hosts = [battery("disk", STEADY, seed, cell={"host": f"node{seed}"}) for seed in (1, 2, 3)]
    cells = gather(write_run(tmp_path, imported=[*hosts, battery("single", STEADY, cell={"host": "node1"})]))["cells"]
    assert cells["host"].tolist() == ["node1", "node2", "node3", "all", "node1"]
    row = chosen(cells, host="all").iloc[0]
    assert (row["jobs"], row["n"], row["N"], row["store"]) == (30, 3, 60_000, "disk")


def test_jobs_without_operations_counted_are_told_by_their_bins(tmp_path):
    """Several processes in one job, as fio writes them: percentiles only from the histograms."""
    lacking = dict.fromkeys(("sync_N", "sync_lat_p99_ms", "sync_lat_stddev_ms", "sync_lat_max_ms"))
    values = [latencies(number) for number in range(8)]
    samples = [sample(one, number, **lacking) for number, one in enumerate(values, 1)]
    bins = {job_id(number): {"sync": fio_bins(one).tolist()} for number, one in enumerate(values, 1)}
    found = gather(write_run(tmp_path, [record("disk", samples, bins)]))
    row, whole = found["cells"].iloc[0], np.concatenate(values) / 1e6
    assert (row["N"], row["operation"]) == (16_000, "sync")
    assert row["stddev_ms"] == pytest.approx(whole.std(ddof=1), rel=0.01)
    assert row["max_ms"] == pytest.approx(whole.max(), rel=0.008)
    own = [nth(one / 1e6, 99) for one in values]
    assert found["segments"]["p99_ms"].iloc[0] == pytest.approx(np.median(own), rel=0.008)


def test_one_job_without_bins_leaves_only_bounds(tmp_path):
    one = battery("disk", STEADY)
    del one["histograms"]["b2"]
    found = gather(write_run(tmp_path, [one]))
    own = [row["sync_lat_p99_ms"] for row in one["samples"]]
    row = found["cells"].iloc[0]
    assert row[["p99_ms", "p99_ms_low", "p99_ms_high"]].tolist() == pytest.approx([np.median(own), min(own), max(own)])
    assert row["interval"] == "bounds of the jobs"


def test_a_job_of_reads_is_about_reads(tmp_path):
    def reading(number):
        row = sample(latencies(number), number)
        latency = {key.replace("sync", "read"): row.pop(key) for key in list(row) if key.startswith("sync")}
        return row | latency | {"read_ios": 2_000, "write_ios": 5, "read_bytes": 2_000 * 4096}

    bins = {job_id(number): {"read": fio_bins(latencies(number)).tolist()} for number in range(1, 8)}
    options = {"rw": "randrw", "bs": "4k", "size": "1m", "numjobs": "4"}
    run = write_run(tmp_path, [record("disk", [reading(n) for n in range(1, 8)], bins, job_options=options)])
    found = gather(run, limits=["etcd", {"name": "mine", "p99_ms": 5}])
    # etcd's limit is one of fsync.
    assert set(found["verdicts"]["limit"]) == {"mine"}
    row = found["cells"].iloc[0]
    assert (row["operation"], row["N"]) == ("read", 14_000)
    assert row["mib_s"] == pytest.approx(4096 / 2**20 * row["iops"])


@pytest.mark.rule(17)
def test_batteries_that_began_with_other_credits_are_never_pooled(tmp_path):
    gp2 = {"volume": {"type": "gp2", "size_gib": 33}}
    # 1,000 IOPS of a volume that has 100: the first battery spends what the second would have needed.
    first, second, rested = (
        battery("gp2", np.ones(20), seed, operations=400_000, repeat=seed, started_utc=utc, **gp2)
        for seed, utc in ((1, "2026-11-20T08:00:00Z"), (2, "2026-11-20T11:00:00Z"), (3, "2026-11-22T11:00:00Z"))
    )
    found = gather(write_run(tmp_path, [first, second, rested, battery("gp3", np.ones(20))]))
    cells = found["cells"].set_index(["store", "start_credits"])
    assert cells["n"].to_dict() == {("gp2", "full"): 2, ("gp2", "spent"): 1, ("gp3", ""): 1}
    assert set(chosen(found["verdicts"], store="gp2")["start_credits"]) == {"full", "spent"}
    compared = found["comparisons"].drop_duplicates(["contender", "start_credits"])
    # What has no credits is compared in each state of what has some, and never one state with the other.
    assert compared[["baseline", "contender", "start_credits"]].values.tolist() == [
        ["gp2", "gp3", "full"],
        ["gp2", "gp3", "spent"],
    ]


def test_a_record_says_what_its_battery_began_with(tmp_path):
    gp2 = {"volume": {"type": "gp2", "size_gib": 128}, "start": {"state": "spent", "seconds": 2065, "ios": 1}}
    found = gather(write_run(tmp_path, [battery("gp2", np.ones(20), **gp2)]))
    assert found["cells"]["start_credits"].tolist() == ["spent"]
    assert found["credits"]["credits_start"].iloc[0] == 0


@pytest.mark.rule(18)
def test_a_stall_is_one_operation_and_its_share_of_the_time(tmp_path):
    latencies_ns = np.append(np.full(10_028, 1e6), 1e9)
    samples = [sample(latencies_ns, number, 20.0 * number) for number in range(1, 21)]
    bins = {job_id(number): {"sync": fio_bins(latencies_ns).tolist()} for number in range(1, 21)}
    found = gather(write_run(tmp_path, [record("disk", samples, bins)]), limits=["etcd"])["verdicts"]
    row = chosen(found, segment="all").iloc[0]
    assert (row["verdict"], row["high_ms"] < 1.02) == ("meets", True)
    assert row["operations_over_percent"] == pytest.approx(100 / 10_029)
    share = 100 * 1000 / (10_028 + 1000)
    assert row["time_over_percent_low"] < share < row["time_over_percent_high"]
    # No narrower than a bucket of fio's, which is all that the jobs, being alike, leave open.
    assert row["time_over_percent_high"] / row["time_over_percent_low"] == pytest.approx(1 + 1 / 64, rel=1e-3)
    # Without bins, nobody knows.
    found = gather(write_run(tmp_path / "bare", [record("disk", samples)]), limits=["etcd"])["verdicts"]
    assert found["time_over_percent"].isna().all()


def test_an_operation_whose_bucket_holds_the_limit_is_in_the_bounds_alone(tmp_path):
    latencies_ns = np.append(np.full(2_000, 1e6), [9.99e6] * 40)
    samples = [sample(latencies_ns, number, 20.0 * number) for number in range(1, 21)]
    bins = {job_id(number): {"sync": fio_bins(latencies_ns).tolist()} for number in range(1, 21)}
    found = gather(write_run(tmp_path, [record("disk", samples, bins)]), limits=["etcd"])["verdicts"].iloc[0]
    assert found["operations_over_percent_low"] == 0 < found["operations_over_percent_high"]


def test_operations_under_way_together_share_the_time(tmp_path):
    latencies_ns = np.full(2_000, 2e7)
    samples = [sample(latencies_ns, number, 50.0 * number, runtime_s=5.0) for number in range(1, 21)]
    bins = {job_id(number): {"sync": fio_bins(latencies_ns).tolist()} for number in range(1, 21)}
    options = {**OPTIONS, "numjobs": "4", "iodepth": "4"}
    run = write_run(tmp_path, [record("disk", samples, bins, job_options=options)])
    row = gather(run, limits=["etcd"])["verdicts"].iloc[0]
    # 2,000 × 20 ms in 5 s with up to 16 under way.
    assert row["time_over_percent"] == pytest.approx(50, rel=0.01)


def test_a_verdict_is_that_of_the_worst_segment(tmp_path):
    medians = np.where(np.arange(20) < 12, 1.0, 6.0)
    found = gather(write_run(tmp_path, [battery("disk", medians)]), limits=["etcd", {"name": "mine", "p99_ms": 30}])
    etcd = chosen(found["verdicts"], limit="etcd").set_index("segment")
    assert etcd["verdict"].to_dict() == {"all": "misses", "1": "meets", "2": "misses"}
    started = found["samples"]["started_s"]
    assert etcd.loc["all", "kept_s"] == pytest.approx(started[12])
    assert etcd["kept_s"].isna().sum() == 2
    assert etcd.loc["2", ["first_job", "last_job", "jobs_over"]].tolist() == ["c3", "d5", 8]
    mine = chosen(found["verdicts"], limit="mine").set_index("segment")
    assert set(mine["verdict"]) == {"meets"}
    assert mine["kept_s"].isna().all()


def test_a_series_that_misses_in_one_segment_misses_whatever_the_others(tmp_path):
    run = write_run(tmp_path, [battery("disk", np.where(np.arange(20) < 12, 1.0, 6.0))])
    first = chosen(gather(run)["verdicts"], segment="1").iloc[0]
    limits = [{"name": "mine", "p99_ms": (first["low_ms"] + first["high_ms"]) / 2}]
    found = gather(run, limits=limits)["verdicts"].set_index("segment")
    assert found["verdict"].to_dict() == {"all": "misses", "1": "undecided", "2": "misses"}
    assert found.loc["all", "kept_s"] == 0
    assert found.loc["all", "reason"] == "segment 2 (jobs 13 to 20): misses"


def test_a_limit_within_the_interval_is_undecided(tmp_path):
    run = write_run(tmp_path, [battery("disk", np.ones(20))])
    high = gather(run)["cells"]["p99_ms_high"].iloc[0]
    low = gather(run)["cells"]["p99_ms_low"].iloc[0]
    value = gather(run)["cells"]["p99_ms"].iloc[0]
    assert low < value < high
    # Just above the value: what decides is the end of the interval.
    heights = (low * 0.99, low, (low + value) / 2, (value + high) / 2, high * 1.01)
    limits = [{"name": f"{height}", "p99_ms": height} for height in heights]
    verdicts = gather(run, limits=limits)["verdicts"]
    found = chosen(verdicts, segment="1")
    # One battery so near to a limit does not decide that the volume misses it.
    assert chosen(verdicts, segment="all")["verdict"].tolist() == [*["undecided"] * 4, "meets"]
    # The end of the interval is the middle of a bin, in which a limit may lie.
    assert found["verdict"].tolist() == ["misses", "undecided", "undecided", "undecided", "meets"]


@pytest.mark.parametrize(
    "jobs, pause_s, told, verdict",
    [
        (19, 10, "the battery is too short to meet a limit: 19 jobs in 223 s", "undecided"),
        (20, 0.1, "the battery is too short to meet a limit: 20 jobs in 47 s", "undecided"),
        (20, 10, "at most", "meets"),
    ],
)
def test_a_short_battery_meets_no_limit(tmp_path, jobs, pause_s, told, verdict):
    one = battery("disk", np.ones(jobs))
    for number, row in enumerate(one["samples"]):
        row["started_s"] = number * (row["runtime_s"] + pause_s)
    found = gather(write_run(tmp_path, [one]), limits=["etcd"])["verdicts"].set_index("segment")
    assert found["verdict"].to_dict() == {"all": verdict, "1": verdict}
    assert told in found.loc["1", "reason"]
    slow = gather(write_run(tmp_path / "slow", [battery("disk", np.full(8, 90.0))]), limits=["etcd"])["verdicts"]
    assert set(slow["verdict"]) == {"misses"}


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"mount_type": "tmpfs"}, "tmpfs"),
        ({"device": "ram0"}, "ram0"),
        ({"memory": "overlay on tmpfs"}, "overlay on tmpfs"),
    ],
)
def test_files_in_memory_meet_no_limit_and_miss_none(tmp_path, facts, words):
    fast, slow = battery("fast", np.ones(20), battery=facts), battery("slow", np.full(20, 90.0), battery=facts)
    found = gather(write_run(tmp_path, [fast, slow]), limits=["etcd"])["verdicts"]
    assert set(found["verdict"]) == {"undecided"}
    assert set(chosen(found, segment="1")["reason"]) == {f"the files were in memory ({words}), not on a volume"}


def test_phases_that_are_too_short_leave_the_comparison_of_all_jobs(tmp_path):
    late = np.where(np.arange(20) < 16, 1.0, 7.0)
    run = write_run(tmp_path, [battery("base", late), battery("other", 18_000 * np.ones(20), 2)])
    found = gather(run, compare=[{"factor": "store", "baseline": "base"}])
    assert "2" in set(found["segments"]["segment"])
    (row,) = chosen(found["comparisons"], metric="p50").to_dict("records")
    assert (row["phase"], row["n_baseline"]) == ("all", 20)
    assert row["ratio"] > 1e4


@pytest.mark.parametrize("jobs, interval", [(1, "of one job"), (3, "range of the jobs")])
def test_few_jobs_are_said_to_be_few(tmp_path, jobs, interval):
    found = gather(write_run(tmp_path, [battery("disk", 100 * STEADY[:jobs])]))
    row = found["cells"].iloc[0]
    assert interval in row["interval"]
    assert "too few to resample" in row["note"]
    assert "too few to look for changes" in found["segments"]["note"].iloc[0]
    assert "too few to resample" in chosen(found["verdicts"], segment="1")["reason"].iloc[0]


def test_failed_and_invalid_batteries_are_shown_and_judge_nothing(tmp_path, capsys):
    worse = battery("disk", 30 * STEADY, repeat=2, valid=False, reasons=["19 of 20\njobs done"])
    run = write_run(tmp_path, [battery("disk", STEADY), worse, failed(record("lost", []), "fio ended with status 1")])
    path = next(run.glob("records/disk*/repeat=2.json")).with_name("repeat=3.json")
    path.write_text('{"record": 1, "sta', encoding="utf-8")
    found = gather(run, compare=[{"factor": "store", "baseline": "lost"}])
    row, lost = found["cells"].iloc[0], found["cells"].iloc[1]
    assert row[["n", "failed", "invalid", "jobs"]].tolist() == [1, 1, 1, 10]
    assert row["reasons"].startswith("19 of 20 jobs done; ")
    assert path.name in row["reasons"]
    assert str(path) in capsys.readouterr().err
    assert row["p99_ms"] < 10
    assert lost[["n", "failed", "operation", "reasons"]].tolist() == [0, 1, "", "fio ended with status 1"]
    shown = chosen(found["samples"], store="disk")
    assert shown.groupby("repeat")["valid"].first().to_dict() == {1: True, 2: False}
    verdicts = chosen(found["verdicts"], segment="all", limit="etcd").set_index("store")
    assert verdicts["verdict"].to_dict() == {"disk": "undecided", "lost": "undecided"}
    assert verdicts.loc["lost", "reason"] == "no valid battery"
    assert len(found["comparisons"]) == 0


def test_a_record_in_the_wrong_folder_counts_as_failed(tmp_path, capsys):
    run = write_run(tmp_path, [battery("disk", STEADY), battery("other", STEADY)])
    (here,) = run.glob("records/disk*/*.json")
    (there,) = run.glob("records/other*/*.json")
    there.write_bytes(here.read_bytes())
    assert gather(run)["cells"]["failed"].tolist() == [0, 1]
    assert "is a record of another cell" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, told",
    [
        (
            lambda one: one["samples"][3].update({"sync_lat_p99_ms": -1.0}),
            "samples[3].sync_lat_p99_ms must be bigger",
        ),
        (lambda one: one["samples"][3].update({"sync_lat_mean_ms": math.nan}), "NaN is not a number"),
        (
            lambda one: one["samples"][3].update({"runtime_s": "5"}),
            "samples[3].runtime_s must be number",
        ),
        (
            lambda one: one["histograms"]["a4"]["sync"][0].__setitem__(1, -7),
            "rows of histograms must have one latency or two",
        ),
    ],
)
def test_a_record_with_a_number_that_was_not_measured_counts_as_failed(tmp_path, capsys, change, told):
    run = write_run(tmp_path, [battery("disk", STEADY), changed(battery("disk", STEADY, repeat=2), change)])
    row = gather(run)["cells"].iloc[0]
    assert row[["n", "failed", "jobs"]].tolist() == [1, 1, 10]
    assert told in capsys.readouterr().err


def test_a_record_that_is_nested_without_end_counts_as_failed(tmp_path):
    run = write_run(tmp_path, [battery("disk", STEADY), battery("disk", STEADY, repeat=2)])
    next(run.glob("records/disk*/repeat=2.json")).write_text("[" * 100_000, encoding="utf-8")
    assert gather(run)["cells"].iloc[0][["n", "failed"]].tolist() == [1, 1]


def test_a_run_without_any_record_has_its_tables(tmp_path):
    found = gather(write_run(tmp_path, [record("disk", [], status="absent")]))
    assert found["cells"][["store", "n", "failed", "invalid"]].values.tolist() == [["disk", 0, 0, 0]]
    assert {name: len(found[name]) for name in TABLES} | {"cells": 0, "verdicts": 0} == dict.fromkeys(TABLES, 0)
    for name, columns in tables.COLUMNS.items():
        assert list(found[name]) == list(columns)


def test_nothing_but_a_header_and_a_failed_import_has_its_tables(tmp_path, capsys):
    found = gather(write_run(tmp_path, imported=[], status="failed", reasons=["no results in imports/"]))
    assert {len(table) for table in found.values()} == {0}
    assert "no results in imports/" in capsys.readouterr().err


def test_measured_and_imported_series_stand_side_by_side(tmp_path):
    again = [battery("disk", STEADY, seed, repeat=1, cell={"host": "node"}) for seed in (1, 2)]
    run = write_run(tmp_path, [battery("disk", 2 * STEADY)], [*again, battery("elsewhere", STEADY)])
    found = gather(run, compare=[{"factor": "store", "baseline": "disk"}])
    assert found["cells"][["store", "host", "n"]].values.tolist() == [
        ["disk", "", 1],
        ["disk", "node", 2],
        ["disk", "all", 3],
        ["elsewhere", "", 1],
    ]
    assert chosen(found["samples"], host="node")["repeat"].value_counts().to_dict() == {1: 10, 2: 10}
    assert set(found["comparisons"]["n_baseline"]) == {30}
    assert set(found["samples"]["layout"]) == {"disk", "elsewhere"}


def test_changes_are_looked_for_within_a_battery(tmp_path):
    run = write_run(tmp_path, [battery("disk", STEADY), battery("disk", 5 * STEADY, repeat=2)])
    found = gather(run)
    assert found["segments"][["segment", "repeat", "first_number", "last_number"]].values.tolist() == [
        ["1", 1, 1, 10],
        ["2", 2, 1, 10],
    ]
    assert found["segments"]["jump"].isna().all()
    assert chosen(found["verdicts"], limit="etcd").set_index("segment")["verdict"].to_dict() == {
        "all": "misses",
        "1": "undecided",
        "2": "misses",
    }


def test_credits_carry_over_to_the_next_battery_of_the_volume(tmp_path):
    volume = {"type": "gp2", "size_gib": 10}
    first = battery("disk", STEADY, operations=5_000, volume=volume)
    last = first["samples"][-1]
    busy = last["started_s"] + last["runtime_s"]
    start = datetime.fromisoformat(first["started_utc"]) + timedelta(seconds=busy + 30)
    second = battery(
        "disk", STEADY, 2, 5_000, volume=volume, started_utc=start.isoformat(), cell={"background": "same"}
    )
    alone = battery("other", STEADY, 2, 5_000, volume=volume, started_utc=start.isoformat())
    found = gather(write_run(tmp_path, [second, first, alone]))
    modelled = found["credits"]
    ends = chosen(modelled, store="disk", background="none")["credits_end"].iloc[-1]
    starts = chosen(modelled, number=1).set_index(["store", "background"])["credits_start"]
    assert ends < 5_399_000
    assert starts["disk", "same"] == pytest.approx(ends + 30 * 100)
    assert starts["other", "none"] == starts["disk", "none"] == 5_400_000
    texts = found["collapses"].set_index(["store", "background"])["text"]
    assert "credits left by the previous battery" in texts["disk", "same"]
    assert "a full bucket" in texts["disk", "none"]
    assert "last longer than these jobs" in texts["disk", "none"]


def test_device_counters_foresee_the_collapse(tmp_path):
    """Counted I/Os need no hindsight: 2 a write, at 2,000 a second against a baseline of 100."""
    random = np.random.default_rng(1)
    samples, started = [], 0.0
    for number in range(1, 31):
        mean = random.normal(1.0, 0.01) if number <= 23 else 20.0
        row = sample(1e6 * mean * random.lognormal(0, 0.1, 500), number, started)
        scaled = dict.fromkeys(("sync_N", "write_ios"), 120_000) | {"device_write_ios": 240_000}
        row |= scaled | {"runtime_s": 120 * mean}
        samples.append(row)
        started += row["runtime_s"] + 10
    found = gather(write_run(tmp_path, [record("disk", samples, volume={"type": "gp2", "size_gib": 33})]))
    row = found["collapses"].iloc[0]
    assert row[["ios_per_write", "ios_per_write_source"]].tolist() == [2, "counted by the device"]
    # A job costs 240,000 credits and earns 13,000.
    assert (row["predicted_number"], row["observed_number"]) == (24, 24)
    assert math.ceil(5_400_000 / (240_000 - 13_000)) == 24


def test_a_problem_writes_no_table(tmp_path):
    run = write_run(tmp_path, [battery("base", STEADY)])
    with pytest.raises(Problem):
        gather(run, compare=[{"factor": "colour", "baseline": "red"}])
    assert not (run / "out").exists()
    for config, words in (("{", "not JSON"), ("[]", "must contain a JSON object")):
        done = program("gather", "--config", config, "--study", "volumes", "--results", "r")
        assert words in done.stderr


def test_the_same_records_give_the_same_bytes(tmp_path):
    pair = [battery("base", STEADY), battery("other", np.where(np.arange(20) < 9, 1, 4), 2)]
    compare = [{"factor": "store", "baseline": "base"}]
    for name in ("one", "two"):
        gather(write_run(tmp_path / name, pair), compare=compare)
    for name in TABLES:
        first, second = (tmp_path / run / "out" / f"{name}.csv" for run in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_derived_is_left_open(tmp_path):
    """Latencies of a job that ran for a time, several at once: neither operations nor seconds are known."""
    options = OPTIONS | {"time_based": "1", "runtime": "60", "iodepth": "8"}
    lacking = dict.fromkeys(("sync_N", "write_ios", "write_bytes", "runtime_s", "started_s"))
    samples = [sample(latencies(number), number, **lacking) for number in range(1, 9)]
    volume = {"type": "gp2", "size_gib": 128}
    found = gather(write_run(tmp_path, [record("disk", samples, job_options=options, volume=volume)]))
    row = found["cells"].iloc[0]
    assert row[["N", "iops", "mib_s"]].isna().all()
    assert "N is unknown: all jobs have the same weight in the mean" in row["note"]
    assert row["mean_ms"] == pytest.approx(np.mean([one["sync_lat_mean_ms"] for one in samples]))
    assert "cannot be modelled" in found["collapses"]["text"].iloc[0]
    assert len(found["credits"]) == 0


def test_twins_and_omitted_cells_are_left_out(tmp_path):
    run = write_run(tmp_path, [battery("disk", STEADY)])
    text = (run / "matrix.csv").read_text(encoding="utf-8")
    cell = text.splitlines()[1].split(",")[0]
    text += f"twin,disk,{JOB},none,,twin,,{cell}\n,s3,{JOB},none,,,fio does not write there,\n"
    (run / "matrix.csv").write_text(text, encoding="utf-8")
    assert gather(run)["cells"][["store", "n"]].values.tolist() == [["disk", 1]]
