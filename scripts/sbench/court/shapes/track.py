"""A track of a satellite: a few long variables, whose chunks are written in turn, as in ATL03 files."""

import itertools
from pathlib import Path

import h5py
import numpy as np

VARIABLES = ("h_ph", "lat_ph", "lon_ph")


def write_track(
    path: Path,
    values: int,
    chunk: int,
    filler: int = 0,
    seed: int = 1,
    in_turn: bool = True,
    **options: object,
) -> None:
    """Write a track.

    Args:
        path: path of the file.
        values: number of float32 values of each variable in `gt1l/heights`.
        chunk: number of values in a chunk.
        filler: bytes of a contiguous dataset that precedes the track, so that it is not at the start of the file.
        seed: seed of the values, which are the same for all chunk sizes.
        in_turn: whether chunks of all variables are written in turn; otherwise one variable after another, as h5repack
            does.
        options: further options of `h5py.File`, such as `fs_strategy="page"`.
    """
    height = np.random.default_rng(seed).normal(scale=0.05, size=values).cumsum().astype("f4")
    columns = dict(
        zip(VARIABLES, (height, np.linspace(50, 70, values, dtype="f4") + height / 1000, -height), strict=True)
    )
    # A cache of chunks would write the last ones of each variable together.
    with h5py.File(path, "w", **({"rdcc_nbytes": 0} | options)) as file:
        if filler:
            file.create_dataset("filler", data=np.zeros(filler, "u1"))
        group = file.create_group("gt1l/heights")
        kind = {"shape": (values,), "dtype": "f4", "chunks": (chunk,), "compression": "gzip", "shuffle": True}
        made = {name: group.create_dataset(name, **kind) for name in VARIABLES}
        places = list(itertools.product(range(0, values, chunk), VARIABLES))
        for start, name in places if in_turn else sorted(places, key=lambda place: place[1]):
            made[name][start : start + chunk] = columns[name][start : start + chunk]
