"""Read the table of the signals of synthetic shots, `config/shots_signals.csv`.

This module needs only the standard library, because it also validates configurations.
"""

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).parents[4] / "config" / "shots_signals.csv"


@dataclass(frozen=True)
class Signal:
    """A row of the table of signals. `axes` contains the names of the dimension scales."""

    name: str
    files: int
    scaled_files: int
    absent_from: int
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    kind: str
    amplitude: float
    noise_bits: int

    @property
    def nbytes(self) -> int:
        """The size in memory in bytes."""
        # The number in the name of a type is its size in bytes for text (S16), otherwise in bits (float32).
        size = int("".join(filter(str.isdigit, self.dtype)))
        return math.prod(self.shape) * (size if self.dtype.startswith("S") else size // 8)


@lru_cache(maxsize=1)
def load_signals() -> dict[str, Signal]:
    """Return all signals, keyed by name in alphabetical order."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {row["signal"]: _parse_row(row) for row in sorted(csv.DictReader(lines), key=lambda row: row["signal"])}


def _parse_row(row: dict[str, str]) -> Signal:
    return Signal(
        row["signal"],
        *(int(row[name]) for name in ("files", "scaled_files", "absent_from")),
        row["dtype"],
        tuple(int(length) for length in row["shape"].split("x") if length),
        tuple(row["axes"].split()),
        row["kind"],
        float(row["amplitude"]),
        int(row["noise_bits"]),
    )


def select_signals(count: int) -> list[str]:
    """Select `count` signals, evenly spaced in the order of size, and return their names in alphabetical order."""
    by_size = sorted(load_signals(), key=lambda name: (-load_signals()[name].nbytes, name))
    step = (len(by_size) - 1) / max(1, count - 1)
    return sorted(by_size[round(number * step)] for number in range(count))
