"""User-supplied Python packages of a library under test: wheels, trees and commits, in place of what its lock pins."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import artefact, program
from small_runs import SINGLE

from sbench.build import own, packages
from sbench.build.distributions import (
    describe_origin,
    list_conflicts,
    list_promises,
    list_unmet_requirements,
    list_versions,
)
from sbench.build.environments import resolve_origin
from sbench.build.sources import ENVS
from sbench.design import config as configuration
from sbench.design import fingerprint
from sbench.design.study import check_readable
from sbench.measure import preflight
from sbench.pages.names import describe_software as named
from sbench.probe.program import Problem, compute_file_digest
from sbench.studies.shots.report import format_hdf5_version

pytestmark = pytest.mark.late

WHEEL = {"kind": "wheel", "hdf5": "2.0.0"}
LEVELS = {"library": "mine", "driver": "s3fs", "store": "s3"}
STORES = {"s3": {"kind": "s3", "bucket": "b", "server": "embedded"}}
WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost")
# A build backend in the tree itself, so that a build needs neither a network nor a cache.
BACKEND = """
import re, zipfile

def build_wheel(folder, settings=None, metadata=None):
    version = re.search('"(.*)"', open("reader/__init__.py").read())[1]
    name = f"reader-{version}-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("reader/__init__.py")
        wheel.writestr(f"reader-{version}.dist-info/METADATA", f"Name: reader\\nVersion: {version}\\n")
    return name
"""
PROJECT = """
[project]
name = "Reader"
dynamic = ["version"]
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def make_wheel(
    folder: Path, name: str, version: str, *modules: str, requires: str = "", tag: str = "py3-none-any"
) -> Path:
    """Write a wheel with empty modules."""
    file_name = name.replace("-", "_")
    path = folder / f"{file_name}-{version}-{tag}.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + f"Requires-Dist: {requires}\n" * bool(
        requires
    )
    with zipfile.ZipFile(path, "w") as wheel:
        for module in modules or (name,):
            wheel.writestr(f"{module}/__init__.py", "")
        wheel.writestr(f"{file_name}-{version}.dist-info/METADATA", metadata)
    return path


def make_lock(folder: Path, *lines: str) -> str:
    """Write a lock with an h5py and some more lines, and return its path."""
    (folder / "mine.lock").write_text("\n".join(("h5py==3.16.0 --hash=sha256:00", *lines, "")), encoding="utf-8")
    return str(folder / "mine.lock")


def git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *WHO, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a source tree of a package `reader`, and let builds go into a cache of the test's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = tmp_path / "reader-clone"
    (tree / "reader").mkdir(parents=True)
    (tree / "reader/__init__.py").write_text('__version__ = "1.0"\n', encoding="utf-8")
    (tree / "backend.py").write_text(BACKEND, encoding="utf-8")
    (tree / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tree


def commit(tree: Path, version: str) -> str:
    """Commit a version of the tree, and return its id."""
    (tree / "reader/__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", f"--message={version}")
    return git(tree, "rev-parse", "HEAD")


def missing(spec: dict) -> list[str]:
    """Return why a library cannot read with s3fs."""
    return list(check_readable(LEVELS, {"libraries": {"mine": spec}, "stores": STORES}))


def test_what_a_driver_needs_may_come_from_a_wheel_a_fork_a_tree_or_a_lock_that_names_a_file(tmp_path, tree):
    assert missing(WHEEL) == ["library mine lacks s3fs, which driver s3fs needs"]
    wheel, fork = make_wheel(tmp_path, "s3fs", "1.0"), make_wheel(tmp_path, "my-fork", "1.0", "s3fs")
    line = f"s3fs @ {wheel.as_uri()} \\\n    --hash=sha256:{compute_file_digest(wheel)}"
    for more in ({"with": [str(wheel)]}, {"with": [str(fork)]}, {"lock": make_lock(tmp_path, line)}):
        assert missing(WHEEL | more) == []
    (tree / "pyproject.toml").write_text(PROJECT.replace("Reader", "s3fs"), encoding="utf-8")
    git(tree, "init", "--quiet", "--initial-branch=main")
    commit(tree, "1.0")
    assert (
        missing(WHEEL | {"with": [str(tree)]}) == missing(WHEEL | {"with": [{"from": str(tree), "ref": "main"}]}) == []
    )
    # Of a finished run, whose wheel is gone, pages can still be made.
    wheel.unlink()
    assert missing(WHEEL | {"with": [str(wheel)]}) == []


def test_a_package_takes_the_place_of_the_locked_one_and_of_redistributions_of_h5py(tmp_path):
    lock = make_lock(tmp_path, "s3fs==2.0 --hash=sha256:00", "h5py-s3==3.0 --hash=sha256:00")
    spec = WHEEL | {"lock": lock, "with": [str(make_wheel(tmp_path, "my-fork", "1.0", "s3fs"))]}
    assert (list_versions(spec)["s3fs"], list_versions(spec)["my-fork"], list_versions(spec)["h5py-s3"]) == (
        "1.0",
        "1.0",
        "3.0",
    )
    with_h5py = list_versions(WHEEL | {"lock": lock, "with": [str(make_wheel(tmp_path, "h5py", "4.0"))]})
    assert (with_h5py["h5py"], with_h5py["s3fs"], "h5py-s3" in with_h5py) == ("4.0", "2.0", False)


@pytest.mark.parametrize(
    "entry, words",
    [
        ("{tmp}/none.whl", r"/none\.whl does not exist; correct the path"),
        ("{tmp}/mine.whl", r"mine\.whl is not a wheel: "),
        ("{tmp}/other-1.0-cp27-cp27m-win32.whl", r"is a wheel for cp27-cp27m-win32, not for Python 3\."),
        ("{tmp}/renamed-1.0-py3-none-any.whl", r"the file name must match its metadata \(other 1\.0\); rename it"),
        ("{tmp}/empty", r"empty is not a Python package: pyproject\.toml, setup\.cfg and"),
        ({"from": "{tmp}/empty", "ref": "main"}, r"empty is not a git clone"),
        ({"from": "{tree}", "ref": "none"}, r"none is not a branch, tag or commit of .* \(fatal: "),
    ],
)
def test_a_package_that_cannot_be_used_is_one_line_before_anything_is_built(tmp_path, tree, entry, words):
    git(tree, "init", "--quiet")
    commit(tree, "1.0")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine.whl").touch()
    make_wheel(tmp_path, "other", "1.0", tag="cp27-cp27m-win32")
    make_wheel(tmp_path, "other", "1.0").rename(tmp_path / "renamed-1.0-py3-none-any.whl")
    spec = WHEEL | {
        "with": json.loads(json.dumps([entry]).replace("{tmp}", str(tmp_path)).replace("{tree}", str(tree)))
    }
    with pytest.raises(Problem, match=words) as problem:
        resolve_origin(spec)
    assert "\n" not in str(problem.value)
    for look in (preflight.check_inputs, lambda config: preflight.check_inputs(config, preflight._install_wheels)):
        assert list(look({"libraries": {"mine": spec}, "studies": {}})) == [("library mine", False, str(problem.value))]


def test_a_wheel_that_is_not_the_one_of_the_lock_and_two_of_one_name_are_refused(tmp_path):
    wheel, fork = make_wheel(tmp_path, "s3fs", "1.0"), make_wheel(tmp_path, "my-fork", "1.0", "s3fs")
    with pytest.raises(Problem, match=rf"sha256 must be 0+, as in .*mine\.lock \(got {compute_file_digest(wheel)}\)"):
        resolve_origin(WHEEL | {"lock": make_lock(tmp_path, f"s3fs @ {wheel.as_uri()} --hash=sha256:{64 * '0'}")})
    with pytest.raises(Problem, match=r"any\.whl and .*any\.whl both provide s3fs; remove one of them"):
        resolve_origin(WHEEL | {"with": [str(wheel), str(fork)]})


def test_a_requirement_that_is_not_there_is_refused_and_one_of_another_version_is_told(tmp_path):
    wheels = [packages.read_wheel(make_wheel(tmp_path, "s3fs", "1.0", requires="fsspec>=9"))]
    assert list_unmet_requirements(wheels, {"fsspec": "8.1"}) == ["s3fs 1.0 requires fsspec>=9, but 8.1 is installed"]
    assert list_unmet_requirements(wheels, {"fsspec": "8.1 or 9.2"}) == []
    with pytest.raises(Problem, match=r"s3fs-1\.0-.* requires fsspec>=9, which the library lacks; name a lock"):
        list_unmet_requirements(wheels, {})
    of_h5py = [packages.read_wheel(make_wheel(tmp_path, "remfile", "1.0", requires="h5py"))]
    extra = [packages.read_wheel(make_wheel(tmp_path, "zarr", "1.0", requires='cupy; extra == "gpu"'))]
    assert list_unmet_requirements(of_h5py, {"h5py-s3": "3.16.0"}) == list_unmet_requirements(extra, {}) == []
    others = [
        ("zarr 3", "s3fs>=2"),
        ("kerchunk 1", "s3fs"),
        ("xarray 1", 's3fs<1; extra == "io"'),
        ("dask 1", "odd ; ;"),
    ]
    assert list_conflicts(others, *wheels) == ["zarr 3 requires s3fs>=2, but 1.0 is installed"]


def test_a_tree_and_a_commit_are_built_into_wheels_and_an_edit_is_built_again(tree):
    first = packages.read_package(str(tree))
    assert first.origin == f"local tree {first.key[:12]}"
    wheel = first.provide_wheel()
    assert (wheel.name, wheel.version, wheel.modules) == ("reader", "1.0", ("reader",))
    (tree / "reader/__init__.py").write_text('__version__ = "1.1"\n', encoding="utf-8")
    (tree / "reader/__pycache__").mkdir()
    (tree / "reader/__pycache__/x.pyc").touch()
    second = packages.read_package(str(tree))
    (tree / "reader/__pycache__/x.pyc").unlink()
    assert second.key == packages.read_package(str(tree)).key != first.key
    assert second.provide_wheel().version == "1.1"
    with pytest.raises(Problem, match="changed during the copy"):
        own.copy_files(tree, own.list_files(tree), tree.with_name("copy"), first.key)


def test_a_commit_is_built_whatever_the_working_tree_has(tree):
    git(tree, "init", "--quiet", "--initial-branch=main")
    (tree / ".gitignore").write_text("*.log\n", encoding="utf-8")
    ids = [commit(tree, "1.0"), commit(tree, "2.0")]
    (tree / "reader/__init__.py").write_text('__version__ = "3.0"\n', encoding="utf-8")
    (tree / "run.log").touch()
    status = git(tree, "status", "--porcelain", "--ignored")
    built = {ref: packages.read_package({"from": str(tree), "ref": ref}) for ref in (ids[0], "main")}
    assert [one.key for one in built.values()] == ids
    assert [one.provide_wheel().version for one in built.values()] == ["1.0", "2.0"]
    assert built["main"].origin == f"git {ids[1][:12]}"
    whole = packages.read_package(str(tree))
    (tree / "run.log").unlink()
    assert (whole.provide_wheel().version, whole.key) == ("3.0", packages.read_package(str(tree)).key)
    (tree / "run.log").touch()
    assert git(tree, "status", "--porcelain", "--ignored") == status


@pytest.fixture
def real(once: Callable) -> tuple[dict, dict]:
    """Return the artefact and the entry of a library with a real wheel of toolz, which dask needs, as 1.0.0+mine."""

    def build(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "toolz==1.0.0"]
        subprocess.run(pip, check=True)
        (released,) = folder.glob("*.whl")
        mine = folder / "toolz-1.0.0+mine-py3-none-any.whl"
        with zipfile.ZipFile(released) as old, zipfile.ZipFile(mine, "w") as new:
            for name in old.namelist():
                text = old.read(name).replace(b"Version: 1.0.0\n", b"Version: 1.0.0+mine\n")
                new.writestr(
                    name.replace("toolz-1.0.0.", "toolz-1.0.0+mine."), b"" if name.endswith("RECORD") else text
                )
        spec = json.dumps(WHEEL | {"with": [str(mine)]})
        done = program("build_library", "--library", "my-toolz", "--spec", spec, "--out", folder / "mine.json")
        assert done.returncode == 0, done.stderr

    folder = once("with-toolz", build)
    return artefact(folder / "mine.json"), WHEEL | {"with": [str(folder / "toolz-1.0.0+mine-py3-none-any.whl")]}


@pytest.mark.rule(14)
def test_a_real_wheel_is_installed_recorded_and_known_by_its_content(real, tmp_path):
    mine, spec = real
    digest = compute_file_digest(spec["with"][0])
    described = {"name": "toolz", "version": "1.0.0+mine", "origin": f"local wheel {digest[:12]}", "sha256": digest}
    (added,) = mine["build"]["added"]
    assert added.items() >= described.items()
    assert (mine["own"], mine["build"]["hdf5_source"], mine["build"]["unmet"]) == (True, "wheel h5py-3.16.0", [])
    assert mine["promised"]["toolz"] == f"1.0.0+mine ({described['origin']})"
    code = "import importlib.metadata, toolz; print(importlib.metadata.version('toolz'), toolz.__version__)"
    seen = subprocess.run(
        [mine["python"], "-sE", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert seen == ["1.0.0+mine", "1.0.0"]
    # Two wheels of one version differ on purpose, and so in nothing else.
    prints = [
        json.dumps({"distributions": {"toolz": "1.0.0"}, "files": {}, "promised": {"toolz": f"1.0.0 ({one})"}})
        for one in ("local wheel a", "local wheel b")
    ]
    assert fingerprint.describe_differences(*prints, True) == ()
    assert str(Path(spec["with"][0]).parent) not in json.dumps([mine["build"], mine["promised"]])


def test_a_check_installs_what_a_run_would_and_is_of_the_same_mind(real, tmp_path):
    _, spec = real
    ((what, fine, detail),) = preflight.check_inputs(
        {"libraries": {"mine": spec}, "studies": {}}, preflight._install_wheels
    )
    assert (what, fine, detail) == ("library mine", True, resolve_origin(spec))
    lacks = WHEEL | {"with": [str(make_wheel(tmp_path, "reader", "1.0", requires="nothing>=1"))]}
    config = {"libraries": {"mine": lacks}, "studies": {}}
    ((_, fine, detail),) = preflight.check_inputs(config, preflight._install_wheels)
    done = program("build_library", "--library", "mine", "--spec", json.dumps(lacks), "--out", tmp_path / "mine.json")
    assert (fine, done.returncode, done.stderr) == (False, 2, f"problem: {detail}\n")


def test_a_record_of_another_version_and_a_wheel_that_was_replaced_are_told(real, tmp_path, monkeypatch):
    mine, spec = real
    fingerprint.expect_promised(mine, {"distributions": {"toolz": "1.0.0+mine"}})
    with pytest.raises(Problem, match=r"library my-toolz has toolz 1\.0\.0, but was built with 1\.0\.0\+mine"):
        fingerprint.expect_promised(mine, {"distributions": {"toolz": "1.0.0"}})
    wheel = make_wheel(tmp_path, "toolz", "2.0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/run/environments").mkdir(parents=True)
    (tmp_path / "results/run/environments/mine.json").write_text(json.dumps(mine), encoding="utf-8")
    assert list(preflight.check_begun_libraries({"run": "run", "libraries": {"mine": spec}})) == []
    (line,) = preflight.check_begun_libraries({"run": "run", "libraries": {"mine": spec | {"with": [str(wheel)]}}})
    assert f"is wheel h5py-3.16.0, toolz local wheel {compute_file_digest(wheel)[:12]}, run run began with" in line


def test_pages_name_a_user_supplied_package_and_its_release_on_the_other_side():
    added = [{"name": "s3fs", "version": "2025.2.0", "origin": "local wheel 0123456789ab", "brings": ["s3fs"]}]
    build = {"hdf5_source": "wheel readers", "s3_stack": None}
    release = {"hdf5": "2.1.1", "own": False, "build": build, "promised": {"s3fs": "2024.9.0"}}
    mine = {"hdf5": "2.1.1", "own": True, "build": build | {"added": added}, "promised": {}}
    facts = {"libraries": {"release": release, "my-s3fs": mine}}
    assert [format_hdf5_version(name, facts) for name in facts["libraries"]] == [
        "s3fs 2024.9.0",
        "s3fs 2025.2.0 (my-s3fs)",
    ]
    assert named("my-s3fs", mine) == "s3fs 2025.2.0 (my-s3fs, local wheel 0123456789ab) on HDF5 2.1.1"
    assert describe_origin("wheel readers", added) == "wheel readers, s3fs local wheel 0123456789ab"
    facts_of_h5py = {"h5py": "3.16.0", "hdf5": "2.1.1"}
    spec = {"kind": "wheel", "hdf5": "2.1.1", "lock": str(ENVS / "readers.lock")}
    assert list_promises(spec, facts_of_h5py, build | {"added": added})["s3fs"] == "2025.2.0 (local wheel 0123456789ab)"


def test_packages_of_a_configuration_are_paths_or_commits(tmp_path):
    file = tmp_path / "mine.yaml"
    for entries, words in (
        ([{"from": "~/s3fs"}], r"libraries\.hdf5-2\.0\.0\.with\[0\]: ref is missing"),
        ([], r"with.*too short|with: \[\]"),
        ([3], r"with\[0\]: 3 is not "),
    ):
        spec = WHEEL | {"with": entries}
        file.write_text(yaml.safe_dump(SINGLE | {"libraries": {"hdf5-2.0.0": spec}}), encoding="utf-8")
        with pytest.raises(Problem, match=words):
            configuration.load_config(file)
