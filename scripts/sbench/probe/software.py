"""Which software a process runs: the distributions of its interpreter and the libraries that it has loaded (METHOD 14).

A process only says which; the step hashes the files (`sbench.design.fingerprint`). Versions are those in the names of
folders, where installers have to write them: to import importlib.metadata and to parse the metadata of all
distributions takes longer than to read a small object.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from sbench.probe.program import Problem, compute_file_digest, find_tool

# HDF5, and what bytes come through: of other libraries a distribution's version speaks, or the machine.
_LIBRARY = re.compile(r"(lib(?:hdf5|curl|aws|s2n|mpi|fabric|ucp)[\w-]*?)(?:-[0-9a-f]{8})?\.so\b")
# The folder of the libraries that a wheel brings is named after its distribution.
_OF_WHEEL = re.compile(r"/site-packages/([^/]+)\.libs/")
_INFO = re.compile(r"([^-]+)-?([^-]*).*\.(?:dist|egg)-info")


def list_distributions() -> dict[str, str]:
    """Return the version of each distribution that this interpreter finds, by its normalised name, and its own."""
    folders = [os.listdir(folder) for folder in reversed(sys.path) if os.path.isdir(folder)]
    infos = (_INFO.fullmatch(name) for names in folders for name in sorted(names))
    named = {re.sub(r"[-_.]+", "-", info[1]).lower(): info[2] for info in infos if info}
    return named | {"python": sys.version.split()[0]}


def list_loaded_libraries() -> dict[str, str]:
    """Return the `get_identity` of each library that this process has loaded and that matters, by its name.

    The name has no version; what a wheel brings has its distribution behind it: "libhdf5", "libhdf5 (h5py)".
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
    """Return the sha256 of each library that this process has loaded and that matters, by its name."""
    return {
        name: compute_file_digest(Path(identity.split(" ", 3)[3])) for name, identity in list_loaded_libraries().items()
    }


def find_program(name: str) -> dict[str, str]:
    """Return the `get_identity` of a program on this process's path, by its name; nothing where none works."""
    with contextlib.suppress(Problem):
        return {name: get_identity(find_tool(name, remedy=""))}
    return {}


def get_identity(path: Path | str) -> str:
    """Return what tells a file from others of its name without reading it: "size mtime_ns inode path"; 0 if it is gone.

    A file that has the same was hashed before, or is the same on another machine.
    """
    try:
        file = os.stat(path)
        return f"{file.st_size} {file.st_mtime_ns} {file.st_ino} {os.path.realpath(path)}"
    except OSError:
        return f"0 0 0 {path}"
