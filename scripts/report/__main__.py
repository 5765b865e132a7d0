"""`python -m scripts.report`: executes a notebook on a study's tables (see `scripts.report.notebook`)."""

from scripts.lib.program import run
from scripts.report.notebook import main

run(main)
