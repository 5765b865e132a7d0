"""Mistakes in a configuration: each is one line that names the file, the key and the remedy."""

import copy
import math
import os
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from sbench.design import config as configuration
from sbench.design import matrix, schema
from sbench.drivers import list_readers
from sbench.probe.program import Problem

# What says where published data are configures no run.
CONFIGS = sorted(set((ROOT / "config").glob("*.yaml")) - {ROOT / "config/published.yaml"})


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)


def changed(change) -> dict:
    values = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    values = copy.deepcopy(values)
    change(values)
    return values


def row(values: dict) -> dict:
    return values["studies"]["shots"]["matrix"][0]


def volumes(values: dict) -> dict:
    return values["studies"]["volumes"]


def blobs(values: dict) -> dict:
    return values["studies"]["blobs"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_obeys_the_schema(path):
    assert configuration.load_config(path)["run"]


def test_every_key_of_the_schema_is_described():
    def keys(node: dict, place: str = ""):
        for name, child in node.get("properties", {}).items():
            yield f"{place}.{name}", child
            yield from keys(child, f"{place}.{name}")
        for variant in node.get("oneOf", []):
            yield from keys(variant, place)
        if isinstance(node.get("additionalProperties"), dict):
            yield from keys(node["additionalProperties"], f"{place}.*")

    rules = schema.read_schema()
    known = [*keys(rules), *[pair for name, part in rules["$defs"].items() for pair in keys(part, name)]]
    undescribed = [place for place, child in known if not {"description", "$ref", "const"} & child.keys()]
    assert len(known) > 40
    assert undescribed == []


@pytest.mark.parametrize(
    "change, line",
    [
        (lambda c: c.update(repeat=3), "repeat: unknown key; did you mean repeats?"),
        (lambda c: row(c).update(page_bufer=["0"]), "matrix[0].page_bufer: unknown key; did you mean page_buffer?"),
        (lambda c: row(c).update(page_buffer=[0]), "matrix[0].page_buffer[0]: 0 is not of type string; quote it"),
        (lambda c: row(c).update(page_buffer=["64MB"]), "matrix[0].page_buffer[0]: '64MB' is not valid"),
        (lambda c: row(c).update(workers=["2y"]), "matrix[0].workers[0]: '2y' is not valid"),
        (lambda c: row(c).update(driver="sec2"), "matrix[0].driver: 'sec2' is not of type array"),
        (
            lambda c: row(c).update(driver=["sec3"]),
            f"matrix[0].driver[0]: 'sec3' is not one of {', '.join(list_readers())}",
        ),
        (lambda c: row(c).pop("driver"), "matrix[0]: driver is missing"),
        (
            lambda c: row(c).update(library=["x"]),
            "matrix[0].library: 'x' is not defined in libraries; known: hdf5-1.14.6",
        ),
        (
            lambda c: c["libraries"].update(mine={"kind": "conda", "hdf5": "2.0.0"}),
            "libraries.mine: envs/mine.yaml does not exist; conda creates the environment from it",
        ),
        (lambda c: row(c).update(store=["x"]), "matrix[0].store: 'x' is not defined in stores; known: disk, s3"),
        (lambda c: c["stores"]["s3"].update(kind="s4"), "stores.s3.kind: 's4' is not one of "),
        (lambda c: c["stores"]["s3"].update(buket="b"), "stores.s3.buket: unknown key; did you mean bucket?"),
        (lambda c: c["stores"]["s3"]["network"].update(latency_ms="20"), "latency_ms: '20' is not of type integer"),
        (
            lambda c: c["stores"]["s3"]["network"].update(bandwidth_mib_s=50),
            "network.bandwidth_mib_s: unknown key; per_connection_mib_s limits each connection, shared_mib_s all",
        ),
        (
            lambda c: c["stores"]["s3"].update(endpoint="http://a"),
            "stores.s3: server and endpoint exclude each other; remove one of them",
        ),
        (lambda c: c["stores"]["s3"].pop("server"), "stores.s3: network requires server (embedded: an"),
        (
            lambda c: c["libraries"].update(servers={"kind": "wheel", "hdf5": "2.0.0"}),
            "libraries: 'servers' is a reserved name; choose another",
        ),
        (
            lambda c: c["libraries"].update(mine={"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/mine.lock"}),
            "libraries.mine.lock: envs/mine.lock does not exist; correct the path, or run make lock",
        ),
        (lambda c: c["stores"]["disk"].pop("kind"), "stores.disk: kind is missing"),
        (lambda c: c["libraries"]["hdf5-2.0.0"].update(hdf5=2.0), "hdf5: 2.0 is not of type string; quote it"),
        (lambda c: c.update(seed="a"), "seed: 'a' is not of type integer"),
        (
            lambda c: c.update(repeats=6.0),
            "repeats: 6.0 is not of type integer; write 6 (Number of measurements of each cell",
        ),
        (
            lambda c: c["studies"]["shots"].update(control_cells=1.0),
            "control_cells: 1.0 is not of type integer; write 1",
        ),
        (lambda c: blobs(c).update(ceiling_rounds=1.0), "ceiling_rounds: 1.0 is not of type integer; write 1"),
        (lambda c: blobs(c).update(iterations=2.0), "iterations: 2.0 is not valid; write 2 (Number of iterations"),
        (lambda c: blobs(c)["data"].update(objects=2.0), "data.objects: 2.0 is not valid; write 2 (Number of objects"),
        (lambda c: blobs(c)["matrix"][0].update(processes=[2.0]), "processes[0]: 2.0 is not of type integer; write 2"),
        (lambda c: row(c).update(workers=[2.0]), "workers[0]: 2.0 is not valid; write 2 (Number of Dask workers"),
        (lambda c: c["studies"]["shots"].update(time_limit_s=math.nan), "time_limit_s: nan is not of type number (T"),
        (lambda c: blobs(c).update(time_limit_s=math.inf), "time_limit_s: inf is not valid (Time limit of a cell"),
        (lambda c: c["stores"]["disk"].update(path=""), "stores.disk.path: '' should be non-empty (A folder on"),
        (lambda c: c.update(run="a/b"), "run: 'a/b' is not valid (Name of the run and of its folders of results"),
        (
            lambda c: c.update(run="a/b"),
            "at most 100 letters, digits, dots, hyphens and underscores, starting with a letter",
        ),
        (lambda c: c["stores"]["s3"].update(bucket="My_Bucket"), "bucket: 'My_Bucket' is not valid (Name of the"),
        (lambda c: c["stores"]["s3"].update(bucket="My_Bucket"), "lower-case letters, digits, dots and hyphens"),
        (
            lambda c: c["stores"].update({"my disk": {"kind": "posix"}}),
            "stores: 'my disk' is not valid (A store's name: letters, digits, dots, hyphens and underscores",
        ),
        (lambda c: c.pop("run"), "run is missing"),
        (lambda c: c.update(run="published"), "run: 'published' is a reserved name; choose another"),
        (lambda c: c["studies"].update(shot={}), "studies.shot: unknown key; did you mean shots?"),
        (
            lambda c: c["studies"]["shots"].update(compare=[{"factor": "libary", "baseline": 1}]),
            "compare[0].factor: 'libary' is not a factor of shots; known: library,",
        ),
        (
            lambda c: volumes(c)["matrix"].update(job=["etc"]),
            "studies.volumes.matrix.job: config/fio/etc.fio does not exist; known: ",
        ),
        (
            lambda c: volumes(c).update(limits=["etc"]),
            "volumes.limits[0] must be one of etcd, etcd-commit, openshift (got 'etc')",
        ),
        (lambda c: volumes(c).update(limits=[{"name": "own", "p99_ms": 5}]), "limits[0]: source is missing"),
        (
            lambda c: c["stores"]["disk"].update(volume={"type": "gp4"}),
            "stores.disk.volume.type must be one of gp2, gp3",
        ),
        (lambda c: c["stores"]["disk"].update(volume={"size_gib": 1}), "stores.disk.volume: type is missing"),
        (
            lambda c: volumes(c)["matrix"].update(background=["none", "other"]),
            "studies.volumes.other must name the store of the background load: disk, s3",
        ),
        (
            lambda c: volumes(c).update(other="x"),
            "studies.volumes.other: 'x' is not defined in stores; known: disk, s3",
        ),
        (lambda c: volumes(c).update(background_job="x"), "background_job: config/fio/x.fio does not exist"),
        (lambda c: volumes(c).pop("matrix"), "studies.volumes"),
        (
            lambda c: c["stores"].update(raw={"kind": "posix", "device": "/dev/vdb"}),
            "stores.raw: device requires erase (true: the contents of the device may",
        ),
        (lambda c: c.update(only={"libary": ["x"]}), "only.libary: no study of this run has this factor"),
        (lambda c: c.update(only={"library": ["x"]}), "only.library: 'x' is not a level of library"),
        (lambda c: c.update(run="a\n"), "run: 'a\\n' has the control character '\\n'; remove it"),
        (
            lambda c: c["stores"]["s3"].update(bucket="shots\n"),
            "stores.s3.bucket: 'shots\\n' has the control character",
        ),
        (
            lambda c: c["libraries"].update({"a\n": {"kind": "wheel", "hdf5": "2.0.0"}}),
            "libraries.a\\n: 'a\\n' has the",
        ),
        (lambda c: c["libraries"]["hdf5-2.0.0"].update(hdf5="2.0.0\0"), "hdf5: '2.0.0\\x00' has the control character"),
        (lambda c: c.update(run="\udcff"), "run: '\\udcff' has the control character"),
        (lambda c: c.update(run="r" * 300), "run: 'rrrrr"),
        (lambda c: c.update(run="r" * 300), "… is too long (Name of the run and of its folders of results"),
        (lambda c: c.update(run=".."), "run: '..' is not valid"),
        (lambda c: c["stores"].update({"-rf": {"kind": "posix"}}), "stores: '-rf' is not valid (A store's name"),
        (
            lambda c: c["libraries"].update({"l" * 300: {"kind": "wheel", "hdf5": "2.0.0"}}),
            "… is too long (A library's",
        ),
        (lambda c: volumes(c).update(background_job="../etcd"), "background_job: '../etcd' is not valid"),
        (lambda c: c.update(repeats=999_999_999_999), "999999999999 is greater than the maximum of 1000 (Number"),
        (lambda c: c.update(seed=10**50), "0 is greater than the maximum of 4294967295 (Seed of"),
        (lambda c: row(c).update(workers=[10**6]), "workers[0]: 1000000 is greater than the maximum of 4096 (Number"),
        (lambda c: row(c).update(workers=["100x"]), "workers[0]: '100x' is not valid (Number of Dask workers"),
        (lambda c: row(c).update(workers=[1, 1]), "matrix[0].workers: [1, 1] has non-unique elements"),
        (lambda c: row(c).update(page_buffer=["9999999GiB"]), "page_buffer[0]: '9999999GiB' is not valid"),
        (
            lambda c: blobs(c)["matrix"][0].update(size=["9999999TiB"]),
            "size[0]: '9999999TiB' is not valid (A size",
        ),
        (
            lambda c: blobs(c)["matrix"][0].update(processes=[10**6]),
            "processes[0]: 1000000 is greater than the maximum",
        ),
        (lambda c: blobs(c).update(iterations=10**9), "iterations: 1000000000 is greater than the maximum"),
        (lambda c: blobs(c).update(time_limit_s=1e300), "time_limit_s: 1e+300 is greater than the maximum of 2592000"),
        (lambda c: volumes(c).update(jobs=10**9), "volumes.jobs: 1000000000 is greater than the maximum of 650 (Runs"),
        (
            lambda c: c["studies"]["shots"].update(time_limit_s=1e300),
            "time_limit_s: 1e+300 is greater than the maximum",
        ),
        (lambda c: c["studies"]["shots"]["data"].update(shots=10**9), "data.shots: 1000000000 is greater than the max"),
        (
            lambda c: c["studies"]["shots"]["data"].update(signals=24),
            "studies.shots.read_signals: must be among the 24 generated signals (got mag_ip); choose from",
        ),
        (
            lambda c: volumes(c).update(imports=[f"imports/{number}.json" for number in range(5000)]),
            "the configuration: must have at most 100,000 characters as JSON, to fit into a command;",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(change, line):
    with pytest.raises(Problem) as caught:
        configuration.resolve_config(changed(change), [])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, line",
    [
        ("run: on", "run: YAML reads on as True; quote it"),
        ("repeats: 010", "repeats: YAML reads 010 as 8; quote it"),
        ("libraries: {a: {kind: wheel, hdf5: 3.10}}", "libraries.a.hdf5: YAML reads 3.10 as 3.1; quote it"),
        ("libraries: {3.10: {kind: wheel, hdf5: '3.10'}}", "libraries.3.10: YAML reads 3.10 as 3.1; quote it"),
        (
            "studies: {shots: {matrix: {workers: [1_0]}}}",
            "workers[0]: YAML reads 1_0 as 10; quote it, or write 10 for a number",
        ),
        ("only: {1: [a]}", "only.1: YAML reads 1 as 1; quote it"),
        ("repeats: 1\nrepeats: 7", ":2: repeats repeats the key of line 1; keep one of them"),
        ("stores: {a: {kind: posix}, a: {kind: s3}}", "stores.a repeats the key of line 1; keep one of them"),
        ("libraries: &a {b: *a}", "must have at most 32 levels of nesting, and no alias to itself"),
        ("libraries: &a {<<: *a}", "must have at most 32 levels of nesting, and no alias to itself"),
        ("only: [&a [*a]]", "must have at most 32 levels of nesting, and no alias to itself"),
    ],
)
def test_what_yaml_makes_of_a_level_is_refused(tmp_path: Path, text, line):
    file = tmp_path / "c.yaml"
    file.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(Problem) as caught:
        configuration.load_config(file)
    assert str(caught.value).startswith(f"{file}:")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_yaml_is_one_line(tmp_path: Path):
    with pytest.raises(Problem, match="cannot be read: No such file"):
        configuration.load_config(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("run: [\n", encoding="utf-8")
    with pytest.raises(Problem, match=r"is not valid YAML \(line 2\)"):
        configuration.load_config(tmp_path / "bad.yaml")
    (tmp_path / "month.yaml").write_text("run: 2026-13-01\n", encoding="utf-8")
    with pytest.raises(Problem, match="is not valid YAML: month must be in"):
        configuration.load_config(tmp_path / "month.yaml")
    for text in ("!!timestamp x", '!!timestamp "x"', "!!bool x", '!!int ""'):
        (tmp_path / "tag.yaml").write_text(f"run: {text}\n", encoding="utf-8")
        with pytest.raises(Problem, match=r"tag\.yaml:1: run: YAML cannot read '.*' as \w+; correct it, or quote it"):
            configuration.load_config(tmp_path / "tag.yaml")
    (tmp_path / "latin.yaml").write_bytes("run: a\n# für\n".encode("latin-1"))
    with pytest.raises(Problem, match="is not UTF-8 at line 2; save it as UTF-8"):
        configuration.load_config(tmp_path / "latin.yaml")


def test_a_value_of_any_length_takes_little_of_a_line():
    with pytest.raises(Problem) as caught:
        configuration.resolve_config(changed(lambda c: row(c).update(driver={f"d{n}": n for n in range(3000)})), [])
    assert len(str(caught.value)) < 300


def bomb(first: str, each: str) -> bytes:
    """Return lines a0 … a9 of which each holds the one before ten times."""
    lines = [each.format(", ".join([f"*a{number}"] * 10)) for number in range(9)]
    return "\n".join(f"a{number}: &a{number} {line}" for number, line in enumerate([first, *lines])).encode()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "data, line",
    [
        (b'run: "a\0"', "is not valid YAML: unacceptable character #x0000"),
        (b'run: "a\\0"\nstudies: {shots: {}}', "run: 'a\\x00' has the control character '\\x00'; remove it"),
        (b"run: " + b"[" * 3000 + b"]" * 3000, "must have at most 32 levels of nesting, and no alias to itself"),
        (b"run: " + b"[" * 300 + b"]" * 300, "must have at most 32 levels of nesting, and no alias to itself"),
        (
            b"run: " + b"{a: " * 3000 + b"1" + b"}" * 3000,
            "must have at most 32 levels of nesting, and no alias to itself",
        ),
        (b"repeats: " + b"9" * 10_000, ":1: a value must have at most 1,000 characters"),
        (b"repeats: 0x" + b"9" * 10_000, ":1: a value must have at most 1,000 characters"),
        (b"repeats: 1.0e+400\nrun: a\nstudies: {shots: {}}", "repeats: inf is not of type integer"),
        (b" " * 2**18 + b"run: a", "must have at most 256 KiB; split it into several runs"),
        (bomb("[x]", "[{}]"), "must have at most 262,144 entries with expanded aliases; use fewer of them"),
        (bomb("{x: 1}", "{{<<: [{}]}}"), "must have at most 262,144 entries with expanded aliases; use fewer of them"),
    ],
)
def test_a_file_that_would_take_all_time_or_memory_is_one_line(tmp_path: Path, data, line):
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    with pytest.raises(Problem) as caught:
        configuration.load_config(file)
    assert str(caught.value).startswith(str(file))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_plain_file_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(Problem, match=f"{place} is not a regular file; name another file"):
            configuration.load_config(place)


def test_mappings_can_be_merged_and_their_keys_replaced(tmp_path: Path):
    text = (ROOT / "config/quick.yaml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.lstrip().startswith("matrix:"))
    merging = f"    matrix:\n      - &first {line.partition(':')[2].strip()}\n      - {{<<: *first, cache: [warm]}}"
    (tmp_path / "merging.yaml").write_text(text.replace(line, merging), encoding="utf-8")
    first, second = configuration.load_config(tmp_path / "merging.yaml")["studies"]["shots"]["matrix"]
    assert second == first | {"cache": ["warm"]} != first


@pytest.mark.parametrize("slash", ["", "/"])
def test_addresses_are_taken_as_portals_print_them(slash):
    def change(config: dict) -> None:
        config["stores"]["elsewhere"] = {"kind": "s3", "bucket": "bucket", "endpoint": f"http://host:9000{slash}"}
        for name, url in (("blob", "https://acc.blob.core.windows.net"), ("emulated", "http://host:10000/acc")):
            config["stores"][name] = {"kind": "azure-blob", "container": "blobs", "account_url": url + slash}

    stores = configuration.resolve_config(changed(change), [])["stores"]
    assert stores["elsewhere"]["endpoint"] == "http://host:9000"
    assert stores["blob"]["account_url"] == "https://acc.blob.core.windows.net"
    assert stores["emulated"]["account_url"] == "http://host:10000/acc"


@pytest.mark.parametrize(
    "store, variable",
    [
        ({"account_url": "https://acc.blob.core.windows.net/?sv=1&sig=secret"}, "AZURE_STORAGE_SAS_TOKEN"),
        ({"account_url": "https://acc.blob.core.windows.net?sig=secret"}, "AZURE_STORAGE_SAS_TOKEN"),
        ({"account_url": "https://acc.blob.core.windows.net/#secret"}, "AZURE_STORAGE_SAS_TOKEN"),
        ({"account_url": ["https://acc.blob.core.windows.net/?sig=secret"]}, "AZURE_STORAGE_SAS_TOKEN"),
        ({"endpoint": "http://key:secret@127.0.0.1:19301"}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"endpoint": "http://127.0.0.1:19301/?X-Amz-Signature=secret"}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(store, variable):
    kind = {"kind": "s3", "bucket": "bucket"} if "endpoint" in store else {"kind": "azure-blob", "container": "blobs"}
    with pytest.raises(Problem) as caught:
        configuration.resolve_config(changed(lambda c: c["stores"].update(mine=kind | store)), [])
    assert f"stores.mine.{next(iter(store))} is not valid (URL of " in str(caught.value)
    assert f"set credentials in the environment ({variable}" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://host:0", "http://host:99999", "http://host:secret", "http://:9000"])
@pytest.mark.parametrize("key", ["endpoint", "account_url"])
def test_an_address_without_a_host_or_with_a_port_that_is_none_is_refused(key, address):
    kind = {"kind": "s3", "bucket": "bucket"} if key == "endpoint" else {"kind": "azure-blob", "container": "blobs"}
    with pytest.raises(Problem) as caught:
        configuration.resolve_config(changed(lambda c: c["stores"].update(mine=kind | {key: address})), [])
    assert str(caught.value).startswith(f"the configuration: stores.mine.{key} is not valid (URL of ")
    assert "a port from 1 to 65535" in str(caught.value)


STORES = [("s3", {"bucket": "shots"}), ("azure-blob", {"container": "shots"}), ("azure-files", {"share": "shots"})]


@pytest.mark.parametrize("prefix", ["..", "../..", "a/../b", "a/./b", "a/..", "./a", "a//b", "a\\b", "/a", "a/", "/"])
@pytest.mark.parametrize("kind, name", STORES)
def test_a_prefix_that_leads_elsewhere_is_refused(kind, name, prefix):
    store = {"kind": kind, "prefix": prefix} | name
    with pytest.raises(Problem) as caught:
        configuration.resolve_config(changed(lambda c: c["stores"].update(mine=store)), [])
    assert f"stores.mine.prefix: {prefix!r} is not valid (Beginning of the keys" in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "a", "tests/shots", "..a/b..", ".a", "a b/ü"])
@pytest.mark.parametrize("kind, name", STORES)
def test_any_other_prefix_is_taken(kind, name, prefix):
    store = {"kind": kind, "prefix": prefix} | name
    assert (
        configuration.resolve_config(changed(lambda c: c["stores"].update(mine=store)), [])["stores"]["mine"]["prefix"]
        == prefix
    )


@pytest.mark.parametrize(
    "bucket, fine", [("a..b", 0), ("a.-b", 0), ("ab", 0), ("ab-", 0), ("a" * 64, 0), ("a.b-c.1", 1)]
)
def test_a_bucket_has_a_name_as_aws_allows_it(bucket, fine):
    store = {"kind": "s3", "bucket": bucket}
    if fine:
        assert configuration.resolve_config(changed(lambda c: c["stores"].update(mine=store)), [])
        return
    with pytest.raises(Problem, match=r"is not valid \(Name of the bucket: 3 to 63 lower-case letters"):
        configuration.resolve_config(changed(lambda c: c["stores"].update(mine=store)), [])


def test_a_baseline_is_compared_with_the_levels_as_text():
    workers = {"factor": "workers", "baseline": "1"}
    resolved = configuration.resolve_config(changed(lambda c: c["studies"]["shots"].update(compare=[workers])), [])
    assert matrix.expand_matrix(resolved, "shots")


def test_a_mistake_in_a_hostfile_names_the_configuration(tmp_path: Path):
    hosts = tmp_path / "hosts"
    hosts.write_text("node1:x\n", encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(changed(lambda c: blobs(c).update(mpi={"hostfile": str(hosts)}))), encoding="utf-8")
    with pytest.raises(Problem) as caught:
        configuration.load_config(file)
    assert str(caught.value) == f"{file}: studies.blobs: {hosts}: a line must be host:slots (got 'node1:x')"


def test_defaults_of_the_schema_complete_a_configuration():
    values = changed(lambda c: c.pop("repeats"))
    resolved = configuration.resolve_config(values, [])
    assert resolved["repeats"] == 10
    assert resolved["studies"]["shots"]["rdcc_nbytes"] == 8388608
    assert resolved["studies"]["shots"]["question"].startswith("Does HDF5 2.0's ROS3 driver read shot files faster")
    assert (
        "question"
        not in configuration.resolve_config(changed(lambda c: c["studies"]["shots"].pop("question")), [])["studies"][
            "shots"
        ]
    )
    assert resolved["stores"]["s3"]["region"] == "us-east-1"
    assert "region" not in resolved["stores"]["disk"]
