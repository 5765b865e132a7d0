"""A dataset's place in a container or a share, for `scripts.stores.transfer`."""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from scripts.stores import transfer
from scripts.stores.azure import client as azure


class _Place:
    """What containers and shares have in common; counts what the SDK sends again."""

    writable = True
    retries = 0

    def __init__(self, connect: Callable, store: dict, dataset: str, connection: str | None) -> None:
        options = {"raw_request_hook": self._seen, "max_single_get_size": transfer.READ_BYTES}
        self._connect = partial(connect, store, connection, **options)
        self._client = self._connect()
        self._folder, self.where = "/".join(filter(None, [store["prefix"], dataset])), azure.place(store)

    def explained(self) -> contextlib.AbstractContextManager:
        """Turn the SDK's errors into one line."""
        return azure.explained(self.where)

    def key(self, name: str) -> str:
        """Return the full name of a blob, or a file's path in the share."""
        return f"{self._folder}/{name}"

    def _seen(self, request) -> None:
        """A request keeps its context when it is tried once more."""
        self.retries += "sent_before" in request.context
        request.context["sent_before"] = True


class Container(_Place):
    """A dataset's place in a container."""

    most_parts = 50_000

    def __init__(self, store: dict, dataset: str, connection: str | None = None) -> None:
        """Say where: `dataset` is the folder within the store's prefix; `connection` as for `azure.blob_container`."""
        super().__init__(azure.blob_container, store, dataset, connection)

    def ensure(self) -> None:
        """Make the container of an embedded server."""
        with self.explained(), contextlib.suppress(ResourceExistsError):
            self._client.create_container()

    def size(self, name: str) -> int | None:
        """Return the bytes of a blob, None where there is none."""
        try:
            return self._client.get_blob_client(self.key(name)).get_blob_properties().size
        except ResourceNotFoundError as error:
            if error.error_code == "ContainerNotFound":
                raise
            return None

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a range of a blob."""
        return self._client.download_blob(self.key(name), offset, length).readall()

    def part_bytes(self, name: str) -> int | None:
        """Return the bytes of a blob's first block, of all of it where it has none; None where it is no block blob."""
        blob = self._client.get_blob_client(self.key(name))
        try:
            blocks, _ = blob.get_block_list("committed")
        except HttpResponseError:
            return None
        return blocks[0].size if blocks else blob.get_blob_properties().size

    def upload(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a blob in blocks; those of an upload that fails are dropped by the service."""
        # With checksums, which the service compares; without them Azurite works out others, at half the speed.
        options = {"length": size, "overwrite": True, "validate_content": True, **_in_flight(progress)}
        with self._connect(max_block_size=part, max_single_put_size=part) as container:
            container.upload_blob(self.key(name), source, **options)


class Share(_Place):
    """A dataset's place in a share of files, which have no parts."""

    most_parts = sys.maxsize

    def __init__(self, store: dict, dataset: str, connection: str | None = None) -> None:
        """Say where; as for `Container`."""
        super().__init__(azure.share, store, dataset, connection)

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        try:
            return self._client.get_file_client(self.key(name)).get_file_properties().size
        except ResourceNotFoundError as error:
            if error.error_code == "ShareNotFound":
                raise
            return None

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        return self._client.get_file_client(self.key(name)).download_file(offset, length).readall()

    def part_bytes(self, name: str) -> None:
        """Return None: the service tells of no parts."""

    def upload(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a file; of one that fails the rest is zeros, which its checksum tells."""
        for folder in reversed(PurePosixPath(self.key(name)).parents[:-1]):
            with contextlib.suppress(ResourceExistsError):
                self._client.create_directory(str(folder))
        self._client.get_file_client(self.key(name)).upload_file(source, length=size, **_in_flight(progress))


def _in_flight(progress: transfer.Progress) -> dict:
    """Return how many requests the SDK has in flight, and what it tells: how many bytes have gone."""
    return {"max_concurrency": transfer.THREADS, "progress_hook": lambda done, _: progress.at(done)}
