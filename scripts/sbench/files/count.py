"""Count the S3 requests of any program: serve folders as buckets, run the program, and report its requests."""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sbench.files import buckets
from sbench.files.buckets import Requests
from sbench.probe.program import Problem
from sbench.stores import network as networks

# The bucket that is served if no folder is named.
_EMPTY = "empty"
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Query(NamedTuple):
    """The arguments of a count.

    Attributes:
        folders: the folder of each bucket, by name; None for an empty bucket.
        command: the program and its arguments.
        cwd: working directory of the program.
        network: settings of the emulated network; missing settings mean no delay and no rate limit.
        in_place: whether uploads go to the folders themselves.
        anonymous: whether requests without credentials may read.
        encrypted: whether the program connects with TLS.
    """

    folders: Mapping[str, Path | None]
    command: Sequence[str]
    cwd: str
    network: Mapping[str, float]
    in_place: bool = False
    anonymous: bool = False
    encrypted: bool = False


class Count(NamedTuple):
    """The requests of a program.

    Attributes:
        status: exit status of the program, as a shell reports it.
        seconds: its duration.
        requests: its requests.
    """

    status: int
    seconds: float
    requests: Requests


def build_query(given: argparse.Namespace) -> Query:
    """Build a query from the arguments of the command line.

    Raises:
        Problem: an argument is missing or wrong.
    """
    if not given.after:
        raise Problem("count needs a program to run; write it after --, such as: sbench count data -- python script.py")
    folders = name_folders(given.folders, given.bucket, given.called_from)
    buckets.check_network(given.latency, given.rate)
    if given.top < 0:
        raise Problem(f"--top must be 0 or more (got {given.top})")
    network = {"latency_ms": given.latency, "per_connection_mib_s": given.rate}
    network = {key: value for key, value in network.items() if value}
    serving = (given.in_place, given.anonymous, given.tls)
    return Query(folders, given.after, given.called_from, network, *serving)


def name_folders(plain: Sequence[str], named: Sequence[str], called_from: str) -> dict[str, Path | None]:
    """Return the folder of each bucket, by name; without any folder, a single empty bucket.

    Args:
        plain: paths of folders whose buckets have their names.
        named: texts `NAME=FOLDER`.
        called_from: directory that relative paths refer to.

    Raises:
        Problem: a text has another form, or two folders have the same name.
    """
    pairs = [(buckets.name_bucket(_locate(folder, called_from)), folder) for folder in plain]
    for text in named:
        name, _, folder = text.partition("=")
        if not folder or not buckets.check_name(name):
            raise Problem(
                "--bucket must be NAME=FOLDER, with a name of 3 to 63 lower-case letters, digits and hyphens"
                f" (got {text})"
            )
        pairs.append((name, folder))
    folders: dict[str, Path | None] = {}
    for name, folder in pairs:
        if name in folders:
            raise Problem(f"two folders have the bucket name {name}; name one of them with --bucket NAME=FOLDER")
        folders[name] = _locate(folder, called_from)
    return folders or {_EMPTY: None}


def locate_output(path: str, given: argparse.Namespace) -> Path | None:
    """Return the absolute path of an output file, before the program runs; None if `path` is empty.

    Raises:
        Problem: no file can be written there.
    """
    if not path:
        return None
    there = _locate(path, given.called_from)
    if there.exists() and not there.is_file():
        raise Problem(f"{there} must be a regular file; name another file")
    if not os.access(there.parent, os.W_OK):
        raise Problem(f"{there} cannot be written: {there.parent} does not exist, or is not writable")
    return there


def _locate(path: str, called_from: str) -> Path:
    return Path(os.path.normpath(os.path.join(called_from, os.path.expanduser(path))))


def count_requests(query: Query) -> Count:
    """Run a program with the buckets, and count its requests.

    Raises:
        Problem: a folder or the command does not exist, or a server does not start.
    """
    command = query.command[0]
    if os.sep not in command and not shutil.which(command):
        raise Problem(f"the command {command} was not found in PATH; write it after -- as you would without sbench")
    serving = buckets.serve_buckets(query.folders, query.network, query.in_place, query.anonymous, query.encrypted)
    # A signal ends the block by an exception, so that the scratch copy is removed.
    with handle_signals(ENDING, exit_on_signal), serving as served:
        print(*served.notes, sep="\n", end="\n" * bool(served.notes), file=sys.stderr, flush=True)
        began = time.monotonic()
        status = _run_command(query.command, query.cwd, buckets.build_environment(os.environ, served.variables))
        return Count(status, time.monotonic() - began, served.read_requests())


def _run_command(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> int:
    """Run a command in the foreground, and return its exit status as a shell reports it.

    Signals are left to the command, so that its requests are reported all the same.
    """
    try:
        # The command inherits open files, as from a shell.
        process = subprocess.Popen(command, cwd=cwd, env=env, close_fds=False)
    except PermissionError:
        raise Problem(f"the command {command[0]} is not executable") from None
    except OSError as error:
        raise Problem(f"the command {command[0]} cannot be started: {error.strerror}") from error
    # A terminal sends Ctrl-C to the command, too.
    with (
        handle_signals([signal.SIGINT], signal.SIG_IGN),
        handle_signals(ENDING, lambda number, _: process.send_signal(number)),
    ):
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def handle_signals(numbers: Sequence[int], handler: object) -> Iterator[None]:
    """Handle signals during a `with` block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, of_number in before.items():
            signal.signal(number, of_number)


def exit_on_signal(number: int, _: object) -> None:
    """End the process by an exception, so that `with` blocks remove what they made."""
    raise SystemExit(128 + number)


def estimate_seconds(count: Count, network: Mapping[str, float]) -> float:
    """Estimate how long the requests take on the emulated or the assumed network.

    Each request takes a round trip, and its bytes are transferred at the rate of a connection. The mean number of
    requests in flight is that of the program's run.
    """
    latency_ms, rate = buckets.get_network(network)
    network = {"latency_ms": latency_ms, "per_connection_mib_s": rate}
    rows = count.requests.passed["exchanges"]
    moved = sum(row["bytes"] + row["uploaded"] for row in rows)
    in_flight = networks.compute_in_flight(count.requests.passed)["in_flight"] or 1
    return networks.estimate_seconds(len(rows), moved, network) / in_flight
