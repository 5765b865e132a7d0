"""What the instruments do and cost: the emulated network against what was asked of it, and what surrounds a cell."""

import contextlib
import gzip
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from sbench.pages import prose
from sbench.probe import resources
from sbench.probe.program import read_json
from sbench.stores import bare
from sbench.stores import network as networks
from sbench.stores.embedded import EXCHANGE, Proxy
from tests.bench.common import Row, Say, at_most, compared, in_turn, numbered, seconds_of, timed
from tests.bench.prepared import servers

_MIB = 2**20
_LATENCY_MS, _RATE = 20, 50
_CONNECTIONS = (1, 4, 16)
_OFF_PERCENT = 3
_DEFAULT = {"latency_ms": 20, "per_connection_mib_s": 50, "shared_mib_s": 100}
_ZEROS = bytes(64 * _MIB)


def rows(folder: Path, say: Say, rounds: int = 10, megabytes: int = 64) -> Iterator[Row]:
    """Measure the emulated network, and what recording and reading the kernel's counters cost a cell."""
    program = read_json(servers(folder))["toxiproxy"]
    with ranges() as endpoint, open(folder / "log", "w", encoding="utf-8") as log:

        @contextlib.contextmanager
        def network(**of: float) -> Iterator[Proxy]:
            with contextlib.ExitStack() as stack:
                yield Proxy(stack, program, endpoint, of, log)

        with network(latency_ms=_LATENCY_MS) as proxy:
            costs = [networks.measure(_client(proxy), "o", _MIB) for _ in numbered(rounds, say)]
            connects = [1000 * cost["connect_s"] for cost in costs]
            off = abs(statistics.median(connects) - _LATENCY_MS)
            against = f"{_LATENCY_MS} ms asked, measured {seconds_of([cost['connect_s'] for cost in costs])}"
            yield at_most("first byte of a new connection: off one round trip", off, 1, "ms", against)
        for connections in _CONNECTIONS:
            with network(shared_mib_s=_RATE) as proxy:
                rates = [megabytes / _together(proxy, connections, megabytes * _MIB) for _ in numbered(rounds, say)]
            off = 100 * abs(statistics.median(rates) / _RATE - 1)
            what = f"{prose.count(connections, 'connection')} together: off the shared rate"
            yield at_most(what, off, _OFF_PERCENT, "%", f"{_RATE} MiB/s asked, {statistics.median(rates):.2f} measured")
        yield from _recording(network, rounds, megabytes, say)
    yield from _around(folder, rounds, say)


def _recording(network: Callable, rounds: int, megabytes: int, say: Say) -> Iterator[Row]:
    """Requests that take about a second through the default network, and as fast as the proxy goes, recorded or not."""
    work = (("4 KiB", 40, 4096), ("4 MiB", max(1, megabytes // 8), 4 * _MIB))
    for through, limits, limit in (("the default network", _DEFAULT, 1.03), ("a network without limits", {}, None)):
        with network(**limits) as recording, network(**limits, recorded=False) as blind:
            for what, count, size in work:
                ways = [timed(partial(_requests, proxy, count, size)) for proxy in (recording, blind)]
                label = f"{count} requests of {what} through {through}, recorded"
                with_record, without = in_turn(rounds, *ways, say)
                yield compared(label, with_record, "not recorded", without, limit)


def _around(folder: Path, rounds: int, say: Say) -> Iterator[Row]:
    """What is done around a window: the kernel's counters, and a thousand requests fetched and kept."""
    meter, exchange = resources.Meter({"reader": 1}), dict.fromkeys(EXCHANGE, 0.5)
    text = json.dumps({"exchanges": [exchange] * 1000})

    def keep() -> None:
        with gzip.open(folder / "requests.csv.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in json.loads(text)["exchanges"])

    parts = {"the kernel's counters, twice": lambda: (meter.open(), meter.close()), "1,000 requests, kept": keep}
    taken = {what: [timed(work)() for _ in numbered(rounds, say)] for what, work in parts.items()}
    for what, seconds in taken.items():
        yield Row(f"  {what}", seconds_of(seconds))
    total = 1000 * sum(statistics.median(seconds) for seconds in taken.values())
    yield at_most("around a window, without what a session measures once", total, 150, "ms")


def _client(proxy: Proxy) -> bare.Http:
    return bare.Http({"o": (f"{proxy.endpoint}/o", {})})


@contextlib.contextmanager
def _connected(proxy: Proxy) -> Iterator[bare.Http]:
    with contextlib.closing(_client(proxy)) as client:
        client.connect("o")
        yield client


def _together(proxy: Proxy, connections: int, nbytes: int) -> float:
    """Return the seconds in which so many connections together read so many bytes."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(connections) as pool:
        clients = [stack.enter_context(_connected(proxy)) for _ in range(connections)]
        return timed(lambda: list(pool.map(lambda client: client.get("o", 0, nbytes // connections), clients)))()


def _requests(proxy: Proxy, count: int, size: int) -> None:
    with _connected(proxy) as client:
        for _ in range(count):
            client.get("o", 0, size)


@contextlib.contextmanager
def ranges() -> Iterator[str]:
    """Yield the address of a server of ranges, as fast as the loopback, in a process of its own."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(its,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection) -> None:
    with _Server(("127.0.0.1", 0), _Ranges) as server:
        connection.send(server.server_port)
        server.serve_forever()


class _Server(ThreadingHTTPServer):
    # Of more connections at once than wait in line, some would come a second later, with a second SYN.
    request_queue_size = 128


class _Ranges(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(memoryview(_ZEROS)[: last - first + 1])

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
