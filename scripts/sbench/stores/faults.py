"""Plan, record and check the faults that an emulated network injects into answers (factor `fault`)."""

import random
from collections.abc import Iterator

NONE = "none"


def plan_fault(level: str, seed: int, repeat: int) -> dict | None:
    """Return the fault of a level such as "503-every-10" in a repeat: {"fault", "every", "first"}; None for NONE.

    `first` is random by the run's seed and the repeat, and the same for all arms of the block (METHOD 3).
    """
    if level == NONE:
        return None
    kind, _, every = level.partition("-every-")
    return {"fault": kind, "every": int(every), "first": random.Random(f"{seed} fault {repeat}").randint(1, int(every))}


def record_fault(fault: dict, passed: dict) -> dict:
    """Return the faults for a record: their plan, their number, and the number of GETs."""
    gets = sum(row["method"] == "GET" for row in passed["exchanges"])
    return {**fault, "count": passed["injected"], "gets": gets}


def check_fault(level: str, name: str, store: dict) -> Iterator[str]:
    """Yield the reason if a store cannot inject faults."""
    if level != NONE and store.get("network") is None:
        yield (
            "fault injection requires an embedded store with a network;"
            f" add server: embedded and network: {{}} to store {name}"
        )
