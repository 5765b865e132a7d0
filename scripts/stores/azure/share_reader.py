"""Reads files of an Azure Files share over its REST with azure-storage-file-share."""

from azure.storage.fileshare import __version__

from scripts.stores.azure import client as azure
from scripts.stores.azure import reader


class Reader(reader.Reader):
    """Reads files; the service knows no condition, so every answer's ETag is compared, as the SDK does by itself."""

    client = f"azure-storage-file-share {__version__}"

    def connect(self, store: dict, **options: object):
        """Return the share's client."""
        return azure.share(store, **options)

    def object_client(self, path: str):
        """Return a file's client."""
        return self._container.get_file_client(path)

    def properties(self, client) -> tuple[int, str]:
        """Ask for a file's size and ETag."""
        attributes = client.get_file_properties()
        return attributes.size, attributes.etag

    def download(self, client, offset: int, length: int, concurrency: int, etag: str):
        """Begin to download a range of a file."""
        return client.download_file(offset, length, max_concurrency=concurrency)
