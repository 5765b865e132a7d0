"""How a process reads objects of a store: each kind has the same reader.

A reader identifies an object once and fills a buffer with extents of it, `chunk_bytes` a request and `concurrency`
requests in flight. It verifies that the object is still the one that was identified, by each answer, or in `expect_unchanged`
where answers do not say; nothing is tried again in silence (METHOD 15).
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import NamedTuple

from sbench.probe.program import Problem


class Changed(Problem):
    """The object is not, or no longer, the one that was identified: what was measured is invalid, not failed."""


class Absent(Problem):
    """The store has no such object."""


class Denied(Problem):
    """The store does not let one read an object; where a bucket may not be listed, it may not be there either."""


@dataclass(frozen=True)
class Access:
    """How a reader asks: bytes per request, requests in flight, past the page cache or not."""

    chunk_bytes: int
    concurrency: int
    direct: bool = False


class Identity(NamedTuple):
    """An object's size, and what changes when it is replaced: ETag, or inode and time of modification."""

    size: int
    version: str


class Reader(ABC):
    """What all readers share: threads that fetch the chunks of extents, and the count of requests.

    Attributes:
        client: name and version of what reads.
        place: what holds the objects, in messages.
        attempts: requests sent until now, those that were tried again included.
        retries: requests that were tried again.
    """

    client = ""
    place = ""

    def __init__(self, spec: dict, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> None:
        """Take a store's entry in the configuration, the place of a dataset in it and credentials; send no request."""
        self.spec, self.location, self.access = spec, location, access
        self.attempts = self.retries = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def fetch_identity(self, name: str) -> Identity:
        """Ask the store what the object is now.

        Raises:
            Absent: the store has no such object.
            Problem: it cannot be asked; one line.
        """

    @abstractmethod
    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view` with the (offset, length) of `extents`, one behind the other.

        Raises:
            Changed: the object is not the one identified.
            Problem: it cannot be read; one line.
        """

    def expect_unchanged(self, name: str, identity: Identity) -> None:
        """See that the object is still the one identified, where no answer to `read` says so; outside of what is timed.

        Raises:
            Changed: it is not.
        """
        return

    def describe_object(self, name: str) -> str:
        """Return what an object is called in messages."""
        key = f"{self.location['key']}/{name}".lstrip("/")
        return f"{key} in {self.place}"

    def build_changed_error(self, name: str) -> Changed:
        """Return what is raised where an object is not the one identified."""
        return Changed(f"{self.describe_object(name)} was replaced or truncated while it was measured")

    def count_requests(self, attempts: int, retries: int = 0) -> None:
        """Count requests, from any thread."""
        with self._lock:
            self.attempts += attempts
            self.retries += retries

    def close(self) -> None:
        """Let go of connections and threads."""
        if self._pool:
            self._pool.shutdown()

    def split_extents(
        self, extents: Iterable[tuple[int, int]], view: memoryview, most: int = 0
    ) -> list[tuple[int, memoryview]]:
        """Cut extents into requests of `most` bytes, those of a chunk: (offset, the part of `view` that it fills)."""
        pieces, at, most = [], 0, most or self.access.chunk_bytes
        for offset, length in extents:
            for begin in range(0, length, most):
                count = min(most, length - begin)
                pieces.append((offset + begin, view[at + begin : at + begin + count]))
            at += length
        return pieces

    def fetch_pieces(self, pieces: list[tuple], fetch: Callable[..., None]) -> None:
        """Call `fetch` for all pieces, `concurrency` of them in flight; the first error ends it and is raised."""
        # Threads share the iterator of a list: each piece is taken once.
        waiting = iter(pieces)

        def fetch_waiting() -> None:
            try:
                for piece in waiting:
                    fetch(*piece)
            except BaseException:
                list(waiting)
                raise

        threads = min(self.access.concurrency, len(pieces))
        if threads <= 1:
            return fetch_waiting()
        self._pool = self._pool or ThreadPoolExecutor(self.access.concurrency)
        running = [self._pool.submit(fetch_waiting) for _ in range(threads)]
        wait(running)
        for future in running:
            future.result()
