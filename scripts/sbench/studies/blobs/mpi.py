"""Starts the MPI processes of a cell and talks to rank 0 over its standard input and output.

On one machine they are started by the `mpiexec.gforker` of the workflow's own MPICH, which opens no socket. With a
hostfile it is the bundled Hydra, over several machines; a cluster's own launcher is used as it is named.
"""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sbench.probe import slurm
from sbench.probe.processes import expect_shared_memory, run_process
from sbench.probe.program import Problem, build_command
from sbench.studies.blobs.settings import Mpi

PROGRAM = "sbench.studies.blobs.read"
# MPICH's own transport within a machine: without these it listens on every network.
WITHIN_A_MACHINE = {"UCX_TLS": "self,posix,sysv,cma", "UCX_LOG_LEVEL": "error"}
# What stands for the number of nodes, and of processes on each, in the words of a launcher.
BY_NODES = ("{nodes}", "{per_node}")
# Where MPICH keeps shared memory. It names a segment by a hash of its launcher's process number, and its processes take
# one that is there for their own: what killed processes left behind makes a later job of that number fail in MPI_Init.
SEGMENTS = Path("/dev/shm")
_SEGMENT = re.compile(r"mpich_shm_[0-9a-f]+_[0-9]+")
# Between making a segment and mapping it a process needs less.
_SEGMENT_AGE_S = 5.0
_PATIENCE_S = 10.0
_SIGNALLED = re.compile(r"^(?:\[\d+\])?(\d+):Return code = \d+, signaled with (.+)$")
# The line of a process that says why it ended, as JSON (`sbench.studies.blobs.read`).
PROBLEM, _ABORTED = "a process failed: ", "Abort("
# What gforker sends to the others when one has ended.
_SENT_BY_LAUNCHER = ("Interrupt", "Quit", "Terminated")


class Ranks:
    """The MPI processes and the line to rank 0.

    Attributes:
        launcher: what started them, in words.
    """

    def __init__(self, process: subprocess.Popen, command: list[str], count: int) -> None:
        """Listen to what the processes say on standard error, which goes on to this program's."""
        self._process, self._count, self._began = process, count, time.perf_counter()
        self.launcher = " ".join([Path(command[0]).name, *command[1 : command.index("-n")]])
        self._words: list[str] = []
        self._last = ""
        self._listener = threading.Thread(target=self._read_stderr, daemon=True)
        self._listener.start()

    def measure_elapsed(self) -> float:
        """Return the seconds since the processes were started."""
        return time.perf_counter() - self._began

    def send_message(self, message: dict) -> None:
        """Send rank 0 a line."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(message), file=self._process.stdin, flush=True)

    def receive_message(self) -> dict:
        """Return what rank 0 says next.

        Raises:
            Problem: the processes have ended instead; the line is the one of the process that was the reason.
        """
        for line in self._process.stdout:
            if line.startswith("{"):
                # Half an answer is of processes that were ended in the middle of it: why, they say elsewhere.
                with contextlib.suppress(json.JSONDecodeError):
                    return json.loads(line)
            elif '{"event": ' in line:
                raise Problem("the MPI launcher adds words to what rank 0 says; leave its option for labels out")
            _print_line(line)
        status = self._process.wait()
        self._listener.join(_PATIENCE_S)
        raise Problem(self._describe_end(status))

    def stop_processes(self) -> None:
        """Let the processes go once rank 0 has said its last word, which is after MPI_Finalize."""
        # What they found is known already, so that they do not end well makes nothing invalid.
        with contextlib.suppress(Problem):
            self.receive_message()
        if self.launcher.startswith("mpiexec.gforker"):
            # It would wait for two seconds before it ends by itself; all that it would wait for is done, once the
            # others have left MPI_Finalize too, in which one of them removes their shared memory.
            deadline = time.monotonic() + _PATIENCE_S
            while _has_living_children(self._process.pid) and time.monotonic() < deadline:
                time.sleep(0.002)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)

    def _read_stderr(self) -> None:
        for line in self._process.stderr:
            _print_line(line)
            words = line.strip()
            # A line of signs, as tracebacks have them, says nothing.
            if re.search(r"\w", words) and not words.startswith(_ABORTED):
                self._last = words
            if words.startswith(PROBLEM) or _SIGNALLED.match(words):
                self._words.append(words)

    def _describe_end(self, status: int) -> str:
        for words in self._words:
            if words.startswith(PROBLEM):
                return json.loads(words.removeprefix(PROBLEM))
        ended = [match.groups() for line in self._words if (match := _SIGNALLED.match(line))]
        for rank, words in sorted(ended, key=lambda end: end[1] in _SENT_BY_LAUNCHER)[:1]:
            return f"MPI process {rank} of {self._count} was ended by a signal ({words})"
        if status < 0:
            return f"{self.launcher} was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"{self.launcher} ended with status {status} before all was read: {self._last or 'it said nothing'}"


def _print_line(line: str) -> None:
    """Pass a line on as a whole one: what a process was saying when it was killed has no end, and would run on."""
    print(line.removesuffix("\n"), file=sys.stderr, flush=True)


def _has_living_children(pid: int) -> bool:
    """Say whether a process has children that have not ended (proc(5): children, stat)."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{child}/stat").read_text(encoding="utf-8", errors="replace")
                if stat.rpartition(")")[2].split()[0] != "Z":
                    return True
    return False


@contextlib.contextmanager
def start_ranks(mpi: Mpi, count: int, nodes: int = 1) -> Iterator[Ranks]:
    """Start `count` MPI processes for the length of a `with` block; none of them lives longer.

    Args:
        mpi: how they are started.
        count: how many.
        nodes: on how many nodes of a cluster.

    Raises:
        Problem: there is no such launcher, the hostfile has too few slots, this is no job of a cluster, or processes
            cannot share memory.
    """
    command = [*_build_launcher(mpi, count, nodes), "-n", str(count), *build_command(PROGRAM)]
    env = dict(os.environ)
    if nodes == 1 and not mpi.launcher and not mpi.hostfile:
        env |= WITHIN_A_MACHINE
        expect_shared_memory()
        sweep_segments()
    if mpi.library:
        env["MPI4PY_LIBMPI"] = mpi.library
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(run_process(command, sys.stderr, env, text=True, errors="replace", **pipes))
        except OSError as error:
            raise Problem(f"{command[0]} does not start ({error.strerror}); correct launcher under mpi") from error
        yield Ranks(process, command, count)


def sweep_segments() -> list[str]:
    """Remove this user's segments that no process has mapped; returns their names (proc(5), maps)."""
    old = [path for path in SEGMENTS.glob("mpich_shm_*") if _SEGMENT.fullmatch(path.name) and _is_ours_and_old(path)]
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if old else ():
        with contextlib.suppress(OSError):
            mapped.update(_SEGMENT.findall(maps.read_text(encoding="utf-8", errors="replace")))
    gone = [path for path in old if path.name not in mapped]
    for path in gone:
        path.unlink(missing_ok=True)
    return [path.name for path in gone]


def _is_ours_and_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_uid == os.geteuid() and time.time() - status.st_mtime > _SEGMENT_AGE_S
    return False


def _build_launcher(mpi: Mpi, count: int, nodes: int) -> list[str]:
    per_node = str(-(-count // nodes))
    if mpi.hostfile and (there := count_slots(Path(mpi.hostfile))) < count:
        raise Problem(
            f"{mpi.hostfile} has {there} slots for {count} processes; add hosts (name:slots, a line each),"
            " or ask for fewer processes"
        )
    if mpi.launcher:
        return [word.replace("{nodes}", str(nodes)).replace("{per_node}", per_node) for word in mpi.launcher]
    bundled = Path(sys.executable).parent
    if mpi.hostfile:
        divided = ["-ppn", per_node] if nodes > 1 else []
        return [str(bundled / "mpiexec"), "-f", mpi.hostfile, *divided]
    if nodes > 1:
        return [*slurm.build_srun_command(nodes, count), "--mpi=pmi2"]
    return [str(bundled / "mpiexec.gforker")]


def count_slots(hostfile: Path) -> int:
    """Return how many processes a hostfile has room for: lines of "host:slots", one where nothing is said.

    What cannot be read or understood is a Problem.
    """
    hosts = read_hosts(hostfile)
    counts = [host.partition(":")[2] or "1" for host in hosts]
    if wrong := [host for host, many in zip(hosts, counts, strict=True) if not (many.isascii() and many.isdigit())]:
        raise Problem(f"{hostfile}: {wrong[0]!r} is no host:slots")
    return sum(map(int, counts))


def read_hosts(hostfile: Path) -> list[str]:
    """Return the entries of a hostfile, without comments, or raise a Problem if it cannot be read."""
    try:
        lines = hostfile.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Problem(f"{hostfile} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{hostfile} is not in UTF-8: byte {error.start + 1}; save it as that") from error
    return [words[0] for line in lines if (words := line.partition("#")[0].split())]


def expect_same_software(hosts: list[str], versions_of: list[dict[str, str]]) -> None:
    """See that all MPI processes run the software of rank 0 (METHOD 14).

    Args:
        hosts: where each runs, by rank.
        versions_of: the versions of what each runs, by name.

    Raises:
        Problem: one runs something else.
    """
    first, *others = versions_of
    for rank, other in enumerate(others, 1):
        if differ := sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name)):
            name, versions = differ[0], [one.get(differ[0], "none") for one in (other, first)]
            raise Problem(
                f"rank {rank} on {hosts[rank]} runs other software than rank 0: {name} {versions[0]}, not"
                f" {versions[1]}; install the same lock on all nodes"
            )


def compute_span(rows: list[dict]) -> tuple[float, float]:
    """Return the seconds of an iteration, and those until the first process that had something to read was done.

    Each row has `host`, `times` (began, ended) and `bytes` of a process.
    They count from when the first process of a machine begins: one that gets no core until others are done begins late
    and is quick by its own clock. Machines have no common clock, so it is the longest of any.
    """
    longest, first_done = 0.0, math.inf
    for name in {row["host"] for row in rows}:
        here = [row for row in rows if row["host"] == name]
        start = min(row["times"][0] for row in here)
        longest = max(longest, max(row["times"][1] for row in here) - start)
        first_done = min([first_done, *(row["times"][1] - start for row in here if row["bytes"])])
    return longest, first_done if first_done < math.inf else 0.0
