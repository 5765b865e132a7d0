"""What a window took, CPU and memory, and what the kernel says of the machine meanwhile (METHOD 14)."""

import os
import re
from collections.abc import Mapping

from scripts.lib.host import control_groups, read

_TICKS = os.sysconf("SC_CLK_TCK")
# In /proc/<pid>/stat, after the name (proc(5)): the parent, and user and system time of it and of its ended children.
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 1, 11, 12, 13, 14


class Meter:
    """Reads the kernel's counters at both ends of a window."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Name the processes that count, with all that they start: what they are called -> process id."""
        self._processes = dict(processes)
        self._at_open: tuple[dict, dict] = ({}, {})

    def open(self) -> None:
        """Begin."""
        self._at_open = self._cpu(), _machine()

    def close(self) -> dict:
        """Return what was taken since `open`; None stands for what this kernel does not tell.

        Returns:
            of each process: user_s and system_s, CPU seconds on this machine to 10 ms, and peak_bytes, its largest
                resident size so far; of processes that have ended it is not offered.
            machine: steal_s (CPU seconds that a hypervisor kept), cpu_pressure_s, io_pressure_s, memory_pressure_s
                (seconds in which some task waited for it), throttled_s (by the control group's quota), major_faults,
                busy_s (CPU seconds of everybody) and mhz, the mean frequency at the end.
        """
        (cpu, machine), (cpu_now, machine_now) = self._at_open, (self._cpu(), _machine())
        taken = {
            name: {key: cpu_now[name][key] - cpu[name][key] for key in cpu[name]}
            | {"peak_bytes": _peak_bytes(self._processes[name])}
            for name in self._processes
        }
        passed = {key: None if None in (machine[key], now) else now - machine[key] for key, now in machine_now.items()}
        return {**taken, "machine": passed | {"mhz": _mhz()}}

    def _cpu(self) -> dict[str, dict[str, float]]:
        stats = {pid: fields for pid in _pids() if (fields := _stat(pid))}
        taken = {}
        for name, root in self._processes.items():
            mine = [stats[pid] for pid in _below(root, stats)]
            user, system = (
                sum(int(fields[own]) + int(fields[ended]) for fields in mine) / _TICKS
                for own, ended in ((_USER, _ENDED_USER), (_SYSTEM, _ENDED_SYSTEM))
            )
            taken[name] = {"user_s": user, "system_s": system}
        return taken


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _below(root: int, stats: Mapping[int, list[str]]) -> set[int]:
    """The ids of a process and of all that it and these have started."""
    below = {root} & stats.keys()
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in below} - below:
        below |= more
    return below


def _stat(pid: int) -> list[str] | None:
    """What follows the name, which may hold blanks and parentheses."""
    text = read(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split() if text else None


def _machine() -> dict[str, float | None]:
    jiffies = [int(value) for value in (read("/proc/stat") or "").partition("\n")[0].split()[1:]]
    # user nice system idle iowait irq softirq steal
    busy = sum(jiffies[at] for at in (0, 1, 2, 5, 6)) / _TICKS if len(jiffies) > 7 else None
    throttled = [_number(r"^throttled_usec (\d+)", read(group / "cpu.stat")) for group in control_groups()]
    offered = [value for value in throttled if value is not None]
    pressures = {
        f"{what}_pressure_s": _scaled(_number(r"^some .*total=(\d+)", read(f"/proc/pressure/{what}")))
        for what in ("cpu", "io", "memory")
    }
    return {
        "steal_s": jiffies[7] / _TICKS if len(jiffies) > 7 else None,
        **pressures,
        "throttled_s": _scaled(sum(offered) if offered else None),
        "major_faults": _number(r"^pgmajfault (\d+)", read("/proc/vmstat")),
        "busy_s": busy,
    }


def _mhz() -> float | None:
    values = [float(value) for value in re.findall(r"^cpu MHz\s*: ([0-9.]+)", read("/proc/cpuinfo") or "", re.M)]
    return sum(values) / len(values) if values else None


def _peak_bytes(pid: int) -> int | None:
    kib = _number(r"^VmHWM:\s*(\d+) kB", read(f"/proc/{pid}/status"))
    return None if kib is None else kib * 1024


def _number(pattern: str, text: str | None) -> int | None:
    match = re.search(pattern, text or "", re.MULTILINE)
    return int(match[1]) if match else None


def _scaled(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
