"""Reads objects of Azure Blob with azure-storage-blob."""

from azure.core import MatchConditions
from azure.storage.blob import __version__

from scripts.stores.azure import client as azure
from scripts.stores.azure import reader


class Reader(reader.Reader):
    """Reads a blob on the condition that its ETag is the one that was identified."""

    client = f"azure-storage-blob {__version__}"

    def connect(self, store: dict, **options: object):
        """Return the container's client."""
        return azure.blob_container(store, **options)

    def object_client(self, path: str):
        """Return a blob's client."""
        return self._container.get_blob_client(path)

    def properties(self, client) -> tuple[int, str]:
        """Ask for a blob's size and ETag."""
        attributes = client.get_blob_properties()
        return attributes.size, attributes.etag

    def download(self, client, offset: int, length: int, concurrency: int, etag: str):
        """Begin to download a range of a blob."""
        condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        return client.download_blob(offset, length, max_concurrency=concurrency, **condition)
