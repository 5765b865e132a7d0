"""Run processes that end when their owner ends, however it ends."""

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
# Seconds that a process may take to end when asked to.
PATIENCE_S = 3.0
_WORDS = "look at the end of the step's log"
# The folder of the C library's semaphores and MPICH's shared memory.
_SHARED = "/dev/shm"
_libc = ctypes.CDLL(None)


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `signal_number` to this process when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal_number)


@contextlib.contextmanager
def open_separate_log(log: IO[str], heading: str) -> Iterator[IO[str]]:
    """Yield a file for the output of other programs; append it to `log` at the end of the `with` block.

    So the last line of `log` never comes from other programs during the block.
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
    """Run `command` in a new session for the length of a `with` block, then end its whole group.

    If this process is killed, the kernel ends `command` too; the children of `command` see their pipes close.
    `patience_s` is its time to end when asked to; `options` are for `subprocess.Popen`.

    Raises:
        OSError: the program is missing or cannot be started; the error has its name.
        Problem: the program is fine, but the system refused a process or a pipe.
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
    """Start a server on a free port, owned by the stack, and return it and the port.

    Another process may take the port in between, so try a few. `command_of` returns the command for a port; `env` is
    its environment without PATH, HOME and TMPDIR; `options` are for `run_process`.

    Raises:
        Problem: it does not start, even on another port.
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
    """End the process group of a process that leads it: by SIGTERM, and by SIGKILL after `patience_s` seconds."""
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
    """Return a free port of 127.0.0.1; the kernel does not give it out again at once.

    Raises:
        Problem: this machine lacks the address, or cannot reach it.
    """
    with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as client:
        try:
            probe.bind(("127.0.0.1", 0))
            client.connect(probe.getsockname())
        except OSError as error:
            raise Problem(describe_refusal(OSError(errno.EADDRNOTAVAIL, error.strerror))) from error
        return probe.getsockname()[1]


def expect_shared_memory() -> str:
    """Return the folder in which processes share memory and locks.

    Raises:
        Problem: it cannot be used.
    """
    try:
        multiprocessing.Lock()
    except (OSError, ImportError) as error:
        why = getattr(error, "strerror", None) or error
        raise Problem(f"{_SHARED} cannot be used ({why}); mount a world-writable tmpfs there (mode=1777)") from error
    return _SHARED


def wait_for_port(port: int, process: subprocess.Popen, name: str, limit_s: float = 60.0) -> None:
    """Wait until `process` listens on `port`; other listeners do not count.

    Raises:
        Problem: it ended, or did not listen within `limit_s` seconds.
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
    """Return whether the process holds a TCP socket that listens on `port` (proc(5): net/tcp, fd)."""
    wanted, listening = f":{port:04X}", "0A"
    with contextlib.suppress(OSError):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted) and row[3] == listening}
        return any(os.readlink(link) in sockets for link in Path(f"/proc/{pid}/fd").iterdir())
    return False
