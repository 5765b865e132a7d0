"""Containers: what an access reads, which cells are possible, and what a record of each container says."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cells import CONFIG, Place
from conftest import ROOT, find_containers_library

from sbench.design import config as configuration
from sbench.design import matrix, schema
from sbench.pages.results import Results
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem
from sbench.studies.containers import selections, values
from sbench.studies.containers.base import load_containers, plan_grid
from sbench.studies.containers.report import REPORT, results
from sbench.studies.containers.settings import Levels
from sbench.studies.containers.study import STUDY

GRID = selections.Grid((32, 20, 24), (4, 10, 12))
# Six containers and four accesses, whose requests are forecast.
CONTAINERS = ("hdf5", "hdf5-repacked", "kerchunk-json", "icechunk-virtual", "zarr", "zarr-shards")
ACCESSES = ("map", "series", "rows-6", "all")


def test_the_shipped_question_is_asked_of_files_that_a_read_ahead_does_not_take_whole():
    row = configuration.load_config(ROOT / "config/containers.yaml")["studies"]["containers"]["matrix"][0]
    size = 4 * math.prod(selections.parse_sides(row["shape"][0]))
    assert size >= 64 * 2**20
    # Uncompressed files are as large as their values; s3fs reads 50 MiB ahead.
    assert (row["compression"], size / row["files"][0] > 50 * 2**20) == (["none"], True)
    for name in ("docs/containers.md", "config/README.md"):
        assert f"{size >> 20} MiB" in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("access", ["map", "series", "box", "all", "rows-5", "rows-6-batch4-sorted", "windows-3"])
def test_a_part_has_the_values_of_its_place_in_the_array(access):
    whole = values.make_values(GRID.shape, (slice(None),) * 3, 1)
    parts = selections.list_parts(access, GRID.shape, 1)
    for index in parts:
        assert np.array_equal(values.make_values(GRID.shape, index, 1), whole[index[0]][:, index[1], index[2]])
    assert selections.count_values(parts, GRID.shape) == sum(whole[index].size for index in parts)
    assert parts == selections.list_parts(access, GRID.shape, 1)


def test_rows_are_drawn_once_in_batches_and_sorted_within_a_call_and_between_calls():
    drawn = [list(range(32))[index[0]] for index in selections.list_parts("rows-20", GRID.shape, 1)]
    flat = [row for rows in drawn for row in rows]
    assert len(set(flat)) == 20
    assert flat != sorted(flat)
    batches = selections.list_parts("rows-20-batch8-sorted", GRID.shape, 1)
    assert [len(index[0]) for index in batches] == [8, 8, 4]
    assert [row for index in batches for row in index[0]] == sorted({row for index in batches for row in index[0]})


def test_chunks_are_counted_that_a_part_touches():
    assert len(GRID.list_touched((slice(3, 5), slice(0, 10), slice(11, 13)))) == 4
    assert len(GRID.list_touched(([0, 1, 31], slice(9, 11), slice(0, 1)))) == 4
    assert len(GRID.list_touched((slice(None),) * 3)) == GRID.count_chunks() == 8 * 2 * 2


def test_rows_are_split_into_runs_within_a_file():
    index = ([3, 4, 5, 6, 16, 2], slice(None), slice(None))
    assert list(selections.split_rows(index, 32, 5)) == [
        (0, slice(3, 5)), (1, slice(0, 2)), (3, slice(1, 2)), (0, slice(2, 3)),
    ]  # fmt: skip


def plan(**levels: object) -> tuple[list, list]:
    section = CONFIG["studies"]["containers"]
    levels = {name: level if isinstance(level, list) else [level] for name, level in levels.items()}
    config = CONFIG | {"studies": {"containers": section | {"matrix": section["matrix"] | levels}}}
    return matrix.expand_matrix(configuration.resolve_config(config, []), "containers")


@pytest.mark.parametrize(
    "levels, reason",
    [
        ({"store": "azure"}, "the store of a container must be a folder or S3"),
        ({"client": "ros3"}, "client ros3 does not read zarr (supported: s3fs, obstore)"),
        ({"store": "disk", "client": "s3fs"}, "files of a folder are read without a client; set client to default"),
        ({"container": "hdf5", "codec": "zstd"}, "hdf5 keeps the chunks of the source; set container_chunks and codec"),
        ({"container": "kerchunk-json", "container_chunks": "1x1x1"}, "kerchunk-json keeps the chunks of the source"),
        ({"shard_chunks": "2x2x2"}, "only zarr-shards has shards"),
        ({"read_cache": "none"}, "only s3fs and ROS3 have a read cache, for hdf5 and hdf5-repacked"),
        ({"container": "hdf5", "client": "ros3", "read_cache": "bytes-1MiB"}, "ros3 does not support read cache bytes"),
        ({"container": "hdf5", "read_cache": "block-1MiB"}, "driver s3fs does not support read cache block"),
        ({"opening": "open_mfdataset"}, "opening open_mfdataset does not apply to zarr"),
        ({"container": "hdf5", "client": "ros3", "opening": "xarray"}, "xarray does not read files with client ros3"),
        ({"container": "hdf5", "concurrency": 4}, "concurrency and threads are options of zarr"),
        ({"container": "hdf5-repacked", "client": "h5coro"}, "client h5coro does not read hdf5-repacked"),
        ({"coalescing": "0KiB-1MiB"}, "coalescing is an option of zarr for shards"),
        ({"workers": "threads-2"}, "Dask has workers, and only xarray uses it"),
        ({"container": "parquet", "access": "walk"}, "a table has no tree of metadata"),
        ({"files": 5}, "5 files do not divide 32 times evenly"),
        ({"container": "icechunk-virtual", "files": 8, "chunks": "3x2x2"}, "needs files of whole chunks; choose files"),
        ({"access": "rows-33"}, "rows-33 needs more than 32 times"),
        ({"access": "windows-18"}, "windows-18 needs more than 32 times"),
        (
            {"container": "hdf5-repacked", "codec": "zstd"},
            "readers lacks hdf5plugin, which container",
        ),
        ({"library": "arrays", "container": "icechunk"}, "library arrays lacks icechunk, which container icechunk"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_impossible_cells_are_left_out_with_a_reason(levels, reason):
    with pytest.raises(Problem, match=re.escape(reason)):
        plan(**levels)


def test_options_that_exclude_each_other_are_a_mistake_of_the_configuration():
    section = CONFIG["studies"]["containers"]
    level = "open_mfdataset+exact+joined"
    config = {"studies": {"containers": section | {"matrix": section["matrix"] | {"opening": [level]}}}}
    assert list(STUDY.list_mistakes(config)) == [
        f"studies.containers: opening {level}: options are repeated or exclude each other; remove one"
    ]


@pytest.fixture
def newest(tmp_path: Path, with_containers: Path, once: Callable) -> Callable[..., Place]:
    """Return a function that makes a place to measure cells with the newest releases."""

    def build(**levels: object) -> Place:
        libraries = {"containers": find_containers_library()}
        levels = {"library": "containers", "libraries": libraries} | levels
        return Place(tmp_path, with_containers, once, study="containers", **levels).make()

    return build


@pytest.fixture
def oldest(tmp_path: Path, with_readers: Path, once: Callable) -> Callable[..., Place]:
    """Return a function that makes a place to measure cells with the releases for Python 3.11."""
    return lambda **levels: Place(tmp_path, with_readers, once, study="containers", **levels).make()


def count(record: dict) -> int:
    """Return the number of requests that the server counted."""
    return sum(method["count"] for method in record["requests"].values())


def list_files(here: Place) -> set[Path]:
    """Return the files of the store, without those of the server."""
    folder = Path(here.provided.get("folder") or here.provided["location"]["folder"])
    return {path for path in folder.rglob("*") if path.is_file() and ".vgwlocks" not in path.parts}


@pytest.mark.rule(3, 9, 10, 11)
@pytest.mark.parametrize("container", CONTAINERS)
def test_requests_of_each_access_are_forecast_and_every_value_is_verified(newest, container):
    here = newest(container=container, access=list(ACCESSES))
    before = list_files(here)
    for cell in here.cells:
        record = here.measure(cell=cell)
        assert (record["status"], record["reasons"]) == ("done", [])
        parts = selections.list_parts(cell.levels["access"], GRID.shape, 1)
        assert record["work"]["logical_bytes"] == selections.count_values(parts, GRID.shape) * 4
        assert count(record) == record["work"]["forecast_requests"] > 0
        assert bool(record["conversion"]) == (container != "hdf5")
    assert list_files(here) == before, "something is left in the store"


@pytest.mark.rule(9, 10)
@pytest.mark.parametrize(
    "levels",
    [
        {"container": "hdf5", "client": "ros3"},
        {"container": "hdf5", "client": "s3fs", "read_cache": "blockcache-64KiB"},
        {"container": "hdf5", "read_cache": "none", "access": "rows-6"},
        {"container": "hdf5", "opening": "open_mfdataset+minimal+override+joined+parallel", "workers": "threads-2"},
        {"container": "hdf5-repacked", "codec": "blosc", "container_chunks": "8x20x24"},
        {"container": "kerchunk-parquet", "access": "box"},
        {"container": "hdf5", "client": "ros3", "read_cache": "none", "access": "rows-6"},
        {"container": "icechunk", "access": "rows-8-batch4", "codec": "zstd"},
        # Icechunk writes small chunks into its manifest.
        {"container": "icechunk", "access": "all", "container_chunks": "2x2x2"},
        {"container": "zarr", "client": "obstore", "concurrency": 2, "threads": 2, "opening": "xarray"},
        {"container": "zarr-shards", "access": "series", "shard_chunks": "4x1x1", "coalescing": "0KiB-1KiB"},
        {"container": "parquet", "access": "windows-3", "codec": "zstd"},
        {"container": "icechunk-virtual", "store": "disk", "access": "walk"},
        {"container": "kerchunk-json", "store": "disk", "access": "rows-8-sorted"},
        {"container": "zarr-shards", "store": "disk", "access": "all"},
    ],
    ids=lambda levels: "-".join(map(str, levels.values())),
)
def test_each_level_is_in_force(newest, levels):
    here = newest(**levels)
    before = list_files(here)
    record = here.measure()
    assert (record["status"], record["reasons"]) == ("done", [])
    grid, effective = plan_grid(read_fields(Levels, here.cell.levels)), record["effective"]
    if (forecast := record["work"]["forecast_requests"]) is not None:
        assert count(record) == forecast
    if levels["container"] != "parquet":
        assert effective["chunks"] == selections.format_sides(grid.chunks)
    assert effective["codec"] == levels.get("codec", "deflate")
    assert record["seconds"].keys() == {"total", "open"} | ({"convert"} if levels["container"] != "hdf5" else set())
    assert list_files(here) == before, "something is left in the store"


@pytest.mark.parametrize("container", ["hdf5", "zarr", "icechunk"])
def test_nothing_is_left_in_a_folder_of_the_user(newest, container, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setitem(CONFIG["stores"], "disk", {"kind": "posix", "path": str(folder)})
    here = newest(container=container, store="disk")
    before = set(folder.rglob("*"))
    assert here.measure()["status"] == "done"
    assert set(folder.rglob("*")) == before > set()


@pytest.mark.parametrize(
    "levels",
    [
        {"container": "hdf5", "client": "h5coro"},
        {"container": "hdf5", "opening": "open_mfdataset"},
        {"container": "kerchunk-json"},
        {"container": "zarr", "opening": "xarray", "workers": "threads-2"},
    ],
    ids=lambda levels: "-".join(levels.values()),
)
def test_no_module_is_imported_in_the_time_of_a_read(newest, levels):
    here = newest(**levels)
    here.pretend(
        "from sbench.probe import slowed\nfrom sbench.probe.conversation import Step\nbefore, new = set(), set()\n"
        "start, end, report = Step.open_window, Step.close_window, slowed.report_waited\n"
        "Step.open_window = lambda step, **options: [start(step, **options), new.clear(), before.update(sys.modules)]\n"
        "Step.close_window = lambda step: [end(step), new.update({*sys.modules} - before)][0]\n"
        "slowed.report_waited = lambda *waited: report(*waited) | {'imported': len(new)}"
    )
    record = here.measure()
    assert (record["status"], record["reasons"]) == ("done", [])
    assert record["work"]["imported"] == 0


@pytest.mark.parametrize("container", ["zarr-shards", "icechunk-virtual", "kerchunk-json"])
def test_releases_for_python_3_11_read_the_same_values(oldest, container):
    here = oldest(container=container, access=["map", "all"])
    for cell in here.cells:
        record = here.measure(cell=cell)
        assert (record["status"], record["reasons"]) == ("done", [])
        # The requests with which Icechunk 1 opens a repository are not known.
        assert record["work"]["forecast_requests"] == (None if container == "icechunk-virtual" else count(record))


def test_a_release_that_does_not_merge_requests_says_so(oldest):
    record = oldest(container="zarr-shards", coalescing="0KiB-1MiB").measure()
    assert record["status"] == "failed"
    assert "zarr 3.1.6 does not merge requests; set coalescing to unset, or use zarr 3.3" in record["reasons"][0]


@pytest.mark.parametrize("opening", ["library", "xarray", "open_mfdataset"])
def test_more_files_than_a_process_may_open_are_reported(newest, opening):
    many = {"files": 64, "shape": "64x8x8", "chunks": "1x8x8", "access": "all"}
    here = newest(container="hdf5", store="disk", opening=opening, **many)
    here.pretend("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == [
        "studies.containers.measure ended with status 2: 64 files are too many for 64 open files (ulimit -n); raise the"
        " limit, or use fewer files"
    ]


@pytest.mark.rule(9)
def test_a_wrong_value_makes_a_record_invalid(newest):
    here = newest(container="zarr", access="map")
    here.pretend(
        "import sys\nfrom sbench.studies.containers import zarr\nread = zarr._Opened.read\n"
        "zarr._Opened.read = lambda opened, index: read(opened, index) * 1.01"
    )
    record = here.measure()
    assert not record["valid"]
    assert "checksum" in record["reasons"][0]


def test_all_containers_are_levels_of_the_schema():
    assert list(load_containers()) == schema.get_factors("containers")["container"]["items"]["enum"]


def build_results(container_s: list[float], convert_s: list[float]) -> Results:
    """Return the results of two cells: reads of the source in 1 s, and of Zarr in `container_s` after a conversion."""
    levels = dict.fromkeys(REPORT.names, "x") | {"access": "map"}
    times = {"hdf5": [1.0] * len(container_s), "zarr": container_s}
    same = {**levels, "control": "", "total_s": 1.0}
    cells = pd.DataFrame([{**same, "cell": name, "container": name, "n": len(of)} for name, of in times.items()])
    rows = [
        {**same, "cell": name, "repeat": repeat, "valid": True, "container": name, "total_s": seconds}
        for name, of in times.items()
        for repeat, seconds in enumerate(of, 1)
    ]
    readers = [
        {"cell": "zarr", "repeat": repeat, "conversion": {"convert_s": seconds}}
        for repeat, seconds in enumerate(convert_s, 1)
    ]
    empty = pd.DataFrame()
    return Results(empty, cells, empty, empty, {"readers": readers}, report=REPORT, records=pd.DataFrame(rows))


def test_a_conversion_pays_off_after_its_time_divided_by_the_time_that_a_read_saves():
    run = build_results([0.5, 0.6, 0.5, 0.5, 0.4, 0.5], [2.0] * 6)
    [payoff] = results.compute_payoffs(run)
    # 2 s divided by 0.5 s; the ends of the interval for six blocks are the extremes, 2 / 0.6 and 2 / 0.4.
    assert (payoff.reads, payoff.low, payoff.high) == pytest.approx((4, 2 / 0.6, 5))
    [line] = results.describe_payoffs(run)
    assert "the conversion pays off after 4 reads of" in line
    assert "(95 % CI 4 to 5)" in line
    assert [text for text, _ in results.describe_soonest(run)] == [line]


def test_a_conversion_that_may_never_pay_off_has_no_upper_limit():
    [payoff] = results.compute_payoffs(build_results([0.9, 0.8, 0.9, 1.1, 0.9, 0.9], [2.0] * 6))
    assert math.isfinite(payoff.reads)
    assert math.isinf(payoff.high)
    [never] = results.compute_payoffs(build_results([1.1] * 6, [2.0] * 6))
    assert math.isinf(never.reads)
    assert list(results.describe_payoffs(build_results([1.1] * 6, [2.0] * 6))) == []
    [few] = results.compute_payoffs(build_results([0.5] * 3, [2.0] * 3))
    assert math.isnan(few.low)


def test_a_table_distinguishes_a_median_read_that_saves_nothing_from_an_interval_without_a_saving():
    def get_reads(container_s: list[float]) -> str:
        [reads] = results.build_payoff_table(build_results(container_s, [2.0] * len(container_s))).frame["reads"]
        return reads

    assert get_reads([1.1, 1.1, 1.1, 1.1, 1.1, 0.75]) == "∞ [8, ∞]"
    assert get_reads([1.1] * 6) == "never"
    assert get_reads([1.1] * 2) == "∞"


def test_a_run_without_comparisons_has_no_sentences_on_their_requests():
    run = build_results([0.5] * 6, [2.0] * 6)
    run.cells["requests"] = [2, 4]
    assert list(results.describe_requests(run)) == []


def test_the_headline_names_all_containers_that_send_the_fewest_requests():
    run = build_results([0.5] * 6, [2.0] * 6)
    run.cells["requests"] = 2
    [(line, _)] = results.describe_fewest(run)
    assert line == "Fewest requests: the HDF5 files as they are and Zarr for a map (2)."
    for factor in ("files", "access"):
        other = build_results([0.5] * 6, [2.0] * 6)
        other.cells["requests"], other.cells[factor] = 2, ["map", "all"]
        assert list(results.describe_fewest(other)) == [], "requests for different data or accesses were compared"
