"""Start the MPI processes of a cell and exchange messages with rank 0 over its standard input and output.

On a single machine, the launcher is the bundled MPICH's `mpiexec.gforker`, because it opens no socket. With a hostfile,
it is the bundled Hydra (`mpiexec`), and on several nodes of a cluster `srun`. A launcher in the configuration takes
precedence over all of these.
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
# Restrict MPICH to transports within a machine. By default, it listens on all network interfaces.
WITHIN_A_MACHINE = {"UCX_TLS": "self,posix,sysv,cma", "UCX_LOG_LEVEL": "error"}
# Placeholders in a launcher's arguments: the number of nodes, and the number of processes per node.
BY_NODES = ("{nodes}", "{per_node}")
# Directory of MPICH's shared memory segments. MPICH names a segment by a hash of the launcher's pid and reuses an
# existing one, so a segment left by killed processes makes MPI_Init fail in a later job with the same pid.
SEGMENTS = Path("/dev/shm")
_SEGMENT = re.compile(r"mpich_shm_[0-9a-f]+_[0-9]+")
# Processes map a segment within this time after its creation.
_SEGMENT_AGE_S = 5.0
_PATIENCE_S = 10.0
_SIGNALLED = re.compile(r"^(?:\[\d+\])?(\d+):Return code = \d+, signaled with (.+)$")
# Prefix of a failed process's line on standard error; the reason follows as JSON (`sbench.studies.blobs.read`).
PROBLEM, _ABORTED = "a process failed: ", "Abort("
# Signals that gforker sends to the remaining processes when one has ended.
_SENT_BY_LAUNCHER = ("Interrupt", "Quit", "Terminated")


class Ranks:
    """The MPI processes of a cell and the connection to rank 0.

    Attributes:
        launcher: name and options of the launcher, without its path.
    """

    def __init__(self, process: subprocess.Popen, command: list[str], count: int) -> None:
        """Start a thread that copies the standard error of the processes to this program's standard error.

        Args:
            process: the running launcher.
            command: its command line.
            count: number of MPI processes.
        """
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
        """Send a message to rank 0 as a line of JSON."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(message), file=self._process.stdin, flush=True)

    def receive_message(self) -> dict:
        """Wait for the next message from rank 0 and return it.

        Raises:
            Problem: the processes ended without a message, for the reason given by the process that failed; or the
                launcher adds text to the output of rank 0.
        """
        for line in self._process.stdout:
            if line.startswith("{"):
                # A killed process may leave a truncated message. Ignore it: standard error has the reason.
                with contextlib.suppress(json.JSONDecodeError):
                    return json.loads(line)
            elif '{"event": ' in line:
                raise Problem("the MPI launcher adds text to the output of rank 0; remove its option for labels")
            _print_line(line)
        status = self._process.wait()
        self._listener.join(_PATIENCE_S)
        raise Problem(self._describe_end(status))

    def stop_processes(self) -> None:
        """Wait for the last message from rank 0, which it sends after MPI_Finalize, and stop the processes."""
        # The results are complete, so a failure at this point does not invalidate the record.
        with contextlib.suppress(Problem):
            self.receive_message()
        if self.launcher.startswith("mpiexec.gforker"):
            # Kill gforker, which would wait for two seconds before it exits. Wait for the processes first, because one
            # of them removes the shared memory in MPI_Finalize.
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
            # Skip lines that consist of punctuation, as in tracebacks.
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
        return f"{self.launcher} ended with status {status} before the end of the reads: {self._last or 'no output'}"


def _print_line(line: str) -> None:
    """Print a line to standard error. Add the line break if it is missing because the process was killed."""
    print(line.removesuffix("\n"), file=sys.stderr, flush=True)


def _has_living_children(pid: int) -> bool:
    """Return whether a process has children that are not zombies (proc(5): children, stat)."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{child}/stat").read_text(encoding="utf-8", errors="replace")
                if stat.rpartition(")")[2].split()[0] != "Z":
                    return True
    return False


@contextlib.contextmanager
def start_ranks(mpi: Mpi, count: int, nodes: int = 1) -> Iterator[Ranks]:
    """Run MPI processes during a `with` block.

    Args:
        mpi: launcher, hostfile and MPI library.
        count: number of processes.
        nodes: number of cluster nodes; 1 for a single machine.

    Raises:
        Problem: the launcher does not exist, the hostfile has too few slots, several nodes are requested outside a
            cluster job, or processes cannot share memory.
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
    """Remove this user's old MPICH shared memory segments that no process has mapped, and return their names."""
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
            f"{mpi.hostfile} has {there} slots, too few for {count} processes; add hosts (name:slots, one per line),"
            " or reduce the number of processes"
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
    """Return the total number of slots in a hostfile with lines "host" (1 slot) or "host:slots".

    Raises:
        Problem: the file cannot be read, or a line is invalid.
    """
    hosts = read_hosts(hostfile)
    counts = [host.partition(":")[2] or "1" for host in hosts]
    if wrong := [host for host, many in zip(hosts, counts, strict=True) if not (many.isascii() and many.isdigit())]:
        raise Problem(f"{hostfile}: a line must be host:slots (got {wrong[0]!r})")
    return sum(map(int, counts))


def read_hosts(hostfile: Path) -> list[str]:
    """Return the entries of a hostfile, without comments.

    Raises:
        Problem: the file cannot be read.
    """
    try:
        lines = hostfile.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Problem(f"{hostfile} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{hostfile} must be UTF-8 (invalid byte {error.start + 1}); convert it") from error
    return [words[0] for line in lines if (words := line.partition("#")[0].split())]


def expect_same_software(hosts: list[str], versions_of: list[dict[str, str]]) -> None:
    """Raise a Problem if any rank runs different software than rank 0 (METHOD 14).

    Args:
        hosts: host names by rank.
        versions_of: versions of the software by rank.
    """
    first, *others = versions_of
    for rank, other in enumerate(others, 1):
        if differ := sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name)):
            name, versions = differ[0], [one.get(differ[0], "none") for one in (other, first)]
            raise Problem(
                f"rank {rank} on {hosts[rank]} runs different software than rank 0: {name} {versions[0]}, not"
                f" {versions[1]}; install the same lock on all nodes"
            )


def compute_span(rows: list[dict]) -> tuple[float, float]:
    """Compute the duration of an iteration.

    Times are measured from the earliest start of any process on the same machine, because a process that waited for a
    core starts late and so measures too short a time. Because machines do not share a clock, the duration is the
    longest of any machine.

    Args:
        rows: "host", "times" (start and end) and "bytes" of each process.

    Returns:
        The duration, and the time until the first process that had bytes to read finished, both in seconds.
    """
    longest, first_done = 0.0, math.inf
    for name in {row["host"] for row in rows}:
        here = [row for row in rows if row["host"] == name]
        start = min(row["times"][0] for row in here)
        longest = max(longest, max(row["times"][1] for row in here) - start)
        first_done = min([first_done, *(row["times"][1] - start for row in here if row["bytes"])])
    return longest, first_done if first_done < math.inf else 0.0
