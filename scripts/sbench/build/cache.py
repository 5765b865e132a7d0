"""The cache of built pieces: a folder each, named by the hash of all that went in; finished, or as good as not there.

A piece is built in its final place, because an environment's scripts and a library's run path name it. What makes it
count is the file `complete.json`, which is written last; a folder without it is removed and built again. A lock lets
one process build a piece while others wait. Compilers inherit the lock, so that the next build of a killed one begins
when its last compiler has ended.
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
_FINDING = ContextVar("finding", default=False)
_COPY = ContextVar("copy", default="")


@functools.cache
def _hash_code(path: str) -> str:
    """Return a hash of what a file of code does, as it was when this process first asked: its names are not part of it.

    Imports, comments and docstrings may change: nothing is built again for them.
    """
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [one for one in value if not _is_idle(one)])
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_idle(node: object) -> bool:
    """Return whether a statement changes nothing that is built: an import, or a text that stands by itself."""
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


@dataclass(frozen=True)
class Recipe:
    """How to build a piece.

    Attributes:
        name: what it is, in the folder's name and in messages.
        inputs: all that decides the result (JSON); the file that holds `build` is added.
        build: fills the folder it is given, has a workshop for the time of the work, and returns facts to keep (JSON).
        needs: paths in the folder without which it is not whole.
    """

    name: str
    inputs: dict
    build: Callable[[Path, Workshop], dict]
    needs: tuple[str, ...]

    @property
    def key(self) -> str:
        """The sha256 of all that goes in."""
        code = _hash_code(inspect.getsourcefile(self.build))
        value = {"name": self.name, "inputs": self.inputs, "code": code}
        value |= {"copy": copy} if (copy := _COPY.get()) else {}
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the piece is, or will be."""
        return get_cache_folder() / f"{self.name}-{self.key[:16]}"


@dataclass(frozen=True)
class Piece:
    """A finished piece: the key and the folder of its recipe, and the facts that the recipe returned.

    `cached`: it was there already.
    """

    key: str
    folder: Path
    facts: dict
    cached: bool


def get_cache_folder() -> Path:
    """Return the folder of this project in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "storage-benchmarks"


def find_piece(recipe: Recipe) -> Piece | None:
    """Return the piece of `recipe` if it was built to its end and is whole, else None.

    Raises:
        Problem: the system refuses to read what says so, which does not mean that it has to be built again.
    """
    folder, key = recipe.folder, recipe.key
    try:
        marker = read_json(folder / COMPLETE)
    except Problem as problem:
        if isinstance(problem.__cause__, OSError) and os.path.exists(folder / COMPLETE):
            raise
        return None
    if marker.get("key") != key or not all((folder / need).exists() for need in recipe.needs):
        return None
    return Piece(key, folder, marker["facts"], cached=True)


@contextmanager
def forbid_builds() -> Iterator[None]:
    """Have `provide_piece` build nothing in a `with` block: a piece that is not there is a Problem."""
    token = _FINDING.set(True)
    try:
        yield
    finally:
        _FINDING.reset(token)


@contextmanager
def set_build_copy(name: str) -> Iterator[None]:
    """Have pieces in a `with` block be those of a further build, in other folders; "" is none."""
    token = _COPY.set(name)
    try:
        yield
    finally:
        _COPY.reset(token)


def provide_piece(recipe: Recipe) -> Piece:
    """Return the piece of `recipe`, built now if it is not there.

    Raises:
        Problem: a step of the build failed (the line names it and its log), or the cache cannot be written.
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
            " free the disk, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _build_piece(recipe: Recipe, lock: int) -> Piece:
    """Build a piece whose lock is held; what is left of an earlier attempt is removed first."""
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
    # The marker must not reach the disk before what it vouches for.
    os.sync()
    write_json(folder / COMPLETE, {"key": key, "inputs": recipe.inputs, "facts": facts})
    return Piece(key, folder, facts, cached=False)


@contextmanager
def _hold_lock(folder: Path) -> Iterator[int]:
    """Hold the lock of `folder`, waiting for whoever has it; yields its descriptor, for children to inherit."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder.name}: another process is building it; waiting", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
