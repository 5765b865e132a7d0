"""What a record took beside time: opens, connections, CPU; and what disturbed it (METHOD 11, 14)."""

import pandas as pd

from scripts.statistics import stats
from scripts.stores import network as networks

# Summarised per cell by their medians.
COUNTS = ("opens", "connections", "in_flight", "task_cpu_s", "cpu_s", "server_cpu_s", "round_trip_s", "rate_mib_s")
# What others did to a window, in seconds per second, and major faults per second; below this nothing is disturbed.
_TIMES = ("steal_s", "cpu_pressure_s", "io_pressure_s", "memory_pressure_s", "throttled_s", "others_s")
_LOADS = {**dict.fromkeys(_TIMES, 0.02), "major_faults": 20.0}
_BEYOND = 3


def of_record(record: dict) -> dict[str, float | None]:
    """Return `COUNTS` of a record, None where it does not have them, and `load <what>` of its window per second.

    `task_cpu_s` is the CPU time of the tasks, divided by the workers beside each other; `rate_mib_s` what the network
    lets through to as many requests as were in flight, at the rate that was measured for one of them.
    """
    network, resources = record.get("network") or {}, record.get("resources") or {}
    opens, cpu = (
        [sample[key] for sample in record.get("samples", []) if sample.get(key) is not None]
        for key in ("opens", "cpu-time")
    )
    workers = (record.get("effective") or {}).get("workers") or 1
    taken = {name: _cpu(resources.get(name)) for name in ("reader", "server", "network")}
    counts = {
        "opens": sum(opens) if opens else None,
        "connections": network.get("connections"),
        "in_flight": network.get("in_flight"),
        "task_cpu_s": sum(cpu) / workers if cpu else None,
        "cpu_s": taken["reader"],
        "server_cpu_s": taken["server"],
        "round_trip_s": network.get("round_trip_s"),
        "rate_mib_s": _rate(record, network),
    }
    machine, window = dict(resources.get("machine") or {}), resources.get("window_s")
    if machine.get("busy_s") is not None:
        machine["others_s"] = max(0.0, machine["busy_s"] - sum(filter(None, taken.values())))
    return counts | {
        f"load {name}": machine[name] / window if window and machine.get(name) is not None else None for name in _LOADS
    }


def disturbed(runs: pd.DataFrame) -> str:
    """Return which repeats of a cell were disturbed, as "2 5", by their valid records.

    One was if some load was beyond three times its median over the cell's repeats: what the cell causes itself is in
    all of them. Such repeats are shown and stay in every figure: longer cells are disturbed more often.
    """
    loads = {name: runs[f"load {name}"].astype(float) for name in _LOADS if f"load {name}" in runs}
    if len(runs) < stats.MIN_BLOCKS or not loads:
        return ""
    beyond = [(load > _BEYOND * load.median()) & (load > _LOADS[name]) for name, load in loads.items()]
    return " ".join(str(repeat) for repeat in runs["repeat"][pd.concat(beyond, axis="columns").any(axis="columns")])


def _rate(record: dict, network: dict) -> float | None:
    if not network.get("mib_s") or not network.get("in_flight"):
        return None
    emulated = ((record.get("settings") or {}).get("store") or {}).get("network")
    return min(network["mib_s"] * max(1.0, network["in_flight"]), networks.mib_s(emulated))


def _cpu(process: dict | None) -> float | None:
    """CPU seconds of a process and of all that it started, on the machine that ran the record."""
    return None if not process else process["user_s"] + process["system_s"]
