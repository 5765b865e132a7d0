"""A dataset's place in a container or a share, for `scripts.stores.transfer`."""

import contextlib
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from scripts.stores import transfer
from scripts.stores.azure import client as azure


class _Place(transfer.Target):
    """What containers and shares have in common; counts what the SDK sends again."""

    def __init__(self, store: dict, folder: str, connection: str | None = None) -> None:
        super().__init__(azure.place(store), folder)
        options = {"raw_request_hook": self._seen, "max_single_get_size": transfer.READ_BYTES}
        self._connect = partial(azure.holder, store, connection, **options)
        self._client = self._connect()

    def explained(self) -> contextlib.AbstractContextManager:
        return azure.explained(self.where)

    def size(self, name: str) -> int | None:
        try:
            return self._object(name).properties().size
        except ResourceNotFoundError as error:
            if error.error_code in ("ContainerNotFound", "ShareNotFound"):
                raise
            return None

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._object(name).download(offset, length).readall()

    def _object(self, name: str) -> azure.Object:
        return azure.object_in(self._client, self.key(name))

    def _seen(self, request) -> None:
        """A request keeps its context when it is tried once more."""
        self.retries += "sent_before" in request.context
        request.context["sent_before"] = True


class Container(_Place):
    """A dataset's place in a container."""

    most_parts = 50_000

    def ensure(self) -> None:
        """Make the container of an embedded server."""
        with self.explained(), contextlib.suppress(ResourceExistsError):
            self._client.create_container()

    def part_bytes(self, name: str) -> int | None:
        """Return the bytes of a blob's first block, of all of it where it has none; None where it is no block blob."""
        blob = self._object(name)
        try:
            blocks, _ = blob.client.get_block_list("committed")
        except HttpResponseError:
            return None
        return blocks[0].size if blocks else blob.properties().size

    def upload(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a blob in blocks; those of an upload that fails are dropped by the service."""
        # With checksums, which the service compares; without them Azurite works out others, at half the speed.
        options = {"length": size, "overwrite": True, "validate_content": True, **_in_flight(progress)}
        with self._connect(max_block_size=part, max_single_put_size=part) as container:
            container.upload_blob(self.key(name), source, **options)


class Share(_Place):
    """A dataset's place in a share of files, which have no parts."""

    def upload(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a file; of one that fails the rest is zeros, which its checksum tells."""
        for folder in reversed(PurePosixPath(self.key(name)).parents[:-1]):
            with contextlib.suppress(ResourceExistsError):
                self._client.create_directory(str(folder))
        self._object(name).client.upload_file(source, length=size, **_in_flight(progress))


def _in_flight(progress: transfer.Progress) -> dict:
    """Return how many requests the SDK has in flight, and what it tells: how many bytes have gone."""
    return {"max_concurrency": transfer.THREADS, "progress_hook": lambda done, _: progress.at(done)}
