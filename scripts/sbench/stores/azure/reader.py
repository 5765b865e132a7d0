"""Read objects and files in shares with the Azure SDK, which splits reads into chunks, and count its requests.

The SDK fetches the first chunk of a byte range alone, and then the other chunks concurrently. If there is more than one
byte range, this reader's threads fetch them in parallel, each without concurrency inside the SDK.

Reads of a blob are conditional on its ETag. Azure Files lacks conditional reads, so this reader compares the ETag of
the first response, and the SDK compares the ETags of later responses.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.core.pipeline.transport import RequestsTransport

from sbench.probe.program import Problem
from sbench.stores import reading
from sbench.stores.azure import client as azure
from sbench.stores.reading import Access, Identity

_CHANGED = (412, 416)
# The block size with which the Azure Storage clients create their transports.
_BLOCK = 256 * 1024


class Reader(reading.Reader):
    """A reader of a container or share, with one SDK client per object."""

    def __init__(self, spec: dict, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> None:
        """Create the client of the container or share, without sending a request."""
        super().__init__(spec, location, access, env)
        self._files = "share" in spec
        package = "azure-storage-file-share" if self._files else "azure-storage-blob"
        self.client, self.place = f"{package} {version(package)}", azure.describe_place(spec)
        options = {name: azure.PATIENCE[name] for name in ("connection_timeout", "read_timeout")}
        options |= {"connection_data_block_size": _BLOCK, "use_env_settings": spec.get("server") != "embedded"}
        self._transport = RequestsTransport(**options)
        self._transport.open()
        # One connection per SDK thread.
        for adapter in self._transport.session.adapters.values():
            adapter.init_poolmanager(access.concurrency, access.concurrency)
        chunk = {"max_single_get_size": access.chunk_bytes, "max_chunk_get_size": access.chunk_bytes}
        with azure.convert_errors(self.place):
            options = {"transport": self._transport, "raw_request_hook": lambda _: self.count_requests(1), **chunk}
            self._holder = azure.build_client(spec, env, **options)
        self._objects: dict[str, Any] = {}

    def fetch_identity(self, name: str) -> Identity:
        """Return the object's size and ETag."""
        client = self._get_object_client(name)
        ask = client.get_file_properties if self._files else client.get_blob_properties
        attributes = self._call_service(name, 1, ask)
        return Identity(attributes.size, attributes.etag)

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Read byte ranges with the SDK; see `reading.Reader.read`."""
        parts = self.split_extents(extents, view, len(view))
        needed = sum(-(-len(part) // self.access.chunk_bytes) for _, part in parts)
        options = {"max_concurrency": self.access.concurrency if len(parts) == 1 else 1}
        client = self._get_object_client(name)
        if not self._files:
            options |= {"etag": identity.version, "match_condition": MatchConditions.IfNotModified}

        def fetch_part(offset: int, part: memoryview) -> None:
            download = client.download_file if self._files else client.download_blob
            stream = download(offset, len(part), **options)
            if stream.properties.etag != identity.version or stream.size != len(part):
                raise self.build_changed_error(name)
            into = _Into(part)
            stream.readinto(into)
            if into.written != len(part):
                raise Problem(f"{self.describe_object(name)}: received {into.written} of {len(part)} bytes; run again")

        self._call_service(name, needed, lambda: self.fetch_pieces(parts, fetch_part))

    def close(self) -> None:
        """Close the connections and stop the threads."""
        super().close()
        self._holder.close()
        self._transport.close()

    def _get_object_client(self, name: str) -> Any:
        if name not in self._objects:
            of = self._holder.get_file_client if self._files else self._holder.get_blob_client
            self._objects[name] = of(f"{self.location['key']}/{name}")
        return self._objects[name]

    def _call_service(self, name: str, needed: int, ask: Callable[[], object]) -> object:
        """Call `ask` and return its result.

        Requests in excess of `needed` count as retries. Errors are converted to one-line messages.
        """
        before = self.attempts
        with azure.convert_errors(self.describe_object(name)):
            try:
                return ask()
            except HttpResponseError as error:
                if isinstance(error, ResourceModifiedError) or error.status_code in _CHANGED:
                    raise self.build_changed_error(name) from error
                raise
            finally:
                self.retries += max(0, self.attempts - before - needed)


class _Into:
    """A seekable file object that writes to a buffer, because the SDK writes chunks in any order."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at, self.written = view, 0, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int) -> None:
        self._at = offset

    def write(self, content: bytes) -> int:
        self._view[self._at : self._at + len(content)] = content
        self._at += len(content)
        self.written += len(content)
        return len(content)
