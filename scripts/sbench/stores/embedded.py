"""Run embedded servers behind an emulated network (toxiproxy), and count the requests that reach them.

Requests are counted from the server's access log, or from the StatsD packets that it sends.
"""

import contextlib
import itertools
import json
import re
import secrets
import select
import socket
import subprocess
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen
from typing import IO

from sbench.probe.processes import start_server
from sbench.probe.program import Problem
from sbench.stores import network as networks

# Ignores proxies set in the environment, because all servers are on the loopback interface.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# The common log format: host - user [time] "method target protocol" status length
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+|-) (\d+|-)$')
_MARK_LIMIT_S = 30
# A StatsD counter with tags in the style of InfluxDB: name,tag=value,…:number|c
_METRIC = re.compile(r"^([^,:]+)((?:,[^=,:]+=[^,:]*)*):(-?[0-9.]+)\|c")
_QUIET_S = 0.1
# Fields of each request that the emulated network records; see `Proxy.fetch_traffic`.
# Query parameters of listings; those of other requests for buckets are, for example, `location` and `policy`.
_LISTING = {"list-type", "prefix", "delimiter", "marker", "max-keys", "encoding-type", "continuation-token"}
_LISTING |= {"start-after", "fetch-owner", "versions", "x-id"}
# The query parameters of a listing of Azure Storage.
_AZURE_LISTING = {"restype", "comp"}
EXCHANGE = ("connection", "method", "path", "range", "status", "bytes", "begin", "first", "end")


class RequestCounter(ABC):
    """Base class of counters of requests by HTTP method since the last `reset_counts` (METHOD 11).

    Subclasses count in a thread.

    Attributes:
        output: destination of the server's standard output, as in `subprocess.Popen`; None for the log file.
    """

    output: int | None = None

    def __init__(self) -> None:
        """Initialise with empty counts."""
        self._lock = threading.Lock()
        self.reset_counts()

    def reset_counts(self) -> None:
        """Clear the counts, at the start of a timed window."""
        with self._lock:
            self._counts: dict[str, Counter[str]] = {}

    def add_requests(self, method: str, **numbers: int) -> None:
        """Add to a method's counts: `count`, `failed`, and `bytes_offered` (bytes in response bodies)."""
        with self._lock:
            self._counts.setdefault(method, Counter(count=0, failed=0, bytes_offered=0)).update(numbers)

    def get_counts(self) -> dict[str, dict[str, int | None]]:
        """Return {method: {"count", "failed", "bytes_offered"}} since the last reset; `count` includes `failed`."""
        with self._lock:
            return {method: dict(numbers) for method, numbers in sorted(self._counts.items()) if numbers["count"]}

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Start counting the requests to a running server, and write all other output of the server to `log`."""
        return

    @abstractmethod
    def wait_for_counts(self) -> None:
        """Wait until all requests that completed before this call have been counted.

        Raises:
            Problem: some of these requests cannot be counted.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop counting; called after the server has exited."""


class AccessLog(RequestCounter):
    """Counts the lines of the access log on a server's standard output, and copies all other output to the log file.

    Lines of the access log are discarded, because their URLs may be signed.
    """

    output = subprocess.PIPE

    def __init__(self) -> None:
        """Initialise without a server."""
        super().__init__()
        self._marks, self._seen, self._news = itertools.count(1), 0, threading.Condition()
        self._thread: threading.Thread | None = None

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Start a thread that reads the server's output; `wait_for_counts` sends its requests to `url`."""
        self._url = url
        self._thread = threading.Thread(target=self._read_output, args=(process.stdout, log), daemon=True)
        self._thread.start()

    def wait_for_counts(self) -> None:
        """Request a unique URL and wait for its log line, which follows the lines of all completed requests."""
        mark = next(self._marks)
        with contextlib.suppress(OSError):
            _OPENER.open(f"{self._url}/mark-{mark}", timeout=_MARK_LIMIT_S).close()
        with self._news:
            if not self._news.wait_for(lambda: self._seen >= mark, _MARK_LIMIT_S):
                raise Problem("the server stopped writing its access log, so requests cannot be counted; run again")

    def close(self) -> None:
        """Wait at most 2 s until the server's output has been read completely."""
        if self._thread:
            self._thread.join(timeout=2)

    def _read_output(self, output: IO[bytes], log: IO[str]) -> None:
        # `output` or `log` may be closed before the last line is read.
        with contextlib.suppress(ValueError):
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip()
                if match := _LINE.search(line):
                    self._count_request(*match.groups())
                else:
                    # Counting must continue even if the log's disk is full.
                    with contextlib.suppress(OSError):
                        print(line, file=log, flush=True)

    def _count_request(self, method: str, target: str, status: str, length: str) -> None:
        if target.startswith("/mark-"):
            with self._news:
                self._seen = int(target.removeprefix("/mark-"))
                self._news.notify_all()
            return
        # Status "-": the client disconnected before the response began.
        failed = not status.isdigit() or int(status) >= 400
        offered = int(length) if not failed and method == "GET" and length.isdigit() else 0
        self.add_requests(method, count=1, failed=failed, bytes_offered=offered)


class StatsD(RequestCounter):
    """Counts requests based on the StatsD packets that a server sends to `address` on the loopback interface."""

    def __init__(self) -> None:
        """Bind a UDP socket to a free port of 127.0.0.1, and start a thread that receives packets."""
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._receive_packets, daemon=True)
        self._thread.start()

    def wait_for_counts(self) -> None:
        """Wait until no packet has arrived for 0.1 s, because packets arrive later than the requests they count."""
        called = time.monotonic()
        # Packets may be waiting in the socket if the receiving thread was not scheduled for a while.
        while time.monotonic() - max(called, self._last) < _QUIET_S or select.select([self._socket], [], [], 0)[0]:
            time.sleep(0.005)
        if lost := self.count_dropped():
            raise Problem(f"{lost} StatsD packets of the server were lost, so requests cannot be counted; run again")

    def count_dropped(self) -> int:
        """Return the number of packets that the kernel dropped at this socket (column `drops` in /proc/net/udp)."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        rows = (line.split() for line in Path("/proc/self/net/udp").read_text(encoding="utf-8").splitlines()[1:])
        return sum(int(row[-1]) for row in rows if row[1].endswith(port))

    def close(self) -> None:
        """Close the socket and stop the thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=2)

    def _receive_packets(self) -> None:
        with contextlib.suppress(OSError):
            while packet := self._socket.recv(65536):
                self._last = time.monotonic()
                for match in map(_METRIC.match, packet.decode("utf-8", "replace").split("\n")):
                    if match:
                        self._count_metric(*match.groups())

    def _count_metric(self, name: str, tags: str, number: str) -> None:
        method = dict(tag.split("=", 1) for tag in tags.split(",")[1:]).get("method", "?")
        kind, value = name.rpartition(".")[2], int(float(number))
        if kind in ("success_count", "failed_count"):
            self.add_requests(method, count=value, failed=value * (kind == "failed_count"))
        elif kind == "bytes_read":
            self.add_requests(method, bytes_offered=value)


@dataclass(frozen=True)
class Server:
    """The command and settings that start an embedded server.

    Attributes:
        name: name of the server in messages.
        command: function that returns the command to start the server on a given port of 127.0.0.1.
        counter: counter of its requests.
        env: environment variables in addition to PATH, HOME and TMPDIR.
        credentials: the account and its key ("access_key" and "secret_key", or "account" and "key"). The key is
            generated for each start of the server and is never written to a file.
    """

    name: str
    command: Callable[[int], list[str]]
    counter: RequestCounter
    env: dict[str, str] = field(default_factory=dict)
    credentials: dict[str, str] = field(default_factory=dict)


class Proxy:
    """A proxy that emulates a network in front of a server on the loopback interface (envs/servers/toxiproxy).

    Attributes:
        process: the proxy's process.
        endpoint: URL for clients.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        program: str,
        endpoint: str,
        network: dict,
        log: IO[str],
        encrypted: bool = False,
    ) -> None:
        """Start the proxy.

        Args:
            stack: exit stack that stops the proxy.
            program: path of the proxy's executable.
            endpoint: URL of the server.
            network: settings as in the schema of stores; missing settings mean no delay and no rate limit. Two further
                keys are set by code only: `recorded` (False to record no traffic), and `fault` (faults to inject, see
                `faults.plan_fault`).
            log: open file for the proxy's output.
            encrypted: whether clients connect with TLS.
        """
        # 0 means unlimited.
        shared, each = (network.get(key, 0) * networks.MIB for key in ("shared_mib_s", "per_connection_mib_s"))

        def command(port: int) -> list[str]:
            return [
                *(program, f"-control=127.0.0.1:{port}", f"-upstream={endpoint.removeprefix('http://')}"),
                *(f"-latency-ms={network.get('latency_ms', 0)}", f"-jitter-ms={network.get('jitter_ms', 0)}"),
                *(f"-shared={shared}", f"-per-connection={each}"),
                f"-record={str(network.get('recorded', True)).lower()}",
                f"-tls={str(encrypted).lower()}",
                *(f"-{name}={value}" for name, value in network.get("fault", {}).items()),
            ]

        # Other users of the machine reach the port, but do not see the environment of the process.
        token = secrets.token_hex(16)
        self.process, control = start_server(stack, "toxiproxy", log, command, {"CONTROL_TOKEN": token})
        self._control = f"http://127.0.0.1:{control}/{token}"
        self.endpoint = f"http{'s' * encrypted}://{self._call_control('listen')}"

    def fetch_authority(self) -> str:
        """Return the PEM certificate of the certificate authority that TLS clients must trust."""
        return self._call_control("authority")

    def reset_traffic(self) -> None:
        """Discard the traffic recorded so far, and start injecting faults."""
        self._call_control("reset")

    def fetch_traffic(self) -> dict:
        """Return the traffic recorded since the last reset, and stop injecting faults.

        Returns:
            connections: number of connections opened.
            handshakes, refused: number of TLS handshakes, and of those that failed.
            injected: number of injected faults.
            sent: bytes sent to clients, including headers.
            unread: number of request fragments that could not be parsed; 0 unless clients pipeline requests.
            exchanges: the fields `EXCHANGE` of each request, ordered by `begin`, and `query` (the names of its query
                parameters), `uploaded` (bytes of its body) and `content_range` (of its response). `bytes` excludes
                headers. `begin`,
                `first` and `end` are the times of the start of the request and of the first and last byte of its
                response, in seconds since the reset.
        """
        with self._open_control("passed") as lines:
            passed, *pieces = map(json.loads, lines)
            if not pieces or pieces[-1]:
                raise HTTPException("its answer has no end")
            return passed | {"exchanges": list(itertools.chain.from_iterable(pieces))}

    def _call_control(self, what: str) -> str:
        with self._open_control(what) as answer:
            return answer.read().decode()

    @contextlib.contextmanager
    def _open_control(self, what: str) -> Iterator[IO[bytes]]:
        try:
            with _OPENER.open(f"{self._control}/{what}", timeout=10) as answer:
                yield answer
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Problem(f"the proxy of the emulated network does not respond: {reason}; run again") from error


def is_listing(exchange: Mapping) -> bool:
    """Return whether a recorded request lists a bucket, a container, or all buckets."""
    names = set(exchange["query"].split())
    is_of_bucket = "/" not in exchange["path"].strip("/")
    return exchange["method"] == "GET" and ((is_of_bucket and names <= _LISTING) or names >= _AZURE_LISTING)


@dataclass
class Served:
    """A running embedded server and the counter of its requests.

    Attributes:
        endpoint: URL for clients; the proxy's URL if a network is emulated.
        credentials: as in `Server`.
        folder: folder of the server's files, which this machine's page cache may contain.
        counter: counter of requests.
        processes: processes by name; all must still be running when the measurement ends.
        proxy: proxy between the clients and the server; None without an emulated network.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: RequestCounter
    processes: dict[str, Popen]
    proxy: Proxy | None = None

    def open_window(self) -> None:
        """Reset the counts of requests and the recorded traffic, at the start of a timed window."""
        self.counter.wait_for_counts()
        self.counter.reset_counts()
        if self.proxy:
            self.proxy.reset_traffic()

    def close_window(self) -> tuple[dict[str, dict[str, int | None]], dict | None]:
        """Return the requests since the window opened, by method (METHOD 11), and the proxy's traffic.

        The traffic is None without an emulated network.

        `bytes_offered` is the number of bytes in the server's responses. `bytes_delivered` is the number of bytes,
        including headers, that the proxy sent to the reader (None for methods other than GET, or without a proxy).
        `listings`, only with a proxy, is the number of GET requests that list a bucket or container.

        Raises:
            Problem: some requests cannot be counted.
        """
        self.counter.wait_for_counts()
        requests, passed = self.counter.get_counts(), self.proxy.fetch_traffic() if self.proxy else None
        for method in requests:
            requests[method]["bytes_delivered"] = passed["sent"] if passed and method == "GET" else None
        if passed and "GET" in requests:
            requests["GET"]["listings"] = sum(map(is_listing, passed["exchanges"]))
        return requests, passed

    def list_pids(self) -> dict[str, int]:
        """Return the process IDs of the server (key "server") and of the proxy (key "network", if there is one)."""
        pids = [process.pid for process in self.processes.values()]
        return dict(zip(("server", "network"), pids, strict=False))

    def list_dead_servers(self) -> list[str]:
        """List the names of the processes that have exited."""
        return [name for name, process in self.processes.items() if process.poll() is not None]
