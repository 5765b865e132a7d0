"""`python -m scripts.report`: executes a notebook on a study's tables (see `scripts.report.notebook`)."""

import gc

from scripts.lib.program import run
from scripts.report import notebook
from scripts.report.page import draw_aside


def main() -> int:
    """Write a page, with a process beside this one that draws."""
    draw_aside()
    return notebook.main()


# A page makes millions of objects that last until it is written; to look for others so often takes a tenth of its time.
gc.set_threshold(50_000)
run(main)
