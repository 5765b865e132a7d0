"""Describe the machine that measures a cell (METHOD 14)."""

import hashlib
import os
import platform
import re
from operator import itemgetter
from pathlib import Path

from sbench.probe import slurm

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_GROUPS = Path("/sys/fs/cgroup")
MEMORY_DEVICE = re.compile("z?ram[0-9]+")
_BOOT, _MACHINE_ID = Path("/proc/sys/kernel/random/boot_id"), Path("/etc/machine-id")
# Number of hexadecimal digits of the short hashes that identify a host and its boot.
_ID_DIGITS = 12


def read_facts(path: Path | str = ".") -> dict:
    """Describe this machine, for the "host" entry of a record.

    Args:
        path: any path on the file system to describe.

    Returns:
        The description: "ram_bytes" is in bytes, "cpu_quota" in cores, and "load_before" contains the 1, 5 and 15
        minute load averages. Values that are not available are None.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "node": get_node_name(),
        "boot": read_kernel_file(_BOOT),
        "host_id": _hash_identity(_MACHINE_ID, platform.node()),
        "boot_id": _hash_identity(_BOOT),
        "instance": _read_instance(),
        "cpu": _read_cpu_model(),
        "cores": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cpu_quota": read_cpu_quota(),
        "ram_bytes": memory,
        "kernel": platform.release(),
        "os": _read_os_name(),
        "clock_source": read_kernel_file("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        **find_mount(path),
        "load_before": list(os.getloadavg()),
    }


def get_node_name() -> str:
    """Return the name of this machine; within a Slurm job, this is Slurm's name for the node."""
    return slurm.get_node() or platform.node()


def merge_facts(machines: list[dict]) -> dict:
    """Merge the descriptions of several machines.

    Node names and boot IDs come from all machines; all other facts come from the first node by name.
    """
    machines = sorted(machines, key=itemgetter("node"))
    names = {key: ", ".join(dict.fromkeys(str(one[key]) for one in machines)) for key in ("node", "boot")}
    return machines[0] | names


def count_usable_cores(mask: set[int] | None = None) -> int:
    """Return the number of usable cores: the cores in `mask`, limited by the control group's CPU quota.

    Args:
        mask: core numbers; by default, the CPU affinity of this process.
    """
    cores = len(os.sched_getaffinity(0) if mask is None else mask)
    quota = read_cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def read_cpu_quota() -> float | None:
    """Return the smallest CPU quota, in cores, of this process's control group and its parents; None if unlimited."""
    limits = [(read_kernel_file(group / "cpu.max") or "max").split() for group in list_control_groups()]
    old = [
        [read_kernel_file(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        for group in list_control_groups("cpu")
    ]
    limited = [limit for limit in limits + old if limit[0] not in ("max", "-1", None)]
    return min((int(limit[0]) / int(limit[1]) for limit in limited), default=None)


def list_control_groups(controller: str = "") -> list[Path]:
    """Return the directories of this process's control group and its parents.

    Args:
        controller: name of a cgroup v1 controller, or an empty string for cgroup v2.
    """
    lines = [line.split(":", 2) for line in (read_kernel_file("/proc/self/cgroup") or "").splitlines()]
    own = next((path for _, names, path in lines if controller in names.split(",")), "/")
    group = _GROUPS / controller / own.lstrip("/")
    return [group, *group.parents]


def find_mount(path: Path | str) -> dict:
    """Describe the mounted file system that contains `path`: file_system, mount_point, mount_options and device."""
    target = Path(path).resolve()
    mounts = [line.split() for line in (read_kernel_file("/proc/self/mounts") or "").splitlines()]
    holding = [fields for fields in mounts if target.is_relative_to(fields[1])]
    # If several file systems are mounted at the same point, the last one hides the others.
    device, point, kind, options = max(reversed(holding), key=lambda fields: len(fields[1]), default=[None] * 4)[:4]
    return {"file_system": kind, "mount_point": point, "mount_options": options, "device": device}


def find_memory_backing(path: Path | str) -> str:
    """Return the kind of memory that a directory or block device is stored in, or an empty string if it is on a disk.

    Examples are "tmpfs", "ram0" and "overlay on tmpfs".
    """
    path = Path(path).resolve()
    if path.is_block_device():
        mounted, device = {"file_system": "", "mount_options": ""}, path.name
    else:
        mounted = find_mount(path)
        device = Path(mounted["device"] or "").name
    if mounted["file_system"] in MEMORY_FILE_SYSTEMS:
        return mounted["file_system"]
    if MEMORY_DEVICE.fullmatch(device):
        return device
    options = dict(option.partition("=")[::2] for option in (mounted["mount_options"] or "").split(","))
    below = options.get("upperdir") or read_kernel_file(f"/sys/block/{device}/loop/backing_file") or ""
    # A deleted backing file is still on the file system of its directory.
    below = Path(below.removesuffix(" (deleted)")) if below else None
    there = next((place for place in (below, *below.parents) if place.exists()), None) if below else None
    inner = find_memory_backing(there) if there else ""
    return f"{mounted['file_system'] or device} on {inner}" if inner else ""


def read_kernel_file(path: Path | str) -> str | None:
    """Return the content of a file in /proc or /sys; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(pattern: str, path: Path | str) -> int | None:
    """Search a kernel file for a regular expression, and return its first group as an integer; None without a match."""
    match = re.search(pattern, read_kernel_file(path) or "", re.MULTILINE)
    return int(match[1]) if match else None


def _read_cpu_model() -> str | None:
    name = re.search(r"^model name\s*:(.*)", read_kernel_file("/proc/cpuinfo") or "", re.MULTILINE)
    return name[1].strip() if name else platform.machine()


def _hash_identity(path: Path, name: str = "") -> str | None:
    """Return a short hash of the content of a file followed by a name; None if the file cannot be read or is empty."""
    content = read_kernel_file(path)
    return hashlib.sha256(f"{content}{name}".encode()).hexdigest()[:_ID_DIGITS] if content else None


def _read_instance() -> str | None:
    """Return the product UUID and name, which identify cloud instances, omitting any that this user may not read."""
    facts = (read_kernel_file(f"/sys/class/dmi/id/{name}") for name in ("product_uuid", "product_name"))
    return " ".join(filter(None, facts)) or None


def _read_os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
