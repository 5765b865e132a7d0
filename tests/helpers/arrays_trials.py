"""Trials of a service that were never made, with outcomes as HSDS had them: samples of `limits` and `faults`."""

from collections.abc import Iterator

MIB = 2**20
LIMIT, ROW = 50 * MIB, 2200 * 8
ANSWERED, REFUSED, BUSY = "answered", "refused (413)", "23 busy (503)"
# Seconds until a service begins to answer, and MiB that it sends in a second.
BEGIN, RATE = 0.1, 120


def samples(operation: str, streams: bool, repeat: int, block: float) -> list[dict]:
    """Return the trials of a record, in the order in which they are made; `block` makes all times longer."""
    rows = list(_limits(streams) if operation == "limits" else _faults(streams, repeat))
    times = ("trial_s", "first_byte_s")
    return [row | {name: row[name] and float(row[name] * block) for name in times} for row in rows]


def _limits(streams: bool) -> Iterator[dict]:
    """Binary requests above the limit are streamed or refused; JSON is refused; of strings a write is."""
    for times in (0.5, 1, 2, 4):
        outcome = ANSWERED if streams or times <= 1 else REFUSED
        for what in ("binary read", "binary write", "h5pyd read"):
            yield _trial(what, times, outcome, streams)
    yield _trial("JSON read", 0.1, ANSWERED, streams)
    yield _trial("JSON read", 2, REFUSED, streams)
    yield _trial("binary read of strings", 2, ANSWERED if streams else REFUSED, streams)
    yield _trial("binary write of strings", 2, REFUSED, streams)


def _faults(streams: bool, repeat: int) -> Iterator[dict]:
    """All are of four times the limit; how much memory a data node needs differs from repeat to repeat."""
    killed = ("broke off", "broke off") if streams else (ANSWERED, "no end within 30 s")
    tight = ANSWERED if repeat > (4 if streams else 1) else "broke off"
    outcomes = {
        "client stops reading": ANSWERED,
        "client wants bytes in less time than all take": ANSWERED if streams else "timed out",
        "data node killed in a binary read": killed[0],
        "data node killed in an h5pyd read": killed[1],
        "data node may take 0.5 × the request": "status 500",
        "data node may take 1 × the request": tight,
        "data node may take 2 × the request": ANSWERED,
        "data node may take 4 × the request": ANSWERED,
    }
    for what, outcome in outcomes.items():
        yield _trial(what, 4, outcome, streams)
    at_once = _trial("24 requests in flight, 4 tasks", 4, BUSY, streams)
    yield at_once | {"times_limit": None, "request_bytes": ROW, "data_node_bytes": None, "trial_s": 0.1}


def _trial(what: str, times: float, outcome: str, streams: bool) -> dict:
    """With streaming the first byte is early, and the service node holds less of what it sends."""
    size, answered = int(times * LIMIT - 1) // ROW * ROW, outcome == ANSWERED
    sends = answered and not what.startswith(("binary write", "h5pyd", "JSON", "data node killed in an h5pyd"))
    last = BEGIN + size / MIB / RATE if answered else 30.0 if "no end" in outcome else 0.05
    held = size if streams else 4 * size
    return {
        **{"phase": what, "times_limit": times, "request_bytes": size, "outcome": outcome, "trial_s": last},
        "first_byte_s": (BEGIN if streams else 0.6 * last) if sends and "strings" not in what else None,
        "service_node_bytes": 90 * MIB + held if answered else 0,
        "data_node_bytes": 30 * MIB + size // 2 if answered else 0,
    }
