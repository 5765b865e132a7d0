"""A finished run of all studies, a cut-down smoke run, and copies of it from which a part is missing."""

import os
import shutil
from pathlib import Path

import yaml

from tests.conftest import ROOT

# The rows of each matrix of the smoke run that are kept, with the levels that are kept of them. A study whose jobs may
# have the name of another one, as of a library, is before it.
ROWS = {
    "shots": {0: {"library": ["hdf5-2.0.0"], "page_buffer": ["0"]}, 1: {"driver": ["sec2"]}},
    "volumes": {0: {"background": ["none"]}},
    "blobs": {0: {}, 3: {"store": ["disk"]}},
    "particles": {0: {}, 3: {"driver": ["ros3"]}},
    "containers": {0: {}},
    "arrays": {0: {}},
}
SHORTER = {"shots": {"control_cells": 0}, "volumes": {"jobs": 1, "batteries": 2}}
STUDIES = (*ROWS, "index")
_LAST = "records/*/repeat=2.json"
_INDEX = ["reports/smoke/index.html"]
# What is taken away of the finished run, so that a call makes it again, by what is injected into.
MISSING = {
    "cells": [f"results/smoke/*/{_LAST}"],
    "data": ["results/smoke/data", "results/smoke/environments", "results/smoke/{study}/ready.json"],
    "pages": ["results/smoke/*/looks/*.json", "results/smoke/*/facts.json"],
    "index": _INDEX,
    "call": _INDEX,
}
MISSING["data"] += [f"results/smoke/{{study}}/{name}" for name in ("plan.json", _LAST)]


def write_config(clone: Path, repeats: int = 2) -> None:
    """Make the cut-down smoke run, with so many repeats, the default configuration of a clone."""
    config = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    del config["libraries"]["hdf5-1.14.6"]
    for study, rows in ROWS.items():
        section = config["studies"][study]
        matrices = section["matrix"] if isinstance(section["matrix"], list) else [section["matrix"]]
        section |= {"matrix": [matrices[number] | levels for number, levels in rows.items()], "compare": []}
        section |= SHORTER.get(study, {}) | {"time_limit_s": 100}
    (clone / "config/config.yaml").write_text(yaml.safe_dump(config | {"repeats": repeats}), encoding="utf-8")


def copy_without(part: str, study: str, finished: Path, clone: Path) -> None:
    """Copy the finished run without what a part of it makes, for one study where the part is of one."""
    shutil.copytree(finished, clone, symlinks=True)
    for path in [path for pattern in MISSING[part] for path in clone.glob(pattern.format(study=study))]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if part == "cells":
        # Two blocks are measured, and others appended for what fails in them.
        write_config(clone, 3)


def read_records(clone: Path) -> dict[str, bytes]:
    """Return the records of a run by their path."""
    paths = sorted(clone.glob("results/smoke/*/records/*/repeat=*.json"))
    return {str(path.relative_to(clone)): path.read_bytes() for path in paths}


def link_cache(folder: Path) -> Path:
    """Return a cache that has links to what is built, so that no fault removes it."""
    built = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "storage-benchmarks")
    linked = folder / "cache" / built.name
    linked.mkdir(parents=True, exist_ok=True)
    for piece in built.glob("*/"):
        if not (linked / piece.name).exists():
            (linked / piece.name).symlink_to(piece)
    return linked.parent
