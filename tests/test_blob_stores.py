"""Cells of the blobs study on real servers: what each reader asks for, and that all read the same bytes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blob_cells import Cell
from conftest import artefact

from scripts.stores import azure, servers

MIB = 2**20


@pytest.fixture(scope="module")
def versitygw(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> Iterator[servers.Served]:
    folder = tmp_path_factory.mktemp("versitygw")
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        servers.s3(artefact(environments / "servers.json"), folder / "store", None, log) as served,
    ):
        yield served


@pytest.fixture
def on_s3(versitygw: servers.Served, tmp_path: Path) -> Callable[..., Cell]:
    def build(**levels: object) -> Cell:
        here = Cell(tmp_path, **levels).in_s3(versitygw.endpoint, versitygw.credentials)
        here.job["local_files"] = sorted(map(str, versitygw.folder.glob("test/run/blobs-test/*.bin")))
        return here

    return build


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> Iterator[servers.Served]:
    folder = tmp_path_factory.mktemp("azurite")
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        servers.azurite(artefact(environments / "servers.json"), folder / "store", None, log) as served,
    ):
        yield served


@pytest.fixture
def on_azure(azurite: servers.Served, tmp_path: Path) -> Callable[..., Cell]:
    def build(**levels: object) -> Cell:
        connection = azure.connection_string(azurite.endpoint, azurite.credentials)
        here = Cell(tmp_path, **levels).in_azure(connection)
        here.job["local_files"] = list(map(str, servers.extents(azurite.folder)))
        return here

    return build


@pytest.fixture
def on(request: pytest.FixtureRequest) -> dict[str, Callable[..., Cell]]:
    return {store: request.getfixturevalue(f"on_{store}") for store in STORES}


STORES = ["s3", "azure"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "pattern", ["single-file", "multiple-files", "broadcast", "scatter", "sections", "sections-interleaved"]
)
def test_every_pattern_reads_the_manifests_bytes_from_a_server(on, store, pattern):
    record = on[store](pattern=pattern, processes="2", concurrency="2", operation_size="512KiB").measure()
    assert record["reasons"] == []
    assert record["work"]["checksum"] == record["work"]["checksum_asked"]
    assert record["retries"] == 0
    assert record["memory"]["growth_bytes"] <= record["memory"]["allowed_bytes"]
    rounds = [row for row in record["samples"] if row["phase"] == "ceiling"]
    assert len(rounds) == 2
    assert all(row["latency_s"] > 0 for row in rounds)


@pytest.mark.parametrize("store", STORES)
def test_a_chunk_is_a_request(on, store):
    here = on[store](processes="2", chunk_size="256KiB", concurrency="2", iterations=2)
    assert here.measure()["attempts"] == 2 * 2 * 4
    here = on[store](processes="1", chunk_size="1MiB", iterations=2)
    assert here.measure()["attempts"] == 2


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("state, fraction", [("cold", 0.0), ("warm", 1.0)])
def test_the_page_cache_of_the_servers_files_is_as_asked_before_every_iteration(on, store, state, fraction):
    record = on[store](cache=state).measure()
    assert record["reasons"] == []
    assert [row["resident_before"] for row in record["samples"]] == pytest.approx([fraction] * 5, abs=0.01)


@pytest.mark.parametrize("store, client", [("s3", "boto3 1."), ("azure", "azure-storage-blob 12.")])
def test_the_record_names_the_client(on, store, client):
    assert on[store]().measure()["effective"]["client"].startswith(client)
