"""What a window took of the machine, as the kernel counts it."""

import subprocess
import sys

import pytest

from sbench.probe import host, resources

# Takes half a second of CPU in a process that it waits for, then some of its own; says when, and waits.
_WORK = """
import subprocess, sys, time
sys.stdin.readline()
burn = 'import time\\nwhile time.process_time() < 0.5: pass'
subprocess.run([sys.executable, '-c', burn], check=True)
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.rule(14)
def test_cpu_seconds_are_those_of_a_process_and_of_all_that_it_started():
    with subprocess.Popen(
        [sys.executable, "-c", _WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        meter = resources.Meter({"reader": process.pid})
        meter.open()
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        taken = meter.close()
        process.communicate("\n")
    reader, machine = taken["reader"], taken["machine"]
    assert reader["user_s"] + reader["system_s"] >= 0.48, "the kernel counts each of the two to 10 ms"
    assert machine["busy_s"] >= 0.45, "everybody's CPU seconds have these among them"
    assert reader["peak_bytes"] > 2**20


@pytest.mark.rule(14)
def test_what_a_kernel_does_not_tell_is_null(monkeypatch):
    told = resources.read_kernel_file
    hidden = ("/proc/pressure", "/proc/vmstat", "/proc/cpuinfo")
    for module in (host, resources):
        monkeypatch.setattr(
            module, "read_kernel_file", lambda path: None if str(path).startswith(hidden) else told(path)
        )
    meter = resources.Meter({})
    meter.open()
    machine = meter.close()["machine"]
    named = ("cpu_pressure_s", "io_pressure_s", "memory_pressure_s", "major_faults", "mhz")
    assert [machine[name] for name in named] == [None] * len(named)
    assert machine["busy_s"] is not None
