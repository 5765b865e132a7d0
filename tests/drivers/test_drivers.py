"""Drivers: each gives what h5py gives, from the disk and from S3, or says that it cannot; caches and indexes work."""

import contextlib
import copy
import inspect
import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import pytest
from cells import CONFIG, Place
from conftest import ROOT, artefact
from driver_files import FILES, ODD_KEY, SMALL
from driver_library import DISK, INDEXED, S3, Library, made

from sbench import drivers
from sbench.design import checks, matrix
from sbench.design import config as configuration
from sbench.drivers import native
from sbench.probe.program import Problem
from sbench.studies.shots import checks as shot_checks

ANYWHERE = ("h5coro", "pyfive", "h5netcdf", "xarray", *INDEXED)
READERS = [("sec2", DISK), *((name, DISK) for name in ANYWHERE)]
READERS += [(name, S3) for name in ("ros3", "s3fs", "remfile", *ANYWHERE)]
LISTS = {"/lists", "/lists_big", "/lists_gaps", "/lists_lists", "/lists_texts", "/lists_unwritten", "/packed_lists"}
WITH_TEXTS = {"/array", "/nested", "/packed_texts", "/scalar_list", "/texts", "/texts_unwritten"}
CANNOT_KINDS = {
    "pyfive": LISTS | WITH_TEXTS | {"/bits"},
    "xarray": {"/gaps_big"},
    "kerchunk": LISTS | WITH_TEXTS | {"/gaps", "/gaps_big", "/opaque", "/packed_gaps", "/scalar_gaps"},
}
NEEDS = [drivers.WITHIN, drivers.BESIDE, drivers.IN_PLACE, drivers.LINKS]
_BY_H5PY = {"posix": NEEDS[:3], "s3": NEEDS[:1]}
_AS_FILE_OBJECT = {"s3": [drivers.WITHIN, drivers.LINKS]}
FOLLOWED = {
    **{"sec2": {"posix": NEEDS}, "ros3": {"s3": [drivers.WITHIN, drivers.BESIDE, drivers.LINKS]}},
    **{"s3fs": _AS_FILE_OBJECT, "remfile": _AS_FILE_OBJECT, "h5netcdf": _BY_H5PY, "xarray": _BY_H5PY},
    "kerchunk": {"posix": [drivers.LINKS], "s3": [drivers.LINKS]},
}
# What of the file `odd` each driver cannot read; of the others it reads all values.
STRINGS, STRUCTURES = {"/fixed", "/vlen"}, {"/compound", "/empty"}
CANNOT = {
    "h5coro": {"/big", "/big_contiguous", "/bools", "/unwritten", "/zero"} | STRINGS | STRUCTURES,
    "pyfive": {"/empty"},
    "h5netcdf": {"/empty"},
    "xarray": {"/empty"},
    "kerchunk": STRUCTURES,
}


@pytest.fixture(scope="module")
def said(once: Callable, with_readers: Path) -> dict:
    """Return what each driver said of the small files: "driver kind file" and "anonymous driver" -> answer."""

    def ask(folder: Path) -> None:
        with made(folder, with_readers) as library:
            asked = [(name, store, file) for file in SMALL for name, store in READERS]
            answers = library.read(*(library.case(*one) for one in asked))
            names = [f"{name} {store['kind']} {file}" for name, store, file in asked]
            public = [name for name, store in READERS if store == S3]
            cases = [library.case(name, S3 | {"anonymous": True}, "plain", make_index=False) for name in public]
            answers += library.read(*cases, signed=False)
            names += [f"anonymous {name}" for name in public]
            answers += library.read(*(library.case(name, S3, "plain", key=ODD_KEY) for name in public))
            names += [f"odd key {name}" for name in public]
        (folder / "said.json").write_text(json.dumps(dict(zip(names, answers, strict=True))), encoding="utf-8")

    return artefact(once("drivers", ask) / "said.json")


@pytest.fixture
def library(tmp_path: Path, with_readers: Path) -> Iterator[Library]:
    with made(tmp_path, with_readers) as library:
        yield library


@pytest.mark.rule(9)
@pytest.mark.parametrize("name, store", READERS, ids=[f"{name}-{store['kind']}" for name, store in READERS])
def test_each_driver_gives_the_values_and_the_tree_that_h5py_gives(said, name, store):
    expected, found = said["sec2 posix plain"], said[f"{name} {store['kind']} plain"]
    assert found["effective"]["driver"] == name
    assert found["tree"] == expected["tree"]
    # Parts of datasets without chunks, of which it gives wrong values.
    refused = {"/contiguous", "/a/b/c/deep", "/scale0", "/scale1"} if name == "h5coro" else set()
    for key, value in expected["values"].items():
        path, part = key.split()
        if path in refused and part != "all":
            assert found["values"][key].startswith(f"Unable: h5coro cannot read a part of {path}: ")
        else:
            assert found["values"][key] == value, key


@pytest.mark.parametrize("name, store", READERS, ids=[f"{name}-{store['kind']}" for name, store in READERS])
def test_what_a_driver_cannot_read_it_says_in_one_line(said, name, store):
    expected, found = said["sec2 posix odd"], said[f"{name} {store['kind']} odd"]
    if name == "virtualizarr":
        assert re.fullmatch(r"Unable: virtualizarr cannot read \S+: unexpected TypeError \(.*None.*\)", found)
        return
    cannot = set()
    for key, value in expected["values"].items():
        path, part = key.split()
        if found["values"][key] != value:
            assert re.fullmatch(rf"Unable: {name} cannot read .+: (?!object of type).+", found["values"][key]), key
            cannot |= {path} if part == "all" else set()
    assert cannot == CANNOT.get(name, set())
    if found["tree"] != expected["tree"]:
        assert found["tree"].startswith(f"Unable: {name} cannot read the tree: ")
        assert "\n" not in found["tree"]


@pytest.mark.rule(9)
@pytest.mark.parametrize("name, store", READERS, ids=[f"{name}-{store['kind']}" for name, store in READERS])
def test_structures_sequences_and_texts_are_read_alike_or_not_at_all(said, name, store):
    expected, found = said["sec2 posix kinds"], said[f"{name} {store['kind']} kinds"]
    if name == "virtualizarr":
        assert found.startswith("Unable: virtualizarr cannot read ")
        return
    cannot = set()
    for key, value in expected["values"].items():
        path = key.split()[0]
        if found["values"][key] != value:
            assert re.match(rf"Unable: {name} cannot read (a part of )?{path}: ", found["values"][key]), key
            cannot.add(path)
    paths = {key.split()[0] for key in expected["values"]}
    assert cannot == CANNOT_KINDS.get(name, paths if name == "h5coro" else set())


@pytest.mark.rule(9)
@pytest.mark.parametrize("name, store", READERS, ids=[f"{name}-{store['kind']}" for name, store in READERS])
def test_values_in_other_files_and_links_are_read_by_drivers_that_follow_them(said, name, store):
    expected, found = said["sec2 posix linked"], said[f"{name} {store['kind']} linked"]
    driver, address = drivers.get_driver(name), "http://host/linked" if store == S3 else "/linked"
    assert [need for need in NEEDS if driver.supports_need(need, address)] == FOLLOWED.get(name, {}).get(
        store["kind"], []
    )
    assert expected["values"]["/beside all"] != expected["values"]["/x all"]
    for key, value in expected["values"].items():
        need = {"/within": drivers.WITHIN, "/beside": drivers.BESIDE}.get(key.split()[0])
        if need and driver.supports_need(need, address):
            assert found["values"][key] == value, key
        elif not need and found["values"][key] != value:
            assert found["values"][key].startswith(f"Unable: {name} cannot read "), key
    if driver.supports_need(drivers.LINKS, address):
        assert found["tree"] == expected["tree"]


def test_a_key_that_a_url_has_to_quote_is_read_by_each(said):
    answers = {key.removeprefix("odd key "): answer for key, answer in said.items() if key.startswith("odd key ")}
    assert len(answers) == 9
    # It takes what is behind # for no part of the key.
    assert answers.pop("virtualizarr").startswith("Unable: virtualizarr cannot read s3://drivers/a b/c#d")
    for name, answer in answers.items():
        assert "values" in answer, f"{name}: {answer}"
        assert answer["values"] == said[f"{name} s3 plain"]["values"]


def test_public_objects_are_read_without_keys(said):
    answers = {key: answer for key, answer in said.items() if key.startswith("anonymous ")}
    assert len(answers) == 9
    for key, answer in answers.items():
        assert "values" in answer, answer
        assert answer["values"] == said[key.replace("anonymous ", "") + " s3 plain"]["values"], key


def test_a_driver_by_the_instructions_for_contributors_has_the_tree_and_valid_settings(tmp_path):
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Adding a driver")[2]
    section = section.partition("\n## ")[0]
    code = inspect.getsource(checks.check_caches) + inspect.getsource(shot_checks.check_pages)
    compared = {key for key in re.findall(r"effective(?:\.get\(|\[)\"(\w+)\"", code) if not key.endswith("_asked")}
    assert {"rdcc_nbytes", "page_buffer_bytes"} <= compared
    assert {key for key in compared if f"`{key}`" not in section} == set()
    (toy,) = re.findall(r"Copy `(\S+)`", section)
    (module,) = (ROOT / toy).rglob("drivers/*.py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/values"] = [1, 2]
        file["group"].attrs["unit"] = "m"
    asked = {"rdcc_nbytes_asked": 3 * 2**20, "rdcc_nslots_asked": 10007}
    access = drivers.Access("toy", drivers.UNSET, 3 * 2**20, rdcc_nslots=10007)
    for name, driver in runpy.run_path(str(module))["DRIVERS"].items():
        with contextlib.closing(driver.open(str(tmp_path / "a.h5"), access)) as file:
            tree = {drivers.encode_object(*item) for item in file.walk()}
            with h5py.File(tmp_path / "a.h5") as same:
                assert tree == {drivers.encode_object(*item) for item in native.walk_file(same)}, name
            assert checks.check_caches(file.read_settings() | asked, "unset") == [], name


@pytest.mark.rule(10)
def test_a_cache_is_that_of_the_library_until_another_is_asked_for(said, library):
    asked = [("s3fs", "blockcache-256KiB"), ("s3fs", "bytes-1024KiB"), ("s3fs", "none"), ("pyfive", "readahead-5MiB")]
    asked += [("xarray", "blockcache-8MiB"), ("h5netcdf", "none"), ("ros3", "none"), ("ros3", "block-4MiB")]
    answers = library.read(*(library.case(name, S3, "plain", cache) for name, cache in asked))
    lacks = "Unable: ros3 does not support read cache block-4MiB in this library: HDF5 must be 2.2 or newer"
    assert answers[-1] == lacks
    for (_, cache), answer in zip(asked, answers[:-1], strict=False):
        assert checks.check_caches(answer["effective"] | {"rdcc_nbytes_asked": 2**20}, "unset", cache) == []
    defaults = {name: said[f"{name} s3 plain"]["effective"].get("read_cache") for name in ("s3fs", "xarray", "ros3")}
    assert defaults == {"s3fs": "readahead-50MiB", "xarray": "blockcache-4MiB", "ros3": None}
    wrong = checks.check_caches({"read_cache": "blockcache-4MiB", "rdcc_nbytes_asked": 0}, "unset", "blockcache-5MiB")
    assert wrong == ["the driver set the read cache to blockcache-4MiB, not blockcache-5MiB (rule 10)"]


@pytest.mark.rule(10)
def test_a_chunk_cache_has_the_bytes_and_slots_that_were_asked_for(said, library):
    readers = [(name, store) for name, store in READERS if drivers.get_driver(name).chunk_caches]
    assert {name for name, _ in readers} == {"sec2", "ros3", "s3fs", "remfile", "h5netcdf", "xarray"}
    for (name, store), answer in zip(
        readers, library.read(*(library.case(*one, "plain", slots=10007) for one in readers)), strict=True
    ):
        asked = {"rdcc_nbytes_asked": 2**20, "rdcc_nslots_asked": 10007}
        assert checks.check_caches(answer["effective"] | asked, "unset") == [], name
        default = said[f"{name} {store['kind']} plain"]["effective"]
        assert checks.check_caches(default | asked, "unset") == [
            f"the library set a chunk cache of {default['rdcc_nslots']} slots, not 10007 (rule 10)"
        ]
        assert checks.check_caches(default | asked | {"rdcc_nslots_asked": 0}, "unset") == []


@pytest.mark.rule(11)
def test_a_default_and_a_tuned_cache_ask_for_different_ranges(library):
    counts = {
        cache: library.requests(library.case("s3fs", S3, "large", cache))
        for cache in ("default", "blockcache-256KiB", "none")
    }
    assert counts["default"] < counts["blockcache-256KiB"] < counts["none"]


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_is_made_once_and_read_from_the_next_server_too(tmp_path, with_readers, name):
    with made(tmp_path, with_readers) as library:
        first = library.requests(case := library.case(name, S3, "plain"))
        index = Path(case["index"])
        before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}
    with made(tmp_path, with_readers) as library:
        again = library.case(name, S3, "plain", make_index=False)
        assert again["address"] != case["address"]
        assert library.requests(again) < first
        assert library.read(again)[0]["values"] == library.read(library.case("sec2", DISK, "plain"))[0]["values"]
    assert {path: path.read_bytes() for path in index.rglob("*") if path.is_file()} == before != {}


@pytest.fixture
def config() -> dict:
    values = copy.deepcopy(CONFIG)
    values["studies"] = {"shots": values["studies"]["shots"]}
    return values


@pytest.mark.rule(1, 14)
def test_a_plan_has_the_drivers_that_a_library_and_a_store_have(config):
    row = config["studies"]["shots"]["matrix"]
    row |= {"library": ["readers", "arrays", "hdf5-2.0.0"], "store": ["disk", "s3"]}
    row |= {"driver": ["ros3", "s3fs", "remfile", *ANYWHERE], "read_cache": ["default", "readahead-5MiB"]}
    cells, omitted = matrix.expand_matrix(configuration.resolve_config(config, []), "shots")
    factors = ("library", "store", "driver", "read_cache")
    planned = {tuple(cell.levels[factor] for factor in factors) for cell in cells}
    assert {driver for library, store, driver, _ in planned if (library, store) == ("readers", "s3")} == {
        *row["driver"]
    }
    assert {driver for library, _, driver, _ in planned if library == "hdf5-2.0.0"} == {"ros3"}
    assert ("arrays", "s3", "ros3", "default") not in planned
    tuned = {driver for _, _, driver, cache in planned if cache != "default"}
    assert tuned == {"s3fs", "pyfive", "h5netcdf", "xarray"}
    reasons = {one.reason for one in omitted}
    assert {
        "library arrays lacks remfile, which driver remfile needs",
        "library hdf5-2.0.0 lacks h5coro, which driver h5coro needs",
        "arrays is a wheel without ROS3",
        "driver s3fs does not read a posix store",
        "driver remfile does not support read cache readahead; set read_cache to default",
        "driver ros3 does not support read cache readahead (supported: none, block); set read_cache to default",
    } <= reasons


@pytest.mark.rule(1, 10)
def test_cells_with_a_chunk_cache_are_left_out_where_the_driver_has_none(config):
    row = config["studies"]["shots"]["matrix"]
    row |= {"library": ["readers"], "store": ["disk", "s3"], "driver": ["sec2", "ros3", "s3fs", "remfile", *ANYWHERE]}
    row |= {"chunk_cache": ["default", "64MiB", "64MiB-10007"]}
    cells, omitted = matrix.expand_matrix(configuration.resolve_config(config, []), "shots")
    tuned = {cell.levels["driver"] for cell in cells if cell.levels["chunk_cache"] != "default"}
    assert tuned == {"sec2", "ros3", "s3fs", "remfile", "h5netcdf", "xarray"}
    without = {one.levels["driver"] for one in omitted if "chunk cache" in one.reason}
    assert without == {"h5coro", "pyfive", *INDEXED}
    line = "driver pyfive does not use HDF5's chunk cache; set chunk_cache to default"
    assert line in {one.reason for one in omitted}


@pytest.mark.parametrize(
    "level, cache", [("default", (5, 0)), ("64MiB", (2**26, 0)), ("1KiB-1", (2**10, 1)), ("2GiB-10007", (2**31, 10007))]
)
def test_a_level_of_the_chunk_cache_has_bytes_and_slots(level, cache):
    assert drivers.parse_chunk_cache(level, 5) == cache


@pytest.mark.parametrize("level", ["64", "64MB", "0MiB", "64MiB-", "64MiB-0", "none"])
def test_a_level_that_is_no_chunk_cache_is_refused(config, level):
    config["studies"]["shots"]["matrix"]["chunk_cache"] = [level]
    with pytest.raises(Problem, match="chunk_cache"):
        configuration.resolve_config(config, [])


@pytest.mark.rule(9, 11)
def test_cells_of_drivers_are_measured_over_an_emulated_network(tmp_path, with_readers, once):
    levels = {"library": "readers", "store": "s3", "driver": ["ros3", "s3fs", "h5coro", "xarray"]}
    network = {"network": {"latency_ms": 1}}
    here = Place(tmp_path, with_readers, once, s3=network, data={"shots": 2, "signals": 4}, **levels).make()
    records = {cell.levels["driver"]: here.measure(cell=cell) for cell in here.cells}
    assert {name: record["reasons"] for name, record in records.items()} == {name: [] for name in levels["driver"]}
    assert len({record["work"]["checksum"] for record in records.values()}) == 1
    assert {name: record["effective"]["driver"] for name, record in records.items()} == {name: name for name in records}
    assert all(record["requests"]["GET"]["bytes_delivered"] > 0 for record in records.values())
    assert records["s3fs"]["effective"]["s3fs"]


@pytest.mark.parametrize(
    "error, words",
    [
        (KeyError("chunks"), "unexpected KeyError ('chunks')"),
        (ValueError(), "unexpected ValueError"),
        (ValueError("no filter 32001"), "no filter 32001"),
    ],
)
def test_a_bare_name_of_a_library_is_told_as_an_error_of_its_kind(error: Exception, words: str):
    with (
        pytest.raises(drivers.Unable, match=re.escape(f"kerchunk cannot read /a: {words}")),
        drivers.convert_failures("kerchunk", "/a", Exception),
    ):
        raise error


@pytest.mark.rule(9)
def test_a_virtual_dataset_in_s3_is_measured_by_a_driver_that_asks_for_its_sources(tmp_path, with_readers):
    own = tmp_path / "own"
    own.mkdir()
    for name in ("linked", "frames"):
        with h5py.File(own / f"{name}.h5", "w") as file:
            FILES[name](file)
    with h5py.File(own / "linked.h5", "a") as file:
        layout = h5py.VirtualLayout((30,), "<f8")
        layout[:] = h5py.VirtualSource("frames.h5", "x", (30,))
        file.create_virtual_dataset("virtual", layout)
    levels = {"library": "readers", "store": "s3", "driver": ["ros3", "s3fs"], "layout": "mine", "access": "files"}
    here = Place(tmp_path, with_readers, data={"files": {"mine": str(own)}, "datasets": ["/virtual"]}, **levels).make()
    assert [file["name"] for file in artefact(here.manifest)["files"]] == ["frames.h5", "linked.h5"]
    read = {cell.levels["driver"]: here.measure(cell=cell) for cell in here.cells}
    assert {name: record["reasons"] for name, record in read.items()} == {
        "ros3": [],
        "s3fs": [f"driver s3fs does not read {drivers.BESIDE}: /virtual of linked.h5"],
    }
    assert read["s3fs"]["unable"]
