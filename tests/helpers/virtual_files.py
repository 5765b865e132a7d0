"""Files with virtual datasets."""

from pathlib import Path

import h5py
import numpy as np


def virtual(path: Path, sources: list[tuple[str, str]], name: str = "virtual") -> Path:
    """Write a virtual dataset of sources of 10 numbers, one below the other."""
    layout = h5py.VirtualLayout((len(sources), 10), "<f8")
    for row, source in enumerate(sources):
        layout[row] = h5py.VirtualSource(*source, (10,))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout, fillvalue=-1)
    return path


def frames(folder: Path, count: int = 2) -> list[tuple[str, str]]:
    for number in range(count):
        with h5py.File(folder / f"frames{number}.h5", "w") as file:
            file["x"] = np.arange(10.0) + number
    return [(f"frames{number}.h5", "x") for number in range(count)]


def nested(path: Path, source: str) -> None:
    """Write a virtual dataset of one that is virtual, too."""
    layout = h5py.VirtualLayout((2, 10), "<f8")
    layout[:] = h5py.VirtualSource(source, "virtual", (2, 10))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("nested", layout)
