"""Identify the code that measured a cell, so that only cells measured by the same code are compared (METHOD 14)."""

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sbench.probe.program import Problem, find_git


def describe_code(modules: Iterable[str]) -> dict:
    """Describe the version of the code that measured a cell.

    Args:
        modules: names of the `sbench.…` modules that took part in the measurement. Only these are hashed, so that
            records remain comparable after changes to other modules.

    Returns:
        "git": the commit. "dirty": whether there are uncommitted changes. Both are None outside a Git repository.
        "code_sha256": hash of the modules.
    """
    commit = _run_git("rev-parse", "HEAD")
    dirty = bool(_run_git("status", "--porcelain")) if commit else None
    return {"git": commit, "dirty": dirty, "code_sha256": compute_code_sha256(modules)}


def compute_code_sha256(modules: Iterable[str]) -> str:
    """Return the SHA-256 of the sources of `modules`, given as Python module names, or as paths of shell scripts."""
    hashed = hashlib.sha256()
    for module in sorted(set(modules)):
        file = Path(module) if module.endswith(".sh") else Path("scripts", *module.split(".")).with_suffix(".py")
        if file.exists():
            hashed.update(module.encode() + b"\0" + file.read_bytes() + b"\0")
    return hashed.hexdigest()


def list_loaded_modules() -> list[str]:
    """Return the names of the `sbench.…` modules that this process has imported, including the main program."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    names = {name for name in sys.modules if name.startswith("sbench.")}
    return sorted(names | ({main.name} if main and main.name.startswith("sbench.") else set()))


def list_package_modules(*names: str) -> list[str]:
    """Return the names of all modules in directories of the package `sbench`, whether imported or not.

    For example, "stores" has a module for each kind of store. With this list, cells that import different modules of
    such a directory count as measured by the same code.

    Raises:
        FileNotFoundError: the package has no such directory.
    """
    root = Path(__file__).resolve().parents[2]
    folders = ((root / "sbench" / name).resolve(strict=True) for name in names)
    files = (path.relative_to(root) for folder in folders for path in folder.rglob("*.py"))
    return sorted(".".join(file.with_suffix("").parts) for file in files)


def _run_git(*arguments: str) -> str | None:
    with contextlib.suppress(Problem):
        answer = subprocess.run([find_git(), *arguments], capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else None
    return None
