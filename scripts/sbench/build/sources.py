"""Fetch pinned sources and verify their hashes (envs/sources.yaml); own.py provides user-supplied sources."""

import http.client
import os
import shutil
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sbench.build.shell import Workshop
from sbench.probe.program import Problem, compute_file_digest, find_tool, read_yaml

_CLONE, _INSTALLED = Path(__file__).absolute().parents[3], Path(__file__).absolute().parents[1] / "clone"
# An installed package carries the files of a clone (setup.py).
ROOT = _CLONE if (_CLONE / "envs").is_dir() else _INSTALLED
ENVS = ROOT / "envs"
# The lock file that all libraries under test share.
LOCK = ENVS / "measure.lock"
REACH_SECONDS = 10
# The header that defines a source tree's version, and the directories of an archive that may contain a source tree.
PUBLIC = "src/H5public.h"
PLACES = ("", "*/", "*/ext/hdf5/")
# Values of `from` that select a release; any other value is a path.
OF_RELEASES = ("auto", "tarball", "crate")
# Prefixes of the origins of user-supplied builds. Pages show these origins in full, because they identify the build.
OWN = ("local ", "git ")

_FETCHING_PACKAGE = '[package]\nname = "fetch"\nversion = "0.0.0"\n[lib]\npath = "lib.rs"\n[dependencies]\n'


class Unreachable(Exception):
    """Raised for a source that cannot be fetched from this machine; another source may be available."""


@dataclass(frozen=True)
class Archive:
    """An archive of HDF5's source.

    Attributes:
        origin: its kind and name. For a release, this is `tarball <url>`, `crate <name> <version>` or `file <name>`;
            otherwise the kind begins with `local` or `git`.
        key: identifier of its content: a SHA-256, or a commit id.
        path: its path on this machine; None if it must be fetched.
    """

    origin: str
    key: str
    path: Path | None = None

    def unpack(self, workshop: Workshop) -> Path:
        """Unpack the archive into the build's temporary directory, and return the HDF5 source tree.

        Raises:
            Unreachable: the archive cannot be fetched from this machine.
            Problem: the archive's hash differs from its pin, or the archive does not contain an HDF5 source tree.
        """
        kind, _, where = self.origin.partition(" ")
        file = self.path or {"tarball": _download_tarball, "crate": _fetch_crate}[kind](workshop, where)
        if (digest := compute_file_digest(file)) != self.key:
            raise Problem(
                f"{self.path or self.origin}: sha256 must be {self.key}, as in envs/sources.yaml or at the first read"
                f" (got {digest}); nothing was built from it; name another source (from: tarball, crate or a path)"
            )
        return find_tree(unpack_archive(workshop, file))


@cache
def load_pinned_sources() -> dict:
    """Return the content of envs/sources.yaml, which is read once."""
    return read_yaml(ENVS / "sources.yaml")


def list_archives(version: str, source: str) -> list[Archive]:
    """List the archives of an HDF5 release that a value of `from` allows, in order of preference.

    Args:
        version: release of HDF5.
        source: value of `from`, one of OF_RELEASES.

    Raises:
        Problem: the version is not pinned.
    """
    entries = load_pinned_sources()["hdf5"]
    if version not in entries:
        raise Problem(
            f"HDF5 {version} is not in envs/sources.yaml (available: {', '.join(entries)}); add it there, or name its"
            " source (from: the path of a tree, a clone or a tarball)"
        )
    entry = entries[version]
    tarball = Archive(f"tarball {entry['tarball']}", entry["tarball_sha256"])
    crate = Archive(f"crate {entry['crate']}", entry["crate_sha256"])
    return {"auto": [tarball, crate], "tarball": [tarball], "crate": [crate]}[source]


def fetch_sdist(workshop: Workshop, python: Path, name: str) -> Path:
    """Fetch a source distribution with pip, unpack it, and return its top directory.

    Args:
        workshop: temporary directory and log of the build.
        python: interpreter of the build tools, with pip.
        name: name of the pinned source distribution.

    Raises:
        Problem: it cannot be fetched, or its hash differs from its pin.
    """
    version, sha256 = load_pinned_sources()["sdists"][name].values()
    wanted = workshop.work / f"{name}.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{sha256}\n", encoding="utf-8")
    folder = workshop.work / "sdists"
    exact = ("--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    workshop.run_step(
        f"fetch {name} {version}", python, "-m", "pip", "download", *exact, "--dest", folder, "-r", wanted
    )
    (file,) = folder.iterdir()
    (top,) = unpack_archive(workshop, file).iterdir()
    return top


def unpack_archive(workshop: Workshop, file: Path) -> Path:
    """Unpack a tar archive to a new directory in the build's temporary directory, and return this directory."""
    folder = workshop.work / "unpacked" / file.name
    folder.mkdir(parents=True)
    tar = find_tool("tar", remedy="apt install tar, or dnf install tar")
    workshop.run_step(f"unpack {file.name}", tar, "--extract", "--file", file, "--directory", folder)
    return folder


def find_tree(folder: Path) -> Path:
    """Find the HDF5 source tree in an unpacked archive; in a crate, it is a subdirectory."""
    headers = (header for top in PLACES for header in folder.glob(f"{top}{PUBLIC}"))
    if header := next(headers, None):
        return header.parents[1]
    raise Problem(f"{folder.name} does not contain an HDF5 source tree ({PUBLIC} is missing)")


def _download_tarball(workshop: Workshop, url: str) -> Path:
    file = workshop.work / url.rpartition("/")[2]
    workshop.report_step(f"fetch {url}")
    try:
        with urllib.request.urlopen(url, timeout=REACH_SECONDS) as answer, open(file, "wb") as out:
            shutil.copyfileobj(answer, out)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url} cannot be fetched ({getattr(error, 'reason', error)})") from error
    return file


def _fetch_crate(workshop: Workshop, crate: str) -> Path:
    remedy = (
        "apt install cargo-web on Debian 12, apt install cargo on Ubuntu, dnf install cargo on RHEL, rustup default"
        " stable with rustup"
    )
    try:
        # Without RUSTC, Cargo uses the first rustc on PATH, even if it does not work.
        programs = [find_tool(os.environ.get(name.upper()) or name, name, remedy=remedy) for name in ("cargo", "rustc")]
    except Problem as problem:
        raise Unreachable(f"the crate {crate} needs cargo and rustc, but {problem}") from problem
    name, version = crate.split()
    package = workshop.work / "fetch"
    package.mkdir()
    (package / "Cargo.toml").write_text(f'{_FETCHING_PACKAGE}{name} = "={version}"\n', encoding="utf-8")
    (package / "lib.rs").touch()
    try:
        workshop.run_step(f"fetch the crate {crate}", programs[0], "fetch", cwd=package, RUSTC=programs[1])
    except Problem as problem:
        raise Unreachable(str(problem)) from problem
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    crates = sorted(home.glob(f"registry/cache/*/{name}-{version}.crate"), key=lambda path: path.stat().st_mtime)
    if not crates:
        raise Unreachable(f"the crate {crate} is not in {home} after cargo fetch; set CARGO_HOME to cargo's folder")
    return crates[-1]
