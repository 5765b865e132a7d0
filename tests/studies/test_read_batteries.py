import shutil
from itertools import islice
from pathlib import Path

import pytest

from sbench.studies.volumes import fio, fio_facts
from tests.helpers import fio_files, fio_results
from tests.helpers.fio_files import changed, edited, imported, make_battery, make_json, ours, timeless

# Ids, order and times.


def test_ids_run_from_a1_over_z5_to_aa1(tmp_path: Path):
    ids = list(islice(fio_results.ids(), 135))
    assert (ids[:6], ids[124:132]) == (
        ["a1", "a2", "a3", "a4", "a5", "b1"],
        ["y5", "z1", "z2", "z3", "z4", "z5", "aa1", "aa2"],
    )
    for name in ("aa1", "z5", "b1", "a2"):
        make_json(
            tmp_path / f"{name}.json",
            name,
            change=lambda told: [told.pop(key) for key in ("timestamp", "timestamp_ms")],
        )
    battery = fio.read_battery(tmp_path)
    assert [row["job_Id"] for row in battery["samples"]] == ["a2", "b1", "z5", "aa1"]
    assert {row["started_s"] for row in battery["samples"]} == {None}


@pytest.mark.parametrize(
    "names, ids",
    [
        (("fio_io_a1", "fio_io_a2"), ["a1", "a2"]),
        (("test-etcda1", "test-etcda2"), ["a1", "a2"]),
        (("fio_etcd_a1", "fio_etcd_a2"), ["a1", "a2"]),
        (("mytest", "mytest"), ["1", "2"]),
        (("etcd-perf", "etcd-perf"), ["1", "2"]),
        (("fio_io_same", "fio_io_same"), ["1", "2"]),
        (("first", "fio_io_a1"), ["1", "2"]),
    ],
)
def test_ids_come_from_names_else_they_are_numbers_in_time_order(tmp_path: Path, names: tuple, ids: list[str]):
    for number, name in enumerate(names, 1):
        make_json(
            tmp_path / f"run{9 - number}.json", seed=number, change=changed(jobname=name), began_s=1.6e9 + 100 * number
        )
    battery = fio.read_battery(tmp_path)
    assert [row["job_Id"] for row in battery["samples"]] == ids
    assert list(battery["histograms"]) == ids
    assert battery["faults"] == []


def test_names_of_files_are_ids_where_nothing_else_tells(tmp_path: Path):
    for number, name in enumerate(("run10.json", "run9.json"), 1):
        make_json(tmp_path / name, "x", seed=number, change=timeless)
    assert [row["job_Id"] for row in fio.read_battery(tmp_path)["samples"]] == ["run9", "run10"]
    for path in tmp_path.glob("run*.json"):
        path.rename(tmp_path / f"fio_results_write_b{path.stem[3:]}.json")
    assert [row["job_Id"] for row in fio.read_battery(tmp_path)["samples"]] == ["b9", "b10"]


def test_an_id_that_is_there_twice_is_a_fault_and_nothing_is_lost(tmp_path: Path):
    for number in (1, 2):
        make_json(tmp_path / f"{number}.json", "a1", seed=number, began_s=1.6e9 + 100 * number)
    make_json(tmp_path / "3.json", "a2", seed=3, began_s=1.6e9 + 300)
    shutil.copy(tmp_path / "3.json", tmp_path / "4.json")
    battery = fio.read_battery(tmp_path)
    assert list(battery["histograms"]) == ["a1", "a1-2", "a2"]
    assert battery["faults"] == ["job a1 occurs 2 times: 1.json, 2.json"]
    assert battery["left_out"] == [{"file": "4.json", "reason": "has the same content as 3.json, which counts once"}]


@pytest.mark.parametrize(
    "text, seconds, zoned",
    [
        ("1627928737", 1627928737.0, True),
        ("2021-08-02T18:25:37Z", 1627928737.0, True),
        ("2021-08-02T20:25:37+0200", 1627928737.0, True),
        ("2021-08-02 18:25:37 UTC", 1627928737.0, True),
        ("20210802-182537", 1627928737.0, False),
        ("20210802T182537Z", 1627928737.0, True),
        ("Mon Aug  2 18:25:37 UTC 2021", 1627928737.0, True),
        ("Mon Aug  2 15:25:37 -03 2021", 1627928737.0, True),
        ("Mon Aug  2 18:25:37 CEST 2021", 1627928737.0, False),
        ("Mon 02 Aug 2021 06:25:37 PM UTC", 1627928737.0, True),
        ("Mon, 02 Aug 2021 18:25:37 +0000", 1627928737.0, True),
        ("Mo 2. Aug 18:25:37 CEST 2021", None, False),
        ("2021-13-45", None, False),
        ("Aug  2 18:25:37", None, False),
        ("02/08/2021 18:25:37", None, False),
        ("", None, False),
    ],
)
def test_dates_of_logs_are_read_in_many_forms(text: str, seconds: float | None, zoned: bool):
    assert fio_facts.parse_date(text) == (seconds, zoned)


def test_the_log_gives_load_and_time_of_each_job(tmp_path: Path):
    folder = make_battery(tmp_path, jobs=6, pause_s=10)
    battery = fio.read_battery(folder)
    rows = battery["samples"]
    assert [row["load1_before"] for row in rows] == [0.5, 0.51, 0.52, 0.53, 0.54, 0.55]
    assert (rows[0]["load5_before"], rows[0]["load15_before"], rows[0]["load1_after"]) == (0.25, 0.12, None)
    assert rows[0]["started_utc"] == "2021-08-02T10:26:40Z"
    assert [row["started_s"] for row in rows[1:]] == pytest.approx(
        [row["started_s"] + row["runtime_s"] + 10 for row in rows[:-1]], abs=1
    )


def test_a_log_is_found_anywhere_in_the_tree_by_host(tmp_path: Path):
    tree = tmp_path / "tree"
    folders = [make_battery(tree, cluster=f"t{n}", host=f"host{n}.internal", jobs=2, seed=n) for n in (1, 2)]
    (tree / "logs").mkdir()
    lines = "".join((folder / "runtime.log").read_text() for folder in folders).replace(".internal", "")
    (tree / "logs" / "all.txt").write_text("started\n" + lines.replace("0.51,", "7.77,") + "[a1] <=> broken\n")
    for folder in folders:
        (folder / "runtime.log").unlink()
    for record in imported(tmp_path, [tree])["records"]:
        assert [row["load1_before"] for row in record["samples"]] == [0.5, 7.77]


def test_a_log_of_several_runs_gives_the_line_before_the_job(tmp_path: Path):
    folder = make_battery(tmp_path, jobs=2)
    line = fio_results.log_line(fio_files.job("a1"), "h", 9)
    earlier, later = line.replace("2021", "2020"), line.replace("2021", "2022")
    with open(folder / "runtime.log", "a") as file:
        file.write(earlier + later)
    assert fio.read_battery(folder)["samples"][0]["load1_before"] == 0.5


def test_an_incomplete_log_does_not_mix_clocks(tmp_path: Path):
    folder = make_battery(tmp_path, jobs=3)
    lines = (folder / "runtime.log").read_text().splitlines(keepends=True)
    (folder / "runtime.log").write_text(lines[0].replace("2021", "2035") + lines[2])
    rows = fio.read_battery(folder)["samples"]
    assert [row["job_Id"] for row in rows] == ["a1", "a2", "a3"]
    assert {row["started_utc"][:10] for row in rows} == {"2021-08-02"}
    assert rows[1]["load1_before"] is None


# What scripts/sbench/studies/volumes/fio_battery.sh writes.


def test_facts_of_our_own_runner_are_in_the_rows(tmp_path: Path):
    battery = fio.read_battery(ours(tmp_path))
    first, second = battery["samples"]
    assert (battery["battery"], battery["cluster"], battery["host"]) == ("b7", "c-1", "node.internal")
    assert battery["facts"]["jobs"] == 2
    assert battery["facts"]["kernel"] == "6.1"
    assert battery["pause_s"] == 0.5
    assert (battery["started_utc"], battery["ended_utc"]) == ("2026-11-20T10:00:00Z", "2026-11-20T10:05:00Z")
    assert (first["started_utc"], second["started_s"]) == ("2026-11-20T10:00:00Z", 60.0)
    loads = [first[key] for key in ("load1_before", "load5_before", "load15_before", "load1_after")]
    assert loads == [0.5, 0.4, 0.3, 1.5]
    assert first["steal_percent"] == pytest.approx(100 * 50 / 1050)
    assert (first["free_gib_before"], first["free_gib_after"]) == (2.0, 1.0)
    assert (first["device"], first["device_write_ios"]) == ("nvme1n1", 2000)
    assert (battery["background"]["job"], battery["background"]["write_bytes"]) == ("background", 2_300_000)
    assert (battery["faults"], battery["left_out"]) == ([], [])


@pytest.mark.parametrize("told", [[], [{"name": "nvme1n1", "read_ios": 0, "write_ios": 0, "util": 0.0}]])
def test_the_runner_counts_the_disk_where_fio_saw_nothing(tmp_path: Path, told: list):
    folder = ours(tmp_path)
    for path in folder.glob("fio_results_*.json"):
        edited(disk_util=told)(path)
    first = fio.read_battery(folder)["samples"][0]
    counted = [first[f"device_{key}"] for key in ("write_ios", "read_ios", "util_percent")]
    assert counted == [3000, 1, 50.0]


def test_a_battery_that_ended_early_says_so(tmp_path: Path):
    folder = ours(tmp_path, status="failed: the disk is full")
    (folder / "facts_a2.txt").write_text("status: 1\n")
    assert fio.read_battery(folder)["faults"] == [
        "the battery ended early: failed: the disk is full",
        "a2: fio ended with status 1",
    ]
    for path in folder.glob("*.json"):
        path.unlink()
    empty = fio.read_battery(folder)
    assert (empty["samples"], empty["fio"]) == ([], "fio-3.33")
    assert empty["faults"] == ["the battery ended early: failed: the disk is full"]


def test_jobs_of_several_versions_are_a_fault_of_a_battery(tmp_path: Path):
    folder = make_battery(tmp_path, jobs=3)
    make_json(folder / "c.json", "b2", version="fio-3.35", began_s=1.8e9)
    assert fio.read_battery(folder)["faults"] == ["jobs ran with different versions of fio: fio-3.33, fio-3.35"]


def test_counters_that_ran_backwards_tell_nothing():
    before, after = "259 0 vda 10 0 80 5 100 7 800 50 0 1000 55", "259 0 vda 11 0 88 6 3 9 900 60 0 6000 66"
    assert fio_facts.compute_device_counts(before, before.replace("1000", "1500"), 10)["write_ios"] == 0
    assert fio_facts.compute_device_counts(before, after, 10) == {}
    assert fio_facts.compute_steal_percent("cpu 100 0 100 800 0 0 0 50 0 0", "cpu 200 0 200 1600 0 0 0 20 0 0") is None
