"""List the distributions of a library under test, from its lock files and its user-supplied packages."""

import contextlib
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from sbench.build import own, packages
from sbench.build.packages import Package, Wheel
from sbench.build.shell import PIN
from sbench.build.sources import LOCK, OWN, ROOT, load_pinned_sources
from sbench.probe.program import Problem

H5PY = "h5py"
# Redistributions, mapped to the distribution whose import name they use.
_SAME = {"h5py-s3": H5PY}
_SHA256 = re.compile(r"(?:--hash=sha256:|#sha256=)([0-9a-f]{64})")
_FILE = "file://"


def find_library_lock(spec: Mapping) -> Path | None:
    """Return the lock file that a library uses in addition to LOCK, or None if it uses none.

    The lock file is named in the library's entry, or belongs to its pinned h5py wheel.
    """
    wheels = load_pinned_sources()["wheels"] if spec["kind"] == "wheel" and "wheel" not in spec else {}
    lock = spec.get("lock") or wheels.get(spec["hdf5"], {}).get("lock")
    return ROOT / lock if lock else None


def list_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions of a library's distributions, based on its lock files and user-supplied packages.

    If a lock file pins several versions, for different releases of Python, they are joined by " or ". The version of a
    source tree is an empty string, because determining it would require a build. The result is empty for a
    user-supplied interpreter.
    """
    versions = read_locked_versions(spec)
    brought = _list_user_versions(spec)
    return {name: version for name, version in versions.items() if not is_replaced(name, brought)} | brought


def read_locked_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions pinned by a library's lock files, by distribution, ignoring user-supplied packages."""
    locks = () if spec["kind"] == "python" else filter(None, (LOCK, find_library_lock(spec)))
    return {name: version for lock in locks for name, version in _read_lock(lock).items()}


def is_replaced(name: str, names: Collection[str]) -> bool:
    """Return whether a locked distribution is replaced by one of the distributions in `names`."""
    return name in names or _SAME.get(name) in names


def has_user_h5py(spec: Mapping) -> bool:
    """Return whether a library of kind wheel uses a user-supplied h5py, named in its entry or pinned as a local wheel.

    A lock file without h5py counts, because it pins a redistribution of h5py instead.
    """
    return H5PY in _list_user_versions(spec) or ("lock" in spec and H5PY not in read_locked_versions(spec))


def load_packages(spec: Mapping) -> list[Package]:
    """Return a library's user-supplied packages: packages in its entry, and local wheels that its lock file pins.

    Raises:
        Problem: a package is missing, is not usable on this machine or differs from the lock file, or two packages
            provide the same distribution.
    """
    named = [packages.read_package(entry) for entry in spec.get("with", ())]
    if "wheel" in spec:
        named.append(packages.read_wheel(own.resolve_path(spec["wheel"]), brings=H5PY))
    given = {name for package in named for name in package.brings}
    locked = [wheel for wheel in _read_locked_wheels(find_library_lock(spec)) if not is_replaced(wheel.name, given)]
    return list(packages.expect_distinct([*named, *locked]))


def list_unmet_requirements(wheels: Sequence[Wheel], there: Mapping[str, str]) -> list[str]:
    """Describe the wheels' requirements that the installed versions do not satisfy.

    Args:
        wheels: wheels to check.
        there: versions of all the library's distributions, by name.

    Raises:
        Problem: the library lacks a required distribution.
    """
    lines, versions = [], {_SAME.get(name, name): version for name, version in there.items()}
    for wheel in wheels:
        for requirement in _parse_requirements(wheel):
            version = versions.get(canonicalize_name(requirement.name))
            if version is None:
                requirement.marker = None
                raise Problem(
                    f"{wheel.path} requires {requirement}, which the library lacks; name a lock that pins it (lock:),"
                    " or add its wheel (with:)"
                )
            lines += _describe_mismatch(f"{wheel.name} {wheel.version}", requirement, version)
    return lines


def list_conflicts(required: Sequence[tuple[str, str]], wheel: Wheel) -> list[str]:
    """Describe which requirements of other distributions a wheel's version does not satisfy.

    Args:
        required: (distribution, requirement) pairs.
        wheel: the wheel.
    """
    lines = []
    for whose, text in required:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == wheel.name and _is_applicable(requirement):
                lines += _describe_mismatch(whose, requirement, wheel.version)
    return lines


def _describe_mismatch(whose: str, requirement: Requirement, version: str) -> list[str]:
    if any(requirement.specifier.contains(one, prereleases=True) for one in version.split(" or ")):
        return []
    requirement.marker = None
    return [f"{whose} requires {requirement}, but {version} is installed"]


def _is_applicable(requirement: Requirement) -> bool:
    return not requirement.marker or requirement.marker.evaluate({"extra": ""})


def list_promises(spec: Mapping, facts: dict, build: dict) -> dict[str, str]:
    """Return the versions that a library is declared to contain, for each distribution and for libhdf5.

    Two libraries may differ on purpose only in these versions. h5py and HDF5 are under test, so their versions come
    from the environment's artefact (`facts` and `build`), regardless of the lock files' pins.
    """
    # The first word of a release's origin is its kind; the rest is its URL or name.
    source = build["hdf5_source"] if _is_of_user(build) else build["hdf5_source"].partition(" ")[0]
    origin = ", ".join(filter(None, (source, build["s3_stack"])))
    # A user-supplied h5py is part of the software under test.
    h5py = (
        f"{facts['h5py']} ({origin})" if _is_of_user(build) and spec["kind"] in ("wheel", "python") else facts["h5py"]
    )
    versions = dict(package.split(" ", 1) for package in build.get("packages", ())) if spec["kind"] == "python" else {}
    of_user = {name: f"{one['version']} ({one['origin']})" for one in build.get("added", ()) for name in one["brings"]}
    again = {key: spec[key] for key in ("copy",) if key in spec}
    return list_versions(spec) | versions | of_user | {H5PY: h5py, "libhdf5": f"{facts['hdf5']} ({origin})"} | again


def has_user_parts(build: Mapping) -> bool:
    """Return whether a library contains anything user-supplied besides releases and this project's lock files."""
    return _is_of_user(build) or bool(build.get("added"))


def describe_origin(hdf5_source: str, added: Sequence[Mapping]) -> str:
    """Return the origin of a library's HDF5, followed by the origins of its user-supplied packages."""
    origins = [f"{one['name']} {one['origin']}" for one in added if one["origin"] != hdf5_source]
    return ", ".join([hdf5_source, *origins])


def _is_of_user(build: Mapping) -> bool:
    return build["hdf5_source"].startswith(OWN)


def _list_user_versions(spec: Mapping) -> dict[str, str]:
    return {name: version for entry in _list_entries(spec) for name, version in _read_entry(json.dumps(entry)).items()}


def _list_entries(spec: Mapping) -> Iterator[str | Mapping]:
    if lock := find_library_lock(spec):
        yield from (str(_parse_path(pin["url"])) for pin in _list_file_pins(lock))
    yield from filter(None, [spec.get("wheel"), *spec.get("with", ())])


@functools.cache
def _read_entry(entry: str) -> dict[str, str]:
    """Return the version of a user-supplied package (JSON entry) for each distribution that it replaces.

    If the package cannot be read, derive its name and version from the file name.
    """
    named = json.loads(entry)
    with contextlib.suppress(Problem):
        package = packages.read_package(named)
        return dict.fromkeys(package.brings, getattr(package, "version", ""))
    path = Path(named if isinstance(named, str) else named["from"])
    name, _, rest = path.name.partition("-")
    return {canonicalize_name(name): rest.partition("-")[0]}


@functools.cache
def _read_lock(lock: Path) -> dict[str, str]:
    versions: dict[str, list[str]] = {}
    for pin in PIN.finditer(lock.read_text(encoding="utf-8")):
        versions.setdefault(canonicalize_name(pin["name"]), []).append(pin["version"] or _parse_version(pin["url"]))
    return {name: " or ".join(of_python) for name, of_python in versions.items()}


def _parse_version(url: str) -> str:
    """Return the version in the URL of a wheel; return other URLs unchanged."""
    with contextlib.suppress(InvalidWheelFilename):
        return str(parse_wheel_filename(_parse_path(url).name)[1])
    return url


def _parse_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _read_locked_wheels(lock: Path | None) -> Iterator[Wheel]:
    """Yield the local wheels that a lock file pins; raise Problem if a wheel's hash differs from its pin."""
    for pin in _list_file_pins(lock) if lock else ():
        wheel, hashes = packages.read_wheel(own.resolve_path(str(_parse_path(pin["url"])))), _SHA256.findall(pin[0])
        if wheel.key not in hashes:
            if not hashes:
                raise Problem(f"{lock} pins {wheel.path} without a hash; append --hash=sha256:{wheel.key} to the pin")
            pinned = " or ".join(hashes)
            raise Problem(
                f"{wheel.path}: sha256 must be {pinned}, as in {lock} (got {wheel.key}); correct the file or the lock"
            )
        yield wheel


def _list_file_pins(lock: Path) -> list[re.Match]:
    pins_of_lock = PIN.finditer(lock.read_text(encoding="utf-8"))
    return [pin for pin in pins_of_lock if (pin["url"] or "").startswith(_FILE)]


def _parse_requirements(wheel: Wheel) -> Iterator[Requirement]:
    """Yield the requirements of a wheel that apply to this interpreter, excluding requirements of extras."""
    try:
        parsed = list(map(Requirement, wheel.requires))
    except InvalidRequirement as error:
        raise Problem(f"{wheel.path}: invalid requirement in its metadata: {' '.join(str(error).split())}") from error
    yield from filter(_is_applicable, parsed)
