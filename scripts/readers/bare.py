"""The bare way to a store's bytes: one request over a connection of one's own, read and dropped; no SDK, no MPI.

What many of these reach at once is the store's own ceiling (METHOD 20). An SDK only signs the addresses beforehand, in
rank 0, which has loaded it anyway; they go nowhere but to the program that measures the ceiling.
"""

import http.client
import mmap
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from scripts.lib.program import Problem

_BUFFER = 1 << 20
_PAGE = 4096
_TIMEOUT_S = 60
# An address is signed for as long as a cell may take.
_VALID_S = 12 * 3600

# What a token of azure-identity is for.
_AZURE = "https://storage.azure.com/.default"

Address = tuple[str, dict[str, str]]


class Getter(Protocol):
    """One connection."""

    def connect(self, name: str) -> None:
        """Have all ready for the first request, which is for a part of the object `name`."""

    def get(self, name: str, offset: int, length: int) -> None:
        """Read a part of an object and drop it."""

    def close(self) -> None:
        """Let go of the connection."""


def of(location: dict, known: dict[str, Address], direct: bool = False) -> Callable[[], Getter]:
    """Return what makes connections to a store; each is for one thread.

    Args:
        location: where the data set is in the store.
        known: the objects' addresses; {} for files.
        direct: past the page cache.
    """
    return (lambda: _Http(known)) if known else lambda: _Files(location, direct)


def addresses(store: dict, location: dict, names: Iterable[str]) -> dict[str, Address]:
    """Return the signed URL of each object, and what a request says beside it; {} for files.

    Args:
        store: its entry in the configuration.
        location: where the data set is in it.
        names: of the objects.

    Raises:
        Problem: there are no credentials to sign with.
    """
    if store["kind"] == "posix":
        return {}
    address = (_s3 if store["kind"] == "s3" else _azure)(store, location)
    return {name: address(name) for name in names}


def _s3(store: dict, location: dict) -> Callable[[str], Address]:
    from scripts.stores import s3

    client = s3.cell_client(store, signature_version="s3v4")

    def address(name: str) -> Address:
        wanted = {"Bucket": store["bucket"], "Key": f"{location['key']}/{name}"}
        with s3.explained(client, f"bucket {store['bucket']}"):
            return client.generate_presigned_url("get_object", Params=wanted, ExpiresIn=_VALID_S), {}

    return address


def _azure(store: dict, location: dict) -> Callable[[str], Address]:
    from azure.core.credentials import AzureSasCredential

    from scripts.stores import azure

    files = store["kind"] == "azure-files"
    container = (azure.share if files else azure.blob_container)(store)

    def address(name: str) -> Address:
        path = f"{location['key']}/{name}"
        client = container.get_file_client(path) if files else container.get_blob_client(path)
        credential = client.credential
        if hasattr(credential, "account_key"):
            return f"{client.url}?{_signature(store, path, credential)}", {}
        if isinstance(credential, AzureSasCredential):
            return f"{client.url}?{credential.signature}", {}
        if hasattr(credential, "get_token"):
            headers = {"x-ms-version": client.api_version} | ({"x-ms-file-request-intent": "backup"} if files else {})
            with azure.explained(azure.place(store)):
                token = credential.get_token(_AZURE).token
            return client.url, headers | {"Authorization": f"Bearer {token}"}
        return client.url, {}

    return address


def _signature(store: dict, path: str, credential) -> str:
    """Return the signature that lets whoever has it read one object; made here, nothing is asked."""
    account = {"account_name": credential.account_name, "account_key": credential.account_key}
    options = {"permission": "r", "expiry": datetime.now(UTC) + timedelta(seconds=_VALID_S)}
    if store["kind"] == "azure-files":
        from azure.storage.fileshare import generate_file_sas

        return generate_file_sas(share_name=store["share"], file_path=path.split("/"), **account, **options)
    from azure.storage.blob import generate_blob_sas

    return generate_blob_sas(container_name=store["container"], blob_name=path, **account, **options)


class _Files:
    """A file, opened anew where the next request is of another one."""

    def __init__(self, location: dict, direct: bool) -> None:
        self._folder, self._flags = Path(location["folder"]), os.O_RDONLY | (os.O_DIRECT if direct else 0)
        self._view = memoryview(mmap.mmap(-1, _BUFFER))
        self._open: tuple[str, int] | None = None

    def connect(self, name: str) -> None:
        self.close()
        self._open = name, os.open(self._folder / name, self._flags)

    def get(self, name: str, offset: int, length: int) -> None:
        if self._open is None or self._open[0] != name:
            self.connect(name)
        end = offset + length
        while offset < end:
            # Past the page cache lengths are whole pages; offsets are already.
            wanted = min(_BUFFER, -(-(end - offset) // _PAGE) * _PAGE)
            count = os.preadv(self._open[1], [self._view[:wanted]], offset)
            if not count:
                raise Problem(f"{self._folder / name} ended before all of it was read")
            offset += count

    def close(self) -> None:
        if self._open:
            os.close(self._open[1])
            self._open = None


class _Http:
    """A connection that is kept from request to request."""

    def __init__(self, known: dict[str, Address]) -> None:
        self._known = known
        self._buffer = memoryview(bytearray(_BUFFER))
        self._connection: http.client.HTTPConnection | None = None

    def connect(self, name: str) -> None:
        parts = urlsplit(self._known[name][0])
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=_TIMEOUT_S)
        self._connection.connect()

    def get(self, name: str, offset: int, length: int) -> None:
        url, headers = self._known[name]
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        place = f"{name} at {self._connection.host}"
        done = 0
        try:
            self._connection.request("GET", path, headers={**headers, "Range": f"bytes={offset}-{offset + length - 1}"})
            answer = self._connection.getresponse()
            if answer.status not in (200, 206):
                raise Problem(f"{place} answers {answer.status} {answer.reason} to a bare request for the ceiling")
            while count := answer.readinto(self._buffer):
                done += count
        except (OSError, http.client.HTTPException) as error:
            raise Problem(
                f"{place}: a bare request for the ceiling failed ({type(error).__name__}: {error})"
            ) from error
        if done != length:
            raise Problem(f"{place} gave {done} of {length} bytes to a bare request for the ceiling")

    def close(self) -> None:
        if self._connection:
            self._connection.close()
