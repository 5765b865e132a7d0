"""Cache build results, each in a directory named after the hash of all its inputs.

Results are built in place, because an environment's scripts and a library's run path contain their absolute path. The
build writes the marker file `complete.json` last; a directory without a valid marker counts as missing and is rebuilt.
A lock file ensures that only one process builds a given entry while the others wait. Compilers inherit the lock, so
that after a killed build the next one starts only when the last compiler has exited.

An installed package may contain complete entries (setup.py), which are used where they are.
"""

import ast
import fcntl
import functools
import hashlib
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from sbench.build.shell import Workshop
from sbench.probe.program import Problem, read_json, write_json

COMPLETE = "complete.json"
CONTAINED = Path(__file__).absolute().with_name("contained")
_FINDING = ContextVar("finding", default=False)
_COPY = ContextVar("copy", default="")


@functools.cache
def _hash_code(path: str) -> str:
    """Return a hash of a file's code that ignores the file name, imports, comments and docstrings.

    The result is cached, so it reflects the file's content at the first call.
    """
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [one for one in value if not _is_idle(one)])
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_idle(node: object) -> bool:
    """Return whether an AST node cannot affect a build: an import, or a constant used as a statement."""
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


@dataclass(frozen=True)
class Recipe:
    """Instructions for building a cache entry.

    Attributes:
        name: name of the entry, for messages and for its directory's name.
        inputs: everything that determines the result (JSON); the code of the file that defines `build` is added to it.
        build: function that fills the entry's directory and returns facts to store with the entry (JSON). Its arguments
            are this directory, and a `Workshop` with a temporary directory, a log file and the entry's lock.
        needs: paths, relative to the directory, that a complete entry contains.
    """

    name: str
    inputs: dict
    build: Callable[[Path, Workshop], dict]
    needs: tuple[str, ...]

    @property
    def key(self) -> str:
        """The SHA-256 of all inputs."""
        code = _hash_code(inspect.getsourcefile(self.build))
        value = {"name": self.name, "inputs": self.inputs, "code": code}
        value |= {"copy": copy} if (copy := _COPY.get()) else {}
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """The directory of the cache entry, which may not exist yet."""
        return get_cache_folder() / f"{self.name}-{self.key[:16]}"


@dataclass(frozen=True)
class Piece:
    """A finished cache entry.

    Attributes:
        key: key of its recipe.
        folder: directory of its recipe.
        facts: facts returned by the recipe's `build`.
        cached: whether the entry existed before it was requested.
    """

    key: str
    folder: Path
    facts: dict
    cached: bool


def get_cache_folder() -> Path:
    """Return this project's directory in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "storage-benchmarks"


def find_piece(recipe: Recipe) -> Piece | None:
    """Return the complete entry for `recipe` of the cache or of the installed package, or None.

    Raises:
        Problem: a marker file exists but cannot be read, which does not mean that a new build is needed.
    """
    if piece := _read_piece(recipe, recipe.folder, {"key": recipe.key}):
        return piece
    # The key of a contained entry may differ: a hash of code depends on the version of Python.
    return None if _COPY.get() else _read_piece(recipe, CONTAINED / recipe.name, {"inputs": recipe.inputs})


def _read_piece(recipe: Recipe, folder: Path, expected: dict) -> Piece | None:
    """Return the entry in a folder if it is complete and its marker has the expected values, else None."""
    try:
        marker = read_json(folder / COMPLETE)
    except Problem as problem:
        if isinstance(problem.__cause__, OSError) and os.path.exists(folder / COMPLETE):
            raise
        return None
    # Markers of earlier versions do not list the entries of the directory. Environments always have a lib.
    needs = (*recipe.needs, *marker.get("entries", ["lib"] if "bin/python" in recipe.needs else []))
    if marker | expected != marker or not all((folder / need).exists() for need in needs):
        return None
    return Piece(recipe.key, folder, marker["facts"], cached=True)


@contextmanager
def forbid_builds() -> Iterator[None]:
    """Forbid builds within a `with` block: `provide_piece` raises Problem if an entry is missing."""
    token = _FINDING.set(True)
    try:
        yield
    finally:
        _FINDING.reset(token)


@contextmanager
def set_build_copy(name: str) -> Iterator[None]:
    """Within a `with` block, use a separate set of cache entries, which are built again in other directories.

    Args:
        name: name of the set; an empty string selects the default set.
    """
    token = _COPY.set(name)
    try:
        yield
    finally:
        _COPY.reset(token)


def provide_piece(recipe: Recipe) -> Piece:
    """Return the cache entry for `recipe`, building it if it is missing.

    Raises:
        Problem: a build step failed (the message names the step and its log), or the cache is not writable.
    """
    if piece := find_piece(recipe):
        return piece
    if _FINDING.get():
        raise Problem(f"{recipe.name} is not built")
    try:
        with _hold_lock(recipe.folder) as lock:
            return find_piece(recipe) or _build_piece(recipe, lock)
    except OSError as error:
        raise Problem(
            f"{recipe.name} cannot be built in {recipe.folder.parent}: {error.strerror or error};"
            " free disk space, or set XDG_CACHE_HOME to a writable folder"
        ) from error


def _build_piece(recipe: Recipe, lock: int) -> Piece:
    folder, key = recipe.folder, recipe.key
    work, log = (folder.with_name(f"{folder.name}.{ending}") for ending in ("work", "log"))
    for leftover in (folder, work):
        shutil.rmtree(leftover, ignore_errors=True)
        leftover.mkdir()
    log.unlink(missing_ok=True)
    try:
        facts = recipe.build(folder, Workshop(recipe.name, work, log, lock))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # Flush the files to disk before the marker that declares them complete.
    os.sync()
    entries = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    write_json(folder / COMPLETE, {"key": key, "inputs": recipe.inputs, "facts": facts, "entries": entries})
    return Piece(key, folder, facts, cached=False)


@contextmanager
def _hold_lock(folder: Path) -> Iterator[int]:
    """Acquire the lock for `folder`, waiting if necessary.

    Yields:
        The file descriptor of the lock, for child processes to inherit.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder.name}: another process is building it; waiting", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
