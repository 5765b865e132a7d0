"""A server of ranges of zeros: what an emulated network is tested with."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

_ZEROS = bytes(64 * 2**20)


@contextlib.contextmanager
def serve_ranges() -> Iterator[str]:
    """Yield the address of a server of ranges, as fast as the loopback, in another process."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection) -> None:
    # Beyond this number of waiting connections some would come a second later, with a second SYN.
    ThreadingHTTPServer.request_queue_size = 128
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ranges) as server:
        connection.send(server.server_port)
        server.serve_forever()


class _Ranges(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1

    def do_GET(self) -> None:
        first, last = map(int, self.headers.get("Range", "bytes=1-0").removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(memoryview(_ZEROS)[: last - first + 1])

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass
