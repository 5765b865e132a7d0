"""Arrays: their values and pieces, what each client does of them, which cells can exist, and what their page says."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, artefact

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.pages import answer, comparisons, headline, recommendation, row_labels
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem
from sbench.studies.arrays import clients, library, make, operations, pieces, printed, values
from sbench.studies.arrays.report import results, trials
from sbench.studies.arrays.settings import Settings
from sbench.studies.arrays.study import STUDY
from tests.helpers import arrays_tables
from tests.helpers.arrays_tables import READ, SERVICE, USUAL
from tests.helpers.records import failed

MIB = 2**20
# Shapes that nothing divides, larger and smaller than a block of values, and one chunk that is the whole array.
ODD = [("1x1", "1x1"), ("7x5", "3x2"), ("600x11", "257x4"), ("5x600", "2x599"), ("13x7", "13x7")]
ACCESSES = ("whole", "rows", "columns", "blocks", "pieces")


@pytest.fixture(scope="module")
def run(synthetic):
    return arrays_tables.load(synthetic("arrays"))


@pytest.mark.parametrize("kind", ["formula", "floats", "random"])
def test_values_are_the_same_in_parts_as_in_whole_and_follow_from_the_seed(kind):
    whole = values.make_values(kind, 11, slice(0, 1000), 3)
    assert (whole.shape, whole.dtype) == ((1000, 11), values.get_dtype(kind))
    for first, end in itertools.pairwise((0, 1, 255, 256, 257, 700, 1000)):
        assert np.array_equal(values.make_values(kind, 11, slice(first, end), 3), whole[first:end])
    other = values.make_values(kind, 11, slice(0, 1000), 4)
    assert np.array_equal(whole, other) == (kind == "formula")
    assert len(np.unique(whole)) > 1000


def test_gzip_makes_of_the_published_array_what_was_printed(tmp_path):
    made(tmp_path, shape="2200x12000", chunks="1500x275", compression="gzip")
    manifest = artefact(tmp_path / "manifest.json")
    layout, [file] = manifest["layout"], manifest["files"]
    assert round(file["bytes"] / MIB, 2) == 38.59
    assert 0 < file["bytes"] - layout["stored_bytes"] < MIB / 50, "what describes the chunks"
    assert (layout["shape"], layout["chunks"], layout["compression"]) == ("2200x12000", "1500x275", "gzip")


def made(folder: Path, **settings: object) -> Path:
    """Make an array's file and its manifest; return the file."""
    whole = {"shape": "50x40", "chunks": "20x15", "compression": "none", "values": "formula", "seed": 1} | settings
    out = ("--dataset", "arrays-1", "--settings", json.dumps(whole), "--out", str(folder / "manifest.json"))
    assert make.main([*out]) == 0
    return folder / make.NAME


@pytest.mark.parametrize("shape, chunks", ODD)
@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_clients_cover_each_value_once_and_none_shares_a_chunk_with_another(shape, chunks, access, count):
    array, limit = pieces.parse_shape(shape, chunks), 300
    bands = pieces.split_rows(array, count)
    assert len(bands) <= count
    covered = np.zeros((array.rows, array.columns), int)
    for band in bands:
        assert band[0] % array.chunk_rows == 0, "it begins with a chunk"
        parts = list(pieces.iter_pieces(array, band, access, limit))
        for piece in parts:
            covered[piece.slices] += 1
            assert covered[piece.slices].size * pieces.ITEM == piece.bytes
            assert band[0] <= piece.rows[0] < piece.rows[1] <= band[1]
        if access == "pieces":
            assert all(piece.bytes < limit or piece.rows[1] - piece.rows[0] == 1 for piece in parts)
        elif access == "whole":
            assert len(parts) == 1
    assert (covered == 1).all()


def test_a_shape_counts_its_chunks_whole():
    shape = pieces.parse_shape("2200x12000", "1500x275")
    assert (shape.bytes, shape.chunks, shape.padded_bytes) == (211_200_000, 2 * 44, 2 * 44 * 1500 * 275 * 8)


@pytest.mark.parametrize("count, operation", itertools.product((1, 2, 3), ("write", "read")))
def test_clients_of_the_library_write_files_of_their_own_and_read_one(tmp_path, count, operation):
    file = made(tmp_path)
    cell = {name: levels[0] for name, levels in USUAL.items()} | {"shape": "50x40", "chunks": "20x15"}
    cell |= {"operation": operation, "clients": str(count), "access": "rows"}
    settings = read_fields(Settings, SETTINGS | {"cell": cell, "store": {"kind": "posix"}})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    job = {"scratch": str(scratch), "location": {"folder": str(tmp_path)}}
    works = operations.plan_works(settings, operations.build_target(job, settings), operation == "write")
    assert [work.new for work in works] == [operation == "write"] * count
    for task in enumerate(works):
        clients.create_client(task)
    accounts = [clients.run_client(number) for number in range(count)]
    assert sum(account["bytes"] for account in accounts) == 50 * 40 * 8
    assert len({work.target.place["address"] for work in works}) == (count if operation == "write" else 1)
    if operation == "write":
        parts = []
        for work in works:
            assert (
                library.read_layout(Path(work.target.place["address"]))["chunks"]
                == f"{min(20, work.target.shape.rows)}x15"
            )
            with h5py.File(work.target.place["address"]) as opened:
                parts.append(opened[library.DATASET][()])
        assert np.array_equal(np.concatenate(parts), values.make_values("formula", 40, slice(0, 50), 1))
    else:
        assert sum(map(clients.count_right_bytes, range(count))) == 50 * 40 * 8
        with h5py.File(file, "r+") as opened:
            opened[library.DATASET][25, 3] += 1
        for number in range(count):
            clients.run_client(number)
        assert sum(map(clients.count_right_bytes, range(count))) == (50 - 20) * 40 * 8, (
            "a piece with a wrong value is not right"
        )


def test_two_records_never_write_to_the_same_place():
    names = {
        operations.build_record_name({"scratch": f"/results/cell-{number}/.repeat=1.scratch"}) for number in range(100)
    }
    assert len(names) == 100


def expanded(**levels: object) -> tuple[list, list]:
    """Return the cells of one mapping, and those that are left out."""
    config = configuration.load_config(ROOT / "config/smoke.yaml")
    config["stores"]["device"] = {"kind": "posix", "device": "/dev/sdz", "erase": True}
    config["stores"]["share"] = {
        "kind": "azure-files",
        "account_url": "https://x.file.core.windows.net",
        "share": "arrays",
    }
    section = config["studies"]["arrays"]
    section |= {"control_cells": 0, "compare": []}
    usual = {"library": "arrays", "store": "disk", "backend": "hsds", "operation": "write", "cache": "any"}
    usual |= {"shape": "600x440", "chunks": "300x220"}
    section["matrix"] = {
        factor: level if isinstance(level, list) else [level] for factor, level in (usual | levels).items()
    }
    return matrix.expand_matrix(configuration.resolve_config(config, []), "arrays")


@pytest.mark.parametrize(
    "levels, reason",
    [
        ({"backend": ["hsds", "zarr"], "protocol": "binary"}, "protocol: only for backend hsds; use the default"),
        (
            {"backend": ["hsds", "library"], "nodes": 2, "streaming": "off", "request_limit": "90MiB"},
            "nodes, request_limit, streaming: only for backend hsds; use the default",
        ),
        (
            {"backend": ["zarr", "library"], "concurrency": 4},
            "backend library has a single request in flight; set concurrency to unset",
        ),
        (
            {"backend": ["zarr", "library"], "store": "s3-loopback"},
            "the HDF5 library does not write to an object store; use backend hsds or zarr",
        ),
        ({"chunks": ["300x220", "300x441"]}, "a chunk is larger than the array; use smaller chunks"),
        (
            {"shape": "4097x4096", "chunks": ["300x220", "4097x4096"]},
            "a chunk must fit into the chunk cache of a data node, 128 MiB; use smaller chunks",
        ),
        ({"clients": [2, 3]}, "the array has fewer rows of chunks than clients; use fewer clients"),
        ({"shape": "900x440", "clients": [3, 4]}, "the array has fewer rows of chunks than clients; use fewer clients"),
        ({"cache": ["any", "cold"]}, "only a read has a cache state; set cache to any"),
        (
            {"access": ["pieces", "whole"], "streaming": "off", "request_limit": "1MiB"},
            "without streaming, HSDS refuses requests of 2.014 MiB; use access pieces",
        ),
        (
            {"protocol": "json", "request_limit": ["100MiB", "5MiB"]},
            "a JSON request has up to 3 times the bytes of its values, which exceeds request_limit; use access pieces",
        ),
        ({"store": ["disk", "device"]}, "the store of an array must be a folder, S3, Azure Blob or HSDS"),
        ({"store": ["disk", "share"]}, "the store of an array must be a folder, S3, Azure Blob or HSDS"),
        (
            {"library": ["arrays", "hdf5-2.0.0"]},
            "library hdf5-2.0.0 lacks hsds, h5pyd, obstore, which backend hsds needs",
        ),
        (
            {"library": ["arrays", "hdf5-2.0.0"], "backend": "zarr"},
            "library hdf5-2.0.0 lacks zarr, obstore, which backend zarr needs",
        ),
        (
            {"library": ["hdf5-2.0.0", "arrays"], "backend": "library", "operation": "read", "store": "s3"},
            "arrays is a wheel without ROS3",
        ),
    ],
)
def test_what_cannot_be_measured_is_left_out_with_the_reason(levels, reason):
    cells, omitted = expanded(**levels)
    assert len(cells) == 1
    assert [reason in one.reason for one in omitted] == [True], [one.reason for one in omitted]


@pytest.mark.parametrize("levels", [{"access": "pieces"}, {"access": "whole", "streaming": "on"}])
def test_a_service_takes_more_than_its_limit_in_pieces_or_streamed(levels):
    cells, omitted = expanded(request_limit="1MiB", **levels)
    assert (len(cells), omitted) == (1, [])


def test_an_estimate_grows_with_what_costs_time():
    def of(**levels: object) -> dict:
        [cell], _ = expanded(**levels)
        return STUDY.estimate_record(cell.settings)

    once, read = of(), of(operation="read")
    assert (once["bytes"], once["requests"]) == (2 * 600 * 440 * 8, 2 * 4), "what is written is read back"
    assert of(compression="gzip")["seconds"] > once["seconds"] > of(backend="zarr")["seconds"]
    assert read["seconds"] == once["seconds"]
    of_library = of(backend="library", operation="read", library="hdf5-2.0.0", store="s3")
    assert of_library["bytes"] == 600 * 440 * 8, "its file is there"
    assert of(shape="1200x440")["seconds"] > once["seconds"]


SETTINGS = {
    "cell": {name: levels[0] for name, levels in USUAL.items()} | {"backend": "hsds", "concurrency": "4"},
    "data": {name: USUAL[name][0] for name in ("shape", "chunks", "compression", "values")} | {"seed": 1},
    "library": {"hdf5": "2.0.0"},
    "store": {"kind": "s3", "server": "embedded"},
    **{"seed": 1, "rdcc_nbytes": 2**20},
}
EFFECTIVE = {
    **{"chunks": "1500x275", "compression": "none", "hdf5": "2.0.0", "nodes": 1, "request_limit": 100 * MIB},
    **{"concurrency": 4, "clients": 1, "clients_asked": 1},
}
WORK = {
    **{"tasks_done": 1, "tasks_asked": 1, "logical_bytes": 8, "logical_bytes_asked": 8},
    **{"checksum": "c0de", "checksum_asked": "c0de"},
}


@pytest.mark.rule(3, 10)
@pytest.mark.parametrize(
    "effective, reason",
    [
        ({"chunks": "1500x550"}, "expected chunks 1500x275, got 1500x550"),
        ({"compression": "gzip"}, "expected compression none, got gzip"),
        ({"hdf5": "1.14.6"}, "expected hdf5 2.0.0, got 1.14.6"),
        ({"nodes": 2}, "expected nodes 1, got 2"),
        ({"request_limit": 2**20}, "expected request_limit 104857600, got 1048576"),
        ({"concurrency": 10}, "expected concurrency 4, got 10"),
    ],
)
def test_a_cell_that_was_not_measured_as_its_label_says_has_failed(effective, reason):
    record = {"effective": EFFECTIVE, "requests": {}}
    assert STUDY.check_label(record, SETTINGS, {"layout": {}}) == []
    assert STUDY.check_label(record | {"effective": EFFECTIVE | effective}, SETTINGS, {"layout": {}}) == [
        f"{reason} (rule 10)"
    ]


@pytest.mark.rule(3)
def test_nodes_and_limits_are_asked_of_a_service_alone_and_the_library_s_layout_is_that_of_its_manifest():
    of_library = {key: EFFECTIVE[key] for key in ("hdf5", "clients", "clients_asked")}
    cell = SETTINGS["cell"] | {"backend": "library", "concurrency": "unset"}
    record, layout = {"effective": of_library, "requests": {}}, {"chunks": "1500x275", "compression": "none"}
    assert STUDY.check_label(record, SETTINGS | {"cell": cell}, {"layout": layout}) == []
    other = layout | {"chunks": "10x10"}
    assert STUDY.check_label(record, SETTINGS | {"cell": cell}, {"layout": other}) == [
        "expected chunks 1500x275, got 10x10 (rule 10)"
    ]


@pytest.mark.rule(3)
def test_a_read_of_an_embedded_server_that_saw_no_request_has_failed():
    record, read = {"effective": EFFECTIVE, "requests": {}}, SETTINGS["cell"] | {"operation": "read"}
    assert STUDY.check_label(record, SETTINGS | {"cell": read}, {"layout": {}}) == [
        "the embedded server counted no GET: requests did not arrive, or counting failed (rule 11)"
    ]


@pytest.mark.rule(8, 9)
@pytest.mark.parametrize(
    "change, reason",
    [
        (
            {"work": WORK | {"checksum": "wrong"}},
            "the checksum of the values read differs from the manifest (rule 9)",
        ),
        ({"work": WORK | {"tasks_done": 0}}, "expected 1 tasks, got 0 (rule 9)"),
        ({"work": WORK | {"logical_bytes": 7}}, "expected 8 logical bytes, got 7 (rule 9)"),
        ({"effective": EFFECTIVE | {"clients_asked": 2}}, "expected 2 clients, got 1 (rule 9)"),
        (
            {"cache": {"asked": "cold", "state": "warm", "resident_before": 1.0, "resident_after": 1.0}},
            "the page cache was warm (100.0% resident), expected cold (rule 8)",
        ),
        (
            {"cache": {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 0.5}},
            "the page cache lost pages while the cell ran (50.0% resident at its end), expected warm (rule 8)",
        ),
    ],
)
def test_a_record_that_broke_a_rule_is_not_valid(change, reason):
    cold = {"asked": "cold", "state": "cold", "resident_before": 0.0, "resident_after": 1.0}
    settings = SETTINGS | {"cell": SETTINGS["cell"] | {"operation": "read"}}
    record = {"work": WORK, "effective": EFFECTIVE, "cache": cold}
    assert STUDY.check_record(record, settings) == []
    assert STUDY.check_record(record | change, settings) == [reason]


def test_each_backend_is_judged_against_the_library_and_the_headline_says_what_the_service_costs(run):
    rows = run.get_comparisons()
    assert (rows[["baseline_cell", "contender_cell"]] != "").all(axis=None), "each comparison has its two cells"
    said, _ = headline.write_headline(run)
    assert re.search(r"On disk[^;]*, writing 201 MiB, HSDS took [0-9.–]+× (as long|and Zarr)", said)
    recommended = " ".join(text for text, _ in recommendation.list_recommendations(run))
    assert "the HDF5 library" in recommended
    assert "as fast as HSDS" in recommended


def test_trials_are_counted_by_outcome_and_the_answer_says_what_streaming_lifts(tmp_path):
    rows = []
    for streaming, read, times in itertools.product(("on", "off"), ("binary read", "JSON read"), (1, 4)):
        refused = times > 1 and (streaming == "off" or read == "JSON read")
        row = {"operation": "limits", "streaming": streaming, "request_limit": "1MiB", "phase": read}
        row |= {"times_limit": times}
        row |= {"request_bytes": times * 2**20, "outcome": "refused (413)" if refused else "answered", "trial_s": 0.5}
        row |= {"first_byte_s": 0.1, "service_node_bytes": 3 * 2**20, "data_node_bytes": 0, "valid": True}
        rows += [row | {"cell": streaming, "repeat": repeat, "number": len(rows)} for repeat in (1, 2)]
    rows.append(
        rows[-1] | {"operation": "faults", "phase": "data node killed in a binary read", "outcome": "broke off"}
    )
    rows.append(rows[-1] | {"outcome": "status 500"})
    rows.append(rows[-1] | {"valid": False, "outcome": "answered"})
    pd.DataFrame(rows).to_csv(tmp_path / "samples.csv", index=False)
    tried = trials.load_trials(tmp_path)
    lines = [line for line, _ in trials.describe_streaming(tried)]
    assert lines[:2] == [
        "With streaming, 2 of 2 binary reads and writes of 4 times the request limit succeeded.",
        "Without streaming, 0 of 2 binary reads and writes of 4 times the request limit succeeded; all were refused "
        "(413).",
    ]
    assert lines[2] == (
        "With streaming, a binary read of 1.00 MiB increased the service node's memory by 3.00 MiB, a read"
        " of 4.00 MiB by "
        "3.00 MiB. The first byte of the 4.00 MiB arrived after 100 ms, the last after 500 ms."
    )
    assert lines[3] == "Other requests above the limit, with streaming: JSON read: refused (413)."
    table = trials.build_trials_table(tried, "limits")
    assert list(table.frame["with streaming"]) == ["answered", "answered", "answered", "refused (413)"]
    assert table.over["without streaming"] == ["faster", "slower", "faster", "slower"]
    faults = trials.build_trials_table(tried, "faults").frame.iloc[0]
    assert faults["without streaming"] == "1 × broke off, 1 × status 500"
    assert trials.load_trials(tmp_path / "nowhere").empty


def test_trials_are_in_tables_and_sentences_of_their_own_and_nowhere_else(run, synthetic):
    tried = trials.load_trials(synthetic("arrays"))
    assert set(tried["operation"]) == {"limits", "faults"}
    assert not set(run.measured["operation"]) & set(pieces.TRIALS), "they have no value that a figure could show"
    assert not set(run.verdicts["operation"]) & set(pieces.TRIALS), "nor a time to compare"
    with_streaming, without, busy = trials.describe_survivors(tried)
    assert with_streaming.endswith(
        "(additional memory as a multiple of the read): 0.5 ×: 0 of 6; 1 ×: 2 of 6; 2 ×: 6 of 6; 4 ×: 6 of 6."
    )
    assert without.startswith("Without streaming, successful reads of 200 MiB by data nodes with a memory limit")
    assert busy == "Of 24 requests in flight to a service with a limit of 4 tasks, 23 were rejected (503)."
    assert list(trials.describe_survivors(tried[tried["operation"] == "limits"])) == []


def test_a_rate_is_of_what_is_stored_and_what_is_acknowledged_before_is_said(run):
    cells = run.measured
    written = cells[(cells["backend"] == "hsds") & (cells["operation"] == "write")]
    assert (written["rate"] < written["acknowledged_rate"]).all()
    records = run.records[run.records["cell"].isin(written["cell"]) & run.records["valid"]]
    sums = records.groupby("cell")[["bytes", "acknowledged_s"]].sum()
    rates = sums["bytes"] / 2**20 / sums["acknowledged_s"]
    assert written.set_index("cell")["acknowledged_rate"].to_dict() == pytest.approx(rates.to_dict())
    reads = run.records[run.records["operation"] == "read"]
    assert reads["acknowledged_rate"].isna().all()
    lines = [line for line, _ in results.describe_acknowledged(run)]
    assert len(lines) == len(set(lines)) == 3, "a line for each store and compression"
    assert all(line.startswith("HSDS acknowledges writes to ") for line in lines)
    table = results.build_writing_table(run).frame
    assert set(table["operation"]) == {"write"}
    assert len(table) == len(cells[cells["operation"] == "write"])


def test_rows_and_tables_leave_out_what_means_nothing_to_a_backend(run):
    table = results.build_writing_table(run).frame
    of_service = table["backend"] == "hsds"
    assert (table.loc[of_service, ["protocol", "nodes", "streaming"]] != "").all(axis=None)
    assert (table.loc[~of_service, ["protocol", "nodes", "streaming"]] == "").all(axis=None)
    assert set(table.loc[table["backend"] == "library", "concurrency"]) == {""}
    rows = {"backend": "", "nodes": "2", "factor": "backend"}
    sides = ({"baseline": "library", "contender": contender} for contender in ("zarr", "hsds"))
    assert [run.names.format_levels(rows | side, ["nodes"]) for side in sides] == ["", "2 data nodes"]


def test_names_of_rows_have_room_and_what_most_rows_share_is_said_once(run):
    [first], [rest] = (figure.panels for figure in comparisons.draw_deciding(run))
    assert rest.title.startswith("Unless noted: HDF5 2.0.0 (arrays), ")
    for name in (*first.rows, *rest.rows):
        label = name.split(": ", 1)[1]
        assert "data node" not in label or "nodes vs" in label, "it is that of most rows, or means nothing"
        assert len(label) <= row_labels.LONG, "it ends within the figure"
    assert len(set(rest.rows)) == len(rest.rows)


def test_the_best_configurations_leave_out_what_means_nothing_or_is_alike(run):
    table = answer.build_best_table(run)
    assert (table.frame.loc[table.frame["backend"] == "the HDF5 library", ["protocol", "concurrency"]] == "").all(
        axis=None
    )
    assert set(table.frame.loc[table.frame["backend"] == "HSDS", "protocol"]) == {"the client library", "bare requests"}
    assert not {"nodes", "streaming"} & set(table.frame)
    assert table.caption.endswith(" With HSDS: 1 data node, streaming.")


def test_cpu_seconds_of_nodes_stand_against_those_of_the_library_for_the_same_write(run):
    [(line, _)] = results.describe_cores(run)
    assert re.fullmatch(
        r"On disk, writing an array of 12,000 × 2,200 of the published values with gzip: CPU seconds of the "
        r"service's nodes: [\d.]+ with 1 data node, [\d.]+ with 2 data nodes and [\d.]+ with 4 data nodes; of the "
        r"library's processes: [\d.]+ with 1 client, [\d.]+ with 2 clients and [\d.]+ with 4 clients\.",
        line,
    )
    table = results.build_service_table(run).frame
    alone = table[(table["compression"] == "gzip") & (table["operation"] == "write") & (table["clients"] == "1")]
    spent = alone.filter(regex="CPU of (the service node|all data nodes)").astype(float).sum(axis=1)
    assert re.findall(r"([\d.]+) with \d data node", line) == [f"{seconds:.2f}" for seconds in spent]


@pytest.mark.parametrize(
    "levels", [{"backend": ("hsds", "zarr"), "nodes": ("1", "2")}, {"backend": ("library", "hsds")}]
)
def test_cpu_seconds_are_not_compared_without_the_other_side_or_other_nodes(tmp_path, levels):
    rows = arrays_tables.cells(**levels, compression=("gzip",))
    assert list(results.describe_cores(arrays_tables.load(arrays_tables.build(tmp_path, rows)))) == []


def test_what_a_service_took_is_listed_of_services_alone(run):
    table = results.build_service_table(run).frame
    assert set(table["backend"]) == {"hsds"}
    assert set(table["array / MiB"]) == {12000 * 2200 * 8 / MIB}
    four = table[table["nodes"] == "4"].iloc[0]
    assert float(four["CPU of the busiest data node / s"]) < float(four["CPU of all data nodes / s"])


def test_a_page_without_any_service_says_nothing_of_services(tmp_path):
    rows = arrays_tables.cells(backend=("library", "zarr"))
    run = arrays_tables.load(arrays_tables.build(tmp_path, rows))
    assert [*results.describe_acknowledged(run), *results.list_limits(run)] == []
    assert results.build_service_table(run).frame.empty
    assert len(results.build_writing_table(run).frame) == 2


def test_what_a_run_without_any_record_has_to_say_is_said(tmp_path):
    rows = arrays_tables.cells() + arrays_tables.cells(**READ)
    run = arrays_tables.load(arrays_tables.build(tmp_path, rows, lambda record: failed(record, "no room")))
    assert run.measured.empty
    assert [*results.describe_acknowledged(run), *results.list_limits(run)] == []
    assert results.build_service_table(run).frame.empty
    assert results.build_writing_table(run).frame.empty
    kinds = {"operation": "limits", "phase": "binary read", "times_limit": 2, "request_bytes": 2, "trial_s": 1}
    tried = pd.DataFrame([kinds | {"streaming": name, "outcome": "answered"} for name in ("on", "off")])
    tried = tried.reindex(columns=[*tried, *trials.AMOUNTS[1:3]])
    assert trials.write_headline(run, tried[:0]) == ""
    headline = trials.write_headline(run, tried)
    assert "With streaming, 1 of 1 binary reads and writes of 2 times the request limit succeeded. Without" in headline


def test_a_run_of_reads_alone_has_rates_and_nothing_that_was_acknowledged(tmp_path):
    rows = arrays_tables.cells(**READ) + arrays_tables.cells(**SERVICE | READ | {"cache": ("warm",)})
    run = arrays_tables.load(arrays_tables.build(tmp_path, rows))
    assert run.measured["rate"].notna().all()
    assert trials.write_headline(run, pd.DataFrame({"operation": ["limits"]})) == ""
    assert results.build_writing_table(run).frame.empty
    assert list(results.describe_acknowledged(run)) == []


PRINTED = """test,compression,machine,backend,write_MBps,read_MBps
stream_test,none,macpro,HSDS,42.2,54.3
write_example,gzip,m5.2xlarge,HSDS(4 node docker; S3),104.3,81.5
write_example,none,m5.2xlarge,HDF5Lib,1416.8,1308.1
"""


def test_printed_rates_stand_beside_what_was_measured_of_the_same_array(run, tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text(PRINTED, encoding="utf-8")
    rates = printed.read_printed(path)
    assert len(rates) == 6
    assert [rate["backend"] for rate in rates[::2]] == ["hsds", "hsds", "library"]
    table = printed.build_published_table(replace(run, facts=run.facts | {"printed": rates})).frame
    assert list(table.columns[4:]) == ["macpro", "m5.2xlarge", "here, as published", "here, stored or cold"]
    assert table["macpro"].tolist()[:2] == [42.2, 54.3]
    measured = table[table["here, stored or cold"] != ""]
    assert len(measured), "some of the same arrays were measured"
    assert printed.build_published_table(run).frame.empty


@pytest.mark.parametrize(
    "change, line",
    [
        (("write_MBps", "write"), "lacks the column write_MBps"),
        (
            ("stream_test", "other_test"),
            r"column test: must be stream_test or write_example \(got 'other_test'\); correct studies.arrays.published",
        ),
        (
            ("42.2", "fast"),
            r"column write_MBps: must be a number above 0 \(got 'fast'\); correct studies.arrays.published",
        ),
    ],
)
def test_a_file_that_has_no_printed_rates_is_one_line(change, line, tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text(PRINTED.replace(*change), encoding="utf-8")
    with pytest.raises(Problem, match=line):
        printed.read_printed(path)
    with pytest.raises(Problem, match="cannot be read as a table"):
        printed.read_printed(tmp_path / "nowhere.csv")
