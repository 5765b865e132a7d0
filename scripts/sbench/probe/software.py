"""List the software of a process: its Python distributions and its loaded shared libraries (METHOD 14).

The measuring process only lists the files; the step that started it hashes them (`sbench.design.fingerprint`). Versions
are taken from the names of .dist-info directories, which installers must name in a standard way, because importing
importlib.metadata and parsing all metadata would take longer than reading a small object.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from sbench.probe.program import Problem, compute_file_digest, find_tool

# HDF5 and the libraries that transfer its data. Other libraries are identified by the version of their distribution or
# by the machine.
_LIBRARY = re.compile(r"(lib(?:hdf5|curl|aws|s2n|mpi|fabric|ucp)[\w-]*?)(?:-[0-9a-f]{8})?\.so\b")
# The directory of a wheel's bundled libraries is named after its distribution.
_OF_WHEEL = re.compile(r"/site-packages/([^/]+)\.libs/")
_INFO = re.compile(r"([^-]+)-?([^-]*).*\.(?:dist|egg)-info")


def list_distributions() -> dict[str, str]:
    """Return the versions of Python and of all distributions on `sys.path`, by normalised name."""
    folders = [os.listdir(folder) for folder in reversed(sys.path) if os.path.isdir(folder)]
    infos = (_INFO.fullmatch(name) for names in folders for name in sorted(names))
    named = {re.sub(r"[-_.]+", "-", info[1]).lower(): info[2] for info in infos if info}
    return named | {"python": sys.version.split()[0]}


def list_loaded_libraries() -> dict[str, str]:
    """Map the name of each relevant shared library that this process has loaded to its identity (`get_identity`).

    Names do not include a version. If a library is bundled in a wheel, the distribution's name is appended, such as
    "libhdf5 (h5py)" instead of "libhdf5".
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.rstrip("\n").split(maxsplit=5)[5] for line in maps if "/lib" in line}
    files = {}
    for path in sorted(paths):
        if library := _LIBRARY.match(os.path.basename(path)):
            wheel = _OF_WHEEL.search(path)
            owner = f" ({wheel[1].replace('_', '-').lower()})" if wheel else ""
            files[library[1] + owner] = get_identity(path)
    return files


def compute_library_hashes() -> dict[str, str]:
    """Map the name of each relevant shared library that this process has loaded to its SHA-256."""
    return {
        name: compute_file_digest(Path(identity.split(" ", 3)[3])) for name, identity in list_loaded_libraries().items()
    }


def find_program(name: str) -> dict[str, str]:
    """Return {name: file identity} for a program on PATH (see `get_identity`), or an empty dict if none works."""
    with contextlib.suppress(Problem):
        return {name: get_identity(find_tool(name, remedy=""))}
    return {}


def get_identity(path: Path | str) -> str:
    """Return a string that identifies a file's content without reading it: "size mtime_ns inode path".

    A file whose identity is already known, even from another machine, need not be hashed again. The numbers are 0 if
    the file no longer exists.
    """
    try:
        file = os.stat(path)
        return f"{file.st_size} {file.st_mtime_ns} {file.st_ino} {os.path.realpath(path)}"
    except OSError:
        return f"0 0 0 {path}"
