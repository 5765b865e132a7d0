"""Accuracy of the emulated network, and the overhead of recording requests."""

import contextlib
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sbench.probe.program import build_command, read_json
from sbench.stores import bare, network
from sbench.stores.embedded import Proxy
from tests.bench import common
from tests.bench.common import Row, Say, at_most
from tests.helpers import ranges

_MIB = 2**20
_LATENCY_MS, _RATE, _CONNECTIONS = 20, 50, (1, 4, 16)
_DEFAULT = {"latency_ms": 20, "per_connection_mib_s": 50, "shared_mib_s": 100}


def measure_network(folder: Path, say: Say, rounds: int = 10, megabytes: int = 64) -> Iterator[Row]:
    """Measure the emulated network, and the overhead of recording requests."""
    common.run_command(build_command("build_servers", "--out", folder / "servers.json", "--need", "toxiproxy"))
    program = read_json(folder / "servers.json")["toxiproxy"]
    with ranges.serve_ranges() as endpoint, open(folder / "log", "w", encoding="utf-8") as log:

        @contextlib.contextmanager
        def emulate(**limits: float) -> Iterator[Proxy]:
            with contextlib.ExitStack() as stack:
                yield Proxy(stack, program, endpoint, limits, log)

        with emulate(latency_ms=_LATENCY_MS) as proxy:
            connects = [network.measure_network(_make_client(proxy), "o", _MIB)["connect_s"] for _ in range(rounds)]
        off = abs(1000 * statistics.median(connects) - _LATENCY_MS)
        against = f"{_LATENCY_MS} ms asked, measured {common.format_seconds(connects)}"
        yield at_most("first byte of a new connection: off one round trip", off, 1, "ms", against)
        for connections in _CONNECTIONS:
            with emulate(shared_mib_s=_RATE) as proxy:
                rates = [megabytes / _read(proxy, connections, megabytes * _MIB) for _ in range(rounds)]
            off, against = abs(statistics.median(rates) / _RATE - 1), f"{statistics.median(rates):.2f} MiB/s measured"
            what = f"{connections} connections together: off the shared rate of {_RATE} MiB/s"
            yield at_most(what, 100 * off, 3, "%", against)
        for through, limits, goal in (("the default network", _DEFAULT, 1.03), ("a network without limits", {}, None)):
            for count, size in ((40, 4096), (max(1, megabytes // 8), 4 * _MIB)):
                seconds = {True: [], False: []}
                with emulate(**limits) as recording, emulate(**limits, recorded=False) as blind:
                    for _ in range(rounds):
                        for is_recorded, proxy in ((True, recording), (False, blind)):
                            seconds[is_recorded].append(_read(proxy, 1, size, count))
                what = f"{count} requests of {size // 1024:,} KiB through {through}, recorded"
                yield common.compare_times(what, seconds[True], "not recorded", seconds[False], goal)


def _make_client(proxy: Proxy) -> bare.Http:
    return bare.Http({"o": (f"{proxy.endpoint}/o", {})})


def _read(proxy: Proxy, connections: int, nbytes: int, count: int = 1) -> float:
    """Return the seconds in which so many connections together make `count` requests each, of `nbytes` together."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(connections) as pool:
        clients = [stack.enter_context(contextlib.closing(_make_client(proxy))) for _ in range(connections)]
        for client in clients:
            client.connect("o")

        def get(client: bare.Http) -> None:
            for _ in range(count):
                client.read_range("o", 0, nbytes // connections)

        start = time.perf_counter()
        list(pool.map(get, clients))
        return time.perf_counter() - start
