"""Counts the requests that reach an embedded server: from its access log, or from the StatsD packets that it sends."""

import contextlib
import itertools
import re
import select
import socket
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import IO

from scripts.lib.program import Problem

# Asks no proxy of the environment: what it talks to is on the loopback.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# The common log format: host - user [time] "method target protocol" status length
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+|-) (\d+|-)$')
_MARK_LIMIT_S = 30
# Influx flavour: name,tag=value,…:number|c
_METRIC = re.compile(r"^([^,:]+)((?:,[^=,:]+=[^,:]*)*):(-?[0-9.]+)\|c")
_QUIET_S = 0.1


class Requests(ABC):
    """Counts requests by HTTP method from one `reset` to the next (METHOD 11).

    A subclass hears of the requests in its own way, in a thread of its own.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget what was counted: a window opens."""
        with self._lock:
            self._counts: dict[str, Counter[str]] = {}

    def add(self, method: str, **numbers: int) -> None:
        """Add requests of a method, `count` and `failed`, and the `bytes_offered` in the bodies of their answers."""
        with self._lock:
            self._counts.setdefault(method, Counter(count=0, failed=0, bytes_offered=0)).update(numbers)

    def read(self) -> dict[str, dict[str, int]]:
        """Return {method: {"count", "failed", "bytes_offered"}} since the last reset; `count` includes the failed."""
        with self._lock:
            return {method: dict(numbers) for method, numbers in sorted(self._counts.items()) if numbers["count"]}

    @abstractmethod
    def settle(self) -> None:
        """Wait until all requests that were answered before this call are counted."""

    def dropped(self) -> int:
        """Return how many requests could not be counted."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Stop counting."""


class AccessLog(Requests):
    """Reads a server's standard output to its end; what is no line of the access log is passed on to `log`.

    The lines themselves are kept nowhere: an address may be signed.
    """

    def __init__(self, log: IO[str]) -> None:
        """Begin without a server; `log` gets a server's other words."""
        super().__init__()
        self._log, self._url = log, ""
        self._marks, self._seen, self._news = itertools.count(1), 0, threading.Condition()
        self._thread: threading.Thread | None = None

    def listen(self, output: IO[bytes], url: str) -> None:
        """Read a server's output in a thread; the server at `url` is asked for marks that its log then shows."""
        self._url = url
        self._thread = threading.Thread(target=self._listen, args=(output,), daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Make a request of one's own and wait for its line: those of the answers before it have come then.

        Raises:
            Problem: the line does not come.
        """
        mark = next(self._marks)
        with contextlib.suppress(OSError):
            OPENER.open(f"{self._url}/mark-{mark}", timeout=_MARK_LIMIT_S).close()
        with self._news:
            if not self._news.wait_for(lambda: self._seen >= mark, _MARK_LIMIT_S):
                raise Problem("the server does not write its log any more: the requests cannot be counted")

    def close(self) -> None:
        """Wait for the end of the server's words; the server has ended."""
        if self._thread:
            self._thread.join(timeout=2)

    def _listen(self, output: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):
            for line in output:
                self._hear(line.decode("utf-8", "replace").rstrip())

    def _hear(self, line: str) -> None:
        match = _LINE.search(line)
        if not match:
            with contextlib.suppress(ValueError):
                print(line, file=self._log, flush=True)
            return
        method, target, status, length = match.groups()
        if target.startswith("/mark-"):
            with self._news:
                self._seen = int(target.removeprefix("/mark-"))
                self._news.notify_all()
            return
        # Status "-": the reader was gone before the answer began.
        failed = not status.isdigit() or int(status) >= 400
        offered = int(length) if not failed and method == "GET" and length.isdigit() else 0
        self.add(method, count=1, failed=failed, bytes_offered=offered)


class RequestCounter(Requests):
    """Receives a server's StatsD packets on a loopback port from its construction until `close`."""

    def __init__(self) -> None:
        """Bind a free port of 127.0.0.1 and listen."""
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until no packet has come for a while from now on: UDP packets trail their requests."""
        called = time.monotonic()
        while time.monotonic() - max(called, self._last) < _QUIET_S or self._waits():
            time.sleep(0.005)

    def _waits(self) -> bool:
        """Say whether a packet has come that the thread has not taken yet: it may get no core for a while."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def dropped(self) -> int:
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

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while packet := self._socket.recv(65536):
                self._last = time.monotonic()
                for line in packet.decode("utf-8", "replace").splitlines():
                    self._count(line)

    def _count(self, line: str) -> None:
        if not (match := _METRIC.match(line.strip())):
            return
        name = match[1].removeprefix("versitygw.")
        tags = dict(tag.split("=", 1) for tag in match[2].split(",")[1:])
        method, value = tags.get("method", "?"), int(float(match[3]))
        if name in ("success_count", "failed_count"):
            self.add(method, count=value, failed=value * (name == "failed_count"))
        elif name == "bytes_read":
            self.add(method, bytes_offered=value)
