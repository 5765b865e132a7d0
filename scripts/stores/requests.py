"""What is known of the requests that reach an embedded server, by HTTP method (METHOD 11)."""

import threading
from abc import ABC, abstractmethod
from collections import Counter


class Requests(ABC):
    """Counts from one `reset` to the next; a subclass hears of the requests in its own way, in a thread of its own."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget what was counted: a window opens."""
        with self._lock:
            self._counts: Counter[str] = Counter()
            self._failures: Counter[str] = Counter()
            self._offered: Counter[str] = Counter()

    def count(self, method: str, requests: int = 1, *, failed: bool = False) -> None:
        """Add requests of a method."""
        with self._lock:
            self._counts[method] += requests
            self._failures[method] += requests if failed else 0

    def offer(self, method: str, size: int) -> None:
        """Add bytes that the server offered in the bodies of its answers."""
        with self._lock:
            self._offered[method] += size

    def read(self) -> dict[str, dict[str, int]]:
        """Return {method: {"count", "failed", "bytes_offered"}} since the last reset; `count` includes the failed."""
        with self._lock:
            return {
                method: {
                    "count": self._counts[method],
                    "failed": self._failures[method],
                    "bytes_offered": self._offered[method],
                }
                for method in sorted(self._counts)
            }

    @abstractmethod
    def settle(self) -> None:
        """Wait until all requests that were answered before this call are counted."""

    def dropped(self) -> int:
        """Return how many requests could not be counted."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Stop counting."""
