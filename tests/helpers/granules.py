"""Files of another tree than that of shots, what is read of them, and a run that reads sets of them."""

from pathlib import Path

import h5py
import numpy as np

from sbench.studies.shots import manifest
from sbench.studies.shots.choice import choose_datasets

BEAMS = ("gt1l", "gt1r")


def granule(path: Path, seed: int, paged: bool = False, rows: int = 70) -> Path:
    """Write a file with beams of small compressed datasets, texts, a reference, and a dataset without values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    space = {"fs_strategy": "page", "fs_page_size": 65536} if paged else {}
    values = np.random.default_rng(seed)
    with h5py.File(path, "w", **space) as file:
        file.attrs["title"], file.attrs["number"] = "granule", seed
        for beam in BEAMS:
            group = file.create_group(f"{beam}/land_ice_segments")
            group.attrs["beam"] = beam
            for name in ("h_li", "latitude"):
                data = values.normal(size=(rows, 12))
                group.create_dataset(name, data=data, chunks=(20, 12), compression="gzip", shuffle=True)
        file["texts"] = np.array(["a", "bcd"], dtype=h5py.string_dtype())
        file["name"] = "one text"
        file["references"] = np.array([file["texts"].ref], dtype=h5py.ref_dtype)
        file["nothing"] = h5py.Empty("f4")
    return path


def run_of(sets: dict, **levels: list) -> dict:
    """Return a configuration that reads sets of files."""
    levels = {
        **{"library": ["wheel"], "store": ["disk"], "driver": ["sec2"], "layout": list(sets), "access": ["files"]},
        **{"workers": [1], "page_buffer": ["unset"], "cache": ["any"], **levels},
    }
    shots = {"data": {"files": sets}, "read_files": 2, "control_cells": 0, "matrix": [levels]}
    return {
        "run": "tiny",
        "repeats": 1,
        "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}},
        "stores": {"disk": {"kind": "posix"}},
        "studies": {"shots": shots},
    }


def described(files: object, *datasets: str, level: str = "all") -> dict:
    """Return the facts of the manifest of a set."""
    settings = {"files": files, "datasets": list(datasets or ("/**",)), "layout": "mine", "selection": level}
    return manifest.describe_set(settings)


def paths(path: Path, *patterns: str) -> dict[str, list[str]]:
    """Return the paths of datasets that patterns mean."""
    with h5py.File(path) as file:
        meant = choose_datasets(file, patterns, str(path)).meant
        return {pattern: [dataset.name for dataset in of] for pattern, of in meant.items()}


def left_out(path: Path, *patterns: str) -> dict[str, str]:
    """Return what is left out of a file in words, by path."""
    with h5py.File(path) as file:
        return {
            entry.path: str(entry) for entry in choose_datasets(file, patterns or ("/**",), str(path)).list_left_out()
        }
