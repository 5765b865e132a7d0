"""Find the working directory of sbench: the clone, or for an installed package its home with copies of those files."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
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
        Problem: the directory is not empty, and was not created by sbench; or it cannot be created.
    """
    home = Path(os.environ.get(HOME) or _DEFAULT).expanduser().absolute()
    version = _describe_version()
    if not _has_version(home, version):
        with _lock_folder(home):
            # Another process may have completed it while this one waited.
            if not _has_version(home, version):
                _fill_home(home, version)
    return home


def _has_version(home: Path, version: str) -> bool:
    with contextlib.suppress(OSError):
        return (home / _VERSION).read_text(encoding="utf-8") == version
    return False


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise Problem(f"{folder} cannot be created: {error.strerror}; set {HOME} to a writable folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fill_home(home: Path, version: str) -> None:
    if any(home.iterdir()) and not (home / _VERSION).exists():
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


def find_extra(module: str) -> str:
    """Return the name of the smallest set of optional dependencies of a command that contains a module."""
    for text in metadata.requires("storage-benchmarks") or ():
        requirement, _, marker = text.partition(";")
        if requirement.split("=")[0].strip().replace("-", "_") == module and "report" in marker:
            return "report"
    return "workflow"


def describe_package(extra: str) -> str:
    """Return what pip installs this package with an extra from: where it came from, as no index has it (PEP 610)."""
    origin = json.loads(metadata.distribution("storage-benchmarks").read_text("direct_url.json") or "{}")
    vcs = origin.get("vcs_info")
    url = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin.get("url")
    return f"storage-benchmarks[{extra}]{f' @ {url}' if url else ''}"


def _describe_version() -> str:
    """Identify an installation by a hash of the package's path and its data files' names, sizes and times."""
    files = [
        (path.relative_to(CARRIED).as_posix(), path.stat().st_size, path.stat().st_mtime_ns)
        for path in CARRIED.rglob("*")
    ]
    return hashlib.sha256(repr((str(PACKAGE), sorted(files))).encode()).hexdigest()
