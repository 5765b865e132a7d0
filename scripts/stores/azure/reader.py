"""Reads objects of containers and files of shares with the SDK's own chunks and concurrency, and counts its requests.

The SDK fetches the first chunk of a range by itself and the others together. Where several extents are asked for they
are fetched in threads, each extent by the SDK without concurrency of its own. A blob is read on the condition that its
ETag is the one that was identified; of files the service knows no condition, so every answer's ETag is compared, as
the SDK does by itself.
"""

import io
from collections.abc import Callable, Iterable
from importlib.metadata import version

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from azure.core.pipeline.transport import RequestsTransport

from scripts.lib.program import Problem
from scripts.stores import reading
from scripts.stores.azure import client as azure
from scripts.stores.reading import Access, Changed, Identity

_CHANGED = (412, 416)
# What the clients of Storage give the transport that they make themselves.
_BLOCK = 256 * 1024


class Reader(reading.Reader):
    """Reads through clients of its own, one per object."""

    def __init__(self, store: dict, location: dict, access: Access) -> None:
        """Make the client of the container or share; nothing is sent."""
        super().__init__(access)
        package = "azure-storage-file-share" if "share" in store else "azure-storage-blob"
        self.client, self._conditional = f"{package} {version(package)}", "share" not in store
        self._prefix, self._place = location["key"], azure.place(store)
        options = {name: azure.PATIENCE[name] for name in ("connection_timeout", "read_timeout")}
        options["connection_data_block_size"] = _BLOCK
        options["use_env_settings"] = store.get("server") != "embedded"
        self._transport = _Transport(self._count, access.concurrency, **options)
        chunk = {"max_single_get_size": access.chunk_bytes, "max_chunk_get_size": access.chunk_bytes}
        with azure.explained(self._place):
            self._holder = azure.holder(store, transport=self._transport, **chunk)
        self._objects: dict[str, azure.Object] = {}

    def identify(self, name: str) -> Identity:
        """Return size and ETag."""
        attributes = self._explained(name, 1, self._object(name).properties)
        return Identity(attributes.size, attributes.etag)

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Let the SDK fill `view`, if the object is still the same."""
        parts, at = [], 0
        for offset, length in extents:
            parts.append((offset, view[at : at + length]))
            at += length
        needed = sum(-(-len(part) // self.access.chunk_bytes) for _, part in parts)
        concurrency = self.access.concurrency if len(parts) == 1 else 1
        self._explained(name, needed, lambda: self.each(parts, self._into(name, concurrency, identity)))

    def close(self) -> None:
        """Close connections and threads."""
        super().close()
        self._holder.close()
        self._transport.close()

    def _into(self, name: str, concurrency: int, identity: Identity) -> Callable[[int, memoryview], None]:
        options = {"max_concurrency": concurrency}
        if self._conditional:
            options |= {"etag": identity.version, "match_condition": MatchConditions.IfNotModified}

        def fetch(offset: int, part: memoryview) -> None:
            stream = self._object(name).download(offset, len(part), **options)
            if stream.properties.etag != identity.version or stream.size != len(part):
                raise Changed(f"{self._where(name)} was replaced or truncated while it was measured")
            into = _Into(part)
            stream.readinto(into)
            if into.written != len(part):
                raise Problem(f"{self._where(name)}: {into.written} of {len(part)} bytes came; run again")

        return fetch

    def _object(self, name: str) -> azure.Object:
        if name not in self._objects:
            self._objects[name] = azure.object_in(self._holder, f"{self._prefix}/{name}")
        return self._objects[name]

    def _explained(self, name: str, needed: int, ask: Callable[[], object]) -> object:
        """Ask, count what was sent beyond the `needed` requests, and turn errors into one line."""
        before = self.attempts
        with azure.explained(self._where(name)):
            try:
                return ask()
            except HttpResponseError as error:
                if isinstance(error, ResourceModifiedError) or error.status_code in _CHANGED:
                    raise Changed(f"{self._where(name)} was replaced or truncated while it was measured") from error
                raise
            finally:
                self.retries += max(0, self.attempts - before - needed)

    def _where(self, name: str) -> str:
        return f"{self._prefix}/{name} in {self._place}"

    def _count(self) -> None:
        with self._lock:
            self.attempts += 1


class _Transport(RequestsTransport):
    """The SDK's transport, with a connection for each of its threads, and every request counted."""

    def __init__(self, count: Callable[[], None], connections: int, **options: object) -> None:
        super().__init__(**options)
        self._count = count
        self.open()
        for adapter in self.session.adapters.values():
            adapter.init_poolmanager(connections, connections)

    def send(self, request, **options: object):
        self._count()
        return super().send(request, **options)


class _Into(io.RawIOBase):
    """A process's buffer as the file that the SDK writes to, chunk by chunk in any order."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at, self.written = view, 0, 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        return self._at

    def write(self, content: bytes) -> int:
        self._view[self._at : self._at + len(content)] = content
        self._at += len(content)
        self.written += len(content)
        return len(content)
