"""What tells machines and sessions apart is read where it is, and is not the same for all (METHOD 14)."""

import hashlib
import json
import os
import platform
import re
from pathlib import Path

import pytest
from conftest import artefact, program

from sbench.design import session
from sbench.measure import launches
from sbench.probe import host, memory, page_cache
from scripts import ready


@pytest.mark.rule(2, 14)
def test_the_fingerprint_of_a_machine_is_that_of_this_one(tmp_path):
    facts = host.read_facts(tmp_path)
    kilobytes = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert facts["node"] == platform.node() == os.uname().nodename
    assert facts["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts["boot_id"] == hashlib.sha256(facts["boot"].encode()).hexdigest()[:12]
    assert facts["kernel"] == os.uname().release
    assert facts["affinity"] == sorted(os.sched_getaffinity(0))
    assert facts["ram_bytes"] == pytest.approx(int(kilobytes) * 1024, rel=0.01)
    assert os.stat(facts["mount_point"]).st_dev == os.stat(tmp_path).st_dev
    assert facts["cpu"]


@pytest.mark.rule(2, 14)
def test_a_host_is_its_machine_id_and_its_name_whatever_the_environment_says(tmp_path, monkeypatch):
    machine = tmp_path / "machine-id"
    monkeypatch.setattr(host, "_MACHINE_ID", machine)
    monkeypatch.setenv("SBENCH_HOST_ID", "forged")
    assert host.read_facts()["host_id"] is None
    machine.write_text("c0ffee\n", encoding="utf-8")
    expected = hashlib.sha256(f"c0ffee{platform.node()}".encode()).hexdigest()[:12]
    assert host.read_facts()["host_id"] == expected
    machine.write_text("cafe\n", encoding="utf-8")
    assert host.read_facts()["host_id"] not in (expected, None)


@pytest.mark.rule(2, 14)
def test_a_record_is_of_the_session_in_which_its_step_ran(tmp_path):
    (tmp_path / "none.json").write_text(json.dumps({"status": "failed", "reasons": ["no library"]}), encoding="utf-8")
    settings = {"cell": {"store": "disk"}, "study": "shots"}
    plan = {"run": "x", "study": "shots", "cells": {"a": {"settings": settings}}}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")

    def session_of(number: int, environment: dict[str, str]) -> str:
        out = tmp_path / f"{number}/record.json"
        place = (
            "--plan",
            tmp_path / "plan.json",
            "--cell",
            "a",
            "--repeat",
            1,
            "--environment",
            tmp_path / "none.json",
        )
        done = program("step", "measure", *place, "--out", out, "--log", tmp_path / "log", env=environment)
        assert done.returncode == 0, done.stderr
        return artefact(out)["session"]

    outside = {key: value for key, value in os.environ.items() if key != session.SESSION}
    assert session_of(1, outside | {session.SESSION: "2026-11-23T08:00:00Z"}) == "2026-11-23T08:00:00Z"
    before = session.format_session_name()
    assert before <= session_of(2, outside) <= session.format_session_name()


@pytest.mark.rule(2, 14)
def test_a_clock_that_is_set_during_a_session_moves_no_record_in_time(monkeypatch):
    for name in (session.SESSION, session.UPTIME):
        monkeypatch.setenv(name, "")
    session.start_session()
    begun = os.environ[session.SESSION]
    assert begun[:-1] <= session.get_session_time()[:-1] <= session.format_session_name()
    assert re.fullmatch(r"[0-9T:-]{19}\.[0-9]{3}Z", session.get_session_time())
    # As if the clock had been two days ahead when the session began, 90 seconds ago.
    boot, uptime = os.environ[session.UPTIME].split(" ")
    monkeypatch.setenv(session.SESSION, "2033-05-31T23:59:30Z")
    monkeypatch.setenv(session.UPTIME, f"{boot} {float(uptime) - 90}")
    assert "2033-06-01T00:00:59Z" <= session.get_session_time() < "2033-06-01T00:02:00Z"
    # Another machine was booted at another time, and only its clock is there.
    monkeypatch.setenv(session.UPTIME, f"another {float(uptime) - 90}")
    assert session.get_session_time()[:10] == session.format_session_name()[:10]


@pytest.mark.rule(4)
def test_what_others_have_written_is_on_the_disk_before_the_clock_starts(monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "sync", lambda: flushed.append(True))
    for sets_cache in (False, True):
        launches.Window("any", [], None).open(sets_cache=sets_cache)
    assert flushed == [True, True]


@pytest.mark.rule(2)
def test_all_data_are_read_once_before_the_first_block(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(os.urandom(3_000_000))
    page_cache.evict_files([file])
    assert page_cache.measure_resident([file]) < 0.5
    provision = tmp_path / "disk.json"
    provision.write_text(json.dumps({"status": "done", "local_files": [str(file)]}), encoding="utf-8")
    assert ready.main(["--provisions", str(provision), "--out", str(tmp_path / "ready.json")]) == 0
    assert page_cache.measure_resident([file]) > 0.5
    assert artefact(tmp_path / "ready.json")["bytes_read"] == {str(provision): 3_000_000}


@pytest.mark.parametrize(
    "lines, files",
    [
        ("0::/job", {"job/memory.max": "300", "job/memory.current": "200", "job/memory.stat": "inactive_file 50"}),
        (
            "4:memory:/job\n2:cpu,cpuacct:/job\n0::/",
            {
                "memory/job/memory.limit_in_bytes": "300",
                "memory/job/memory.usage_in_bytes": "200",
                "memory/job/memory.stat": "inactive_file 0\ntotal_inactive_file 50",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "cpu/job/cpu.cfs_quota_us": "150000",
                "cpu/job/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
            },
        ),
    ],
    ids=["v2", "v1"],
)
def test_limits_of_control_groups_are_those_of_this_process(tmp_path, monkeypatch, lines, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    kernels = host.read_kernel_file
    monkeypatch.setattr(host, "_GROUPS", tmp_path)
    monkeypatch.setattr(
        host, "read_kernel_file", lambda path: lines if str(path) == "/proc/self/cgroup" else kernels(path)
    )
    assert memory.compute_available_bytes() == 150
    assert host.read_cpu_quota() == (1.5 if "cpu" in lines else None)
