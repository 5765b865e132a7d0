"""Libraries under test that are the user's own: each is what its record says, an edit is another one."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import artefact, program, sbench
from small_runs import SINGLE, drop, launch, records, write

from sbench.build import own, toolchain
from sbench.build.cache import provide_piece
from sbench.build.distributions import list_promises
from sbench.build.environments import resolve_origin
from sbench.build.hdf5 import create_hdf5_recipe, provide_hdf5
from sbench.build.shell import Workshop, make_environment
from sbench.build.sources import ENVS, LOCK, Unreachable, list_archives
from sbench.design import config as configuration
from sbench.design import fingerprint
from sbench.measure import preflight
from sbench.pages.names import Names
from sbench.pages.names import describe_software as named
from sbench.probe.program import Problem, compute_file_digest
from sbench.studies.shots.report import REPORT, format_hdf5_version

pytestmark = pytest.mark.late

SOURCE = {"kind": "source", "hdf5": "2.0.0"}
# The same commit on each machine, so that what is built of it is in the cache.
WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost")
WHEN = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2025-01-01T00:00:00Z")
WHEN |= {"GIT_CONFIG_GLOBAL": os.devnull}


def git(clone: Path, *words: str) -> str:
    command = ["git", "-C", clone, *WHO, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | WHEN).stdout.strip()


@pytest.fixture
def workshop(tmp_path: Path):
    (tmp_path / "work").mkdir()
    with open(tmp_path / "lock", "w") as lock:
        yield Workshop("test", tmp_path / "work", tmp_path / "log", lock.fileno())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder that is laid out like a source tree of HDF5."""
    tree = tmp_path / "hdf5"
    for name in ("CMakeLists.txt", "src/H5.c", "config/a.cmake"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"{name}\n", encoding="utf-8")
    parts = zip(("MAJOR", "MINOR", "RELEASE"), SOURCE["hdf5"].split("."), strict=True)
    header = "".join(f"#define H5_VERS_{part} {number} /* a part */\n" for part, number in parts)
    (tree / "src/H5public.h").write_text(f'{header}#define H5_VERS_SUBRELEASE "1"\n', encoding="utf-8")
    (tree / "src/link.c").symlink_to("H5.c")
    return tree


@pytest.fixture
def branched(tree: Path) -> Path:
    """Return the tree as a clone with a tag and a branch, on neither of which is what its working tree has."""
    git(tree, "init", "--quiet", "--initial-branch=main")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message=release")
    git(tree, "tag", "v2")
    git(tree, "checkout", "--quiet", "-b", "my-branch")
    (tree / "src/H5.c").write_text("the branch\n", encoding="utf-8")
    git(tree, "commit", "--quiet", "--all", "--message=branch")
    (tree / "src/H5.c").write_text("not committed\n", encoding="utf-8")
    return tree


def packed(tree: Path, top: str = "hdf5-mine") -> Path:
    with tarfile.open(tree.with_name("mine.tar.xz"), "w:xz") as archive:
        archive.add(tree, top)
    return tree.with_name("mine.tar.xz")


def source(place: Path, **more: str) -> own.Archive:
    (only,) = own.list_hdf5_sources(SOURCE | {"from": str(place)} | more)
    return only


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tree_a_tarball_and_a_commit_are_known_by_what_they_hold(workshop, tree):
    expected, archive = contents(tree), packed(tree)
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message=all")
    commit = git(tree, "rev-parse", "HEAD")
    sources = [source(tree), source(archive), source(tree, ref="HEAD")]
    assert [re.sub(r"\b[0-9a-f]{12}$", "…", one.origin) for one in sources] == [
        "local tree …",
        "local tarball …",
        "git …",
    ]
    assert [one.key for one in sources[1:]] == [compute_file_digest(archive), commit]
    assert [one.origin.endswith(one.key[:12]) for one in sources] == [True] * 3
    for one in sources:
        assert contents(one.unpack(workshop)) == expected
        subprocess.run(["rm", "-r", workshop.work / "unpacked"], check=False)


def test_an_edit_is_built_again_and_what_is_no_source_is_not_looked_at(tree):
    keys = [create_hdf5_recipe("2.0.0", source(tree)).key]
    for name in (".git/index", ".H5.c.swp", "mine/CMakeCache.txt", "mine/H5.o"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    keys.append(create_hdf5_recipe("2.0.0", source(tree)).key)
    assert keys[1] == keys[0]
    for edit in (
        lambda: (tree / "src/H5.c").write_text("src/H5.c\n/* a comment */\n", encoding="utf-8"),
        lambda: (tree / "src/H5.c").rename(tree / "src/H5x.c"),
        lambda: (tree / "src/H5x.c").chmod(0o755),
        lambda: ((tree / "src/link.c").unlink(), (tree / "src/link.c").symlink_to("H5x.c")),
    ):
        edit()
        keys.append(create_hdf5_recipe("2.0.0", source(tree)).key)
    assert len(set(keys)) == 5


def test_a_tree_that_changes_between_its_hash_and_its_build_is_not_built(workshop, tree):
    before = source(tree)
    (tree / "src/H5.c").write_text("edited\n", encoding="utf-8")
    with pytest.raises(Problem, match="changed during the copy"):
        before.unpack(workshop)


def test_a_commit_is_built_whatever_the_working_tree_has(workshop, branched):
    before = git(branched, "status", "--porcelain", "--branch")
    built = {
        name: (source(branched, ref=name).unpack(workshop) / "src/H5.c").read_text() for name in ("my-branch", "v2")
    }
    assert built == {"my-branch": "the branch\n", "v2": "src/H5.c\n"}
    short = git(branched, "rev-parse", "--short", "my-branch")
    assert source(branched, ref=short) == source(branched, ref="my-branch") == source(branched / "src", ref="HEAD")
    assert git(branched, "status", "--porcelain", "--branch") == before
    assert (branched / "src/H5.c").read_text() == "not committed\n"


@pytest.mark.parametrize("version, base", [("1.12.3", "libcurl"), ("1.14.99", "libcurl"), ("2.0.1", ""), ("3.1.0", "")])
def test_a_version_that_is_not_pinned_has_the_base_of_its_driver(tree, version, base):
    of = create_hdf5_recipe(version, source(tree)).inputs["s3"]
    assert (of == "libcurl") == bool(base)


def prefix(folder: Path, *files: str) -> Path:
    """Return a folder with some files of an installed HDF5 2.0.0."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"from": "{tmp}/none"}, r"/none does not exist; correct the path"),
        ({"from": "{tmp}/empty"}, r"empty is neither an HDF5 source tree .* nor an HDF5 installation"),
        ({"from": "{tmp}/empty.tar.gz"}, r"empty\.tar\.gz is not a tar archive of HDF5's source: "),
        ({"from": "{tmp}/other.tar"}, r"other\.tar does not contain an HDF5 source tree \(src/H5public\.h is"),
        (
            {"from": "{tmp}/hdf5", "hdf5": "2.1.0"},
            r'hdf5 is 2\.1\.0, but the version in .*/H5public\.h is 2\.0\.0; write hdf5: "2\.0\.0"',
        ),
        ({"from": "{tmp}/hdf5", "ref": "v2", "hdf5": "2.1.0"}, r"src/H5public\.h of .* at v2 is 2\.0\.0"),
        ({"from": "{tmp}/mine.tar.xz", "hdf5": "2.1.0"}, r"src/H5public\.h in .*mine\.tar\.xz is 2\.0\.0"),
        ({"from": "{tmp}/hdf5", "ref": "none"}, r"none is not a branch, tag or commit of .*hdf5 \(fatal: "),
        ({"from": "{tmp}/hdf5", "ref": "--help"}, r"--help is not a branch, tag or commit of .*hdf5 \(fatal: "),
        ({"from": "{tmp}/empty", "ref": "main"}, r"empty is not a git clone \(fatal: not a git repository"),
        ({"ref": "main"}, r"ref: main requires a clone; name its folder"),
        ({"from": "{tmp}/half"}, r"half lacks include/H5pubconf\.h, lib/libhdf5_hl\.so; an HDF5 installation needs"),
        ({"from": "{tmp}/headers"}, r"headers lacks include/H5pubconf\.h, lib/libhdf5\.so, lib/libhdf5_hl\.so"),
        ({"from": "{tmp}/parallel"}, r"parallel is a parallel HDF5"),
        ({"from": "{tmp}/built"}, r"built contains an in-source build \(CMakeCache\.txt\)"),
    ],
)
def test_what_is_no_hdf5_is_one_line_before_anything_is_built(tmp_path, branched, spec, words):
    packed(branched)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.tar.gz").touch()
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(branched / "config", "config")
    prefix(tmp_path / "half", "include/H5public.h", "lib/libhdf5.so")
    prefix(tmp_path / "headers", "include/H5public.h")
    installed = prefix(tmp_path / "parallel", "lib/libhdf5.so", "lib/libhdf5_hl.so", "include/H5public.h")
    (installed / "include/H5public.h").write_bytes((branched / "src/H5public.h").read_bytes())
    (installed / "include/H5pubconf.h").write_text("#define H5_HAVE_PARALLEL 1\n", encoding="utf-8")
    built = prefix(tmp_path / "built", "CMakeLists.txt", "CMakeCache.txt", "src/H5public.h")
    (built / "src/H5public.h").write_bytes((branched / "src/H5public.h").read_bytes())
    spec = {key: value.format(tmp=tmp_path) for key, value in (SOURCE | spec).items()}
    with pytest.raises(Problem, match=words) as problem:
        resolve_origin(spec)
    assert "\n" not in str(problem.value)
    ((what, fine, detail),) = preflight.check_inputs({"libraries": {"mine": spec}, "studies": {}})
    assert (what, fine, detail) == ("library mine", False, str(problem.value))


def wheel(path: Path, *files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in files:
            archive.writestr(name, "")
    return path


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"kind": "wheel", "wheel": "{tmp}/none.whl"}, r"/none\.whl does not exist"),
        ({"kind": "wheel", "wheel": "{tmp}/mine.whl"}, r"mine\.whl is not a wheel: "),
        ({"kind": "wheel", "wheel": "{tmp}/h5py-3.0-py3-none-any.whl"}, r"any\.whl is not a wheel: File is not a zip"),
        ({"kind": "wheel", "wheel": "{tmp}/six-1.0-py3-none-any.whl"}, r"any\.whl is a wheel without h5py"),
        (
            {"kind": "wheel", "wheel": "{tmp}/h5py-3.0-cp27-cp27m-win32.whl"},
            r"for cp27-cp27m-win32, not for Python 3\.",
        ),
        ({"kind": "python", "python": "{tmp}/none"}, r"/none does not exist"),
        ({"kind": "python", "python": "{tmp}/mine.whl"}, r"mine\.whl cannot be started: Permission denied"),
        ({"kind": "python", "python": "/bin/true"}, r"/bin/true is not JSON .*; name a Python interpreter"),
        ({"kind": "python", "python": "{own}"}, r"cannot import the packages of a library under test: .*'dask'"),
    ],
)
def test_a_wheel_or_an_interpreter_that_cannot_be_used_is_one_line(tmp_path, spec, words):
    for name in ("mine.whl", "h5py-3.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    wheel(tmp_path / "six-1.0-py3-none-any.whl", "six.py")
    wheel(tmp_path / "h5py-3.0-cp27-cp27m-win32.whl", "h5py/__init__.py")
    places = {"tmp": tmp_path, "own": sys.executable}
    spec = {key: value.format(**places) for key, value in ({"hdf5": "2.0.0"} | spec).items()}
    with pytest.raises(Problem, match=words) as problem:
        resolve_origin(spec)
    assert "\n" not in str(problem.value)


def test_keys_that_exclude_each_other_are_refused(tmp_path):
    both = {"kind": "wheel", "hdf5": "2.0.0", "wheel": "a.whl", "lock": "envs/h5py-3.16.0.lock"}
    for spec, words in ((both, "lock and wheel exclude"), ({"kind": "python", "hdf5": "2.0.0"}, "python is missing")):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(SINGLE | {"libraries": {"hdf5-2.0.0": spec}}), encoding="utf-8")
        with pytest.raises(Problem, match=words):
            configuration.load_config(file)


def artefact_of(out: Path, spec: dict, name: str = "mine") -> dict:
    done = program("build_library", "--library", name, "--spec", json.dumps(spec), "--out", out)
    assert done.returncode == 0, done.stderr
    return artefact(out)


@pytest.fixture
def hdf5_clone(workshop, tmp_path: Path) -> Path:
    """Return a clone of HDF5 2.0.0 with a branch that has one more comment."""
    for archive in list_archives("2.0.0", "auto"):
        try:
            unpacked = archive.unpack(workshop)
            break
        except Unreachable as reason:
            print(reason)
    else:
        pytest.skip("HDF5 2.0.0 cannot be fetched: neither its tarball nor its crate")
    clone = unpacked.rename(tmp_path / "clone")
    git(clone, "init", "--quiet", "--initial-branch=main")
    git(clone, "-c", "core.autocrlf=false", "add", "--all", "--force")
    git(clone, "commit", "--quiet", "--message=release")
    git(clone, "checkout", "--quiet", "-b", "my-branch")
    with open(clone / "src/H5.c", "a", encoding="utf-8") as code:
        code.write("/* of the branch */\n")
    git(clone, "commit", "--quiet", "--all", "--message=branch")
    return clone


@pytest.mark.rule(14)
def test_a_branch_is_built_and_h5py_on_where_it_is_installed(tmp_path, hdf5_clone, environments):
    spec = SOURCE | {"from": str(hdf5_clone), "ref": "my-branch"}
    commit = git(hdf5_clone, "rev-parse", "my-branch")
    branch = provide_hdf5(spec)
    assert branch.facts["hdf5_source"] == f"git {commit[:12]}"
    assert branch.facts["source_key"] == commit
    assert branch.facts["s3_stack"].startswith("awscrt-")
    assert git(hdf5_clone, "status", "--porcelain") == ""
    # What it was installed into is an HDF5 that is installed.
    mine = artefact_of(tmp_path / "mine.json", SOURCE | {"from": str(branch.folder)})
    release = artefact(environments / "hdf5-2.0.0.json")
    assert (mine["hdf5"], mine["ros3"], mine["own"], release["own"]) == ("2.0.0", True, True, False)
    assert re.fullmatch(r"local prefix [0-9a-f]{12}", mine["build"]["hdf5_source"])
    assert mine["promised"]["libhdf5"] == f"2.0.0 ({mine['build']['hdf5_source']})" != release["promised"]["libhdf5"]
    assert str(branch.folder) not in json.dumps([mine["build"], mine["promised"]])
    (loaded,) = (one for one in mine["imported"] if "libhdf5.so" in one)
    assert Path(loaded.split(" ", 3)[3]).parent == branch.folder / "lib"
    assert fingerprint.expect_unchanged(mine) is None


@pytest.mark.rule(14)
def test_a_wheel_of_ones_own_takes_the_place_of_a_locked_one(tmp_path, environments):
    python = provide_piece(toolchain.create_tools_recipe()).folder / "bin/python"
    lock = ENVS / "h5py-3.16.0.lock"
    how = ("--quiet", "--no-deps", "--require-hashes", "--dest", tmp_path)
    subprocess.run([python, "-m", "pip", "download", *how, "-r", lock], check=True)
    (file,) = tmp_path.glob("*.whl")
    mine = artefact_of(tmp_path / "mine.json", {"kind": "wheel", "hdf5": "2.0.0", "wheel": str(file)})
    assert mine["build"]["hdf5_source"] == f"local wheel {compute_file_digest(file)[:12]}"
    assert (mine["h5py"], mine["hdf5"], mine["own"]) == ("3.16.0", "2.0.0", True)
    assert mine["promised"]["h5py"] == f"3.16.0 ({mine['build']['hdf5_source']})"
    assert mine["promised"]["dask"] == artefact(environments / "hdf5-2.0.0.json")["promised"]["dask"]


@pytest.fixture
def venv(workshop, tmp_path: Path) -> Path:
    """Return the interpreter of an environment that somebody made: h5py's wheel with HDF5 2.0.0, and what it needs."""
    return make_environment(workshop, tmp_path / "venv", LOCK, ENVS / "h5py-3.16.0.lock")


def edit(file: Path) -> None:
    """Add a comment to a file that other environments share."""
    copy = file.with_suffix(".edited")
    copy.write_text(f"{file.read_text(encoding='utf-8')}# edited\n", encoding="utf-8")
    copy.replace(file)


@pytest.mark.rule(14)
def test_a_run_with_an_interpreter_of_ones_own_measures_what_it_began_with(tmp_path, venv, ready_clone):
    installed = sorted(path.stat().st_mtime_ns for path in (tmp_path / "venv").rglob("*"))
    spec = {"kind": "python", "hdf5": "2.0.0", "python": str(venv)}
    with pytest.raises(Problem, match=r"hdf5 is 1\.8\.0, but its h5py uses HDF5 2\.0\.0"):
        resolve_origin(spec | {"hdf5": "1.8.0"})
    write(ready_clone, SINGLE | {"libraries": {"hdf5-2.0.0": spec}})
    done = launch(ready_clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.stat().st_mtime_ns for path in (tmp_path / "venv").rglob("*")) == installed
    (record,) = records(ready_clone).values()
    build = record["provenance"]["build"]
    assert re.fullmatch(r"local python [0-9a-f]{12}", build["hdf5_source"])
    assert {"h5py", "numpy", "dask", "distributed", "libhdf5 (h5py)"} <= build["imports"].keys()
    assert any(package.startswith("numpy ") for package in build["packages"])
    page = (ready_clone / "reports/tiny/shots.md").read_text(encoding="utf-8")
    assert f"HDF5 2.0.0 (hdf5-2.0.0, {build['hdf5_source']})" in page
    assert str(tmp_path / "venv") not in page + (ready_clone / "reports/tiny/shots.html").read_text(encoding="utf-8")
    assert "by now" not in sbench("plan", cwd=ready_clone).stdout

    edit(tmp_path / "venv/lib" / venv.resolve().name / "site-packages/h5py/version.py")
    drop(ready_clone, "*/repeat=1.json")
    again = launch(ready_clone)
    assert f"run tiny began with {build['hdf5_source']} and keeps that build; give the run another name" in again.stderr
    assert again.returncode == 1
    (failed,) = records(ready_clone).values()
    assert "version.py has changed since this run began" in failed["reasons"][0]


def test_two_builds_of_one_version_differ_on_purpose_and_have_names_of_their_own():
    spec, facts = SOURCE | {"from": "/home/me/hdf5", "ref": "mine"}, {"h5py": "3.16.0", "hdf5": "2.0.0"}
    builds = {
        "release": {"hdf5_source": "tarball https://host/hdf5.tar.gz", "s3_stack": "awscrt-0.38.0"},
        "my-branch": {"hdf5_source": "git 0123456789ab", "s3_stack": "awscrt-0.38.0"},
        "my-other": {"hdf5_source": "git ba9876543210", "s3_stack": "awscrt-0.38.0"},
    }
    prints = [
        json.dumps({"distributions": {}, "files": {"libhdf5": name}, "promised": list_promises(spec, facts, build)})
        for name, build in builds.items()
    ]
    assert (
        fingerprint.describe_differences(*prints[:2], True) == fingerprint.describe_differences(*prints[1:], True) == ()
    )
    libraries = {name: {"hdf5": "2.0.0", "own": name != "release", "build": build} for name, build in builds.items()}
    shown = [format_hdf5_version(name, {"libraries": libraries}) for name in libraries]
    assert shown == ["HDF5 2.0.0", "HDF5 2.0.0 (my-branch)", "HDF5 2.0.0 (my-other)"]
    names = Names(REPORT, {"libraries": libraries})
    pair = names.format_pair({"factor": "library", "contender": "my-branch", "baseline": "release"}, names.format_level)
    assert pair == ("HDF5 2.0.0 (my-branch)", "HDF5 2.0.0")
    first = [named(name, spec) for name, spec in libraries.items()]
    assert first[:2] == ["HDF5 2.0.0", "HDF5 2.0.0 (my-branch, git 0123456789ab)"]
