"""A container of Azure Blob, or of the workflow's own Azurite, and a share of Azure Files."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.lib.program import Problem, read_json
from scripts.stores import transfer
from scripts.stores.azure import CONNECTION, server
from scripts.stores.servers import Served
from scripts.stores.store import ObjectStore, Place, with_own

if TYPE_CHECKING:
    from scripts.stores.azure.target import Container


class _Azure(ObjectStore):
    """What containers and shares have in common."""

    copies = True

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Upload objects to a service elsewhere, and say to which account."""
        from scripts.stores.azure import client, target

        client.credentials(self.spec)
        kind = {"share": target.Share, "container": target.Container}[self.holder]
        done = transfer.provide(kind(self.spec, self.key(dataset)), files, say)
        account = client.base_url(self.spec).rpartition("/")[0]
        return done | {"location": {"dataset": dataset}, "local_files": [], "folder": None, "account_url": account}

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the container or share, and the environment with the user's own credentials."""
        from scripts.stores.azure import client

        client.credentials(self.spec)
        return client.base_url(self.spec), with_own(env, "AZURE_")


class Files(_Azure):
    """A share, over its REST."""

    holder, service = "share", "Azure Files"


class Blob(_Azure):
    """A container."""

    file_per_object = False
    served_by = "azurite"
    holder, service, server = "container", "Azure Blob", "Azurite"
    emulated = ("Azurite, Microsoft's emulator of Azure Storage,", "Azure")

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Upload objects into the container."""
        if not self.embedded:
            return super().provide(dataset, files, place, say)
        # A folder for each dataset: only one server at a time may work in it, and its extents are of this one alone.
        folder = place.folder / dataset
        if folder.exists():
            with self._azurite(dataset, folder, place.binaries) as container:
                lacking = transfer.lacking(container, files, say)
            if lacking:
                # Extents of what was replaced stay for a while, and would count as files that are read.
                shutil.rmtree(folder, ignore_errors=True)
        with self._azurite(dataset, folder, place.binaries) as container:
            done = transfer.provide(container, files, say)
        local = [str(path) for path in server.extents(folder)]
        return done | {"location": {"dataset": dataset}, "local_files": local, "folder": str(folder)}

    @contextlib.contextmanager
    def _azurite(self, dataset: str, folder: Path, binaries: Path) -> Iterator["Container"]:
        """Serve the container of a folder for the length of a `with` block; it is saved when that ends.

        Raises:
            Problem: it could not be saved.
        """
        from scripts.stores.azure import target

        with server.serve(read_json(binaries), folder, None, sys.stdout, patience_s=server.SAVE_S) as served:
            connection = server.connection_string(served.endpoint, served.credentials)
            container = target.Container(self.spec, self.key(dataset), connection)
            container.ensure()
            yield container
        if status := served.processes["azurite"].returncode:
            raise Problem(f"Azurite ended with status {status} before it had saved its metadata; run again")

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the container and the environment, with the server's credentials or the user's own."""
        if not served:
            return super().address(served, env)
        connection = server.connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{self.spec['container']}"
        return url, env | {CONNECTION: connection}


KINDS = {"azure-blob": Blob, "azure-files": Files}
