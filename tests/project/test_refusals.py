"""What the system refuses is named for what it is, whichever call it refuses, and never blamed on something else."""

import contextlib
import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import artefact, program, run_code

from sbench.court import audit
from sbench.design import config as configuration
from sbench.probe import dask_workers, globs
from sbench.probe.processes import find_free_port, run_process
from sbench.probe.program import Problem, compute_file_digest, describe_cause, read_json
from sbench.probe.spool import Spool
from sbench.stores.embedded import Proxy

CODE = """
import os, resource, subprocess
from sbench.probe.processes import run_process
from sbench.probe.program import read_json, run_main, write_text

def main():
    next_one = os.open(os.devnull, os.O_RDONLY)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, next_one))
    {}

def start():
    with run_process(["true"], None, {{}}, stdin=subprocess.PIPE):
        pass

run_main(main)
"""
SHORT = "the machine: Too many open files; end programs that use many processes, open files or much memory (ulimit -a)"


@pytest.mark.parametrize("call, named", [("start()", "true did not start: "), ("os.pipe()", "")])
def test_what_a_machine_that_is_short_of_files_refuses_is_no_fault_of_a_program(call: str, named: str):
    done = run_code(CODE.format(call))
    assert (done.returncode, done.stderr) == (2, f"problem: {named}{SHORT} and run again\n")


@pytest.mark.parametrize("call, failed", [("write_text({!r}, '')", "written"), ("read_json({!r})", "read")])
def test_a_file_that_a_machine_short_of_files_refuses_is_not_blamed_on_the_disk(tmp_path: Path, call: str, failed: str):
    path = tmp_path / "thing.json"
    path.write_text("{}", encoding="utf-8")
    code = CODE.format(call.format(str(path)))
    done = run_code(code)
    words = SHORT.removeprefix("the machine: ")
    assert (done.returncode, done.stderr) == (2, f"problem: {path} cannot be {failed}: {words} and run again\n")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "opened, words",
    [
        ("nullcontext(sys.argv[1])", ": File too large"),
        ("replace_file(sys.argv[1])", " cannot be written: File too large; free the disk or make the folder writable"),
    ],
)
def test_what_the_system_refuses_to_hdf5_is_one_line_with_the_name_of_the_file(tmp_path: Path, opened: str, words: str):
    code = """
import resource, sys, h5py
from contextlib import nullcontext
from sbench.probe.program import replace_file, run_main

def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**12, 2**12))
    with {} as path, h5py.File(path, "w") as file:
        file["values"] = list(range(10_000))

run_main(main)
"""
    path = tmp_path / "thing.h5"
    done = run_code(code.format(opened), path)
    assert (done.returncode, done.stderr) == (2, f"problem: {path}{words}\n")


def test_an_emulated_network_that_does_not_answer_is_one_line():
    proxy = object.__new__(Proxy)
    proxy._control = f"http://127.0.0.1:{find_free_port()}"
    with pytest.raises(Problem, match=r"the proxy of the emulated network does not respond: .*refused; run again"):
        proxy.reset_traffic()


def test_a_worker_that_lost_its_connection_is_one_line():
    code = """
import errno, os
from sbench.probe.program import run_main

def main():
    try:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    except OSError as error:
        raise RuntimeError("Nanny failed to start.") from error

run_main(main)
"""
    done = run_code(code)
    assert (done.returncode, done.stderr) == (2, "problem: a connection: Connection reset by peer; run again\n")


def test_a_worker_that_ends_as_it_is_started_is_one_line(monkeypatch):
    def fail(**settings: object) -> None:
        raise RuntimeError("Nanny failed to start.") from EOFError()

    # Stand-ins for Dask, which only the libraries under test have.
    settings = SimpleNamespace(set=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "dask", SimpleNamespace(config=settings))
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(LocalCluster=fail, Client=None))
    with pytest.raises(Problem, match="a Dask worker ended during its start"), dask_workers.start_cluster(1):
        pass


def test_an_error_of_the_disk_is_no_lack_of_room():
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    of_hdf5 = RuntimeError("Can't close (write failed: filename = 'a.h5', file descriptor = 4, errno = 5, offset = 0)")
    for one in (error, of_hdf5):
        assert (
            describe_cause(one, "; free the disk")
            == "Input/output error; check the disk for errors (dmesg) and run again"
        )


def test_a_program_that_is_not_there_is_a_fault_of_its_name():
    with pytest.raises(OSError, match="no-such-program"), run_process(["no-such-program"], None, {}):
        pass


def test_a_step_whose_log_cannot_be_written_names_the_log_at_each_attempt(tmp_path: Path):
    (tmp_path / "logs").write_text("a file where the folder should be", encoding="utf-8")
    out, log = tmp_path / "out.json", tmp_path / "logs/step.log"
    for attempt in (1, 2):
        done = program("step", "run", "--out", out, "--log", log, "--attempt", attempt, "plan")
        assert done.returncode == 0, done.stderr
        [reason] = artefact(out)["reasons"]
        assert reason.startswith("the step did not start, as its log is not writable: ")
        assert str(tmp_path / "logs") in reason


@pytest.mark.parametrize(
    "begun, said", [(False, "the following arguments are required"), (True, "ended before it wrote its artefact")]
)
def test_a_second_attempt_begins_what_the_first_one_did_not_come_to(tmp_path: Path, begun: bool, said: str):
    out, words = tmp_path / "out.json", tmp_path / "step.log"
    if begun:
        words.with_suffix(".begun").touch()
    program("step", "run", "--out", out, "--log", words, "--attempt", "2", "plan", "--", "--config", "{}")
    assert said in artefact(out)["reasons"][0]
    assert not words.with_suffix(".begun").exists()


@pytest.mark.parametrize("read", [read_json, compute_file_digest, lambda path: audit.print_audit([str(path)])])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, read):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(Problem, match="is a folder, a pipe or a device, not a file; move it away"):
        read(tmp_path / "pipe.json")


@pytest.mark.parametrize("value", [True, -1, "all", ["s3"], 2.5])
@pytest.mark.parametrize("part", ["stores", "libraries"])
def test_a_part_of_a_configuration_that_is_no_mapping_is_one_line(part: str, value: object):
    shots = {"matrix": {"library": ["a"], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]}}
    config = {"run": "x", "studies": {"shots": shots}, "libraries": {}, "stores": {}} | {part: value}
    with pytest.raises(Problem, match=f"{part}: .* is not of type object"):
        configuration.resolve_config(config, [])


def tree(folder: Path) -> Path:
    """Make files in folders, one of which holds a link to all."""
    for name in ("a.h5", "b.txt", "below/c.h5", "below/further/d.h5", ".hidden/e.h5", "below/[odd].h5"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "below/around").symlink_to(folder)
    return folder


@pytest.mark.parametrize(
    "pattern, names",
    [
        ("*.h5", ["a.h5"]),
        ("**/*.h5", ["a.h5", "below/[odd].h5", "below/c.h5", "below/further/d.h5"]),
        ("below/**", ["below/[odd].h5", "below/c.h5", "below/further/d.h5"]),
        ("b*/?.h5", ["below/c.h5"]),
        (".h*/*", [".hidden/e.h5"]),
        ("below/c.h5", ["below/c.h5"]),
        ("[ab].h5", ["a.h5"]),
        ("c/**/*.h5", []),
    ],
)
def test_a_pattern_means_what_a_shell_takes_it_for_and_enters_a_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, names: list[str]
):
    monkeypatch.chdir(tree(tmp_path))
    found = [name for name in globs.expand_pattern(pattern) if not name.startswith("below/around/")]
    assert found == sorted(names)
    assert globs.expand_pattern(str(tmp_path / pattern)) == [
        str(tmp_path / name) for name in globs.expand_pattern(pattern)
    ]


def test_a_pattern_that_means_far_too_many_files_ends_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(globs, "MOST", 4)
    for pattern in (f"{tree(tmp_path)}/**/*.h5", f"{tmp_path}/*/*"):
        with pytest.raises(Problem, match="must contain at most 4 files and folders; name a folder further down"):
            globs.expand_pattern(pattern)
    with pytest.raises(Problem, match="must contain at most 4 files"):
        list(globs.iter_limited(tmp_path.rglob("*"), tmp_path))


def test_what_waits_on_a_full_disk_says_which_folder_may_have_room(monkeypatch):
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
        with pytest.raises(Problem, match=r"cannot write a temporary file: No space left on .* set TMPDIR to"):
            Spool().save_value("value")
