"""A container of Azure Blob, or of the workflow's own Azurite, and a share of Azure Files."""

import contextlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from scripts.lib.program import Problem, read_json
from scripts.stores import transfer
from scripts.stores.azure import addresses, server
from scripts.stores.bare import Address
from scripts.stores.reading import Access, Reader
from scripts.stores.servers import Served
from scripts.stores.store import ObjectStore, Place, with_own

if TYPE_CHECKING:
    from scripts.stores.azure import target


class _Azure(ObjectStore):
    """What containers and shares have in common."""

    copies = True

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the container or share, and the environment with the user's own credentials."""
        from scripts.stores.azure import client

        client.credentials(self.spec)
        return client.base_url(self.spec), with_own(env, "AZURE_")

    def addresses(self, location: dict, names: Iterable[str]) -> dict[str, Address]:
        """Return signed URLs, or a header with a token for each."""
        from scripts.stores.azure import urls

        return urls.addresses(self.spec, location["key"], names)

    def credentials(self) -> str:
        """Say where the credentials are taken from."""
        from scripts.stores.azure import client

        return client.credentials(self.spec)

    def reachable(self) -> str:
        """Ask the service for the container or the share."""
        from scripts.stores.azure import client

        return client.reachable(self.spec)

    def _upload(self, target: "target.Container | target.Share", files: list[transfer.File], say: transfer.Say) -> dict:
        """Upload objects to a service elsewhere, and say to which account."""
        from scripts.stores.azure import client

        done = transfer.provide(target, files, say)
        place = {"local_files": [], "folder": None, "account_url": client.account_url(self.spec)}
        return place | {"upload": done, "part_bytes": transfer.stored_part_bytes(target, files)}


class Blob(_Azure):
    """A container."""

    file_per_object = False
    served_by = "azurite"
    service, server = "Azure Blob", "Azurite"
    holder = "container"
    emulated = ("Azurite, Microsoft's emulator of Azure Storage,", "Azure")

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Upload objects into the container."""
        from scripts.stores.azure import client, target

        location = {"location": {"dataset": dataset}}
        if not self.embedded:
            client.credentials(self.spec)
            return location | self._upload(target.Container(self.spec, dataset), files, say)
        # A folder for each dataset: only one server at a time may work in it, and its extents are of this one alone.
        folder, done = place.folder / dataset, None
        if folder.exists():
            with self._azurite(dataset, folder, place.binaries) as container:
                if not transfer.lacking(container, files, say):
                    done = {"uploaded": 0, "found": len(files), "retries": container.retries}
                    part_bytes = transfer.stored_part_bytes(container, files)
        if done is None:
            # Extents of what was replaced stay for a while, and would count as files that are read.
            shutil.rmtree(folder, ignore_errors=True)
            with self._azurite(dataset, folder, place.binaries) as container:
                done = transfer.provide(container, files, say)
                part_bytes = transfer.stored_part_bytes(container, files)
        local = [str(path) for path in server.extents(folder)]
        return location | {"local_files": local, "folder": str(folder), "upload": done, "part_bytes": part_bytes}

    @contextlib.contextmanager
    def _azurite(self, dataset: str, folder: Path, binaries: Path) -> Iterator["target.Container"]:
        """Serve the container of a folder for the length of a `with` block; it is saved when that ends.

        Raises:
            Problem: it could not be saved.
        """
        from scripts.stores.azure import target

        with server.serve(read_json(binaries), folder, None, sys.stdout, patience_s=server.SAVE_S) as served:
            connection = addresses.connection_string(served.endpoint, served.credentials)
            container = target.Container(self.spec, dataset, connection)
            container.ensure()
            yield container
        if status := served.processes["azurite"].returncode:
            raise Problem(f"Azurite ended with status {status} before it had saved its metadata; run again")

    def serve(
        self, binaries: dict, folder: Path, network: dict | None, log: IO[str]
    ) -> contextlib.AbstractContextManager[Served]:
        """Serve the containers of an Azurite's folder."""
        return server.serve(binaries, folder, network, log)

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the container and the environment, with the server's credentials or the user's own."""
        if not served:
            return super().address(served, env)
        connection = addresses.connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{self.spec['container']}"
        return url, env | {addresses.CONNECTION: connection}

    def reader(self, location: dict, access: Access) -> Reader:
        """Return what reads objects with azure-storage-blob."""
        from scripts.stores.azure import blob_reader

        return blob_reader.Reader(self.spec, location, access)


class Files(_Azure):
    """A share, over its REST."""

    holder, service = "share", "Azure Files"

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Upload files into the share."""
        from scripts.stores.azure import client, target

        client.credentials(self.spec)
        return {"location": {"dataset": dataset}} | self._upload(target.Share(self.spec, dataset), files, say)

    def reader(self, location: dict, access: Access) -> Reader:
        """Return what reads files with azure-storage-file-share."""
        from scripts.stores.azure import share_reader

        return share_reader.Reader(self.spec, location, access)


KINDS = {"azure-blob": Blob, "azure-files": Files}
