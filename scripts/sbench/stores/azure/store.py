"""Define the stores for Azure Storage: a container of Azure Blob or an embedded Azurite, and an Azure Files share."""

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

# Account of the embedded Azurite; its key is generated for each start of the server.
ACCOUNT = "benchmark"


def build_connection_string(endpoint: str, credentials: dict[str, str]) -> str:
    """Return an Azure connection string for an endpoint and its credentials ("account" and "key")."""
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
    """A share of Azure Files, accessed through its REST API."""

    holder, service = "share", "Azure Files"


class Blob(_Azure):
    """A container of Azure Blob or of an embedded Azurite."""

    file_per_object = False
    served_by = "azurite"
    holder, service, server = "container", "Azure Blob", "Azurite"
    emulated = ("Azurite, Microsoft's emulator of Azure Storage,", "Azure")
    target = "Container"

    @property
    def billed_service(self) -> str:
        """The key of Azure Blob; an empty string for Azurite."""
        return "azure-blob" if self.elsewhere else ""

    # Azurite saves its metadata on exit, and their size grows with the number of blocks.
    saves_s = 60.0

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Open the objects under a prefix with obstore."""
        from obstore.store import AzureStore

        parts = dict(part.split("=", 1) for part in _read_connection().split(";") if part)
        account = {"account_name": parts["AccountName"], "account_key": parts["AccountKey"]}
        # The connection string has BlobEndpoint only for services other than Azure's.
        account |= {"endpoint": parts["BlobEndpoint"]} if "BlobEndpoint" in parts else {}
        return AzureStore(self.spec["container"], prefix=prefix, **account, **PLAIN)

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment variables that configure an HSDS node to store its objects in the container."""
        return {"AZURE_CONNECTION_STRING": _read_connection(), "BUCKET_NAME": self.spec["container"]}

    def create_server(self, binaries: dict, folder: Path) -> Server:
        """Describe an Azurite server for `folder`.

        At most one server may use a folder: two servers would overwrite each other's metadata.
        """
        credentials = {"account": ACCOUNT, "key": base64.b64encode(secrets.token_bytes(32)).decode()}

        def command(port: int) -> list[str]:
            return [
                *(binaries["node"], binaries["azurite"], "--location", str(folder)),
                *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
                # The SDKs use API versions that are newer than Azurite, which it would reject.
                *("--skipApiVersionCheck", "--disableTelemetry"),
            ]

        env = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{credentials['key']}"}
        return Server("azurite", command, AccessLog(), env, credentials)

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """List the files in which Azurite stores the data of all objects."""
        return list_extent_files(folder)

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the container's URL, and `env` with the credentials of the embedded server or of the user."""
        if not served:
            return super().resolve_holder_url(served, env)
        connection = build_connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{self.spec['container']}"
        return url, env | {CONNECTION: connection}


def _read_connection() -> str:
    """Return the connection string in the environment, which HSDS and obstore need.

    Raises:
        Problem: the environment variable is not set.
    """
    if text := os.environ.get(CONNECTION):
        return text
    raise Problem(f"HSDS and Zarr need the Azure credentials in {CONNECTION}; set it")


def list_extent_files(folder: Path) -> list[Path]:
    """List the nonempty files in which Azurite stores object data."""
    return sorted(path for path in (folder / "__blobstorage__").glob("*") if path.stat().st_size)


KINDS = {"azure-blob": Blob, "azure-files": Files}
