"""A tree of groups with small datasets and attributes, as in NWB, GEDI and NISAR files."""

from pathlib import Path

import h5py
import numpy as np


def write_tree(
    path: Path,
    groups: int,
    datasets: int,
    attributes: int,
    values: int = 256,
    filler: int = 0,
    seed: int = 1,
    **options: object,
) -> None:
    """Write a file whose metadata are scattered over its length.

    Args:
        path: path of the file.
        groups: number of groups in the root.
        datasets: number of chunked, compressed datasets in each group.
        attributes: number of attributes of each group and each dataset.
        values: number of float32 values of a dataset, in one chunk.
        filler: bytes of a contiguous dataset that is written after each group, so that the metadata of the groups are
            far from each other.
        seed: seed of the values.
        options: further options of `h5py.File`, such as `fs_strategy="page"`.
    """
    numbers = np.random.default_rng(seed)
    with h5py.File(path, "w", **options) as file:
        for place in range(groups):
            group = file.create_group(f"BEAM{place:04d}")
            _write_attributes(group, attributes)
            for number in range(datasets):
                data = numbers.random(values, dtype="f4")
                _write_attributes(
                    group.create_dataset(f"variable_{number:03d}", data=data, chunks=(values,), compression="gzip"),
                    attributes,
                )
            if filler:
                file.create_dataset(f"filler/{place:04d}", data=numbers.integers(0, 256, filler, dtype="u1"))


def _write_attributes(target: h5py.Group | h5py.Dataset, count: int) -> None:
    for number in range(count):
        target.attrs[f"attribute_{number:02d}"] = f"value {number} of {target.name}"
