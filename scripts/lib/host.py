"""What is known of the machine that ran a record (METHOD 14)."""

import os
import platform
import re
from pathlib import Path

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
MEMORY_DEVICE = re.compile("z?ram[0-9]+")


def facts(path: Path | str = ".") -> dict:
    """Return the host block of a record; `path` names the file system that counts.

    Sizes are in bytes, loads are the three load averages; what a machine does not tell is None.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "node": platform.node(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cpu_quota": cpu_quota(),
        "ram_bytes": memory,
        "kernel": platform.release(),
        "os": _os_name(),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        **mount(path),
        "load_before": list(os.getloadavg()),
    }


def usable_cores(mask: set[int] | None = None) -> int:
    """Return how many cores may be used: those of `mask` (this process's own), cut by the control group's quota."""
    cores = len(os.sched_getaffinity(0) if mask is None else mask)
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota() -> float | None:
    """Return the CPU quota of this control group in cores, the smallest up to its root; None: no limit."""
    own = next((line[3:] for line in (_read("/proc/self/cgroup") or "").splitlines() if line.startswith("0::")), "/")
    group = Path("/sys/fs/cgroup") / own.lstrip("/")
    quotas = []
    for folder in (group, *group.parents):
        line = _read(str(folder / "cpu.max"))
        if line and not line.startswith("max"):
            quota, period = line.split()
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def mount(path: Path | str) -> dict:
    """Return {"file_system", "mount_point", "mount_options", "device"} of the file system that holds `path`."""
    target = str(Path(path).resolve())
    best: list[str] | None = None
    for line in (_read("/proc/self/mounts") or "").splitlines():
        fields = line.split()
        inside = target == fields[1] or target.startswith(fields[1].rstrip("/") + "/")
        if inside and (best is None or len(fields[1]) >= len(best[1])):
            best = fields
    if best is None:
        return {"file_system": None, "mount_point": None, "mount_options": None, "device": None}
    return {"file_system": best[2], "mount_point": best[1], "mount_options": best[3], "device": best[0]}


def in_memory(path: Path | str) -> str:
    """Return what keeps a folder's files, or a block device, in memory: "tmpfs", "ram0", "overlay on tmpfs"; or ""."""
    path = Path(path).resolve()
    if path.is_block_device():
        mounted, device = {"file_system": "", "mount_options": ""}, path.name
    else:
        mounted = mount(path)
        device = Path(mounted["device"] or "").name
    if mounted["file_system"] in MEMORY_FILE_SYSTEMS:
        return mounted["file_system"]
    if MEMORY_DEVICE.fullmatch(device):
        return device
    options = dict(option.partition("=")[::2] for option in (mounted["mount_options"] or "").split(","))
    below = options.get("upperdir") or _read(f"/sys/block/{device}/loop/backing_file")
    inner = in_memory(below) if below and Path(below).exists() else ""
    return f"{mounted['file_system'] or device} on {inner}" if inner else ""


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
