"""Icechunk as a container: virtual, with references to the chunks of the source files, or with chunks of its own."""

import importlib.metadata
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbench.drivers import kerchunk, native
from sbench.stores.s3 import ENDPOINT
from sbench.studies.containers.base import Target
from sbench.studies.containers.netcdf import NAME
from sbench.studies.containers.references import open_virtual
from sbench.studies.containers.selections import Index
from sbench.studies.containers.zarr import ZarrContainer, write_group

if TYPE_CHECKING:
    import icechunk

# Requests of Icechunk 2.3 to open the latest snapshot of a branch.
_OPENING = 8


class Repository(ZarrContainer):
    """A repository of Icechunk, which reads with its own client."""

    needs = ("icechunk", "zarr", "obstore")
    clients = ("icechunk",)

    def convert(self, target: Target) -> None:
        """Create the repository, write its only snapshot, and commit."""
        import icechunk

        session = icechunk.Repository.create(_build_storage(target), self.build_config(target)).writable_session("main")
        self.write_snapshot(session.store, target)
        session.commit("converted")

    def open_store(self, target: Target) -> object:
        """Open the latest snapshot of the branch main."""
        import icechunk

        credentials = self.build_credentials(target)
        repository = icechunk.Repository.open(_build_storage(target), self.build_config(target), credentials)
        return repository.readonly_session("main").store

    def forecast_requests(self, target: Target, parts: Sequence[Index]) -> int | None:
        """Forecast the requests to open the repository, for a manifest, and one per chunk; only for Icechunk 2.

        Small chunks, by default of at most 512 bytes, are part of the manifest.
        """
        if target.is_local or not importlib.metadata.version("icechunk").startswith("2."):
            return None
        import icechunk

        session, inline = self.open_store(target).session, icechunk.ChunkType.inline
        chunks = [chunk for index in parts for chunk in target.grid.list_touched(index)]
        return _OPENING + bool(parts) + sum(session.chunk_type(f"/{NAME}", chunk) != inline for chunk in chunks)

    def write_snapshot(self, store: "icechunk.IcechunkStore", target: Target) -> None:
        """Write the array and its coordinates."""
        import zarr

        write_group(zarr.create_group(store), target)

    def build_config(self, target: Target) -> "icechunk.RepositoryConfig | None":
        """Return the configuration of the repository; None for the default."""
        return None

    def build_credentials(self, target: Target) -> dict | None:
        """Return the credentials for virtual chunks; None if there are none."""
        return None


class NativeRepository(Repository):
    """A repository with chunks of its own."""

    converts = True


class VirtualRepository(Repository):
    """A repository with references to the chunks of the source files."""

    needs = ("virtualizarr", "icechunk", "zarr", "obstore")

    def write_snapshot(self, store: "icechunk.IcechunkStore", target: Target) -> None:
        """Write the references."""
        open_virtual(target).vz.to_icechunk(store)

    def build_config(self, target: Target) -> "icechunk.RepositoryConfig | None":
        """Return a configuration that permits to read the source files."""
        access = target.build_access("s3fs")
        return kerchunk.build_repository_config(kerchunk.build_url(target.list_sources()[0], access), access)

    def build_credentials(self, target: Target) -> dict | None:
        """Return the credentials for the source files."""
        access = target.build_access("s3fs")
        return kerchunk.build_credentials(kerchunk.build_url(target.list_sources()[0], access), access)


def _build_storage(target: Target) -> "icechunk.Storage":
    import icechunk

    # By default, icechunk prints warnings about concurrent writers to standard output.
    icechunk.set_logs_filter("error")
    if target.is_local:
        return icechunk.local_filesystem_storage(target.place["folder"])
    store = target.settings.store
    key, secret, token = native.get_credentials(store)
    options: dict = {"bucket": store["bucket"], "prefix": target.place["prefix"], "region": store["region"]}
    if key:
        options |= {"access_key_id": key, "secret_access_key": secret, "session_token": token or None}
    else:
        options |= {"anonymous": store["anonymous"]}
    if endpoint := os.environ.get(ENDPOINT):
        options |= {"endpoint_url": endpoint, "allow_http": True, "force_path_style": True}
    return icechunk.s3_storage(**options)


CONTAINERS = {"icechunk-virtual": VirtualRepository(), "icechunk": NativeRepository()}
