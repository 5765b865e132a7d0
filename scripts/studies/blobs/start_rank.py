"""Runs a program as an MPI process that ends when its launcher does.

`python -m scripts.studies.blobs.start_rank -m PROGRAM`

That is asked for before MPI begins: within MPI_Init nothing would end a process whose launcher is gone.
"""

import os

from scripts.lib.processes import die_with_parent


def main() -> None:
    """Become the program, unless the launcher is gone already."""
    die_with_parent()
    if os.getppid() == 1:
        return
    # It ends all processes where one of them fails, even as it imports; without it the others would wait for ever.
    from mpi4py import run

    run.main()


if __name__ == "__main__":
    main()
