"""Looking at Zarr stores and kerchunk references: what is listed, and the requests with which Zarr reads them."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import boto3
import h5py
import pytest
from conftest import ROOT, artefact

from sbench.files import buckets, look, zarr_stores
from sbench.files.chunking import list_places
from sbench.files.zarr_look import LookedStore
from sbench.files.zarr_stores import Array, count_requests, read_store
from sbench.probe.formats import ZARR
from sbench.probe.program import Problem
from sbench.studies.shots.accesses import parse_accesses

LEVELS = ["[0]", "[:, 10, 20]", "[0:20, 0:20, 0:15]", "[:]", "[3:41:13]", "[::20, 40:, 29]", "[12:13, :, 0:8]", "[45:]"]
CLIENTS = str(ROOT / "tests/helpers/zarr_clients.py")
ZARRAY = {"zarr_format": 2, "shape": [10, 8], "chunks": [5, 4], "dtype": "<f4", "compressor": None, "filters": None}
ZARRAY |= {"fill_value": 0, "order": "C"}
NODE = {"zarr_format": 3, "node_type": "array", "shape": [10, 8], "data_type": "float32", "fill_value": 0}
NODE |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 4]}}, "codecs": [{"name": "bytes"}]}


def write_store(folder: Path, chunks: dict[str, int], **nodes: object) -> Path:
    """Write the metadata and chunks (name: size) of a store."""
    for name, node in nodes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(node if isinstance(node, str) else json.dumps(node), encoding="utf-8")
    for name, size in chunks.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    return folder


def describe(path: Path, access: str = "", *patterns: str) -> str:
    looked = LookedStore(read_store(path), parse_accesses(access) if access else None, patterns)
    return "\n".join([*looked.format_lines(), *looked.list_conclusions()])


@pytest.mark.late
def test_forecast_requests_are_counted_with_zarr(tmp_path: Path, with_readers: Path):
    python = artefact(with_readers / "readers.json")["python"]
    folder = tmp_path / "data"
    subprocess.run([python, CLIENTS, "write", folder], check=True)
    with buckets.serve_buckets({"data": folder}, {}) as served:
        env = buckets.build_environment(os.environ, served.variables)
        subprocess.run([python, CLIENTS, "read", json.dumps(LEVELS)], check=True, env=env)
        rows = served.read_requests().passed["exchanges"]
    counted, part = Counter(), ""
    for row in sorted(rows, key=lambda row: row["begin"]):
        name = row["path"].rpartition("/")[2]
        part = name if name.startswith("marker-") else part
        counted[part] += bool(part) and name not in {part, *ZARR}
    for name in ("v3", "v2", "shards"):
        (array,) = read_store(folder / name).arrays
        forecast = [sum(count_requests(array, spans) for spans in list_places(array.kind, level)) for level in LEVELS]
        assert forecast == [counted[f"marker-{name}-{number}"] for number in range(len(LEVELS))], name
        assert array.objects == array.largest


def test_a_store_is_listed_with_its_arrays(tmp_path: Path):
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": [5, 4], "codecs": [{"name": "zstd"}]}}
    sharded = NODE | {"codecs": [sharding]}
    sharded["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [10, 8]}}
    folder = tmp_path / "a.zarr"
    write_store(folder / "x", {"c/0/0": 80, "c/1/1": 80}, **{"zarr.json": NODE})
    write_store(folder / "s", {"c/0/0": 400}, **{"zarr.json": sharded})
    write_store(folder, {}, **{"zarr.json": {"zarr_format": 3, "node_type": "group"}})
    text = describe(folder, "[0]")
    assert f"{folder}: Zarr 3, 2 arrays, 560 B in 3 objects; metadata not consolidated\n" in text
    assert "  /x (10, 8) float32: 4 chunks (5, 4) of 80 B, 2 of 4 written; bytes\n" in text
    assert "  /s (10, 8) float32: 1 shard (10, 8) of 400 B, with chunks (5, 4); zstd\n" in text
    # Two chunks of x; the index and two chunks of s.
    assert "[0] of 2 arrays: 5 GETs of chunks, about" in text
    assert "[0] of /x: 2 GETs of chunks, about 160 B for 32 B in memory." in describe(folder, "[0]", "/x")
    assert "zarr 3.3 and later merge" in text
    with pytest.raises(Problem, match=r"no array of .*a.zarr matches /y; the first arrays are /"):
        describe(folder, "", "/y")


def test_a_store_of_zarr_2_and_an_array_alone_are_read(tmp_path: Path):
    folder = tmp_path / "b"
    write_store(folder / "deep/x", {"0.0": 80, "1.1": 80}, **{".zarray": ZARRAY})
    write_store(folder, {}, **{".zgroup": {"zarr_format": 2}, ".zmetadata": {"metadata": {}}})
    assert "b: Zarr 2, 1 array, 160 B in 2 objects\n" in describe(folder)
    (array,) = read_store(folder / "deep/x").arrays
    assert (array.name, array.objects, array.bytes) == ("/", 2, 160)


def test_references_are_listed_with_their_files(tmp_path: Path):
    references = {"x/.zarray": json.dumps(ZARRAY), ".zgroup": '{"zarr_format":2}', "x/0.1": "base64:AAAA"}
    references |= {f"x/{row}.0": [f"s3://bucket/{row}.h5", 100, 60] for row in range(2)}
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": references}), encoding="utf-8")
    assert zarr_stores.is_store(path)
    text = describe(path, "[:, 0]")
    assert "refs.json: kerchunk references, 1 array, 131 B in 3 objects, references to 2 files\n" in text
    assert "[:, 0] of /x: 2 GETs of chunks" in text
    folder = tmp_path / "refs.parq"
    folder.mkdir()
    metadata = {"record_size": 10, "metadata": {"x/.zarray": ZARRAY, ".zgroup": {"zarr_format": 2}}}
    (folder / ".zmetadata").write_text(json.dumps(metadata), encoding="utf-8")
    assert "refs.parq: kerchunk references (Parquet), 1 array\n" in describe(folder)


def test_an_access_that_does_not_suit_the_chunks_is_named(tmp_path: Path):
    large = NODE | {"shape": [1000, 1000, 100]}
    large["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [1, 1000, 100]}}
    folder = write_store(tmp_path / "c", {f"c/{row}/0/0": 400_000 for row in range(20)}, **{"zarr.json": large})
    text = describe(folder, "[:, 0, 0]")
    assert "[:, 0, 0] of /: 1,000 GETs of chunks, about 381.5 MiB for 3.906 KiB in memory." in text
    assert "the chunks (1, 1000, 100) of / do not suit it; with chunks (1000, " in text


def test_many_small_chunks_and_many_arrays_are_named(tmp_path: Path):
    small = NODE | {"shape": [1000, 8]}
    small["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [1, 8]}}
    folder = write_store(tmp_path / "d", {f"c/{row}/0": 32 for row in range(1000)}, **{"zarr.json": small})
    assert "The chunks of / are small and many: 1,000 of 32 B, which take as many requests." in describe(folder)
    for number in range(50):
        write_store(tmp_path / f"e/{number}", {}, **{"zarr.json": NODE})
    assert "no array" not in describe(tmp_path / "e/0")
    write_store(tmp_path / "e", {}, **{"zarr.json": {"zarr_format": 3, "node_type": "group"}})
    assert "The metadata of 50 arrays are as many objects: consolidate them" in describe(tmp_path / "e")


@pytest.mark.parametrize(
    "node, line",
    [
        ("{", r"zarr.json is not valid JSON \(.*\); copy or download it again"),
        ("[]", "zarr.json must be a JSON object"),
        ({"node_type": "array"}, "zarr.json cannot be read as Zarr 3 metadata: 'chunk_grid' is missing; write"),
        (NODE | {"chunk_grid": {"name": "rectilinear"}}, "the grid of chunks rectilinear is not supported"),
        (NODE | {"codecs": [{}]}, "Zarr 3 metadata: 'name' is missing"),
    ],
)
def test_metadata_that_cannot_be_read_are_one_line(tmp_path: Path, node: object, line: str):
    with pytest.raises(Problem, match=line):
        read_store(write_store(tmp_path / "f", {}, **{"zarr.json": node}))


def test_metadata_that_are_not_of_zarr_2_are_one_line(tmp_path: Path):
    for node, line in (({"shape": [1]}, "Zarr 2 metadata: 'dtype' is missing"), (ZARRAY | {"dtype": "nope"}, "nope")):
        with pytest.raises(Problem, match=line):
            read_store(write_store(tmp_path / "g", {}, **{".zarray": node}))
    (tmp_path / "h/snapshots").mkdir(parents=True)
    (tmp_path / "h/manifests").mkdir()
    with pytest.raises(Problem, match="h is an Icechunk repository, whose metadata only icechunk reads"):
        look.print_contents([str(tmp_path / "h")], "", [])


@pytest.mark.parametrize(
    "dtype, item",
    [
        ("bool", 1),
        ("r16", 2),
        ("string", 0),
        ("complex128", 16),
        ({"name": "numpy.datetime64", "configuration": {"unit": "s"}}, 8),
        ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}}, 12),
    ],
)
def test_sizes_of_data_types_are_known_or_zero(tmp_path: Path, dtype: object, item: int):
    (array,) = read_store(write_store(tmp_path / "t", {}, **{"zarr.json": NODE | {"data_type": dtype}})).arrays
    assert array.item == item
    assert f" {dtype if isinstance(dtype, str) else dtype['name']}: 4 chunks" in describe(tmp_path / "t", "[0]")


def test_stores_and_hdf5_files_are_looked_at_together(tmp_path: Path, capsys: pytest.CaptureFixture):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1.0]
    store = write_store(tmp_path / "a.zarr", {"c/0/0": 80}, **{"zarr.json": NODE})
    look.print_contents([str(store), str(tmp_path / "a.h5")], "[0]", [])
    text = capsys.readouterr().out
    assert "a.zarr: Zarr 3, 1 array" in text
    assert "1 file, " in text
    look.print_contents([str(store), str(tmp_path / "a.h5")], "[0]", [], as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert (result["files"], result["stores"][0]["arrays"][0]["requests"]) == (1, {"[0]": 2})


def test_a_store_in_a_bucket_is_read_from_its_consolidated_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    group = {"zarr_format": 3, "node_type": "group"}
    consolidated = group | {"consolidated_metadata": {"kind": "inline", "metadata": {"x": NODE, "g": group}}}
    write_store(tmp_path / "data/3.zarr", {"x/c/0/0": 80}, **{"zarr.json": consolidated})
    write_store(tmp_path / "data/2.zarr", {}, **{".zmetadata": {"metadata": {"g/x/.zarray": ZARRAY}}})
    write_store(tmp_path / "data/plain.zarr/x", {"0.0": 80}, **{".zarray": ZARRAY})
    write_store(tmp_path / "data/apart.zarr", {}, **{"zarr.json": group})
    with h5py.File(tmp_path / "data/a.h5", "w") as file:
        file["x"] = [1.0]
    with buckets.serve_buckets({"data": tmp_path / "data"}, {}) as served:
        for name, value in served.variables.items():
            monkeypatch.setenv(name, value)
        # The session of a process keeps the keys that another test has set.
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        names = ("3.zarr", "2.zarr", "plain.zarr/x", "a.h5")
        look.print_contents([f"s3://data/{name}" for name in names], "[0]", [])
        with pytest.raises(Problem, match=r"s3://data/apart\.zarr: the metadata of its arrays are not"):
            look.print_contents(["s3://data/apart.zarr"], "", [])
        with pytest.raises(Problem, match="s3://data/nothing"):
            look.print_contents(["s3://data/nothing"], "", [])
    text = capsys.readouterr().out
    assert "s3://data/3.zarr: Zarr 3, 1 array\n  /x (10, 8) float32: 4 chunks (5, 4); bytes\n" in text
    assert "s3://data/2.zarr: Zarr 2, 1 array\n  /g/x (10, 8) float32: 4 chunks (5, 4)\n" in text
    assert "s3://data/plain.zarr/x: Zarr 2, 1 array\n" in text
    assert text.count("[0] of /") == 3
    assert "1 file, " in text


def test_a_scalar_array_and_an_empty_selection_take_what_they_take():
    scalar = Array("/s", (), "float64", 8, (), (), (), 1, 8)
    assert count_requests(scalar, ()) == 1
    empty = Array("/e", (10,), "float64", 8, (5,), (), (), 2, 80)
    assert count_requests(empty, ((3, 3, 1),)) == 0
