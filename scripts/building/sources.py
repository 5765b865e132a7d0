"""Fetches pinned sources, and refuses what is not what was pinned (envs/sources.yaml)."""

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.building.cache import file_digest
from scripts.building.shell import Workshop
from scripts.lib.program import Problem, read_yaml

ROOT = Path(__file__).resolve().parents[2]
ENVS = ROOT / "envs"
# What all libraries under test have beside their own.
LOCK = ENVS / "measure.lock"
REACH_SECONDS = 10

_FETCHING_PACKAGE = '[package]\nname = "fetch"\nversion = "0.0.0"\n[lib]\npath = "lib.rs"\n[dependencies]\n'


class Unreachable(Exception):
    """A source that cannot be had from here; another may be."""


@dataclass(frozen=True)
class Archive:
    """HDF5's source: where it comes from (`tarball <url>`, `crate <name> <version>`, `file <path>`) and its sha256."""

    origin: str
    sha256: str


@cache
def pinned() -> dict:
    """Return envs/sources.yaml, read once."""
    return read_yaml(ENVS / "sources.yaml")


def own_lock(spec: dict) -> Path | None:
    """Return the lock of what a library of kind wheel has beside LOCK: the one it names, or that of h5py's wheel.

    None where no wheel of h5py with its HDF5 is pinned, and for libraries of other kinds.
    """
    wheels = pinned()["wheels"] if spec["kind"] == "wheel" else {}
    lock = spec.get("lock") or wheels.get(spec["hdf5"], {}).get("lock")
    return ROOT / lock if lock else None


def pins(spec: dict) -> dict[str, str]:
    """Return the versions that a library's locks pin, by distribution; several where they depend on Python's."""
    return {name: version for lock in filter(None, (LOCK, own_lock(spec))) for name, version in _pins(lock).items()}


@cache
def _pins(lock: Path) -> dict[str, str]:
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        versions.setdefault(name, []).append(version)
    return {name: " or ".join(of_python) for name, of_python in versions.items()}


def promised(spec: dict, facts: dict, build: dict) -> dict[str, str]:
    """Return what a library's spec and locks promise, by distribution and for libhdf5: two differ in it on purpose.

    `facts` and `build` are those of its artefact: h5py and HDF5 are under test whatever locks say of them.
    """
    # The first word of a source is its kind; the rest says where it lies.
    origin = ", ".join(filter(None, (build["hdf5_source"].partition(" ")[0], build["s3_stack"])))
    return pins(spec) | {"h5py": facts["h5py"], "libhdf5": f"{facts['hdf5']} ({origin})"}


def hdf5_archives(version: str, source: str) -> list[Archive]:
    """Return the archives that `source` (auto, tarball, crate or a path) allows for an HDF5 version, best first.

    Raises:
        Problem: the version is not pinned; the file is missing or is none of the pinned archives.
    """
    releases = pinned()["hdf5"]
    if version not in releases:
        raise Problem(f"HDF5 {version} is not in envs/sources.yaml (which has {', '.join(releases)}); add it there")
    entry = releases[version]
    tarball = Archive(f"tarball {entry['tarball']}", entry["tarball_sha256"])
    crate = Archive(f"crate {entry['crate']}", entry["crate_sha256"])
    named = {"auto": [tarball, crate], "tarball": [tarball], "crate": [crate]}
    if source in named:
        return named[source]
    path = Path(source).expanduser().absolute()
    digest = file_digest(path)
    if digest not in (tarball.sha256, crate.sha256):
        raise Problem(
            f"{path} is not the release of HDF5 {version}: its sha256 is {digest},"
            f" envs/sources.yaml has {tarball.sha256}; download it again"
        )
    return [Archive(f"file {path}", digest)]


def fetch_hdf5(workshop: Workshop, archive: Archive) -> Path:
    """Return the unpacked source tree of HDF5 in the workshop.

    Raises:
        Unreachable: the archive cannot be had from here.
        Problem: it was had and is not the pinned one.
    """
    kind, _, where = archive.origin.partition(" ")
    fetch = {"tarball": _download, "crate": _fetch_crate, "file": lambda _, path: Path(path)}[kind]
    file = fetch(workshop, where)
    if (digest := file_digest(file)) != archive.sha256:
        raise Problem(
            f"{archive.origin}: its sha256 is {digest}, not {archive.sha256} as in envs/sources.yaml;"
            " nothing was built from it; name another source (from: tarball, crate or a path)"
        )
    top = _unpack(workshop, file)
    in_crate = top / "ext" / "hdf5"
    return in_crate if in_crate.is_dir() else top


def fetch_sdist(workshop: Workshop, python: Path, name: str) -> Path:
    """Return the unpacked source distribution `name`, fetched by the pip of the build tools' interpreter `python`.

    Raises:
        Problem: it cannot be had or is not the pinned one.
    """
    version, sha256 = pinned()["sdists"][name].values()
    wanted = workshop.work / f"{name}.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{sha256}\n", encoding="utf-8")
    folder = workshop.work / "sdists"
    exact = ("--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    workshop.run(f"fetch {name} {version}", python, "-m", "pip", "download", *exact, "--dest", folder, "-r", wanted)
    (file,) = folder.iterdir()
    return _unpack(workshop, file)


def _unpack(workshop: Workshop, file: Path) -> Path:
    """Unpack a gzipped tar archive into the workshop and return its one folder."""
    folder = workshop.work / "unpacked" / file.name
    folder.mkdir(parents=True)
    workshop.run(f"unpack {file.name}", "tar", "--extract", "--gzip", "--file", file, "--directory", folder)
    (top,) = folder.iterdir()
    return top


def _download(workshop: Workshop, url: str) -> Path:
    file = workshop.work / url.rpartition("/")[2]
    workshop.say(f"fetch {url}")
    try:
        with urllib.request.urlopen(url, timeout=REACH_SECONDS) as answer, open(file, "wb") as out:
            shutil.copyfileobj(answer, out)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url} cannot be fetched ({getattr(error, 'reason', error)})") from error
    return file


def _fetch_crate(workshop: Workshop, crate: str) -> Path:
    if not (cargo := _cargo()):
        raise Unreachable(
            f"the crate {crate} needs cargo, and none that works is on PATH or named by $CARGO (apt install cargo-web"
            " on Debian 12, apt install cargo on Ubuntu, dnf install cargo on RHEL, rustup default stable for rustup's)"
        )
    name, version = crate.split()
    package = workshop.work / "fetch"
    package.mkdir()
    (package / "Cargo.toml").write_text(f'{_FETCHING_PACKAGE}{name} = "={version}"\n', encoding="utf-8")
    (package / "lib.rs").touch()
    try:
        workshop.run(f"fetch the crate {crate}", cargo, "fetch", cwd=package)
    except Problem as problem:
        raise Unreachable(str(problem)) from problem
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    crates = sorted(home.glob(f"registry/cache/*/{name}-{version}.crate"), key=lambda path: path.stat().st_mtime)
    if not crates:
        raise Unreachable(f"cargo fetched the crate {crate}, but not into {home}; set CARGO_HOME to where it puts them")
    return crates[-1]


def _cargo() -> str | None:
    """Return the first cargo that works: rustup's is on PATH without a toolchain, too."""
    for cargo in (os.environ.get("CARGO"), *(shutil.which("cargo", path=folder) for folder in os.get_exec_path())):
        with contextlib.suppress(OSError):
            if cargo and not subprocess.run([cargo, "--version"], capture_output=True, check=False).returncode:
                return cargo
    return None
