"""Batteries of fio, run for real: what they leave behind, what they refuse, and that they always clean up."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from batteries import BATTERY, ENDLESS, HOST, LOAD, TINY, Place, emptied, heard, needed, one_problem, until
from conftest import ROOT, artefact, processes_of

from sbench.studies.volumes import fio, fio_options

JOBS = sorted((ROOT / "config/fio").glob("*.fio"))

shells = pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])


@pytest.fixture
def small(place: Place) -> Iterator[Place]:
    """Return a place whose volume is a file system of 8 MiB that nobody else uses."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place.volume)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own needs the right to mount one")
    yield place
    subprocess.run(["umount", str(place.volume)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """Return a block device of 8 MiB that nobody else uses."""
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 8 * 2**20)
    done = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("a block device of its own needs the right to make one")
    yield done.stdout.strip()
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)


# --- What a battery leaves behind ---


@shells
def test_a_battery_leaves_its_results_in_the_published_layout_and_nothing_on_the_volume(place, shell):
    done = place.run(shell=needed(shell), jobs=6)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    ids = ["a1", "a2", "a3", "a4", "a5", "b1"]
    names = [f"{kind.format(id)}" for id in ids for kind in ("fio_results_write_{}.json", "facts_{}.txt")]
    assert sorted(path.name for path in place.results.iterdir()) == sorted(
        [*names, "battery.txt", "job.fio", "runtime.log"]
    )
    assert (place.results / "job.fio").read_text(encoding="utf-8").strip() == TINY.strip()
    assert [line[1:3] for line in done.stderr.splitlines() if line.startswith("[")] == ids
    log = (place.results / "runtime.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" <=> ")[:2] for line in log] == [[f"[{id}]", HOST] for id in ids]
    assert all(re.search(r"load average: [\d.]+, [\d.]+, [\d.]+$", line) for line in log)
    facts = place.facts()
    assert (facts["status"], facts["jobs"], facts["jobs_done"], facts["format"]) == ("complete", "6", "6", "1")
    assert facts["fio"].startswith("fio-3.")
    assert facts.keys() >= {"kernel", "cpu", "cores", "mount_type", "mount_options", "file_system_bytes", "ended_utc"}
    assert emptied(place)
    until(lambda: processes_of(str(place.folder)) == [])


def test_the_results_are_what_the_reader_of_batteries_expects(place):
    assert place.run(jobs=6).returncode == 0
    read = fio.read_battery(place.results)
    assert (read["faults"], read["left_out"], read["battery"], read["cluster"]) == ([], [], "b2", "t1")
    assert [row["job_Id"] for row in read["samples"]] == ["a1", "a2", "a3", "a4", "a5", "b1"]
    for row in read["samples"]:
        bins = read["histograms"][row["job_Id"]]["sync"]
        assert sum(count for _, count in bins) == row["sync_N"] > 0
        assert row["write_bytes"] == 64 * 1024 // 2300 * 2300
        assert None not in (row["load1_before"], row["load1_after"], row["free_gib_before"], row["started_s"])
    assert fio_options.resolve_options(read["job_options"]) == fio_options.resolve_options(
        fio_options.parse_job_file(TINY)
    )


def test_a_pause_lies_between_jobs_which_run_one_after_the_other(place):
    assert place.run(jobs=3, pause=0.4).returncode == 0
    jobs = [place.facts(f"facts_{id}.txt") for id in ("a1", "a2", "a3")]
    for before, after in itertools.pairwise(jobs):
        assert float(after["started_s"]) >= float(before["ended_s"]) + 0.4
    assert all(float(job["ended_s"]) > float(job["started_s"]) for job in jobs)


@shells
def test_a_clock_that_is_set_back_during_a_battery_reorders_no_jobs(place, monkeypatch, tmp_path, shell):
    """A date that goes an hour back from its third call on."""
    calls, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    back = f'[ "$(wc -l <{calls})" -lt 3 ] || set -- -d "1 hour ago" "$@"'
    text = f'#!/bin/sh\ncase $* in *-d*) ;; *) echo >>{calls}; {back} ;; esac\nexec {shutil.which("date")} "$@"\n'
    (tools / "date").write_text(text, encoding="utf-8")
    (tools / "date").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert place.run(jobs=3, shell=needed(shell)).returncode == 0
    read = fio.read_battery(place.results)
    starts = [row["started_s"] for row in read["samples"]]
    assert ([row["job_Id"] for row in read["samples"]], starts[0]) == (["a1", "a2", "a3"], 0)
    assert 0 < starts[1] < starts[2] < 60
    assert read["started_utc"] <= read["ended_utc"]


@shells
def test_ids_go_on_after_z5(shell):
    functions = BATTERY.read_text(encoding="utf-8").rpartition("main ")[0]
    numbers = "for number in 1 5 6 50 130 131 135 136 3510 3511; do name_job $number && echo $id; done"
    done = subprocess.run(
        [*needed(shell).split(), "-c", functions + numbers], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["a1", "a5", "b1", "j5", "z5", "aa1", "aa5", "ab1", "zz5", "aaa1"]


@pytest.mark.parametrize("kind", ["write", "read"])
def test_what_is_written_is_written_anew_and_what_is_read_is_written_once(small, kind):
    text = f"[fio_io]\nrw={kind}\nbs=64k\nsize=1m\nnumjobs=2\ngroup_reporting=1\nfallocate=none\n"
    assert small.run(text, jobs=3).returncode == 0
    free = [int(small.facts(f"facts_{id}.txt")["free_bytes_before"]) for id in ("a1", "a2", "a3")]
    kept = [free[0] - later for later in free[1:]]
    assert kept == ([0, 0] if kind == "write" else [2 * 2**20, 2 * 2**20])


def test_the_load_in_the_background_writes_from_before_the_first_job_until_after_the_last(place):
    other = place.folder / "other"
    other.mkdir()
    done = place.run(background_text=LOAD, background_name="load", background_directory=other)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert f"background: load writes in {other}" in lines[: next(n for n, line in enumerate(lines) if "[a1]" in line)]
    load = artefact(place.results / "background.json")["jobs"][0]
    assert load["write"]["io_bytes"] > 0
    read = fio.read_battery(place.results)
    assert read["faults"] == []
    assert read["background"]["job"] == "load"
    assert read["background"]["runtime_s"] >= sum(row["runtime_s"] for row in read["samples"])
    assert not any(other.iterdir())
    assert emptied(place)
    until(lambda: processes_of(str(place.folder)) == [])


def test_a_load_that_ends_early_ends_the_battery_which_says_so_and_keeps_what_it_has(place):
    short = "[fio_io]\nrw=write\nbs=4k\nsize=256k\n"
    done = place.run(background_text=short, background_name="short", jobs=200)
    assert done.returncode == 1
    assert place.facts()["status"].startswith("failed: the background short ended before the battery")
    assert emptied(place)


# --- The job files ---


@pytest.mark.parametrize("path", JOBS, ids=[path.stem for path in JOBS])
def test_a_job_file_says_what_it_gauges_and_runs_by_hand_and_in_a_battery(place, path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert "?" in text.partition("[fio_io]")[0]
    subprocess.run(["fio", "--parse-only", path], check=True)
    # The same job in small.
    text = re.sub(r"(?m)^size=.*$", "size=2m", re.sub(r"(?m)^runtime=.*$", "runtime=1", text))
    short = place.folder / "short.fio"
    short.write_text(text, encoding="utf-8")
    by_hand = ["fio", f"--directory={place.out}", "--output-format=json+", short]
    done = subprocess.run(by_hand, capture_output=True, text=True, check=False)
    if "io_uring" in path.name and done.returncode:
        pytest.skip(f"io_uring is not allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["jobs"][0]["jobname"] == "fio_io"
    assert place.run(text, jobs=1).returncode == 0
    read = fio.read_battery(place.results)
    assert (read["faults"], len(read["samples"])) == ([], 1)
    assert fio_options.resolve_options(read["job_options"]) == fio_options.resolve_options(
        fio_options.parse_job_file(text)
    )


@pytest.mark.parametrize(
    "text, reason",
    [
        ("[a]\nrw=write\nsize=1m\n", "must have a single job, [fio_io] (got: a)"),
        (f"{TINY}[two]\nrw=read\n", "(got: fio_io two)"),
        (f"{TINY}filename=/dev/sda\n", "must not set filename, because the battery places the files; remove the line"),
        (f"{TINY}directory = /\n", "must not set directory"),
        (f"{TINY}colour=blue\n", "fio refuses it: "),
        ("[fio_io]\nrw=write\n", "must give the size of its files; add a line such as size=200m"),
        ("[fio_io]\nrw=write\nsize=50%\n", "must give the size of its files"),
    ],
)
def test_a_job_that_cannot_be_run_is_refused_in_one_line(place, text, reason):
    assert reason in one_problem(place.run(text))
    assert not any(place.out.iterdir())
    assert emptied(place)


# --- What is refused ---


@shells
@pytest.mark.parametrize(
    "options, reason",
    [
        ({"battery": None}, "--battery is missing"),
        ({"battery": "b_2"}, "must not contain _, which separates battery and cluster in names of results (got 'b_2')"),
        ({"cluster": "t 1"}, "--cluster must be a name of letters, digits, dots, _ and -, without -fio- (got 't 1')"),
        ({"job_text": None}, "--job is missing; name a job file"),
        ({"job_text": None, "job": "nowhere.fio"}, "the job file nowhere.fio does not exist"),
        ({"jobs": "many"}, "--jobs must be a number (got 'many')"),
        ({"jobs": "1.5"}, "--jobs must be a whole number (got '1.5')"),
        ({"jobs": 0}, "--jobs must be at least 1 (got 0)"),
        ({"pause": "-1"}, "--pause must be a number (got '-1')"),
        ({"directory": None}, "--directory is missing; name a folder on the volume"),
        ({"directory": "/nowhere"}, "the folder /nowhere does not exist"),
        ({"directory": "/tmp\n/etc"}, "--directory: the name of a folder must not contain a line break"),
        ({"out": None}, "--out is missing"),
        ({"tar": True}, "--out and --tar exclude each other"),
        ({"background_directory": "/"}, "--background-directory needs --background"),
        ({"colour": "blue"}, "--colour is not an option; --help lists the options"),
        ({"reserve": 10**9}, "free; the files need 1, and 1000000000 must stay free (--reserve); free some space"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_mistake_is_one_line_and_nothing_is_begun(place, shell, options, reason):
    assert reason in one_problem(place.run(shell=needed(shell), **options))
    assert not any(place.out.iterdir())
    assert emptied(place)


def test_a_machine_without_fio_is_told_how_to_get_it(place, monkeypatch):
    tools = place.folder / "tools"
    tools.mkdir()
    for tool in ("sh", "uname"):
        (tools / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tools))
    assert one_problem(place.run()) == f"fio is not on {HOST}; install it: apt install fio, or dnf install fio"


@pytest.mark.parametrize("status", [127, 0], ids=["broken", "another program"])
@shells
def test_a_fio_that_does_not_start_is_passed_over(place, shell, status, monkeypatch):
    broken = place.folder / "broken"
    broken.mkdir()
    (broken / "fio").write_text(f"#!/bin/sh\necho fio: no libaio\nexit {status}\n", encoding="utf-8")
    (broken / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
    done = place.run(shell=needed(shell), jobs=1)
    assert done.returncode == 0, done.stderr
    for tool in ("sh", "uname"):
        (broken / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(broken))
    assert one_problem(place.run()) == f"fio on {HOST} does not start: fio: no libaio"


def test_a_volume_without_room_is_refused_before_anything_is_written(small):
    large = TINY.replace("size=64k", "size=3m\nnumjobs=3")
    assert "has 8 MiB free; the files need 9, and 0 must stay free" in one_problem(small.run(large))
    room = TINY.replace("size=64k", "size=2m\nnumjobs=3")
    load = {"background_text": LOAD.replace("size=1m", "size=3m"), "background_name": "load"}
    assert "the files need 9" in one_problem(small.run(room, **load))
    assert not any(small.volume.iterdir())
    assert small.run(room, jobs=1).returncode == 0


def test_a_volume_that_becomes_full_fails_the_battery_in_fios_words_and_is_cleaned(small):
    slow = "[fio_io]\nrw=write\nbs=4k\nsize=4m\nrate=512k\nfallocate=none\n"
    with small.start(slow) as process:
        heard(process, "[a1]")
        with open(small.volume / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        assert process.wait() == 1
    assert re.match(r"failed: a1: fio: .*No space left on device", small.facts()["status"])
    assert "No space left" in (small.results / "fio_a1.err").read_text(encoding="utf-8")
    assert [path.name for path in small.volume.iterdir()] == ["filler"]


def test_another_battery_in_the_same_folder_is_refused(place):
    with place.start(ENDLESS) as process:
        heard(process, "[a1]")
        line = one_problem(place.run(battery="b3"))
        assert line == f"another battery is running in {place.tested_in} (process {process.pid}); wait for its end"
        process.terminate()
    assert place.run(battery="b3").returncode == 0


def test_what_is_no_batterys_is_never_removed(place):
    place.tested_in.mkdir()
    own = place.tested_in / "thesis.txt"
    own.write_text("years of work", encoding="utf-8")
    assert "has files of other programs; move them away" in one_problem(place.run())
    assert own.read_text(encoding="utf-8") == "years of work"
    own.rename(place.folder / "thesis.txt")
    place.tested_in.rmdir()
    place.tested_in.symlink_to(place.folder)
    assert "is a link, which batteries do not make" in one_problem(place.run())
    assert (place.folder / "thesis.txt").exists()


def test_a_folder_that_any_process_of_the_machine_has_locked_is_left_alone(place):
    place.tested_in.mkdir()
    lock = place.tested_in / "lock"
    with open(lock, "w", encoding="utf-8") as file:
        file.write("7\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        line = one_problem(place.run())
        assert line == f"another battery is running in {place.tested_in} (process 7); wait for its end"
    assert place.run().returncode == 0


def test_results_are_not_overwritten(place):
    assert place.run().returncode == 0
    before = sorted(place.results.iterdir())
    assert "exists already; move it away, or give the battery another name" in one_problem(place.run())
    assert sorted(place.results.iterdir()) == before
    assert emptied(place)


# --- Raw devices ---


def test_a_raw_device_is_measured_where_that_is_said_and_nothing_uses_it(place, disk):
    raw = {"directory": None, "device": disk}
    assert f"the battery would erase {disk}; add --erase to allow this" in one_problem(place.run(**raw))
    done = place.run(**raw, erase=True)
    assert done.returncode == 0, done.stderr
    read = fio.read_battery(place.results)
    assert (read["faults"], len(read["samples"])) == ([], 2)
    assert place.facts()["device"] == Path(disk).name
    large = TINY.replace("size=64k", "size=9m")
    assert f"{disk} has 8 MiB, the job needs 9" in one_problem(place.run(large, **raw, erase=True))


def test_a_raw_device_is_claimed_where_nobody_else_can_write(place, disk, monkeypatch):
    shared, block = place.folder / "shared", Path(disk).name
    shared.mkdir()
    (shared / f"storage-benchmarks-fio-{block}").symlink_to(place.folder)
    monkeypatch.setenv("TMPDIR", str(shared))
    done = place.run(directory=None, device=disk, erase=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in shared.iterdir()] == [f"storage-benchmarks-fio-{block}"]


@pytest.mark.parametrize("use", ["mount", "swap"])
def test_a_device_that_something_uses_is_refused(place, disk, use):
    make, begin, end = {
        "mount": (["mkfs.ext4", "-q", disk], ["mount", disk, place.volume], ["umount", place.volume]),
        "swap": (["mkswap", disk], ["swapon", disk], ["swapoff", disk]),
    }[use]
    for command in (make, begin):
        if not shutil.which(command[0]) or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{command[0]} does not work here")
    try:
        line = one_problem(place.run(directory=None, device=disk, erase=True))
    finally:
        subprocess.run(end, check=True)
    assert f"{disk} is in use by " in line
    assert line.endswith("; name an unused device")


def test_the_disk_of_this_system_and_what_is_no_device_are_refused(place):
    number = os.stat("/").st_dev
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if link.exists() and os.access(f"/dev/{link.resolve().name}", os.W_OK):
        line = one_problem(place.run(directory=None, device=f"/dev/{link.resolve().name}", erase=True))
        assert "is in use by the mount" in line
    line = one_problem(place.run(directory=None, device="/dev/null", erase=True))
    assert f"/dev/null is not a block device of {HOST}" in line


# --- Ends ---


@shells
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_battery_that_is_ended_keeps_what_it_has_and_empties_its_folder(place, shell, number):
    with place.start(TINY, shell=needed(shell), jobs=600, background_text=LOAD, background_name="load") as process:
        heard(process, "[a3]")
        process.send_signal(number)
        assert process.wait() == 1
    facts = place.facts()
    assert (facts["status"], facts["ended_by"]) == ("interrupted", f"signal {number.name.removeprefix('SIG')}")
    assert int(facts["jobs_done"]) >= 2
    assert artefact(place.results / "fio_results_write_a2.json")["jobs"][0]["sync"]["lat_ns"]["bins"]
    assert artefact(place.results / "background.json")["jobs"][0]["write"]["io_bytes"] > 0
    assert emptied(place)
    until(lambda: processes_of(str(place.folder)) == [])


@shells
def test_a_job_that_is_under_way_at_the_time_limit_is_ended_and_kept(place, shell):
    # On a machine that is busy, fio may still be starting at the limit.
    for limit in (1, 8, 64):
        shutil.rmtree(place.results, ignore_errors=True)
        done = place.run(ENDLESS, shell=needed(shell), time_limit=limit)
        assert done.returncode == 1
        assert (place.facts()["status"], place.facts()["ended_by"]) == ("interrupted", f"the time limit of {limit} s")
        read = fio.read_battery(place.results)
        if any(row["sync_N"] for row in read["samples"]):
            break
    (row,) = read["samples"]
    assert row["job_Id"] == "a1"
    assert row["sync_N"] > 0
    assert "the battery ended early: interrupted" in read["faults"]
    assert emptied(place)


@shells
def test_a_battery_ends_when_its_input_does(place, shell):
    with place.start(ENDLESS, shell=needed(shell), watch_input=True) as process:
        heard(process, "[a1]")
        process.stdin.close()
        assert process.wait() == 1
    assert place.facts()["status"] == "interrupted"
    assert emptied(place)


@shells
def test_what_a_killed_battery_left_is_removed_by_the_next(place, shell):
    load = {"background_text": LOAD, "background_name": "load"}
    with place.start(ENDLESS, shell=needed(shell), **load) as process:
        heard(process, "[a1]")
        process.kill()
    assert place.facts()["status"] == "interrupted"
    assert {path.name for path in place.tested_in.iterdir()} == {"lock", "files", "background"}
    shutil.rmtree(place.results)
    done = place.run(shell=shell)
    assert done.returncode == 0, done.stderr
    assert f"removed the files that a killed battery left in {place.tested_in}" in done.stderr
    assert emptied(place)
    until(lambda: processes_of(str(place.folder)) == [])
