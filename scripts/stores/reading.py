"""How a process reads objects of a store: each kind has the same reader.

A reader identifies an object once and fills a buffer with extents of it, `chunk_bytes` a request and `concurrency`
requests at once. It verifies that the object is still the one that was identified; nothing is tried again in silence
(METHOD 15).
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import NamedTuple

from scripts.lib.program import Problem


class Changed(Problem):
    """The object is not, or no longer, the one that was identified: what was measured is invalid, not failed."""


@dataclass(frozen=True)
class Access:
    """How a reader asks: bytes a request, requests at once, past the page cache or not."""

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
        attempts: requests sent until now, those that were tried again included.
        retries: requests that were tried again.
    """

    client = ""

    def __init__(self, access: Access) -> None:
        """Start no threads yet and send no request."""
        self.access = access
        self.attempts = self.retries = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def identify(self, name: str) -> Identity:
        """Ask the store what the object is now.

        Raises:
            Problem: it cannot be asked, or has no such object; one line.
        """

    @abstractmethod
    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view` with the (offset, length) of `extents`, one behind the other.

        Raises:
            Changed: the object is not the one identified.
            Problem: it cannot be read; one line.
        """

    def close(self) -> None:
        """Let go of connections and threads."""
        if self._pool:
            self._pool.shutdown()

    def chunks(self, extents: Iterable[tuple[int, int]], view: memoryview) -> list[tuple[int, memoryview]]:
        """Cut extents into requests: (offset, the part of `view` that it fills)."""
        pieces, at = [], 0
        for offset, length in extents:
            for begin in range(0, length, self.access.chunk_bytes):
                count = min(self.access.chunk_bytes, length - begin)
                pieces.append((offset + begin, view[at + begin : at + begin + count]))
            at += length
        return pieces

    def each(self, pieces: list[tuple], fetch: Callable[..., None]) -> None:
        """Call `fetch` for all pieces, `concurrency` at once; the first error ends it and is raised."""
        threads = min(self.access.concurrency, len(pieces))
        if threads <= 1:
            for piece in pieces:
                fetch(*piece)
            return
        queue = deque(pieces)

        def work() -> None:
            while piece := _next(queue):
                try:
                    fetch(*piece)
                except BaseException:
                    queue.clear()
                    raise

        self._pool = self._pool or ThreadPoolExecutor(self.access.concurrency)
        running = [self._pool.submit(work) for _ in range(threads)]
        wait(running)
        for one in running:
            one.result()


def _next(queue: deque[tuple]) -> tuple | None:
    try:
        return queue.popleft()
    except IndexError:
        return None
