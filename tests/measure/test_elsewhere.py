"""Snakemake as other people have it: installed elsewhere, without this project's packages, or with conda."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, artefact
from small_runs import SINGLE, records, snakemake, write
from stand_in_conda import bring_compiled

pytestmark = pytest.mark.late

UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def bare(once: Callable) -> Path:
    """Return a Snakemake whose environment has what it needs itself and nothing else."""

    def make(folder: Path) -> None:
        install = ("pip", "install", "--constraint", ROOT / "envs/workflow.lock", "--python", folder, "snakemake")
        for words in (
            ("venv", "--no-project", "--python", os.path.realpath(sys.executable), "--clear", folder),
            install,
        ):
            subprocess.run([UV, "--quiet", *words], check=True)
        bring_compiled(folder)

    return once("bare", make) / "bin" / "snakemake"


@pytest.fixture
def conda(tmp_path: Path, environments: Path) -> Path:
    """Return the folder of a conda that has h5py on HDF5 as it is built from source, and a fio that notes its calls."""
    home = tmp_path / "conda"
    (home / "bin").mkdir(parents=True)
    links = {"python=3.11": {}, "pip": {}, "h5py": {}, "fio": {"bin/fio": str(home / "fio")}}
    for version in ("1.14.6", "2.0.0"):
        prefix = Path(artefact(environments / f"hdf5-{version}.json")["python"]).parents[1]
        (h5py,) = prefix.glob("lib/python*/site-packages/h5py")
        links[f"hdf5={version}"] = {str(h5py.relative_to(prefix)): str(h5py)}
    wheels = {"numpy": "numpy", "dask-core": "dask", "distributed": "distributed", "pyarrow": "pyarrow"}
    (home / "channel.json").write_text(json.dumps({"links": links, "wheels": wheels}))
    (home / "bin/activate").write_text('export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n')
    stand_in = shlex.join([sys.executable, str(ROOT / "tests/helpers/stand_in_conda.py"), str(home)])
    (home / "bin/conda").write_text(f'#!/bin/sh\nexec {stand_in} "$@"\n')
    (home / "fio").write_text(f'#!/bin/sh\necho "$@" >> {home}/fio.calls\nexec {shutil.which("fio")} "$@"\n')
    for name in ("bin/conda", "fio"):
        (home / name).chmod(0o755)
    return home


def call(program: Path, clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Call a Snakemake in a clone."""
    return subprocess.run(
        [program, *arguments], cwd=clone, env=os.environ | variables, capture_output=True, text=True, check=False
    )


def test_without_the_packages_one_line_says_what_to_type(bare, clone):
    done = call(bare, clone, "--cores", "32", "--configfile", "config/ec2.yaml")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("Using workflow specific profile")]
    assert line.startswith("problem: ")
    assert line.endswith("run `make setup` and repeat the command, or add `--sdm conda`")
    assert not (clone / "results").exists()
    # What starts no program works all the same.
    assert call(bare, clone, "--configfile", "config/quick.yaml", "--dry-run").returncode == 0
    assert call(bare, clone, "--lint").returncode == 0


def test_a_mistake_in_the_configuration_is_one_line_without_the_logger_of_this_project(bare, clone):
    write(clone, SINGLE | {"repeets": 3})
    done = call(bare, clone, "--cores", "2")
    assert done.stderr.splitlines()[1:] == ["problem: config/config.yaml: repeets: unknown key; did you mean repeats?"]


def test_a_snakemake_installed_elsewhere_runs_the_programs_of_make_setup(bare, ready_clone):
    write(ready_clone, SINGLE)
    done = call(bare, ready_clone, "--cores", "2", "results/tiny/shots/verdicts.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["valid"] for record in records(ready_clone).values()] == [True]
    # Another interpreter is no other parameter.
    again = snakemake(ready_clone, "results/tiny/shots/verdicts.csv")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_with_conda_every_rule_runs_in_its_own_environment(bare, clone, conda):
    """The smoke matrix as far as it needs different environments, with libraries that conda makes."""
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    shots, volumes, blobs = (values["studies"][name] for name in ("shots", "volumes", "blobs"))
    values["repeats"] = 1
    values["studies"] = {name: values["studies"][name] for name in ("shots", "volumes", "blobs")}
    versions = [name.removeprefix("hdf5-") for name in values["libraries"] if name.startswith("hdf5-")]
    values["libraries"] = {f"hdf5-{version}": {"kind": "conda", "hdf5": version} for version in versions}
    shots |= {
        "control_cells": 0,
        "matrix": shots["matrix"][0] | {"page_buffer": ["0"]},
        "compare": shots["compare"][:1],
    }
    volumes |= {"jobs": 1, "matrix": {"store": ["disk"], "job": ["etcd-short"], "background": ["none"]}, "compare": []}
    blobs |= {"matrix": blobs["matrix"][0] | {"store": ["disk"]}, "compare": []}
    write(clone, values)
    options = ("--cores", "2", "--sdm", "conda")
    path = f"{conda}/bin:{os.environ['PATH']}"
    done = call(bare, clone, "--until", "measure", *options, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    of_shots, of_volumes, of_blobs = (
        list(records(clone, "smoke", study).values()) for study in ("shots", "volumes", "blobs")
    )
    assert [record["reasons"] for record in (*of_shots, *of_volumes, *of_blobs) if not record["valid"]] == []
    libraries = [artefact(clone / f"results/smoke/environments/{name}.json") for name in values["libraries"]]
    prefixes = {Path(library["python"]).parents[1] for library in libraries}
    assert len(prefixes) == 2
    assert {prefix.parent for prefix in prefixes} == {clone / ".snakemake/conda"}
    assert {record["effective"]["hdf5"] for record in of_shots} == {"1.14.6", "2.0.0"}
    # What the arms have beside HDF5 is the same, and is named.
    assert len({record["provenance"]["lock_sha256"] for record in of_shots}) == 1
    assert all("numpy 2." in " ".join(record["provenance"]["build"]["packages"]) for record in of_shots)
    assert (conda / "fio.calls").exists()
    assert of_volumes[0]["fio"].startswith("fio-")
    assert of_blobs[0]["effective"]["mpi"].startswith("MPICH ")
    done = call(bare, clone, "reports/smoke/shots.html", *options, PATH=path)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "report shots" in said
    assert "measure shots" not in said, "what is done is not done again"
    assert "Creating conda environment" not in said


def test_a_library_of_conda_that_is_not_what_its_label_says_fails(bare, clone, conda):
    """The environment file asks for HDF5 2.1.0, and what conda brings is 2.0.0."""
    text = (clone / "envs/hdf5-2.0.0.yaml").read_text(encoding="utf-8")
    (clone / "envs/hdf5-2.1.0.yaml").write_text(text.replace("hdf5=2.0.0", "hdf5=2.1.0"), encoding="utf-8")
    channel = artefact(conda / "channel.json")
    channel["links"]["hdf5=2.1.0"] = channel["links"]["hdf5=2.0.0"]
    (conda / "channel.json").write_text(json.dumps(channel))
    section = SINGLE["studies"]["shots"]
    section = section | {"matrix": section["matrix"] | {"library": ["hdf5-2.1.0"]}}
    libraries = {"hdf5-2.1.0": {"kind": "conda", "hdf5": "2.1.0"}}
    write(clone, SINGLE | {"libraries": libraries, "studies": {"shots": section}})
    options = ("--cores", "2", "--sdm", "conda", "--until", "measure")
    done = call(bare, clone, *options, PATH=f"{conda}/bin:{os.environ['PATH']}")
    line = "library hdf5-2.1.0: hdf5 is 2.1.0, but its h5py uses HDF5 2.0.0"
    assert line in artefact(clone / "results/tiny/environments/hdf5-2.1.0.json")["reasons"][0], done.stderr
    (record,) = records(clone).values()
    assert record["status"] == "failed"
    assert line in record["reasons"][0]
