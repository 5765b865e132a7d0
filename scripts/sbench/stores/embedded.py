"""Embedded servers: how one is started, the emulated network before it (toxiproxy), and the requests that reach it.

Requests are counted from the server's access log, or from the StatsD packets that it sends.
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

# Asks no proxy of the environment: what it talks to is on the loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# The common log format: host - user [time] "method target protocol" status length
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+|-) (\d+|-)$')
_MARK_LIMIT_S = 30
# Influx flavour: name,tag=value,…:number|c
_METRIC = re.compile(r"^([^,:]+)((?:,[^=,:]+=[^,:]*)*):(-?[0-9.]+)\|c")
_QUIET_S = 0.1
# What is recorded of a request that passes an emulated network, see `Proxy.fetch_traffic`.
EXCHANGE = ("connection", "method", "path", "range", "status", "bytes", "begin", "first", "end")


class Requests(ABC):
    """Counts requests by HTTP method from one `reset_counts` to the next (METHOD 11).

    A subclass hears of the requests in its own way, in a thread of its own.

    Attributes:
        output: where the server's standard output goes; None: to the log.
    """

    output: int | None = None

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self.reset_counts()

    def reset_counts(self) -> None:
        """Forget what was counted: a window opens."""
        with self._lock:
            self._counts: dict[str, Counter[str]] = {}

    def add_requests(self, method: str, **numbers: int) -> None:
        """Add requests of a method, `count` and `failed`, and the `bytes_offered` in the bodies of their answers."""
        with self._lock:
            self._counts.setdefault(method, Counter(count=0, failed=0, bytes_offered=0)).update(numbers)

    def get_counts(self) -> dict[str, dict[str, int | None]]:
        """Return {method: {"count", "failed", "bytes_offered"}} since the last reset; `count` includes the failed."""
        with self._lock:
            return {method: dict(numbers) for method, numbers in sorted(self._counts.items()) if numbers["count"]}

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Begin to listen to a server that was started; `log` gets its other words."""
        return

    @abstractmethod
    def wait_for_counts(self) -> None:
        """Wait until all requests that were answered before this call are counted.

        Raises:
            Problem: not all of them can be counted.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop counting; the server has ended."""


class AccessLog(Requests):
    """Reads a server's standard output to its end; what is no line of the access log is passed on to the step's log.

    The lines themselves are kept nowhere: an address may be signed.
    """

    output = subprocess.PIPE

    def __init__(self) -> None:
        """Begin without a server."""
        super().__init__()
        self._marks, self._seen, self._news = itertools.count(1), 0, threading.Condition()
        self._thread: threading.Thread | None = None

    def start_listening(self, process: Popen, url: str, log: IO[str]) -> None:
        """Read the server's output in a thread; it is asked for marks that its log then shows."""
        self._url = url
        self._thread = threading.Thread(target=self._read_output, args=(process.stdout, log), daemon=True)
        self._thread.start()

    def wait_for_counts(self) -> None:
        """Make a request of one's own and wait for its line: those of the answers before it have come then."""
        mark = next(self._marks)
        with contextlib.suppress(OSError):
            _OPENER.open(f"{self._url}/mark-{mark}", timeout=_MARK_LIMIT_S).close()
        with self._news:
            if not self._news.wait_for(lambda: self._seen >= mark, _MARK_LIMIT_S):
                raise Problem("the server does not write its log any more: the requests cannot be counted")

    def close(self) -> None:
        """Wait for the end of the server's words."""
        if self._thread:
            self._thread.join(timeout=2)

    def _read_output(self, output: IO[bytes], log: IO[str]) -> None:
        # Either end may be closed before the last line.
        with contextlib.suppress(ValueError):
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip()
                if match := _LINE.search(line):
                    self._count_request(*match.groups())
                else:
                    # Requests are counted though the log lies on a full disk.
                    with contextlib.suppress(OSError):
                        print(line, file=log, flush=True)

    def _count_request(self, method: str, target: str, status: str, length: str) -> None:
        if target.startswith("/mark-"):
            with self._news:
                self._seen = int(target.removeprefix("/mark-"))
                self._news.notify_all()
            return
        # Status "-": the reader was gone before the answer began.
        failed = not status.isdigit() or int(status) >= 400
        offered = int(length) if not failed and method == "GET" and length.isdigit() else 0
        self.add_requests(method, count=1, failed=failed, bytes_offered=offered)


class StatsD(Requests):
    """Receives a server's StatsD packets at `address`, a loopback port, from its construction until `close`."""

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
        """Wait until no packet has come for a while from now on: UDP packets trail their requests."""
        called = time.monotonic()
        # A packet may have come that the thread has not taken yet: it may get no core for a while.
        while time.monotonic() - max(called, self._last) < _QUIET_S or select.select([self._socket], [], [], 0)[0]:
            time.sleep(0.005)
        if lost := self.count_dropped():
            raise Problem(f"{lost} of the server's reports of its requests were lost: the requests cannot be counted")

    def count_dropped(self) -> int:
        """Return how many packets the kernel has dropped since this counter was made (proc(5), net/udp, drops)."""
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
    """How the server of a kind of store is started.

    Attributes:
        name: what it is called in messages.
        command: returns the command that starts it on a port of 127.0.0.1.
        counter: counts its requests.
        env: its environment, beside PATH, HOME and TMPDIR.
        credentials: the account and its key ("access_key" and "secret_key", or "account" and "key"); the key is made
            for this start and written nowhere.
    """

    name: str
    command: Callable[[int], list[str]]
    counter: Requests
    env: dict[str, str] = field(default_factory=dict)
    credentials: dict[str, str] = field(default_factory=dict)


class Proxy:
    """The emulated network before a server on the loopback (envs/servers/toxiproxy); `process` is its own."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        program: str,
        endpoint: str,
        network: dict,
        log: IO[str],
        encrypted: bool = False,
    ) -> None:
        """Start it, owned by `stack`, with the keys of `network` in the schema of stores, no delay or limit by default.

        It records what passes unless `network` says `recorded: False`, and injects the `fault` (`faults.plan_fault`)
        that `network` may have, too; a configuration says neither there. Clients' connections may be `encrypted`.
        """
        # 0 is no limit.
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
        """Return the certificate of the authority that clients of encrypted connections have to trust, as PEM."""
        return self._call_control("authority")

    def reset_traffic(self) -> None:
        """Forget what passed; from here on faults are injected."""
        self._call_control("reset")

    def fetch_traffic(self) -> dict:
        """Return what passed since the last reset; from here on no faults are injected.

        Returns:
            connections: how many were opened.
            handshakes, refused: those of encrypted connections, and how many of them failed.
            injected: how many faults.
            sent: bytes sent to clients, headers included.
            unread: parts of requests that could not be read; 0 unless clients pipeline.
            exchanges: `EXCHANGE` of each request, in the order in which they began; `bytes` without headers, the times
                when it began, when the first and when the last byte of its answer came, in seconds since the reset.
        """
        return json.loads(self._call_control("passed"))

    def _call_control(self, what: str) -> str:
        try:
            with _OPENER.open(f"{self._control}/{what}", timeout=10) as answer:
                return answer.read().decode()
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Problem(f"the emulated network does not answer: {reason}; run again") from error


@dataclass
class Served:
    """A store's service on the loopback and what is known of the requests that reach it.

    Attributes:
        endpoint: URL to give to clients; the proxy's where a network is emulated.
        credentials: as in `Server`.
        folder: the server's files, whose pages are this machine's page cache.
        counter: counts the requests.
        processes: what must still be alive when the work is done, by name.
        proxy: what is between the clients and the server.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: Requests
    processes: dict[str, Popen]
    proxy: Proxy | None = None

    def open_window(self) -> None:
        """From here on requests count."""
        self.counter.wait_for_counts()
        self.counter.reset_counts()
        if self.proxy:
            self.proxy.reset_traffic()

    def close_window(self) -> tuple[dict[str, dict[str, int | None]], dict | None]:
        """Return the requests since the window opened, by method (METHOD 11), and what passed the proxy, if any.

        `bytes_offered` is what the server put into its responses, `bytes_delivered` what the proxy passed on to the
        reader, headers included; None where no proxy is between. If requests cannot be counted, `wait_for_counts` raises.
        """
        self.counter.wait_for_counts()
        requests, passed = self.counter.get_counts(), self.proxy.fetch_traffic() if self.proxy else None
        for method in requests:
            requests[method]["bytes_delivered"] = passed["sent"] if passed and method == "GET" else None
        return requests, passed

    def list_pids(self) -> dict[str, int]:
        """Return the process ids of the server and, where there is one, of the emulated network."""
        pids = [process.pid for process in self.processes.values()]
        return dict(zip(("server", "network"), pids, strict=False))

    def list_dead_servers(self) -> list[str]:
        """Return the names of the servers that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]
