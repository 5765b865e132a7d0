"""A stand-in of Azure Files on the loopback, for tests only: no emulator of that service exists.

It has the REST calls that the project makes (shares, directories, files, ranges) and checks every SharedKey signature,
and those of addresses, worked out anew from what arrived:
https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
It proves that our code and the SDK speak to each other; it says nothing of the service's speed or limits.
"""

import base64
import contextlib
import hashlib
import hmac
import itertools
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

ACCOUNT = "benchmark"
_SIGNED = (
    *("Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date"),
    *("If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"),
)


class Refused(Exception):
    """An error as the service names it: status and code."""


@dataclass
class Share:
    """What a share holds, by path."""

    folders: set[str] = field(default_factory=lambda: {""})
    files: dict[str, tuple[bytearray, str]] = field(default_factory=dict)


class StandIn(ThreadingHTTPServer):
    """The service; `faults` are met by the next requests for content: "busy" (503) or "cut" (in the middle of it)."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port of the loopback with a key of its own."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.shares: dict[str, Share] = {}
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.lock, self._etags = threading.Lock(), itertools.count(1)

    @property
    def account_url(self) -> str:
        """The account's URL."""
        return f"http://127.0.0.1:{self.server_port}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        """What a user would set."""
        return f"AccountName={ACCOUNT};AccountKey={self.key};FileEndpoint={self.account_url}"

    def replace(self, share: str, path: str, content: bytes) -> None:
        """Put another file in a file's place, as somebody else would."""
        with self.lock:
            self.shares[share].files[path] = (bytearray(content), self.etag())

    def etag(self) -> str:
        """Return an ETag that no file has had yet."""
        return f'"0x{next(self._etags):016X}"'


@contextlib.contextmanager
def serving() -> Iterator[StandIn]:
    """Serve for the length of a `with` block."""
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def do_PUT(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *words: object) -> None:
        pass

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, account, self.share, self.name = (unquote(parts.path) + "//").split("/", 3)
        self.name = self.name.strip("/")
        what = f"{self.command} {self.query.get('restype', 'file')} {self.query.get('comp', '')}".strip()
        self.server.requests.append(what)
        try:
            self._authorize(account, parts.path)
            with self.server.lock:
                status, headers, content = self._respond(what)
        except Refused as refusal:
            status, code = refusal.args
            headers = {"x-ms-error-code": code, "Content-Type": "application/xml"}
            headers |= {"Retry-After": "1"} if status == 503 else {}
            content = f"<Error><Code>{code}</Code><Message>{code}.</Message></Error>".encode()
        self._send(status, headers, content)

    def _authorize(self, account: str, path: str) -> None:
        if "sig" in self.query:
            self._authorize_address(account, path)
            return
        names = sorted(name for name in map(str.lower, self.headers) if name.startswith("x-ms-"))
        lines = [self.command, *(self.headers.get(name, "") for name in _SIGNED)]
        lines[3] = "" if lines[3] == "0" else lines[3]
        lines += [f"{name}:{self.headers[name]}" for name in names]
        lines += [f"/{account}{path}", *(f"{name}:{value}" for name, value in sorted(self.query.items()))]
        digest = hmac.new(base64.b64decode(self.server.key), "\n".join(lines).encode(), hashlib.sha256).digest()
        expected = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        if not hmac.compare_digest(expected, self.headers.get("Authorization", "")):
            raise Refused(403, "AuthenticationFailed")

    def _authorize_address(self, account: str, path: str) -> None:
        """Check the signature of an address for one file (a service SAS)."""
        names = ("sp", "st", "se", "", "si", "sip", "spr", "sv", "rscc", "rscd", "rsce", "rscl", "rsct")
        resource = f"/file{unquote(path)}"
        lines = [self.query.get(name, "") if name else resource for name in names]
        digest = hmac.new(base64.b64decode(self.server.key), "\n".join(lines).encode(), hashlib.sha256).digest()
        if account != ACCOUNT or base64.b64encode(digest).decode() != self.query["sig"] or self.command != "GET":
            raise Refused(403, "AuthenticationFailed")

    def _respond(self, what: str) -> tuple[int, dict[str, str], bytes]:
        if what == "PUT share":
            if self.share in self.server.shares:
                raise Refused(409, "ShareAlreadyExists")
            self.server.shares[self.share] = Share()
            return 201, self._facts(self.server.etag()), b""
        if self.share not in self.server.shares:
            raise Refused(404, "ShareNotFound")
        share = self.server.shares[self.share]
        if what == "PUT directory":
            self._expect_parent(share)
            if self.name in share.folders:
                raise Refused(409, "ResourceAlreadyExists")
            share.folders.add(self.name)
            return 201, self._facts(self.server.etag()), b""
        if what == "GET directory list":
            return 200, {"Content-Type": "application/xml"}, self._listing(share)
        if what == "PUT file":
            self._expect_parent(share)
            size, etag = int(self.headers["x-ms-content-length"]), self.server.etag()
            share.files[self.name] = (bytearray(size), etag)
            return 201, self._facts(etag), b""
        if self.name not in share.files:
            raise Refused(404, "ResourceNotFound")
        content, etag = share.files[self.name]
        if what == "PUT file range":
            start, end = self._range(len(content))
            if end - start != len(self.body):
                raise Refused(400, "InvalidHeaderValue")
            content[start:end] = self.body
            share.files[self.name] = (content, self.server.etag())
            return 201, self._facts(share.files[self.name][1]), b""
        if what == "HEAD file":
            return 200, self._facts(etag) | {"Content-Length": str(len(content)), "x-ms-type": "File"}, b""
        if what == "GET file":
            start, end = self._range(len(content))
            if start >= len(content):
                raise Refused(416, "InvalidRange")
            if self.server.faults and self.server.faults[0] == "busy":
                self.server.faults.pop(0)
                raise Refused(503, "ServerBusy")
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}", "x-ms-type": "File"}
            return 206, self._facts(etag) | headers, bytes(content[start:end])
        raise Refused(400, "UnsupportedQueryParameter")

    def _facts(self, etag: str) -> dict[str, str]:
        return {
            "ETag": etag,
            "Last-Modified": formatdate(usegmt=True),
        }

    def _expect_parent(self, share: Share) -> None:
        if self.name.rpartition("/")[0] not in share.folders:
            raise Refused(404, "ParentNotFound")

    def _range(self, size: int) -> tuple[int, int]:
        asked = self.headers.get("x-ms-range") or self.headers.get("Range", "bytes=0-")
        first, last = re.fullmatch(r"bytes=(\d+)-(\d*)", asked).groups()
        return int(first), min(size, int(last) + 1) if last else size

    def _listing(self, share: Share) -> bytes:
        entries = "".join(f"<File><Name>{name}</Name></File>" for name in share.files if "/" not in name)
        return f"<EnumerationResults><Entries>{entries}</Entries><NextMarker/></EnumerationResults>".encode()

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        cut = status == 206 and self.server.faults and self.server.faults.pop(0) == "cut"
        self.send_response(status)
        always = {"Content-Length": str(len(content)), "x-ms-version": self.headers.get("x-ms-version", "")}
        for name, value in (always | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True
