"""A container of Azure Blob, or of the workflow's own Azurite, and a share of Azure Files."""

import base64
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.probe.program import Problem
from sbench.stores.azure import CONNECTION
from sbench.stores.embedded import AccessLog, Served, Server
from sbench.stores.store import PLAIN, ObjectStore, apply_cloud_settings

if TYPE_CHECKING:
    import obstore.store

# Azurite's account here; its keys are made for each start.
ACCOUNT = "benchmark"


def build_connection_string(endpoint: str, credentials: dict[str, str]) -> str:
    """Return the connection string of a server's account at an endpoint, {"account", "key"}."""
    protocol, account = endpoint.partition(":")[0], credentials["account"]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={credentials['key']};"
        f"BlobEndpoint={endpoint}/{account}"
    )


class _Azure(ObjectStore):
    """What containers and shares have in common."""

    copies = True

    def get_account_url(self, url: str) -> dict[str, str]:
        return {"account_url": url.rpartition("/")[0]}

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        from sbench.stores.azure import client

        client.describe_credentials(self.spec)
        return client.get_base_url(self.spec), apply_cloud_settings(env, "AZURE_")


class Files(_Azure):
    """A share, over its REST."""

    holder, service = "share", "Azure Files"


class Blob(_Azure):
    """A container."""

    file_per_object = False
    served_by = "azurite"
    holder, service, server = "container", "Azure Blob", "Azurite"
    emulated = ("Azurite, Microsoft's emulator of Azure Storage,", "Azure")
    target = "Container"
    # Azurite saves its metadata when it is asked to end: they grow with the number of blocks.
    saves_s = 60.0

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Return the objects below a prefix through obstore."""
        from obstore.store import AzureStore

        parts = dict(part.split("=", 1) for part in _read_connection().split(";") if part)
        account = {"account_name": parts["AccountName"], "account_key": parts["AccountKey"]}
        # An endpoint names the account only where it is not that of the service itself.
        account |= {"endpoint": parts["BlobEndpoint"]} if "BlobEndpoint" in parts else {}
        return AzureStore(self.spec["container"], prefix=prefix, **account, **PLAIN)

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment with which a node of HSDS stores its objects in the container."""
        return {"AZURE_CONNECTION_STRING": _read_connection(), "BUCKET_NAME": self.spec["container"]}

    def create_server(self, binaries: dict, folder: Path) -> Server:
        """Return how Azurite serves the containers in `folder` over Azure's REST.

        Two servers on one folder would overwrite each other's metadata.
        """
        credentials = {"account": ACCOUNT, "key": base64.b64encode(secrets.token_bytes(32)).decode()}

        def command(port: int) -> list[str]:
            return [
                *(binaries["node"], binaries["azurite"], "--location", str(folder)),
                *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
                # It refuses versions of the API that are younger than itself, as those of the SDKs are.
                *("--skipApiVersionCheck", "--disableTelemetry"),
            ]

        env = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{credentials['key']}"}
        return Server("azurite", command, AccessLog(), env, credentials)

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """Return the files of Azurite that hold the bytes of all its objects."""
        return list_extent_files(folder)

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the container and the environment, with the server's credentials or the user's own."""
        if not served:
            return super().resolve_holder_url(served, env)
        connection = build_connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{self.spec['container']}"
        return url, env | {CONNECTION: connection}


def _read_connection() -> str:
    """Return the connection string of an account, which HSDS needs and obstore takes, too."""
    if text := os.environ.get(CONNECTION):
        return text
    raise Problem(f"HSDS and Zarr take the credentials of Azure from {CONNECTION}; set it")


def list_extent_files(folder: Path) -> list[Path]:
    """Return the files of an Azurite's folder that hold the bytes of its objects."""
    return sorted(path for path in (folder / "__blobstorage__").glob("*") if path.stat().st_size)


KINDS = {"azure-blob": Blob, "azure-files": Files}
