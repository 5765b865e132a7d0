"""Run the steps of a build in an environment without variables that would change it silently."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sbench.probe.processes import die_with_parent
from sbench.probe.program import Problem, describe_cause

# Variables that would change a build without being in its hash, or lead it to another HDF5 or clone.
_UNWANTED = re.compile(
    r"PYTHON|HDF5_|H5PY_|CMAKE_|(C|CXX|CPP|LD)FLAGS$|CPATH$|C_INCLUDE_PATH$|(LD_)?LIBRARY_PATH$|LD_PRELOAD$|VIRTUAL_ENV$"
    r"|SETUPTOOLS_SCM_|GIT_(DIR|WORK_TREE|INDEX_FILE)$"
)
# A pin of a lock, with its hashes: a version, or the address of a wheel, as pip and uv write them.
PIN = re.compile(
    r"^(?P<what>(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:==(?P<version>[^\s;\\]+)| *@ *(?P<url>\S+)))"
    r".*(?:\n[ \t]+.*)*\n?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Workshop:
    """The place of a build.

    Attributes:
        name: name of the piece, for messages.
        work: folder that is removed at the end.
        log: file for the output of every step.
        lock: descriptor of the piece's lock, which every child inherits.
    """

    name: str
    work: Path
    log: Path
    lock: int

    def run_step(self, step: str, *command: str | Path, cwd: Path | None = None, **variables: str) -> None:
        """Run a step in `cwd` (default: the work folder), with its output in the log.

        Raises:
            Problem: the command is missing or failed; the line names the step and the log.
        """
        if output := self.try_step(step, *command, cwd=cwd, **variables):
            print(*output.splitlines(), sep="\n", file=sys.stderr, flush=True)
            raise Problem(f"{self.name}: step “{step}” failed; see its output in {self.log}")

    def try_step(self, step: str, *command: str | Path, cwd: Path | None = None, **variables: str) -> str:
        """Run a step as `run_step` does, and return the end of its output if it fails, else ""."""
        self.report_step(step)
        words = [str(word) for word in command]
        with open(self.log, "a+", encoding="utf-8", errors="replace") as log:
            print(f"## {step}: {' '.join(words)}", file=log, flush=True)
            begin = log.seek(0, os.SEEK_END)
            try:
                status = subprocess.run(
                    words,
                    cwd=cwd or self.work,
                    env=get_clean_environment() | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[self.lock],
                    # Ninja then ends its compilers.
                    preexec_fn=partial(die_with_parent, signal.SIGTERM),
                    check=False,
                ).returncode
            except OSError as error:
                raise Problem(f"{self.name}: {step}: {words[0]} cannot be started: {describe_cause(error)}") from error
            log.seek(begin)
            return "".join(log.readlines()[-40:]) or f"status {status}" if status else ""

    def report_step(self, what: str) -> None:
        """Report the current step on standard error."""
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)


def get_clean_environment() -> dict[str, str]:
    """Return this process's environment without variables that would change a build silently."""
    return {name: value for name, value in os.environ.items() if not _UNWANTED.match(name)}


def count_cores() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0))


def get_base_python() -> Path:
    """Return the interpreter that environments are made from: the base of this process's environment."""
    return Path(os.path.realpath(sys.executable))


def find_uv() -> Path:
    """Return the `uv` next to this interpreter, or else on PATH; raise Problem if it is missing."""
    beside = Path(sys.executable).with_name("uv")
    path = beside if beside.exists() else shutil.which("uv")
    if not path:
        raise Problem("uv is missing from the workflow's environment; run make setup")
    return Path(path)


def make_environment(
    workshop: Workshop,
    folder: Path,
    *locks: Path,
    gives_way: Callable[[str], bool] | None = None,
    base: Path | str | None = None,
) -> Path:
    """Make a Python environment with exactly the wheels of the hashed locks, and return its interpreter.

    Start from the interpreter `base`, by default this process's. Pins of later locks replace pins of the first. With
    `gives_way`, the last lock wins over all others, which lose the distributions for which it returns true.
    """
    options = ("--no-project", "--python", base or get_base_python())
    workshop.run_step("create the Python environment", find_uv(), "venv", *options, folder)
    texts = [lock.read_text(encoding="utf-8") for lock in locks]
    if gives_way:
        texts[:-1] = [PIN.sub(lambda pin: "" if gives_way(pin["name"]) else pin[0], text) for text in texts[:-1]]
    texts[0] = _remove_repinned(*texts)
    # A lock may name files relative to it, so that only changed locks are copied.
    copies = [_copy_changed(lock, text, workshop.work) for lock, text in zip(locks, texts, strict=True)]
    python, exact = folder / "bin" / "python", ("--require-hashes", "--no-build", "--compile-bytecode")
    workshop.run_step("install the locked packages", find_uv(), "pip", "sync", "--python", python, *exact, *copies)
    return python


def _copy_changed(lock: Path, text: str, folder: Path) -> Path:
    if lock.read_text(encoding="utf-8") == text:
        return lock
    copy = folder / f"changed-{lock.name}"
    copy.write_text(text, encoding="utf-8")
    return copy


def _remove_repinned(first: str, *later: str) -> str:
    """Return the text of a lock without pins that later locks change."""
    pins = [pin for lock in later for pin in PIN.finditer(lock)]
    names, same = {pin["name"] for pin in pins}, {pin["what"] for pin in pins}
    return PIN.sub(lambda pin: "" if pin["name"] in names and pin["what"] not in same else pin[0], first)
