"""A study, a kind of store and a driver are added where the documents say and nowhere else, and measure and report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, artefact, sbench
from small_runs import launch, records

pytestmark = pytest.mark.late

TOYS = ROOT / "tests/toys"
NAMES = {"study": "hashing", "store": "httpd", "bucket": "garage", "driver": "fileobj"}
SECTIONS = {"study": "Adding a study", "driver": "Adding a driver"}
SECTIONS |= dict.fromkeys(("store", "bucket"), "Adding a kind of store")
# How many records each study has.
COUNTS = {"hashing": 2, "shots": 4, "blobs": 2, "arrays": 2}
# What the toys' own cells are measured with, small enough for seconds.
RUN = {
    "run": "toys",
    "repeats": 1,
    "libraries": {"hdf5-2.0.0": {"kind": "wheel", "hdf5": "2.0.0"}},
    "stores": {"disk": {"kind": "posix"}},
    "studies": {
        "shots": {"data": {"shots": 2, "signals": 4}, "control_cells": 0},
        "blobs": {"data": {"objects": 1}, "iterations": 2, "ceiling_rounds": 1, "control_cells": 0},
    },
}


def files_of(toy: str) -> list[Path]:
    """Return the files of a toy, as they lie in the project when it is added."""
    return sorted(path.relative_to(TOYS / toy) for path in (TOYS / toy).rglob("*") if path.is_file())


def united(first: object, second: object) -> object:
    """Return two YAML values in one: keys of both, lists one behind the other."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first | {key: united(first[key], value) if key in first else value for key, value in second.items()}
    return first + second if isinstance(first, list) and isinstance(second, list) else second


def read(path: Path) -> object:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def add(toy: str, clone: Path) -> None:
    """Add a toy to a clone: files that are there get what the toy's file has, all others are new."""
    for name in files_of(toy):
        source, target = TOYS / toy / name, clone / name
        text = source.read_text(encoding="utf-8")
        if target.exists() and target.suffix == ".yaml":
            text = yaml.safe_dump(united(read(target), read(source)), sort_keys=False)
        elif target.exists():
            # A line more of the table of studies.
            last = re.findall(r"^\| \[`.*\n", target.read_text(encoding="utf-8"), re.MULTILINE)[-1]
            text = target.read_text(encoding="utf-8").replace(last, last + text)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


@pytest.fixture
def toys(clone: Path) -> Path:
    """Return a clone with all toys, and with a configuration that has their cells of the smoke run alone."""
    cells = RUN
    for toy in NAMES:
        add(toy, clone)
        cells = united(cells, read(TOYS / toy / "config/smoke.yaml"))
    (clone / "config/toys.yaml").write_text(yaml.safe_dump(cells), encoding="utf-8")
    return clone


@pytest.mark.parametrize("toy", NAMES)
def test_a_toy_is_in_the_places_that_the_documents_name(toy):
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "docs/extending.md"))
    section = text.partition(f"\n## {SECTIONS[toy]}\n")[2].partition("\n## ")[0]
    placeholder = "<kind>" if toy in ("store", "bucket") else f"<{toy}>"
    places = [name.replace(placeholder, NAMES[toy]) for name in re.findall(r"`([^`\s]+)`", section)]
    strange = [
        name
        for name in map(str, files_of(toy))
        if not any(name == p or name.startswith(f"{p.rstrip('/')}/") for p in places)
    ]
    assert strange == []


def test_toys_measure_and_the_toy_study_has_its_page(toys):
    wanted = [
        "reports/toys/hashing.html",
        *(f"results/toys/{study}/facts.json" for study in ("shots", "blobs", "arrays")),
    ]
    done = launch(toys, "config/toys.yaml", "--", *wanted)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = {study: list(records(toys, "toys", study).values()) for study in COUNTS}
    assert {study: len(some) for study, some in measured.items()} == COUNTS
    matrix = (toys / "results/toys/shots/matrix.csv").read_text(encoding="utf-8")
    assert matrix.count("library hdf5-2.0.0 lacks smbprotocol, which driver samba needs") == 2
    every = [record for some in measured.values() for record in some]
    assert [record["reasons"] for record in every if not record["valid"]] == []
    assert [record["ceiling"]["problem"] for record in measured["blobs"]] == [None] * 2
    drivers = {(record["cell"]["store"], record["effective"]["driver"]) for record in measured["shots"]}
    assert drivers == {("web", "fileobj"), ("disk", "fileobj"), ("garage", "ros3"), ("garage", "s3fs")}
    assert {record["cell"]["backend"] for record in measured["arrays"]} == {"hsds", "zarr"}
    served = [record for record in every if record["cell"]["store"] in ("web", "garage")]
    assert {record["study"] for record in served} == {"shots", "blobs", "arrays"}
    assert all(record["requests"]["GET"]["count"] > 0 for record in served if record["study"] != "arrays")
    assert all(record["requests"]["PUT"]["count"] > 0 for record in measured["arrays"])
    for study in ("shots", "blobs"):
        limits = artefact(toys / f"results/toys/{study}/facts.json")["limits"]
        assert [line for line in limits if line.startswith("web: a server written in Python")]
    page = (toys / wanted[0]).with_suffix(".md").read_text(encoding="utf-8")
    assert "Which checksum of a file costs less time?" in page
    assert "Sha256 vs crc32: **too few repeats**" in page


def test_a_server_that_is_not_built_is_not_waited_for(toys, tmp_path):
    empty = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = sbench("plan", "config/toys.yaml", "--study", "blobs", "--only", "store=web", cwd=toys, env=empty)
    assert "nothing to build" in done.stdout.splitlines()[-1]


def test_the_shipped_runs_have_the_cells_of_toys_and_the_rules_of_the_house_hold(toys):
    cells = {
        "smoke": ("disk_sha256_any-", "web_single-file_1MiB_", "hdf5-2.0.0_web_fileobj_"),
        "config": ("disk_crc32_any-",),
    }
    for name, beginnings in cells.items():
        done = sbench("plan", f"config/{name}.yaml", cwd=toys)
        assert done.returncode == 0, done.stderr
        assert [cell for cell in beginnings if f"\n{cell}" not in f"\n{done.stdout}"] == []
    assert "\n| [`hashing`](docs/hashing.md) |" in (toys / "README.md").read_text(encoding="utf-8")
    for command in (
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/project/test_layout.py"],
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
    ):
        env = os.environ | {"PYTHONPATH": "scripts"}
        done = subprocess.run(command, cwd=toys, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
