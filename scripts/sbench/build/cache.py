"""Cache built pieces, each in a folder named by the hash of all its inputs; an unfinished piece counts as missing.

A piece is built in its final place, because an environment's scripts and a library's run path name it. The file
`complete.json`, written last, marks it as finished; a folder without it is removed and built again. A lock lets one
process build a piece while others wait. Compilers inherit the lock, so that after a killed build the next build
begins when the last compiler has ended.
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
    """Return a hash of the code in a file at the first call, without its name, imports, comments and docstrings."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [one for one in value if not _is_idle(one)])
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_idle(node: object) -> bool:
    """Return whether a statement cannot change a build: an import, or a constant as a statement."""
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


@dataclass(frozen=True)
class Recipe:
    """A description of how to build a piece.

    Attributes:
        name: name of the piece in messages and in its folder's name.
        inputs: everything that determines the result (JSON); the code of the file that defines `build` is added.
        build: function that fills a folder, with a workshop for the time of the work, and returns facts to keep (JSON).
        needs: paths in the folder that a complete piece has.
    """

    name: str
    inputs: dict
    build: Callable[[Path, Workshop], dict]
    needs: tuple[str, ...]

    @property
    def key(self) -> str:
        """The sha256 of all inputs."""
        code = _hash_code(inspect.getsourcefile(self.build))
        value = {"name": self.name, "inputs": self.inputs, "code": code}
        value |= {"copy": copy} if (copy := _COPY.get()) else {}
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """The folder of the piece, built or not."""
        return get_cache_folder() / f"{self.name}-{self.key[:16]}"


@dataclass(frozen=True)
class Piece:
    """A finished piece: key and folder of its recipe, the recipe's facts, and whether it existed already (`cached`)."""

    key: str
    folder: Path
    facts: dict
    cached: bool


def get_cache_folder() -> Path:
    """Return the folder of this project in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "storage-benchmarks"


def find_piece(recipe: Recipe) -> Piece | None:
    """Return the piece of `recipe` if it is finished and complete, else None.

    Raises:
        Problem: the marker exists but cannot be read, which does not mean that a new build is needed.
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
    """Forbid builds in a `with` block: `provide_piece` raises Problem if a piece is missing."""
    token = _FINDING.set(True)
    try:
        yield
    finally:
        _FINDING.reset(token)


@contextmanager
def set_build_copy(name: str) -> Iterator[None]:
    """Use the pieces of a further build, in other folders, in a `with` block; "" for the usual build."""
    token = _COPY.set(name)
    try:
        yield
    finally:
        _COPY.reset(token)


def provide_piece(recipe: Recipe) -> Piece:
    """Return the piece of `recipe`, and build it if it is missing.

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
    # The marker must not reach the disk before the files that it vouches for.
    os.sync()
    write_json(folder / COMPLETE, {"key": key, "inputs": recipe.inputs, "facts": facts})
    return Piece(key, folder, facts, cached=False)


@contextmanager
def _hold_lock(folder: Path) -> Iterator[int]:
    """Hold the lock of `folder`, after waiting if needed; yield its descriptor, for children to inherit."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder.name}: another process is building it; waiting", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
