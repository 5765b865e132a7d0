"""Batteries of fio on another machine: they come back as a tarball, or not at all, and leave nothing there."""

import os
import signal
import subprocess

import pytest
from batteries import ENDLESS, HOST, TINY, Place, emptied, heard, needed, options_of, started, until
from conftest import ROOT, processes_of

from sbench.studies.volumes import fio

pytestmark = pytest.mark.late

COLLECT = ROOT / "scripts/sbench/studies/volumes/collect_fio.sh"


@pytest.fixture
def collect(place: Place):
    """Return a function that starts a collection, whose battery runs where a command leads to."""

    def start(*command: str, text: str = TINY, **options: object) -> subprocess.Popen:
        job = place.folder / "tiny.fio"
        job.write_text("# What's 'it' \\ gauge?\n" + text, encoding="utf-8")
        named = {
            "battery": "b2",
            "cluster": "t1",
            "directory": place.volume,
            "job": job,
            "jobs": 2,
            "pause": 0,
            "reserve": 0,
            "out": place.out,
            **options,
        }
        return started([str(COLLECT), *options_of(named), "--", *command])

    return start


def unpacked(place: Place) -> dict:
    """Return what the tarball of a collection says, and see that nothing else came with it."""
    assert [path.name for path in place.out.iterdir()] == [f"{place.results.name}.tar.gz"]
    subprocess.run(["tar", "-xzf", f"{place.results}.tar.gz", "-C", place.folder], check=True)
    return fio.read_battery(place.folder / place.results.name)


def is_whole(place: Place) -> None:
    read = unpacked(place)
    assert (read["faults"], read["left_out"], read["host"]) == ([], [], HOST)
    assert [row["job_Id"] for row in read["samples"]] == ["a1", "a2"]
    assert all(read["histograms"][id]["sync"] for id in ("a1", "a2"))
    assert emptied(place)
    assert processes_of(str(place.volume)) == []


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
def test_a_battery_elsewhere_comes_back_as_a_tarball(place, collect, shell):
    elsewhere = place.folder / "elsewhere"
    elsewhere.write_text(f'#!/bin/sh\nshift\nexec {needed(shell)} "$@"\n', encoding="utf-8")
    elsewhere.chmod(0o755)
    with collect(str(elsewhere)) as process:
        assert process.wait() == 0, process.stderr.read()
    is_whole(place)
    job = (place.folder / place.results.name / "job.fio").read_text(encoding="utf-8")
    assert job == "# What's 'it' \\ gauge?\n" + TINY


def test_a_battery_comes_back_over_ssh(place, collect, ssh):
    with collect(*ssh) as process:
        assert process.wait() == 0, process.stderr.read()
    is_whole(place)


def test_a_collection_that_is_ended_brings_back_what_was_measured(place, collect, ssh):
    with collect(*ssh, jobs=600) as process:
        heard(process, "[a3]")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 1
    read = unpacked(place)
    assert len(read["samples"]) >= 2
    assert read["facts"]["status"] == "interrupted"
    assert emptied(place)


def test_a_battery_whose_collector_is_killed_ends_and_empties_its_folder(place, collect, ssh):
    with collect(*ssh, text=ENDLESS) as process:
        heard(process, "[a1]")
        os.killpg(process.pid, signal.SIGKILL)
    until(lambda: emptied(place))
    until(lambda: processes_of(str(place.volume)) == [])
    assert not any(path.name.endswith(".tar.gz") for path in place.out.iterdir())


@pytest.mark.parametrize(
    "command, options, reason",
    [
        ("false", {}, "'false' must open a shell that prints its host's name (got '')"),
        ("env", {"directory": "/nowhere"}, f"the folder /nowhere does not exist on {HOST}; correct the path"),
        ("env", {"directory": None}, "--directory is missing; name a folder on the volume"),
        ("env", {"cluster": None}, "--cluster is missing"),
        ("env", {"job": "nowhere.fio"}, "the job file nowhere.fio does not exist; correct the path"),
        ("env", {"out": "/nowhere"}, "/nowhere must be a writable folder; correct --out"),
        ("env", {"colour": "blue"}, "--colour is not an option; --help lists the options"),
        ("", {}, "the command for a shell on the other machine is missing; add for example: -- ssh root@host"),
    ],
)
def test_a_mistake_in_collecting_is_one_line_and_leaves_nothing(place, collect, command, options, reason):
    with collect(*command.split(), **options) as process:
        words = process.stderr.read()
    assert (process.returncode, words) == (2, f"problem: {reason}\n")
    assert not any(place.out.iterdir())


def test_a_tarball_that_is_cut_off_is_not_kept(place, collect):
    cut = place.folder / "cut"
    cut.write_text('#!/bin/sh\n"$@" | head -c 1000\n', encoding="utf-8")
    cut.chmod(0o755)
    with collect(str(cut)) as process:
        words = process.stderr.read()
    assert process.returncode == 2
    assert f"the results from {HOST} are incomplete" in words.splitlines()[-1]
    assert not any(place.out.iterdir())
