"""The bare way to a store's bytes: one request over a connection of one's own, read and dropped; no SDK, no MPI.

What many of these reach at once is the store's own ceiling (METHOD 20).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from scripts.lib.program import Problem

_BUFFER = 1 << 20


class Getter(Protocol):
    """One connection."""

    def get(self, name: str, offset: int, length: int) -> None:
        """Read a part of an object and drop it."""

    def close(self) -> None:
        """Let go of the connection."""


def of(store: dict, location: dict, direct: bool = False) -> Callable[[], Getter]:
    """Return what makes connections to a store; each is for one thread.

    Args:
        store: its entry in the configuration.
        location: where the data set is in it.
        direct: past the page cache.
    """
    return lambda: _Files(location, direct)


class _Files:
    """A file a request, opened where the next one is another."""

    def __init__(self, location: dict, direct: bool) -> None:
        import mmap

        self._folder, self._flags = Path(location["folder"]), os.O_RDONLY | (os.O_DIRECT if direct else 0)
        self._view = memoryview(mmap.mmap(-1, _BUFFER))
        self._open: tuple[str, int] | None = None

    def get(self, name: str, offset: int, length: int) -> None:
        if self._open is None or self._open[0] != name:
            self.close()
            self._open = name, os.open(self._folder / name, self._flags)
        end = offset + length
        while offset < end:
            wanted = min(_BUFFER, end - offset)
            # Past the page cache lengths are whole blocks of the device; offsets are, by the pattern.
            count = os.preadv(self._open[1], [self._view[: -(-wanted // 4096) * 4096]], offset)
            if not count:
                raise Problem(f"{self._folder / name} ended before all of it was read")
            offset += count

    def close(self) -> None:
        if self._open:
            os.close(self._open[1])
            self._open = None
