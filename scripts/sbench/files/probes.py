"""Compare forecasts with a probe, which measures each way to read files ("arm") once.

An arm is a combination of file layout, driver and driver settings. If an arm took much longer than forecast, the next
best arm with the same layout and driver is selected as well.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from sbench.design import records, validity
from sbench.probe.program import Problem, read_json
from sbench.studies.shots.arms import get_arm_key

# A measurement misses its forecast if it exceeds this multiple of it, and exceeds it by this many seconds, per object.
_MISSED, _SECONDS = 2.0, 0.1

Key = tuple[str, ...]


def is_miss(taken: float, expected: float) -> bool:
    """Return whether reading an object took much longer than expected (both in seconds)."""
    return taken > max(_MISSED * expected, expected + _SECONDS)


def find_misses(advice: dict, folder: Path) -> dict[Key, float]:
    """Return the measured time per object (s) of each arm that missed its forecast.

    Forecasts do not include computing time, so the CPU time of the record is added.

    Args:
        advice: section `advice` of the configuration, with the forecasts.
        folder: folder with the records of the probe.
    """
    misses: dict[Key, float] = {}
    forecasts = {get_arm_key(arm): arm["seconds"] for arm in advice["arms"]}
    for record in _read_records(folder):
        cell, objects = record["settings"]["cell"], len(record["read"])
        key = get_arm_key(cell)
        taken = record["seconds"]["total"] / objects
        computed = sum(sample["cpu-time"] for sample in record["samples"]) / objects
        level = record["settings"]["data"].get("selection", "all")
        expected = forecasts.get(key, {}).get(level, taken) + computed
        if is_miss(taken, expected):
            misses[key] = max(taken, misses.get(key, 0))
    return misses


def find_next_best(advice: dict, misses: Mapping[Key, float]) -> list[dict]:
    """Return, for each arm that missed its forecast, the best unmeasured arm with the same layout and driver.

    The new arm is returned only if its forecast is faster than the measured time of the miss.

    Args:
        advice: section `advice` of the configuration.
        misses: measured seconds per object by arm, as from `find_misses`.
    """
    measured = {get_arm_key(arm) for arm in advice["arms"]}
    added: dict[Key, dict] = {}
    for key, taken in misses.items():
        layout, driver = key[:2]
        others = [
            arm
            for arm in advice["considered"]
            if (arm["layout"], arm["driver"]) == (layout, driver) and get_arm_key(arm) not in measured | added.keys()
        ]
        best = min(others, key=lambda arm: compute_mean(arm, "seconds", advice), default=None)
        if best and compute_mean(best, "seconds", advice) < taken:
            added[get_arm_key(best)] = best
    return list(added.values())


def compute_mean(arm: dict, what: str, advice: dict) -> float:
    """Return the weighted mean of an arm's forecast over the accesses; `what` is "requests", "bytes" or "seconds"."""
    return sum(share * arm[what][level] for level, share in advice["accesses"].items())


def _read_records(folder: Path) -> Iterator[dict]:
    for cell in sorted(folder.glob("*/")):
        for _, path in records.list_repeats(cell):
            with contextlib.suppress(Problem):
                record = read_json(path)
                if not validity.list_faults(record):
                    yield record
