"""A cell of `arrays`, measured: what a record says of each backend and store, and faults that are planted and seen."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient
from cells import ROS3, Place
from conftest import artefact, processes_of

from sbench.stores import azure
from sbench.stores import store as stores

CHUNKS, VALUES, PADDED = 9, 50 * 40 * 8, 9 * 20 * 15 * 8
# What describes an array beside its chunks: HSDS has an object for the dataset and one for the group that has it.
DESCRIBED = {"hsds": 2, "zarr": 1}
# What a prelude says to get at the nodes of each service that is started.
NODES = (
    "import os, signal\nfrom sbench.studies.arrays import hsds, service\nservices, start = [], service._start_service\n"
    "service._start_service = lambda *given: services.append(start(*given)) or services[-1]\n"
)


@pytest.fixture
def cell(tmp_path: Path, with_hsds: Path, environments: Path, once: Callable) -> Callable[..., Place]:
    """Return a function that makes a place to measure a cell of `arrays` in."""

    def build(**levels: object) -> Place:
        built = environments if levels.get("library") else with_hsds
        return Place(tmp_path, built, once, study="arrays", **levels).make()

    return build


def files(here: Place) -> set[str]:
    """Return all files of the store of a cell, and of the cell's own folder."""
    folders = {here.folder, Path(here.provided.get("folder") or here.folder)}
    paths = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    return {str(path) for path in paths if not {".vgwlocks", "software", "networks"} & {*path.parts}}


def blobs(here: Place) -> set[str]:
    """Return the names of all objects in a container: Azurite keeps the bytes of removed ones for a while."""
    spec = here.cell.settings["store"]
    store = stores.get_store(spec)
    with store.serve_folder(
        artefact(here.environments / "servers.json"), Path(here.provided["folder"]), None, sys.stderr
    ) as up:
        connection = store.resolve_holder_url(up, {})[1][azure.CONNECTION]
        with ContainerClient.from_connection_string(connection, spec["container"]) as container:
            return set(container.list_blob_names())


def measured(here: Place) -> dict:
    """Measure a cell, and return its record if nothing is left in the store, and nothing runs, after that."""
    before = files(here)
    record = here.measure()
    assert processes_of(str(here.folder)) == []
    if here.cell.levels["store"] == "azure":
        assert blobs(here) == {f"{here.cell.dataset}/array.h5"}
    else:
        own = {str(here.folder / name) for name in ("repeat=1.json", "step.log")}
        assert files(here) - before - own == set(), "something is left in the store"
    return record


@pytest.mark.rule(7, 9, 10)
@pytest.mark.parametrize(
    "levels",
    [
        {"backend": "library", "operation": "write", "clients": 2, "access": "columns"},
        {"backend": "library", "operation": "read", "library": "hdf5-2.0.0", **ROS3},
        {"backend": "hsds", "operation": "write", "compression": "gzip", "values": "floats", "access": "blocks"},
        {"backend": "hsds", "operation": "read", "store": "s3", "protocol": "binary", "nodes": 2, "access": "columns"},
        {"backend": "hsds", "operation": "write", "store": "azure", "protocol": "json", "concurrency": 2},
        {"backend": "zarr", "operation": "write", "compression": "gzip", "values": "random", "clients": 3},
        {"backend": "zarr", "operation": "read", "store": "s3", "concurrency": 2, "access": "rows"},
        {"backend": "zarr", "operation": "write", "store": "azure"},
    ],
    ids=lambda levels: "-".join([levels["backend"], levels["operation"], levels.get("store", ["disk"])[0]]),
)
def test_each_backend_writes_and_reads_in_each_store_and_says_what_it_stored(cell, levels):
    levels = {key: value for key, value in levels.items() if key != "driver"}
    record = measured(cell(**levels))
    assert (record["status"], record["reasons"]) == ("done", [])
    work, seconds, effective = record["work"], record["seconds"], record["effective"]
    assert work["logical_bytes"] == VALUES
    assert work["padded_bytes"] == PADDED
    assert sum(row["bytes"] for row in record["samples"]) == VALUES
    assert len({row["worker-pid"] for row in record["samples"]}) == effective["clients"] == levels.get("clients", 1)
    parts = {"columns": 3, "rows": 3, "blocks": 9}.get(levels.get("access"), 1)
    assert work["tasks_done"] == parts * (levels.get("clients", 1) if levels["backend"] != "hsds" else 1)
    if levels["backend"] != "library":
        assert work["stored_objects"] == CHUNKS + DESCRIBED[levels["backend"]]
    if "compression" not in levels:
        assert work["stored_bytes"] >= (VALUES if levels["backend"] == "library" else PADDED)
    assert effective.get("chunks", "20x15") == "20x15"
    assert seconds["open"] <= seconds["total"]
    if levels["operation"] == "write":
        assert seconds["open"] <= seconds["acknowledged"] <= seconds["total"]
    if levels["backend"] == "hsds":
        assert (effective["nodes"], effective["request_limit"]) == (levels.get("nodes", 1), 100 * 2**20)
        assert effective["data_node_peak_bytes"] > 2**20
        assert effective["ready_s"] > 0
    assert ("first_byte" in seconds) == (levels.get("protocol") == "binary")


@pytest.mark.rule(9)
@pytest.mark.parametrize("backend", ["zarr", "hsds"])
def test_a_wrong_value_in_a_stored_chunk_is_an_invalid_record(cell, backend):
    here = cell(backend=backend)
    # Changed when all is stored, before it is read back.
    here.pretend(
        f"from pathlib import Path\nfrom sbench.studies.arrays import {backend} as module\n"
        "stored = module.BACKEND.count_stored\n"
        "def change(target):\n"
        "    sizes = stored(target)\n"
        "    files = Path(target.place['folder']).rglob('*')\n"
        "    chunk = next(path for path in files if path.is_file() and path.stat().st_size == 20 * 15 * 8)\n"
        "    chunk.write_bytes(b'\\x01' + chunk.read_bytes()[1:])\n"
        "    return sizes\n"
        "module.BACKEND.count_stored = change"
    )
    record = measured(here)
    assert (record["status"], record["valid"]) == ("done", False)
    assert record["reasons"] == ["the checksum of the values read differs from the manifest (rule 9)"]


@pytest.mark.rule(7)
def test_what_a_service_has_acknowledged_and_was_not_asked_to_store_is_not_taken_for_stored(cell):
    here = cell()
    # Nodes that are ended forget what they hold: what was only acknowledged is not there when it is read back.
    here.pretend(NODES + "hsds.Rest.flush_domain = lambda self: None")
    record = measured(here)
    assert record["status"] == "failed"
    [line] = record["reasons"]
    assert "HSDS lacks the dataset array in " in line


@pytest.mark.rule(4)
def test_a_node_that_is_killed_while_it_is_read_from_is_a_failed_record_in_one_line(cell):
    here = cell(operation="read", protocol="binary", access="rows", store="s3")
    here.pretend(
        NODES + "get, asked = hsds.Rest.get_binary, []\n"
        "def kill(self, piece):\n"
        "    asked.append(piece)\n"
        "    if len(asked) == 2:\n"
        "        os.kill(services[-1].nodes['dn1'].pid, signal.SIGKILL)\n"
        "    return get(self, piece)\n"
        "hsds.Rest.get_binary = kill"
    )
    record = measured(here)
    assert record["status"] == "failed"
    [line] = record["reasons"]
    # Its other nodes end with it, before the service node has tried for long to reach it.
    assert "HSDS " in line
    assert "GET /datasets/" in line


def test_a_service_is_reached_past_a_proxy_and_shows_its_password_to_nobody(cell, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    here = cell(protocol="client")
    here.pretend(
        NODES + "from pathlib import Path\n"
        "def look(given, look_on=service._wait_until_ready):\n"
        "    look_on(given)\n"
        "    for node in given.nodes.values():\n"
        "        assert given.password not in Path(f'/proc/{node.pid}/cmdline').read_text()\n"
        "service._wait_until_ready = look"
    )
    record = measured(here)
    assert (record["status"], record["reasons"]) == ("done", [])


def test_a_service_that_does_not_become_ready_is_one_line(cell):
    here = cell()
    here.pretend(
        "import os, signal\nfrom sbench.studies.arrays import service\n"
        "service._STARTS, service.wait_for_port = 1, lambda *given: None\n"
        "service._wait_until_ready.__globals__['READY_S'] = 0.05"
    )
    record = measured(here)
    assert record["status"] == "failed"
    assert ["HSDS was not ready within 0.05 s; see its output in the log" in line for line in record["reasons"]] == [
        True
    ]


def test_a_port_that_somebody_takes_in_between_is_not_asked_and_another_is_taken(cell):
    here = cell()
    here.pretend(
        "import socket\nfrom sbench.studies.arrays import service\n"
        "taken = socket.create_server(('127.0.0.1', 0))\n"
        "ports, free = [taken.getsockname()[1]], service.find_free_port\n"
        "service.find_free_port = lambda: ports.pop() if ports else free()"
    )
    record = measured(here)
    assert (record["status"], record["reasons"]) == ("done", [])
    assert "address already in use" in (here.folder / "step.log").read_text(encoding="utf-8")


@pytest.mark.rule(6)
def test_a_slowed_control_waits_and_says_for_how_long(cell):
    here = cell(backend="zarr", control_cells=1)
    slowed = next(one for one in here.cells if one.levels["control"] == "slow10")
    record = here.measure(cell=slowed)
    assert record["valid"], record["reasons"]
    assert 0 < record["work"]["waited_s"] < record["seconds"]["total"]


ANSWERED, TOO_LARGE = "answered", "refused (413)"


@pytest.mark.parametrize("streaming, store", [("on", "s3"), ("off", "disk")])
def test_requests_near_the_limit_come_out_as_the_service_documents_them_or_not(cell, streaming, store):
    here = cell(
        operation="limits", streaming=streaming, store=store, shape="300x220", chunks="150x110", request_limit="100KiB"
    )
    record = measured(here)
    assert (record["status"], record["reasons"]) == ("done", [])
    outcomes = {(row["phase"], row["times_limit"]): row["outcome"] for row in record["samples"]}
    above = ANSWERED if streaming == "on" else TOO_LARGE
    for what in ("binary read", "binary write", "h5pyd read"):
        assert [outcomes[what, times] for times in (0.5, 1, 2, 4)] == [ANSWERED, ANSWERED, above, above]
    assert [outcomes["JSON read", times] for times in (0.1, 2)] == [ANSWERED, TOO_LARGE]
    assert outcomes["binary write of strings", 2] == TOO_LARGE
    for row in record["samples"]:
        first = row["first_byte_s"]
        assert (first is not None) == (row["phase"] == "binary read" and row["outcome"] == ANSWERED)
        assert first is None or first <= row["trial_s"]


@pytest.mark.rule(9)
def test_a_write_above_the_limit_that_the_service_loses_is_an_invalid_record(cell):
    here = cell(operation="limits", shape="300x220", chunks="150x110", request_limit="100KiB")
    here.pretend("from sbench.studies.arrays import hsds\nhsds.Rest.put_binary = lambda self, piece, values: None")
    record = measured(here)
    assert not record["valid"]
    assert record["reasons"] == ["the checksum of the values read differs from the manifest (rule 9)"]


@pytest.mark.rule(8)
def test_a_warm_read_of_a_service_comes_after_one_by_the_same_nodes(cell):
    here = cell(operation="read", cache="warm")
    here.pretend(
        NODES + "import sys\nreading = hsds.BACKEND.open_for_reading\n"
        "def log(target):\n"
        "    print('read from node', services[-1].nodes['dn1'].pid, 'of service', len(services), file=sys.stderr)\n"
        "    return reading(target)\n"
        "hsds.BACKEND.open_for_reading = log"
    )
    record = measured(here)
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    assert (record["cache"]["asked"], record["cache"]["state"]) == ("warm", "warm")
    lines = (here.folder / "step.log").read_text(encoding="utf-8").splitlines()
    before, timed = (line for line in lines if line.startswith("read from node "))
    assert before == timed, "the nodes that brought it before bring it again"
    assert timed.endswith(" of service 2"), "the nodes that wrote it are gone"


def test_faults_come_out_as_the_service_documents_them_or_not(cell):
    here = cell(operation="faults", shape="2000x1100", chunks="500x275", request_limit="4MiB")
    # One limit on memory, which suffices: of so small a request 4 × was too little in 1 of 6 runs on a loaded machine.
    # A store that is slowed for less long.
    here.pretend(
        "from sbench.studies.arrays import limit_trials\n"
        "limit_trials.ROOM, limit_trials.SLOW_S, limit_trials.PATIENCE, limit_trials._STOPPED_S = (8,), 1.0, 0.9, 0.2"
    )
    record = measured(here)
    assert (record["status"], record["reasons"]) == ("done", [])
    outcomes = {row["phase"]: row["outcome"] for row in record["samples"]}
    busy = outcomes.pop("24 requests in flight, 4 tasks")
    assert busy.endswith(" busy (503)")
    assert int(busy.split()[0]) > 0
    assert outcomes == {
        "client stops reading": ANSWERED,
        "client wants bytes in less time than all take": ANSWERED,
        "data node killed in a binary read": "broke off",
        "data node killed in an h5pyd read": "broke off",
        "data node may take 8 × the request": ANSWERED,
    }
