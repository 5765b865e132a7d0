"""Counts the requests that reach an embedded server, from the access log that it writes to a pipe (METHOD 11)."""

import contextlib
import itertools
import re
import threading
from typing import IO

from scripts.lib.program import Problem
from scripts.stores.network import OPENER
from scripts.stores.servers import Requests

# The common log format: host - user [time] "method target protocol" status length
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP/[0-9.]+" (\d+|-) (\d+|-)$')
_LIMIT_S = 30


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
            OPENER.open(f"{self._url}/mark-{mark}", timeout=_LIMIT_S).close()
        with self._news:
            if not self._news.wait_for(lambda: self._seen >= mark, _LIMIT_S):
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
        self.count(method, failed=failed)
        if not failed and method == "GET" and length.isdigit():
            self.offer(method, int(length))
