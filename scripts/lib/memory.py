"""Memory of this process and of its machine, as Linux tells it (proc(5), cgroup v2)."""

from pathlib import Path

from scripts.lib.host import control_groups

# What a process that reads may take beside one operation; interpreter and libraries are there before.
SPARE = 64 * 2**20


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return _kib("/proc/self/status", "VmRSS")


def peak() -> int:
    """Return the most bytes of this process that were in memory since it started, or since `forget_peak`."""
    return _kib("/proc/self/status", "VmHWM")


def forget_peak() -> None:
    """Let the peak begin at what is in memory now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def available() -> int:
    """Return the bytes that new processes may take: the machine's, and no more than the control groups leave."""
    free = _kib("/proc/meminfo", "MemAvailable")
    for group in control_groups():
        limit = "".join(_lines(group / "memory.max"))
        if limit.isdigit():
            # What the group holds of files is given up where processes need it.
            stat = dict(line.split() for line in _lines(group / "memory.stat"))
            used = int("".join(_lines(group / "memory.current")) or 0) - int(stat.get("inactive_file", 0))
            free = min(free, max(0, int(limit) - used))
    return free


def _kib(path: str, name: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in _lines(path) if line.startswith(f"{name}:"))


def _lines(path: Path | str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
