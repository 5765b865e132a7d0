"""A package index on the loopback interface with wheels of made-up packages, and the dates of their uploads."""

import base64
import contextlib
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class Release(NamedTuple):
    """A release of a package, with a single module."""

    name: str
    version: str
    uploaded: str
    code: str
    requires: tuple[str, ...] = ()


def write_wheel(release: Release, folder: Path) -> Path:
    """Write the wheel of a release, and return its path."""
    name, version, _, code, requires = release
    home = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    files = {
        f"{name}.py": code,
        f"{home}/METADATA": metadata,
        f"{home}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        rows = []
        for file, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{file},sha256={digest},{len(text.encode())}\n")
            # All have the same time, as in reproducible builds.
            wheel.writestr(zipfile.ZipInfo(file), text)
        wheel.writestr(f"{home}/RECORD", "".join(rows) + f"{home}/RECORD,,\n")
    return path


@contextlib.contextmanager
def serve_index(releases: list[Release], folder: Path, dated: bool = True) -> Iterator[Mapping[str, str]]:
    """Serve an index of releases (PEP 691), and yield the variables by which pip and uv find it."""
    files: dict[str, list[dict]] = {}
    for release in releases:
        path = write_wheel(release, folder)
        row = {"filename": path.name, "url": f"/files/{path.name}"}
        row["hashes"] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        files.setdefault(release.name, []).append(row | ({"upload-time": release.uploaded} if dated else {}))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = self.path.strip("/").partition("/")
            kind, body = "application/octet-stream", None
            if place[0] == "files":
                body = (folder / place[2]).read_bytes()
            elif rows := files.get(place[2]):
                kind = "application/vnd.pypi.simple.v1+json"
                body = json.dumps({"meta": {"api-version": "1.1"}, "name": place[2], "files": rows}).encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/simple/"
        try:
            yield {"UV_DEFAULT_INDEX": address, "PIP_INDEX_URL": address, "UV_NO_CONFIG": "1", "PIP_NO_CACHE_DIR": "1"}
        finally:
            server.shutdown()
