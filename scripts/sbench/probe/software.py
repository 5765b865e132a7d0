"""List the software of a process: its interpreter's distributions and its loaded libraries (METHOD 14).

A process only lists files; the step hashes them (`sbench.design.fingerprint`). Versions come from the names of folders,
as installers must write them: importing importlib.metadata and parsing the metadata of all distributions takes longer
than reading a small object.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from sbench.probe.program import Problem, compute_file_digest, find_tool

# HDF5 and the libraries that carry its bytes; a distribution's version, or the machine, covers other libraries.
_LIBRARY = re.compile(r"(lib(?:hdf5|curl|aws|s2n|mpi|fabric|ucp)[\w-]*?)(?:-[0-9a-f]{8})?\.so\b")
# A wheel's folder of libraries has the name of its distribution.
_OF_WHEEL = re.compile(r"/site-packages/([^/]+)\.libs/")
_INFO = re.compile(r"([^-]+)-?([^-]*).*\.(?:dist|egg)-info")


def list_distributions() -> dict[str, str]:
    """Return the version of each distribution that this interpreter finds, by normalised name, and of Python."""
    folders = [os.listdir(folder) for folder in reversed(sys.path) if os.path.isdir(folder)]
    infos = (_INFO.fullmatch(name) for names in folders for name in sorted(names))
    named = {re.sub(r"[-_.]+", "-", info[1]).lower(): info[2] for info in infos if info}
    return named | {"python": sys.version.split()[0]}


def list_loaded_libraries() -> dict[str, str]:
    """Return the `get_identity` of each relevant library that this process has loaded, by name.

    The name lacks the version; libraries of a wheel have its distribution appended: "libhdf5", "libhdf5 (h5py)".
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
    """Return the sha256 of each relevant library that this process has loaded, by name."""
    return {
        name: compute_file_digest(Path(identity.split(" ", 3)[3])) for name, identity in list_loaded_libraries().items()
    }


def find_program(name: str) -> dict[str, str]:
    """Return the `get_identity` of a program on this process's path, by its name; {} if none works."""
    with contextlib.suppress(Problem):
        return {name: get_identity(find_tool(name, remedy=""))}
    return {}


def get_identity(path: Path | str) -> str:
    """Return an identity of a file's content without reading it: "size mtime_ns inode path"; zeros if the file is gone.

    A file with a known identity was hashed before, or is the same on another machine.
    """
    try:
        file = os.stat(path)
        return f"{file.st_size} {file.st_mtime_ns} {file.st_ino} {os.path.realpath(path)}"
    except OSError:
        return f"0 0 0 {path}"
