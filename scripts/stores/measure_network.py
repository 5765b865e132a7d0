"""Measures what the network before a store costs, outside every window (METHOD 20).

It reads the place of an object as JSON from standard input, `{"store", "location", "name", "bytes"}`, and prints
`{"round_trip_s", "connect_s", "mib_s"}` as JSON. It runs in a reader's environment, which has the credentials.
"""

import argparse
import json
import statistics
import sys
import time
from http.client import HTTPException

from scripts.lib.program import Problem, run
from scripts.stores import bare
from scripts.stores import store as stores
from scripts.stores.network import MIB

# Enough for the rate to show beside the round trip, and a third of a second at 50 MiB/s.
_READ_BYTES = 16 * MIB
_ROUNDS = 10


def main(argv: list[str] | None = None) -> int:
    """Measure the network before a store."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    job = json.load(sys.stdin)
    addresses = stores.of(job["store"]).addresses(job["location"], [job["name"]])
    print(json.dumps(measure(bare.of(job["location"], addresses)(), job["name"], min(job["bytes"], _READ_BYTES))))
    return 0


def measure(getter: bare.Http, name: str, nbytes: int) -> dict:
    """Return what a network costs.

    Args:
        getter: asks a store for the object.
        name: of the object.
        nbytes: how much of it one request asks for.

    Returns:
        round_trip_s: median time of a request without a body in its answer, in seconds.
        connect_s: what a new connection takes beside it, the first time.
        mib_s: MiB/s of one request, from its first byte to its last.

    Raises:
        Problem: the store does not answer.
    """
    try:
        # What a server does for its first request is no cost of the network.
        getter.connect(name)
        getter.head(name)
        getter.close()
        start = time.perf_counter()
        getter.connect(name)
        getter.head(name)
        first = time.perf_counter() - start
        trips = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            getter.head(name)
            trips.append(time.perf_counter() - start)
        start = time.perf_counter()
        waited = getter.get(name, 0, nbytes) - start
        came = time.perf_counter() - start - waited
    except (OSError, HTTPException) as error:
        raise Problem(f"the store does not answer bare requests ({type(error).__name__}: {error})") from error
    finally:
        getter.close()
    trip = statistics.median(trips)
    return {"round_trip_s": trip, "connect_s": max(0.0, first - trip), "mib_s": nbytes / MIB / came}


if __name__ == "__main__":
    run(main)
