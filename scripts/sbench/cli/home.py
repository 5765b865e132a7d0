"""Find the working directory of sbench: the clone, or for an installed package its home with copies of those files."""

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from sbench.probe.program import Problem, replace_file, write_text

# In the home, this path is a symbolic link to the installed package.
PACKAGE = Path(__file__).absolute().parents[1]
CARRIED = PACKAGE / "clone"
HOME = "SBENCH_HOME"
_DEFAULT = "~/.local/share/storage-benchmarks"
_VERSION = ".version"


def enter_home(argv: Sequence[str]) -> None:
    """Change to the clone that contains this code. An installed package is re-executed from its home instead."""
    root = PACKAGE.parents[1]
    if CARRIED.is_dir() and not (root / "Snakefile").is_file():
        module = make_home() / "scripts/module.py"
        os.execv(sys.executable, [sys.executable, str(module), "sbench.cli", *argv])
    os.chdir(root)


def make_home() -> Path:
    """Return the home of an installed package, creating or updating it if necessary.

    The home contains the files of a clone, results and reports.

    Raises:
        Problem: the directory is not empty, and was not created by sbench.
    """
    home = Path(os.environ.get(HOME) or _DEFAULT).expanduser().absolute()
    version = _describe_version()
    with contextlib.suppress(OSError):
        if (home / _VERSION).read_text(encoding="utf-8") == version:
            return home
    if home.is_dir() and any(home.iterdir()) and not (home / _VERSION).exists():
        raise Problem(f"{home} must be empty or a folder of sbench; set {HOME} to another folder")
    # Write an empty version first: it marks the directory as ours, so that the next call completes an interrupted one.
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
    """Write how to install a missing module: with the set of optional dependencies that contains it."""
    extra = "workflow"
    for text in metadata.requires("storage-benchmarks") or ():
        requirement, _, marker = text.partition(";")
        if requirement.split("=")[0].strip().replace("-", "_") == module and "report" in marker:
            extra = "report"
    return f"{module} is not installed: pip install 'storage-benchmarks[{extra}]'"


def _describe_version() -> str:
    """Identify an installation by a hash of the package's path and its data files' names, sizes and times."""
    files = [
        (path.relative_to(CARRIED).as_posix(), path.stat().st_size, path.stat().st_mtime_ns)
        for path in CARRIED.rglob("*")
    ]
    return hashlib.sha256(repr((str(PACKAGE), sorted(files))).encode()).hexdigest()
