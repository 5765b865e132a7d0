"""Faults of the system, injected into the processes of a small run."""

import sys
from pathlib import Path

# `python -m tests.inject` begins with the root on its path, where the package is not.
sys.path.insert(1, str(Path(__file__).parents[2] / "scripts"))
