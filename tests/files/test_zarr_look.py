"""Looking at Zarr stores, references and Icechunk repositories: what is listed, and the requests that read them."""

import functools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import h5py
import pytest
from conftest import ROOT, artefact, program

from sbench.build import interpreters
from sbench.files import buckets, look, zarr_stores
from sbench.files.chunking import list_places
from sbench.files.zarr_arrays import Array
from sbench.files.zarr_look import LookedStore
from sbench.files.zarr_requests import Requests, forecast_requests
from sbench.files.zarr_stores import read_store
from sbench.probe.formats import ZARR
from sbench.probe.program import Problem
from sbench.probe.zarr_shards import compute_crc32c
from sbench.studies.shots.accesses import parse_accesses

LEVELS = ["[0]", "[:, 10, 20]", "[0:20, 0:20, 0:15]", "[:]", "[3:41:13]", "[::20, 40:, 29]", "[12:13, :, 0:8]", "[45:]"]
# Chunks that are far apart in a shard.
LEVELS += ["[0, ::12, 0]", "[0:20, 0:36, 0]"]
# Offset and size of a chunk that is not in its shard.
_EMPTY = 2**64 - 1
SHARDING = {"name": "sharding_indexed", "configuration": {"chunk_shape": [5, 4], "codecs": [{"name": "zstd"}]}}
CLIENTS = str(ROOT / "tests/helpers/zarr_clients.py")
ZARRAY = {"zarr_format": 2, "shape": [10, 8], "chunks": [5, 4], "dtype": "<f4", "compressor": None, "filters": None}
ZARRAY |= {"fill_value": 0, "order": "C"}
NODE = {"zarr_format": 3, "node_type": "array", "shape": [10, 8], "data_type": "float32", "fill_value": 0}
NODE |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 4]}}, "codecs": [{"name": "bytes"}]}


SHARDED = NODE | {"codecs": [SHARDING]}
SHARDED |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 8]}}}


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


def write_shard(path: Path, ranges: list[tuple[int, int]]) -> None:
    """Write a shard with chunks of zeros at these (begin, size), and its index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    index = b"".join(struct.pack("<QQ", *span) for span in ranges)
    path.write_bytes(bytes(sum(size for begin, size in ranges if begin < _EMPTY)) + index + pack_checksum(index))


def pack_checksum(data: bytes) -> bytes:
    return struct.pack("<I", compute_crc32c(data))


def describe(path: Path, access: str = "", *patterns: str) -> str:
    looked = LookedStore(read_store(path), parse_accesses(access) if access else None, patterns)
    return "\n".join([*looked.format_lines(), *looked.list_conclusions()])


@pytest.fixture(params=["", "3.13"], ids=["zarr-before-3.3", "zarr-3.3-and-later"])
def readers(request: pytest.FixtureRequest, once: Callable, with_readers: Path) -> tuple[str, bool]:
    """Return a Python with zarr and icechunk, and whether this zarr merges requests, which needs Python 3.12."""
    if not request.param:
        return artefact(with_readers / "readers.json")["python"], False
    try:
        interpreters.find_python(request.param)
    except Problem as problem:
        pytest.skip(str(problem))

    def build(folder: Path) -> None:
        spec = {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock", "python": request.param}
        done = program("build_library", "--library", "x", "--spec", json.dumps(spec), "--out", folder / "readers.json")
        assert done.returncode == 0, done.stderr

    return artefact(once(f"readers-{request.param}", build) / "readers.json")["python"], True


def look_with(python: str, *arguments: object, **env: str) -> subprocess.CompletedProcess:
    """Run sbench look with a Python that has icechunk."""
    words = [python, "-m", "sbench.cli", "look", *map(str, arguments)]
    variables = dict(os.environ) | {"PYTHONPATH": str(ROOT / "scripts")} | env
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


def count_by_part(rows: list[dict]) -> dict[tuple[str, str], list[Counter]]:
    """Count the requests for chunks by client and array, in the order of the parts."""
    counted: dict[tuple[str, str], list[Counter]] = {}
    part: Counter = Counter()
    for row in sorted(rows, key=lambda row: row["begin"]):
        _, _, key = urllib.parse.unquote(row["path"]).lstrip("/").partition("/")
        if key.startswith("marker"):
            part = Counter()
            if key != "marker":
                _, client, name, _ = key.split(" ", 3)
                counted.setdefault((client, name), []).append(part)
        elif key.rpartition("/")[2] not in ZARR and "/manifests/" not in key:
            part[row["method"]] += 1
    return counted


@pytest.mark.late
def test_forecast_requests_are_counted(tmp_path: Path, readers: tuple[str, bool]):
    python, is_merged = readers
    folder = tmp_path / "data"
    subprocess.run([python, CLIENTS, "write", folder, "data"], check=True)
    with buckets.serve_buckets({"data": folder}, {}) as served:
        env = buckets.build_environment(os.environ, served.variables)
        subprocess.run([python, CLIENTS, "read", json.dumps(LEVELS)], check=True, env=env)
        counted = count_by_part(served.read_requests().passed["exchanges"])
        remote = look_with(python, "s3://data/icechunk", "--json", "--access", "; ".join(LEVELS), **served.variables)
    assert remote.returncode == 0, remote.stderr
    forecasts = {}
    for name in ("v3", "v2", "shards", "large", "references.json"):
        store = read_store(folder / name)
        (array,) = store.arrays
        forecast = [
            functools.reduce(
                Requests.add, [forecast_requests(array, spans) for spans in list_places(array.kind, level)]
            )
            for level in LEVELS
        ]
        for client in ("s3fs", "obstore") if store.has_heads else ("references",):
            heads = [part.heads * (client == "s3fs") for part in forecast]
            forecasts[client, name] = [
                (part.gets, part.merged, head) for part, head in zip(forecast, heads, strict=True)
            ]
        assert all(part.is_exact for part in forecast)
        assert array.objects == array.largest or name == "references.json"
    for name in ("icechunk", "icechunk-of-disk"):
        done = look_with(python, folder / name, "--json", "--access", "; ".join(LEVELS))
        assert done.returncode == 0, done.stderr
        (store,) = json.loads(done.stdout)["stores"]
        if name == "icechunk":
            (of_bucket,) = json.loads(remote.stdout)["stores"]
            assert of_bucket["arrays"] == store["arrays"]
        for array in store["arrays"]:
            parts = [array["requests"][level] for level in LEVELS]
            forecasts[name, array["name"].removeprefix("/g/")] = [(part["gets"], part["merged"], 0) for part in parts]
    assert counted.keys() == forecasts.keys()
    for key, forecast in forecasts.items():
        expected = [(merged if is_merged else gets, heads) for gets, merged, heads in forecast]
        assert expected == [(part["GET"], part["HEAD"]) for part in counted[key]], key
    # A shard has more than 16 MiB, and chunks that are more than 1 MiB apart.
    large = dict(zip(LEVELS, forecasts["obstore", "large"], strict=True))
    assert large["[0]"][:2] == (22, 4)
    assert large["[0, ::12, 0]"][:2] == (5, 5)


def test_a_store_is_listed_with_its_arrays(tmp_path: Path):
    folder = tmp_path / "a.zarr"
    write_store(folder / "x", {"c/0/0": 80, "c/1/1": 80}, **{"zarr.json": NODE})
    write_store(folder / "s", {}, **{"zarr.json": SHARDED})
    write_shard(folder / "s/c/0/0", [(0, 80), (80, 80), (160, 80), (240, 80)])
    write_store(folder, {}, **{"zarr.json": {"zarr_format": 3, "node_type": "group"}})
    text = describe(folder, "[0]")
    assert f"{folder}: Zarr 3, 2 arrays, 548 B in 3 objects; metadata not consolidated\n" in text
    assert "  /x (10, 8) float32: 4 chunks (5, 4) of 80 B, 2 of 4 written; bytes\n" in text
    assert "  /s (10, 8) float32: 1 shard (10, 8) of 388 B, with chunks (5, 4); zstd\n" in text
    # Two chunks of x; the index and two chunks of s.
    assert "[0] of 2 arrays: 5 GETs of chunks (4 with zarr 3.3 and later, and 2 HEADs with s3fs), about" in text
    # The second chunk of the shard is between the first and the third.
    column = "[:, 0] of /s: 3 GETs of chunks (2 with zarr 3.3 and later, which fetch 80 B between chunks), about"
    assert column in describe(folder, "[:, 0]", "/s")
    assert "[0] of /x: 2 GETs of chunks (and 2 HEADs with s3fs), about 160 B for 32 B in memory." in describe(
        folder, "[0]", "/x"
    )
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
    assert (
        "[:, 0, 0] of /: 1,000 GETs of chunks (and 1,000 HEADs with s3fs), about 381.5 MiB for 3.906 KiB in memory."
        in text
    )
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
        (NODE | {"shape": [10]}, r"Zarr 3 metadata: chunks \(5, 4\) do not fit the shape \(10,\); write"),
        (
            SHARDED | {"chunk_grid": NODE["chunk_grid"] | {"configuration": {"chunk_shape": [10, 6]}}},
            r"chunks \(5, 4\) in shards \(10, 6\) do not fit",
        ),
    ],
)
def test_metadata_that_cannot_be_read_are_one_line(tmp_path: Path, node: object, line: str):
    with pytest.raises(Problem, match=line):
        read_store(write_store(tmp_path / "f", {}, **{"zarr.json": node}))


WRONG = [None, 0, -1, 2.5, 10**12, 2**70, True, "", "x", "../", [], [0], ["x"], [10**12, 8], 70 * [1], {}, {"name": 1}]
V2_KEYS = SHARDED | {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}}
CONSOLIDATED = {"metadata": {".zgroup": {"zarr_format": 2}, "x/.zarray": ZARRAY | {"compressor": {"id": "zstd"}}}}
REFERENCES = {
    "version": 1,
    "refs": {"x/.zarray": json.dumps(ZARRAY), "x/0.0": ["a.h5", 10, 20], "x/0.1": ["b.h5"], "x/1.0": "base64:AAAA"},
}
MUTATED = {
    "array": (".zarray", ZARRAY | {"filters": [{"id": "delta"}], "dtype": [["a", "<f4"], ["b", "<i4", [2]]]}),
    "parquet": (".zmetadata", CONSOLIDATED | {"record_size": 10}),
    "node": ("zarr.json", NODE | {"data_type": {"name": "f", "configuration": {"length_bytes": 12}}}),
    "sharded": ("zarr.json", SHARDED),
    "keys": ("zarr.json", V2_KEYS),
    "references": ("refs.json", REFERENCES),
}


def mutate(value: object, wrong: object) -> Iterator[object]:
    """Yield a value with one of its parts replaced, or removed, for each part."""
    yield wrong
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for part in mutate(value[key], wrong):
            yield value | {key: part} if isinstance(value, dict) else [*value[:key], part, *value[key + 1 :]]
        if isinstance(value, dict):
            yield {name: part for name, part in value.items() if name != key}


@pytest.mark.parametrize("name", MUTATED)
def test_metadata_with_a_wrong_type_are_read_or_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, name: str):
    file, data = MUTATED[name]
    (tmp_path / "s/c/0").mkdir(parents=True)
    write_shard(tmp_path / "s/c/0/0", [(0, 80), (80, 80), (160, 80), (240, 80)])
    shutil.copy(tmp_path / "s/c/0/0", tmp_path / "s/0.0")
    place, refused = str(tmp_path / "s/refs.json" if file == "refs.json" else tmp_path / "s"), []
    for changed in (changed for wrong in WRONG for changed in mutate(data, wrong)):
        (tmp_path / "s" / file).write_text(json.dumps(changed), encoding="utf-8")
        try:
            look.print_contents([place], "[0]; 1/2", [])
        except Problem as problem:
            refused.append(str(problem))
    assert refused
    (tmp_path / "s" / file).write_text(100_000 * '{"refs":', encoding="utf-8")
    with pytest.raises(Problem, match="is not valid JSON"):
        look.print_contents([place], "", [])


@pytest.mark.parametrize("separator", ["../", "/../../outside/", "//", "\\", "", "\0", 1, None, ["/"]])
def test_keys_of_chunks_stay_below_the_store(tmp_path: Path, separator: object):
    for name in ("default", "v2"):
        node = SHARDED | {"chunk_key_encoding": {"name": name, "configuration": {"separator": separator}}}
        with pytest.raises(Problem, match=r"zarr.json .*: the separator of the keys of chunks must be / or \. \(got"):
            read_store(write_store(tmp_path / "s", {}, **{"zarr.json": node}))


@pytest.mark.parametrize("name", ["c/0/0", "zarr.json"])
def test_a_pipe_in_a_store_is_not_waited_for(tmp_path: Path, name: str):
    store = write_store(tmp_path / "s", {"c/0/1": 1}, **{"zarr.json": SHARDED})
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name)
    done = subprocess.run(
        [sys.executable, "-m", "sbench.cli", "look", store, "--access", "[0]"],
        **{
            "env": os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
            "timeout": 60,
            "capture_output": True,
            "text": True,
        },
        check=False,
    )
    assert (done.returncode, done.stderr.count("problem: ")) == (2, 1)
    assert f"{store / name} is a folder, a pipe or a device" in done.stderr


@pytest.mark.parametrize("reference", [None, 7, [], [1], ["a.h5", 1], ["a.h5", "1", 2], ["a.h5", 0, -1], [["a"], 0, 1]])
def test_a_reference_that_is_none_is_one_line(tmp_path: Path, reference: object):
    references = REFERENCES["refs"] | {"x/1.1": reference}
    (tmp_path / "refs.json").write_text(json.dumps({"refs": references}), encoding="utf-8")
    with pytest.raises(Problem, match=r"refs.json: x/1.1 must be a text or \[file, offset, size\]; write"):
        read_store(tmp_path / "refs.json")


def test_metadata_that_are_not_of_zarr_2_are_one_line(tmp_path: Path):
    for node, line in (
        ({"shape": [1]}, "Zarr 2 metadata: 'dtype' is missing"),
        (ZARRAY | {"dtype": "nope"}, "nope"),
        (ZARRAY | {"chunks": [5, 0]}, r"\(5, 0\) do not fit"),
    ):
        with pytest.raises(Problem, match=line):
            read_store(write_store(tmp_path / "g", {}, **{".zarray": node}))
    (tmp_path / "h/snapshots").mkdir(parents=True)
    (tmp_path / "h/manifests").mkdir()
    with pytest.raises(
        Problem, match=r"h is an Icechunk repository, which only icechunk reads; install it: .* -m pip install"
    ):
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
    assert (result["files"], result["stores"][0]["arrays"][0]["requests"]) == (
        1,
        {"[0]": {"gets": 2, "merged": 2, "heads": 2, "is_exact": True, "gaps": 0}},
    )


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
    write_store(tmp_path / "data/apart2.zarr", {}, **{".zgroup": {"zarr_format": 2}, "x/.zarray": ZARRAY})
    write_store(tmp_path / "data/sharded.zarr", {}, **{"zarr.json": SHARDED})
    write_store(tmp_path / "data/repository", {"refs/branch.main/ref.json": 1, "snapshots/a": 1})
    with buckets.serve_buckets({"data": tmp_path / "data"}, {}) as served:
        for name, value in served.variables.items():
            monkeypatch.setenv(name, value)
        # The session of a process keeps the keys that another test has set.
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        names = ("3.zarr", "2.zarr", "plain.zarr/x", "a.h5", "sharded.zarr")
        look.print_contents([f"s3://data/{name}" for name in names], "[0]", [])
        for name in ("apart.zarr", "apart2.zarr"):
            with pytest.raises(Problem, match=f"s3://data/{name}: the metadata of its arrays are not consolidated"):
                look.print_contents([f"s3://data/{name}"], "", [])
        with pytest.raises(Problem, match="s3://data/repository is an Icechunk repository, which only icechunk"):
            look.print_contents(["s3://data/repository"], "", [])
        with pytest.raises(Problem, match="s3://data/nothing"):
            look.print_contents(["s3://data/nothing"], "", [])
    text = capsys.readouterr().out
    assert "s3://data/3.zarr: Zarr 3, 1 array\n  /x (10, 8) float32: 4 chunks (5, 4); bytes\n" in text
    assert "s3://data/2.zarr: Zarr 2, 1 array\n  /g/x (10, 8) float32: 4 chunks (5, 4)\n" in text
    assert "s3://data/plain.zarr/x: Zarr 2, 1 array\n" in text
    assert text.count("[0] of /") == 4
    # Its index is not read.
    assert "[0] of /: 3 GETs of chunks (at least 2 with zarr 3.3 and later), about" in text
    assert "1 file, " in text


def test_a_scalar_array_and_an_empty_selection_take_what_they_take():
    scalar = Array("/s", (), "float64", 8, (), (), (), 1, 8)
    assert forecast_requests(scalar, ()).gets == 1
    empty = Array("/e", (10,), "float64", 8, (5,), (), (), 2, 80)
    assert forecast_requests(empty, ((3, 3, 1),)).gets == 0


def test_the_checksum_is_the_one_of_the_standard():
    # RFC 3720, section B.4, and the check value of the catalogues of CRCs.
    assert compute_crc32c(bytes(32)) == 0x8A9136AA
    assert compute_crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("where", ["end", "start"])
def test_chunks_that_are_not_in_a_shard_take_no_request(tmp_path: Path, where: str):
    codecs = [{"name": "bytes", "configuration": {"endian": "little" if where == "end" else "big"}}]
    configuration = SHARDING["configuration"] | {"index_location": where, "index_codecs": codecs}
    node = SHARDED | {"shape": [10, 16], "codecs": [SHARDING | {"configuration": configuration}]}
    folder = write_store(tmp_path / "s", {}, **{"zarr.json": node})
    (folder / "c/0").mkdir(parents=True)
    ranges = [64 * (where == "start"), 80, _EMPTY, _EMPTY, 64 * (where == "start") + 80, 80, _EMPTY, _EMPTY]
    index, chunks = struct.pack("<8Q" if where == "end" else ">8Q", *ranges), bytes(160)
    (folder / "c/0/0").write_bytes(index + chunks if where == "start" else chunks + index)
    # The index and a chunk of the first shard; the index of the second, which is not there.
    assert "[0] of /: 3 GETs of chunks, about" in describe(folder, "[0]")


@pytest.mark.parametrize(
    "change, line",
    [
        (lambda data: data[:30], "c/0/0: the index of the shard is cut to 30 of 68 bytes; copy or download it again"),
        (lambda data: data[:-5], "c/0/0: the index of the shard has a wrong checksum; copy or download it again"),
        (lambda data: data[:-1] + b"?", "c/0/0: the index of the shard has a wrong checksum"),
    ],
)
def test_a_shard_with_a_bad_index_is_one_line(
    tmp_path: Path, change: Callable[[bytes], bytes], line: str, capsys: pytest.CaptureFixture
):
    folder = write_store(tmp_path / "s", {}, **{"zarr.json": SHARDED})
    write_shard(folder / "c/0/0", [(0, 80), (80, 80), (160, 80), (240, 80)])
    path = folder / "c/0/0"
    path.write_bytes(change(path.read_bytes()))
    for access in ("", "[0]"):
        with pytest.raises(Problem, match=line):
            look.print_contents([str(folder)], access, [])
    assert "s: Zarr 3, 1 array" in capsys.readouterr().out


def test_references_to_files_that_are_gone_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture):
    here = tmp_path / "here.bin"
    here.write_bytes(bytes(80))
    references = {"x/.zarray": json.dumps(ZARRAY | {"dimension_separator": "/"})}
    files = (f"file://{here}", f"{tmp_path}/gone.bin", f"{tmp_path}/lost.bin", "s3://bucket/remote.bin")
    references |= {f"x/{number // 2}/{number % 2}": [file, 0, 80] for number, file in enumerate(files)}
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(references), encoding="utf-8")
    with pytest.raises(Problem, match=r"refs.json refers to .*gone.bin and 1 more, which do not exist; restore them"):
        look.print_contents([str(path)], "[0]", [])
    text = capsys.readouterr().out
    assert "1 array, 320 B in 4 objects, references to 4 files" in text
    assert "[0] of /x: 2 GETs" in text


@pytest.mark.late
@pytest.mark.parametrize("lost", ["snapshots", "manifests", "refs"])
def test_an_icechunk_repository_without_some_files_is_one_line(
    tmp_path: Path, readers: tuple[str, bool], once: Callable, lost: str
):
    python, is_new = readers
    folder = once(
        f"icechunk-{is_new}", lambda folder: subprocess.run([python, CLIENTS, "write", folder, "b"], check=True)
    )
    # icechunk 2 keeps branches in the file repo.
    name = "repo" if is_new and lost == "refs" else lost
    left_out = [path.name for path in (folder / "icechunk" / name).glob("**/*") if path.is_file()] or [name]
    shutil.copytree(folder / "icechunk", tmp_path / "bad", ignore=lambda *_: left_out)
    (tmp_path / "bad/manifests").mkdir(exist_ok=True)
    done = look_with(python, tmp_path / "bad")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("read in")]
    assert line.startswith(f"problem: {tmp_path}/bad cannot be read as an Icechunk repository: ")
    assert ("doesn't exist" if lost == "refs" else f"{lost}/") in line
    assert line.endswith("restore what is missing, or copy the repository again")


@pytest.mark.late
def test_an_icechunk_repository_is_listed(tmp_path: Path, readers: tuple[str, bool], once: Callable):
    python, is_new = readers
    folder = once(
        f"icechunk-{is_new}", lambda folder: subprocess.run([python, CLIENTS, "write", folder, "b"], check=True)
    )
    done = look_with(python, folder / "icechunk", "--access", "[0]", "--datasets", "/g/own", "/g/virtual", "/g/inlined")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Icechunk, 5 arrays, .* references to 1 file, branch main, snapshot [0-9A-Z]{20}; ", done.stdout)
    assert "; chunks: 1,230 inline, 40 native, 5 virtual; 5 manifests of " in done.stdout
    assert "/g/own (50, 41, 30) float64: 25 chunks (12, 10, 30) of " in done.stdout
    assert ", 20 of 25 written; bytes, zstd" in done.stdout
    assert re.search(
        r"/g/shards \(50, 41, 30\) float64: 18 shards \(20, 20, 15\) of .*, with chunks \(5, 10, 5\)", done.stdout
    )
    # Inlined chunks take no request.
    assert "[0] of 3 arrays: 6 GETs of chunks, about" in done.stdout
    assert "are small and many" not in done.stdout
    assert "configuration requests objects in parts" not in done.stdout
    of_disk = look_with(python, folder / "icechunk-of-disk").stdout
    assert ("configuration requests objects in parts of 4 KiB, up to 5 for each" in of_disk) == is_new


MANY = """
import sys
import icechunk, numpy, zarr
repository = icechunk.Repository.create(icechunk.local_filesystem_storage(sys.argv[1]))
session = repository.writable_session("main")
group = zarr.group(store=session.store)
group.create_array("a", shape=(20_001,), dtype="f8", chunks=(1,), compressors=None)
specs = [icechunk.VirtualChunkSpec(index=[i], location="s3://b/x", offset=i, length=8) for i in range(20_001)]
session.store.set_virtual_refs("a", specs, validate_containers=False)
group.create_array("b", shape=(100,), dtype="f8", chunks=(100,))[:] = numpy.ones(100)
session.commit("write")
"""


@pytest.mark.late
def test_chunks_of_large_icechunk_arrays_are_not_looked_up_one_by_one(tmp_path: Path, readers: tuple[str, bool]):
    subprocess.run([readers[0], "-c", MANY, tmp_path / "many"], check=True)
    done = look_with(readers[0], tmp_path / "many", "--access", "[0:3000]", "--datasets", "/a")
    assert done.returncode == 0, done.stderr
    assert "; chunks: 1 inline, 20,001 not examined; " in done.stdout
    assert "  /a (20001,) float64: 20,001 chunks (1,); bytes\n" in done.stdout
    assert "[0:3000] of /a: 3,000 GETs of chunks, about 23.44 KiB for 23.44 KiB in memory." in done.stdout
    assert "Of arrays with many chunks (20,001), no sizes were read" in done.stdout
