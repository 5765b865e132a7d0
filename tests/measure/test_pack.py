"""One archive that runs on a machine without anything: another user, another path, no network, no tools."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, artefact, copy_project, sbench
from small_runs import records

from sbench.build import bundle, distributions
from sbench.build.bundle import Entry
from sbench.measure import pack
from sbench.probe import unpacked
from sbench.probe.program import Problem

pytestmark = pytest.mark.late

# What the archive has to bring: an HDF5 from source that reads from an embedded S3 server, and fio.
CONFIG = {
    "run": "packed",
    "repeats": 1,
    "libraries": {"hdf5-2.0.0": {"kind": "source", "hdf5": "2.0.0"}},
    "stores": {
        "disk": {"kind": "posix"},
        "s3": {"kind": "s3", "bucket": "packed", "server": "embedded", "network": {"latency_ms": 1}},
    },
    "studies": {
        "shots": {
            "data": {"shots": 2, "signals": 4},
            "control_cells": 0,
            "matrix": {
                **{"library": ["hdf5-2.0.0"], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]},
                **{"access": ["signals"], "workers": [1], "page_buffer": ["0"], "cache": ["cold"]},
            },
            "compare": [],
        },
        "volumes": {
            **{"jobs": 1, "at_least_s": 0, "pause_s": 0, "batteries": 1, "compare": []},
            "matrix": {"store": ["disk"], "job": ["etcd-short"], "background": ["none"]},
        },
    },
}
# Typed on the bare machine, by nobody. Whoever loads a module there may have libraries of these names.
COMMANDS = """
mkdir -p "/home/a cluster" /home/module
for name in libhdf5.so.320 libz.so.1 libcrypto.so.3 libcurl.so.4; do : >/home/module/$name; done
export LD_LIBRARY_PATH=/home/module
cd "/home/a cluster"
say() { name=$1; shift; "$@" >"/home/a cluster/$name" 2>&1 || echo "status $?" >>"/home/a cluster/$name"; }
say unpack tar -xzf /packed.tar.gz
mv storage-benchmarks-* project
say first sh project/scripts/relocate.sh
cd project
run='.venv/bin/python -sE scripts'
say second sh scripts/relocate.sh
say setup scripts/setup.sh
say run .venv/bin/snakemake --cores 2 --configfile config/packed.yaml
say library $run/build_library.py --out x --library x --spec '{"kind": "wheel", "hdf5": "2.0.0"}'
say server $run/build_servers.py --need azurite --out x
say pack ./sbench pack
say check ./sbench check config/packed.yaml
say plan ./sbench plan config/packed.yaml
mv "/home/a cluster/project" /home/moved
say third sh /home/moved/scripts/relocate.sh
say moved /home/moved/.venv/bin/snakemake --version
cd /home/moved
find . -type l | while read -r link; do
    case $(readlink "$link") in /*) echo "$link" ;; esac
    [ -e "$link" ] || echo "$link"
done >"/home/a cluster/links"
# Most of its bytes, which no test looks at.
rm -r .venv/lib packed/*/lib
"""


@pytest.fixture(scope="module")
def packed(once: Callable, environments: Path) -> Path:
    """Return a folder with a clone, the archive that was packed in it, packed.tar.gz, and what was said."""

    def make(folder: Path) -> None:
        clone = copy_project(folder / "clone")
        (clone / "config/packed.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
        commit(clone)
        done = sbench("pack", "config/packed.yaml", "--out", folder / "packed.tar.gz", cwd=clone)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "said").write_text(done.stdout, encoding="utf-8")

    return once("packed", make)


@pytest.fixture(scope="module")
def measured(once: Callable, packed: Path) -> Path:
    """Return a folder of a bare machine in which a run was measured from the archive, as COMMANDS say."""
    if os.geteuid():
        pytest.skip("only root may make a machine that has nothing of this one")
    if missing := [tool for tool in ("busybox", "ip", "unshare") if not shutil.which(tool)]:
        pytest.skip(f"no {', '.join(missing)}: apt install busybox iproute2 util-linux")

    def run(root: Path) -> None:
        root.chmod(0o755)
        (packed / "packed.tar.gz").rename(root / "packed.tar.gz")
        (root / "commands").write_text(COMMANDS, encoding="utf-8")
        command = [str(ROOT / "tests/helpers/bare_machine.sh"), str(root), "/commands"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        (root / "packed.tar.gz").unlink()
        assert done.returncode == 0, done.stdout + done.stderr

    return once("bare-machine", run) / "home/a cluster"


def commit(clone: Path) -> None:
    """Make a clone a repository with one commit."""
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *words], cwd=clone, check=True)


def said(measured: Path, call: str) -> str:
    return (measured / call).read_text(encoding="utf-8")


def test_one_line_says_what_the_archive_is_and_what_to_type(packed):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=packed / "clone", capture_output=True, text=True, check=True
    )
    top = f"storage-benchmarks-{head.stdout[:10]}-{os.uname().machine}"
    (line,) = said(packed, "said").splitlines()
    assert re.fullmatch(
        rf"{packed}/packed\.tar\.gz: \d+ MB in \d+ s, for Linux on \w+ with glibc 2\.\d+ or newer;"
        rf" there: tar -xzf packed\.tar\.gz && sh {top}/scripts/relocate\.sh",
        line,
    )


def test_a_run_is_measured_where_there_is_nothing_else(measured):
    assert "status" not in said(measured, "run").splitlines()[-1], said(measured, "run")[-3000:]
    clone = measured.parent / "moved"
    for study in ("shots", "volumes"):
        (record,) = records(clone, "packed", study).values()
        assert (record["status"], record["valid"], record["host"]["node"]) == ("done", True, "bare")
    assert {path.name for path in (clone / "reports/packed").glob("*.html")} == {
        *("index.html", "shots.html", "volumes.html")
    }


def test_what_was_measured_is_what_was_built(measured, environments):
    there = artefact(measured.parent / "moved/results/packed/environments/hdf5-2.0.0.json")
    here = artefact(environments / "hdf5-2.0.0.json")
    same = ("library", "kind", "hdf5", "h5py", "numpy", "dask", "ros3", "promised", "lock_sha256")
    assert {key: there[key] for key in same} == {key: here[key] for key in same}
    assert there["build"]["inputs_sha256"] == here["build"]["inputs_sha256"]
    assert there["python"].startswith("/home/a cluster/project/packed/")


def test_a_record_has_the_commit_that_was_packed(measured, packed):
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=packed / "clone", capture_output=True, text=True, check=True
    )
    for study in ("shots", "volumes"):
        (record,) = records(measured.parent / "moved", "packed", study).values()
        assert (record["provenance"]["git"], record["provenance"]["dirty"]) == (head.stdout.strip(), False)


def test_a_folder_is_set_up_once_and_again_after_it_was_moved(measured):
    home = "/home/a cluster/project"
    start = "type there: .venv/bin/snakemake --cores 2 --configfile config/packed.yaml"
    assert said(measured, "first") == f"Set up in {home}; {start}\n"
    assert said(measured, "second") == f"Nothing to do: this archive is set up in {home}\n"
    assert said(measured, "setup") == ""
    assert said(measured, "third") == f"Set up in /home/moved; {start}\n"
    assert re.fullmatch(r"(Cannot set bash .*\n)?9\.\d+\.\d+\n", said(measured, "moved"))


@pytest.mark.parametrize(
    "call, line",
    [
        ("library", "library x did not come with this unpacked archive (it has hdf5-2.0.0); "),
        ("server", "the server azurite did not come with this unpacked archive (it has toxiproxy, versitygw); "),
        ("pack", "this folder was unpacked from an archive itself; call sbench pack in the clone that it came from"),
    ],
)
def test_what_did_not_come_with_the_archive_is_one_line(call, line, measured):
    problem, status = said(measured, call).splitlines()
    assert problem.startswith(f"problem: {line}")
    assert status == "status 2"


def test_where_everything_was_brought_nothing_is_built(measured):
    assert "nothing to build" in said(measured, "plan")
    assert "AMISS" not in said(measured, "check")
    assert "library hdf5-2.0.0: packed/source-2.0.0-" in said(measured, "check")


def test_nothing_in_the_archive_leads_to_where_it_was_made(measured, packed):
    tree = measured.parent / "moved"
    assert said(measured, "links") == ""
    scripts = [path for path in tree.glob("**/bin/*") if path.is_file() and path.read_bytes()[:2] == b"#!"]
    named = [*scripts, *tree.glob("*/**/pyvenv.cfg"), *tree.glob("**/site-packages/*.pth"), tree / unpacked.MANIFEST]
    assert len(scripts) > 20
    here = [str(place).encode() for place in (ROOT, packed / "clone", Path.home(), Path(sys.prefix))]
    assert [path for path in named if any(place in path.read_bytes() for place in here)] == []


SCRIPTS = {
    "short": "#!{0}/bin/python\n",
    "long": "#!/bin/sh\n'''exec' '{0}/bin/python3' \"$0\" \"$@\"\n' '''\n",
}


@pytest.mark.parametrize("begin", SCRIPTS)
def test_a_script_starts_the_interpreter_beside_it(begin, tmp_path):
    made, there = tmp_path / "made", tmp_path / "where it is"
    (made / "bin").mkdir(parents=True)
    (made / "bin/tool").write_text(f"{SCRIPTS[begin].format(made)}import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    (made / "bin/activate").write_text(str(made), encoding="utf-8")
    (made / "bin/python3").symlink_to(os.path.realpath(sys.executable))
    (made / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = 3\ncommand = venv {made}\n", encoding="utf-8")
    entries = {entry.name: entry for entry in bundle.environment(made, "packed/x")}
    assert {name: entry.link for name, entry in entries.items()} == {
        "packed/x/bin/tool": "",
        "packed/x/bin/python3": f"../../python/bin/{Path(sys.executable).resolve().name}",
        "packed/x/pyvenv.cfg": "",
    }
    assert entries["packed/x/pyvenv.cfg"].content == b"version = 3\n"
    there.mkdir()
    (there / "tool").write_bytes(entries["packed/x/bin/tool"].content)
    (there / "tool").chmod(0o755)
    (there / "python").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "link").symlink_to(there / "tool")
    done = subprocess.run([tmp_path / "link", "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "['a b', 'c']\n"


def test_a_library_is_known_by_what_it_is_made_of_and_not_by_where_that_was_had():
    key = distributions.library_key({"kind": "source", "hdf5": "2.0.0", "from": "auto"})
    assert distributions.library_key({"kind": "source", "hdf5": "2.0.0", "from": "crate"}) == key
    wheel = {"kind": "wheel", "hdf5": "2.0.0"}
    others = [{"kind": "source", "hdf5": "2.1.0"}, wheel, wheel | {"lock": "envs/yt.lock"}]
    assert len({key, *map(distributions.library_key, others)}) == 4


def test_a_tree_that_was_edited_after_it_was_unpacked_is_dirty(tmp_path):
    tree = unpacked_tree(tmp_path)
    facts = "import sys; sys.path[0] = 'scripts'; from sbench.probe import provenance; print(provenance.facts(()))"
    asked = [sys.executable, "-sE", "-c", facts]
    for text, dirty in (("as packed", False), ("edited", True)):
        (tree / "README.md").write_text(text, encoding="utf-8")
        done = subprocess.run(asked, cwd=tree, capture_output=True, text=True, check=True)
        assert f"'git': 'abc', 'dirty': {dirty}" in done.stdout


@pytest.mark.parametrize("dirty", [False, True])
def test_the_name_of_an_archive_says_whether_everything_was_committed(dirty):
    assert pack.title({"git": "0123456789abcdef", "dirty": dirty}).startswith(
        "storage-benchmarks-0123456789-dirty-" if dirty else f"storage-benchmarks-0123456789-{os.uname().machine}"
    )


def unpacked_tree(folder: Path, python: str = "", **facts: object) -> Path:
    """Return a folder with what an unpacked archive is known by, with `facts` in its manifest and a shell as Python."""
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    files = {"README.md": hashlib.sha256(b"as packed").hexdigest()}
    manifest = {"git": "abc", "dirty": False, "machine": os.uname().machine, "glibc": "2.2", "files": files} | facts
    (folder / "packed/python/bin").mkdir(parents=True)
    (folder / "packed/python/bin/python3").write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    (folder / "packed/python/bin/python3").chmod(0o755)
    (folder / "packed/fio/bin").mkdir(parents=True)
    (folder / "packed/fio/bin/fio").symlink_to("../../python/bin/python3")
    (folder / unpacked.MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    (folder / ".venv").mkdir()
    (folder / ".venv/pyvenv.cfg").write_text("version = 3.11\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "facts, line",
    [
        ({"machine": "sparc"}, r"This archive is for Linux on sparc, and here is Linux on \w+: call sbench pack on .*"),
        ({"glibc": "2.199"}, r"This archive needs glibc 2\.199, and here is 2\.\d+: call sbench pack where .*"),
        (
            {"python": "echo version GLIBC_2.199 not found; exit 1"},
            r"packed/python/bin/python3 does not start here: .*",
        ),
    ],
)
@pytest.mark.parametrize("script", ["relocate", "setup"])
def test_a_machine_that_an_archive_does_not_suit_is_one_line(script, facts, line, tmp_path):
    done = subprocess.run(
        ["sh", unpacked_tree(tmp_path, **facts) / f"scripts/{script}.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"{line}\n", done.stderr)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    tree = unpacked_tree(tmp_path)
    (tree / ".venv/pyvenv.cfg.new").mkdir()
    done = subprocess.run(["sh", tree / "scripts/relocate.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{tree}/.venv/pyvenv.cfg cannot be written: make the folder writable")


def test_a_clone_is_not_taken_for_an_unpacked_archive():
    done = subprocess.run(["sh", ROOT / "scripts/relocate.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"{ROOT} was not unpacked from an archive of sbench pack: in a clone, type make setup\n"


def test_a_folder_that_git_does_not_know_is_one_line(clone):
    done = sbench("pack", cwd=clone)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "problem: git names no commit and no files of this folder; call sbench pack in a clone"
    )


@pytest.mark.parametrize(
    "tools, arguments, line",
    [
        (["git", "readelf"], [], "fio is missing: apt install fio, or dnf install fio; it is part of the archive"),
        (["git", "fio"], [], "readelf is missing: apt install binutils"),
        (["git"], ["--out", "x.zip"], "--out x.zip: the archive is compressed with gzip, so end its name in .tar.gz"),
        (["git"], ["--out", "/proc/x.tar.gz"], "/proc/x.tar.gz cannot be written: "),
        (["git"], ["/elsewhere/config.yaml"], "/elsewhere/config.yaml cannot be read"),
    ],
)
def test_what_is_missing_before_anything_is_built_is_one_line(tools, arguments, line, clone, tmp_path):
    commit(clone)
    for tool in tools:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = sbench("pack", *arguments, cwd=clone, env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 2
    (problem,) = done.stderr.splitlines()
    assert problem.startswith(f"problem: {line}")


def test_a_library_that_is_to_be_built_twice_is_not_packed(tmp_path):
    shots = CONFIG["studies"]["shots"] | {"twins": ["copied", "rebuilt"]}
    file = tmp_path / "twice.json"
    file.write_text(json.dumps(CONFIG | {"studies": {"shots": shots}}), encoding="utf-8")
    done = sbench("pack", file, "--out", tmp_path / "out.tar.gz", cwd=ROOT)
    (problem,) = done.stderr.splitlines()
    why = "studies.shots.twins: an archive has one build of each library; leave out rebuilt"
    assert (done.returncode, problem) == (2, f"problem: {why}")


def test_a_configuration_elsewhere_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pack.within(Path("config/mine.yaml")) == pack.within(tmp_path / "config/mine.yaml") == "config/mine.yaml"
    with pytest.raises(Problem, match="is not in this folder, so not in the archive; copy it to"):
        pack.within(Path("../mine.yaml"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a few MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted without root: an archive on a full one is not tested")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_an_archive_that_finds_no_room_is_one_line_and_leaves_nothing(small_disk, tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(2**24))
    with pytest.raises(Problem, match=r"full\.tar\.gz cannot be written: No space left on device; free the disk"):
        pack.write(small_disk / "full.tar.gz", "top", {}, [Entry("data", tmp_path / "data")])
    assert list(small_disk.iterdir()) == []
