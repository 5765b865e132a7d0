"""Cells of the blobs study on real servers: what each reader asks for, and that all read the same bytes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from blob_cells import Store, serving

from sbench.studies.blobs import study

MIB = 2**20


@pytest.fixture(scope="module", params=["s3", "azure-blob"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, environments: Path
) -> Iterator[Store]:
    with serving(request.param, tmp_path_factory.mktemp(request.param), environments) as served:
        yield served


@pytest.mark.parametrize(
    "pattern", ["single-file", "multiple-files", "broadcast", "scatter", "sections", "sections-interleaved"]
)
def test_every_pattern_reads_the_manifests_bytes_from_a_server(store, tmp_path, pattern):
    here = store.cell(tmp_path, pattern=pattern, processes="2", concurrency="2", operation_size="512KiB")
    counted = store.count(here)
    record = here.measure()
    assert record["reasons"] == []
    assert counted["GET"]["bytes_offered"] == record["work"]["fetched_bytes"]
    assert record["work"]["checksum"] == record["work"]["checksum_asked"]
    assert record["retries"] == 0
    assert record["memory"]["growth_bytes"] <= record["memory"]["allowed_bytes"]
    rounds = [row for row in record["samples"] if row["phase"] == "ceiling"]
    assert len(rounds) == 2
    assert all(row["latency_s"] > 0 for row in rounds)


@pytest.mark.rule(20)
def test_bytes_that_the_store_has_not_offered_are_too_fast_to_be_true(store, tmp_path):
    here = store.cell(tmp_path, pattern="sections", processes="2", iterations=2)
    counted = store.count(here)
    record = {**here.measure(), "requests": counted}
    assert study.STUDY.check_record(record, here.settings) == []
    counted["GET"]["bytes_offered"] -= 1
    assert study.STUDY.check_record(record, here.settings) == [
        "too fast to be true: the reader got at least 2,097,152 bytes, the store offered 2,097,151 (rule 20)"
    ]


def test_a_chunk_is_a_request(store, tmp_path):
    here = store.cell(tmp_path, processes="2", chunk_size="256KiB", concurrency="2", iterations=2)
    assert here.measure()["attempts"] == 2 * 2 * 4
    here = store.cell(tmp_path, processes="1", chunk_size="1MiB", iterations=2)
    assert here.measure()["attempts"] == 2


@pytest.mark.rule(7)
def test_no_client_has_a_connection_when_the_first_iteration_begins(store, tmp_path):
    here = store.cell(tmp_path, processes="2", pattern="broadcast", iterations=2)
    port = store.served.endpoint.rpartition(":")[2].partition("/")[0]
    here.pretend(
        "import os, psutil\nfrom sbench.studies.blobs import process\n"
        "def opened():\n"
        f"    return sum(1 for one in psutil.Process().net_connections('tcp') if one.raddr and one.raddr.port == {port}"
        " and one.status == 'ESTABLISHED')\n"
        "real, read = process.Process.run_iterations, process.Process._run_iteration\n"
        "seen = []\n"
        "def counted(self, *arguments):\n"
        "    seen.append(opened())\n"
        "    return read(self, *arguments)\n"
        "def measure(self):\n"
        "    seen.clear()\n"
        "    process.Process._run_iteration = counted\n"
        "    real(self)\n"
        f"    open({str(tmp_path)!r} + f'/rank-{{self._comm.rank}}', 'w').write(repr(seen))\n"
        "process.Process.run_iterations = measure"
    )
    assert here.measure()["reasons"] == []
    seen = [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert [first for first, _ in seen] == [0, 0]
    assert max(later for _, later in seen) == 1, "one that was opened stays"


@pytest.mark.rule(8)
@pytest.mark.parametrize("state, fraction", [("cold", 0.0), ("warm", 1.0)])
def test_the_page_cache_of_the_servers_files_is_as_asked_before_every_iteration(store, tmp_path, state, fraction):
    here = store.cell(tmp_path, cache=state)
    if state == "warm":
        here.keep_pages()
    record = here.measure()
    assert record["reasons"] == []
    assert [row["resident_before"] for row in record["samples"]] == pytest.approx([fraction] * 5, abs=0.01)


def test_the_record_names_the_client(store, tmp_path):
    client = {"s3": "boto3 1.", "azure-blob": "azure-storage-blob 12."}[store.kind]
    assert store.cell(tmp_path).measure()["effective"]["client"].startswith(client)


def test_no_signature_stands_in_the_record_or_the_log(store, tmp_path):
    status, record, words = store.cell(tmp_path).converse()
    assert status == 0
    told = json.dumps(record) + words
    assert "sig" not in told.lower().replace("signal", "")
    assert not [secret for secret in store.served.credentials.values() if len(secret) > 20 and secret in told]
