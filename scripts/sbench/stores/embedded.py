"""Start embedded servers and the emulated network before them (toxiproxy), and count the requests that reach them.

Counts come from the server's access log or from the StatsD packets that it sends.
"""

import contextlib
import itertools
import json
import re
import select
import socket
import subprocess
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import IO

from sbench.probe.processes import start_server
from sbench.probe.program import Problem
from sbench.stores import network as networks

# Without the environment's proxies, because all servers are on the loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# The common log format: host - user [time] "method target protocol" status length
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+|-) (\d+|-)$')
_MARK_LIMIT_S = 30
# Influx flavour: name,tag=value,…:number|c
_METRIC = re.compile(r"^([^,:]+)((?:,[^=,:]+=[^,:]*)*):(-?[0-9.]+)\|c")
_QUIET_S = 0.1
# Fields of a recorded request through an emulated network, see `Proxy.fetch_traffic`.
EXCHANGE = ("connection", "method", "path", "range", "status", "bytes", "begin", "first", "end")


class Requests(ABC):
    """A counter of requests by HTTP method since the last `reset_counts` (METHOD 11); subclasses have a thread.

    Attributes:
        output: destination of the server's standard output; None for the log.
    """

    output: int | None = None

    def __init__(self) -> None:
        """Start with empty counts."""
        self._lock = threading.Lock()
        self.reset_counts()

    def reset_counts(self) -> None:
        """Clear the counts at the start of a window."""
        with self._lock:
            self._counts: dict[str, Counter[str]] = {}

    def add_requests(self, method: str, **numbers: int) -> None:
        """Add requests of a method: `count`, `failed`, and `bytes_offered` in the bodies of their answers."""
        with self._lock:
            self._counts.setdefault(method, Counter(count=0, failed=0, bytes_offered=0)).update(numbers)

    def get_counts(self) -> dict[str, dict[str, int | None]]:
        """Return {method: {"count", "failed", "bytes_offered"}} since the last reset; `count` includes failures."""
        with self._lock:
            return {method: dict(numbers) for method, numbers in sorted(self._counts.items()) if numbers["count"]}

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Start to listen to a running server; write its other output to `log`."""
        return

    @abstractmethod
    def wait_for_counts(self) -> None:
        """Wait until all requests that were answered before this call are counted.

        Raises:
            Problem: some of these requests cannot be counted.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop counting after the server has ended."""


class AccessLog(Requests):
    """A counter that reads the access log on a server's standard output, and copies other lines to the step's log.

    It does not keep the lines of the access log, because addresses may be signed.
    """

    output = subprocess.PIPE

    def __init__(self) -> None:
        """Start without a server."""
        super().__init__()
        self._marks, self._seen, self._news = itertools.count(1), 0, threading.Condition()
        self._thread: threading.Thread | None = None

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Read the server's output in a thread; `url` is for requests that leave marks in the log."""
        self._url = url
        self._thread = threading.Thread(target=self._read_output, args=(process.stdout, log), daemon=True)
        self._thread.start()

    def wait_for_counts(self) -> None:
        """Request a mark and wait for its line, which follows the lines of all earlier answers."""
        mark = next(self._marks)
        with contextlib.suppress(OSError):
            _OPENER.open(f"{self._url}/mark-{mark}", timeout=_MARK_LIMIT_S).close()
        with self._news:
            if not self._news.wait_for(lambda: self._seen >= mark, _MARK_LIMIT_S):
                raise Problem("the server stopped writing its access log, so requests cannot be counted; run again")

    def close(self) -> None:
        """Wait for the end of the server's output."""
        if self._thread:
            self._thread.join(timeout=2)

    def _read_output(self, output: IO[bytes], log: IO[str]) -> None:
        # Either file may be closed before the last line.
        with contextlib.suppress(ValueError):
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip()
                if match := _LINE.search(line):
                    self._count_request(*match.groups())
                else:
                    # A full disk under the log must not stop the count.
                    with contextlib.suppress(OSError):
                        print(line, file=log, flush=True)

    def _count_request(self, method: str, target: str, status: str, length: str) -> None:
        if target.startswith("/mark-"):
            with self._news:
                self._seen = int(target.removeprefix("/mark-"))
                self._news.notify_all()
            return
        # Status "-": the reader disconnected before the answer began.
        failed = not status.isdigit() or int(status) >= 400
        offered = int(length) if not failed and method == "GET" and length.isdigit() else 0
        self.add_requests(method, count=1, failed=failed, bytes_offered=offered)


class StatsD(Requests):
    """A counter of a server's StatsD packets, received at `address`, a loopback port, until `close`."""

    def __init__(self) -> None:
        """Bind a free port of 127.0.0.1 and listen."""
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._receive_packets, daemon=True)
        self._thread.start()

    def wait_for_counts(self) -> None:
        """Wait until packets stop arriving for a while after this call: UDP packets trail their requests."""
        called = time.monotonic()
        # A packet may still be in the socket if the thread gets no core for a while.
        while time.monotonic() - max(called, self._last) < _QUIET_S or select.select([self._socket], [], [], 0)[0]:
            time.sleep(0.005)
        if lost := self.count_dropped():
            raise Problem(f"{lost} StatsD packets of the server were lost, so requests cannot be counted; run again")

    def count_dropped(self) -> int:
        """Return the number of packets that the kernel has dropped since construction (proc(5), net/udp, drops)."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        rows = (line.split() for line in Path("/proc/self/net/udp").read_text(encoding="utf-8").splitlines()[1:])
        return sum(int(row[-1]) for row in rows if row[1].endswith(port))

    def close(self) -> None:
        """Stop listening."""
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
    """A description of how to start an embedded server.

    Attributes:
        name: name of the server in messages.
        command: function from a port of 127.0.0.1 to the command that starts the server there.
        counter: counter of its requests.
        env: environment in addition to PATH, HOME and TMPDIR.
        credentials: the account and its key ("access_key" and "secret_key", or "account" and "key"); each start creates
            a key, which is not written anywhere.
    """

    name: str
    command: Callable[[int], list[str]]
    counter: Requests
    env: dict[str, str] = field(default_factory=dict)
    credentials: dict[str, str] = field(default_factory=dict)


class Proxy:
    """The emulated network before a server on the loopback (envs/servers/toxiproxy); `process` runs it."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        program: str,
        endpoint: str,
        network: dict,
        log: IO[str],
        encrypted: bool = False,
    ) -> None:
        """Start the proxy in `stack`, with the keys of `network` in the schema of stores; default: no delay or limit.

        It records traffic unless `network` has `recorded: False`, and injects the `fault` of `network`, if any
        (`faults.plan_fault`); a configuration sets neither. Clients' connections may be `encrypted`.
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

        self.process, control = start_server(stack, "toxiproxy", log, command, {})
        self._control = f"http://127.0.0.1:{control}"
        self.endpoint = f"http{'s' * encrypted}://{self._call_control('listen')}"

    def fetch_authority(self) -> str:
        """Return the PEM certificate of the authority that clients of encrypted connections must trust."""
        return self._call_control("authority")

    def reset_traffic(self) -> None:
        """Forget the traffic so far, and inject faults from now on."""
        self._call_control("reset")

    def fetch_traffic(self) -> dict:
        """Return the traffic since the last reset, and stop injecting faults.

        Returns:
            connections: number of opened connections.
            handshakes, refused: number of TLS handshakes, and of failed ones.
            injected: number of injected faults.
            sent: bytes sent to clients, headers included.
            unread: parts of requests that could not be parsed; 0 unless clients pipeline.
            exchanges: `EXCHANGE` of each request, ordered by begin; `bytes` excludes headers; times are the begin of
                the request and the first and last byte of its answer, in seconds since the reset.
        """
        return json.loads(self._call_control("passed"))

    def _call_control(self, what: str) -> str:
        try:
            with _OPENER.open(f"{self._control}/{what}", timeout=10) as answer:
                return answer.read().decode()
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Problem(f"the proxy of the emulated network does not respond: {reason}; run again") from error


@dataclass
class Served:
    """A running embedded store with the counts of its requests.

    Attributes:
        endpoint: URL for clients; the proxy's URL if a network is emulated.
        credentials: as in `Server`.
        folder: the server's files, which this machine's page cache holds.
        counter: counter of requests.
        processes: processes that must be alive at the end of the work, by name.
        proxy: proxy between the clients and the server.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: Requests
    processes: dict[str, Popen]
    proxy: Proxy | None = None

    def open_window(self) -> None:
        """Count requests from now on."""
        self.counter.wait_for_counts()
        self.counter.reset_counts()
        if self.proxy:
            self.proxy.reset_traffic()

    def close_window(self) -> tuple[dict[str, dict[str, int | None]], dict | None]:
        """Return the requests since the window opened, by method (METHOD 11), and the proxy's traffic, if any.

        The server put `bytes_offered` into its responses; the proxy sent `bytes_delivered` to the reader, headers
        included (None for methods other than GET, or without a proxy). Problems are as in `wait_for_counts`.
        """
        self.counter.wait_for_counts()
        requests, passed = self.counter.get_counts(), self.proxy.fetch_traffic() if self.proxy else None
        for method in requests:
            requests[method]["bytes_delivered"] = passed["sent"] if passed and method == "GET" else None
        return requests, passed

    def list_pids(self) -> dict[str, int]:
        """Return the process ids of the server and of the emulated network, if any."""
        pids = [process.pid for process in self.processes.values()]
        return dict(zip(("server", "network"), pids, strict=False))

    def list_dead_servers(self) -> list[str]:
        """List the names of the servers that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]
