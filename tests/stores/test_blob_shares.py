"""Cells of the blobs study on Azure Files, for which a stand-in answers: that our reader and the SDK speak to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import azure_files
import pytest
from blob_cells import Cell

from sbench.probe import content


@pytest.fixture
def server() -> Iterator[azure_files.StandIn]:
    with azure_files.serving() as standing_in:
        yield standing_in


@pytest.fixture
def cell(server: azure_files.StandIn, tmp_path: Path) -> Callable[..., Cell]:
    def build(**levels: object) -> Cell:
        here = Cell(tmp_path, **{"chunk_size": "1MiB", **levels})
        account = {"account_url": server.account_url}
        here.settings["store"] = {"kind": "azure-files", "share": "test", "prefix": "run", **account}
        here.job |= {"location": {"url": "", "key": "run/blobs-test"}, "local_files": []}
        here.env["AZURE_STORAGE_CONNECTION_STRING"] = server.connection_string
        server.shares["test"] = azure_files.Share({"", "run", "run/blobs-test"})
        for entry in here.manifest["files"]:
            server.replace("test", f"run/blobs-test/{entry['name']}", content.open_stream(entry).read())
        return here

    return build


@pytest.mark.parametrize("pattern", ["single-file", "scatter", "sections-interleaved"])
def test_a_share_is_read_verified_and_its_ceiling_measured(cell, pattern):
    record = cell(pattern=pattern, chunk_size="256KiB", concurrency="2").measure()
    assert record["reasons"] == []
    assert record["work"]["checksum"] == record["work"]["checksum_asked"]
    assert record["effective"]["client"].startswith("azure-storage-file-share 12.")
    assert len([row for row in record["samples"] if row["phase"] == "ceiling"]) == 2


def test_what_the_sdk_tries_again_is_counted(cell, server):
    here = cell(processes="1", iterations=2)
    here.events["open"] = lambda: server.faults.append("busy")
    record = here.measure()
    assert record["reasons"] == []
    assert (record["retries"], record["attempts"]) == (1, 3)


def test_an_answer_that_is_cut_is_one_line(cell, server):
    here = cell(processes="1")
    here.events["open"] = lambda: server.faults.append("cut")
    problem = here.problem()
    assert problem.startswith("run/blobs-test/0000.bin in share test of ")
    assert "the response was cut" in problem


def test_a_file_that_is_replaced_makes_the_record_invalid(cell, server):
    here = cell()
    here.events["open"] = lambda: server.replace("test", "run/blobs-test/0000.bin", bytes(2**20))
    reasons = here.measure()["reasons"]
    assert len(reasons) == 1
    assert "run/blobs-test/0000.bin in share test of " in reasons[0]
    assert "was replaced or truncated during the measurement" in reasons[0]


def test_a_share_that_is_not_there_is_one_line(cell, server):
    here = cell()
    del server.shares["test"]
    assert "create the share, or correct its name in the configuration" in here.problem()
