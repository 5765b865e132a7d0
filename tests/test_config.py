"""Mistakes in a configuration: each is one line that names the file, the key and the remedy."""

import copy
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from scripts.analysis import config as configuration
from scripts.lib.program import Problem

CONFIGS = sorted(path for path in (ROOT / "config").glob("*.yaml") if path.name != "schema.yaml")


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


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_obeys_the_schema(path):
    assert configuration.load(path)["run"]


def test_every_key_of_the_schema_is_described():
    def keys(node: dict, place: str = ""):
        for name, child in node.get("properties", {}).items():
            yield f"{place}.{name}", child
            yield from keys(child, f"{place}.{name}")
        for variant in node.get("oneOf", []):
            yield from keys(variant, place)
        if isinstance(node.get("additionalProperties"), dict):
            yield from keys(node["additionalProperties"], f"{place}.*")

    rules = configuration.schema()
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
        (lambda c: row(c).update(page_buffer=["64MB"]), "matrix[0].page_buffer[0]: '64MB' is not understood"),
        (lambda c: row(c).update(workers=["2y"]), "matrix[0].workers[0]: '2y' is not understood"),
        (lambda c: row(c).update(driver="sec2"), "matrix[0].driver: 'sec2' is not of type array"),
        (lambda c: row(c).update(driver=["sec3"]), "matrix[0].driver[0]: 'sec3' is none of sec2, ros3"),
        (lambda c: row(c).pop("driver"), "matrix[0]: driver is missing"),
        (lambda c: row(c).update(library=["x"]), "matrix[0].library: 'x' is not among libraries: hdf5-1.14.6"),
        (lambda c: row(c).update(store=["x"]), "matrix[0].store: 'x' is not among stores: disk, s3"),
        (lambda c: c["stores"]["s3"].update(kind="s4"), "stores.s3.kind: 's4' is none of posix, s3"),
        (lambda c: c["stores"]["s3"].update(buket="b"), "stores.s3.buket: unknown key; did you mean bucket?"),
        (lambda c: c["stores"]["s3"]["network"].update(latency_ms="20"), "latency_ms: '20' is not of type integer"),
        (
            lambda c: c["stores"]["s3"].update(endpoint="http://a"),
            "stores.s3: server and endpoint exclude each other; drop one",
        ),
        (lambda c: c["stores"]["s3"].pop("server"), "stores.s3: 'server' is a dependency of 'network'"),
        (
            lambda c: c["libraries"].update(servers={"kind": "wheel", "hdf5": "2.0.0"}),
            "libraries: 'servers' is taken; choose another name",
        ),
        (lambda c: c["stores"]["disk"].pop("kind"), "stores.disk: kind is missing"),
        (lambda c: c["libraries"]["hdf5-2.0.0"].update(hdf5=2.0), "hdf5: 2.0 is not of type string; quote it"),
        (lambda c: c.update(seed="a"), "seed: 'a' is not of type integer"),
        (lambda c: c.pop("run"), "run is missing"),
        (lambda c: c["studies"].update(shot={}), "studies.shot: unknown key; did you mean shots?"),
        (
            lambda c: c["studies"]["shots"].update(compare=[{"factor": "libary", "baseline": 1}]),
            "compare[0].factor: 'libary' is no factor of shots: library,",
        ),
        (
            lambda c: c["studies"]["shots"].update(compare=[{"factor": "workers", "baseline": 7}]),
            "compare[0].baseline: 7 is no level of workers in the matrix",
        ),
        (
            lambda c: volumes(c)["matrix"].update(job=["etc"]),
            "studies.volumes.matrix[0].job: there is no config/fio/etc.fio: ",
        ),
        (lambda c: volumes(c).update(limits=["etc"]), "studies.volumes.limits[0]: 'etc' is not in config/facts/limits"),
        (lambda c: volumes(c).update(limits=[{"name": "own", "p99_ms": 5}]), "limits[0]: source is missing"),
        (
            lambda c: c["stores"]["disk"].update(volume={"type": "gp4"}),
            "stores.disk.volume.type: 'gp4' is not in config/facts/volume_types.yaml: ",
        ),
        (lambda c: c["stores"]["disk"].update(volume={"size_gib": 1}), "stores.disk.volume: type is missing"),
        (
            lambda c: volumes(c)["matrix"].update(background=["none", "other"]),
            "studies.volumes.other: name the store for the background load: disk, s3",
        ),
        (lambda c: volumes(c).update(background_job="x"), "background_job: there is no config/fio/x.fio"),
        (lambda c: volumes(c).pop("matrix"), "studies.volumes"),
        (
            lambda c: c["stores"].update(raw={"kind": "posix", "device": "/dev/vdb"}),
            "stores.raw: 'erase' is a dependency of 'device'",
        ),
        (lambda c: c.update(only={"libary": ["x"]}), "only.libary: no study of this run has this factor"),
        (lambda c: c.update(only={"library": ["x"]}), "only.library: 'x' is no level of it"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(change, line):
    with pytest.raises(Problem) as caught:
        configuration.resolve(changed(change), [])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, line",
    [
        ("run: on", "run: YAML reads on as True; quote it"),
        ("repeats: 010", "repeats: YAML reads 010 as 8; quote it"),
        ("libraries: {a: {kind: wheel, hdf5: 3.10}}", "libraries.a.hdf5: YAML reads 3.10 as 3.1; quote it"),
        ("libraries: {3.10: {kind: wheel, hdf5: '3.10'}}", "libraries.3.10: YAML reads 3.10 as 3.1; quote it"),
        ("studies: {shots: {matrix: {workers: [1_0]}}}", "workers[0]: YAML reads 1_0 as 10; quote it"),
    ],
)
def test_what_yaml_makes_of_a_level_is_refused(tmp_path: Path, text, line):
    file = tmp_path / "c.yaml"
    file.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(Problem) as caught:
        configuration.load(file)
    assert f"{file}:1: " in str(caught.value)
    assert line in str(caught.value)


def test_a_file_that_is_not_there_or_not_yaml_is_one_line(tmp_path: Path):
    with pytest.raises(Problem, match="cannot be read: No such file"):
        configuration.load(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("run: [\n", encoding="utf-8")
    with pytest.raises(Problem, match="is not YAML at line 2"):
        configuration.load(tmp_path / "bad.yaml")


def test_defaults_of_the_schema_complete_a_configuration():
    values = changed(lambda c: c.pop("repeats"))
    resolved = configuration.resolve(values, [])
    assert resolved["repeats"] == 10
    assert resolved["studies"]["shots"]["rdcc_nbytes"] == 8388608
    assert resolved["stores"]["s3"]["region"] == "us-east-1"
    assert "region" not in resolved["stores"]["disk"]
