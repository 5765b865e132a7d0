"""What is between two releases of a library, or two commits of a clone, and a library under test that has one of them.

Wheels are listed and locked when they are needed, by ordinary clients of the configured registry. Everything else stays
as the locks in envs have it, as far as the requirements of a release allow.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from scripts.building.own import git, place_of, version_in
from scripts.building.shell import base_python, clean_environment, uv
from scripts.building.sources import ENVS, LOCK, PUBLIC, pinned
from scripts.lib.program import Problem, replacing

HDF5 = "hdf5"
# Of a library with a package from wheels: what else it has beside what all have, for the driver that reads with it.
BESIDE = {"s3fs": ("h5py-s3",), "h5py": ("s3fs",)}
_KEPT = (ENVS / "readers.lock", LOCK)
_PIN = re.compile(r"^([a-z][\w.-]*)==[^\\\n]*", re.MULTILINE)
_HDF5 = "import h5py, s3fs; print(h5py.version.hdf5_version)"
_DIGITS = 10


class Unusable(Problem):
    """A release that cannot be had, built or measured."""


class Releases(NamedTuple):
    """What may be measured between two releases or commits, both included, in their order.

    Attributes:
        package: whose they are: hdf5, or one of BESIDE.
        names: of releases, or the beginnings of the ids of commits.
        withdrawn: those that their authors have yanked, each with the reason.
        clone: the folder of the clone that commits are of.
    """

    package: str
    names: list[str]
    withdrawn: dict[str, str]
    clone: Path | None = None

    def library(self, name: str, lock: Path) -> dict:
        """Return the entry of a configuration for one of them; `lock` is where its lock is, or is to be written.

        Raises:
            Unusable: it cannot be had for this interpreter and machine, or does not import; or is not HDF5's source.
        """
        if name in self.withdrawn:
            raise Unusable(f"{self.package} {name} was yanked: {self.withdrawn[name]}")
        if self.clone:
            amiss = f"{name} of {self.clone} is not a source tree of HDF5"
            try:
                header = git("-C", self.clone, "show", f"{name}:{PUBLIC}", amiss=amiss)
            except Problem as problem:
                raise Unusable(str(problem)) from None
            return {"kind": "source", "hdf5": version_in(header), "from": str(self.clone), "ref": name}
        if self.package == HDF5:
            return {"kind": "source", "hdf5": name}
        if not lock.exists():
            _write_lock(self.package, name, lock)
        return {"kind": "wheel", "hdf5": _hdf5_of(lock), "lock": str(lock)}


def between(package: str, first: str, last: str, clone: str = "") -> Releases:
    """Return the releases of a package from `first` to `last`, or the commits of a clone of HDF5 on the way.

    Commits are those of the first parents of `last`, so that one that merged a branch is there for all of the branch.

    Raises:
        Problem: one of them is not there, was yanked or does not come before the other; or releases cannot be listed.
    """
    if clone:
        return _commits(place_of(clone), first, last)
    named, withdrawn = (list(pinned()[HDF5]), {}) if package == HDF5 else _listed(package)
    named = sorted({*named, *withdrawn}, key=Version)
    for key, name in (("FROM", first), ("TO", last)):
        if name not in named:
            where = "envs/sources.yaml has" if package == HDF5 else "the registry has"
            raise Problem(
                f"{key}={name}: there is no such release of {package}; {where} {', '.join(_near(name, named))}"
            )
        if name in withdrawn:
            raise Problem(f"{key}={name}: this release was yanked ({withdrawn[name]}); name another one")
    names = named[named.index(first) : named.index(last) + 1]
    if len(names) < 2:
        raise Problem(f"FROM={first} TO={last}: name two releases, the earlier one first")
    return Releases(package, names, {name: reason for name, reason in withdrawn.items() if name in names})


def _near(name: str, named: list[str]) -> list[str]:
    """Return some of the releases whose versions are next to one that is not there."""
    try:
        place = sum(Version(other) < Version(name) for other in named)
    except InvalidVersion:
        place = len(named)
    return named[max(0, min(place, len(named) - 3) - 3) : place + 3]


def _listed(package: str) -> tuple[list[str], dict[str, str]]:
    """Return the releases that pip lists for this interpreter, and those that were yanked, each with the reason."""
    command = [sys.executable, "-m", "pip", "index", "versions", "-vv", package]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    if not (line := re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)):
        reason = (done.stderr.strip() or "it listed nothing").splitlines()[-1]
        raise Problem(
            f"the releases of {package} cannot be listed ({reason}); reach the registry that pip is configured for"
        )
    # Only where it tells of links does pip name those.
    yanked = rf"yanked for reason: (.*?): \S*/{package}-(\d[\w.]*?)(?:-|\.tar|\.zip)"
    return line[1].split(", "), {name: reason for reason, name in re.findall(yanked, done.stdout + done.stderr)}


def _commits(clone: Path, first: str, last: str) -> Releases:
    def of(*arguments: str, amiss: str) -> str:
        return git("-C", clone, *arguments, amiss=amiss).decode()

    of("rev-parse", "--absolute-git-dir", amiss=f"{clone} is not a clone")
    ids = {}
    for key, name in (("FROM", first), ("TO", last)):
        amiss = f"{key}={name}: {clone} has no such branch, tag or commit"
        ids[key] = of("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}", amiss=amiss)
    if ids["FROM"] == ids["TO"]:
        raise Problem(f"FROM={first} TO={last}: this is one commit; name two, the earlier one first")
    amiss = f"FROM={first} TO={last}: the first is no ancestor of the second in {clone}; name the earlier one first"
    of("merge-base", "--is-ancestor", *ids.values(), amiss=amiss)
    way = of("rev-list", "--first-parent", "--reverse", f"{ids['FROM']}..{ids['TO']}", amiss=f"{clone} has no history")
    return Releases(HDF5, [commit[:_DIGITS] for commit in (ids["FROM"], *way.split())], {}, clone)


def _write_lock(package: str, version: str, lock: Path) -> None:
    """Lock a release with what it needs, and what a library has that reads with it; what is locked in envs is kept."""
    wanted = [f"{package}=={version}", *BESIDE[package], *_requirements(ENVS / "measure.in")]
    pins = {pin[0] for kept in _KEPT for pin in _PIN.finditer(kept.read_text(encoding="utf-8")) if pin[1] != package}
    exact = ("--no-build", "--generate-hashes", "--no-annotate", "--no-header", "--python", base_python())
    with replacing(lock) as part:
        # uv keeps what the file has that it writes to.
        part.write_text("\n".join(sorted(pins)), encoding="utf-8")
        _uv(f"{package} {version}", "pip", "compile", "--quiet", *exact, "--output-file", part, "-", text=wanted)


def _requirements(path: Path) -> list[str]:
    return re.findall(r"^[a-z].*$", path.read_text(encoding="utf-8"), re.MULTILINE)


def _hdf5_of(lock: Path) -> str:
    """Return the version of HDF5 that the h5py of a lock has."""
    alone = ("--isolated", "--no-project", "--no-build", "--python", base_python(), "--with-requirements", lock)
    what = f"{lock.stem} does not import beside the versions that are kept"
    said = _uv(what, "run", "--quiet", *alone, "--", "python", "-sE", "-c", _HDF5)
    return said.strip().rpartition("\n")[2]


def _uv(what: str, *arguments: object, text: list[str] | None = None) -> str:
    """Return what uv prints, given some lines; that it fails is Unusable."""
    command = [str(uv()), *map(str, arguments)]
    lines = "\n".join(text or ())
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, env=clean_environment(), check=False, cwd=ENVS.parent
    )
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"uv ended with status {done.returncode}"
        # The last line of a traceback is its reason.
        last = (done.stderr.strip().splitlines() or [words])[-1].strip()
        raise Unusable(f"{what}: {last if 'Traceback' in done.stderr else words.removeprefix('error: ')}")
    return done.stdout
