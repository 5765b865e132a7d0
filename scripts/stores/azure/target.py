"""A data set's place in a container or a share, for `scripts.stores.transfer`."""

import base64
import contextlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.blob import BlobBlock

from scripts.stores import transfer
from scripts.stores.azure import client as azure

Put = Callable[[int, int, BinaryIO], None]
# What Azure Files takes in one request.
_RANGE_BYTES = 4 * transfer.MIB


class _Place:
    """What containers and shares have in common; counts what the SDK sends again."""

    most_parts, writable = 50_000, True
    retries = 0

    def __init__(self, connect: Callable, store: dict, dataset: str, connection: str | None) -> None:
        options = {"raw_request_hook": self._seen, "max_single_get_size": transfer.READ_BYTES}
        self._client = connect(store, connection, **options)
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
    """A data set's place in a container."""

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

    @contextlib.contextmanager
    def upload(self, name: str, size: int) -> Iterator[Put]:
        """Upload a blob in blocks; those of an upload that fails are dropped by the service."""
        blob, blocks = self._client.get_blob_client(self.key(name)), []

        def put(offset: int, count: int, part: BinaryIO) -> None:
            block = base64.b64encode(f"{offset:020d}".encode()).decode()
            # With its checksum, which the service compares; without one Azurite works out another, at half the speed.
            blob.stage_block(block, part, length=count, validate_content=True)
            blocks.append((offset, block))

        yield put
        blob.commit_block_list([BlobBlock(block) for _, block in sorted(blocks)])


class Share(_Place):
    """A data set's place in a share of files."""

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

    @contextlib.contextmanager
    def upload(self, name: str, size: int) -> Iterator[Put]:
        """Upload a file; of one that fails the rest is zeros, which its checksum tells."""
        for folder in reversed(PurePosixPath(self.key(name)).parents[:-1]):
            with contextlib.suppress(ResourceExistsError):
                self._client.create_directory(str(folder))
        file = self._client.get_file_client(self.key(name))
        file.create_file(size)

        def put(offset: int, count: int, part: BinaryIO) -> None:
            for start in range(offset, offset + count, _RANGE_BYTES):
                length = min(_RANGE_BYTES, offset + count - start)
                file.upload_range(_exactly(part, length), start, length)

        yield put


def _exactly(part: BinaryIO, length: int) -> bytes:
    """Return the next `length` bytes of a raw file, which may give fewer at once."""
    taken = bytearray()
    while len(taken) < length and (more := part.read(length - len(taken))):
        taken += more
    return bytes(taken)
