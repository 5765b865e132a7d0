"""A library under test with another release of Python: where it is looked for, and what it is."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import program, run_code

from sbench.build import interpreters
from sbench.probe.program import Problem

RELEASES = ("3.12", "3.13")


@pytest.fixture(autouse=True)
def forgetful():
    """Look anew in each test."""
    interpreters.find_python.cache_clear()


def find(release: str) -> str:
    """Return the path of an interpreter of a release, or skip the test."""
    try:
        return interpreters.find_python(release)["path"]
    except Problem as problem:
        pytest.skip(str(problem))


def make_python(path: Path, target: str = sys.executable) -> Path:
    """Make a program that is a Python."""
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    return path


OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """Have no interpreter on PATH, of pyenv or of conda."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("CONDA_EXE", str(tmp_path / "conda/bin/conda"))
    return tmp_path


@pytest.mark.parametrize("place", ["bin", f"pyenv/versions/{OWN}.1/bin", "conda/bin", "conda/envs/mine/bin"])
def test_an_interpreter_is_found_on_the_path_and_among_those_of_pyenv_and_conda(nowhere, place):
    with pytest.raises(Problem, match=f"Python {OWN} not found"):
        interpreters.find_python(OWN)
    make_python(nowhere / place / f"python{OWN}", shutil.which(sys.executable))
    assert Path(interpreters.find_python(OWN)["path"]).exists()


def test_of_several_versions_the_newest_is_taken_and_one_that_is_broken_is_passed_over(nowhere):
    broken = nowhere / f"pyenv/versions/{OWN}.12/bin/python{OWN}"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho hello\n", encoding="utf-8")
    broken.chmod(0o755)
    for version, text in ((f"{OWN}.2", "old"), (f"{OWN}.10", "new"), (f"{OWN}.11", "")):
        path = nowhere / f"pyenv/versions/{version}/bin/python{OWN}"
        path.parent.mkdir(parents=True)
        answer = json.dumps({"release": OWN, "path": text})
        path.write_text(f"#!/bin/sh\n{f'echo {answer!r}' if text else 'exit 1'}\n", encoding="utf-8")
        path.chmod(0o755)
    assert interpreters.find_python(OWN)["path"] == "new"


def test_a_release_that_is_not_here_is_one_line(tmp_path):
    spec = json.dumps({"kind": "wheel", "hdf5": "2.0.0", "python": "3.99"})
    done = program("build_library", "--library", "x", "--spec", spec, "--out", tmp_path / "x.json")
    assert done.returncode == 2
    assert done.stderr.startswith("problem: Python 3.99 not found as python3.99 on PATH, among pyenv's versions")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "kind, release", [("wheel", "3.12"), ("wheel", "3.13"), pytest.param("source", "3.13", marks=pytest.mark.late)]
)
def test_a_library_has_the_python_that_it_asks_for(tmp_path, kind, release):
    find(release)
    spec = {"kind": kind, "hdf5": "2.0.0", "python": release}
    done = program("build_library", "--library", "x", "--spec", json.dumps(spec), "--out", tmp_path / "x.json")
    assert done.returncode == 0, done.stderr
    python = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["python"]
    seen = run_code(
        "from sbench.probe.software import list_distributions; print(list_distributions()['python'])", python=python
    )
    assert seen.stdout.startswith(f"{release}.")


def test_packages_of_the_user_are_for_the_workflows_python(tmp_path):
    release = next(one for one in RELEASES if find(one))
    spec = {"kind": "wheel", "hdf5": "2.0.0", "python": release, "with": [str(tmp_path / "mine")]}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n', encoding="utf-8")
    (tmp_path / "mine/mine.py").touch()
    done = program("build_library", "--library", "x", "--spec", json.dumps(spec), "--out", tmp_path / "x.json")
    assert done.stderr.splitlines()[-1].endswith("user-supplied packages require the workflow's Python; remove python:")
