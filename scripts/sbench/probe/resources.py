"""Measure the CPU and memory use of processes, and the state of the machine, during a measurement (METHOD 14)."""

import os
import re
from collections.abc import Mapping

from sbench.probe import memory
from sbench.probe.host import list_control_groups, read_kernel_file, read_number

_WAITED_FOR = ("cpu", "io", "memory")
_TICKS = os.sysconf("SC_CLK_TCK")
# Indices of fields after the name in /proc/<pid>/stat (proc(5)): the parent's PID, and the user and system time of the
# process and of its terminated children.
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 1, 11, 12, 13, 14


class Meter:
    """A meter that reads kernel counters at the start and end of a measurement."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Set the processes to measure, including their descendants, as process IDs by name."""
        self._processes = dict(processes)
        self._at_open: tuple[dict, dict] = ({}, {})

    def open(self) -> None:
        """Read the counters at the start of the measurement."""
        self._at_open = self._read_cpu(), _read_machine()

    def close(self) -> dict:
        """Return the resource usage since `open`.

        Returns:
            For each process: user_s and system_s, its CPU seconds on this machine with a resolution of 10 ms, and
                peak_bytes, its peak resident memory so far, None if it has ended.
            For "machine": steal_s (CPU seconds that the hypervisor gave to others), cpu_pressure_s, io_pressure_s and
                memory_pressure_s (seconds while some task waited for the resource), throttled_s (by the control
                group's CPU quota), major_faults, busy_s (CPU seconds of all processes), and mhz, the mean clock
                frequency at the end. Counters that this kernel lacks are None.
        """
        (cpu, machine), (cpu_now, machine_now) = self._at_open, (self._read_cpu(), _read_machine())
        taken = {
            name: {key: now - cpu[name][key] for key, now in cpu_now[name].items()}
            | {"peak_bytes": memory.read_peak_bytes(pid)}
            for name, pid in self._processes.items()
        }
        passed = {key: None if None in (machine[key], now) else now - machine[key] for key, now in machine_now.items()}
        return {**taken, "machine": passed | {"mhz": _read_mhz()}}

    def _read_cpu(self) -> dict[str, dict[str, float]]:
        # Parse the fields after the name, because the name may contain spaces and parentheses.
        texts = {int(pid): read_kernel_file(f"/proc/{pid}/stat") for pid in os.listdir("/proc") if pid.isdigit()}
        stats = {pid: text.rpartition(")")[2].split() for pid, text in texts.items() if text}
        return {name: _compute_cpu_seconds(stats, root) for name, root in self._processes.items()}


def _compute_cpu_seconds(stats: Mapping[int, list[str]], root: int) -> dict[str, float]:
    """Return the CPU seconds of a process and all its descendants."""
    below = {root} & stats.keys()
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in below} - below:
        below |= more
    times = {"user_s": (_USER, _ENDED_USER), "system_s": (_SYSTEM, _ENDED_SYSTEM)}
    return {key: sum(int(stats[pid][at]) for pid in below for at in own) / _TICKS for key, own in times.items()}


def _read_machine() -> dict[str, float | None]:
    jiffies = [int(value) for value in (read_kernel_file("/proc/stat") or "").partition("\n")[0].split()[1:]]
    throttled = [read_number(r"^throttled_usec (\d+)", group / "cpu.stat") for group in list_control_groups()]
    offered = [value for value in throttled if value is not None]
    waited = {
        **{f"{what}_pressure_s": read_number(r"^some .*total=(\d+)", f"/proc/pressure/{what}") for what in _WAITED_FOR},
        "throttled_s": sum(offered) if offered else None,
    }
    return {
        "steal_s": jiffies[7] / _TICKS if len(jiffies) > 7 else None,
        **{key: None if microseconds is None else microseconds / 1e6 for key, microseconds in waited.items()},
        "major_faults": read_number(r"^pgmajfault (\d+)", "/proc/vmstat"),
        # user nice system idle iowait irq softirq steal
        "busy_s": sum(jiffies[at] for at in (0, 1, 2, 5, 6)) / _TICKS if len(jiffies) > 7 else None,
    }


def _read_mhz() -> float | None:
    values = [
        float(value) for value in re.findall(r"^cpu MHz\s*: ([0-9.]+)", read_kernel_file("/proc/cpuinfo") or "", re.M)
    ]
    return sum(values) / len(values) if values else None
