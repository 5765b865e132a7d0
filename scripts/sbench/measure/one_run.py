"""Keep two runs in one folder apart, and let a run end when it is told to."""

import _thread
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

from sbench.probe.program import Problem

# Snakemake's own locks, which do not tell whether their owner still runs.
LOCKS = Path(".snakemake/locks")
_FILE = LOCKS.with_name("run.lock")
# Names the folder that this process, or the process that started it, has locked.
_HELD = "SBENCH_LOCKED_FOLDER"


def hold_folder() -> None:
    """Lock the working folder until this process, or the program that replaces it, ends, however it ends.

    The kernel's lock is seen from other PID namespaces and, on a shared file system, from other nodes.

    Raises:
        Problem: another run has locked the folder.
    """
    if os.environ.get(_HELD) == os.getcwd():
        return
    _FILE.parent.mkdir(exist_ok=True)
    descriptor = os.open(_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    owner = ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 200).decode("utf-8", "replace") or "it has just begun"
    except OSError as error:
        if any(LOCKS.glob("*")):
            owner = f"or was killed, which cannot be told here: {error.strerror}; then run .venv/bin/snakemake --unlock"
    if owner:
        os.close(descriptor)
        raise Problem(f"another run is in progress in this folder ({owner}); wait, or use another clone")
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} of {socket.gethostname()}".encode())
    os.set_inheritable(descriptor, True)
    os.environ[_HELD] = os.getcwd()


def end_at_sigterm() -> None:
    """Make Snakemake's scheduler end at SIGTERM, by running its handler in a thread.

    In the main thread, it could wait for ever for a lock that the main thread holds (Snakemake 9.27). A thread of
    `threading` takes such locks, too.
    """
    # Imported here because Snakemake itself, which calls this, has imported it.
    from snakemake.scheduling.job_scheduler import JobScheduler

    original = JobScheduler.exit_gracefully

    def exit_gracefully(self: JobScheduler, *signal: Any) -> None:
        _thread.start_new_thread(original, (self, *signal))

    JobScheduler.exit_gracefully = exit_gracefully
