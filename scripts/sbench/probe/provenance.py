"""Record the code that measured, so that arms are only compared if the same code measured both (METHOD 14)."""

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sbench.probe.program import Problem, find_git


def describe_code(modules: Iterable[str]) -> dict:
    """Return {"git", "dirty", "code_sha256"} for the `sbench.…` modules that took part in measuring a cell.

    git is None outside a clone. Only the modules count, so a change elsewhere leaves records comparable.
    """
    commit = _run_git("rev-parse", "HEAD")
    dirty = bool(_run_git("status", "--porcelain")) if commit else None
    return {"git": commit, "dirty": dirty, "code_sha256": compute_code_sha256(modules)}


def compute_code_sha256(modules: Iterable[str]) -> str:
    """Return a hash of the sources of `modules`, named as Python imports them; a shell script by its path."""
    hashed = hashlib.sha256()
    for module in sorted(set(modules)):
        file = Path(module) if module.endswith(".sh") else Path("scripts", *module.split(".")).with_suffix(".py")
        if file.exists():
            hashed.update(module.encode() + b"\0" + file.read_bytes() + b"\0")
    return hashed.hexdigest()


def list_loaded_modules() -> list[str]:
    """Return the `sbench.…` modules that this process has loaded, including the main program."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    names = {name for name in sys.modules if name.startswith("sbench.")}
    return sorted(names | ({main.name} if main and main.name.startswith("sbench.") else set()))


def list_package_modules(*names: str) -> list[str]:
    """Return all modules of some folders of the package, such as "stores", which has a module for each kind of store.

    Arms are compared if all these modules are the same code, whichever an arm has loaded.

    Raises:
        FileNotFoundError: the package lacks such a folder.
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
