"""Measure the network between readers and a store, and evaluate the settings of an emulated network."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException

from sbench.probe.program import Problem
from sbench.stores.bare import Http

MIB = 2**20
# A delayed sender may exceed its rate to make up for at most this time (`slack` in envs/servers/toxiproxy).
SLACK_S = 0.010
TOLERANCE = 1.05
# Large enough that the transfer takes much longer than a round trip: a third of a second at 50 MiB/s.
READ_BYTES = 16 * MIB
_ROUNDS = 10
_RATES = {"per_connection_mib_s": "per connection", "shared_mib_s": "shared"}


def compute_rate_limit(network: Mapping[str, float] | None, connections: float = math.inf) -> float:
    """Return the maximum rate in MiB/s of an emulated network with a number of connections; infinity if unlimited."""
    each, shared = ((network or {}).get(key) or math.inf for key in ("per_connection_mib_s", "shared_mib_s"))
    return min(shared, each * connections)


def estimate_seconds(requests: int, size: int, network: Mapping[str, float]) -> float:
    """Estimate the time in seconds that sequential requests take over a connection, including `size` bytes in all."""
    return requests * network.get("latency_ms", 0) / 1000 + size / MIB / compute_rate_limit(network, 1)


def format_parts(network: dict) -> list[str]:
    """Format the settings of an emulated network as ["20 ms", "50 MiB/s per connection", "100 MiB/s shared"]."""
    jitter = f" ± {network['jitter_ms']} ms" if network.get("jitter_ms") else ""
    return [
        *([f"{network['latency_ms']} ms{jitter}"] if network.get("latency_ms") or jitter else []),
        *(f"{network[key]:g} MiB/s {whose}" for key, whose in _RATES.items() if network.get(key)),
    ]


def format_name(network: dict) -> str:
    """Return a short name such as "20 ms, 50 MiB/s".

    The rate is the limit per connection if there is one, otherwise the shared limit.
    """
    latency = [f"{network['latency_ms']:g} ms"] if network.get("latency_ms") else []
    return ", ".join([*latency, *[f"{network[key]:g} MiB/s" for key in _RATES if network.get(key)][:1]])


def describe_measured(networks: list[dict]) -> str:
    """Describe the median values of repeated measurements of a network (`measure_network`)."""
    measured = [network for network in networks if "problem" not in network]
    if not measured:
        return f"the network could not be measured ({networks[0]['problem']})" if networks else ""
    trip, connect, rate = (
        statistics.median(network[key] for network in measured) for key in ("round_trip_s", "connect_s", "mib_s")
    )
    return (
        f"measured network: {trip * 1000:.3g} ms for a request without data, {connect * 1000:.3g} ms more for the first"
        f" request of a connection, {rate:.3g} MiB/s for a single request"
    )


def measure_network(getter: Http, name: str, nbytes: int) -> dict:
    """Measure the latency and the rate of a network, outside all timed windows (METHOD 20).

    Args:
        getter: connection to the store.
        name: name of the object to request.
        nbytes: number of bytes to request to measure the rate; 0 to skip the rate.

    Returns:
        round_trip_s: median time of a HEAD request, whose response lacks a body, in seconds.
        connect_s: additional time of the first request on a new connection, in seconds.
        mib_s: rate of a single GET from the arrival of the response headers to the last byte, in MiB/s.

    Raises:
        Problem: the store does not respond.
    """

    def measure_steps(*steps: Callable[[str], None]) -> float:
        start = time.perf_counter()
        for step in steps:
            step(name)
        return time.perf_counter() - start

    try:
        # Warm up: the server's extra work for its first request is not part of the network's latency.
        measure_steps(getter.connect, getter.request_head)
        getter.close()
        first = measure_steps(getter.connect, getter.request_head)
        trip = statistics.median(measure_steps(getter.request_head) for _ in range(_ROUNDS))
        begun = getter.read_range(name, 0, nbytes) if nbytes else 0
        rate = {"mib_s": nbytes / MIB / (time.perf_counter() - begun)} if nbytes else {}
    except (OSError, HTTPException) as error:
        raise Problem(f"the store does not respond to bare requests ({type(error).__name__}: {error})") from error
    finally:
        getter.close()
    return {"round_trip_s": trip, "connect_s": max(0.0, first - trip), **rate}


def compute_in_flight(passed: dict | None) -> dict:
    """Summarise the traffic of an emulated network (`Proxy.fetch_traffic`); return {} if `passed` is None.

    Returns:
        connections: number of connections opened.
        in_flight: mean number of concurrent requests, over the time with at least one request; None if there were none.
        handshakes: number of TLS handshakes; missing if there were none.
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
