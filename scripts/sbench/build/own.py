"""Provide a user-supplied HDF5 for a library under test: a source tree, tarball, git commit or installation.

Records and cache keys identify it by its content, not by its path, so that an edit causes a new build. The user's files
are never modified.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sbench.build.shell import Workshop, get_clean_environment
from sbench.build.sources import (
    OF_RELEASES,
    PLACES,
    PUBLIC,
    Archive,
    find_tree,
    list_archives,
    load_pinned_sources,
    unpack_archive,
)
from sbench.probe.program import Problem, compute_file_digest, find_git

# The origin of an installed HDF5, which is used in place.
INSTALLED = "local prefix"
_DIGITS = 12
_VERSION = re.compile(rb"^#define\s+H5_VERS_(?:MAJOR|MINOR|RELEASE)\s+(\d+)", re.MULTILINE)
# Files left by an in-source build, which our build would mistake for its own.
_BUILT_IN = ("CMakeCache.txt", "src/H5pubconf.h")


@dataclass(frozen=True)
class Tree(Archive):
    """An HDF5 source tree, identified by the hash of its content when it was read."""

    def unpack(self, workshop: Workshop) -> Path:
        """Copy the tree into the build's temporary directory and return the copy.

        Raises:
            Problem: the tree has changed since it was hashed.
        """
        copy = workshop.work / "hdf5"
        workshop.report_step(f"copy {self.path}")
        copy_files(self.path, list_files(self.path), copy, self.key)
        return copy


@dataclass(frozen=True)
class Commit(Archive):
    """A commit in a local git clone; `path` is its repository. The clone's working tree is ignored."""

    def unpack(self, workshop: Workshop) -> Path:
        """Extract the commit into the build's temporary directory and return the source tree."""
        file = workshop.work / f"{self.key}.tar"
        how = ("archive", "--format=tar", "--prefix=hdf5/", f"--output={file}", self.key)
        workshop.run_step(f"extract commit {self.key}", find_git(), f"--git-dir={self.path}", *how)
        return find_tree(unpack_archive(workshop, file))


@dataclass(frozen=True)
class Installed(Archive):
    """An HDF5 installation in `path`, which is used in place."""


def list_hdf5_sources(spec: dict) -> list[Archive]:
    """List the HDF5 sources for a library of kind source, in order of preference.

    These are the archives of a release, or a single user-supplied source or installation.

    Raises:
        Problem: a release is not pinned, or a path or commit is missing, does not contain HDF5, or has a different
            version than the library's label.
    """
    version, source, reference = spec["hdf5"], spec.get("from", "auto"), spec.get("ref")
    if source in OF_RELEASES:
        if reference:
            raise Problem(f"ref: {reference} requires a clone; name its folder (from: /path/to/hdf5)")
        return list_archives(version, source)
    path = resolve_path(source)
    if reference:
        return [_read_commit(path, reference, version)]
    if not path.is_dir():
        return [_read_tarball(path, version)]
    if (path / "CMakeLists.txt").is_file() and (path / PUBLIC).is_file():
        return [_read_tree(path, version)]
    if (path / "include/H5public.h").is_file() or list(path.glob("lib/libhdf5.*")):
        return [_read_installed(path, version)]
    raise Problem(
        f"{path} is neither an HDF5 source tree (CMakeLists.txt, {PUBLIC}) nor an HDF5 installation"
        " (include/H5public.h, lib/libhdf5.so); for a clone without a working tree, add a branch, tag or commit (ref:)"
    )


def format_origin(kind: str, key: str) -> str:
    """Return the origin of a user-supplied build: its kind and the first digits of its key."""
    return f"{kind} {key[:_DIGITS]}"


def has_feature(include: Path, feature: str) -> bool:
    """Return whether an installed HDF5 was configured with a feature such as ROS3_VFD, according to its headers."""
    text = (include / "H5pubconf.h").read_text(encoding="utf-8", errors="replace")
    return re.search(rf"^#define\s+H5_HAVE_{feature}\s+1", text, re.MULTILINE) is not None


def resolve_path(text: str) -> Path:
    """Return the absolute path of a local file or directory; raise Problem if it does not exist."""
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise Problem(f"{path} does not exist; correct the path")
    return path


def parse_version(header: bytes) -> str:
    """Return the HDF5 version in the text of H5public.h, or "none"."""
    return b".".join(_VERSION.findall(header)[:3]).decode() or "none"


def _expect_version(header: bytes, version: str, where: object) -> None:
    if (has_version := parse_version(header)) != version:
        raise Problem(f'hdf5 is {version}, but the version in {where} is {has_version}; write hdf5: "{has_version}"')


def _read_tree(path: Path, version: str) -> Tree:
    _expect_version((path / PUBLIC).read_bytes(), version, path / PUBLIC)
    if left := [built for built in _BUILT_IN if (path / built).exists()]:
        raise Problem(f"{path} contains an in-source build ({left[0]}); clean it, or name a commit (ref: HEAD)")
    key = hash_files(path, list_files(path))
    return Tree(format_origin("local tree", key), key, path)


def _read_commit(path: Path, reference: str, version: str) -> Commit:
    amiss = f"{path} is not a git clone"
    repository = Path(run_git("-C", path, "rev-parse", "--absolute-git-dir", amiss=amiss).decode())
    commit, of = resolve_commit(repository, reference, path), f"--git-dir={repository}"
    lacks = f"{path} at {reference} is not an HDF5 source tree"
    _expect_version(
        run_git(of, "show", f"{commit}:{PUBLIC}", amiss=lacks), version, f"{PUBLIC} of {path} at {reference}"
    )
    return Commit(format_origin("git", commit), commit, repository)


def resolve_commit(repository: Path, reference: str, path: Path) -> str:
    """Return the commit id of a branch, tag or commit; raise Problem if it is missing.

    Args:
        repository: path of the git directory.
        reference: branch, tag or commit.
        path: directory of the clone, for messages.
    """
    wanted, lacks = f"{reference}^{{commit}}", f"{reference} is not a branch, tag or commit of {path}"
    return run_git(f"--git-dir={repository}", "rev-parse", "--verify", "--end-of-options", wanted, amiss=lacks).decode()


def run_git(*arguments: object, amiss: str) -> bytes:
    """Run git and return its output; if it fails, raise Problem with `amiss` and git's error message."""
    command = [find_git(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=get_clean_environment(), check=False)
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip() or f"status {done.returncode}").splitlines()[-1]
        raise Problem(f"{amiss} ({reason})")
    return done.stdout.rstrip(b"\n")


def _read_tarball(path: Path, version: str) -> Archive:
    """Return the archive in a file. Its origin names a release if the file's hash is pinned."""
    key, release = compute_file_digest(path), load_pinned_sources()["hdf5"].get(version, {})
    if key in (release.get("tarball_sha256"), release.get("crate_sha256")):
        return Archive(f"file {path.name}", key, path)
    _expect_version(_find_header(path), version, f"{PUBLIC} in {path}")
    return Archive(format_origin("local tarball", key), key, path)


def _find_header(path: Path) -> bytes:
    patterns = [f"{top}{PUBLIC}" for top in PLACES]
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                inner = Path(member.name)
                if member.isfile() and any(_is_match(inner, pattern) for pattern in patterns):
                    return archive.extractfile(member).read()
    # The exception for a damaged archive depends on the compression format.
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise Problem(f"{path} is not a tar archive of HDF5's source: {reason}") from error
    raise Problem(f"{path} does not contain an HDF5 source tree ({PUBLIC} is missing)")


def _is_match(inner: Path, pattern: str) -> bool:
    return len(inner.parts) == pattern.count("/") + 1 and inner.match(pattern)


def _read_installed(path: Path, version: str) -> Installed:
    needs = ("include/H5public.h", "include/H5pubconf.h", "lib/libhdf5.so", "lib/libhdf5_hl.so")
    if absent := [each for each in needs if not (path / each).is_file()]:
        raise Problem(f"{path} lacks {', '.join(absent)}; an HDF5 installation needs its headers and shared libraries")
    header = path / needs[0]
    _expect_version(header.read_bytes(), version, header)
    if has_feature(path / "include", "PARALLEL"):
        raise Problem(
            f"{path} is a parallel HDF5 (H5_HAVE_PARALLEL), but h5py is built without MPI; name a serial HDF5"
        )
    headers = (file for pattern in ("H5*.h", "hdf5*.h") for file in path.glob(f"include/{pattern}"))
    key = hash_files(path, (*headers, *path.glob("lib/libhdf5*.so*")))
    return Installed(format_origin(INSTALLED, key), key, path)


def _list_left_out(folder: str, names: Iterable[str]) -> set[str]:
    """Return the names in a directory that are not source: hidden entries such as .git, and CMake build directories."""
    return {
        each for each in names if each.startswith(".") or os.path.exists(os.path.join(folder, each, "CMakeCache.txt"))
    }


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files and symbolic links in a source tree."""
    for parent, folders, files in os.walk(folder):
        out = _list_left_out(parent, (*folders, *files))
        yield from (Path(parent, each) for each in files if each not in out)
        yield from (link for each in folders if each not in out and (link := Path(parent, each)).is_symlink())
        folders[:] = [each for each in folders if each not in out]


def hash_files(folder: Path, files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names, contents and execute permissions of files in a directory."""
    hashed = hashlib.sha256()
    for file in sorted(files):
        linked = file.is_symlink()
        content = os.readlink(file) if linked else f"{compute_file_digest(file)} {bool(file.stat().st_mode & 0o100)}"
        hashed.update(f"{file.relative_to(folder)}\0{linked}\0{content}\n".encode(errors="surrogateescape"))
    return hashed.hexdigest()


def copy_files(folder: Path, files: Iterable[Path], to: Path, key: str) -> None:
    """Copy files to another directory; raise Problem if they cannot be read, or have changed.

    Args:
        folder: source directory.
        files: files in `folder`.
        to: destination directory.
        key: expected hash of the files, as computed by `hash_files`.
    """
    copies = []
    try:
        for file in files:
            copies.append(copy := to / file.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy, follow_symlinks=False)
    except OSError as error:
        raise Problem(f"{folder} cannot be copied, or changed during the copy: {error}") from error
    if hash_files(to, copies) != key:
        raise Problem(f"{folder} changed during the copy; run again when nothing writes to it")
