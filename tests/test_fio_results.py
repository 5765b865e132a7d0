import csv
import gzip
import io
import json
import math
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from scripts import import_fio
from scripts.benchmarks import fio_results
from scripts.lib import fio, fio_facts, fio_jobs, fio_options, tarballs
from scripts.lib.program import Problem
from tests import fio_files
from tests.conftest import ROOT, program
from tests.fio_files import PUBLISHED, imported, make_battery, make_json, old, published_tarballs, tarball

JOB_FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "config" / "fio").glob("*.fio"))}
ETCD = {"rw": "write", "ioengine": "sync", "fdatasync": 1, "bs": 2300, "size": "230k"}


@pytest.fixture
def run_fio(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs fio itself and keeps its output in {folder}/{name}.json."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed: apt install fio")

    def run(name: str, folder: str = "b1_t1-fio-here", form: str = "json+", **options: object) -> Path:
        path = tmp_path / folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        (tmp_path / "test").mkdir(exist_ok=True)
        told = [f"--{key}={value}" for key, value in {"name": f"fio_io_{name}", **options}.items() if value is not None]
        flags = [f"--{key}" for key, value in options.items() if value is None]
        command = ["fio", *told, *flags, f"--directory={tmp_path / 'test'}", f"--output-format={form}"]
        done = subprocess.run([*command, f"--output={path}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return path

    return run


def jobs_of(path: Path) -> list[dict]:
    return json.loads(path.read_text())["jobs"]


def in_ms(section: dict) -> dict[str, float]:
    told = {key: section[key] / 1e6 for key in ("max", "mean", "stddev")}
    names = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000", "p99.99": "99.990000"}
    return told | {name: section["percentile"][key] / 1e6 for name, key in names.items()}


def latency(row: dict, operation: str) -> dict[str, float]:
    return {key: row[f"{operation}_lat_{key}_ms"] for key in ("max", "mean", "stddev", "p50", "p99", "p99.9", "p99.99")}


def changed(**values: object) -> Callable[[dict], None]:
    """Return a change of the first job's own values, for `make_json`."""
    return lambda told: told["jobs"][0].update(values)


def dig(told: dict, *keys: object) -> dict:
    for key in keys:
        told = told[key]
    return told


def timeless(told: dict) -> None:
    del told["timestamp"], told["timestamp_ms"]


# fio itself.


@pytest.mark.parametrize("form", ["json", "json+"])
def test_a_row_has_what_fio_printed(run_fio, form: str):
    path = run_fio("a1", form=form, **ETCD)
    battery, (entry,) = fio.read_battery(path.parent), jobs_of(path)
    (row,) = battery["samples"]
    assert list(row) == list(fio.COLUMNS)
    assert (row["battery_id"], row["node_name"], row["job_Id"], row["number"]) == ("b1_t1", "here", "a1", 1)
    assert latency(row, "sync") == in_ms(entry["sync"]["lat_ns"])
    assert latency(row, "write") == in_ms(entry["write"]["clat_ns"])
    assert set(latency(row, "read").values()) == {None}
    assert (row["sync_N"], row["write_N"], row["read_N"]) == (entry["sync"]["lat_ns"]["N"], 102, 0)
    assert (row["write_ios"], row["write_bytes"], row["read_ios"]) == (102, 102 * 2300, 0)
    assert row["write_iops"] == pytest.approx(entry["write"]["iops"])
    assert row["write_mib_s"] == pytest.approx(entry["write"]["bw_bytes"] / 2**20, rel=1e-3)
    assert row["runtime_s"] == entry["write"]["runtime"] / 1000
    assert (row["cpu_usr_percent"], row["cpu_sys_percent"]) == pytest.approx((entry["usr_cpu"], entry["sys_cpu"]))
    assert fio.operation_of(row) == "sync"
    assert battery["faults"] == []
    assert battery["fio"].startswith("fio-3.")
    histograms = battery["histograms"].get("a1", {})
    if form == "json":
        assert histograms == {}
    else:
        assert sorted(histograms) == ["sync", "write"]
        assert dict(histograms["sync"]) == {int(ns): n for ns, n in entry["sync"]["lat_ns"]["bins"].items()}
        assert [ns for ns, _ in histograms["sync"]] == sorted(ns for ns, _ in histograms["sync"])


@pytest.mark.parametrize("form", ["json", "json+"])
def test_processes_of_a_job_are_merged_by_histograms_and_never_by_percentiles(run_fio, form: str):
    path = run_fio("a1", form=form, numjobs=3, **ETCD)
    entries, battery = jobs_of(path), fio.read_battery(path.parent)
    (row,) = battery["samples"]
    parts = [entry["sync"]["lat_ns"] for entry in entries]
    assert len(entries) == 3
    assert row["sync_N"] == sum(part["N"] for part in parts)
    assert row["sync_lat_max_ms"] == max(part["max"] for part in parts) / 1e6
    assert row["sync_lat_mean_ms"] == pytest.approx(
        sum(part["mean"] * part["N"] for part in parts) / row["sync_N"] / 1e6
    )
    assert row["write_bytes"] == 3 * 102 * 2300
    assert row["runtime_s"] == max(entry["write"]["runtime"] for entry in entries) / 1000
    assert battery["faults"] == []
    if form == "json":
        assert row["sync_lat_p99_ms"] is row["sync_lat_p99.9_ms"] is None
        return
    drawn = np.sort(np.concatenate([np.repeat([*map(int, part["bins"])], [*part["bins"].values()]) for part in parts]))
    assert sum(n for _, n in battery["histograms"]["a1"]["sync"]) == len(drawn) == row["sync_N"]
    for percentile in (50, 99, 99.9):
        expected = drawn[math.ceil(round(percentile / 100 * len(drawn), 9)) - 1]
        assert row[f"sync_lat_p{percentile}_ms"] == expected / 1e6
    assert row["sync_lat_stddev_ms"] == pytest.approx(np.std(drawn, ddof=1) / 1e6, rel=0.05)


def test_processes_that_fio_merged_ask_for_the_bytes_of_all(run_fio):
    path = run_fio("a1", numjobs=3, group_reporting=None, **ETCD)
    (row,), faults = (fio.read_battery(path.parent)[key] for key in ("samples", "faults"))
    assert len(jobs_of(path)) == 1
    assert (row["write_bytes"], faults) == (3 * 102 * 2300, [])


@pytest.mark.parametrize(
    "options, operation, name",
    [
        ({"rw": "read", "bs": "4k"}, "read", "read-4k-psync"),
        ({"rw": "randread", "bs": "16k"}, "read", "randread-16k-psync"),
        ({"rw": "write", "bs": "64k"}, "write", "write-64k-psync"),
        ({"rw": "randrw", "rwmixread": 90, "bs": "4k"}, "read", "randrw-4k-psync"),
        ({"rw": "randrw", "rwmixread": 10, "bs": "4k", "fdatasync": 1}, "sync", "randrw-4k-psync-fdatasync"),
        ({"rw": "randwrite", "bs": "4k", "fsync": 8}, "sync", "randwrite-4k-psync-fsync8"),
        ({"rw": "randread", "bs": "4k", "lat_percentiles": 1, "clat_percentiles": 0}, "read", "randread-4k-psync"),
        ({"rw": "randread", "bs": "4k", "unified_rw_reporting": 1}, "read", "randread-4k-psync"),
        ({"rw": "randread", "bs": "4k", "percentile_list": "50:90"}, "read", "randread-4k-psync"),
    ],
)
def test_each_kind_of_job_is_read_and_faultless(run_fio, options: dict, operation: str, name: str):
    battery = fio.read_battery(run_fio("a1", size="1m", **options).parent)
    (row,) = battery["samples"]
    assert (battery["faults"], battery["left_out"]) == ([], [])
    assert fio.operation_of(row) == operation
    assert (row["read_bytes"] + row["write_bytes"], fio.signature(battery["job_options"])) == (2**20, name)
    assert 0 < row[f"{operation}_lat_p50_ms"] <= row[f"{operation}_lat_p99_ms"]
    assert sum(n for _, n in battery["histograms"]["a1"][operation]) == row[f"{operation}_N"] > 0


def test_a_job_that_ends_at_its_time_is_not_asked_for_its_size(run_fio):
    path = run_fio("a1", rw="randread", bs="4k", size="1m", runtime="300ms", time_based=None)
    battery = fio.read_battery(path.parent)
    assert battery["samples"][0]["read_bytes"] > 2**20
    assert battery["faults"] == []


def test_jobs_in_turn_in_one_output_are_jobs_apart(run_fio, tmp_path: Path):
    job_file = tmp_path / "two.fio"
    sections = [f"[fio_io_{name}]\nstonewall\nrw=write\nbs=2300\nsize=230k\nfdatasync=1\n" for name in ("a1", "a2")]
    job_file.write_text("[global]\nioengine=sync\n" + "".join(sections))
    folder = tmp_path / "b1_t1-fio-here"
    folder.mkdir()
    command = ["fio", job_file, f"--directory={tmp_path}", "--output-format=json+", f"--output={folder / 'both.json'}"]
    subprocess.run(command, check=True)
    battery = fio.read_battery(folder)
    assert [row["job_Id"] for row in battery["samples"]] == ["a1", "a2"]
    first, second = battery["samples"]
    assert second["started_s"] == pytest.approx(first["runtime_s"], abs=0.002)
    # The counters of the disk are of both together.
    assert first["device_write_ios"] is second["device_write_ios"] is None
    assert battery["faults"] == []


def test_a_battery_is_in_time_order_whatever_its_files_are_called(run_fio):
    for name in ("z9", "b1", "a1"):
        path = run_fio(name, **ETCD)
    battery = fio.read_battery(path.parent)
    assert [row["job_Id"] for row in battery["samples"]] == ["z9", "b1", "a1"]
    starts = [row["started_s"] for row in battery["samples"]]
    assert starts[0] == 0.0
    assert starts == sorted(starts)


def test_the_name_of_the_job_file_is_found_in_what_fio_printed(run_fio, tmp_path: Path):
    out = tmp_path / "out.json"
    text = JOB_FILES["etcd-short"].replace("[fio_io]", "[fio_io_a1]")
    (tmp_path / "job.fio").write_text(text)
    command = ["fio", tmp_path / "job.fio", f"--directory={tmp_path}", "--output-format=json", f"--output={out}"]
    subprocess.run(command, check=True)
    (entry,) = jobs_of(out)
    assert fio.job_name(entry["job options"], JOB_FILES) == "etcd-short"
    assert fio.job_name(entry["job options"] | {"bs": "4k"}, JOB_FILES) == "write-4k-sync-fdatasync"


# Options.


def test_each_job_file_has_a_name_of_its_own():
    flags = ("time_based", "group_reporting", "thread")
    printed = [
        {key: value for key, value in fio_jobs.options(text).items() if key not in flags}
        | {"filename": "/x", "name": "y"}
        for text in JOB_FILES.values()
    ]
    assert fio.names(printed, JOB_FILES) == list(JOB_FILES)


@pytest.mark.parametrize(
    "options, name",
    [
        ({"rw": "write", "bs": "2300", "ioengine": "sync", "fdatasync": "1"}, "write-2300-sync-fdatasync"),
        ({"readwrite": "randread", "blocksize": "16384", "ioengine": "libaio", "iodepth": "16", "numjobs": "4"},
         "randread-16k-libaio-qd16x4"),
        ({"rw": "randrw", "bs": "4k,8k"}, "randrw-4k-8k-psync"),
        ({"rw": "write:8k", "bs": "1MiB", "ioengine": "external:/lib/x.so", "fsync": "32"}, "write-8k-1m-x.so-fsync32"),
        ({"name": "a", "filename": "/b"}, "unknown"),
        ({}, "unknown"),
    ],
)  # fmt: skip
def test_a_signature_says_what_a_job_does(options: dict, name: str):
    assert fio.signature(options) == name


def test_options_are_the_same_in_any_spelling():
    first = {"rw": "write", "bs": "4k", "size": "200m", "runtime": "2m", "name": "fio_io_a1", "filename": "/a/a1"}
    second = {"readwrite": "write", "blocksize": "4096", "size": "204800K", "timeout": "120", "iodepth": "1"}
    assert fio_options.same(first, second | {"group_reporting": "1", "direct": "0"})
    assert not fio_options.same(first, second | {"direct": "1"})
    assert not fio_options.same(first, second | {"buffered": "0"})


def test_jobs_that_differ_beyond_their_signature_are_told_apart():
    etcd, large = {"rw": "write", "bs": "2300", "size": "22m"}, {"rw": "write", "bs": "2300", "size": "200m"}
    told = fio.names([etcd, large, etcd, large | {"direct": "1"}], {})
    assert told == [
        "write-2300-psync-direct-0-size-22m",
        "write-2300-psync-direct-0-size-200m",
        "write-2300-psync-direct-0-size-22m",
        "write-2300-psync-direct-1-size-200m",
    ]


# Versions of fio.


def test_version_3_7_has_no_number_of_latencies_and_says_more_than_json(tmp_path: Path):
    # etcd's container of that time prints words on the line of the first brace and after the last one.
    told = old(fio_results.output(fio_files.job("a1", bins=False)), "fio-3.7")
    folder = tmp_path / "b1_t1-fio-here"
    folder.mkdir()
    words = "fio: warning {not} JSON\n------- Running fio ------", "--------\n99th percentile of fsync is 5406720 ns\n"
    (folder / "fio_results_write_a1.json").write_text(fio_results.text(told).join(words))
    (row,) = fio.read_battery(folder)["samples"]
    lat = told["jobs"][0]["sync"]["lat_ns"]
    assert row["sync_lat_p99_ms"] == lat["percentile"]["99.000000"] / 1e6
    assert (row["sync_N"], row["write_N"], row["read_N"]) == (None, 1000, 0)
    assert row["read_lat_p99_ms"] is None
    assert fio.operation_of(row) == "sync"


def test_bins_give_the_number_that_a_version_does_not(tmp_path: Path):
    told = old(fio_results.output(fio_files.job("a1")), "fio-3.7")
    (tmp_path / "a1.json").write_text(fio_results.text(told))
    battery = fio.read_battery(tmp_path)
    assert (battery["samples"][0]["sync_N"], battery["faults"]) == (1000, [])


def test_version_3_1_does_not_time_fdatasync_and_that_is_a_fault(tmp_path: Path):
    (tmp_path / "a1.json").write_text(fio_results.text(old(fio_results.output(fio_files.job("a1")), "fio-3.1")))
    battery = fio.read_battery(tmp_path)
    assert battery["faults"] == ["a1: fio-3.1 does not say how long it took to force writes to the disk"]
    assert battery["samples"][0]["sync_N"] is None
    assert fio.operation_of(battery["samples"][0]) == "write"


def test_newer_versions_say_when_a_job_began(tmp_path: Path):
    # 3.36 and later have job_start; an output may also follow the one for people, and be in UTF-16 on Windows.
    told = fio_results.output(fio_files.job("a1", version="fio-3.41"))
    told["jobs"][0]["job_start"] = 1_627_900_001_500
    people = "fio_io_a1: (g=0): rw=write, bs=(R) 2300B-2300B\nfio-3.41\nStarting 1 process\n"
    (tmp_path / "a1.json").write_bytes((people + fio_results.text(told)).encode("utf-16"))
    battery = fio.read_battery(tmp_path)
    assert (battery["fio"], battery["samples"][0]["started_utc"]) == ("fio-3.41", "2021-08-02T10:26:41Z")


def test_global_options_are_options_of_each_job(tmp_path: Path):
    def split(told: dict) -> None:
        options = told["jobs"][0]["job options"]
        told["global options"] = {key: options.pop(key) for key in ("rw", "bs", "fdatasync", "ioengine")}

    make_json(tmp_path / "a1.json", change=split)
    assert fio.signature(fio.read_battery(tmp_path)["job_options"]) == "write-2300-sync-fdatasync"


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf"])
def test_undefined_numbers_of_older_versions_are_unknown(tmp_path: Path, value: str):
    path = make_json(tmp_path / "a1.json")
    path.write_text(path.read_text().replace('"usr_cpu" : 0.9', f'"usr_cpu" : {value}'))
    (row,) = fio.read_battery(tmp_path)["samples"]
    assert (row["cpu_usr_percent"], row["cpu_sys_percent"]) == (None, 5.1)


# What is no result, or a bad one.


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def edited(**values: object) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (cut, "is cut off: fio was stopped, or the file was not copied whole"),
        (lambda path: path.write_text(path.read_text().replace("[{", "[[{", 1)), "is damaged in line"),
        (lambda path: path.write_bytes(b""), "is not JSON"),
        (lambda path: path.write_text("fio: no such device\n"), "is not JSON"),
        (lambda path: path.write_bytes(bytes(range(256))), "is not JSON"),
        (lambda path: path.write_text('{"name": "package"}'), "is not an output of fio"),
        (lambda path: path.write_text("[" * 100_000), "is not an output of fio"),
        (lambda path: path.write_text("[1, 2]"), "is not an output of fio"),
        (lambda path: path.write_text(path.read_text() * 2), "holds 2 outputs of fio"),
        (edited(jobs=[]), "has no jobs in it"),
        (edited(client_stats=[]), "is from fio's client mode"),
        (lambda path: path.write_text(path.read_text().replace("fio-3.33", "fio-2.2.10")), "is of fio-2.2.10"),
        (lambda path: path.write_bytes(b" " * (fio.FILE_BYTES + 1)), "has more than 16 MiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path, spoil: Callable, reason: str):
    folder = make_battery(tmp_path, jobs=3)
    spoil(folder / "fio_results_write_a2.json")
    battery = fio.read_battery(folder)
    assert [row["job_Id"] for row in battery["samples"]] == ["a1", "a3"]
    (left,) = battery["left_out"]
    assert left["file"] == "fio_results_write_a2.json"
    assert left["reason"].startswith(reason)
    assert "\n" not in left["reason"]


def test_reads_and_writes_that_fio_counted_together_are_left_out(run_fio):
    path = run_fio("a1", rw="randrw", bs="4k", size="1m", unified_rw_reporting=1)
    battery = fio.read_battery(path.parent)
    assert battery["samples"] == []
    assert battery["left_out"][0]["reason"].startswith("counts reads and writes together")


@pytest.mark.parametrize(
    "change, fault",
    [
        (changed(error=28), "a1: fio ended with error 28 (No space left on device)"),
        (changed(total_err=3, first_error=5), "a1: 3 operations failed"),
        (lambda told: dig(told, "jobs", 0, "write").update(io_bytes=1_000_000, total_ios=434),
         "a1: 1000000 bytes were read and written, 2300000 asked"),
        (lambda told: dig(told, "jobs", 0, "job options").update(size="1m"),
         "a1: 2300000 bytes were read and written, 1048576 asked"),
        (lambda told: dig(told, "jobs", 0, "job options").update(fdatasync="10"),
         "a1: 1000 writes were forced to the disk 1000 times, 100 asked"),
        (lambda told: dig(told, "jobs", 0, "sync", "lat_ns").update(N=998),
         "a1: 1000 writes were forced to the disk 998 times, 1000 asked"),
        (lambda told: dig(told, "jobs", 0, "sync", "lat_ns").update(N=999),
         "a1: the bins of sync hold 1000 of 999 latencies"),
    ],
)  # fmt: skip
def test_work_that_is_not_what_was_asked_is_a_fault(tmp_path: Path, change: Callable, fault: str):
    make_json(tmp_path / "a1.json", change=change)
    assert fault in fio.read_battery(tmp_path)["faults"]


def test_a_sync_more_or_less_than_writes_is_none(tmp_path: Path):
    for number in (1, 2):
        make_json(
            tmp_path / f"a{number}.json",
            f"a{number}",
            number,
            lambda told: dig(told, "jobs", 0, "sync", "lat_ns").update(N=999),
            bins=False,
        )
    assert fio.read_battery(tmp_path)["faults"] == []


def test_a_job_whose_size_does_not_say_when_it_ends_is_asked_for_nothing():
    etcd = {"rw": "write", "bs": "2300", "size": "200m"}
    assert fio_options.asked_bytes(etcd) == (209_715_200, 2300)
    assert fio_options.asked_bytes(etcd | {"numjobs": "4", "loops": "2"}) == (8 * 209_715_200, 8 * 2300)
    assert fio_options.asked_bytes(etcd | {"io_size": "1g"}) == (2**30, 2300)
    for other in ({"runtime": "20"}, {"number_ios": "5"}, {"size": "20%"}, {"bssplit": "4k/50:8k/50"}, {"size": ""}):
        assert fio_options.asked_bytes(etcd | other) is None


@pytest.mark.parametrize("processes", [1, 2])
def test_any_damage_to_any_value_is_named_or_unknown_and_never_a_crash(tmp_path: Path, processes: int):
    whole = fio_results.output(fio_files.job("a1", writes=10))
    whole = old(whole, "fio-3.7") if processes == 1 else whole

    def places(value: object, way: tuple = ()) -> list[tuple]:
        if not isinstance(value, dict | list):
            return [way]
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        below = [place for key, part in islice(inside, 40) for place in places(part, (*way, key))]
        return [way, *below] if way else below

    numbers, others = (-1, 2**63, 10**400, 1e308), (None, True, [], {}, [None], {"x": [1]})
    texts = ("x", "", "00", "9" * 5000, "²")
    ways = places(whole)
    whole["jobs"] *= processes
    for way in ways:
        for wrong in (*numbers, *others, *texts):
            told = json.loads(json.dumps(whole))
            dig(told, *way[:-1])[way[-1]] = wrong
            tree = fio.Tree("b1_t1-fio-here")
            tree.add("a1.json", json.dumps(told).encode())
            found = list(tree.batteries())
            assert found or tree.left_out
            json.dumps(found, allow_nan=False)
            fio.names([battery["job_options"] for battery in found], {})


def test_any_damage_to_what_lies_beside_the_results_is_unknown_and_never_a_crash(tmp_path: Path):
    folder = ours(tmp_path)
    make_battery(tmp_path, jobs=2)
    for path in sorted({*folder.glob("*.txt"), folder / "runtime.log"}):
        whole = path.read_text()
        for start, end in ((found.start(), found.end()) for found in re.finditer(r"[^\s:]+", whole)):
            for wrong in ("", "x", "-1", "9" * 5000, "²"):
                path.write_text(whole[:start] + wrong + whole[end:])
                json.dumps(fio.read_battery(folder), allow_nan=False)
        path.write_text(whole)


# Ids, order and times.


def test_ids_run_from_a1_over_z5_to_aa1(tmp_path: Path):
    ids = list(islice(fio_results.ids(), 135))
    assert (ids[:6], ids[124:132]) == (
        ["a1", "a2", "a3", "a4", "a5", "b1"],
        ["y5", "z1", "z2", "z3", "z4", "z5", "aa1", "aa2"],
    )
    for name in ("aa1", "z5", "b1", "a2", "a10"):
        make_json(
            tmp_path / f"{name}.json",
            name,
            change=lambda told: [told.pop(key) for key in ("timestamp", "timestamp_ms")],
        )
    battery = fio.read_battery(tmp_path)
    assert [row["job_Id"] for row in battery["samples"]] == ["a2", "a10", "b1", "z5", "aa1"]
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
    assert battery["faults"] == ["a1 is there 2 times: 1.json, 2.json"]
    assert battery["left_out"] == [{"file": "4.json", "reason": "has the content of 3.json, which is taken once"}]


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
        ("", None, False),
    ],
)
def test_dates_of_logs_are_read_in_many_forms(text: str, seconds: float | None, zoned: bool):
    assert fio_facts.date(text) == (seconds, zoned)


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


# What scripts/fio_battery.sh writes.

BATTERY = """format: 1
battery: b7
cluster: c-1
host: node.internal
started_utc: 2026-11-20T10:00:00Z
ended_utc: 2026-11-20T10:05:00Z
fio: fio-3.33
jobs: 2
pause_s: 0.5
job: etcd-short
background: background
kernel: 6.1
cores: 2
device: /dev/nvme1n1p1
file_system_bytes: 1000
status: {status}
"""


def ours(folder: Path, status: str = "complete", jobs: int = 2) -> Path:
    folder = make_battery(folder, jobs=jobs, log=False)
    (folder / "battery.txt").write_text(BATTERY.format(status=status))
    for number, name in enumerate(list(islice(fio_results.ids(), jobs))):
        (folder / f"facts_{name}.txt").write_text(
            f"started_utc: 2026-11-20T10:0{number}:00Z\nstarted_s: {1795168800 + 60 * number}.25\n"
            f"ended_s: {1795168810 + 60 * number}.25\nstatus: 0\n"
            "load_before: 0.50 0.40 0.30 1/123 456\nload_after: 1.50 0.40 0.30 1/123 456\n"
            "stat_before: cpu  100 0 100 800 0 0 0 0 0 0\nstat_after: cpu  200 0 200 1600 0 0 0 50 0 0\n"
            f"free_bytes_before: {2**31}\nfree_bytes_after: {2**30}\n"
            "diskstats_before: 259 0 nvme1n1p1 10 0 80 5 100 7 800 50 0 1000 55\n"
            "diskstats_after: 259 0 nvme1n1p1 11 0 88 6 3100 9 900 60 0 6000 66\n"
        )
    make_json(folder / "background.json", "x", 99, changed(jobname="background"))
    return folder


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
    assert (first["device"], first["device_write_ios"], first["ios_per_write"]) == ("nvme1n1", 2000, 2.0)
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
    assert first["ios_per_write"] == 3.0


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


def test_jobs_of_several_options_or_versions_are_a_fault_of_a_battery(tmp_path: Path):
    folder = make_battery(tmp_path, jobs=3)
    make_json(folder / "b.json", "b1", options={**fio_results.OPTIONS, "size": "2300000", "bs": "4k"}, began_s=1.7e9)
    make_json(folder / "c.json", "b2", version="fio-3.35", began_s=1.8e9)
    assert fio.read_battery(folder)["faults"] == [
        "fio was not the same for all jobs: fio-3.33, fio-3.35",
        "the jobs' options differ (write-2300-sync-fdatasync: a1 … b2; write-4k-sync-fdatasync: b1)",
    ]


# The import.


def test_published_tarballs_give_the_published_table_value_by_value(tmp_path: Path, published: Path):
    table = published / "fio-ebs" / "all_metrics_long.csv"
    published_tarballs(table, tmp_path / "in")
    for folder in (tmp_path / "in").iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    names = [{"from": f"{tmp_path}/in/b2_{cluster}-*", "name": name} for cluster, (_, name) in PUBLISHED.items()]
    told = imported(tmp_path, names)
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = [row for record in told["records"] for row in record["samples"]]
    assert len(found) == len(rows) == 200
    for row, expected in zip(found, rows, strict=True):
        assert {key: row[key] for key in list(expected)[:4]} == {key: expected[key] for key in list(expected)[:4]}
        assert {key: row[key] for key in list(expected)[4:]} == {
            key: float(expected[key]) for key in list(expected)[4:]
        }
        assert list(row)[:9] == list(expected)
    assert [record["cell"]["job"] for record in told["records"]] == ["etcd-published"] * 4
    assert [record["cell"]["background"] for record in told["records"]] == ["unknown"] * 4
    assert all(record["valid"] for record in told["records"])
    assert found[49]["load1_before"] == 0.99
    assert told["left_out"] == []


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.xz"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_tarball_is_read_as_its_folder_is(tmp_path: Path, suffix: str, inside: bool):
    folder = make_battery(tmp_path / "in", host="ip-10-0-1-2.eu-west-1.compute-fio-x.internal")
    packed = tarball(folder, suffix, inside=inside)
    (unpacked,) = imported(tmp_path, [folder])["records"]
    (record,) = imported(tmp_path, [packed])["records"]
    assert record.pop("source") != unpacked.pop("source")
    assert record == unpacked
    assert record["cell"]["host"] == "ip-10-0-1-2.eu-west-1.compute-fio-x.internal"


def test_a_record_has_what_the_study_needs(tmp_path: Path):
    folder = ours(tmp_path / "in")
    volume = {"type": "gp3", "size_gib": 128, "iops": 3000}
    (record,) = imported(tmp_path, [{"from": str(folder), "name": "gp3x1", "volume": volume}])["records"]
    levels = {"store": "gp3x1", "job": "write-2300-sync-fdatasync", "background": "background", "host": "node.internal"}
    assert record["cell"] == levels | {"control": ""}
    assert record["name"].startswith("gp3x1_write-2300-sync-fdatasync_background_node.internal-")
    assert (record["status"], record["study"], record["run"], record["repeat"]) == ("done", "volumes", "elsewhere", 1)
    assert record["volume"] == volume | {"source": "the configuration"}
    assert record["work"] == {"jobs_asked": 2, "jobs_done": 2, "read_bytes": 0, "write_bytes": 4_600_000}
    assert (record["host"]["node"], record["host"]["kernel"], record["host"]["cores"]) == ("node.internal", "6.1", 2)
    assert record["battery"]["pause_s"] == 0.5
    assert record["seconds"]["total"] == pytest.approx(60 + record["samples"][1]["runtime_s"])
    assert {row["layout"] for row in record["samples"]} == {"gp3x1"}
    assert set(record["histograms"]) == {"a1", "a2"}
    assert all(sum(n for _, n in bins["sync"]) == 1000 for bins in record["histograms"].values())
    assert (record["valid"], record["reasons"]) == (True, [])


@pytest.mark.parametrize(
    "told, level",
    [
        ("background: none", "none"),
        ("background: logs\ndirectory: /mnt/a\nbackground_directory: /mnt/a", "same"),
        ("background: logs\ndirectory: /mnt/a\nbackground_directory: /mnt/b", "other"),
        ("background: logs", "logs"),
        ("jobs: 5", "unknown"),
    ],
)
def test_the_background_is_what_the_battery_says(tmp_path: Path, told: str, level: str):
    (make_battery(tmp_path / "in") / "battery.txt").write_text(told)
    (record,) = imported(tmp_path, [tmp_path / "in"])["records"]
    assert record["cell"]["background"] == level


def test_jobs_that_are_missing_make_a_record_invalid(tmp_path: Path):
    folder = ours(tmp_path / "in", status="interrupted")
    (folder / "fio_results_write_a2.json").unlink()
    (record,) = imported(tmp_path, [folder])["records"]
    assert record["reasons"] == ["the battery ended early: interrupted", "1 jobs were done, 2 asked"]
    assert not record["valid"]


def test_folders_and_files_of_any_name_are_batteries(tmp_path: Path):
    tree = tmp_path / "results"
    for name in ("gp2/run_1", "gp3/run_1", "b1_t1-fio-h.internal", "."):
        for number in (1, 2):
            make_json(
                tree / name / f"{number}.json", f"a{number}", seed=hash(name) % 1000 + number, began_s=1.6e9 + number
            )
    told = imported(tmp_path, [tree])
    assert sorted((record["cell"]["store"], record["cell"]["host"]) for record in told["records"]) == [
        ("b1_t1", "h.internal"),
        ("gp2-run_1", "unknown"),
        ("gp3-run_1", "unknown"),
        ("results", "unknown"),
    ]
    (alone,) = imported(tmp_path, [tree / "gp2" / "run_1" / "2.json"])["records"]
    assert (alone["cell"]["store"], len(alone["samples"])) == ("run_1", 1)
    (pattern,) = imported(tmp_path, [f"{tree}/gp2/run_1/*.json"])["records"]
    assert [row["job_Id"] for row in pattern["samples"]] == ["a1", "a2"]


def test_a_battery_of_several_jobs_is_several_series(tmp_path: Path):
    folder = make_battery(tmp_path / "in", jobs=2)
    for number in (1, 2):
        options = {**fio_results.OPTIONS, "size": "2300000", "ioengine": "psync"}
        make_json(folder / f"other{number}.json", f"a{number}", number, options=options)
    records = imported(tmp_path, [folder])["records"]
    assert [record["cell"]["job"] for record in records] == ["write-2300-sync-fdatasync", "write-2300-psync-fdatasync"]
    assert [len(record["samples"]) for record in records] == [2, 2]
    assert all(record["valid"] for record in records)


def test_batteries_of_one_host_and_volume_are_repeats_in_time_order(tmp_path: Path):
    for number, began_s in ((1, 1.7e9), (2, 1.6e9)):
        make_battery(tmp_path / "in", fio_files.job(began_s=began_s), battery=f"b{number}", seed=number)
    records = imported(tmp_path, [{"from": str(tmp_path / "in"), "name": "gp2x1"}])["records"]
    assert [(record["battery"]["battery"], record["repeat"]) for record in records] == [("b1", 2), ("b2", 1)]
    assert len({record["name"] for record in records}) == 1


def test_a_battery_that_is_given_twice_is_taken_once(tmp_path: Path):
    folder = make_battery(tmp_path / "in", jobs=4)
    packed = tarball(folder)
    (folder / "fio_results_write_a3.json").unlink()
    told = imported(tmp_path, [tmp_path / "in", {"from": str(packed), "name": "gp2x1"}])
    (record,) = told["records"]
    assert (record["cell"]["store"], len(record["samples"])) == ("gp2x1", 4)
    reason = f"holds 3 jobs that {packed} holds too: they are taken once"
    assert told["left_out"] == [{"file": str(folder), "reason": reason}]


def test_a_mixture_is_read_and_what_is_not_fio_is_named_once(tmp_path: Path):
    tree = tmp_path / "in"
    tarball(make_battery(tree, cluster="t1"))
    shutil.rmtree(tree / fio_results.Battery(cluster="t1").folder)
    make_battery(tree, cluster="t2", seed=2)
    cut(make_json(tree / "b3_t3-fio-h" / "a1.json"))
    make_json(tree / "b3_t3-fio-h" / "a2.json", "a2")
    (tree / "package.json").write_text('{"name": "x"}')
    (tree / "notes.txt").write_text("nothing of use\n")
    (tree / ".hidden.json").write_text("{}")
    (tree / "broken.tar.gz").write_bytes(b"\x1f\x8bnot really")
    (tree / "empty").mkdir()
    told = imported(tmp_path, [tree])
    assert sorted(record["cell"]["store"] for record in told["records"]) == ["b2_t1", "b2_t2", "b3_t3"]
    assert {one["file"].removeprefix(f"{tree}/"): one["reason"].split(":")[0] for one in told["left_out"]} == {
        "package.json": "is not an output of fio",
        "broken.tar.gz": "is no tarball, or damaged",
        "b3_t3-fio-h/a1.json": "is cut off",
    }
    assert len(told["left_out"]) == 3
    files = import_fio.sources([{"from": str(tree)}])
    assert files == sorted(files)
    assert {file.suffix for file in files} == {".gz", ".json", ".txt", ".log"}


def test_sources_names_each_file_once_or_says_what_is_missing(tmp_path: Path):
    first, second = (tarball(make_battery(tmp_path / "in", cluster=f"t{n}")) for n in (1, 2))
    named = [{"from": str(first)}, {"from": f"{tmp_path}/in/*.tar.gz"}]
    assert import_fio.sources(named) == [first, second]
    with pytest.raises(Problem, match="nothing matches"):
        import_fio.sources([{"from": f"{tmp_path}/in/*.zip"}])
    with pytest.raises(Problem, match="there is no file or folder"):
        import_fio.sources([{"from": f"{tmp_path}/out"}])
    (tmp_path / "none").mkdir()
    with pytest.raises(Problem, match="holds no tarball and no JSON file"):
        import_fio.sources([{"from": f"{tmp_path}/none"}])


def test_the_program_ends_in_one_line_where_nothing_is_left(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.json").write_text("{}")
    out = tmp_path / "imported.json"
    for imports, words in (
        (
            [str(tmp_path / "in")],
            f"no results of fio were found: {tmp_path}/in/1.json is not an output of fio (and 1 more)",
        ),
        ([str(tmp_path / "no")], f"imports: there is no file or folder {tmp_path}/no"),
        ([], "imports: name at least one tarball, folder or file, each as its path or as from"),
    ):
        done = program("import_fio", "--imports", json.dumps(imports), "--run", "r", "--out", out)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"problem: {words}")
        assert not out.exists()


# Tarballs of others.

DATA = fio_results.text(fio_results.output(fio_files.job())).encode()


def packed(path: Path, *members: tuple[dict, bytes]) -> Path:
    """Write a tarball of members that tarfile itself would not make."""
    with tarfile.open(path, "w:gz") as archive:
        for facts, data in members:
            member = tarfile.TarInfo(facts.pop("name"))
            member.size = len(data)
            for key, value in facts.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return path


def lying(path: Path, size: int) -> Path:
    """Write a tarball whose first header gives another size than its content has."""
    first, second = (tarfile.TarInfo(f"b1_t1-fio-h/{name}.json") for name in ("a1", "a2"))
    first.size, second.size = size, len(DATA)
    padded = DATA + bytes(-len(DATA) % tarfile.BLOCKSIZE)
    path.write_bytes(gzip.compress(first.tobuf() + padded + second.tobuf() + padded + bytes(2 * tarfile.BLOCKSIZE)))
    return path


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({"name": "/etc/a1.json"}, "/etc/a1.json is an absolute path"),
        ({"name": "b1/../../a1.json"}, "b1/../../a1.json would lie outside its folder"),
        ({"name": "b1/link.json", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link (to /etc/passwd)"),
        ({"name": "b1/hard.json", "type": tarfile.LNKTYPE, "linkname": "b1/a1.json"}, "is a link (to b1/a1.json)"),
        ({"name": "b1/sda", "type": tarfile.BLKTYPE}, "b1/sda is neither a plain file nor a folder"),
        ({"name": "b1/tty", "type": tarfile.CHRTYPE}, "b1/tty is neither a plain file nor a folder"),
        ({"name": "b1/pipe.json", "type": tarfile.FIFOTYPE}, "b1/pipe.json is neither a plain file nor a folder"),
        ({"name": "b1/sparse.json", "type": tarfile.GNUTYPE_SPARSE}, "is neither a plain file nor a folder"),
        ({"name": "b1/two\nlines\x1b[0m", "type": tarfile.FIFOTYPE}, "b1/two?lines?[0m is neither"),
    ],
)
def test_a_tarball_that_would_do_harm_is_refused_and_the_rest_is_read(tmp_path: Path, facts: dict, reason: str):
    good = tarball(make_battery(tmp_path / "in", cluster="t2"))
    bad = packed(tmp_path / "in" / "b1_t1-fio-h.tar.gz", ({"name": "b1/a1.json"}, DATA), (facts, b""))
    told = imported(tmp_path, [good, bad])
    (left,) = told["left_out"]
    assert left["file"] == str(bad)
    assert left["reason"].startswith("is not unpacked: ")
    assert reason in left["reason"]
    assert left["reason"].isprintable()
    assert [record["cell"]["store"] for record in told["records"]] == ["b2_t2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imported.json", "in"]


def test_bombs_are_refused_while_they_are_read(tmp_path: Path):
    everything: dict = {"wanted": lambda name: True}
    path = packed(tmp_path / "size.tar.gz", ({"name": "a.json"}, bytes(17 * 2**20)))
    with pytest.raises(Problem, match=r"a\.json has more than 16 MiB"):
        list(tarballs.contents(path, **everything))
    path = packed(tmp_path / "total.tar.gz", *(({"name": f"{n}"}, bytes(2**20)) for n in range(9)))
    for wanted in (lambda name: True, lambda name: False):
        with pytest.raises(Problem, match="larger than 8 MiB"):
            list(tarballs.contents(path, wanted, tarballs.Limits(total_bytes=2**23)))
    path = packed(tmp_path / "count.tar.gz", *(({"name": f"{n}"}, b"") for n in range(12)))
    with pytest.raises(Problem, match="more than 10 files and folders"):
        list(tarballs.contents(path, **everything, limits=tarballs.Limits(members=10)))
    path = packed(tmp_path / "name.tar.gz", ({"name": "a.json", "pax_headers": {"comment": "x" * 2**22}}, b""))
    with pytest.raises(Problem, match="a name or a header is larger than it should be"):
        list(tarballs.contents(path, **everything))
    # What comes after the end of the archive is unpacked as well when its checksum is looked at.
    whole = packed(tmp_path / "tail.tar.gz", ({"name": "a.json"}, DATA))
    whole.write_bytes(gzip.compress(gzip.decompress(whole.read_bytes()) + bytes(2**24)))
    with pytest.raises(Problem, match="larger than 8 MiB"):
        list(tarballs.contents(whole, **everything, limits=tarballs.Limits(total_bytes=2**23)))


@pytest.mark.parametrize("size", [10, len(DATA) - 600, len(DATA) + 5000, 2**40])
def test_a_header_that_lies_about_its_size_is_found_out(tmp_path: Path, size: int):
    path = lying(tmp_path / "b1_t1-fio-h.tar.gz", size)
    try:
        told = imported(tmp_path, [path, tarball(make_battery(tmp_path / "in"))])
    finally:
        assert sorted(one.name for one in tmp_path.iterdir()) == ["b1_t1-fio-h.tar.gz", "imported.json", "in"]
    assert [record["cell"]["store"] for record in told["records"]] == ["b2_t1"]
    assert [left["file"] for left in told["left_out"]][:1] == [str(path)]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_tarball_that_is_cut_off_is_named(tmp_path: Path, suffix: str, share: float):
    path = tarball(make_battery(tmp_path / "in"), suffix)
    shutil.rmtree(tmp_path / "in" / fio_results.Battery().folder)
    whole = path.read_bytes()
    # The end of a plain one is empty blocks, of which the last may be missing.
    path.write_bytes(whole[: int(min(share * len(whole), len(whole) - 20_000 if suffix == ".tar" else len(whole)))])
    make_json(tmp_path / "good" / "a1.json")
    told = imported(tmp_path, [path, tmp_path / "good"])
    (left,) = told["left_out"]
    assert left["file"] == str(path)
    assert left["reason"].startswith(("is cut off", "is no tarball, or damaged"))
    assert len(told["records"]) == 1


def test_a_flipped_bit_is_found_out(tmp_path: Path):
    path = tarball(make_battery(tmp_path / "in"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Problem, match="is no tarball, or damaged"):
        list(tarballs.contents(path, lambda name: True))


# Synthetic results, for the benchmarks.


def test_synthetic_batteries_are_as_drawn_and_collapse_where_they_should(tmp_path: Path):
    first = replace(fio_results.Job(), mean_ms=1.0, p99_ms=2.5)
    folder = make_battery(tmp_path, first, jobs=12, collapse_after=8, collapse=5.5, noise=0.0)
    battery = fio.read_battery(folder)
    rows = battery["samples"]
    assert battery["faults"] == []
    assert fio.job_name(battery["job_options"], JOB_FILES) == "etcd-published"
    for row, times in zip(rows, [1.0] * 8 + [5.5] * 4, strict=True):
        assert row["sync_lat_mean_ms"] == pytest.approx(1.0 * times, rel=0.02)
        assert row["sync_lat_p99_ms"] == pytest.approx(2.5 * times, rel=0.03)
        assert row["sync_N"] == row["write_ios"] == 91_180
    assert rows[8]["write_iops"] < rows[7]["write_iops"] / 5


def test_many_synthetic_files_are_batteries_of_fifty(tmp_path: Path):
    folders = fio_results.write_many(tmp_path / "in", 120)
    told = imported(tmp_path, [tmp_path / "in"])
    assert [len(list(folder.glob("*.json"))) for folder in folders] == [50, 50, 20]
    assert [len(record["samples"]) for record in told["records"]] == [50, 50, 20]
    assert all(record["valid"] for record in told["records"])
