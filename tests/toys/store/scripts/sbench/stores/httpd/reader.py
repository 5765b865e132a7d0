"""Reads objects with ranged GETs of Python's own HTTP client."""

import platform
import urllib.error
import urllib.request
from collections.abc import Iterable

from sbench.probe.program import Problem
from sbench.stores import reading
from sbench.stores.reading import Changed, Identity


class Reader(reading.Reader):
    """Reads objects at a URL; a request opens a connection of its own."""

    client = f"urllib of Python {platform.python_version()}"

    def __init__(self, *arguments: object) -> None:
        """Take the URL of the dataset."""
        super().__init__(*arguments)
        self._url = self.location["url"]

    def fetch_identity(self, name: str) -> Identity:
        """Return size and ETag, asked of the first byte."""
        with self._get(name, 0, 1) as answer:
            return Identity(int(answer.headers["Content-Range"].rpartition("/")[2]), answer.headers["ETag"])

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view`, a request a chunk."""
        self.fetch_pieces(
            self.split_extents(extents, view), lambda offset, part: self._fetch(name, offset, part, identity)
        )

    def _fetch(self, name: str, offset: int, part: memoryview, identity: Identity) -> None:
        with self._get(name, offset, len(part)) as answer:
            if answer.headers["ETag"] != identity.version or answer.readinto(part) != len(part):
                raise Changed(f"{self._url}/{name} was replaced or truncated during the measurement")

    def _get(self, name: str, offset: int, length: int):
        self.count_requests(1)
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"}
        try:
            return urllib.request.urlopen(urllib.request.Request(f"{self._url}/{name}", headers=headers))
        except urllib.error.URLError as error:
            raise Problem(f"{self._url}/{name} cannot be read: {error.reason}") from error
