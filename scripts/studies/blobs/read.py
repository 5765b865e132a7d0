"""One MPI process of a cell of the blobs study: reads its part of the objects again and again, between barriers.

Started by `studies.blobs.measure` through `studies.blobs.mpi`. Rank 0 gets the job as a JSON line on standard input and
answers on standard output: `started`, `ready` (what follows is to be counted), `read`, `done` with what was found, and
`ended` after MPI_Finalize. An error of any process ends all of them; its line is on standard error.
"""

import argparse
import signal
import sys
import traceback

from mpi4py import MPI

from scripts.lib import provenance
from scripts.lib.program import Problem, read_json
from scripts.lib.window import Step
from scripts.studies.blobs.mpi import patiently, say_problem
from scripts.studies.blobs.process import Process


def main(argv: list[str] | None = None) -> None:
    """Run this process to its end."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    # The launcher sends it to the processes that are left when another has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stderr.reconfigure(encoding="ascii", errors="backslashreplace")
    comm = MPI.COMM_WORLD
    try:
        _converse(comm)
    except BaseException as error:
        if not isinstance(error, Problem):
            traceback.print_exc()
        say_problem(_line(error, comm))
        comm.Abort(1)


def _line(error: BaseException, comm: MPI.Comm) -> str:
    if isinstance(error, Problem):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    words = str(error).strip().splitlines() or [""]
    return f"MPI process {comm.rank} of {comm.size} failed: {type(error).__name__}: {words[-1]}"


def _converse(comm: MPI.Comm) -> None:
    parent = Step() if comm.rank == 0 else None
    job = comm.bcast(parent.job if parent else None)
    job["manifest"] = comm.bcast(read_json(job["manifest"]) if parent else None)
    if comm.size != int(job["settings"]["cell"]["processes"]):
        raise Problem(
            f"{job['settings']['cell']['processes']} MPI processes were asked for and {comm.size} are together;"
            " does the launcher belong to the MPI library (library under mpi)?"
        )
    process = Process(comm, job)
    facts = comm.gather(process.facts())
    _tell(parent, "started", facts=facts)
    process.prepare()
    _tell(parent, "ready")
    _hear(comm, parent)
    process.measure()
    _tell(parent, "read")
    _hear(comm, parent)
    outcome = process.finish()
    modules = comm.gather(provenance.loaded())
    if parent:
        outcome["modules"] = sorted({name for names in modules for name in names})
        _tell(parent, "done", outcome=outcome, addresses=process.addresses())
    MPI.Finalize()
    _tell(parent, "ended")


def _tell(parent: Step | None, event: str, **facts: object) -> None:
    if parent:
        parent.say({"event": event, **facts})


def _hear(comm: MPI.Comm, parent: Step | None) -> None:
    """Wait until the parent lets all go on."""
    if parent:
        parent.hear()
    patiently(comm.Ibarrier())


if __name__ == "__main__":
    main()
