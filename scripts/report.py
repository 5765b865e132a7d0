"""Executes a notebook on a study's tables and writes its page (see `sbench.pages.notebook`)."""

import gc

from sbench.pages import notebook
from sbench.pages.page import draw_aside
from sbench.probe.program import run_main


def main() -> int:
    """Write a page, with a process beside this one that draws."""
    draw_aside()
    return notebook.main()


# A page makes millions of objects that last until it is written; to look for others so often takes a tenth of its time.
gc.set_threshold(50_000)
run_main(main)
