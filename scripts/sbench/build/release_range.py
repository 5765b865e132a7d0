"""List the releases or commits in a range, and describe a library under test for each of them.

pip lists the releases in the configured registry, and uv writes a lock file for a release when it is needed. All other
packages remain at the versions in the lock files in envs/, as far as a release's requirements allow. Either end of a
range may be a user-supplied wheel.
"""

import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from sbench.build import packages
from sbench.build.own import parse_version, resolve_path, run_git
from sbench.build.packages import Wheel
from sbench.build.shell import PIN, find_uv, get_base_python, get_clean_environment
from sbench.build.sources import ENVS, LOCK, PUBLIC, load_pinned_sources
from sbench.probe.program import Problem, replace_file

HDF5 = "hdf5"
# A build of h5py with ROS3 and the same import name. Where it is used, requirements on h5py are excluded.
_H5PY_S3 = "h5py-s3"
_KEPT = (ENVS / "readers.lock", LOCK)
_HDF5 = "import {modules}; print(h5py.version.hdf5_version)"
_DIGITS = 10


class Reader(NamedTuple):
    """The distributions and modules needed to read files by means of a package.

    Attributes:
        needs: distributions that a library needs in addition to the package.
        modules: modules to import.
    """

    needs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


class Unusable(Problem):
    """Raised for a release that cannot be fetched, built or measured."""


class Releases(NamedTuple):
    """The releases or commits in a range, in order, including both ends.

    Attributes:
        package: hdf5, or the name of a Python package.
        names: names of releases or wheels, or abbreviated commit ids.
        withdrawn: yanked releases, each with the reason.
        reader: distributions and modules that read with the package; empty for hdf5.
        clone: directory of the clone that contains the commits.
        wheels: user-supplied wheels in the range, by name.
    """

    package: str
    names: list[str]
    withdrawn: dict[str, str]
    reader: Reader = Reader()
    clone: Path | None = None
    wheels: Mapping[str, Wheel] = {}

    def build_library_entry(self, name: str, lock: Path) -> dict:
        """Return the configuration entry of a library that contains the release `name`.

        The release's lock file is written to `lock` if it is missing.

        Raises:
            Unusable: the release is not available for this interpreter and platform, cannot be imported, or does not
                contain HDF5's source.
        """
        if name in self.withdrawn:
            raise Unusable(f"{self.package} {name} was yanked: {self.withdrawn[name]}")
        if self.package == HDF5:
            return self._build_hdf5_entry(name) if self.clone else {"kind": "source", "hdf5": name}
        try:
            entry, wheel = self._resolve_wheel(name)
        except Problem as problem:
            raise Unusable(str(problem)) from None
        if not lock.exists():
            _write_lock(self.package, wheel or name, self.reader, lock)
        library = {"kind": "wheel", "hdf5": _find_hdf5_version(lock, self.reader, wheel), "lock": str(lock)}
        return library | ({"with": [entry]} if entry else {})

    def _build_hdf5_entry(self, name: str) -> dict:
        amiss = f"{self.clone} at {name} is not an HDF5 source tree"
        try:
            header = run_git("-C", self.clone, "show", f"{name}:{PUBLIC}", amiss=amiss)
        except Problem as problem:
            raise Unusable(str(problem)) from None
        return {"kind": "source", "hdf5": parse_version(header), "from": str(self.clone), "ref": name}

    def _resolve_wheel(self, name: str) -> tuple[str | dict | None, Wheel | None]:
        """Return the package entry and the wheel of a commit or of a user-supplied wheel.

        The wheel of a commit is built if needed. For releases in the registry, return (None, None).
        """
        if self.clone:
            entry = {"from": str(self.clone), "ref": name}
            return entry, packages.read_package(entry).provide_wheel()
        wheel = self.wheels.get(name)
        return (str(wheel.path), wheel) if wheel else (None, None)


def list_releases(
    package: str,
    first: str,
    last: str,
    clone: str = "",
    reader: Reader | None = None,
    with_yanked: bool = False,
    python: str = "",
) -> Releases:
    """Return a package's releases from `first` to `last`, or the commits of a clone in that range.

    Either end may be the path of a wheel. A wheel as `first` is followed by all releases with later versions; a wheel
    as `last` comes after the newest release. Commits are listed along the first parents of `last`, so that a merge
    commit represents its entire branch. An end may be a yanked release if `with_yanked` is set. Releases are listed for
    the Python `python`, such as "3.13", by default this one.

    Raises:
        Problem: an end is missing, was yanked or does not precede the other, or the releases cannot be listed.
    """
    reader = reader or Reader()
    if clone:
        return _list_commits(package, resolve_path(clone), first, last)._replace(reader=reader)
    ends = (("first", first), ("last", last))
    wheels = {
        key: packages.read_wheel(resolve_path(text), package) for key, text in ends if text.endswith(packages.SUFFIX)
    }
    named = {key: _format_wheel_name(wheels[key]) if key in wheels else text for key, text in ends}
    names, withdrawn = list(named.values()), {}
    if len(wheels) < 2:
        names, withdrawn = _list_names_between(package, named, wheels, with_yanked, python)
    if len(dict.fromkeys(names)) < 2:
        raise Problem(f"{last} is not a later release than {first}; name two releases, the older first")
    of_user = {named[key]: wheel for key, wheel in wheels.items()}
    return Releases(package, names, withdrawn, reader, None, of_user)


def read_package_name(clone: str, reference: str) -> str:
    """Return the name of the Python package at a commit in a clone, or hdf5 if the commit is not a Python package.

    Raises:
        Problem: the clone is missing.
    """
    path = resolve_path(clone)
    run_git("-C", path, "rev-parse", "--absolute-git-dir", amiss=f"{path} is not a git clone")
    try:
        return packages.read_commit(path, reference).name
    except Problem:
        return HDF5


def _list_names_between(
    package: str, named: Mapping[str, str], wheels: Mapping[str, Wheel], with_yanked: bool, python: str
) -> tuple[list[str], dict]:
    """Return the names of all releases in a range, and the reasons why some of them were yanked.

    Args:
        package: hdf5, or the name of a Python package.
        named: names of the range's ends, by "first" and "last".
        wheels: user-supplied wheels, by the same keys; at most one.
        with_yanked: whether an end may be a yanked release.
        python: release of Python for which releases are listed; an empty string for this one.
    """
    if package == HDF5:
        listed, withdrawn = list(load_pinned_sources()[HDF5]), {}
    else:
        early = any(_is_early(name) for key, name in named.items() if key not in wheels)
        listed, withdrawn = _list_registry_releases(package, early, python)
    listed = sorted({*listed, *withdrawn}, key=Version)
    for key, name in named.items():
        if key not in wheels:
            _expect_release(package, name, listed, {} if with_yanked else withdrawn)
    if "last" in wheels:
        names = [*listed[listed.index(named["first"]) :], named["last"]]
    elif "first" in wheels:
        names = [name for name in listed if Version(wheels["first"].version) < Version(name) < Version(named["last"])]
        names = [named["first"], *names, named["last"]]
    else:
        names = listed[listed.index(named["first"]) : listed.index(named["last"]) + 1]
    return names, {name: reason for name, reason in withdrawn.items() if name in names}


def _expect_release(package: str, name: str, listed: list[str], withdrawn: Mapping[str, str]) -> None:
    if name not in listed:
        place = "envs/sources.yaml" if package == HDF5 else "the registry"
        near = difflib.get_close_matches(name, listed, 6, 0)
        raise Problem(f"{name} is not a release of {package}; name a release in {place}, such as {', '.join(near)}")
    if name in withdrawn:
        raise Problem(f"{package} {name} was yanked ({withdrawn[name]}); name another release")


def _format_wheel_name(wheel: Wheel) -> str:
    """Format a wheel's name for use in the names of libraries and files: its version and part of its hash."""
    return f"{re.sub(r'[^A-Za-z0-9.]', '-', wheel.version)}-local-{wheel.key[:8]}"


def _list_registry_releases(package: str, early: bool, python: str) -> tuple[list[str], dict[str, str]]:
    """Return the releases that pip lists for an interpreter, and the yanked releases with their reasons.

    Pre-releases are left out, unless `early` is set. So are names that are not versions, such as 0.7.6.linux-x86_64.
    """
    # For another interpreter, pip lists only releases with wheels.
    options = ["--pre"] * early + (["--python-version", python, "--only-binary=:all:"] if python else [])
    command = [sys.executable, "-m", "pip", "index", "versions", "-vv", *options, package]
    done = subprocess.run(command, capture_output=True, text=True, env=get_clean_environment(), check=False)
    if not (line := re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)):
        reason = (done.stderr.strip() or "empty list").splitlines()[-1]
        raise Problem(
            f"pip cannot list the releases of {package} ({reason}); check the network and the registry that pip uses"
        )
    # pip mentions yanked releases only in its debug messages about links.
    file = re.sub(r"[-_.]+", "[-_.]+", package)
    yanked = rf"(?i)yanked for reason: (.*?): \S*/{file}-(\d[\w.]*?)(?:-|\.tar|\.zip)"
    withdrawn = {name: reason for reason, name in re.findall(yanked, done.stdout + done.stderr)}
    listed = [name for name in line[1].split(", ") if _is_version(name)]
    return listed, {
        name: reason for name, reason in withdrawn.items() if _is_version(name) and early >= _is_early(name)
    }


def _is_version(name: str) -> bool:
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True


def _is_early(name: str) -> bool:
    """Return whether a name is the version of a pre-release."""
    return _is_version(name) and Version(name).is_prerelease


def _list_commits(package: str, clone: Path, first: str, last: str) -> Releases:
    def read_git_text(*arguments: str, amiss: str) -> str:
        return run_git("-C", clone, *arguments, amiss=amiss).decode()

    read_git_text("rev-parse", "--absolute-git-dir", amiss=f"{clone} is not a git clone")
    ids = {}
    for key, name in (("first", first), ("last", last)):
        amiss = f"{name} is not a branch, tag or commit of {clone}"
        ids[key] = read_git_text("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}", amiss=amiss)
    if ids["first"] == ids["last"]:
        raise Problem(f"{first} and {last} are the same commit; name two commits, the older first")
    amiss = f"{first} is not an ancestor of {last} in {clone}; name the older commit first"
    read_git_text("merge-base", "--is-ancestor", *ids.values(), amiss=amiss)
    amiss = f"git cannot list the commits of {clone}"
    way = read_git_text("rev-list", "--first-parent", "--reverse", f"{ids['first']}..{ids['last']}", amiss=amiss)
    return Releases(package, [commit[:_DIGITS] for commit in (ids["first"], *way.split())], {}, clone=clone)


def _write_lock(package: str, release: str | Wheel, reader: Reader, lock: Path) -> None:
    """Write the lock file of a library that contains a release or a user-supplied wheel.

    It pins the release (but not the wheel), its requirements and the distributions that its reader needs. Versions
    pinned in envs/ are preferred.
    """
    own = isinstance(release, Wheel)
    what = f"{package} {release.version if own else release}"
    first = f"{release.name} @ {release.path.as_uri()}" if own else f"{package}=={release}"
    wanted = [first, *[_H5PY_S3] * (package != "h5py"), *(name for name in reader.needs if name != package)]
    wanted += re.findall(r"^[a-z].*$", (ENVS / "measure.in").read_text(encoding="utf-8"), re.MULTILINE)
    pins = {pin["what"] for kept in _KEPT for pin in PIN.finditer(kept.read_text(encoding="utf-8"))}
    pins = sorted(pin for pin in pins if pin.partition("==")[0] != package)
    exact = ("--no-build", "--generate-hashes", "--no-annotate", "--no-header", "--python", get_base_python())
    with replace_file(lock) as part, tempfile.NamedTemporaryFile("w", suffix=".txt") as excluded:
        excluded.write("h5py\n" * (_H5PY_S3 in wanted))
        excluded.flush()
        # uv prefers the pins that the output file already contains.
        part.write_text("\n".join(pins), encoding="utf-8")
        output = ("--excludes", excluded.name, "--output-file", part, "-")
        run_uv(what, "pip", "compile", "--quiet", *exact, *output, text=wanted)
        if own:
            text = part.read_text(encoding="utf-8")
            part.write_text(PIN.sub(lambda pin: "" if pin["url"] else pin[0], text), encoding="utf-8")


def _find_hdf5_version(lock: Path, reader: Reader, wheel: Wheel | None) -> str:
    what = f"{lock.stem} cannot be imported with the pinned versions of the other packages"
    with tempfile.TemporaryDirectory(prefix="lock.") as folder:
        python = Path(folder, "bin/python")
        run_uv(what, "venv", "--quiet", "--no-project", "--python", get_base_python(), folder)
        # Install without dependencies, because h5py-s3 replaces the h5py that packages require.
        exact = ("--quiet", "--no-build", "--no-deps", "--python", python)
        run_uv(what, "pip", "install", *exact, "--requirement", lock, *([wheel.path] if wheel else []))
        code = _HDF5.format(modules=", ".join(("h5py", *reader.modules)))
        return _run_command(what, [str(python), "-sE", "-c", code]).strip().rpartition("\n")[2]


def run_uv(what: str, *arguments: object, text: Sequence[str] = ()) -> str:
    """Run uv with lines of text as standard input, and return its output.

    Raises:
        Unusable: uv failed; the message consists of `what` and the reason that uv states.
    """
    return _run_command(what, [str(find_uv()), *map(str, arguments)], "\n".join(text))


def _run_command(what: str, command: Sequence[str], lines: str = "") -> str:
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, env=get_clean_environment(), check=False, cwd=ENVS.parent
    )
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"{command[0]} exited with status {done.returncode}"
        # The last line of a traceback, or of a failed build, is the reason. Hints of uv may follow.
        last = (done.stderr.partition("\nhint: ")[0].strip().splitlines() or [words])[-1].strip()
        is_long = any(mark in done.stderr for mark in ("Traceback", "[stderr]"))
        raise Unusable(f"{what}: {last if is_long else words.removeprefix('error: ')}")
    return done.stdout
