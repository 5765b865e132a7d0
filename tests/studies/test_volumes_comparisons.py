"""Volumes against one another: with verdicts, and how often these are wrong."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from sbench.probe.program import Problem
from sbench.studies.volumes import series
from sbench.studies.volumes import volume_ratios as comparing
from tests.helpers.volumes_records import (
    JOB,
    STEADY,
    battery,
    chosen,
    fio_bins,
    gather,
    job_id,
    latencies,
    record,
    sample,
    write_run,
)


def side_by_side(*volumes: Callable[[int], dict], times: int = 6) -> list[dict]:
    """Return so many batteries of each volume, made of a seed, in one session: fewer than 6 decide no comparison."""
    session = {"session": "2026-11-20T08:00:00Z"}
    return [volume(repeat) | session | {"repeat": repeat} for volume in volumes for repeat in range(1, times + 1)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "ratio, verdict", [(1.0, "same"), (1.3, "slower"), (1 / 1.3, "faster")], ids=["same", "slower", "faster"]
)
def test_volumes_are_compared_by_ratios(tmp_path, ratio, verdict):
    def volume(store, level, number):
        def made(seed):
            jobs = level * np.random.default_rng([number, seed]).lognormal(0, 0.01, 8)
            return battery(store, jobs, 10 * number + seed, 10_000)

        return made

    pair = [volume("base", 1, 1), volume("other", ratio, 2)]
    compare = [{"factor": "store", "baseline": "base"}]
    few = side_by_side(*pair, times=5)
    elsewhere = [one | {"session": one["cell"]["store"]} for one in side_by_side(*pair)]
    for name, batteries in {"few": few, "in different sessions": elsewhere}.items():
        rows = gather(write_run(tmp_path / name, batteries), compare=compare)["comparisons"]
        assert set(rows["verdict"]) == {"too few repeats"}
        assert rows["ratio"].notna().all()
        assert rows["method"].str.contains("cannot be separated").all()
    rows = gather(write_run(tmp_path / "six", side_by_side(*pair)), compare=compare)["comparisons"].set_index("metric")
    assert list(rows.index) == ["p50", "p99", "p99.9", "mean", "iops"]
    assert set(rows["phase"]) == {"all"}
    p50 = rows.loc["p50"]
    assert p50["ratio"] == pytest.approx(ratio, abs=0.02)
    assert p50["ratio_low"] <= ratio <= p50["ratio_high"]
    assert rows.loc[["p50", "p99", "mean"], "verdict"].tolist() == [verdict] * 3
    assert rows.loc["iops", "verdict"] == verdict, "more IOPS are better"
    assert set(rows["method"]) == {"pairs of batteries measured side by side"}
    assert rows.loc["mean", "contender_value"] / rows.loc["mean", "baseline_value"] == pytest.approx(
        rows.loc["mean", "ratio"], rel=0.01
    )


@pytest.mark.rule(14)
@pytest.mark.parametrize(
    "differing, reason",
    [
        ({"provenance": {"code_sha256": "0ther"}}, "the measuring code differs"),
        ({"fio": "fio-3.36"}, "fio-3.33 and fio-3.36"),
        ({"software": "3.36"}, "fio 3.33 and 3.36"),
    ],
)
def test_batteries_of_other_code_or_software_are_not_comparable(differing, reason):
    def volume(store, software="3.33", **others):
        seen = json.dumps({"distributions": {}, "files": {"fio": software}, "promised": {}})
        batteries = []
        for repeat in range(1, 7):
            rows = [sample(latencies(10 * repeat + job), job) for job in range(1, 9)]
            levels, kept = (store, JOB, "none", "", ""), record(store, rows, session="1", **others)
            batteries.append(series.Battery(store, levels, repeat, kept, [], software=seen))
        return series.Series(store, batteries[0].levels, tuple(batteries))

    made = [volume("base"), volume("other", **differing)]
    rows = comparing.compare_series(made, {one.levels: [] for one in made}, [{"factor": "store", "baseline": "base"}])
    assert set(rows["verdict"]) == {"not comparable"}
    assert set(rows["method"]) == {f"{reason}, between the arms"}
    assert rows["ratio"].isna().all()


@pytest.mark.rule(2)
@pytest.mark.parametrize(
    "first, comparable",
    [(["base"] * 6, False), (["other"] * 6, False), (["base"] * 5 + ["other"], True), ([None] * 6, True)],
    ids=["first", "last", "in-turn", "unknown"],
)
def test_volumes_of_which_one_was_always_first_are_not_comparable(first, comparable):
    made = []
    for store in ("base", "other"):
        levels, batteries = (store, JOB, "none", "", ""), []
        for repeat, which in enumerate(first, 1):
            rows = [sample(latencies(10 * repeat + job), job) for job in range(1, 9)]
            position = 2 * repeat + (store != which) if which else None
            kept = record(store, rows, session="1", position=position)
            batteries.append(series.Battery(store, levels, repeat, kept, []))
        made.append(series.Series(store, levels, tuple(batteries)))
    rows = comparing.compare_series(made, {one.levels: [] for one in made}, [{"factor": "store", "baseline": "base"}])
    assert set(rows["verdict"] == "not comparable") == {not comparable}
    assert set(rows["method"] == comparing.IN_ONE_ORDER) == {not comparable}
    assert set(rows["ratio"].notna()) == {comparable}


@pytest.mark.rule(17)
def test_a_volume_that_lost_two_batteries_more_is_not_faster():
    made = []
    for store, scale in (("base", 2), ("other", 1)):
        levels, batteries = (store, JOB, "none", "", ""), []
        for repeat in range(1, 9):
            rows = [sample(scale * latencies(10 * repeat + job), job) for job in range(1, 9)]
            reasons = ["no space"] * (repeat < 3 and store == "other")
            batteries.append(series.Battery(store, levels, repeat, record(store, rows, session="1"), reasons))
        made.append(series.Series(store, levels, tuple(batteries)))
    for baseline, verdict in (("base", "no evidence"), ("other", "no evidence")):
        compare = [{"factor": "store", "baseline": baseline}]
        rows = comparing.compare_series(made, {one.levels: [] for one in made}, compare).set_index("metric")
        assert rows.loc["mean", "verdict"] == rows.loc["iops", "verdict"] == verdict
        lost = (2, 0) if baseline == "other" else (0, 2)
        assert rows.loc["mean", "method"].endswith(
            "batteries lost: {} of the baseline, {} of the contender".format(*lost)
        )


@pytest.mark.thorough
@pytest.mark.rule(18)
def test_identical_volumes_are_told_apart_no_more_often_than_the_level_allows():
    """Batteries differ by 7 %, and jobs of one resemble each other: resampled jobs would decide most of these."""
    decided = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        made = []
        for store in ("base", "other"):
            batteries = []
            for repeat in range(1, 7):
                level = np.exp(random.normal(0, 0.07) + np.cumsum(random.normal(0, 0.02, 10)))
                rows = [sample(1e6 * one * random.lognormal(0, 0.5, 200), job) for job, one in enumerate(level, 1)]
                one = record(store, rows, session="1")
                batteries.append(series.Battery(store, (store, JOB, "none", "", ""), repeat, one, []))
            made.append(series.Series(store, batteries[0].levels, tuple(batteries)))
        compare = [{"factor": "store", "baseline": "base"}]
        rows = comparing.compare_series(made, {one.levels: [] for one in made}, compare).set_index("metric")
        decided += rows.loc["p50", "verdict"] in ("faster", "slower")
    assert decided <= 9


def test_a_ratio_of_percentiles_is_no_finer_than_a_bin(tmp_path):
    samples = [sample(latencies(1), number) for number in range(1, 9)]
    bins = {job_id(number): {"sync": fio_bins(latencies(1)).tolist()} for number in range(1, 9)}
    pair = [record(store, samples, bins) for store in ("base", "other")]
    found = gather(write_run(tmp_path, pair), compare=[{"factor": "store", "baseline": "base"}])["comparisons"]
    rows = found.set_index("metric")[["ratio", "ratio_low", "ratio_high"]]
    assert rows.loc["p99"].tolist() == pytest.approx([1, 64 / 65, 65 / 64])
    assert rows.loc["mean"].tolist() == pytest.approx([1, 1, 1])


def test_volumes_with_the_same_jobs_are_resampled_apart_from_each_other(tmp_path):
    """One seed for both would draw the same jobs of each, and every ratio of them would be 1."""
    levels = np.linspace(1, 3, 8)
    pair = [battery(store, levels) for store in ("base", "other")]
    rows = gather(write_run(tmp_path, pair), compare=[{"factor": "store", "baseline": "base"}])["comparisons"]
    mean = rows.set_index("metric").loc["mean"]
    assert mean["ratio"] == pytest.approx(1)
    assert mean["ratio_low"] < 0.9
    assert mean["ratio_high"] > 1.1


def test_a_background_load_is_compared_with_none(tmp_path):
    loaded = {"cell": {"background": "same"}}
    run = write_run(
        tmp_path,
        side_by_side(
            lambda seed: battery("disk", STEADY, seed), lambda seed: battery("disk", 3 * STEADY, 10 + seed, **loaded)
        ),
    )
    found = gather(run, compare=[{"factor": "background", "baseline": "none"}])["comparisons"]
    assert found[
        ["factor", "baseline", "contender", "store", "job", "background"]
    ].drop_duplicates().values.tolist() == [["background", "none", "same", "disk", JOB, ""]]
    assert chosen(found, metric="p99")["verdict"].tolist() == ["slower"]


def test_noise_is_no_evidence_and_few_jobs_are_too_few(tmp_path):
    def noisy(store):
        return lambda seed: battery(store, np.random.default_rng([len(store), seed]).lognormal(0, 0.4, 12), seed)

    compare = [{"factor": "store", "baseline": "base"}]
    found = gather(write_run(tmp_path / "a", side_by_side(noisy("base"), noisy("other"))), compare=compare)
    assert chosen(found["comparisons"], metric="p50")["verdict"].tolist() == ["no evidence"]
    few = [battery("base", STEADY), battery("other", 9 * STEADY[:5], 2)]
    rows = gather(write_run(tmp_path / "b", few), compare=compare)["comparisons"]
    assert set(rows["verdict"]) == {"too few repeats"}
    assert rows[["ratio_low", "ratio_high"]].isna().all(None)
    assert (chosen(rows, metric="p50")["ratio"] > 6).all()


def test_a_merged_percentile_is_compared_with_merged_ones_only(tmp_path):
    bare = battery("other", STEADY, 2) | {"histograms": {}}
    run = write_run(tmp_path, [battery("base", STEADY), bare])
    rows = gather(run, compare=[{"factor": "store", "baseline": "base"}])["comparisons"].set_index("metric")
    assert "medians of the jobs" in rows.loc["p99", "method"]


def test_comparisons_of_what_is_not_there_are_left_out(tmp_path):
    run = write_run(tmp_path, [battery("base", STEADY)])
    assert len(gather(run, compare=[{"factor": "store", "baseline": "nowhere"}])["comparisons"]) == 0
    with pytest.raises(Problem, match=r"factor must be one of .* \(got colour\)"):
        gather(run, compare=[{"factor": "colour", "baseline": "red"}])


def test_without_anything_to_compare_volumes_are_compared_with_the_first(tmp_path):
    made = [battery("base", STEADY), battery("other", STEADY)]
    compared = gather(write_run(tmp_path / "a", made), compare=[])["comparisons"]
    assert set(zip(compared["factor"], compared["baseline"], compared["contender"], strict=True)) == {
        ("store", "base", "other")
    }
    asked = [{"factor": "store", "baseline": "other"}]
    compared = gather(write_run(tmp_path / "b", made), compare=asked)["comparisons"]
    assert set(compared["baseline"]) == {"other"}
