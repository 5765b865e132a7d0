"""Tools that are there and do not work are passed over, and named with their words where none works."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sbench.build import sources, toolchain
from sbench.build.shell import Workshop
from sbench.build.sources import Archive, Unreachable
from sbench.probe.program import Problem, find_tool

NO_DEFAULT = "error: rustup could not choose a version of rustc to run\nhelp: run 'rustup default stable'"
# What apt says while another one is at work.
HELD = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 42 (unattended-upgr)"


def stand_in(folder: Path, name: str, script: str) -> Path:
    """Write a program of a name, a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def failing(words: str, status: int = 1) -> str:
    return f"printf '%s\\n' {shlex.quote(words)} >&2\nexit {status}"


@pytest.fixture
def first(tmp_path: Path, monkeypatch) -> Callable[[str, str], Path]:
    """Return a function (name, script) -> stand-in for a program, which is on PATH before all others."""
    folder = tmp_path / "first"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda name, script: stand_in(folder, name, script)


def test_the_next_program_on_the_path_is_taken_where_the_first_does_not_work(first):
    there = shutil.which("git")
    first("git", failing("git: broken"))
    assert find_tool("git", remedy="mend it") == there
    assert find_tool("no-such", "git", remedy="mend it") == there
    assert find_tool("git", remedy="mend it", trial=()) != there, "nothing was tried"


@pytest.mark.parametrize("name, trial", [("git", "--version"), ("fio", "--version"), ("gcc", "-S -o - -x c /dev/null")])
def test_a_program_that_is_not_what_its_name_says_is_passed_over(first, name, trial):
    there = shutil.which(name)
    first(name, "echo Finite Impulse Optimizer 2")
    assert find_tool(name, remedy="mend it", trial=trial.split()) == there


@pytest.mark.parametrize(
    "script, words",
    [
        (failing("mine: broken\nsecond line"), "mine: broken"),
        (failing("Traceback (most recent call last):\n  File x\nValueError: no"), "ValueError: no"),
        ("exit 3", "status 3"),
    ],
)
def test_where_none_works_the_line_has_the_program_and_its_words(tmp_path, script, words):
    mine = stand_in(tmp_path, "mine", script)
    with pytest.raises(Problem) as problem:
        find_tool("nothing-there", str(mine), remedy="apt install mine")
    assert str(problem.value) == f"{mine} does not work ({words}): apt install mine"
    mine.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(Problem, match=r"mine does not work \(Exec format error\): apt"):
        find_tool(str(mine), remedy="apt install mine")
    with pytest.raises(Problem, match=r"^nothing-there is missing: apt install mine$"):
        find_tool("nothing-there", remedy="apt install mine")


def test_a_compiler_that_does_not_compile_is_passed_over(first, monkeypatch, tmp_path):
    usual, gcc = toolchain.describe_compiler(), shutil.which("gcc")
    # It knows its version.
    broken = first("gcc", f"[ $1 = --version ] && exec {gcc} --version\n{failing('cannot execute cc1')}")
    assert toolchain.describe_compiler() == usual
    assert toolchain.read_header_versions(toolchain.ZLIB)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(Problem, match=rf"{broken} does not work \(cannot execute cc1\): install a C compiler: apt "):
        toolchain.find_compiler()
    monkeypatch.delenv("CC")
    working = stand_in(tmp_path / "other", "cc", f'exec {gcc} "$@"')
    monkeypatch.setenv("PATH", f"{broken.parent}:{working.parent}")
    assert toolchain.find_compiler() == str(working)


def test_a_crate_is_fetched_by_the_first_cargo_and_rustc_that_work(first, tmp_path, monkeypatch):
    shim = first("rustc", failing(NO_DEFAULT))
    works = stand_in(tmp_path / "second", "rustc", "echo rustc 1.0")
    # As cargo does: it starts what $RUSTC names, else the first rustc on the path.
    crate = tmp_path / "home/registry/cache/index/thing-1.0.crate"
    made = f'[ $1 = --version ] && exit 0\n"${{RUSTC:-rustc}}" -vV && mkdir -p {crate.parent} && touch {crate}'
    first("cargo", failing(NO_DEFAULT))
    stand_in(tmp_path / "second", "cargo", made)
    monkeypatch.setenv("PATH", f"{shim.parent}:{works.parent}:/usr/bin:/bin")
    for name in ("CARGO", "RUSTC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    with open(tmp_path / "lock", "w") as lock:
        workshop = Workshop("test", tmp_path / "work", tmp_path / "log", lock.fileno())
        with pytest.raises(Problem, match="nothing was built from it"):
            Archive("crate thing 1.0", "0" * 64).unpack(workshop)
        assert crate.exists()
        works.unlink()
        monkeypatch.setenv("PATH", f"{shim.parent}:{works.parent}")
        with pytest.raises(Unreachable) as reason:
            sources._fetch_crate(workshop, "thing 1.0")
    assert str(reason.value).startswith(
        f"the crate thing 1.0 needs cargo and rustc, but {shim} does not work (error: rustup could not choose a version"
    )
    assert "rustup default stable" in str(reason.value)


# Where this Python is, below its environment.
BASE = Path(os.path.realpath(sys.executable)).parent
# A machine on which nothing is missing but what a test takes away: tools that say that they work.
WORKING = ("git", "gcc", "g++", "make", "curl", "fio", "cargo", "rustc")


@pytest.fixture
def machine(clone: Path, tmp_path: Path, monkeypatch) -> Path:
    """Return a folder of tools that alone is on PATH of a clone that has to be set up; python3 is this one's."""
    tools = tmp_path / "tools"
    for name in WORKING:
        stand_in(tools, name, "exit 0")
    for name in [
        "awk",
        "cat",
        "chmod",
        "cut",
        "dirname",
        "env",
        "grep",
        "head",
        "id",
        "mktemp",
        "rm",
        "sed",
        "sha256sum",
        "sh",
        "tail",
        "touch",
        "uname",
    ]:
        (tools / name).symlink_to(shutil.which(name))
    # Apt is waited for in no time, by root.
    for name, script in (("sleep", "exit 0"), ("sudo", 'shift\n[ "$1" = true ] || exec "$@"')):
        stand_in(tools, name, script)
    # What gives no answer is waited for only a second.
    stand_in(tools, "timeout", f'shift\nexec {shutil.which("timeout")} 1 "$@"')
    stand_in(tools, "python3", f'exec {BASE}/python3 "$@"')
    # Nothing is to be installed.
    (clone / "envs/workflow.lock").write_text("", encoding="utf-8")
    (clone / ".venv/bin").mkdir(parents=True)
    for name in ("python", "uv"):
        stand_in(clone / ".venv/bin", name, "exit 0")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("PYTHON", raising=False)
    return tools


def made_from(clone: Path) -> Path:
    """Return the folder of the Python that made the environment of a clone."""
    return Path(re.search(r"^home = (.*)$", (clone / ".venv/pyvenv.cfg").read_text(encoding="utf-8"), re.MULTILINE)[1])


def set_up(clone: Path) -> tuple[int, list[str]]:
    """Return the status of the set-up, and its lines."""
    done = subprocess.run(["scripts/setup.sh"], cwd=clone, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def test_the_set_up_passes_over_tools_that_do_not_work(machine, clone, first):
    for name in (*WORKING, "python3"):
        first(name, failing(f"{name}: broken"))
    assert set_up(clone) == (0, ["Making .venv from envs/workflow.lock"])


@pytest.mark.parametrize(
    "name, packages",
    [
        ("git", "git"),
        ("gcc", "gcc g++ make libcurl4-openssl-dev libssl-dev zlib1g-dev"),
        ("fio", "fio"),
        ("python3", "python3 python3-venv python3-dev"),
    ],
)
def test_a_tool_that_does_not_work_is_named_with_its_words_where_it_cannot_be_installed(machine, clone, name, packages):
    (machine / name).unlink()
    broken = stand_in(machine, name, failing(f"{name}: it is broken"))
    line = f"Missing: apt install {packages} (as root), then call again; {broken} does not work ({name}: it is broken)."
    assert set_up(clone) == (2, [line])


def test_a_tool_that_gives_no_answer_is_passed_over_and_named_where_it_is_alone(machine, clone, first):
    hanging = first("fio", "while :; do :; done")
    assert set_up(clone) == (0, ["Making .venv from envs/workflow.lock"])
    (machine / "fio").unlink()
    line = f"Missing: apt install fio (as root), then call again; {hanging} does not work (no answer within 60 s)."
    assert set_up(clone) == (2, [line])


@pytest.mark.parametrize("name, what", [("uv", "the packages of envs/workflow.lock"), ("python", "uv")])
def test_an_index_that_goes_away_ends_in_a_line_and_the_next_call_goes_on(machine, clone, name, what):
    programs = clone / ".venv/bin"
    if name == "python":
        (programs / "uv").unlink()
    words = failing("error: Failed to download `pulp`: 503 Service Unavailable")
    stand_in(programs, name, f'case "$*" in *--require-hashes*) ;; *) exit 0 ;; esac\n{words}')
    status, (_, error, line) = set_up(clone)
    assert (status, error) == (2, "error: Failed to download `pulp`: 503 Service Unavailable")
    remedy = "see that pip's index can be reached and the disk has room, then call again"
    assert line == f"Not all of .venv was installed: {what} could not be; {remedy}"
    for program in ("python", "uv"):
        stand_in(programs, program, "exit 0")
    assert set_up(clone) == (0, ["Making .venv from envs/workflow.lock"])


def test_a_python_that_cannot_make_an_environment_is_passed_over(machine, clone, first):
    shutil.rmtree(clone / ".venv")
    # As Debian's without python3-venv.
    first("python3", failing("Traceback (most recent call last):\nModuleNotFoundError: No module named 'ensurepip'"))
    _, lines = set_up(clone)
    assert lines[0] == "Making .venv from envs/workflow.lock"
    assert made_from(clone) == BASE


def test_making_an_environment_has_no_limit_of_time(machine, clone):
    """On a slow file system it takes minutes."""
    shutil.rmtree(clone / ".venv")
    tools = "for name in python uv; do printf '#!/bin/sh\\n' >.venv/bin/$name; chmod +x .venv/bin/$name; done"
    stand_in(machine, "python3", f'case "$*" in *venv.create*) /bin/mkdir -p .venv/bin; {tools} ;; esac')
    stand_in(machine, "timeout", 'case "$*" in *venv.create*) exit 124 ;; esac\nshift\nexec "$@"')
    assert set_up(clone) == (0, ["Making .venv from envs/workflow.lock"])


def test_a_python_that_has_several_names_is_tried_once(machine, clone, monkeypatch):
    python = stand_in(machine, "python3", failing("it has no Python.h"))
    (machine / "python3.11").symlink_to("python3")
    (machine.parent / "link").symlink_to(machine)
    monkeypatch.setenv("PATH", f"{machine}:{machine.parent}/link")
    status, (line,) = set_up(clone)
    assert status == 2
    assert line.endswith(f"then call again; {python} does not work (it has no Python.h).")


def test_another_apt_that_holds_the_lock_is_waited_for_with_a_line(machine, clone, tmp_path):
    (machine / "git").unlink()
    calls = tmp_path / "calls"
    installs = f"printf '#!/bin/sh\\n' >{machine}/git && chmod +x {machine}/git"
    works_late = f'[ "$(grep -c . {calls})" -gt 3 ] && {{ [ "$2" = update ] || {installs}; exit 0; }}'
    stand_in(machine, "apt-get", f'echo "$@" >>{calls}\n{works_late}\n{failing(HELD, 100)}')
    assert set_up(clone) == (
        0,
        ["Installing with apt: git", f"Waiting for another apt: {HELD}", "Making .venv from envs/workflow.lock"],
    )


def test_an_apt_that_fails_is_one_line_with_its_words(machine, clone):
    (machine / "git").unlink()
    stand_in(machine, "apt-get", failing("Reading lists\nE: Unable to locate package git", 100))
    status, lines = set_up(clone)
    assert status == 2
    assert lines[-1] == "apt-get install failed: E: Unable to locate package git"


def test_a_python_that_is_named_takes_the_place_of_the_one_that_made_the_environment(machine, clone, monkeypatch):
    monkeypatch.setenv("PYTHON", sys.executable)
    stand_in(clone / ".venv/bin", "python", "echo /opt/other/bin/python3")
    _, lines = set_up(clone)
    assert lines[:2] == [
        f"Removing .venv, which was made from another Python than {sys.executable}",
        "Making .venv from envs/workflow.lock",
    ]
    assert made_from(clone) == BASE


def test_an_environment_whose_python_is_gone_is_made_again(machine, clone):
    assert set_up(clone) == (0, ["Making .venv from envs/workflow.lock"])
    assert set_up(clone) == (0, [])
    (clone / ".venv/bin/python").unlink()
    (clone / ".venv/bin/python").symlink_to("/opt/gone/python3")
    assert set_up(clone)[1][0] == "Making .venv from envs/workflow.lock"
    assert made_from(clone) == BASE


def test_a_python_that_is_named_and_does_not_do_is_one_line(machine, clone, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHON", str(stand_in(tmp_path / "mine", "python", failing("it is Python 3.9"))))
    status, lines = set_up(clone)
    assert status == 2
    assert lines == [
        "No Python of at least 3.11 with headers and venv works;"
        f" {tmp_path}/mine/python does not work (it is Python 3.9); name one: PYTHON=/path/to/python3.12 make setup"
    ]
    assert (clone / ".venv/bin/uv").exists(), "what is there stays"
