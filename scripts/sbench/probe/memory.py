"""Read the memory use of processes and the free memory of the machine on Linux (proc(5), cgroup v2 and v1)."""

import resource
from pathlib import Path

from sbench.probe.host import list_control_groups, read_kernel_file, read_number

# Memory in bytes that a reading process may use in addition to the size of an operation. The interpreter and libraries
# are loaded before and do not count.
SPARE = 64 * 2**20
# Files of memory control groups, for cgroup v2 and v1: the v1 controller, the files with the limit and the usage, and
# the entry of memory.stat with the page cache that can be reclaimed.
_LIMITS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def read_resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return _read_bytes("/proc/self/status", "VmRSS")


def read_peak_bytes(pid: int | str = "self") -> int | None:
    """Return the peak resident memory of a process in bytes since it started, or since `forget_peak`.

    Returns None if the process has ended.
    """
    return _read_bytes(f"/proc/{pid}/status", "VmHWM")


def read_data_bytes(pid: int) -> int | None:
    """Return how many bytes of a process's memory count towards RLIMIT_DATA (setrlimit(2)); None if it has ended."""
    return _read_bytes(f"/proc/{pid}/status", "VmData")


def forget_peak(pid: int | str = "self") -> None:
    """Reset the recorded peak of a process's resident memory to its current value. The process must be this user's."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def compute_available_bytes() -> int:
    """Return how many bytes of memory new processes can use, considering the limits of the control groups."""
    free = _read_bytes("/proc/meminfo", "MemAvailable")
    for controller, limit, taken, files in _LIMITS:
        for group in list_control_groups(controller):
            most = read_kernel_file(group / limit) or ""
            if most.isdigit():
                # The kernel reclaims the group's inactive page cache when processes need memory.
                of_files = read_number(rf"^{files} (\d+)", group / "memory.stat") or 0
                free = min(free, max(0, int(most) + of_files - int(read_kernel_file(group / taken) or 0)))
    return free


def compute_free_bytes() -> int:
    """Return how many bytes of memory this process can still allocate, considering its limits (setrlimit(2))."""
    left = [compute_available_bytes()]
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, taken = resource.getrlimit(kind)[0], _read_bytes("/proc/self/status", name)
        if limit != resource.RLIM_INFINITY and taken is not None:
            left.append(max(0, limit - taken))
    return min(left)


def _read_bytes(path: str, name: str) -> int | None:
    kib = read_number(rf"^{name}:\s*(\d+) kB", path)
    return None if kib is None else kib * 1024
