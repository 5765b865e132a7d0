"""Read and discard data in a store with minimal code: plain HTTP requests or `preadv`, without an SDK or MPI.

The combined rate of many such bare requests is the store's ceiling (METHOD 20). An SDK is used only to sign the URLs
(`Store.sign_addresses`), in a process that has loaded it anyway; the requesting processes receive the signed URLs.
A connection has `connect(name)`, `read_range(name, offset, length)` and `close()`; between `connect` and `close`, all
calls must have the same `name`.
"""

import http.client
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from sbench.probe.program import Problem

_BUFFER = 1 << 20
_PAGE = 4096
_TIMEOUT_S = 60
# Signed URLs stay valid for longer than any measurement takes.
VALID_S = 12 * 3600

Address = tuple[str, dict[str, str]]


class _File:
    def __init__(self, folder: str, direct: bool) -> None:
        self._folder, self._flags, self._file = Path(folder), os.O_RDONLY | (os.O_DIRECT if direct else 0), None
        self._view = memoryview(mmap.mmap(-1, _BUFFER))

    def connect(self, name: str) -> None:
        self._file = os.open(self._folder / name, self._flags)

    def read_range(self, name: str, offset: int, length: int) -> None:
        end = offset + length
        while offset < end:
            # O_DIRECT requires page-aligned lengths; the offsets are already aligned.
            wanted = min(_BUFFER, -(-(end - offset) // _PAGE) * _PAGE)
            count = os.preadv(self._file, [self._view[:wanted]], offset)
            if not count:
                raise Problem(f"{self._folder / name} ended before the end of the read")
            offset += count

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Http:
    """An HTTP connection to an object store; `read_range` raises Problem if a response is an error or truncated."""

    def __init__(self, addresses: dict[str, Address]) -> None:
        """Initialise with the signed URL and headers of each object, without connecting."""
        self._addresses, self._connection = addresses, None
        self._buffer = memoryview(bytearray(_BUFFER))

    def connect(self, name: str) -> None:
        """Open a connection to the host that serves the object."""
        parts = urlsplit(self._addresses[name][0])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=_TIMEOUT_S)
        self._connection.connect()

    def request_head(self, name: str) -> None:
        """Send a HEAD request and ignore the response status, because the URL is signed for GET only."""
        self._send_request("HEAD", name, {}).read()

    def read_range(self, name: str, offset: int, length: int) -> float:
        """Read and discard a byte range, and return the `time.perf_counter` when the response headers arrived."""
        place, done = f"{name} at {self._connection.host}", 0
        try:
            answer = self._send_request("GET", name, {"Range": f"bytes={offset}-{offset + length - 1}"})
            first = time.perf_counter()
            if answer.status not in (200, 206):
                raise Problem(f"{place}: a bare request failed with {answer.status} {answer.reason}")
            while count := answer.readinto(self._buffer):
                done += count
        except (OSError, http.client.HTTPException) as error:
            raise Problem(f"{place}: a bare request failed ({type(error).__name__}: {error})") from error
        if done != length:
            raise Problem(f"{place}: a bare request returned {done} of {length} bytes")
        return first

    def _send_request(self, method: str, name: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        url, own = self._addresses[name]
        path = urlsplit(url)._replace(scheme="", netloc="").geturl()
        self._connection.request(method, path, headers={**own, **headers})
        return self._connection.getresponse()

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._connection:
            self._connection.close()


Getter = _File | Http


def build_connector(location: dict, addresses: dict[str, Address], direct: bool = False) -> Callable[[], Getter]:
    """Return a function that creates connections to a store. Threads must not share a connection.

    Args:
        location: the dataset's location in the store.
        addresses: the signed URL and headers of each object; {} for files.
        direct: whether to bypass the page cache (files only).
    """
    return (lambda: Http(addresses)) if addresses else lambda: _File(location["folder"], direct)
