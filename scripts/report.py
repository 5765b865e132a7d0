"""Execute a notebook on a study's tables and write its page (see `sbench.pages.notebook`)."""

import gc

from sbench.pages import notebook
from sbench.pages.page import draw_aside
from sbench.probe.program import run_main


def main() -> int:
    """Write a page, with a separate process for drawing."""
    draw_aside()
    return notebook.main()


# A page makes millions of objects that last until it is written; frequent collections take a tenth of its time.
gc.set_threshold(50_000)
run_main(main)
