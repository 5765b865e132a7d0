"""Define the reader interface that every kind of store implements.

A reader fetches an object's identity (size and version) once. It then fills a buffer with byte ranges of the object,
`chunk_bytes` per request and `concurrency` requests in flight. It checks that the object still has this identity in
each response, or in `expect_unchanged` if responses do not show it. It never retries silently (METHOD 15).
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
    """The object was replaced or modified since its identity was fetched, which makes the measurement invalid."""


class Absent(Problem):
    """The object does not exist in the store."""


class Denied(Problem):
    """The store denies access to an object; S3 also does so for missing objects if the user may not list the bucket."""


@dataclass(frozen=True)
class Access:
    """Settings of a reader.

    Attributes:
        chunk_bytes: bytes per request.
        concurrency: number of requests in flight.
        direct: whether to bypass the page cache (files only).
    """

    chunk_bytes: int
    concurrency: int
    direct: bool = False


class Identity(NamedTuple):
    """An object's size and version.

    The version changes if the object is replaced. It is the ETag, or the inode and modification time of a file.
    """

    size: int
    version: str


class Reader(ABC):
    """Base class of readers, which split byte ranges into requests, send them from a thread pool, and count them.

    Attributes:
        client: name and version of the library that reads.
        place: description of the bucket, container or share, for messages.
        attempts: number of requests sent so far, including retries.
        retries: number of retries so far.
    """

    client = ""
    place = ""

    def __init__(self, spec: dict, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> None:
        """Initialise with the store's configuration entry and the dataset's location, without sending a request."""
        self.spec, self.location, self.access = spec, location, access
        self.attempts = self.retries = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def fetch_identity(self, name: str) -> Identity:
        """Fetch the current size and version of an object.

        Raises:
            Absent: the object does not exist.
            Problem: the request failed; the message has one line.
        """

    @abstractmethod
    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Read byte ranges, given as (offset, length), into consecutive parts of `view`.

        Raises:
            Changed: the object no longer has this identity.
            Problem: the object cannot be read; the message has one line.
        """

    def expect_unchanged(self, name: str, identity: Identity) -> None:
        """Check outside the timed window that an object is unchanged. Do nothing if `read` checks each response.

        Raises:
            Changed: the object no longer has this identity.
        """
        return

    def describe_object(self, name: str) -> str:
        """Return the object's key and the bucket, container or share that contains it, for messages."""
        key = f"{self.location['key']}/{name}".lstrip("/")
        return f"{key} in {self.place}"

    def build_changed_error(self, name: str) -> Changed:
        """Return the exception for an object that no longer has its identity."""
        return Changed(f"{self.describe_object(name)} was replaced or truncated during the measurement")

    def count_requests(self, attempts: int, retries: int = 0) -> None:
        """Add to the counts of requests and retries (thread-safe)."""
        with self._lock:
            self.attempts += attempts
            self.retries += retries

    def close(self) -> None:
        """Close connections and stop the threads."""
        if self._pool:
            self._pool.shutdown()

    def split_extents(
        self, extents: Iterable[tuple[int, int]], view: memoryview, most: int = 0
    ) -> list[tuple[int, memoryview]]:
        """Split byte ranges into requests of at most `most` bytes (default: the reader's chunk size).

        Returns:
            (offset in the object, part of `view` to fill) per request.
        """
        pieces, at, most = [], 0, most or self.access.chunk_bytes
        for offset, length in extents:
            for begin in range(0, length, most):
                count = min(most, length - begin)
                pieces.append((offset + begin, view[at + begin : at + begin + count]))
            at += length
        return pieces

    def fetch_pieces(self, pieces: list[tuple], fetch: Callable[..., None]) -> None:
        """Call `fetch(*piece)` for all pieces from `concurrency` threads; stop at the first error and raise it."""
        # The threads share one iterator, so that each piece is fetched once.
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
