"""Plan, record and validate the faults that an emulated network injects into responses (factor `fault`)."""

import random
from collections.abc import Iterator

NONE = "none"


def plan_fault(level: str, seed: int, repeat: int) -> dict | None:
    """Parse a level such as "503-every-10" into {"fault", "every", "first"}, or return None for NONE.

    `first` is a pseudorandom number in 1..`every`, derived from the run's seed and the repeat only, so that all arms of
    a block have the same value (METHOD 3).
    """
    if level == NONE:
        return None
    kind, _, every = level.partition("-every-")
    return {"fault": kind, "every": int(every), "first": random.Random(f"{seed} fault {repeat}").randint(1, int(every))}


def record_fault(fault: dict, passed: dict) -> dict:
    """Return the planned fault with the numbers of injected faults and of GETs, as stored in a record."""
    gets = sum(row["method"] == "GET" for row in passed["exchanges"])
    return {**fault, "count": passed["injected"], "gets": gets}


def check_fault(level: str, name: str, store: dict) -> Iterator[str]:
    """Yield an error message if the level injects faults but the store has no emulated network."""
    if level != NONE and store.get("network") is None:
        yield (
            "fault injection requires an embedded store with a network;"
            f" add server: embedded and network: {{}} to store {name}"
        )
