"""Stands between a reader and a server on the loopback and writes down what the reader asks for."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class Recorder:
    """Passes connections to its `port` on to another as they are; `requests` are (method, Range header or "")."""

    def __init__(self, upstream: int) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[tuple[str, str]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                reader, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                for source, target, seen in ((reader, server, self._note), (server, reader, None)):
                    threading.Thread(target=_pass_on, args=(source, target, seen), daemon=True).start()

    def _note(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.requests.append((first.split(" ", 1)[0], headers.get("range", "")))


def _pass_on(source: socket.socket, target: socket.socket, seen: Callable[[str], None] | None) -> None:
    """Copy until the source ends. Requests that read have no bodies, so each ends with its first empty line."""
    pending = b""
    with contextlib.suppress(OSError):
        while block := source.recv(1 << 16):
            if seen:
                *heads, pending = (pending + block).split(b"\r\n\r\n")
                for head in heads:
                    seen(head.decode("latin-1"))
            target.sendall(block)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def recorder(port: int) -> Iterator[Recorder]:
    """Record what is asked of 127.0.0.1:`port` for the length of a `with` block."""
    standing = Recorder(port)
    try:
        yield standing
    finally:
        standing.close()
