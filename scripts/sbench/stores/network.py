"""What a network between readers and a store costs, and what an emulated one lets through (`network` in the schema)."""

import math
import statistics
import time
from collections.abc import Callable
from http.client import HTTPException

from sbench.probe.program import Problem
from sbench.stores.bare import Http

MIB = 2**20
# A sender may be this far behind its rate and catch up (`slack` in envs/servers/toxiproxy).
SLACK_S = 0.010
TOLERANCE = 1.05
# Enough for the rate to show beside the round trip, and a third of a second at 50 MiB/s.
READ_BYTES = 16 * MIB
_ROUNDS = 10
_RATES = {"per_connection_mib_s": "per connection", "shared_mib_s": "shared"}


def compute_rate_limit(network: dict | None, connections: float = math.inf) -> float:
    """Return the MiB/s that an emulated network lets through over so many connections; inf where it has no limit."""
    each, shared = ((network or {}).get(key) or math.inf for key in ("per_connection_mib_s", "shared_mib_s"))
    return min(shared, each * connections)


def format_parts(network: dict) -> list[str]:
    """Return the parts of an emulated network: ["20 ms", "50 MiB/s per connection", "100 MiB/s shared"]."""
    jitter = f" ± {network['jitter_ms']} ms" if network.get("jitter_ms") else ""
    return [
        *([f"{network['latency_ms']} ms{jitter}"] if network.get("latency_ms") or jitter else []),
        *(f"{network[key]:g} MiB/s {whose}" for key, whose in _RATES.items() if network.get(key)),
    ]


def format_name(network: dict) -> str:
    """Return what tells an emulated network from others, in short: "20 ms, 50 MiB/s", the rate of a connection."""
    latency = [f"{network['latency_ms']:g} ms"] if network.get("latency_ms") else []
    return ", ".join([*latency, *[f"{network[key]:g} MiB/s" for key in _RATES if network.get(key)][:1]])


def describe_measured(networks: list[dict]) -> str:
    """Return in words what networks cost as they were measured (see `measure_network`), medians of each figure."""
    measured = [network for network in networks if "problem" not in network]
    if not measured:
        return f"the network could not be measured ({networks[0]['problem']})" if networks else ""
    trip, connect, rate = (
        statistics.median(network[key] for network in measured) for key in ("round_trip_s", "connect_s", "mib_s")
    )
    return (
        f"as measured, a request without data took {trip * 1000:.3g} ms, the first of a connection"
        f" {connect * 1000:.3g} ms more, and one request at a time brought {rate:.3g} MiB/s"
    )


def measure_network(getter: Http, name: str, nbytes: int) -> dict:
    """Return what a network costs, measured outside every window (METHOD 20).

    Args:
        getter: asks a store for the object.
        name: of the object.
        nbytes: how much of it one request asks for; 0 leaves the rate out.

    Returns:
        round_trip_s: median time of a request without a body in its answer, in seconds.
        connect_s: what a new connection takes beside it, the first time.
        mib_s: MiB/s of one request, from its first byte to its last.

    Raises:
        Problem: the store does not answer.
    """

    def measure_steps(*steps: Callable[[str], None]) -> float:
        start = time.perf_counter()
        for step in steps:
            step(name)
        return time.perf_counter() - start

    try:
        # What a server does for its first request is no cost of the network.
        measure_steps(getter.connect, getter.request_head)
        getter.close()
        first = measure_steps(getter.connect, getter.request_head)
        trip = statistics.median(measure_steps(getter.request_head) for _ in range(_ROUNDS))
        begun = getter.read_range(name, 0, nbytes) if nbytes else 0
        rate = {"mib_s": nbytes / MIB / (time.perf_counter() - begun)} if nbytes else {}
    except (OSError, HTTPException) as error:
        raise Problem(f"the store does not answer bare requests ({type(error).__name__}: {error})") from error
    finally:
        getter.close()
    return {"round_trip_s": trip, "connect_s": max(0.0, first - trip), **rate}


def compute_in_flight(passed: dict | None) -> dict:
    """Return {"connections", "in_flight"} of what passed an emulated network (`embedded.Proxy.fetch_traffic`); {} without one.

    `connections` were opened, with "handshakes" where they are encrypted; `in_flight` is the mean number of requests
    under way while there was any, None if none.
    """
    if passed is None:
        return {}
    spans = sorted((row["begin"], row["end"]) for row in passed["exchanges"] if row["end"])
    busy, until = 0.0, 0.0
    for begin, end in spans:
        busy, until = busy + max(0.0, end - max(begin, until)), max(until, end)
    waited = sum(end - begin for begin, end in spans)
    shaken = {"handshakes": passed["handshakes"]} if passed.get("handshakes") else {}
    return {"connections": passed["connections"], "in_flight": waited / busy if busy else None, **shaken}
