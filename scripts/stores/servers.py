"""What a server that a step owns for the length of its work is to all that speaks to it, and what it is asked."""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

from scripts.lib.program import Problem
from scripts.stores.network import Proxy


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

    def count(self, method: str, requests: int = 1, *, failed: bool = False) -> None:
        """Add requests of a method."""
        self._add(method, count=requests, failed=requests * failed)

    def offer(self, method: str, size: int) -> None:
        """Add bytes that the server offered in the bodies of its answers."""
        self._add(method, bytes_offered=size)

    def _add(self, method: str, **numbers: int) -> None:
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


@dataclass
class Served:
    """A store's service on the loopback and what is known of the requests that reach it.

    Attributes:
        endpoint: URL to give to clients; the proxy's where a network is emulated.
        credentials: the account and its key ("access_key" and "secret_key", or "account" and "key"); the key is made
            anew for each start and written nowhere.
        folder: the server's files, whose pages are this machine's page cache.
        processes: what must still be alive when the work is done, by name.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: Requests
    processes: dict[str, Popen]
    _proxy: Proxy | None = None
    _sent_at_open: int = field(default=0, repr=False)

    def open_window(self) -> None:
        """From here on requests count."""
        self.counter.settle()
        self.counter.reset()
        self._sent_at_open = self._proxy.sent() if self._proxy else 0

    def close_window(self) -> dict[str, dict[str, int | None]]:
        """Return the requests since the window opened, by method (METHOD 11).

        `bytes_offered` is what the server put into its responses, `bytes_delivered` what the proxy passed on to the
        reader, headers included; None where no proxy stands between, or a reader is still connected through it.

        Raises:
            Problem: not all requests could be counted.
        """
        self.counter.settle()
        if lost := self.counter.dropped():
            raise Problem(f"{lost} of the server's reports of its requests were lost: the requests cannot be counted")
        requests: dict[str, dict[str, int | None]] = {**self.counter.read()}
        delivered = self._proxy.delivered() if self._proxy else None
        if delivered is not None:
            delivered -= self._sent_at_open
        for method in requests:
            requests[method]["bytes_delivered"] = delivered if method == "GET" else None
        return requests

    def dead(self) -> list[str]:
        """Return the names of the servers that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def behind(self, proxy: Proxy) -> None:
        """Put a proxy between the clients and the server."""
        self.endpoint, self._proxy = proxy.endpoint, proxy
        self.processes["toxiproxy"] = proxy.process
