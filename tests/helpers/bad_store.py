"""A proxy on the loopback in front of a real store's server, that answers badly when a test says so."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_BUSY = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>Please reduce your request rate.</Message></Error>'
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


class BadStore:
    """What happens to the requests for objects' bytes; those that only ask what an object is are passed on.

    Attributes:
        endpoint: URL to give to clients.
        faults: what becomes of the next requests: "busy" (503 with Retry-After), "cut" (half of the body), "ok".
        always: what becomes of all after those.
        dropped: headers of answers that are not passed on, in lower case.
        hooks: called before a request is passed on, by its number, from 1.
        asked: how many requests have come.
        ports: of the clients, from which they came.
    """

    def __init__(self, upstream: str) -> None:
        """Stand in front of the server at `upstream`."""
        self.upstream, self.endpoint = upstream, ""
        self.faults: list[str] = []
        self.always = "ok"
        self.dropped: set[str] = set()
        self.hooks: dict[int, Callable[[], None]] = {}
        self.asked = 0
        self.ports: set[int] = set()
        self._lock = threading.Lock()

    def next(self, port: int) -> str:
        """Return what becomes of a request that comes from a port."""
        with self._lock:
            self.ports.add(port)
            self.asked += 1
            hook, fault = self.hooks.get(self.asked), self.faults.pop(0) if self.faults else self.always
        if hook:
            hook()
        return fault


@contextmanager
def in_front_of(upstream: str) -> Iterator[BadStore]:
    """Serve a bad store for the length of a `with` block."""
    store = BadStore(upstream)
    handler = type("Handler", (_Handler,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: BadStore

    def do_GET(self) -> None:
        asks_for_bytes = "Range" in self.headers or "x-ms-range" in self.headers
        fault = (
            "ok"
            if self.headers.get("Range") == "bytes=0-0" or not asks_for_bytes
            else self.store.next(self.client_address[1])
        )
        if fault == "busy":
            self._busy()
        else:
            self._pass_on(cut=fault == "cut")

    def do_HEAD(self) -> None:
        self._pass_on(cut=False)

    def log_message(self, *_: object) -> None:
        pass

    def _busy(self) -> None:
        azure = "x-ms-version" in self.headers
        body = _BUSY % (b"ServerBusy" if azure else b"SlowDown")
        self.send_response(503)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Type", "application/xml")
        if azure:
            self.send_header("x-ms-error-code", "ServerBusy")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, *, cut: bool) -> None:
        connection = http.client.HTTPConnection(urlsplit(self.store.upstream).netloc, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in {*_HOP_BY_HOP, "date", "server", "content-length", *self.store.dropped}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True


PAGES = {"well-formed": b"<html><body><p>Log in</p></body></html>", "malformed": b"<!doctype html><p>Log in<br>&nbsp;"}


@contextmanager
def portal(page: bytes) -> Iterator[str]:
    """Serve a page of HTML as the answer to everything, as gateways and consoles do; yields the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Portal", (_Portal,), {"page": page})) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Portal(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    page: bytes

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.page)

    do_HEAD = do_PUT = do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass
