"""Faults that the emulated network injects into what readers ask an embedded server for (factor `fault`)."""

import random
from collections.abc import Iterator

NONE = "none"


def plan_fault(level: str, seed: int, repeat: int) -> dict | None:
    """Return what a repeat's level, such as "503-every-10", injects: {"fault", "every", "first"}; None for NONE.

    The first is drawn with the run's seed for each repeat, the same for all arms of the block (METHOD 3).
    """
    if level == NONE:
        return None
    kind, _, every = level.partition("-every-")
    return {"fault": kind, "every": int(every), "first": random.Random(f"{seed} fault {repeat}").randint(1, int(every))}


def record_fault(fault: dict, passed: dict) -> dict:
    """Return what a record keeps of its faults: what they were, how many there were, and the GETs that were counted."""
    gets = sum(row["method"] == "GET" for row in passed["exchanges"])
    return {**fault, "count": passed["injected"], "gets": gets}


def check_fault(level: str, name: str, store: dict) -> Iterator[str]:
    """Yield why nothing can inject faults into a store of that name."""
    if level != NONE and store.get("network") is None:
        yield f"store {name} has no proxy that injects faults; give it server: embedded and network: {{}}"
