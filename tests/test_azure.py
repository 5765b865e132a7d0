"""Azure: the embedded Blob server, data sets in containers and shares, and what is said when something is amiss."""

import gc
import os
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from conftest import artefact

from scripts.stores import servers

MIB = 2**20


def service(served: servers.Served, **options: object) -> BlobServiceClient:
    """Return a client of Azure's own SDK for an embedded server."""
    url = f"{served.endpoint}/{served.credentials['account']}"
    return BlobServiceClient(url, credential=served.credentials["key"], **options)


@pytest.fixture
def azurite(tmp_path: Path, environments: Path):
    """Return how to start the embedded server on this test's folder, with a network or without."""

    def start(network: dict | None = None):
        return servers.azurite(artefact(environments / "servers.json"), tmp_path / "azurite", network, log)

    with open(tmp_path / "azurite.log", "w", encoding="utf-8") as log:
        yield start


def test_blobs_are_still_there_when_the_server_is_started_again_with_another_key(azurite, tmp_path):
    contents = {"small": os.urandom(1000), "large": os.urandom(64 * MIB), "blocks": os.urandom(9 * MIB)}
    with azurite() as first:
        container = service(first, max_single_put_size=65 * MIB).create_container("kept")
        for name in ("small", "large"):
            container.upload_blob(name, contents[name])
        blocks = service(first, max_single_put_size=MIB, max_block_size=2 * MIB).get_container_client("kept")
        blocks.upload_blob("blocks", contents["blocks"])
    assert first.processes["azurite"].returncode == 0
    with azurite() as second:
        container = service(second).get_container_client("kept")
        for name, content in contents.items():
            assert container.download_blob(name).readall() == content
        second.credentials["key"], key = first.credentials["key"], second.credentials["key"]
        with pytest.raises(HttpResponseError, match="AuthorizationFailure"):
            service(second).get_container_client("kept").download_blob("small")
    held = sum(path.stat().st_size for path in servers.extents(tmp_path / "azurite"))
    assert held == sum(map(len, contents.values()))
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path not in servers.extents(path.parents[1])]
    assert len(written) >= 3
    assert [path for path in written if key.encode() in path.read_bytes()] == []


def test_requests_to_azurite_within_the_window_are_counted_exactly(azurite, tmp_path):
    with azurite({}) as served:
        with service(served) as client:
            client.create_container("counted").upload_blob("object", os.urandom(MIB))
        served.open_window()
        with service(served) as client:
            container = client.get_container_client("counted")
            for number in range(50):
                assert len(container.download_blob("object", offset=number, length=1000).readall()) == 1000
            assert container.get_blob_client("object").exists()
            assert not container.get_blob_client("absent").exists()
        # The proxy adds up a connection when it ends: when nothing refers to the last answer that came over it.
        del client, container
        gc.collect()
        requests = served.close_window()
    assert {method: requests[method]["count"] for method in requests} == {"GET": 50, "HEAD": 2}
    assert (requests["GET"]["failed"], requests["HEAD"]["failed"]) == (0, 1)
    assert requests["GET"]["bytes_offered"] == 50_000
    assert 50_000 < requests["GET"]["bytes_delivered"] < 100_000
    assert requests["HEAD"]["bytes_offered"] == 0
    # An address may carry a signature, so none stands in a log.
    assert "/counted" not in (tmp_path / "azurite.log").read_text(encoding="utf-8")
