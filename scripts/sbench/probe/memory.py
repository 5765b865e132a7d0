"""Memory of processes and of their machine, as Linux tells it (proc(5), cgroup v2 and v1)."""

import resource
from pathlib import Path

from sbench.probe.host import list_control_groups, read_kernel_file, read_number

# What a process that reads may take beside one operation; interpreter and libraries are there before.
SPARE = 64 * 2**20
# Of control groups: the controller of v1, and where their limit, what is taken, and what is taken by files stand.
_LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def read_resident_bytes() -> int:
    """Return the bytes of this process that are in memory."""
    return _read_bytes("/proc/self/status", "VmRSS")


def read_peak_bytes(pid: int | str = "self") -> int | None:
    """Return the most bytes of a process that were in memory since it started, or since its `forget_peak`.

    None where it has ended.
    """
    return _read_bytes(f"/proc/{pid}/status", "VmHWM")


def read_data_bytes(pid: int) -> int | None:
    """Return the bytes of a process that count against its limit of data (setrlimit(2)); None where it has ended."""
    return _read_bytes(f"/proc/{pid}/status", "VmData")


def forget_peak(pid: int | str = "self") -> None:
    """Let the peak of a process, this one or one of this user's, begin at what is in memory now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def compute_available_bytes() -> int:
    """Return the bytes that new processes may take: the machine's, and no more than the control groups leave."""
    free = _read_bytes("/proc/meminfo", "MemAvailable")
    for controller, limit, taken, files in _LIMITS:
        for group in list_control_groups(controller):
            most = read_kernel_file(group / limit) or ""
            if most.isdigit():
                # What the group holds of files is given up where processes need it.
                of_files = read_number(rf"^{files} (\d+)", group / "memory.stat") or 0
                free = min(free, max(0, int(most) + of_files - int(read_kernel_file(group / taken) or 0)))
    return free


def compute_free_bytes() -> int:
    """Return the bytes that this process may take: `compute_available_bytes`, within its own limits (setrlimit(2))."""
    left = [compute_available_bytes()]
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, taken = resource.getrlimit(kind)[0], _read_bytes("/proc/self/status", name)
        if limit != resource.RLIM_INFINITY and taken is not None:
            left.append(max(0, limit - taken))
    return min(left)


def _read_bytes(path: str, name: str) -> int | None:
    kib = read_number(rf"^{name}:\s*(\d+) kB", path)
    return None if kib is None else kib * 1024
