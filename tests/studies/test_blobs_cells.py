"""Which cells of parallel input can exist, what they cost, and what makes a record of them fail or invalid."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from sbench.design import config as configuration
from sbench.design import matrix, schema
from sbench.design.study import check_node_count
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.studies.blobs import study

ROW = {
    "store": ["disk"],
    "pattern": ["single-file"],
    "size": ["1MiB"],
    "processes": [4],
    "objects": ["shared"],
    "operation_size": ["1GiB"],
    "chunk_size": ["4MiB"],
    "concurrency": [1],
    "cache": ["warm"],
}
STORES = {
    "disk": {"kind": "posix"},
    "s3": {"kind": "s3", "bucket": "blobs", "server": "embedded"},
    "azure": {"kind": "azure-blob", "container": "blobs", "server": "embedded"},
    "files": {"kind": "azure-files", "share": "blobs"},
}


def resolved(section: dict | None = None, **row: list) -> dict:
    section = {"control_cells": 0, **(section or {}), "matrix": {**ROW, **row}}
    return configuration.resolve_config({"run": "test", "stores": deepcopy(STORES), "studies": {"blobs": section}}, [])


def test_an_embedded_server_is_not_read_from_other_machines():
    config = resolved({"mpi": {"hostfile": "config/azure.hosts"}}, store=["disk", "s3"])
    assert omitted(config) == [
        "an embedded server is reachable only from its machine, but a hostfile may name other machines"
    ]


def test_other_machines_in_a_hostfile_of_the_same_name_make_another_cell(tmp_path):
    hostfile = tmp_path / "hosts"
    names = []
    for hosts in ("node1:4", "# ours\nnode1:4\n", "node1:2\nnode2:2"):
        hostfile.write_text(hosts, encoding="utf-8")
        names.append(matrix.expand_matrix(resolved({"mpi": {"hostfile": str(hostfile)}}), "blobs")[0][0].name)
    assert names[0] == names[1] != names[2]


def omitted(config: dict) -> list[str]:
    return [one.reason for one in matrix.expand_matrix(config, "blobs")[1]]


@pytest.mark.parametrize(
    "row, reason",
    [
        ({"store": ["disk", "s3"], "pattern": ["mpi-io-collective"]}, "MPI-IO reads files, not stores of kind s3"),
        ({"store": ["disk", "azure"], "cache": ["direct"]}, "O_DIRECT requires files (got a store of kind azure"),
        ({"pattern": ["mpi-io", "sections"], "cache": ["direct"]}, "MPI-IO opens its file itself, without O_DIRECT"),
        ({"pattern": ["mpi-io"], "concurrency": [1, 2]}, "MPI-IO reads a single operation of a process at a time"),
        ({"store": ["disk", "s3"], "nodes": [1, 2]}, "reachable from a single machine only, not from 2 nodes"),
        ({"processes": [4], "nodes": [1, 3]}, "4 processes do not divide evenly among 3 nodes"),
        ({"objects": ["shared", "own"]}, "whole objects per process require pattern multiple-files"),
        ({"pattern": ["sections", "broadcast"], "objects": ["own"]}, "broadcast reads a single object"),
        ({"operation_size": ["1KiB", "4KiB"]}, "operation_size must be at least 4 KiB, a page (got 1KiB)"),
        (
            {"chunk_size": ["1MiB"], "concurrency": [1, 2]},
            "2 requests in flight require as many chunks: a request of a process at 1MiB has 1 chunk of 1MiB",
        ),
        (
            {"pattern": ["scatter"], "size": ["1GiB"], "operation_size": ["128KiB", "256KiB"]},
            "scatter requires an operation_size of at least a block, 256 KiB for 1GiB",
        ),
        (
            {"store": ["azure", "s3"], "size": ["1GiB"], "chunk_size": ["16MiB"], "concurrency": [4]},
            "the SDK holds two copies of each chunk: 1 GiB + 2 × 16 MiB × 4 = 1.125 GiB is more than an operation and",
        ),
    ],
)
def test_what_cannot_be_read_is_left_out_with_the_reason(row: dict, reason: str):
    config = resolved({"data": {"objects": 4}}, **row)
    assert [found for found in omitted(config) if reason in found], omitted(config)
    assert matrix.expand_matrix(config, "blobs")[0]


@pytest.mark.parametrize(
    "nodes, processes, many", [("1", None, 0), ("1", 4, 0), ("2", None, 1), ("2", 4, 0), ("4", 2, 1)]
)
def test_processes_are_divided_among_several_nodes_and_counted_for_them(nodes, processes, many):
    config = resolved(store=["disk"])
    assert len([*check_node_count({"store": "disk", "nodes": nodes}, config, processes)]) == many


def test_objects_that_a_store_cannot_hold_are_left_out_with_the_source_of_the_limit():
    config = resolved(store=["disk", "files", "azure"], pattern=["sections"], size=["4TiB", "5TiB"], cache=["cold"])
    (reason,) = omitted(config)
    assert reason.startswith("an object of azure-files must have at most 4 TiB (2026-05; Azure,")
    assert "https://" in reason


def test_every_limit_of_objects_has_a_source_and_a_date():
    kinds = schema.read_schema()["properties"]["stores"]["additionalProperties"]["properties"]["kind"]["enum"]
    assert set(study.read_object_limits()) == set(kinds) - {"posix", "hsds"}
    for limit in study.read_object_limits().values():
        assert limit["gib"] > 0
        assert limit["as_of"][:2] == "20"
        assert "https://" in limit["source"]


@pytest.mark.parametrize(
    "section, row, line",
    [
        (
            {"data": {"objects": 2}},
            {"pattern": ["multiple-files"]},
            "test: studies.blobs.data.objects: must be at least 4 for 1MiB, since each process reads a different object"
            " (got 2)",
        ),
        (
            {"data": {"objects": {"2MiB": 4}}},
            {"pattern": ["sections"], "objects": ["own"]},
            "studies.blobs.data.objects: must be at least 4 for 1MiB, since each process reads a different object"
            " (got 0)",
        ),
        ({"iterations": {"2MiB": 4}}, {}, "studies.blobs.iterations lacks 1MiB; add its number of iterations"),
        ({"mpi": {"hostfile": "no/hosts"}}, {}, "studies.blobs.mpi.hostfile: no/hosts"),
        (
            {"mpi": {"hostfile": "config/azure.hosts"}},
            {"processes": [21]},
            "studies.blobs.mpi.hostfile: config/azure.hosts must have 21 slots for the processes of the"
            " matrix (got 20)",
        ),
        ({"mpi": {"library": "no/libmpi.so"}}, {}, "studies.blobs.mpi.library: no/libmpi.so"),
        (
            {"time_limit_s": {"2MiB": 60}},
            {},
            "studies.blobs.time_limit_s lacks 1MiB; add its limit in seconds",
        ),
        ({"mpi": {"launcher": ["srun"]}}, {"nodes": [2]}, "studies.blobs.mpi.launcher: must contain"),
        ({"mpi": {"hostfile": "a", "launcher": ["srun"]}}, {}, "studies.blobs.mpi: launcher and hostfile exclude each"),
        ({}, {"size": ["1MB"]}, "studies.blobs.matrix.size[0]: '1MB' is not valid"),
        (
            {"compare": [{"factor": "pattern", "baseline": "single-file"}]},
            {"pattern": ["single-file", "sections"]},
            "studies.blobs.compare: sections deliver different amounts than single-file, so no comparison"
            " includes them",
        ),
        (
            {"compare": [{"factor": "size", "baseline": "1MiB"}]},
            {"size": ["1MiB", "2MiB"]},
            "studies.blobs.compare[0]: objects of different sizes deliver different amounts; remove it",
        ),
    ],
)
def test_a_mistake_stops_in_one_line(tmp_path: Path, section: dict, row: dict, line: str):
    file = tmp_path / "test"
    file.write_text(
        yaml.safe_dump({"run": "x", "stores": STORES, "studies": {"blobs": {**section, "matrix": ROW | row}}})
    )
    with pytest.raises(Problem) as caught:
        configuration.load_config(file)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_size_has_its_own_objects_and_iterations():
    section = {"data": {"objects": {"1MiB": 4, "1GiB": 1}}, "iterations": {"1MiB": 100, "1GiB": 2}}
    cells, _ = matrix.expand_matrix(resolved(section, size=["1MiB", "1GiB"]), "blobs")
    assert [(cell.settings["iterations"], cell.settings["data"]["objects"]) for cell in cells] == [(100, 4), (2, 1)]
    assert [study.STUDY.estimate_data_bytes(cell.settings["data"]) for cell in cells] == [4 * 2**20, 2**30]


@pytest.mark.rule(3)
def test_patterns_and_processes_of_a_size_read_the_same_objects():
    config = resolved({"data": {"objects": 4}}, pattern=["single-file", "multiple-files"], processes=[1, 4])
    assert len({cell.dataset for cell in matrix.expand_matrix(config, "blobs")[0]}) == 1


def test_the_cost_is_what_all_processes_read_in_all_rounds():
    config = resolved({"iterations": 10, "ceiling_rounds": 2}, pattern=["single-file", "sections"], size=["16MiB"])
    single, sections = (study.STUDY.estimate_record(cell.settings) for cell in matrix.expand_matrix(config, "blobs")[0])
    assert single["bytes"] == 12 * 4 * 16 * 2**20 == 4 * sections["bytes"]
    assert single["requests"] == 12 * 4 * 4 == 4 * sections["requests"]


def test_the_cost_of_what_is_larger_than_an_operation_has_the_reading_that_verifies_it():
    section = {"iterations": 2, "ceiling_rounds": 3}
    config = resolved(section, pattern=["sections"], size=["1GiB"], operation_size=["16MiB"])
    (cell,), _ = matrix.expand_matrix(config, "blobs")
    assert study.STUDY.estimate_record(cell.settings)["bytes"] == 3 * 2**30 + 3 * 4 * 16 * 2**20


def record(**changes: object) -> dict:
    work = {"tasks_asked": 8, "tasks_done": 8, "logical_bytes_asked": 32, "logical_bytes": 32}
    work |= {"blocks_asked": 4, "blocks_verified": 4, "checksum_asked": "a", "checksum": "a"}
    return {
        "faults": [],
        "work": work,
        "memory": {"growth_bytes": 2**20, "allowed_bytes": 2**30},
        "effective": {"processes": 4, "object_bytes": 2**20},
        "cache": {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 0.995},
        "requests": {"GET": {"count": 4}},
        "samples": [{}],
    } | changes


@pytest.mark.rule(8, 9)
@pytest.mark.parametrize(
    "changes, fault",
    [
        ({}, None),
        ({"faults": ["object-0 was replaced"]}, "object-0 was replaced"),
        ({"work": {**record()["work"], "tasks_done": 7}}, "expected 8 tasks, got 7"),
        ({"work": {**record()["work"], "blocks_verified": 3}}, "expected 4 blocks with the right checksum, got 3"),
        ({"work": {**record()["work"], "checksum": "b"}}, "the checksum of the values read differs"),
        ({"cache": {**record()["cache"], "resident_after": 0.98}}, "the page cache lost pages while the cell ran (98"),
        (
            {"memory": {"growth_bytes": 2**31, "allowed_bytes": 2**30}},
            "the memory of a process must grow by at most 1 GiB (got 2 GiB)",
        ),
    ],
)
def test_what_was_not_as_asked_makes_a_record_invalid(changes: dict, fault: str | None):
    found = study.STUDY.check_record(record(**changes), {})
    assert found == [] if fault is None else found[0].startswith(fault)


@pytest.mark.rule(3, 10)
@pytest.mark.parametrize(
    "changes, failure",
    [
        ({}, None),
        ({"requests": {}}, "the embedded server counted no GET"),
        ({"requests": {}, "samples": []}, None),
    ],
)
def test_what_is_not_its_label_fails(changes: dict, failure: str | None):
    (cell,), _ = matrix.expand_matrix(resolved(store=["s3"]), "blobs")
    manifest = {"dataset": "blobs-1MiB", "layout": {"size_bytes": 2**20}}
    found = study.STUDY.check_label(record(**changes), cell.settings, manifest)
    assert found == [] if failure is None else found[0].startswith(failure)


def test_sizes_are_read_and_written():
    assert [sizes.parse_size(text) for text in ("1", "4KiB", "3MiB", "1GiB", "2TiB")] == [
        1,
        2**12,
        3 * 2**20,
        2**30,
        2**41,
    ]
    assert [sizes.format_size(size) for size in (0, 1023, 2**20, 1.5 * 2**30)] == ["0 B", "1023 B", "1 MiB", "1.5 GiB"]
    with pytest.raises(Problem, match="got '1MB'"):
        sizes.parse_size("1MB")
