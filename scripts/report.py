"""Execute a notebook on a study's tables and write its page (see `sbench.pages.notebook`)."""

import gc

from sbench.pages import notebook
from sbench.pages.page import draw_aside
from sbench.probe.program import run_main


def main() -> int:
    """Write a page, drawing its SVG figures in a separate process."""
    draw_aside()
    return notebook.main()


# Creating a page allocates millions of long-lived objects; frequent garbage collection would take a tenth of its time.
gc.set_threshold(50_000)
run_main(main)
