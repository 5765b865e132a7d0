import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from sbench.probe import packed
from sbench.studies.volumes import fio, fio_options, series
from tests.conftest import ROOT
from tests.helpers import fio_files, fio_results
from tests.helpers.fio_files import changed, cut, dig, edited, make_battery, make_json, old, ours

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
    assert series.choose_operation([row]) == "sync"
    assert battery["faults"] == []
    assert battery["fio"].startswith("fio-3.")
    histograms = battery["histograms"].get("a1", {})
    if form == "json":
        # What lies between two percentiles of fio's: all operations are in one of the ranges, and each percentile too.
        assert sum(n for *_, n in histograms["sync"]) == row["sync_N"]
        for ns in entry["sync"]["lat_ns"]["percentile"].values():
            # It is the middle of a bin, which may lie above the maximum.
            assert any(low <= min(ns, entry["sync"]["lat_ns"]["max"]) <= high for low, high, _ in histograms["sync"])
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
        ({"rw": "randread", "bs": "4k", "percentile_list": "50:90"}, "read", "randread-4k-psync"),
    ],
)
def test_each_kind_of_job_is_read_and_faultless(run_fio, options: dict, operation: str, name: str):
    battery = fio.read_battery(run_fio("a1", size="1m", **options).parent)
    (row,) = battery["samples"]
    assert (battery["faults"], battery["left_out"]) == ([], [])
    assert series.choose_operation([row]) == operation
    assert (row["read_bytes"] + row["write_bytes"], fio_options.format_signature(battery["job_options"])) == (
        2**20,
        name,
    )
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
    other = entry["job options"] | {"bs": "4k"}
    assert fio_options.choose_job_names([entry["job options"], other], JOB_FILES) == [
        "etcd-short",
        "write-4k-sync-fdatasync",
    ]


# Options.


def test_each_job_file_has_a_name_of_its_own():
    flags = ("time_based", "group_reporting", "thread")
    printed = [
        {key: value for key, value in fio_options.parse_job_file(text).items() if key not in flags}
        | {"filename": "/x", "name": "y"}
        for text in JOB_FILES.values()
    ]
    assert fio_options.choose_job_names(printed, JOB_FILES) == list(JOB_FILES)


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
    assert fio_options.format_signature(options) == name


def test_options_are_the_same_in_any_spelling():
    first = {"rw": "write", "bs": "4k", "size": "200m", "runtime": "2m", "name": "fio_io_a1", "filename": "/a/a1"}
    second = {"readwrite": "write", "blocksize": "4096", "size": "204800K", "timeout": "120", "iodepth": "1"}
    canonical = fio_options.resolve_options
    assert canonical(first) == canonical(second | {"group_reporting": "1", "direct": "0"})
    assert canonical(first) != canonical(second | {"direct": "1"})
    assert canonical(first) != canonical(second | {"buffered": "0"})


def test_jobs_that_differ_beyond_their_signature_are_told_apart():
    etcd, large = {"rw": "write", "bs": "2300", "size": "22m"}, {"rw": "write", "bs": "2300", "size": "200m"}
    told = fio_options.choose_job_names([etcd, large, etcd, large | {"direct": "1"}], {})
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
    assert series.choose_operation([row]) == "sync"


def test_bins_give_the_number_that_a_version_does_not(tmp_path: Path):
    told = old(fio_results.output(fio_files.job("a1")), "fio-3.7")
    (tmp_path / "a1.json").write_text(fio_results.text(told))
    battery = fio.read_battery(tmp_path)
    assert (battery["samples"][0]["sync_N"], battery["faults"]) == (1000, [])


def test_version_3_1_does_not_time_fdatasync_and_that_is_a_fault(tmp_path: Path):
    (tmp_path / "a1.json").write_text(fio_results.text(old(fio_results.output(fio_files.job("a1")), "fio-3.1")))
    battery = fio.read_battery(tmp_path)
    assert battery["faults"] == ["a1: fio-3.1 lacks the latencies of fsync and fdatasync"]
    assert battery["samples"][0]["sync_N"] is None
    assert series.choose_operation([battery["samples"][0]]) == "write"


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
    assert fio_options.format_signature(fio.read_battery(tmp_path)["job_options"]) == "write-2300-sync-fdatasync"


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf"])
def test_undefined_numbers_of_older_versions_are_unknown(tmp_path: Path, value: str):
    path = make_json(tmp_path / "a1.json")
    path.write_text(re.sub(r'("stddev"\s*:) [\d.]+', rf"\1 {value}", path.read_text()))
    (row,) = fio.read_battery(tmp_path)["samples"]
    assert (row["sync_lat_stddev_ms"], row["error"]) == (None, 0)


# What is no result, or a bad one.


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (cut, "is cut off: fio was interrupted, or the copy is incomplete"),
        (lambda path: path.write_text(path.read_text().replace("[{", "[[{", 1)), "is damaged at line"),
        (lambda path: path.write_bytes(b""), "contains no fio results"),
        (lambda path: path.write_text("fio: no such device\n"), "contains no fio results"),
        (lambda path: path.write_bytes(bytes(range(256))), "contains no fio results"),
        (lambda path: path.write_text('{"name": "package"}'), "contains no fio results"),
        (lambda path: path.write_text("[" * 100_000), "contains no fio results"),
        (lambda path: path.write_text("[1, 2]"), "contains no fio results"),
        (edited(jobs=[]), "contains no jobs"),
        (lambda path: path.write_text(path.read_text().replace("fio-3.33", "fio-2.2.10")), "is from fio-2.2.10"),
        (lambda path: path.write_bytes(b" " * (packed.FILE_BYTES + 1)), "has more than 16 MiB"),
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


def spoilt(*way: object, value: object) -> Callable[[Path], None]:
    """Return a change of one value of the first job in a file."""

    def spoil(path: Path) -> None:
        told = json.loads(path.read_text())
        dig(told, "jobs", 0, *way[:-1])[way[-1]] = value
        path.write_text(json.dumps(told))

    return spoil


LAT, CLAT = ("sync", "lat_ns"), ("write", "clat_ns")


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (spoilt(*LAT, "max", value=-5), "has sync max -5, which is impossible"),
        (spoilt(*LAT, "mean", value=-1.5), "has sync mean -1.5, which is impossible"),
        (spoilt(*LAT, "stddev", value="0.5"), 'has sync stddev "0.5", which is impossible'),
        (spoilt(*CLAT, "mean", value=True), "has write mean true, which is impossible"),
        (spoilt(*LAT, "max", value=2**63), "has sync max 9223372036854775808, which is impossible"),
        (spoilt(*LAT, "percentile", "99.000000", value=-1), "has sync 99.000000 -1, which is impossible"),
        (
            spoilt(*LAT, "percentile", "50.000000", value=10**12),
            "has percentiles of sync that decrease",
        ),
        (spoilt(*LAT, "max", value=1000), "has a mean of sync above the maximum"),
        (spoilt(*LAT, "mean", value=0.5), "has a mean of sync below the minimum"),
        (spoilt(*LAT, "percentile", "99.990000", value=10**12), "has a percentile of sync above the maximum"),
        (spoilt(*LAT, "bins", value={"1000": 999, "1000000000000": 1}), "has a bin of sync above the maximum"),
        (spoilt(*LAT, "bins", value={"1000": 1001, "2000": -1}), "has a bin below zero"),
        (spoilt(*LAT, "bins", value={"-1000": 1000}), "has a bin below zero"),
        (spoilt(*LAT, "bins", value={"1000": True}), "is damaged: its bins must be numbers"),
        (spoilt(*LAT, "N", value=-1000), "has sync N -1000, which is impossible"),
        (spoilt(*LAT, "N", value=999.5), "has sync N 999.5, which must be a whole number"),
        (spoilt("write", "total_ios", value=-1), "has write total_ios -1, which is impossible"),
        (spoilt("write", "io_bytes", value=0.5), "has write io_bytes 0.5, which must be a whole number"),
        (spoilt("write", "runtime", value=-3), "has write runtime -3, which is impossible"),
        (spoilt("write", "runtime", value=0), "has operations of write with a run time of 0"),
        (spoilt("error", value="EIO"), 'has error "EIO", which is impossible'),
        (spoilt(*LAT, "mean", value=math.nan), "has the number NaN, which is impossible"),
        (spoilt(*LAT, "mean", value=math.inf), "has the number Infinity, which is impossible"),
        (
            lambda path: path.write_text(path.read_text().replace('"error" : 0', f'"error" : {"9" * 10_000}')),
            "is damaged: a number has too many digits",
        ),
        (
            lambda path: path.write_text(
                path.read_text().replace('"error" : 0', f'"x" : {"[" * 200_000}{"]" * 200_000}')
            ),
            "contains no fio results",
        ),
    ],
)
def test_a_file_with_a_number_that_fio_cannot_have_counted_is_left_out(tmp_path: Path, spoil: Callable, reason: str):
    folder = make_battery(tmp_path, jobs=3)
    spoil(folder / "fio_results_write_a2.json")
    battery = fio.read_battery(folder)
    assert [row["job_Id"] for row in battery["samples"]] == ["a1", "a3"]
    (left,) = battery["left_out"]
    assert left["file"] == "fio_results_write_a2.json"
    assert left["reason"].startswith(reason)


def test_percentiles_are_of_buckets_and_may_lie_above_the_maximum_by_a_part(tmp_path: Path):
    path = make_battery(tmp_path, jobs=1) / "fio_results_write_a1.json"
    largest = dig(json.loads(path.read_text()), "jobs", 0, *LAT, "max")
    spoilt(*LAT, "percentile", "99.990000", value=int(largest * 1.0078))(path)
    battery = fio.read_battery(path.parent)
    assert battery["left_out"] == []
    assert battery["samples"][0]["sync_lat_p99.99_ms"] > battery["samples"][0]["sync_lat_max_ms"]


def test_reads_and_writes_that_fio_counted_together_are_left_out(run_fio):
    path = run_fio("a1", rw="randrw", bs="4k", size="1m", unified_rw_reporting=1)
    battery = fio.read_battery(path.parent)
    assert battery["samples"] == []
    assert battery["left_out"][0]["reason"].startswith("counts reads and writes together")


@pytest.mark.rule(9)
@pytest.mark.parametrize(
    "change, fault",
    [
        (changed(error=28), "a1: fio ended with error 28 (No space left on device)"),
        (changed(total_err=3, first_error=5), "a1: 3 operations failed"),
        (lambda told: dig(told, "jobs", 0, "write").update(io_bytes=1_000_000, total_ios=434),
         "a1: it read and wrote 1000000 bytes instead of 2300000"),
        (lambda told: dig(told, "jobs", 0, "job options").update(size="1m"),
         "a1: it read and wrote 2300000 bytes instead of 1048576"),
        (lambda told: dig(told, "jobs", 0, "job options").update(fdatasync="10"),
         "a1: it synced 1000 writes 1000 times instead of 100"),
        (lambda told: dig(told, "jobs", 0, "sync", "lat_ns").update(N=998),
         "a1: it synced 1000 writes 998 times instead of 1000"),
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
    assert fio_options.compute_asked_bytes(etcd) == (209_715_200, 2300)
    assert fio_options.compute_asked_bytes(etcd | {"numjobs": "4", "loops": "2"}) == (8 * 209_715_200, 8 * 2300)
    assert fio_options.compute_asked_bytes(etcd | {"io_size": "1g"}) == (2**30, 2300)
    for other in ({"runtime": "20"}, {"number_ios": "5"}, {"size": "20%"}, {"bssplit": "4k/50:8k/50"}, {"size": ""}):
        assert fio_options.compute_asked_bytes(etcd | other) is None


@pytest.mark.thorough
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
            tree.add_content("a1.json", json.dumps(told).encode())
            found = [
                battery | {"histograms": fio.convert_to_pairs(battery["histograms"])}
                for battery in tree.list_batteries()
            ]
            assert found[0]["samples"] or tree.left_out
            json.dumps(found, allow_nan=False)
            fio_options.choose_job_names([battery["job_options"] for battery in found], {})


@pytest.mark.thorough
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
