"""Run subprocesses that end when their parent process ends, even if it is killed."""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from sbench.probe.program import Problem, describe_refusal

_PR_SET_PDEATHSIG = 1
_STARTS = 3
# Seconds that a process may take to exit after SIGTERM.
PATIENCE_S = 3.0
_WORDS = "look at the end of the step's log"
# Directory of the C library's semaphores and MPICH's shared memory.
_SHARED = "/dev/shm"
_libc = ctypes.CDLL(None)


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Make the kernel send `signal_number` to this process when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal_number)


@contextlib.contextmanager
def open_separate_log(log: IO[str], heading: str) -> Iterator[IO[str]]:
    """Yield a temporary file for the output of other programs, which is appended to `log` after the `with` block.

    Until then, the end of `log` remains free of their output.
    """
    with tempfile.TemporaryFile("w+", dir=Path(log.name).parent, encoding="utf-8", errors="replace") as words:
        try:
            yield words
        finally:
            words.seek(0)
            if text := words.read():
                log.write(f"## {heading}\n{text}")


@contextlib.contextmanager
def run_process(
    command: list[str], log: IO[str], env: dict[str, str], patience_s: float = PATIENCE_S, **options: object
) -> Iterator[subprocess.Popen]:
    """Run a subprocess in a new session during a `with` block, and then terminate its process group.

    If this process is killed, the kernel kills the subprocess too, and the children of the subprocess see their pipes
    close.

    Args:
        command: program and arguments.
        log: file for standard output and standard error.
        env: environment variables.
        patience_s: seconds between SIGTERM and SIGKILL.
        options: further options for `subprocess.Popen`.

    Raises:
        OSError: the program is missing or cannot be started; `filename` is set.
        Problem: the system could not create a process or pipe.
    """
    options = {"stdout": log, "stderr": log, "env": env, **options}
    try:
        process = subprocess.Popen(command, **options, start_new_session=True, preexec_fn=die_with_parent)
    except OSError as error:
        if error.filename:
            raise
        raise Problem(f"{command[0]} did not start: {describe_refusal(error)}") from error
    try:
        yield process
    finally:
        stop_group(process, patience_s)


def start_server(
    stack: contextlib.ExitStack,
    name: str,
    log: IO[str],
    command_of: Callable[[int], list[str]],
    env: dict[str, str],
    **options: object,
) -> tuple[subprocess.Popen, int]:
    """Start a server on a free port of the loopback interface, and wait until it listens.

    Because another process may take the port first, several ports are tried.

    Args:
        stack: exit stack that stops the server.
        name: name of the server for messages.
        log: file for its output.
        command_of: returns the command line for a port.
        env: environment variables in addition to PATH, HOME and TMPDIR.
        options: further options for `run_process`.

    Returns:
        The process and its port.

    Raises:
        Problem: the server did not start on any of the ports.
    """
    inherited = {"HOME": "/"} | {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    for starts_left in reversed(range(_STARTS)):
        port = find_free_port()
        process = stack.enter_context(run_process(command_of(port), log, inherited | env, **options))
        try:
            wait_for_port(port, process, name)
            break
        except Problem:
            if not starts_left:
                raise
    return process, port


def stop_group(process: subprocess.Popen, patience_s: float = PATIENCE_S) -> None:
    """Terminate the process group led by `process`: send SIGTERM, and SIGKILL after at most `patience_s` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def find_free_port() -> int:
    """Return a free TCP port of 127.0.0.1, which the kernel does not assign again immediately.

    Raises:
        Problem: 127.0.0.1 does not exist or is unreachable on this machine.
    """
    with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as client:
        try:
            probe.bind(("127.0.0.1", 0))
            client.connect(probe.getsockname())
        except OSError as error:
            raise Problem(describe_refusal(OSError(errno.EADDRNOTAVAIL, error.strerror))) from error
        return probe.getsockname()[1]


def expect_shared_memory() -> str:
    """Return /dev/shm, the directory for memory and locks that processes share, after checking that it is usable.

    Raises:
        Problem: locks cannot be created there.
    """
    try:
        multiprocessing.Lock()
    except (OSError, ImportError) as error:
        why = getattr(error, "strerror", None) or error
        raise Problem(f"{_SHARED} cannot be used ({why}); mount a world-writable tmpfs there (mode=1777)") from error
    return _SHARED


def wait_for_port(port: int, process: subprocess.Popen, name: str, limit_s: float = 60.0) -> None:
    """Wait until `process` itself listens on a TCP port.

    Raises:
        Problem: the process ended, or did not listen within `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Problem(f"{name} ended with status {process.returncode} during its start; {_WORDS}")
        if is_listening(process.pid, port):
            return
        time.sleep(0.005)
    raise Problem(f"{name} did not listen on 127.0.0.1:{port} within {limit_s:g} s; {_WORDS}")


def is_listening(pid: int, port: int) -> bool:
    """Return whether a process has a TCP socket that listens on `port` (proc(5): net/tcp, fd)."""
    wanted, listening = f":{port:04X}", "0A"
    with contextlib.suppress(OSError):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted) and row[3] == listening}
        return any(os.readlink(link) in sockets for link in Path(f"/proc/{pid}/fd").iterdir())
    return False
