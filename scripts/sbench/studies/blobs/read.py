"""One MPI process of a cell of the blobs study: reads its part of the objects again and again, between barriers.

Started by `studies.blobs.measure` through `studies.blobs.mpi`; what it says and hears is in `studies.blobs.process`. An
error of any process ends all of them, even one as it imports: the others would wait for it for ever. Its line is on
standard error.
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
    """Run this process, which ends with its launcher at the latest."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    # Before MPI begins: within MPI_Init nothing would end a process without its launcher.
    die_with_parent()
    if os.getppid() == 1:
        return
    # The launcher sends SIGINT to the remaining processes when a process has ended.
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
        # gforker drops characters that are not ASCII.
        print(f"{PROBLEM}{json.dumps(words)}", file=sys.stderr, flush=True)
        comm.Abort(1)


if __name__ == "__main__":
    main()
