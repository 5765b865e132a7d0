"""Benchmarks of the project itself: its false verdicts, its overhead, its scale and its size."""

import sys
from pathlib import Path

# `python -m tests.bench` begins with the root on its path, where the package is not.
sys.path.insert(1, str(Path(__file__).parents[2] / "scripts"))
