"""The server: ranges of the files in a folder, and a line of the common log format for each request."""

import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the range that is asked for, or with the whole file."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        size = path.stat().st_size
        first, last = 0, size - 1
        if byte_range := self.headers.get("Range"):
            first, last = map(int, byte_range.removeprefix("bytes=").split("-"))
        with open(path, "rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
        self.send_response_only(206 if byte_range else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{size}")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        self.wfile.write(body)
        self.log_request(206, len(body))

    def log_message(self, form: str, *values: object) -> None:
        """Write a line of the access log."""
        print(f"{self.address_string()} - - [-] {form % values}", flush=True)


if __name__ == "__main__":
    handler = lambda *arguments: _Handler(*arguments, directory=sys.argv[1])  # noqa: E731
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), handler).serve_forever()
