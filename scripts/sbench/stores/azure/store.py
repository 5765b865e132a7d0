"""Define the stores of Azure: a container of Azure Blob or embedded Azurite, and a share of Azure Files."""

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

# Azurite's account; each start of the server creates its key.
ACCOUNT = "benchmark"


def build_connection_string(endpoint: str, credentials: dict[str, str]) -> str:
    """Return the connection string of a server's account at an endpoint; `credentials` has "account" and "key"."""
    protocol, account = endpoint.partition(":")[0], credentials["account"]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={credentials['key']};"
        f"BlobEndpoint={endpoint}/{account}"
    )


class _Azure(ObjectStore):
    copies = True

    def get_account_url(self, url: str) -> dict[str, str]:
        return {"account_url": url.rpartition("/")[0]}

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        from sbench.stores.azure import client

        client.describe_credentials(self.spec)
        return client.get_base_url(self.spec), apply_cloud_settings(env, "AZURE_")


class Files(_Azure):
    """A share, accessed over REST."""

    holder, service = "share", "Azure Files"


class Blob(_Azure):
    """A container."""

    file_per_object = False
    served_by = "azurite"
    holder, service, server = "container", "Azure Blob", "Azurite"
    emulated = ("Azurite, Microsoft's emulator of Azure Storage,", "Azure")
    target = "Container"
    # Azurite saves its metadata when it ends; they grow with the number of blocks.
    saves_s = 60.0

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Open the objects below a prefix with obstore."""
        from obstore.store import AzureStore

        parts = dict(part.split("=", 1) for part in _read_connection().split(";") if part)
        account = {"account_name": parts["AccountName"], "account_key": parts["AccountKey"]}
        # The endpoint names the account only if it is not the service's.
        account |= {"endpoint": parts["BlobEndpoint"]} if "BlobEndpoint" in parts else {}
        return AzureStore(self.spec["container"], prefix=prefix, **account, **PLAIN)

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment variables with which an HSDS node stores objects in the container."""
        return {"AZURE_CONNECTION_STRING": _read_connection(), "BUCKET_NAME": self.spec["container"]}

    def create_server(self, binaries: dict, folder: Path) -> Server:
        """Return an Azurite `Server` for `folder`; two servers on a folder would overwrite each other's metadata."""
        credentials = {"account": ACCOUNT, "key": base64.b64encode(secrets.token_bytes(32)).decode()}

        def command(port: int) -> list[str]:
            return [
                *(binaries["node"], binaries["azurite"], "--location", str(folder)),
                *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
                # Azurite refuses API versions newer than itself, such as the SDKs' versions.
                *("--skipApiVersionCheck", "--disableTelemetry"),
            ]

        env = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{credentials['key']}"}
        return Server("azurite", command, AccessLog(), env, credentials)

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """List the Azurite files that hold the bytes of all objects."""
        return list_extent_files(folder)

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the container's URL, and the environment with credentials of the embedded server or the user."""
        if not served:
            return super().resolve_holder_url(served, env)
        connection = build_connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{self.spec['container']}"
        return url, env | {CONNECTION: connection}


def _read_connection() -> str:
    """Return the account's connection string, which HSDS needs and obstore accepts."""
    if text := os.environ.get(CONNECTION):
        return text
    raise Problem(f"HSDS and Zarr need the Azure credentials in {CONNECTION}; set it")


def list_extent_files(folder: Path) -> list[Path]:
    """List the files in an Azurite folder that hold bytes of objects."""
    return sorted(path for path in (folder / "__blobstorage__").glob("*") if path.stat().st_size)


KINDS = {"azure-blob": Blob, "azure-files": Files}
