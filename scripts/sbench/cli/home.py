"""Find the working folder of commands: the clone, or for an installed package a folder with the files of a clone."""

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from sbench.probe.program import Problem, replace_file, write_text

# In a home this is the link to the installed package.
PACKAGE = Path(__file__).absolute().parents[1]
CARRIED = PACKAGE / "clone"
HOME = "SBENCH_HOME"
_DEFAULT = "~/.local/share/storage-benchmarks"
_VERSION = ".version"


def enter_home(argv: Sequence[str]) -> None:
    """Change to the clone or the home that contains this code; restart an installed package from its home."""
    root = PACKAGE.parents[1]
    if CARRIED.is_dir() and not (root / "Snakefile").is_file():
        module = make_home() / "scripts/module.py"
        os.execv(sys.executable, [sys.executable, str(module), "sbench.cli", *argv])
    os.chdir(root)


def make_home() -> Path:
    """Return the home of an installed package, with the files of a clone, results and reports; make it if necessary.

    Raises:
        Problem: the folder is not empty and was not made here.
    """
    home = Path(os.environ.get(HOME) or _DEFAULT).expanduser().absolute()
    version = _describe_version()
    with contextlib.suppress(OSError):
        if (home / _VERSION).read_text(encoding="utf-8") == version:
            return home
    if home.is_dir() and any(home.iterdir()) and not (home / _VERSION).exists():
        raise Problem(f"{home} must be empty or a folder of sbench; set {HOME} to another folder")
    # Write this first, so that the next call completes an interrupted call.
    write_text(home / _VERSION, "")
    for path in sorted(CARRIED.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            with replace_file(home / path.relative_to(CARRIED)) as part:
                shutil.copy(path, part)
    link = home / "scripts/sbench"
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE)
    write_text(home / _VERSION, version)
    return home


def describe_extra(module: str) -> str:
    """Describe how to install a module that an installed package lacks."""
    extra = "workflow"
    for text in metadata.requires("storage-benchmarks") or ():
        requirement, _, marker = text.partition(";")
        if requirement.split("=")[0].strip().replace("-", "_") == module and "report" in marker:
            extra = "report"
    return f"{module} is not installed: pip install 'storage-benchmarks[{extra}]'"


def _describe_version() -> str:
    """Return a hash of the carried files and the path of the package, which identifies an installation."""
    files = [
        (path.relative_to(CARRIED).as_posix(), path.stat().st_size, path.stat().st_mtime_ns)
        for path in CARRIED.rglob("*")
    ]
    return hashlib.sha256(repr((str(PACKAGE), sorted(files))).encode()).hexdigest()
