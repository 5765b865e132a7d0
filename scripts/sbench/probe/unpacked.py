"""What a tree that was unpacked from an archive of `sbench pack` knows of it: its commit, and what it brought along."""

import contextlib
import hashlib
import json
import os
from functools import cache
from pathlib import Path

ROOT = Path(__file__).absolute().parents[3]
# What an archive has beside the files of the project and .venv: it takes the place of the cache.
FOLDER = Path("packed")
MANIFEST = FOLDER / "pack.json"
# Programs that the workflow calls by their names.
PROGRAMS = FOLDER / "fio/bin"


@cache
def manifest() -> dict:
    """Return what the archive says of itself (`sbench.measure.pack`); {} in any other tree."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads((ROOT / MANIFEST).read_text(encoding="utf-8"))
    return {}


def edited() -> bool:
    """Say whether a file of the project is no longer what was packed."""
    return any(_digest(ROOT / name) != digest for name, digest in manifest()["files"].items())


def use_programs() -> None:
    """Have this process, and what it starts, find the programs that came with the tree before any others."""
    folder, path = str(ROOT / PROGRAMS), os.environ.get("PATH", os.defpath)
    if manifest() and not path.startswith(f"{folder}{os.pathsep}"):
        os.environ["PATH"] = f"{folder}{os.pathsep}{path}"


def _digest(path: Path) -> str:
    """Return the sha256 of a file, "" where there is none."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""
