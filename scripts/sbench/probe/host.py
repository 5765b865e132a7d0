"""Read the facts of the machine that ran a record (METHOD 14)."""

import os
import platform
import re
from operator import itemgetter
from pathlib import Path

from sbench.probe import slurm

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_GROUPS = Path("/sys/fs/cgroup")
MEMORY_DEVICE = re.compile("z?ram[0-9]+")


def read_facts(path: Path | str = ".") -> dict:
    """Return the host block of a record; `path` selects the file system to describe.

    Sizes are in bytes, loads are the three load averages; facts that a machine hides are None.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "node": get_node_name(),
        "boot": read_kernel_file("/proc/sys/kernel/random/boot_id"),
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
    """Return the name of this machine; within a Slurm job, Slurm's name of the node."""
    return slurm.get_node() or platform.node()


def merge_facts(machines: list[dict]) -> dict:
    """Return the facts of several machines that measured together: of the first, with the names and boots of all."""
    machines = sorted(machines, key=itemgetter("node"))
    names = {key: ", ".join(dict.fromkeys(str(one[key]) for one in machines)) for key in ("node", "boot")}
    return machines[0] | names


def count_usable_cores(mask: set[int] | None = None) -> int:
    """Return the number of usable cores: `mask`, or this process's affinity, cut by the control group's quota."""
    cores = len(os.sched_getaffinity(0) if mask is None else mask)
    quota = read_cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def read_cpu_quota() -> float | None:
    """Return the CPU quota of this control group in cores, the smallest up to its root; None: no limit."""
    limits = [(read_kernel_file(group / "cpu.max") or "max").split() for group in list_control_groups()]
    old = [
        [read_kernel_file(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        for group in list_control_groups("cpu")
    ]
    limited = [limit for limit in limits + old if limit[0] not in ("max", "-1", None)]
    return min((int(limit[0]) / int(limit[1]) for limit in limited), default=None)


def list_control_groups(controller: str = "") -> list[Path]:
    """Return the folders of this process's control group and its parents: of cgroup v2, or a controller of v1."""
    lines = [line.split(":", 2) for line in (read_kernel_file("/proc/self/cgroup") or "").splitlines()]
    own = next((path for _, names, path in lines if controller in names.split(",")), "/")
    group = _GROUPS / controller / own.lstrip("/")
    return [group, *group.parents]


def find_mount(path: Path | str) -> dict:
    """Return {"file_system", "mount_point", "mount_options", "device"} of the file system that holds `path`."""
    target = Path(path).resolve()
    mounts = [line.split() for line in (read_kernel_file("/proc/self/mounts") or "").splitlines()]
    holding = [fields for fields in mounts if target.is_relative_to(fields[1])]
    # Of mounts at the same place, the last hides the others.
    device, point, kind, options = max(reversed(holding), key=lambda fields: len(fields[1]), default=[None] * 4)[:4]
    return {"file_system": kind, "mount_point": point, "mount_options": options, "device": device}


def find_memory_backing(path: Path | str) -> str:
    """Return the memory backing of a folder or a block device: "tmpfs", "ram0", "overlay on tmpfs"; "" if on a disk."""
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
    # A deleted file is on the file system of its folder.
    below = Path(below.removesuffix(" (deleted)")) if below else None
    there = next((place for place in (below, *below.parents) if place.exists()), None) if below else None
    inner = find_memory_backing(there) if there else ""
    return f"{mounted['file_system'] or device} on {inner}" if inner else ""


def read_kernel_file(path: Path | str) -> str | None:
    """Return the text of a kernel file; None if this user cannot read it."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(pattern: str, path: Path | str) -> int | None:
    """Return the number that `pattern` finds in a kernel file; None without a match."""
    match = re.search(pattern, read_kernel_file(path) or "", re.MULTILINE)
    return int(match[1]) if match else None


def _read_cpu_model() -> str | None:
    name = re.search(r"^model name\s*:(.*)", read_kernel_file("/proc/cpuinfo") or "", re.MULTILINE)
    return name[1].strip() if name else platform.machine()


def _read_instance() -> str | None:
    """Return the id and type of a cloud machine, as far as this user may read them."""
    facts = (read_kernel_file(f"/sys/class/dmi/id/{name}") for name in ("product_uuid", "product_name"))
    return " ".join(filter(None, facts)) or None


def _read_os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
