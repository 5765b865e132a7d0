"""A cell of `particles`, measured: what a record says, and faults that are planted and seen."""

import json
import os
from collections.abc import Callable

import h5py
import numpy as np
import pytest
from cells import ROS3, Place
from conftest import artefact

from sbench.studies.particles import snapshots


@pytest.fixture
def cell(shots_cell: Callable[..., Place]) -> Callable[..., Place]:
    """Return a function that makes a place to measure a cell of `particles` in."""
    return lambda **levels: shots_cell(study="particles", **levels)


@pytest.mark.rule(9, 10, 13, 14)
@pytest.mark.parametrize("method", ["serial", "delayed", "futures", "array"])
def test_a_record_says_what_was_read_by_whom_and_that_the_result_is_right(cell, method):
    record = cell(method=method, operation="load").measure()
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    work, seconds, effective = record["work"], record["seconds"], record["effective"]
    assert work["tasks_done"] == work["tasks_asked"] == work["chunks_listed"] == 2 * effective["chunks"]
    assert work["logical_bytes"] == work["logical_bytes_asked"] == 2 * 8 * 20000
    assert sum(row["chunks"] for row in record["samples"]) == work["tasks_done"]
    assert {row["iteration"] for row in record["samples"]} == {1, 2}
    assert seconds["total"] == max(row["iteration_s"] for row in record["samples"] if row["iteration"] == 2)
    assert seconds["null"] < 0.1 * seconds["total"]
    assert effective["workers"] == 2
    assert effective["readers"] == (1 if method == "serial" else 2)
    assert effective["moved_bytes"] >= (0 if method == "serial" else 8 * 20000)


@pytest.mark.rule(9)
def test_tasks_that_dask_takes_for_one_are_told_and_what_runs_twice_without_being_listed_is_invalid(cell):
    record = cell(method="futures-pure", rereads=3).measure()
    assert record["valid"], record["reasons"]
    assert record["work"]["chunks_listed"] == 3 * record["work"]["tasks_done"]
    here = cell(method="futures", rereads=3, within="again")
    # The published mistake: nobody says that tasks which read the same are several.
    here.pretend(
        "import distributed\nsubmit = distributed.Client.submit\n"
        "def alike(self, function, source, chunk, *more, **options):\n"
        "    from dataclasses import replace\n"
        "    return submit(self, function, source, replace(chunk, turn=0), *more, **options | {'pure': True})\n"
        "distributed.Client.submit = alike"
    )
    record = here.measure()
    assert record["status"] == "done"
    assert not record["valid"]
    assert any("tasks, got" in reason for reason in record["reasons"])


def test_a_file_that_was_changed_since_it_was_described_is_named(cell):
    here = cell()
    file = here.data / "snapshot.0.hdf5"
    with h5py.File(file, "r+") as opened:
        del opened["PartType0/Density"]
    reason = here.measure()["reasons"][0]
    assert f"{file.name} cannot be read: " in reason
    assert "Density" in reason
    os.truncate(file, file.stat().st_size - 1)
    reason = here.measure()["reasons"][0]
    assert f"{file.name} changed: its size must be " in reason
    assert f"restore it, or remove {here.manifest}" in reason


@pytest.mark.rule(9)
@pytest.mark.parametrize("operation", ["sum", "moments"])
def test_a_right_value_is_right_where_values_cancel(cell, operation):
    here = cell(operation=operation, method="chunkwise", chunk=777)
    for name, values in (("constant", np.full(20000, 0.1)), ("centred", np.linspace(-1, 1, 20000))):
        with h5py.File(here.data / "snapshot.0.hdf5", "r+") as file:
            del file["PartType0/Density"]
            file["PartType0/Density"] = values
        facts = snapshots.describe_snapshot([here.data / "snapshot.0.hdf5"])
        here.manifest.write_text(json.dumps(artefact(here.manifest) | facts), encoding="utf-8")
        record = here.measure()
        assert record["valid"], (name, record["reasons"])


@pytest.mark.rule(9)
def test_a_wrong_value_is_an_invalid_record(cell):
    here = cell()
    [store] = {path for path in here.data.glob("snapshot.*.hdf5") if path.name == "snapshot.0.hdf5"}
    with h5py.File(store, "r+") as file:
        file["PartType0/Density"][17] = 1e6
    record = here.measure()
    assert record["reasons"] == ["the checksum of the values read differs from the manifest (rule 9)"]


def test_files_elsewhere_are_read_through_the_same_drivers_and_their_requests_counted(cell):
    record = cell(**ROS3, operation="moments").measure()
    assert record["valid"], record["reasons"]
    assert record["effective"]["driver"] == "ros3"
    assert record["requests"]["GET"]["bytes_offered"] >= record["work"]["stored_bytes"]


def test_workers_may_be_threads_and_regions_selected(cell):
    record = cell(method="array", operation="histogram", selection="region", pool="threads", threads=2).measure()
    assert record["valid"], record["reasons"]
    assert record["effective"]["readers"] == 1


@pytest.mark.late
@pytest.mark.rule(9, 10)
@pytest.mark.parametrize("method", ["yt-serial", "yt-delayed"])
def test_what_yt_reads_is_a_record_like_any_other_and_its_index_lies_elsewhere(tmp_path, with_yt, method):
    levels = {"library": "yt", "chunk": 262144, "method": method, "operation": "load"}
    # More than ten files, which yt sorts by name.
    here = Place(tmp_path, with_yt, study="particles", data={"per_file": 1500}, **levels).make()
    record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["work"]["tasks_done"] == record["work"]["tasks_asked"] == 2 * 14
    assert record["effective"]["driver"] == "sec2"
    assert record["seconds"]["prepare"] > 0
    assert (record["effective"]["task_bytes"] > 500) == (method == "yt-delayed")
    assert {path.suffix for path in here.data.iterdir()} == {".hdf5", ".json"}


@pytest.mark.rule(7)
def test_a_copy_in_parquet_is_made_outside_the_time_and_has_its_time_and_size(cell):
    record = cell(driver="parquet", cache="warm", operation="load").measure()
    assert record["status"] == "done", record["reasons"]
    assert record["effective"]["driver"] == "parquet"
    assert record["seconds"]["prepare"] > 0
    assert record["effective"]["read_bytes"] != 4 * 20000, "the size of the copy, not that of the field"
    assert record["cache"]["resident_before"] > 0


@pytest.mark.rule(15)
def test_a_worker_that_its_memory_limit_ends_is_told_with_the_limit_and_not_tried_again(cell):
    levels = {"particles": 8_000_000, "chunk": 8_000_000, "rereads": 30, "operation": "moments", "time_limit_s": 60}
    here = cell(method="futures", memory="384MiB", data={"per_file": 8_000_000}, **levels)
    record = here.measure()
    assert record["status"] == "failed"
    lost = "a Dask worker was lost before it finished its task (workers may use at most 384MiB together)"
    assert [lost in reason for reason in record["reasons"]] == [True]


@pytest.mark.rule(6)
def test_a_slowed_control_waits_and_says_for_how_long(cell):
    here = cell(method="chunkwise", control_cells=1)
    slowed = next(one for one in here.cells if one.levels["control"] == "slow10")
    record = here.measure(cell=slowed)
    assert record["valid"], record["reasons"]
    assert record["work"]["waited_s"] > 0
