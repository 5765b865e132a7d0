"""Snapshots, their chunks, and each way to load and reduce them."""

import contextlib
import json
import os
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from conftest import ROOT, artefact

from sbench import drivers
from sbench.design import config as configuration
from sbench.design import matrix
from sbench.pages import judgement, leaders, names, tiles
from sbench.probe.program import Problem
from sbench.studies.particles import make, methods, parquet_copy, printed, snapshot_reading, snapshots, through_yt
from sbench.studies.particles.report import advice, results
from sbench.studies.particles.settings import Data
from tests.helpers import particles_tables

# As many files and chunks as it takes to tell them apart; chunks are cut as yt cuts them.
PARTICLES, FILES, AT_MOST = 700_000, 3, snapshots.AT_MOST
FIELD = f"{snapshots.TYPE}/{snapshots.FIELD}"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("snapshot")
    return make.make_snapshot(Data(str(PARTICLES), 240_000, seed=3), folder / "manifest.json")


@pytest.fixture(scope="module")
def facts(snapshot: list[Path]) -> dict:
    return snapshots.describe_snapshot(snapshot)


@pytest.fixture(scope="module")
def values(snapshot: list[Path]) -> np.ndarray:
    parts = []
    for path in snapshot:
        with h5py.File(path) as file:
            parts.append(file[FIELD][()].astype("float64"))
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def outcomes(snapshot: list[Path], with_yt: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Return what each method made of the snapshot in a library with yt, by method, operation, selection, turns."""
    scratch = tmp_path_factory.mktemp("outcomes")
    manifest = scratch / "manifest.json"
    manifest.write_text(json.dumps(snapshots.describe_snapshot(snapshot)), encoding="utf-8")
    arguments = [manifest, snapshot[0].parent, str(AT_MOST), scratch]
    command = [artefact(with_yt / "yt.json")["python"], ROOT / "tests/helpers/particle_methods.py", *arguments]
    ours = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run(command, env=ours, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {tuple(key): value for key, value in json.loads(done.stdout)}


@pytest.mark.parametrize("preset, published", [("A", (1_941_226, 8, 12)), ("B", (6_381_559, 16, 32))])
def test_presets_have_the_published_particles_files_and_chunks(preset, published):
    held = snapshots.split_particles(*make.plan_snapshot(Data(preset)))
    assert (sum(held), len(held), len(list(snapshots.list_chunks(held, snapshots.AT_MOST)))) == published


def test_chunks_are_all_particles_once_in_order_and_none_is_larger_than_asked():
    assert list(snapshots.list_chunks([5, 3, 4], 4)) == [(0, 0, 4), (0, 4, 5), (1, 0, 3), (2, 0, 4)]


def test_a_snapshot_has_the_headers_of_gadget_and_the_same_values_for_the_same_seed(snapshot, tmp_path):
    again = make.make_snapshot(Data(str(PARTICLES), 240_000, seed=3), tmp_path / "manifest.json")
    other = make.make_snapshot(Data(str(PARTICLES), 240_000, seed=4), tmp_path / "other/manifest.json")
    with h5py.File(snapshot[1]) as one, h5py.File(again[1]) as two, h5py.File(other[1]) as three:
        assert one["Header"].attrs["NumFilesPerSnapshot"] == FILES
        assert one["Header"].attrs["NumPart_ThisFile"][0] == len(one[FIELD])
        assert one["Header"].attrs["NumPart_Total"][0] == PARTICLES
        assert np.array_equal(one[FIELD], two[FIELD])
        assert not np.array_equal(one[FIELD], three[FIELD])


def test_totals_of_more_particles_than_32_bits_hold_are_those_of_gadget(tmp_path):
    snapshots.write_file(tmp_path / "snapshot.0.hdf5", 0, [10, 2**32], 1)
    with h5py.File(tmp_path / "snapshot.0.hdf5") as file:
        header = file["Header"].attrs
        assert (header["NumPart_Total"][0], header["NumPart_Total_HighWord"][0]) == (10, 1)
        assert file[f"{snapshots.TYPE}/ParticleIDs"].dtype == np.uint64


def test_what_a_manifest_expects_is_what_numpy_finds(snapshot, facts, values):
    everything, region = facts["expected"]["all"], facts["expected"]["region"]
    assert everything["count"] == len(values) == facts["layout"]["particles"] == PARTICLES
    assert everything["sum"] == pytest.approx(values.sum(), rel=1e-12)
    assert everything["variance"] == pytest.approx(values.var(), rel=1e-9)
    assert everything["histogram"] == np.histogram(values, everything["edges"])[0].tolist()
    assert everything["crc32"] == f"{zlib.crc32(values):08x}"
    assert 0 < region["count"] < len(values) / 4
    assert facts["layout"]["stored_bytes"] == 4 * PARTICLES


@pytest.mark.parametrize("selection", ["all", "region"])
@pytest.mark.parametrize("operation", methods.OPERATIONS)
@pytest.mark.parametrize("name", [*methods.METHODS, "copy"])
def test_each_method_gives_what_the_manifest_expects(outcomes, facts, name, operation, selection):
    method = methods.METHODS.get(name, methods.METHODS["futures"])
    alone = name == "copy" or method.yt
    if not (method.loads if operation == "load" else method.reduces) or (alone and selection == "region"):
        assert (name, operation, selection, 1) not in outcomes
        return
    expected, result = facts["expected"][selection], outcomes[name, operation, selection, 1]["result"]
    if operation == "load":
        assert result == [expected["count"], expected["crc32"]]
    elif operation == "sum":
        assert result == pytest.approx(expected["sum"], rel=1e-12)
    elif operation == "moments":
        assert result == pytest.approx([expected["mean"], expected["variance"]], rel=1e-9)
    else:
        assert result == expected["histogram"]


@pytest.mark.parametrize("operation", ["load", "sum"])
@pytest.mark.parametrize("name", methods.METHODS)
def test_the_line_of_code_for_ones_own_files_does_what_the_method_does(outcomes, facts, name, operation):
    line = methods.METHODS[name].load if operation == "load" else methods.METHODS[name].add
    assert (("code", operation, name, 1) in outcomes) == bool(line)
    if line:
        expected, result = facts["expected"]["all"], outcomes["code", operation, name, 1]["result"]
        assert result == (
            [expected["count"], expected["crc32"]] if operation == "load" else pytest.approx(expected["sum"])
        )


@pytest.mark.rule(9)
@pytest.mark.parametrize("name", [*(name for name, method in methods.METHODS.items() if method.yt), "copy"])
def test_what_yt_and_pyarrow_read_is_counted_chunk_by_chunk(outcomes, name):
    assert {tuple(outcomes[name, operation, "all", 1]["read"]) for operation in methods.OPERATIONS} == {(1, 1, 1, 1)}


def test_yt_takes_the_files_for_a_snapshot_and_lists_the_chunks_that_the_headers_give(snapshot, with_yt, facts):
    code = (
        "import json, sys, yt\n"
        "dataset = yt.load(sys.argv[1])\n"
        "dataset.index_filename = sys.argv[2]\n"
        "pieces = [[piece.filename, piece.start, int(piece.end)] for piece in dataset.index.data_files]\n"
        "print(json.dumps([type(dataset).__name__, pieces]))"
    )
    command = [artefact(with_yt / "yt.json")["python"], "-c", code, snapshot[0], snapshot[0].with_suffix(".index")]
    kind, pieces = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert kind == "GadgetHDF5Dataset"
    counts = [file["particles"] for file in facts["files"]]
    assert pieces == [[str(snapshot[file]), *ends] for file, *ends in snapshots.list_chunks(counts, AT_MOST)]


@pytest.mark.rule(9)
@pytest.mark.parametrize("name", [name for name, method in methods.METHODS.items() if not method.yt])
def test_what_is_listed_twice_is_read_twice_but_where_dask_takes_equal_tasks_for_one(outcomes, facts, name):
    method = methods.METHODS[name]
    outcome = outcomes[name, "load" if method.loads else "sum", "all", 2]
    pieces = len(list(snapshots.list_chunks([file["particles"] for file in facts["files"]], AT_MOST)))
    assert outcome["read"] == [1 if method.pure else 2] * pieces
    if method.loads:
        assert outcome["result"][0] == 2 * PARTICLES, "the result alone does not say that anything was read once"


def test_an_account_has_the_bytes_and_seconds_of_what_was_read_and_forgets_them(snapshot):
    source = snapshot_reading.Source(drivers.Access("sec2", drivers.UNSET, 2**20), snapshots.TYPE, snapshots.FIELD)
    snapshot_reading.read_chunk(source, snapshot_reading.Chunk(0, 0, str(snapshot[0]), 10, 110))
    account = snapshot_reading.take_account()
    assert account["bytes"] == 8 * 100
    assert account["seconds"] >= account["longest"] > 0
    assert account["effective"]["driver"] == "sec2"
    assert snapshot_reading.take_account()["chunks"] == []


@pytest.fixture
def spoiled(snapshot: list[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path)) for path in snapshot]


def test_a_truncated_file_is_named(spoiled):
    with open(spoiled[1], "r+b") as file:
        file.truncate(spoiled[1].stat().st_size // 2)
    with pytest.raises(Problem, match=r"snapshot\.1\.hdf5 cannot be read as HDF5: .*truncated"):
        snapshots.describe_snapshot(spoiled)


def test_a_field_that_is_not_there_is_named(spoiled):
    with pytest.raises(Problem, match=r"snapshot\.0\.hdf5 lacks PartType0/Pressure; correct group or field"):
        snapshots.describe_snapshot(spoiled, snapshots.TYPE, "Pressure")


def test_a_file_with_other_particles_than_its_header_says_is_named(spoiled):
    with h5py.File(spoiled[2], "r+") as file:
        file["Header"].attrs["NumPart_ThisFile"] = np.array([7, 0, 0, 0, 0, 0])
    with pytest.raises(Problem, match=r"snapshot\.2\.hdf5: Density must have 7 values, as in the header \(got \d+\)"):
        snapshots.describe_snapshot(spoiled)


def test_a_file_that_is_missing_is_told(spoiled):
    with pytest.raises(Problem, match=r"must have 3 files, as in the headers \(got 2\); name a folder with"):
        snapshots.describe_snapshot([spoiled[0], spoiled[2]])


@pytest.mark.parametrize("field", ["Coordinates", "Names"])
def test_a_field_that_is_not_one_number_for_each_particle_is_told(spoiled, field):
    with h5py.File(spoiled[0], "r+") as file:
        file[snapshots.TYPE]["Names"] = ["a"] * len(file[FIELD])
    with pytest.raises(Problem, match=rf"snapshot\.0\.hdf5: PartType0/{field} must be a single number per particle"):
        snapshots.describe_snapshot(spoiled, snapshots.TYPE, field)


def test_values_that_are_not_finite_are_told(spoiled):
    with h5py.File(spoiled[1], "r+") as file:
        file[FIELD][3] = np.nan
    with pytest.raises(Problem, match=r"PartType0/Density contains values that are not finite"):
        snapshots.describe_snapshot(spoiled)


def test_files_of_a_snapshot_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2, 0, 1):
        (tmp_path / f"snap_033.{number}.hdf5").touch()
    assert [path.name.split(".")[1] for path in make.list_source_files(tmp_path)] == ["0", "1", "2", "10"]
    with pytest.raises(Problem, match=r"contains no HDF5 file; correct studies\.particles\.data\.files"):
        make.list_source_files(tmp_path / "none")


SUM = {"operation": "sum", "method": "serial"}
YT = {"operation": "sum", "library": "yt"}


def test_rows_of_a_copy_are_read_from_the_groups_that_hold_them(tmp_path):
    values = np.arange(1000.0)
    pyarrow.parquet.write_table(pyarrow.table({FIELD: values}), tmp_path / "copy", row_group_size=300)
    file = drivers.get_driver("parquet").open(str(tmp_path / "copy"), drivers.Access("parquet", drivers.UNSET, 0))
    for start, stop in ((0, 300), (300, 600), (10, 20), (290, 310), (299, 901), (900, 1000), (0, 1000), (999, 1000)):
        assert np.array_equal(file.read(FIELD, slice(start, stop)), values[start:stop])
    assert np.array_equal(file.read(FIELD), values)
    file.close()


def test_a_copy_that_cannot_be_written_is_one_line(snapshot, tmp_path):
    chunks = [snapshot_reading.Chunk(0, 0, str(snapshot[0]), 0, 100)]
    with pytest.raises(
        Problem, match=r"snapshot\.0\.hdf5 cannot be copied to .*none: .*; free disk space, or remove driver parquet"
    ):
        parquet_copy.write_copies(chunks, FIELD, drivers.Access("sec2", drivers.UNSET, 2**20), tmp_path / "none")


def test_a_heat_map_has_the_value_of_each_pair_of_levels_in_its_place_the_darkest_the_highest(tmp_path):
    rows = particles_tables.cells(particles=("B",), operation=("sum",), method=("futures",), workers=("1", "4"))
    rows += particles_tables.cells(
        particles=("B",), operation=("sum",), method=("futures",), workers=("1", "4"), threads=("1",)
    )
    run = particles_tables.load(particles_tables.build(tmp_path, rows))
    [panel] = tiles.draw_tiles(run, "workers", "threads").panels
    assert (panel.x_tick_texts, panel.y_tick_texts) == (("1", "4"), ("1", "2"))
    rates = run.measured.set_index(["workers", "threads"])["rate"]
    assert {(note.x, note.y): note.text for note in panel.notes} == {
        (x, y): names.format_rate(rates[worker, thread])
        for x, worker in enumerate(("1", "4"))
        for y, thread in enumerate(("1", "2"))
    }
    darkness = [sum(bytes.fromhex(bar.colour[1:])) for bar in panel.bars]
    best = panel.notes[darkness.index(min(darkness))]
    assert best.text == names.format_rate(rates.max())
    assert tiles.draw_tiles(run, "workers", "chunk").panels == ()


@pytest.mark.parametrize("shift", [-5, 5])
def test_chunks_of_yt_that_overlap_or_leave_a_gap_are_told(shift):
    chunks = [
        snapshot_reading.Chunk(0, 0, "data/snapshot.0.hdf5", 0, 100),
        snapshot_reading.Chunk(1, 0, "data/snapshot.0.hdf5", 100, 150),
    ]

    def dataset(*starts: int) -> SimpleNamespace:
        ends = zip(starts, (100, 150), strict=True)
        pieces = [SimpleNamespace(filename="/elsewhere/snapshot.0.hdf5", start=start, end=end) for start, end in ends]
        return SimpleNamespace(index=SimpleNamespace(data_files=pieces))

    through_yt.expect_same_chunks(dataset(0, 100), chunks)
    with pytest.raises(Problem, match=r"snapshot\.0\.hdf5: yt's chunks \(2\) differ from the listed chunks \(2\)"):
        through_yt.expect_same_chunks(dataset(0, 100 + shift), chunks)


def test_printed_timings_are_read_and_stand_beside_what_was_measured(tmp_path, published):
    printed_rows = printed.read_printed(published / "dask-loads/timings_from_notebook.csv")
    assert len(printed_rows) == 27
    assert printed_rows[2] == {
        **{"chunks": 12, "operation": "load", "method": "futures-pure", "mean_s": 0.0285, "std_s": 0.00485}
    }
    run = particles_tables.load(particles_tables.build(tmp_path))
    run.facts["printed"] = printed_rows
    table = printed.build_printed_table(run).frame.set_index(["chunks listed", "method"])
    # 32 chunks are snapshot B, 320 its chunks ten times; where none is listed twice, all futures are alike.
    assert table.loc[(320, "in_mem_from_dask_futures"), "published: × as fast as serial"] == pytest.approx(
        6.85, abs=0.01
    )
    assert table.loc[(320, "sum_of_futures"), "measured / s"].startswith("0.12")
    assert table.loc[(32, "sum_of_futures"), "measured: × as fast as serial"] == pytest.approx(2.3, abs=0.2)
    assert table.loc[(64000, "sum_of_futures"), "measured / s"] == ""


@pytest.mark.parametrize(
    "text, reason",
    [
        ("stage,method,mean_s,std_s\n", r"lacks the column kind \(found: .*\); correct studies.particles.published"),
        ("stage,kind,method,mean_s,std_s\n", "contains no rows; correct studies.particles.published"),
        (
            "stage,kind,method,mean_s,std_s\nx (12 chunks),load,serial_read_concat,abc,1\n",
            r"must be a number above 0 \(got 'abc'\)",
        ),
        (
            "stage,kind,method,mean_s,std_s\nx (12 chunks),load,mine,1,1\n",
            r"stage and method must be a timing of the published study \(got x \(12 chunks\), mine\)",
        ),
    ],
)
def test_a_table_of_other_timings_is_told(tmp_path, text, reason):
    path = tmp_path / "timings.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Problem, match=reason):
        printed.read_printed(path)


def test_what_a_run_without_any_record_has_to_say_is_said(tmp_path):
    run = particles_tables.load(particles_tables.build(tmp_path, broken=True))
    assert run.measured.empty
    assert advice.list_reasons(run) == []
    assert [*advice.describe_conversion(run), *advice.describe_yt_tasks(run)] == []
    assert advice.build_memory_table(run).frame.empty
    run.facts["printed"] = [{"chunks": 12, "operation": "sum", "method": "serial", "mean_s": 1.0, "std_s": None}]
    assert list(printed.build_printed_table(run).frame["measured / s"]) == [""]
    assert results.list_limits(run)


def test_comparisons_with_cells_that_were_never_tried_are_counted_and_not_told(tmp_path):
    run = particles_tables.load(particles_tables.build(tmp_path))
    rows = run.get_comparisons()
    own = rows["contender_cell"].iloc[0]
    of_it = int((rows[["baseline_cell", "contender_cell"]] == own).any(axis=1).sum())
    never = replace(run, cells=run.cells.assign(n=run.cells["n"].where(run.cells["cell"] != own, 0)))
    assert (run.untried_count, never.untried_count) == (0, of_it)
    assert len(never.get_comparisons()) == len(rows) - of_it
    assert any(line.endswith("at least one of the two cells was never tried.") for line in judgement.list_limits(never))
    failed = replace(never, cells=never.cells.assign(failed=never.cells["n"] == 0))
    assert len(failed.get_comparisons()) == len(rows), "what failed is told"


def test_the_cost_of_a_task_is_the_median_of_all_records_of_a_method(tmp_path):
    run = particles_tables.load(particles_tables.build(tmp_path))
    chosen = run.records["method"] == "futures"
    cells = run.records.loc[chosen, "cell"].unique()[:2]
    # Of a cell with 6 records and another with 3, more records are of the first.
    rows = pd.concat([run.records[run.records["cell"] == cell].head(6 - 3 * place) for place, cell in enumerate(cells)])
    rows = rows.assign(overhead_ms=np.where(rows["cell"] == cells[0], 2.0, 3.0))
    (text, _), *_ = advice.list_reasons(replace(run, records=pd.concat([run.records[~chosen], rows])))
    assert "2.00 ms with Dask futures" in text


def test_where_dask_never_won_the_page_says_so(tmp_path):
    run = particles_tables.load(particles_tables.build(tmp_path))
    assert [line[:8] for line, _ in advice.list_reasons(run)] == ["The loop"]
    lost = replace(run, verdicts=run.verdicts.assign(verdict=run.verdicts["verdict"].replace("faster", "slower")))
    never, (statement,) = advice.list_reasons(lost)[0]
    assert never == "No Dask method was shown to be faster than the serial loop at any size."
    assert not statement.is_supported_by(lost.checks), "the records still have the methods that were faster"


def test_the_code_shown_is_of_who_leads_among_the_same_cells(tmp_path):
    texts = []
    page = SimpleNamespace(
        show_section=lambda _, text: texts.append(text), fold=contextlib.nullcontext, show_text=texts.append
    )
    advice.show_code(page, particles_tables.load(particles_tables.build(tmp_path)))
    lines, script = texts
    # Futures lead with 2 and with 4 workers; what reads copies, or has a limit, or lists chunks again is not shown.
    assert lines.count("client.gather") == 2
    assert "Parquet" not in lines
    assert "values = np.concatenate(client.gather(" in script
    compile(script.partition("import glob")[2], "script", "exec")


def expanded(**levels: object) -> tuple[list, list]:
    config = configuration.load_config(ROOT / "config/smoke.yaml")
    config["libraries"]["yt"] = {"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/yt.lock"}
    section = config["studies"]["particles"]
    section |= {"control_cells": 0, "compare": []}
    # As configured, but for what is asked for.
    given = section["matrix"][0] if isinstance(section["matrix"], list) else section["matrix"]
    section["matrix"] = given | {
        factor: level if isinstance(level, list) else [level] for factor, level in levels.items()
    }
    return matrix.expand_matrix(config, "particles")


@pytest.mark.parametrize(
    "levels, reason",
    [
        ({"operation": "load", "method": ["serial", "chunkwise"]}, "chunkwise does not load"),
        ({"operation": "sum", "method": ["serial", "preallocated"]}, "preallocated does not reduce"),
        ({"operation": ["sum", "load"], "method": "array", "memory": "1GiB"}, "a load holds all values in memory"),
        (
            {"operation": "sum", "method": ["serial", "array"], "memory": "1GiB"},
            "which Dask's memory limit does not cover",
        ),
        ({"operation": "sum", "method": "array", "memory": ["1GiB", "256MiB"]}, "needs at least 192 MiB"),
        ({"operation": "sum", "method": ["futures", "futures-pure"]}, "only if rereads is above 1"),
        ({"operation": "sum", "method": "futures", "driver": ["sec2", "ros3"]}, "ros3 does not read a posix store"),
        ({**SUM, "workers": 4, "nodes": [1, 2], "pool": "threads"}, "workers on several nodes must be processes"),
        (
            {**SUM, "workers": 4, "nodes": [1, 2], "memory": "1GiB", "method": "futures"},
            "works only on a single machine",
        ),
        ({"driver": "parquet", "selection": ["all", "region"], **SUM}, "a Parquet copy contains only the field"),
        ({"driver": "parquet", "page_buffer": ["unset", "1MiB"], **SUM}, "a page buffer does not apply to a Parquet"),
        (
            {**SUM, "chunk": AT_MOST, "method": ["serial", "yt-serial"]},
            "hdf5-2.0.0 lacks yt, which method yt-serial needs",
        ),
        (
            {"chunk": [262144, 20000], **YT, "method": "yt-delayed"},
            "yt opens and splits files itself; set driver sec2",
        ),
        (
            {"rereads": [1, 2], **YT, "chunk": AT_MOST, "method": "yt-serial"},
            "yt reads all data once, however often chunks are listed",
        ),
    ],
)
def test_what_cannot_be_measured_is_left_out_with_the_reason(levels, reason):
    cells, omitted = expanded(**levels)
    assert len(cells) == 1
    assert [reason in one.reason for one in omitted] == [True]


def test_own_files_and_made_snapshots_are_not_mixed(tmp_path):
    config = configuration.load_config(ROOT / "config/smoke.yaml")
    config["studies"] = {"particles": config["studies"]["particles"] | {"data": {"files": str(tmp_path)}}}
    with pytest.raises(Problem, match=r"particles: must be \[own\] with data\.files"):
        configuration.resolve_config(config, [])


def test_a_page_counts_the_particles_of_own_files(tmp_path):
    rows = particles_tables.cells(particles=("own",), operation=("sum",), method=("serial", "futures"))
    run = particles_tables.load(particles_tables.build(tmp_path, rows))
    assert set(run.cells["particles"]) == {str(particles_tables.OWN)}
    assert run.measured["rate"].notna().all()
    assert any(
        "serial" in text and "at 0.3 million particles" in text
        for text, _ in leaders.write_headline(leaders.find_leads(run), run)
    )


@pytest.mark.rule(6)
def test_controls_repeat_cells_in_which_one_thread_reads_if_there_are_any():
    def slowed(**levels: list) -> list[str]:
        values = {
            "run": "r",
            "libraries": {"h5py": {"kind": "wheel", "hdf5": "2.0.0"}},
            "stores": {"disk": {"kind": "posix"}},
        }
        levels = {
            "library": ["h5py"],
            "store": ["disk"],
            "particles": ["A"],
            "operation": ["sum"],
            "workers": [4],
        } | levels
        section = {"control_cells": 3, "matrix": {**levels, "threads": [2], "cache": ["warm"]}}
        config = configuration.resolve_config(values | {"studies": {"particles": section}}, [])
        return [
            cell.levels["method"] for cell in matrix.expand_matrix(config, "particles")[0] if cell.levels["control"]
        ]

    assert set(slowed(method=["serial", "chunkwise", "futures", "array"])) == {"serial", "chunkwise"}
    assert set(slowed(method=["futures", "array"])) == {"futures", "array"}
