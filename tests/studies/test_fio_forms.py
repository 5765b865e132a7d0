"""The forms in which people have fio's results: what is read of them is what fio measured."""

import bz2
import gzip
import json
import lzma
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sbench.design import records
from sbench.studies.volumes import etcd_metrics, fio, fio_output, fio_text
from tests.helpers.fio_files import imported, job, make_json
from tests.helpers.fio_results import output, text

pytestmark = pytest.mark.thorough

PLAIN = ["--name=etcd", "--rw=write", "--ioengine=sync", "--fdatasync=1", "--size=230k", "--bs=2300"]


def document(**settings: object) -> dict:
    """Return one synthetic output of fio, of a job that ran for 1.1 s."""
    return output(job(**{"bins": False, **settings}))


def columns(source: str) -> list[dict]:
    """Return the columns of the jobs that a text tells of."""
    return [one.columns for part in fio_text.parse_documents(source)[0] for one in fio_output.parse_jobs(part)]


def prefixed(prefix: Callable[[int], str], source: str) -> str:
    """Return a text with something before each of its lines, given their numbers."""
    return "".join(f"{prefix(number)}{line}\n" for number, line in enumerate(source.splitlines()))


WORDS = "------- Running fio -------\nfio: note: a warning\n"
FORMS = {
    "words around": lambda told: WORDS + told + "INFO: 99th percentile of fsync is 2300000\nDONE\n",
    "a brace that a terminal wrote over": lambda told: told.replace("{", "{obs: 1 (f=1): [W(1)][100.0%]\n", 1),
    "a brace that is lost": lambda told: told[told.index("{") + 1 :],
    "Windows' line ends": lambda told: told.replace("\n", "\r\n"),
    "within another document": lambda told: json.dumps({"node": "a", "result": [json.loads(told)]}),
    "keys sorted": lambda told: json.dumps(json.loads(told), sort_keys=True, indent=1),
    "compose": lambda told: prefixed(lambda number: "etcd-perf-1  | ", told),
    "kubectl with times": lambda told: prefixed(
        lambda n: f"2026-11-2{n % 9}T10:00:{n % 60:02}.{n:09}Z stdout F ", told
    ),
    "journal": lambda told: prefixed(
        lambda number: f"Nov 26 10:00:{number % 60:02} node1 fio[{4711 + number}]: ", told
    ),
    "docker's file": lambda told: "".join(
        json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-26T10:00:00Z"}) + "\n"
        for line in told.splitlines()
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_json_is_read_whatever_stands_around_it(form: str):
    told = text(document())
    assert columns(FORMS[form](told)) == columns(told)


@pytest.mark.parametrize("name", ["etcd.txt", "etcd.log", "etcd.out", "etcd.JSON", "etcd", "etcd.json.bak"])
def test_results_are_recognised_by_their_content(tmp_path: Path, name: str):
    make_json(tmp_path / "in" / name)
    (record,) = imported(tmp_path, [tmp_path / "in"])["records"]
    assert [row["sync_N"] for row in record["samples"]] == [1000]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("name", ["a.json.gz", "a.bin"])
def test_a_single_file_may_be_packed(tmp_path: Path, pack: Callable[[bytes], bytes], name: str):
    path = make_json(tmp_path / "in" / name)
    path.write_bytes(pack(path.read_bytes()))
    (record,) = imported(tmp_path, [path])["records"]
    assert [row["sync_N"] for row in record["samples"]] == [1000]


def test_a_zip_is_read_as_a_tarball_is(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "results.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in (1, 2):
            path = make_json(tmp_path / "a.json", f"a{number}", number, began_s=1.6e9 + 100 * number)
            archive.write(path, f"b1_t1-fio-node/{number}.json")
        archive.writestr("b1_t1-fio-node/README.md", "How this was made\n")
    told = imported(tmp_path, [tmp_path / "results.zip"])
    (record,) = told["records"]
    assert (record["cell"]["store"], record["cell"]["host"], len(record["samples"])) == ("b1_t1", "node", 2)
    assert [one["reason"] for one in told["left_out"]] == ["contains no fio results"]


@pytest.mark.parametrize("name", ["../out.json", "/etc/out.json", "..\\out.json"])
def test_a_zip_that_leads_outside_is_refused(tmp_path: Path, name: str):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(name, text(document()))
    make_json(tmp_path / "good.json")
    (left,) = imported(tmp_path, [tmp_path / "bad.zip", tmp_path / "good.json"])["left_out"]
    assert left["reason"].startswith("is not unpacked: ")


@pytest.mark.parametrize("form", ["compose", "kubectl with times", "journal"])
def test_each_file_that_is_not_read_is_named(tmp_path: Path, form: str):
    make_json(tmp_path / "in" / "a.json")
    (tmp_path / "in" / "plot.py").write_text("print('nothing of use')\n")
    (tmp_path / "in" / "picture").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "in" / "half.log").write_text(FORMS[form](text(document())[:2000]))
    left = {one["file"].rpartition("/")[2]: one["reason"] for one in imported(tmp_path, [tmp_path / "in"])["left_out"]}
    assert left["plot.py"] == left["picture"] == "contains no fio results"
    assert left["half.log"].startswith("is cut off")


# Several documents in one file.


def appended(*runs: dict) -> str:
    return "".join(map(text, runs))


def test_appended_runs_are_told_from_states_of_one_run():
    runs = [document(began_s=1.6e9 + 5 * number) for number in range(3)]
    assert [one["write_ios"] for one in columns(appended(*runs))] == [1000, 1000, 1000]
    # --status-interval: the same run at a later moment.
    states = [document(writes=writes) for writes in (300, 600, 1000)]
    for state in states:
        state["jobs"][0]["job options"] = runs[0]["jobs"][0]["job options"]
    assert [one["write_ios"] for one in columns(appended(*states))] == [1000]
    for part in (*runs, *states):
        del part["timestamp"], part["timestamp_ms"]
    assert len(columns(appended(*runs))) == 3
    assert len(columns(appended(*states))) == 1


def test_of_a_last_state_that_is_cut_off_the_one_before_counts_and_the_rest_is_named():
    states = [document(writes=writes) for writes in (300, 600, 1000)]
    found, wrong = fio_text.parse_documents(appended(*states)[:-1500])
    assert [one.columns["write_ios"] for part in found for one in fio_output.parse_jobs(part)] == [600]
    assert wrong == "is cut off in output 3 of 3: fio was interrupted, or the copy is incomplete"


def test_clients_are_hosts_and_what_they_did_together_is_not_counted_again(tmp_path: Path):
    told = document()
    (entry,) = told.pop("jobs")
    del told["timestamp_ms"], told["disk_util"]
    clients = [entry | {"hostname": host, "port": 8765} for host in ("10.0.0.1", "10.0.0.2")]
    told["client_stats"] = [*clients, entry | {"jobname": "All clients"}]
    path = tmp_path / "client.json"
    path.write_text(prefixed(lambda number: "<10.0.0.1> ", "fio-3.33\nStarting 1 process") + text(told))
    records = imported(tmp_path, [path])["records"]
    assert [record["cell"]["host"] for record in records] == ["10.0.0.1", "10.0.0.2"]
    assert [len(record["samples"]) for record in records] == [1, 1]


@pytest.mark.parametrize(
    "names, hosts",
    [
        (["results-master-1-fio.json", "results-master-2-fio.json"], ["master-1", "master-2"]),
        (["fio_worker01.log", "fio_worker02.log"], ["worker01", "worker02"]),
        (["ip-10-0-1-2.ec2.internal.json", "ip-10-0-1-3.ec2.internal.json"], ["ip-10-0-1-2", "ip-10-0-1-3"]),
        (["10.0.0.1.json", "10.0.0.2.json"], ["10.0.0.1", "10.0.0.2"]),
        (["before.json", "after.json"], ["after", "before"]),
        (["run1.json", "run2.json"], ["unknown"]),
    ],
)
def test_one_file_per_host_is_one_series_per_host(tmp_path: Path, names: list[str], hosts: list[str]):
    for number, name in enumerate(names):
        make_json(
            tmp_path / "in" / name,
            "x",
            number + 1,
            lambda told: told["jobs"][0].update(jobname="etcd"),
            began_s=1.6e9 + 100 * number,
        )
    records = imported(tmp_path, [tmp_path / "in"])["records"]
    assert sorted(record["cell"]["host"].partition(".ec2")[0] for record in records) == hosts


def test_what_ran_at_one_time_ran_on_several_hosts(tmp_path: Path):
    for number in (1, 2):
        make_json(
            tmp_path / "in" / f"etcd-{number}.json",
            "x",
            number,
            lambda told: told["jobs"][0].update(jobname="e"),
            writes=5000,
            began_s=1.6e9 + number,
        )
    records = imported(tmp_path, [tmp_path / "in"])["records"]
    assert [record["cell"]["host"] for record in records] == ["etcd-1", "etcd-2"]


# What fio writes for people.


@pytest.fixture(scope="module", params=[[], ["--numjobs=3"], ["--numjobs=3", "--group_reporting"], ["--rw=randrw"]])
def both_forms(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[str, dict]:
    """One run of fio in the form for people and as JSON."""
    folder = tmp_path_factory.mktemp("fio")
    command = ["fio", *PLAIN, *request.param, f"--directory={folder}", "--output-format=normal,json", "--eta=never"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    begin = done.stdout.index('{\n  "fio version"')
    end = done.stdout.index("\n}", begin) + 2
    return done.stdout[:begin] + done.stdout[end:], json.loads(done.stdout[begin:end])


def test_what_fio_writes_for_people_says_what_its_json_says(both_forms: tuple[str, dict]):
    shown, told = both_forms
    (of_people,) = fio_output.parse_jobs(fio_text.parse_documents(shown)[0][0])
    (of_json,) = fio_output.parse_jobs(told)
    read, exact = of_people.columns, of_json.columns
    assert (read["read_ios"], read["write_ios"]) == (exact["read_ios"], exact["write_ios"])
    assert (read["read_bytes"], read["write_bytes"]) == (exact["read_bytes"], exact["write_bytes"])
    for name in ("sync_lat_max_ms", "sync_lat_mean_ms", "sync_lat_p50_ms", "sync_lat_p99_ms"):
        # Numbers are raised to whole microseconds, or milliseconds; processes have no percentiles together.
        assert (read.get(name) is None) == (exact.get(name) is None)
        assert read.get(name) is None or read[name] == pytest.approx(exact[name], rel=0.01, abs=1.0)
    assert read["runtime_s"] == exact["runtime_s"]
    if not exact["read_ios"]:
        assert read["sync_N"] == exact["sync_N"]
    for key in ("rw", "bs", "ioengine"):
        assert of_people.options[key] == of_json.options[key]
    assert of_people.options.get("numjobs") == of_json.options.get("numjobs")


def test_hosts_of_fios_client_are_told_apart_in_what_it_writes_for_people(both_forms: tuple[str, dict]):
    shown, _ = both_forms
    _, report = re.split(r"^(?=.*\(groupid=0)", shown.partition("\nStarting")[2], maxsplit=1, flags=re.MULTILINE)
    jobs = "".join(f"<{host}> {line}\n" for host in ("n1", "n2") for line in shown.splitlines() if "(g=0)" in line)
    together = re.sub(r"^\S.*(?=: \(groupid)", "All clients", report, flags=re.MULTILINE)
    version = "hostname=n1, be=0, 64-bit, os=Linux, arch=x86-64, fio=fio-3.33, flags=1\n"
    (found,), _ = fio_text.parse_documents(f"{version}{jobs}<n1> \n{report}<n2> \n{report}{together}")
    (alone,) = fio_output.parse_jobs(fio_text.parse_documents(shown)[0][0])
    of_hosts = fio_output.parse_jobs(found)
    assert [(one.host, one.version) for one in of_hosts] == [("n1", "fio-3.33"), ("n2", "fio-3.33")]
    assert [one.columns for one in of_hosts] == [alone.columns] * 2
    assert [one.options.get("numjobs") for one in of_hosts] == [alone.options.get("numjobs")] * 2


def test_a_run_in_both_forms_is_counted_once(both_forms: tuple[str, dict]):
    shown, told = both_forms
    assert len(columns(f"{shown}\n{json.dumps(told)}")) == 1


def test_ranges_of_rounded_percentiles_hold_the_exact_ones(both_forms: tuple[str, dict]):
    shown, told = both_forms
    (of_people,) = fio_output.parse_jobs(fio_text.parse_documents(shown)[0][0])
    (of_json,) = fio_output.parse_jobs(told)
    rows, exact = of_people.histograms["write"].list_rows(), of_json.histograms["write"].list_rows()
    assert sum(count for *_, count in rows) == sum(count for *_, count in exact) == of_json.columns["write_N"]
    # The n-th operation lies between the same bounds, or wider ones.
    lows, highs = (sorted(row[end] for row in rows for _ in range(row[2])) for end in (0, 1))
    exact_lows, exact_highs = (sorted(row[end] for row in exact for _ in range(row[2])) for end in (0, 1))
    assert all(low <= other for low, other in zip(lows, exact_lows, strict=True))
    assert all(high >= other for high, other in zip(highs, exact_highs, strict=True))


# etcd's own histogram.

METRICS = """# HELP etcd_disk_wal_fsync_duration_seconds The latency distributions of fsync called by wal.
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 500
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 900
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.004"} %d
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.008"} 9990
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.016"} 9998
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 10000
etcd_disk_wal_fsync_duration_seconds_sum 30.5
etcd_disk_wal_fsync_duration_seconds_count 10000
"""


def test_etcds_own_histogram_is_read_by_its_bounds():
    (read,) = etcd_metrics.parse_jobs(METRICS % 9000)
    assert read.columns["sync_N"] == 10_000
    assert read.columns["sync_lat_mean_ms"] == pytest.approx(3.05)
    ms = [(low / 1e6, high / 1e6, count) for low, high, count in read.histograms["sync"].list_rows()]
    assert ms[:5] == [(0, 1, 500), (1, 2, 400), (2, 4, 8100), (4, 8, 990), (8, 16, 8)]
    assert ms[5][0] == 16
    labelled = METRICS.replace("{le=", '{instance="10.0.0.7:2379",job="etcd",le=')
    assert etcd_metrics.parse_jobs(labelled % 9000)[0].host == "10.0.0.7:2379"
    assert (
        etcd_metrics.parse_jobs(prefixed(lambda number: f"line {number}: ", METRICS % 9000))[0].columns == read.columns
    )


PEOPLE = """etcd: (g=0): rw=write, bs=(R) 2300B-2300B, (W) 2300B-2300B, (T) 2300B-2300B, ioengine=sync, iodepth=1
fio-3.33
etcd: (groupid=0, jobs=1): err= 0: pid=4711: Thu Nov 26 10:00:00 2026
  write: IOPS=100, BW=225KiB/s (230kB/s)(225KiB/1000msec); 0 zone resets
    clat (usec): min=1, max=20, avg=5.00, stdev=1.00
  fsync/fdatasync/sync_file_range:
    sync (msec): min=1, max=20, avg=5.00, stdev=1.00
     issued rwts: total=0,100,0,0 short=100,0,0,0 dropped=0,0,0,0
"""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("avg=5.00", "avg=5.0.0"),
        lambda text: text.replace("IOPS=100", f"IOPS={'9' * 400}k"),
        lambda text: text.replace("total=0,100,0,0 short=100,0,0,0", "total=, short=,"),
        lambda text: METRICS % 9000 + 'etcd_disk_wal_fsync_duration_seconds_bucket{le="1-2"} 5\n',
        lambda text: METRICS % 9000 + 'etcd_disk_wal_fsync_duration_seconds_bucket{le="nan"} 5\n',
        lambda text: METRICS.replace("10000", "1e400") % 9000,
        lambda text: '{"fio version": "fio-3.33", "timestamp": "x", "jobs": 5}' * 3,
        lambda text: " " * 10_000_000,
    ],
)
def test_a_number_that_is_none_is_named_and_no_traceback(tmp_path: Path, spoil: Callable[[str], str]):
    make_json(tmp_path / "in" / "good.json")
    (tmp_path / "in" / "bad.txt").write_text(spoil(PEOPLE))
    told = imported(tmp_path, [tmp_path / "in"])
    assert [Path(left["file"]).name for left in told["left_out"]] == ["bad.txt"]
    assert len(told["records"]) == 1


def test_a_histogram_without_its_sum_is_a_record_that_can_be_used(tmp_path: Path):
    text = METRICS % 9000
    (tmp_path / "node1.txt").write_text("".join(line for line in text.splitlines(True) if "_sum" not in line))
    (record,) = imported(tmp_path, [tmp_path / "node1.txt"])["records"]
    records.expect_sound(record, "node1.txt")
    assert record["samples"][0]["sync_lat_mean_ms"] is None


def test_a_histogram_that_contradicts_itself_is_named(tmp_path: Path):
    make_json(tmp_path / "in" / "good.json")
    (tmp_path / "in" / "metrics.txt").write_text(METRICS % 100)
    (left,) = imported(tmp_path, [tmp_path / "in"])["left_out"]
    assert left["reason"].startswith("has cumulative buckets of etcd_disk_wal_fsync_duration_seconds that decrease")


# What cannot have been measured, or tells of something else.


def faults(tmp_path: Path, change: Callable[[dict], object], words: str = "", **settings: object) -> list[str]:
    """Return what is wrong with a job, with its id left out."""
    path = make_json(tmp_path / "a1.json", change=change, **settings)
    path.write_text(words + path.read_text())
    return [fault.removeprefix("a1: ") for fault in fio.read_battery(tmp_path)["faults"]]


def options(**values: str) -> Callable[[dict], None]:
    return lambda told: told["jobs"][0]["job options"].update(values)


def test_a_run_that_was_ended_early_is_not_a_whole_one(tmp_path: Path):
    assert faults(tmp_path, options(), "\nfio: terminating on signal 2\n") == [
        "it ended early, after 1.06 s, by signal 2"
    ]
    assert faults(tmp_path, options(runtime="30", size="200m")) == ["it ended early, after 1.06 of 30 s"]
    # Its files were done before its time was over.
    assert faults(tmp_path, options(runtime="30")) == []
    assert faults(tmp_path, options(runtime="30", time_based="1")) == ["it ended early, after 1.06 of 30 s"]


def test_latencies_that_add_up_to_more_than_the_time_are_impossible(tmp_path: Path):
    def slower(told: dict) -> None:
        told["jobs"][0]["sync"]["lat_ns"] |= {"mean": 41e9, "max": 94e9}

    (fault,) = faults(tmp_path, slower, bins=False)
    assert fault == "its sync latencies add up to 4.1e+04 s, more than run time × depth = 1.07 s"


def test_unlike_jobs_told_as_one_are_not_judged_by_the_options_of_the_last(tmp_path: Path):
    def together(told: dict) -> None:
        told["jobs"][0]["job options"] = {"rw": "randread", "bs": "16k", "size": "2300000", "group_reporting": "1"}

    battery_faults = faults(tmp_path, together)
    assert battery_faults == [
        "fio merged jobs with different options (group_reporting); write each job to a separate file"
    ]
    assert fio.read_battery(tmp_path)["job_options"] == {}


def test_latencies_that_were_switched_off_are_not_blamed_on_the_version(tmp_path: Path):
    def off(told: dict) -> None:
        told["jobs"][0]["sync"]["lat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
        options(gtod_reduce="1")(told)

    assert faults(tmp_path, off, bins=False) == ["gtod_reduce switched its latencies off; remove that option"]


def test_writes_in_flight_at_the_end_are_not_forced_any_more(tmp_path: Path):
    def deep(told: dict) -> None:
        options(iodepth="32", numjobs="4", size="575000")(told)
        told["jobs"][0]["sync"]["lat_ns"]["N"] = 900

    assert faults(tmp_path, deep, bins=False) == []
    shallow = options(iodepth="1")

    def missing(told: dict) -> None:
        deep(told)
        shallow(told)

    assert faults(tmp_path, missing, bins=False) == ["it synced 1000 writes 900 times instead of 1000"]
