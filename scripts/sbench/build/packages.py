"""Provide user-supplied Python packages for a library under test: wheels, source trees, and git commits.

A source tree or commit is built into a wheel once, by its build backend. As with HDF5's sources, each package is
identified by its content: an edit causes a new build, the user's files are never modified, and no path is recorded.
"""

import configparser
import contextlib
import email
import os
import re
import sys
import tomllib
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename

from sbench.build import own, toolchain
from sbench.build.cache import Recipe, provide_piece
from sbench.build.shell import Workshop, find_uv, get_base_python
from sbench.probe.program import Problem, compute_file_digest, find_git

SUFFIX = ".whl"
# Top-level packages that many wheels and trees contain by mistake, and that nobody installs by that name.
STRAYS = ("benchmarks", "ci", "conftest", "doc", "docs", "examples", "scripts", "setup", "test", "tests", "tools")
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
# A top-level module or package in a wheel, or a package directory in a source tree.
_TOP = re.compile(r"(?:src/)?([A-Za-z_]\w*)(?:/.*|\.py|(?:\.[\w-]+)?\.so)")
_IN_TREE = re.compile(r"(?:src/)?([A-Za-z_]\w*)/__init__\.py")
# Build output in a source tree without git.
_BUILT = ("__pycache__", "build", "dist")


@dataclass(frozen=True)
class Package(ABC):
    """A user-supplied Python package.

    Attributes:
        name: normalized name of the distribution.
        path: wheel file, or directory of the source tree or clone.
        modules: top-level modules that it installs; a fork's distribution name may differ from them.
        key: SHA-256 of its content, or a commit id.
    """

    name: str
    path: Path
    modules: tuple[str, ...]
    key: str

    @property
    @abstractmethod
    def origin(self) -> str:
        """The package's kind and the first digits of its key, which identify it in records and on pages."""

    @abstractmethod
    def provide_wheel(self) -> "Wheel":
        """Return the package's wheel, building it if needed."""

    @property
    def brings(self) -> set[str]:
        """The distributions that the package replaces: its own name, and the names of its modules."""
        return {self.name, *map(canonicalize_name, self.modules)}


@dataclass(frozen=True)
class Wheel(Package):
    """A wheel; `requires` contains the requirements in its metadata."""

    version: str
    requires: tuple[str, ...]

    @property
    def origin(self) -> str:
        """The text `local wheel` and the beginning of the wheel's hash."""
        return own.format_origin("local wheel", self.key)

    def provide_wheel(self) -> "Wheel":
        """Return the wheel itself."""
        return self


@dataclass(frozen=True)
class Source(Package):
    """A source tree, identified by the hash of its content when it was read, or a commit in a clone.

    Attributes:
        repository: git directory, or None without git.
        commit: id of the commit, or of HEAD for a tree in a clone; empty without git.
        inner: path of the package's directory within the clone; empty for the top.
    """

    repository: Path | None
    commit: str
    inner: str

    @property
    def origin(self) -> str:
        """The text `local tree` or `git`, and the beginning of the content's hash or of the commit id."""
        return own.format_origin("git" if self.key == self.commit else "local tree", self.key)

    def provide_wheel(self) -> Wheel:
        """Return the package's wheel, building it if it is not in the cache.

        Raises:
            Problem: a build step failed, or the wheel has a different name than the package.
        """
        inputs = {"key": self.key, "inner": self.inner, "python": toolchain.get_python_abi()}
        piece = provide_piece(Recipe(f"python-{self.name}", inputs, self._build_wheel, ()))
        wheel = read_wheel(piece.folder / piece.facts["file"])
        if wheel.name != self.name:
            raise Problem(f"{self.path}: the wheel of package {self.name} is named {wheel.name}; correct the name")
        return wheel

    def _build_wheel(self, folder: Path, workshop: Workshop) -> dict:
        source = self._unpack_source(workshop) / self.inner
        command = (find_uv(), "build", "--wheel", "--python", get_base_python(), "--out-dir", folder, source)
        # Try offline first; this succeeds if uv's cache contains the build backend.
        if workshop.try_step("build the wheel", *command, "--offline"):
            workshop.run_step("build the wheel with a build backend from the registry", *command)
        return {"file": next(folder.glob(f"*{SUFFIX}")).name}

    def _unpack_source(self, workshop: Workshop) -> Path:
        """Copy the files of the tree or commit to a temporary directory, and return the directory.

        If the source is in a git repository, the directory is a clone of this repository.
        """
        folder = workshop.work / "source"
        folder.mkdir()
        if self.repository:
            # Clone the repository, because build backends derive versions from tags.
            quiet = ("--quiet", "--shared", "--no-checkout")
            workshop.run_step(f"clone {self.path}", find_git(), "clone", *quiet, self.repository, folder)
            at_commit = ("checkout", "--detach") if self.key == self.commit else ("reset",)
            workshop.run_step(f"check out {self.commit}", find_git(), "-C", folder, *at_commit, "--quiet", self.commit)
        if self.key != self.commit:
            own.copy_files(self.path, _list_files(self.path), folder / self.inner, self.key)
        return folder


def read_package(entry: str | Mapping) -> Package:
    """Return the package that a configuration entry describes.

    The entry is the path of a wheel or source tree, or a clone and a commit ({from, ref}).

    Raises:
        Problem: the package is missing, or is for another Python or platform.
    """
    if isinstance(entry, Mapping):
        return read_commit(own.resolve_path(entry["from"]), entry["ref"])
    path = own.resolve_path(entry)
    return read_tree(path) if path.is_dir() else read_wheel(path)


def read_wheel(path: Path, brings: str = "") -> Wheel:
    """Return the wheel in a file.

    Args:
        path: the file.
        brings: a package that the wheel must contain; any wheel is accepted if empty.

    Raises:
        Problem: the file is not a wheel, lacks the package, or is for another Python or platform.
    """
    try:
        file_name, version, _, tags = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            inner = next(filter(_METADATA.fullmatch, names), "")
            metadata = email.message_from_bytes(archive.read(inner) if inner else b"")
    except (InvalidWheelFilename, zipfile.BadZipFile, OSError) as error:
        raise Problem(f"{path} is not a wheel: {error}") from error
    modules = _list_modules(
        name for name in names if not name.partition("/")[0].endswith((".dist-info", ".data", ".libs"))
    )
    if brings and brings not in {file_name, *map(canonicalize_name, modules)}:
        raise Problem(f"{path} is a wheel without {brings}; name a wheel of {brings} ({brings}-….whl)")
    _expect_tags(path, tags)
    name, own_version = canonicalize_name(metadata.get("Name", "")), metadata.get("Version", "")
    if (name, canonicalize_version(own_version)) != (file_name, canonicalize_version(version)):
        raise Problem(f"{path}: the file name must match its metadata ({name or 'none'} {own_version}); rename it")
    return Wheel(
        name, path, modules, compute_file_digest(path), own_version, tuple(metadata.get_all("Requires-Dist", ()))
    )


def read_tree(path: Path) -> Source:
    """Return the package in a source tree; raise Problem if it is not a Python package."""

    def read_text(name: str) -> str:
        with contextlib.suppress(OSError):
            return (path / name).read_text(encoding="utf-8", errors="replace")
        return ""

    files, name = _list_files(path), _read_project_name(read_text, path)
    repository, commit, inner = _find_clone(path)
    key = own.hash_files(path, files)
    modules = _list_modules((str(file.relative_to(path)) for file in files), _IN_TREE)
    return Source(name, path, modules, key, repository, commit, inner)


def read_commit(path: Path, reference: str) -> Source:
    """Return the package at a commit in a clone; raise Problem if either is missing."""
    repository, _, inner = _find_clone(path)
    if not repository:
        raise Problem(f"{path} is not a git clone")
    commit = own.resolve_commit(repository, reference, path)
    listed = _try_git(repository, "ls-tree", "-r", "-z", "--name-only", f"{commit}:{inner}")
    where = f"{path} at {reference}"
    name = _read_project_name(lambda file: _try_git(repository, "show", f"{commit}:{inner}{file}"), where)
    return Source(name, path, _list_modules(listed.split("\0"), _IN_TREE), commit, repository, commit, inner)


def _list_files(path: Path) -> list[Path]:
    """List the files and symbolic links in a source tree.

    In a git clone, these are tracked files and untracked files that are not ignored; elsewhere, all except build
    output.
    """
    listed = _try_git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if names := listed.split("\0")[:-1]:
        return [file for name in names if (file := path / name).is_file() or file.is_symlink()]
    parts = {file: file.relative_to(path).parts for file in own.list_files(path)}
    return [one for one, of in parts.items() if not any(part in _BUILT or part.endswith(".egg-info") for part in of)]


def _find_clone(path: Path) -> tuple[Path | None, str, str]:
    """Return the git repository that contains a directory, the id of HEAD, and the directory's path in the repository.

    If the directory is not in a repository, return None and two empty strings.
    """
    with contextlib.suppress(Problem):
        where = own.run_git("-C", path, "rev-parse", "--absolute-git-dir", "HEAD", "--show-prefix", amiss="").decode()
        repository, commit, inner = f"{where}\n".split("\n")[:3]
        return Path(repository), commit, inner
    return None, "", ""


def _try_git(place: Path, *arguments: str) -> str:
    with contextlib.suppress(Problem):
        return os.fsdecode(own.run_git("-C", place, *arguments, amiss=""))
    return ""


def _read_project_name(read: Callable[[str], str], where: object) -> str:
    try:
        project = tomllib.loads(read("pyproject.toml"))
        settings = configparser.ConfigParser(interpolation=None)
        settings.read_string(read("setup.cfg"))
    except (tomllib.TOMLDecodeError, configparser.Error) as error:
        raise Problem(f"{where}: {' '.join(str(error).split())}; correct its pyproject.toml or setup.cfg") from error
    called = re.search(r"""\bname\s*=\s*["']([\w.-]+)["']""", read("setup.py"))
    names = (
        project.get("project", {}).get("name"),
        project.get("tool", {}).get("poetry", {}).get("name"),
        settings.get("metadata", "name", fallback=None),
        called and called[1],
    )
    if name := next(filter(None, names), None):
        return canonicalize_name(name)
    raise Problem(
        f"{where} is not a Python package: pyproject.toml, setup.cfg and setup.py do not name a distribution; name the"
        f" folder with its pyproject.toml, or its wheel (*{SUFFIX})"
    )


def _list_modules(names: Iterable[str], pattern: re.Pattern = _TOP) -> tuple[str, ...]:
    matches = filter(None, map(pattern.fullmatch, names))
    return tuple(dict.fromkeys(match[1] for match in matches if match[1] not in STRAYS))


def _expect_tags(path: Path, tags: frozenset[Tag]) -> None:
    if tags.isdisjoint(sys_tags()):
        here = f"Python {sys.version_info.major}.{sys.version_info.minor} on this machine"
        raise Problem(f"{path} is a wheel for {' or '.join(sorted(map(str, tags)))}, not for {here}; build it here")


def expect_distinct(packages: Iterable[Package]) -> Iterator[Package]:
    """Yield the packages; raise Problem if two of them replace the same distribution."""
    seen: dict[str, Path] = {}
    for package in packages:
        if twice := sorted(package.brings & seen.keys()):
            raise Problem(f"{seen[twice[0]]} and {package.path} both provide {twice[0]}; remove one of them")
        seen |= dict.fromkeys(package.brings, package.path)
        yield package
