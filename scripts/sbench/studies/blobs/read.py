"""Run one of a cell's MPI processes. It repeatedly reads its part of the objects, with barriers before and after.

`studies.blobs.measure` starts the processes through `studies.blobs.mpi`; `studies.blobs.process` describes their
messages. An error in any process, even while it imports modules, is reported on standard error and ends all processes,
because the others would wait for it indefinitely.
"""

import argparse
import json
import os
import signal
import sys
import traceback

from sbench.probe.processes import die_with_parent
from sbench.probe.program import Problem
from sbench.studies.blobs.mpi import PROBLEM


def main(argv: list[str] | None = None) -> None:
    """Run this process until it has finished or its launcher ends."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    # Set this before MPI_Init, which a process would not leave if its launcher were killed.
    die_with_parent()
    if os.getppid() == 1:
        return
    # The launcher sends SIGINT to the remaining processes when one has ended; let it terminate this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stderr.reconfigure(encoding="ascii", errors="backslashreplace")
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        from sbench.studies.blobs import process

        process.serve_parent(comm)
    except BaseException as error:
        words = str(error)
        if not isinstance(error, Problem):
            traceback.print_exc()
            if isinstance(error, OSError) and error.filename:
                words = f"{error.filename}: {error.strerror}"
            else:
                last = (words.strip().splitlines() or [""])[-1]
                words = f"MPI process {comm.rank} of {comm.size} failed: {type(error).__name__}: {last}"
        # Write JSON in ASCII, because gforker drops all other characters.
        print(f"{PROBLEM}{json.dumps(words)}", file=sys.stderr, flush=True)
        comm.Abort(1)


if __name__ == "__main__":
    main()
