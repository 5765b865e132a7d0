"""Each rule of the method, and the fault that it is there for, planted in a real cell and seen caught."""

import csv
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cells import ROS3, Place
from conftest import artefact
from steady import locked

from sbench.design.fingerprint import describe_differences
from sbench.probe import provenance
from sbench.probe.dask_workers import split_into_batches
from sbench.probe.fields import read_fields
from sbench.probe.program import compute_file_digest
from sbench.studies.shots import study


@pytest.fixture(scope="module")
def good_record(once: Callable, environments: Path) -> dict:
    def make(folder: Path) -> None:
        Place(folder, environments, once, access="signals", workers=2).make().measure()

    return artefact(once("good-record", make) / "repeat=1.json")


@pytest.mark.rule(7, 13, 14)
def test_a_good_cell_is_done_and_valid_and_says_what_it_did(good_record):
    record = good_record
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    work = record["work"]
    assert work["checksum"] == work["checksum_asked"]
    assert work["tasks_done"] == len(record["samples"])
    assert work["logical_bytes"] == sum(row["bytes"] for row in record["samples"]) > 0
    assert record["effective"]["hdf5"] == "2.0.0"
    seconds = record["seconds"]
    assert seconds["total"] >= max(row["open+read-data-time"] for row in record["samples"])
    assert seconds["null"] > 0
    assert 0 <= seconds["gather"] < seconds["total"]
    assert record["verified"] == "in a separate pass", "checksums weigh where no network does"
    assert record["host"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert "modules" not in record


@pytest.mark.rule(9, 14)
def test_the_same_work_is_done_at_every_number_of_workers_and_by_both_libraries(shots_cell, good_record):
    here = shots_cell(library="hdf5-1.14.6", workers=3, access="signals")
    record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["effective"]["hdf5"] == "1.14.6"
    assert record["work"]["checksum"] == good_record["work"]["checksum"]
    assert record["provenance"]["code_sha256"] == good_record["provenance"]["code_sha256"]
    assert record["provenance"]["data_sha256"] == artefact(here.provision)["data_sha256"]


@pytest.mark.rule(14)
def test_a_record_refers_to_the_software_that_read_and_served_it(shots_cell, environments):
    def software(library: str) -> dict:
        here = shots_cell(within=library, library=library, **ROS3, s3={"network": {}})
        kept = [here.measure(repeat)["provenance"]["software"] for repeat in (1, 2)]
        assert kept[0] == kept[1], "taken once"
        return artefact(here.plan.parent / f"software/{kept[0]}.json")

    older, newer = software("hdf5-1.14.6"), software("hdf5-2.0.0")
    assert {"libhdf5", "libcurl", "versitygw", "toxiproxy"} <= older["files"].keys()
    assert older["distributions"] == newer["distributions"]
    assert {"h5py", "dask", "numpy", "python"} <= newer["distributions"].keys()
    served = Path(artefact(environments / "servers.json")["versitygw"])
    assert older["files"]["versitygw"] == newer["files"]["versitygw"] == compute_file_digest(served)
    texts = [json.dumps(one) for one in (older, newer)]
    assert describe_differences(*texts, environments=True) == (), "HDF5 is what they differ in on purpose"
    assert [one.partition(" ")[0] for one in describe_differences(*texts, environments=False)] == [
        "libhdf5",
        "libhdf5_hl",
    ]


@pytest.mark.rule(3)
def test_repeats_read_different_shots_and_all_arms_of_a_block_the_same(shots_cell):
    here = shots_cell(data={"shots": 12, "signals": 8}, make=False)
    from sbench.studies.shots.measure import select_objects
    from sbench.studies.shots.settings import Settings

    manifest = {"shots": [str(n) for n in range(12)], "signals": []}
    settings = read_fields(Settings, here.cell.settings)
    other = replace(settings, cell=replace(settings.cell, library="hdf5-1.14.6", workers="2"))
    blocks = [select_objects(settings, manifest, repeat) for repeat in range(1, 7)]
    assert blocks == [select_objects(other, manifest, repeat) for repeat in range(1, 7)]
    assert len({tuple(block) for block in blocks}) > 1


@pytest.mark.rule(11)
@pytest.mark.parametrize("library", ["hdf5-1.14.6", "hdf5-2.0.0"])
def test_requests_of_an_embedded_store_are_counted_and_repeat_exactly(shots_cell, library):
    levels = {"library": library, "layout": "shot-major", "access": "signals", "page_buffer": "0"}
    here = shots_cell(**ROS3, **levels, s3={"network": {}}, data={"part_size": "6MiB"})
    records = [here.measure(repeat) for repeat in (1, 1)]
    first, second = (record["requests"]["GET"] for record in records)
    assert first["count"] > 0
    assert first["failed"] == 0
    assert first["bytes_delivered"] >= first["bytes_offered"] > 0
    assert (first["count"], first["bytes_offered"]) == (second["count"], second["bytes_offered"])
    with gzip.open(here.folder / "requests.csv.gz", "rt", encoding="utf-8", newline="") as file:
        exchanges = list(csv.DictReader(file))
    assert len(exchanges) == sum(method["count"] for method in records[0]["requests"].values())
    assert sum(int(row["bytes"]) for row in exchanges if row["method"] == "GET") == first["bytes_offered"]
    assert len({row["connection"] for row in exchanges}) == records[0]["network"]["connections"] > 0
    assert records[0]["network"]["connections"] == records[1]["network"]["connections"]
    assert all(records[0]["network"][key] > 0 for key in ("round_trip_s", "mib_s", "in_flight"))
    # What the server offered has room for what lies in the file, and one byte less is found out.
    stored = records[0]["work"]["stored_bytes"]
    assert first["bytes_offered"] > stored > 0
    less = records[0] | {"requests": {"GET": first | {"bytes_offered": stored - 1}}}
    offered = f"the reader got at least {stored:,} bytes, the store offered {stored - 1:,}"
    assert study.STUDY.check_record(less, records[0]["settings"]) == [f"too fast to be true: {offered} (rule 20)"]
    # The parts of the data as they were asked for, and as the store tells them.
    for record in records:
        assert record["valid"], record["reasons"]
        parts = (record["settings"]["data"]["part_size"], record["provenance"]["part_bytes"])
        assert parts == ("6MiB", 6 * 2**20)


@pytest.mark.rule(10, 14)
def test_no_page_buffer_and_the_default_are_two_things(shots_cell, good_record):
    here = shots_cell(**ROS3, layout="shot-major", access="signals", page_buffer=["0", "unset", "16MiB"])
    effective = {}
    for cell in here.cells:
        record = here.measure(cell=cell)
        assert record["valid"], record["reasons"]
        assert record["effective"]["driver"] == "ros3"
        assert record["provenance"]["code_sha256"] == good_record["provenance"]["code_sha256"], "whichever the driver"
        effective[record["cell"]["page_buffer"]] = record["effective"]["page_buffer_bytes"]
    assert good_record["effective"]["driver"] == "sec2"
    assert effective.pop("unset") > 0
    assert effective == {"0": 0, "16MiB": 16 * 2**20}


@pytest.mark.rule(10)
def test_a_buffer_that_the_library_ignores_makes_the_record_invalid(shots_cell):
    record = shots_cell(data={"paged": False}, page_buffer="64MiB").measure()
    assert not record["valid"]
    assert "ignored the page buffer of 67108864 bytes" in record["reasons"][0]


@pytest.mark.rule(10)
def test_a_buffer_below_a_page_is_raised_and_the_record_invalid(shots_cell):
    record = shots_cell(page_buffer="1MiB").measure()
    assert not record["valid"]
    assert "raised the page buffer of 1048576 bytes to 8000000" in record["reasons"][0]


@pytest.mark.rule(9)
def test_corrupted_values_make_the_record_invalid(shots_cell):
    import h5py

    here = shots_cell(access="shots")
    for name in artefact(here.manifest)["shots"]:
        with h5py.File(here.data / f"{name}.h5") as file:
            offset = next(
                signal.id.get_offset()
                for signal in file[f"shots/{name}/signals"].values()
                if signal.chunks is None and signal.nbytes
            )
        with open(here.data / f"{name}.h5", "r+b") as raw:
            raw.seek(offset)
            byte = raw.read(1)
            raw.seek(offset)
            raw.write(bytes([byte[0] ^ 1]))
    record = here.measure()
    assert not record["valid"]
    assert record["reasons"] == ["the checksum of the values read differs from the manifest (rule 9)"]


@pytest.mark.rule(8)
def test_a_cold_cell_is_cold_and_one_whose_file_something_keeps_in_memory_is_not(shots_cell):
    here = shots_cell(cache="cold")
    record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["cache"]["resident_before"] <= 0.01
    assert record["cache"]["resident_after"] is not None
    with locked(*here.data.glob("*.h5")):
        record = here.measure()
    assert not record["valid"]
    assert "expected cold" in record["reasons"][0]


@pytest.mark.rule(8)
def test_a_warm_cell_is_warm_until_its_window_closes_and_invalid_where_pages_are_lost_before(shots_cell):
    here = shots_cell(cache="warm")
    with locked(*here.data.glob("*.h5")):
        record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["cache"] == {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 1.0}
    here.pretend(
        "from pathlib import Path\nfrom sbench.probe import page_cache, conversation\n"
        "real = conversation.Step.close_window\n"
        "def lose(self):\n"
        "    page_cache.evict_files(Path(self.job['manifest']).parent.glob('*.h5'))\n"
        "    real(self)\n"
        "conversation.Step.close_window = lose"
    )
    record = here.measure()
    assert not record["valid"]
    assert any("the page cache lost pages while the cell ran (0.0% resident" in reason for reason in record["reasons"])


@pytest.mark.rule(4, 12)
def test_workers_may_be_a_multiple_of_the_cores_and_an_idle_one_is_reported(shots_cell):
    # Rounded up, and not one more than rounded down: where the sizes divide, every worker has work.
    assert [len(batch) for batch in split_into_batches(range(8), 4)] == [2, 2, 2, 2]
    assert [len(batch) for batch in split_into_batches(range(7), 4)] == [2, 2, 2, 1]
    record = shots_cell(data={"signals": 6}, workers="2x", read_shots=1).measure()
    assert record["valid"], record["reasons"]
    effective = record["effective"]
    assert effective["workers"] == 2 * effective["usable_cores"]
    assert effective["idle_workers"] == effective["workers"] - len(record["samples"])
    assert effective["oversubscribed"]


@pytest.mark.rule(9)
def test_identical_tasks_that_run_once_are_caught(shots_cell):
    here = shots_cell(access="shots", read_shots=3)
    here.pretend(
        "from sbench.probe import dask_workers\n"
        "real, answers = dask_workers.Workers.run_batches, {}\n"
        "def once(self, function, batches):\n"
        "    key = function.__name__\n"
        "    if key != 'read_batch' or key not in answers:\n"
        "        answers[key] = real(self, function, batches)\n"
        "    return answers[key]\n"
        "dask_workers.Workers.run_batches = once"
    )
    record = here.measure()
    assert not record["valid"]
    assert any(reason.startswith("expected 3 tasks, got ") for reason in record["reasons"])


@pytest.mark.rule(14)
def test_changed_code_changes_the_hash_of_what_measured_and_other_code_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts/sbench").mkdir(parents=True)
    for name in ("reader", "report"):
        (tmp_path / "scripts/sbench" / f"{name}.py").write_text("pass\n", encoding="utf-8")
    before = provenance.compute_code_sha256(["sbench.reader"])
    (tmp_path / "scripts/sbench/report.py").write_text("changed\n", encoding="utf-8")
    assert provenance.compute_code_sha256(["sbench.reader"]) == before
    (tmp_path / "scripts/sbench/reader.py").write_text("changed\n", encoding="utf-8")
    assert provenance.compute_code_sha256(["sbench.reader"]) != before


def test_a_shell_script_that_measured_is_hashed_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/battery.sh").write_text("fio", encoding="utf-8")
    before = provenance.compute_code_sha256(["scripts/battery.sh"])
    assert before != provenance.compute_code_sha256([])
    (tmp_path / "scripts/battery.sh").write_text("fio --direct=1", encoding="utf-8")
    assert provenance.compute_code_sha256(["scripts/battery.sh"]) != before


@pytest.mark.rule(8, 9, 10)
@pytest.mark.parametrize(
    "block, key, value, reason",
    [
        ("effective", "rdcc_nbytes", 1, "the library set a chunk cache of 1 bytes, not 8388608"),
        ("effective", "workers", 0, "expected 2 workers, 0 were alive"),
        ("work", "datasets", 0, "datasets, got 0"),
        ("work", "logical_bytes", 1, "logical bytes, got 1"),
        ("cache", "state", "mixed", "the page cache was mixed (100.0% resident), expected warm"),
        ("cache", "resident_after", 0.5, "the page cache lost pages while the cell ran (50.0% resident at its end)"),
    ],
)
def test_whatever_was_not_as_asked_makes_a_record_invalid(good_record, block, key, value, reason):
    kept = {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 1.0}
    good = {**good_record, "cache": kept}
    changed = {**good, block: {**good[block], key: value}}
    settings = good["settings"] | {"cell": good["settings"]["cell"] | {"page_buffer": "unset"}}
    assert [line for line in study.STUDY.check_record(changed, settings) if reason in line]
    assert study.STUDY.check_record(good, settings) == []


def test_a_driver_without_a_page_buffer_is_valid_only_where_none_is_asked_for(good_record):
    told = ("page_buffer_bytes", "page_size", "rdcc_nbytes")
    effective = {key: value for key, value in good_record["effective"].items() if key not in told}
    plain = {**good_record, "effective": effective}
    for level, reasons in (("unset", 0), ("0", 0), ("64MiB", 1)):
        settings = plain["settings"] | {"cell": plain["settings"]["cell"] | {"page_buffer": level}}
        found = study.STUDY.check_record(plain, settings)
        assert len([line for line in found if "ignored the page buffer" in line]) == len(found) == reasons


def test_a_cell_that_asked_its_server_for_nothing_has_failed(shots_cell, good_record):
    here = shots_cell(**ROS3, layout="shot-major", make=False)
    manifest = {"dataset": "d", "layout": {"paged": False}}
    for requests, many in (({}, 1), ({"GET": {"count": 3}}, 0)):
        reasons = study.STUDY.check_label({**good_record, "requests": requests}, here.cell.settings, manifest)
        assert len([reason for reason in reasons if "the embedded server counted no GET" in reason]) == many
