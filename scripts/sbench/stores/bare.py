"""Read bytes of a store with bare requests, each over a new connection, without SDK or MPI, and drop them.

The joint rate of many bare requests is the ceiling of the store (METHOD 20). An SDK only signs the addresses
(`Store.sign_addresses`), in a process that has loaded it anyway; only the processes that make the requests get them.
A connection has `connect(name)`, `read_range(name, offset, length)` and `close()`; `name` is the same until `close`.
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
# A signed address is valid for as long as a cell may take.
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
            # O_DIRECT needs lengths of whole pages; offsets already are.
            wanted = min(_BUFFER, -(-(end - offset) // _PAGE) * _PAGE)
            count = os.preadv(self._file, [self._view[:wanted]], offset)
            if not count:
                raise Problem(f"{self._folder / name} ended before the end of the read")
            offset += count

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Http:
    """A connection to a service; raises Problem for a wrong answer."""

    def __init__(self, addresses: dict[str, Address]) -> None:
        """Keep the signed address of each object."""
        self._addresses, self._connection = addresses, None
        self._buffer = memoryview(bytearray(_BUFFER))

    def connect(self, name: str) -> None:
        """Open a connection to the host of an object."""
        parts = urlsplit(self._addresses[name][0])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=_TIMEOUT_S)
        self._connection.connect()

    def request_head(self, name: str) -> None:
        """Send a HEAD request and ignore its status: the address is signed for GET."""
        self._send_request("HEAD", name, {}).read()

    def read_range(self, name: str, offset: int, length: int) -> float:
        """Read a range, drop its bytes, and return the time at which the answer began (`time.perf_counter`)."""
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
    """Return a function that creates connections to a store; each connection serves one thread.

    Args:
        location: the dataset's location in the store.
        addresses: the objects' signed addresses; {} for files.
        direct: whether to bypass the page cache.
    """
    return (lambda: Http(addresses)) if addresses else lambda: _File(location["folder"], direct)
