"""List the distributions of a library under test, from its locks and from user-supplied packages."""

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
# Redistributions, and the distribution whose import name they have.
_SAME = {"h5py-s3": H5PY}
_SHA256 = re.compile(r"(?:--hash=sha256:|#sha256=)([0-9a-f]{64})")
_FILE = "file://"


def find_library_lock(spec: Mapping) -> Path | None:
    """Return the lock of a library in addition to LOCK: the lock that it names, or the lock of a pinned h5py wheel.

    Return None without either.
    """
    wheels = load_pinned_sources()["wheels"] if spec["kind"] == "wheel" and "wheel" not in spec else {}
    lock = spec.get("lock") or wheels.get(spec["hdf5"], {}).get("lock")
    return ROOT / lock if lock else None


def list_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions of a library's distributions by name, from its locks and its user-supplied packages.

    Versions that depend on Python's are joined by " or "; a tree has "", because it is not built for this. The result
    is empty for a user-supplied interpreter.
    """
    versions = read_locked_versions(spec)
    brought = _list_user_versions(spec)
    return {name: version for name, version in versions.items() if not is_replaced(name, brought)} | brought


def read_locked_versions(spec: Mapping) -> dict[str, str]:
    """Return the versions that a library's locks pin, by distribution, regardless of user-supplied packages."""
    locks = () if spec["kind"] == "python" else filter(None, (LOCK, find_library_lock(spec)))
    return {name: version for lock in locks for name, version in _read_lock(lock).items()}


def is_replaced(name: str, names: Collection[str]) -> bool:
    """Return whether distributions with some names replace a locked distribution."""
    return name in names or _SAME.get(name) in names


def has_user_h5py(spec: Mapping) -> bool:
    """Return whether a library of kind wheel has a user-supplied h5py, in a wheel or a lock with a redistribution."""
    return H5PY in _list_user_versions(spec) or ("lock" in spec and H5PY not in read_locked_versions(spec))


def load_packages(spec: Mapping) -> list[Package]:
    """Return the user-supplied packages of a library: packages that it names, and wheels that its lock names by a file.

    Raises:
        Problem: a package is missing, cannot be used here or is not the package in the lock; or two have the same name.
    """
    named = [packages.read_package(entry) for entry in spec.get("with", ())]
    if "wheel" in spec:
        named.append(packages.read_wheel(own.resolve_path(spec["wheel"]), brings=H5PY))
    given = {name for package in named for name in package.brings}
    locked = [wheel for wheel in _read_locked_wheels(find_library_lock(spec)) if not is_replaced(wheel.name, given)]
    return list(packages.expect_distinct([*named, *locked]))


def list_unmet_requirements(wheels: Sequence[Wheel], there: Mapping[str, str]) -> list[str]:
    """Describe the requirements of wheels that the library has in another version, given all its distributions.

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
    """Describe the distributions that require another version of a wheel, given (distribution, requirement) pairs."""
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
    """Return a library's promised versions, by distribution and for libhdf5: two libraries differ in them on purpose.

    `facts` and `build` come from its artefact: h5py and HDF5 are under test, whatever the locks pin.
    """
    # The first word of a release's origin is its kind; the rest is its place.
    source = build["hdf5_source"] if _is_of_user(build) else build["hdf5_source"].partition(" ")[0]
    origin = ", ".join(filter(None, (source, build["s3_stack"])))
    # An h5py that was not built or pinned here is under test, too.
    h5py = (
        f"{facts['h5py']} ({origin})" if _is_of_user(build) and spec["kind"] in ("wheel", "python") else facts["h5py"]
    )
    versions = dict(package.split(" ", 1) for package in build.get("packages", ())) if spec["kind"] == "python" else {}
    of_user = {name: f"{one['version']} ({one['origin']})" for one in build.get("added", ()) for name in one["brings"]}
    again = {key: spec[key] for key in ("copy",) if key in spec}
    return list_versions(spec) | versions | of_user | {H5PY: h5py, "libhdf5": f"{facts['hdf5']} ({origin})"} | again


def has_user_parts(build: Mapping) -> bool:
    """Return whether a library has user-supplied parts, in addition to releases and locks of this project."""
    return _is_of_user(build) or bool(build.get("added"))


def describe_origin(hdf5_source: str, added: Sequence[Mapping]) -> str:
    """Return the origin of a library's HDF5, and the origins of its user-supplied packages."""
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
    """Return the distributions that an entry (JSON) brings, with its version; use its file's name if unreadable."""
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
    """Return the version in the address of a wheel; return any other address unchanged."""
    with contextlib.suppress(InvalidWheelFilename):
        return str(parse_wheel_filename(_parse_path(url).name)[1])
    return url


def _parse_path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _read_locked_wheels(lock: Path | None) -> Iterator[Wheel]:
    """Yield the wheels that a lock names by a file of this machine; raise Problem if a hash differs from the lock's."""
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
    """Yield the requirements of a wheel that apply to this interpreter, without extras."""
    try:
        parsed = list(map(Requirement, wheel.requires))
    except InvalidRequirement as error:
        raise Problem(f"{wheel.path}: invalid requirement in its metadata: {' '.join(str(error).split())}") from error
    yield from filter(_is_applicable, parsed)
