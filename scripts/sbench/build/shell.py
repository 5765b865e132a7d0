"""Run build steps in an environment without variables that would silently change the result."""

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

# Variables that would change a build without being part of its hash, or make it use another HDF5 or git clone.
_UNWANTED = re.compile(
    r"PYTHON|HDF5_|H5PY_|CMAKE_|(C|CXX|CPP|LD)FLAGS$|CPATH$|C_INCLUDE_PATH$|(LD_)?LIBRARY_PATH$|LD_PRELOAD$|VIRTUAL_ENV$"
    r"|SETUPTOOLS_SCM_|GIT_(DIR|WORK_TREE|INDEX_FILE)$"
)
# A pin in a lock file, with its hashes. It is a version or the URL of a wheel, in the format of pip and uv.
PIN = re.compile(
    r"^(?P<what>(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:==(?P<version>[^\s;\\]+)| *@ *(?P<url>\S+)))"
    r".*(?:\n[ \t]+.*)*\n?",
    re.MULTILINE,
)


# How uv, pip, cargo, go, npm and git report at their end that they reach nothing. A server's refusal is another thing.
_NO_NETWORK = re.compile(
    r"[^:()\n]*(name resolution|(could not|couldn't|failed to) (resolve|lookup)|no such host|network is unreachable"
    r"|no route to host|(connection|operation) (refused|timed out)|dns error|i/o timeout"
    r"|(?-i:\b(E(CONN|NET|HOST|NOTF|TIMED)|EAI_)[A-Z]+))[^:()\n]*",
    re.IGNORECASE,
)
_LAST_LINES = 30


@dataclass(frozen=True)
class Workshop:
    """The temporary directory, log file and lock of a build.

    Attributes:
        name: name of the cache entry, for messages.
        work: temporary directory, which is removed at the end.
        log: file that receives the output of every step.
        lock: file descriptor of the cache entry's lock, which every child process inherits.
    """

    name: str
    work: Path
    log: Path
    lock: int

    def run_step(self, step: str, *command: str | Path, cwd: Path | None = None, **variables: str) -> None:
        """Run a build step, appending its output to the log.

        Args:
            step: name of the step.
            command: program and arguments.
            cwd: working directory; the temporary directory by default.
            variables: additional environment variables.

        Raises:
            Problem: the command is missing or failed; the message names the step and the log.
        """
        if output := self.try_step(step, *command, cwd=cwd, **variables):
            print(*output.splitlines(), sep="\n", file=sys.stderr, flush=True)
            why = ""
            if cause := _NO_NETWORK.search("\n".join(output.splitlines()[-_LAST_LINES:])):
                why = (
                    f"it seems to have found no network ({cause[0].strip()}), and where there is one,"
                    f" sbench run CONFIG --yes -- --until environment servers builds into {self.log.parent}; "
                )
            raise Problem(f"{self.name}: step “{step}” failed; {why}see its output in {self.log}")

    def try_step(self, step: str, *command: str | Path, cwd: Path | None = None, **variables: str) -> str:
        """Run a build step like `run_step`, but do not raise Problem if the command fails.

        Returns:
            An empty string if the step succeeded, otherwise the end of its output.
        """
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
                    # On SIGTERM, Ninja terminates its compilers.
                    preexec_fn=partial(die_with_parent, signal.SIGTERM),
                    check=False,
                ).returncode
            except OSError as error:
                raise Problem(f"{self.name}: {step}: {words[0]} cannot be started: {describe_cause(error)}") from error
            log.seek(begin)
            return "".join(log.readlines()[-40:]) or f"status {status}" if status else ""

    def report_step(self, what: str) -> None:
        """Print the current step to standard error."""
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)


def get_clean_environment() -> dict[str, str]:
    """Return this process's environment without variables that would silently change a build."""
    return {name: value for name, value in os.environ.items() if not _UNWANTED.match(name)}


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def get_base_python() -> Path:
    """Return the interpreter on which this process's virtual environment is based, for use by new environments."""
    return Path(os.path.realpath(sys.executable))


def find_uv() -> Path:
    """Return the path of `uv`, preferably next to this interpreter, otherwise on PATH; raise Problem if missing."""
    beside = Path(sys.executable).with_name("uv")
    path = beside if beside.exists() else shutil.which("uv")
    if not path:
        raise Problem("the command uv was not found; install it: pip install uv, or in a clone: make setup")
    return Path(path)


def make_environment(
    workshop: Workshop,
    folder: Path,
    *locks: Path,
    gives_way: Callable[[str], bool] | None = None,
    base: Path | str | None = None,
) -> Path:
    """Create a Python environment with exactly the wheels that the lock files pin, and return its interpreter.

    Args:
        workshop: temporary directory and log of the build.
        folder: directory of the new environment.
        locks: lock files; pins in later files override pins in the first.
        gives_way: predicate on distribution names; the distributions for which it returns true are removed from all
            lock files except the last.
        base: interpreter to create the environment from; this process's base interpreter by default.
    """
    options = ("--no-project", "--python", base or get_base_python())
    workshop.run_step("create the Python environment", find_uv(), "venv", *options, folder)
    texts = [lock.read_text(encoding="utf-8") for lock in locks]
    if gives_way:
        texts[:-1] = [PIN.sub(lambda pin: "" if gives_way(pin["name"]) else pin[0], text) for text in texts[:-1]]
    texts[0] = _remove_repinned(*texts)
    # Copy only lock files that were changed, because a lock file may refer to files by relative paths.
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
    """Return a lock file's text without the pins that a later lock file overrides."""
    pins = [pin for lock in later for pin in PIN.finditer(lock)]
    names, same = {pin["name"] for pin in pins}, {pin["what"] for pin in pins}
    return PIN.sub(lambda pin: "" if pin["name"] in names and pin["what"] not in same else pin[0], first)
