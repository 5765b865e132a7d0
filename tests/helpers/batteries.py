"""A volume to test, a folder for results, and the batteries of fio that tests run between them."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT

BATTERY = ROOT / "scripts/sbench/studies/volumes/fio_battery.sh"
HOST = os.uname().nodename
TINY = "[fio_io]\nrw=write\nioengine=sync\nfdatasync=1\nsize=64k\nbs=2300\n"
# Runs until it is told to end.
ENDLESS = f"{TINY}time_based=1\nruntime=1h\n"
LOAD = "[fio_io]\nrw=write\nbs=4k\nrate=4m\nfsync=16\nsize=1m\nthread=1\ntime_based=1\nruntime=1h\n"


class Place:
    """A volume to test and a folder for results."""

    def __init__(self, folder: Path) -> None:
        """Make both in `folder`; the volume's name has all that a shell or fio might stumble over."""
        self.folder, self.volume, self.out = folder, folder / "a volume: it's $1", folder / "out"
        for made in (self.volume, self.out):
            made.mkdir()

    @property
    def tested_in(self) -> Path:
        """Return the folder of the volume that the files of a battery lie in."""
        return self.volume / "storage-benchmarks-fio"

    @property
    def results(self) -> Path:
        """Return the folder of results of the battery b2 of t1."""
        return self.out / f"b2_t1-fio-{HOST}"

    def words(self, text: str = TINY, shell: str = "sh", **options: object) -> list[str]:
        """Return the command of a battery of two jobs; an option that is None is left out."""
        named = {"battery": "b2", "cluster": "t1", "directory": self.volume, "job_name": "tiny", "job_text": text}
        named |= {"jobs": 2, "pause": 0, "reserve": 0, "out": self.out}
        return [*shell.split(), str(BATTERY), *options_of(named | options)]

    def run(self, *arguments: object, **options: object) -> subprocess.CompletedProcess:
        """Run a battery to its end."""
        command = self.words(*arguments, **options)
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    def start(self, *arguments: object, **options: object) -> subprocess.Popen:
        """Start a battery; what it says comes through `stderr`."""
        return started(self.words(*arguments, **options))

    def facts(self, name: str = "battery.txt") -> dict[str, str]:
        """Return the facts in a file of the results."""
        lines = (self.results / name).read_text(encoding="utf-8").splitlines()
        return dict(line.split(": ", 1) for line in lines)


def started(command: list[str]) -> subprocess.Popen:
    """Start a program in a session of its own; what it says comes through `stderr`.

    It hears Ctrl-C and a lost terminal even where whoever runs the tests does not, in the background or under nohup.
    """
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, preexec_fn=hear_interrupts, **pipes)


def hear_interrupts() -> None:
    """Let a process that is started end by Ctrl-C, or with its terminal."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def options_of(named: dict[str, object]) -> list[str]:
    """Return `--name value` for each; None is left out, and True has no value."""
    words = []
    for name, value in named.items():
        option = f"--{name.replace('_', '-')}"
        words += [] if value is None else [option] if value is True else [option, str(value)]
    return words


def needed(command: str) -> str:
    """Return `command`; without its program the test is skipped."""
    if not shutil.which(command.split()[0]):
        pytest.skip(f"there is no {command.split()[0]}")
    return command


def heard(process: subprocess.Popen, words: str) -> str:
    """Return the line in which a battery says `words`, once it has."""
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended without a word of {words!r}")


def one_problem(done: subprocess.CompletedProcess) -> str:
    """Return the one line in which a battery refuses."""
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("problem: ")
    return done.stderr.strip().removeprefix("problem: ")


def until(happened: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait for what another process does; that it takes too long is the end of a test, not its result."""
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not happen within {limit_s:g} s")
        time.sleep(0.02)


def emptied(place: Place) -> bool:
    """Return whether nothing is left on the volume."""
    return not any(place.volume.iterdir())
