"""Read objects of a store: every kind of store has the same reader interface.

A reader identifies an object once and fills a buffer with extents of it, `chunk_bytes` per request and `concurrency`
requests in flight. It verifies that the object is still the identified object in each answer, or in
`expect_unchanged` if answers do not identify it; it never retries silently (METHOD 15).
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
    """The object is not, or no longer, the identified object: the measurement is invalid, not failed."""


class Absent(Problem):
    """The store lacks the object."""


class Denied(Problem):
    """The store denies access to an object, which may also be missing if the bucket may not be listed."""


@dataclass(frozen=True)
class Access:
    """Settings of a reader: bytes per request, requests in flight, and whether to bypass the page cache."""

    chunk_bytes: int
    concurrency: int
    direct: bool = False


class Identity(NamedTuple):
    """An object's size, and a version that changes if it is replaced: ETag, or inode and time of modification."""

    size: int
    version: str


class Reader(ABC):
    """Base class of readers, with threads that fetch the chunks of extents and counts of requests.

    Attributes:
        client: name and version of the reading library.
        place: holder of the objects, for messages.
        attempts: requests sent so far, retries included.
        retries: repeated requests.
    """

    client = ""
    place = ""

    def __init__(self, spec: dict, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> None:
        """Keep the store's entry in the configuration, the dataset's location and the credentials; send no request."""
        self.spec, self.location, self.access = spec, location, access
        self.attempts = self.retries = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def fetch_identity(self, name: str) -> Identity:
        """Fetch the current size and version of an object.

        Raises:
            Absent: the store lacks the object.
            Problem: the store cannot be asked; the message has one line.
        """

    @abstractmethod
    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view` with the (offset, length) pairs of `extents`, in sequence.

        Raises:
            Changed: the object is not the identified object.
            Problem: the object cannot be read; the message has one line.
        """

    def expect_unchanged(self, name: str, identity: Identity) -> None:
        """Check outside the timed window that an object is unchanged, if the answers to `read` do not show it.

        Raises:
            Changed: the object has changed.
        """
        return

    def describe_object(self, name: str) -> str:
        """Return the name of an object for messages."""
        key = f"{self.location['key']}/{name}".lstrip("/")
        return f"{key} in {self.place}"

    def build_changed_error(self, name: str) -> Changed:
        """Return the error for an object that is not the identified object."""
        return Changed(f"{self.describe_object(name)} was replaced or truncated during the measurement")

    def count_requests(self, attempts: int, retries: int = 0) -> None:
        """Count requests from any thread."""
        with self._lock:
            self.attempts += attempts
            self.retries += retries

    def close(self) -> None:
        """Close connections and threads."""
        if self._pool:
            self._pool.shutdown()

    def split_extents(
        self, extents: Iterable[tuple[int, int]], view: memoryview, most: int = 0
    ) -> list[tuple[int, memoryview]]:
        """Split extents into requests of at most `most` (default: chunk) bytes, as (offset, part of `view` to fill)."""
        pieces, at, most = [], 0, most or self.access.chunk_bytes
        for offset, length in extents:
            for begin in range(0, length, most):
                count = min(most, length - begin)
                pieces.append((offset + begin, view[at + begin : at + begin + count]))
            at += length
        return pieces

    def fetch_pieces(self, pieces: list[tuple], fetch: Callable[..., None]) -> None:
        """Call `fetch` for all pieces, `concurrency` at a time; stop at the first error and raise it."""
        # Threads share the list's iterator, so that each takes different pieces.
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
