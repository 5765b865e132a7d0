"""Which distributions a library under test has: its locks pin them, or wheels and trees of the user's bring them."""

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
# A redistribution of another name that is imported by the same.
_SAME = {"h5py-s3": H5PY}
_SHA256 = re.compile(r"(?:--hash=sha256:|#sha256=)([0-9a-f]{64})")
_FILE = "file://"


def find_library_lock(spec: Mapping) -> Path | None:
    """Return the lock of what a library of kind wheel has beside LOCK: the one it names, or that of h5py's wheel.

    None where no wheel of h5py with its HDF5 is pinned, and for libraries of other kinds.
    """
    wheels = load_pinned_sources()["wheels"] if spec["kind"] == "wheel" and "wheel" not in spec else {}
    lock = spec.get("lock") or wheels.get(spec["hdf5"], {}).get("lock")
    return ROOT / lock if lock else None


def list_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions of a library's distributions by name: those that its locks pin, and those of the user's.

    Several where they depend on Python's; "" of a tree, which is not built for that; none of an interpreter of the
    user's own.
    """
    versions = read_locked_versions(spec)
    brought = _list_user_versions(spec)
    return {name: version for name, version in versions.items() if not is_replaced(name, brought)} | brought


def read_locked_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions that a library's locks pin by distribution, whatever it has of the user's."""
    locks = () if spec["kind"] == "python" else filter(None, (LOCK, find_library_lock(spec)))
    return {name: version for lock in locks for name, version in _read_lock(lock).items()}


def is_replaced(name: str, names: Collection[str]) -> bool:
    """Return whether a locked distribution gives way to those of some names."""
    return name in names or _SAME.get(name) in names


def has_user_h5py(spec: Mapping) -> bool:
    """Return whether a library of kind wheel has an h5py of the user's, in a wheel or in a lock that names another."""
    return H5PY in _list_user_versions(spec) or ("lock" in spec and H5PY not in read_locked_versions(spec))


def load_packages(spec: Mapping) -> list[Package]:
    """Return the packages of the user's in a library: those that it names, and wheels that its lock names by a file.

    Raises:
        Problem: one is not there, cannot be used here, or is not the one that a lock says; or two are of one name.
    """
    named = [packages.read_package(entry) for entry in spec.get("with", ())]
    if "wheel" in spec:
        named.append(packages.read_wheel(own.resolve_path(spec["wheel"]), brings=H5PY))
    given = {name for package in named for name in package.brings}
    locked = [wheel for wheel in _read_locked_wheels(find_library_lock(spec)) if not is_replaced(wheel.name, given)]
    return list(packages.expect_distinct([*named, *locked]))


def list_unmet_requirements(wheels: Sequence[Wheel], there: Mapping[str, str]) -> list[str]:
    """Return in words which requirements of wheels are met by other versions, given all that a library has.

    Raises:
        Problem: one is not met at all.
    """
    lines, versions = [], {_SAME.get(name, name): version for name, version in there.items()}
    for wheel in wheels:
        for requirement in _parse_requirements(wheel):
            version = versions.get(canonicalize_name(requirement.name))
            if version is None:
                requirement.marker = None
                raise Problem(
                    f"{wheel.path} needs {requirement}, which the library has not: name a lock that has it (lock:), or"
                    " a wheel of it beside this one (with:)"
                )
            lines += _describe_mismatch(f"{wheel.name} {wheel.version}", requirement, version)
    return lines


def list_conflicts(required: Sequence[tuple[str, str]], wheel: Wheel) -> list[str]:
    """Return in words which distributions require another version of a wheel, of (distribution, requirement)."""
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
    return [f"{whose} requires {requirement}, and {version} is installed"]


def _is_applicable(requirement: Requirement) -> bool:
    """Return whether a requirement is one of this interpreter, without extras."""
    return not requirement.marker or requirement.marker.evaluate({"extra": ""})


def list_promises(spec: Mapping, facts: dict, build: dict) -> dict[str, str]:
    """Return what a library's spec and locks promise, by distribution and for libhdf5: two differ in it on purpose.

    `facts` and `build` are those of its artefact: h5py and HDF5 are under test whatever locks say of them.
    """
    # The first word of a release's origin is its kind; the rest says where it is.
    source = build["hdf5_source"] if _is_of_user(build) else build["hdf5_source"].partition(" ")[0]
    origin = ", ".join(filter(None, (source, build["s3_stack"])))
    # A library whose h5py was not built or pinned here has one that is under test, too.
    h5py = (
        f"{facts['h5py']} ({origin})" if _is_of_user(build) and spec["kind"] in ("wheel", "python") else facts["h5py"]
    )
    versions = dict(package.split(" ", 1) for package in build.get("packages", ())) if spec["kind"] == "python" else {}
    of_user = {name: f"{one['version']} ({one['origin']})" for one in build.get("added", ()) for name in one["brings"]}
    again = {key: spec[key] for key in ("copy",) if key in spec}
    return list_versions(spec) | versions | of_user | {H5PY: h5py, "libhdf5": f"{facts['hdf5']} ({origin})"} | again


def has_user_parts(build: Mapping) -> bool:
    """Return whether a library has anything of the user's own, beside releases and locks of this project."""
    return _is_of_user(build) or bool(build.get("added"))


def describe_origin(hdf5_source: str, added: Sequence[Mapping]) -> str:
    """Return the origin of a library's HDF5, and those of the packages of the user's that it has."""
    origins = [f"{one['name']} {one['origin']}" for one in added if one["origin"] != hdf5_source]
    return ", ".join([hdf5_source, *origins])


def _is_of_user(build: Mapping) -> bool:
    return build["hdf5_source"].startswith(OWN)


def _list_user_versions(spec: Mapping) -> dict[str, str]:
    """Return the distributions that the packages of the user's bring, with their versions."""
    return {name: version for entry in _list_entries(spec) for name, version in _read_entry(json.dumps(entry)).items()}


def _list_entries(spec: Mapping) -> Iterator[str | Mapping]:
    """Yield the packages of the user's that a library names, itself and by its lock."""
    if lock := find_library_lock(spec):
        yield from (str(_parse_path(pin["url"])) for pin in _list_file_pins(lock))
    yield from filter(None, [spec.get("wheel"), *spec.get("with", ())])


@functools.cache
def _read_entry(entry: str) -> dict[str, str]:
    """Return the distributions that an entry (JSON) brings, with its version; its file's name if it is unreadable."""
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
    """Return the version in the address of a wheel, or the address of anything else."""
    with contextlib.suppress(InvalidWheelFilename):
        return str(parse_wheel_filename(_parse_path(url).name)[1])
    return url


def _parse_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _read_locked_wheels(lock: Path | None) -> Iterator[Wheel]:
    """Yield the wheels that a lock names by a file of this machine, each of which has the hash that the lock says."""
    for pin in _list_file_pins(lock) if lock else ():
        wheel, hashes = packages.read_wheel(own.resolve_path(str(_parse_path(pin["url"])))), _SHA256.findall(pin[0])
        if wheel.key not in hashes:
            said = " or ".join(hashes) or "nothing; write --hash=sha256:… behind it"
            raise Problem(f"{wheel.path}: its sha256 is {wheel.key}, {lock} says {said}")
        yield wheel


def _list_file_pins(lock: Path) -> list[re.Match]:
    pins_of_lock = PIN.finditer(lock.read_text(encoding="utf-8"))
    return [pin for pin in pins_of_lock if (pin["url"] or "").startswith(_FILE)]


def _parse_requirements(wheel: Wheel) -> Iterator[Requirement]:
    """Yield the requirements of a wheel that hold for this interpreter, without extras."""
    try:
        parsed = list(map(Requirement, wheel.requires))
    except InvalidRequirement as error:
        raise Problem(f"{wheel.path}: its metadata cannot be read: {' '.join(str(error).split())}") from error
    yield from filter(_is_applicable, parsed)
