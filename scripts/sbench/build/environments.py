"""Create the Python environment of a library under test.

Its HDF5 and h5py are specific to the library; all libraries install the other packages from the same lock file.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from sbench.build import distributions, own, toolchain
from sbench.build.cache import Recipe, forbid_builds, provide_piece
from sbench.build.distributions import H5PY
from sbench.build.hdf5 import CFLAGS, provide_hdf5
from sbench.build.interpreters import ask_python, find_python
from sbench.build.packages import Package, Wheel
from sbench.build.shell import Workshop, count_cores, find_uv, make_environment
from sbench.build.sources import ENVS, LOCK, OF_RELEASES, ROOT, fetch_sdist, load_pinned_sources
from sbench.probe.program import Problem, compute_file_digest
from sbench.probe.software import get_identity

_INSPECT = """
import json, h5py, numpy, dask, distributed
versions = {module.__name__: module.__version__ for module in (h5py, numpy, dask)}
print(json.dumps({"hdf5": h5py.version.hdf5_version} | versions | {"ros3": bool(h5py.get_config().ros3)}))
"""
_INSTALLED = """
import importlib, importlib.metadata, json
for module in {modules}:
    importlib.import_module(module)
there = importlib.metadata.distributions()
required = [[f"{{one.name}} {{one.version}}", text] for one in there for text in one.requires or ()]
print(json.dumps(dict(version=importlib.metadata.version({name!r}), required=required)))
"""
# Run in a user-supplied interpreter: print its distributions, and the files that it imports and loads.
_IMPORTED = """
import json, sys
if sys.version_info < (3, 11):
    raise SystemExit("Python must be 3.11 or newer (got %d.%d)" % sys.version_info[:2])
import h5py, numpy, dask, distributed
from sbench.probe import software
of = {name: set() for name in ("h5py", "numpy", "dask", "distributed")}
for name, module in list(sys.modules.items()):
    if (file := getattr(module, "__file__", None)) and (package := name.partition(".")[0]) in of:
        of[package].add(file)
of |= {name: [identity.split(" ", 3)[3]] for name, identity in software.list_loaded_libraries().items()}
print(json.dumps({"distributions": software.list_distributions(), "files": {name: sorted(of[name]) for name in of}}))
"""
# Build facts of an environment that was not built here.
_NOT_BUILT = {"inputs_sha256": None, "cached": True, "compiler": None, "s3_stack": None, "headers": {}}


def provide_library(name: str, spec: dict) -> dict:
    """Build the environment of a library under test, or find it in the cache, and return its JSON description.

    Args:
        name: the library's name, for messages and the artefact.
        spec: the library's entry in the configuration: `kind`, `hdf5` (version), and the keys specific to its kind.

    Raises:
        Problem: the version is not pinned, something is missing, a build failed, or the result contradicts the label.
    """
    start = time.monotonic()
    python, facts, build = _KINDS[spec["kind"]](name, spec)
    validate_library(name, spec, facts)
    packages = build.get("packages")
    return {
        **{"environment": 1, "status": "done", "library": name, "kind": spec["kind"]},
        "own": distributions.has_user_parts(build),
        "python": str(python),
        **facts,
        "build": build | {"seconds": round(time.monotonic() - start, 1)},
        "promised": distributions.list_promises(spec, facts, build),
        "lock_sha256": hashlib.sha256("\n".join(packages).encode()).hexdigest()
        if packages
        else compute_file_digest(LOCK),
    }


def is_built(name: str, spec: dict) -> bool:
    """Return whether the cache already contains everything that a library needs."""
    with contextlib.suppress(Problem), forbid_builds():
        _KINDS[spec["kind"]](name, spec)
        return True
    return False


def list_missing_packages() -> list[str]:
    """List the packages that the workflow's programs need but that are not installed for this interpreter."""
    texts = ((ENVS / f"{name}.in").read_text(encoding="utf-8") for name in ("package", "report", "workflow"))
    wanted = re.findall(r"^[a-z][\w-]*", "".join(texts), re.MULTILINE)
    return [name for name in wanted if not any(importlib.metadata.distributions(name=name))]


def inspect_python(python: Path) -> dict:
    """Return the versions of HDF5, h5py, numpy and dask that an interpreter imports, and whether its HDF5 has ROS3.

    Raises:
        Problem: the interpreter cannot be started, or an import fails.
    """
    return ask_python(python, _INSPECT, "/")


def validate_library(name: str, spec: dict, facts: dict) -> None:
    """Check that an environment, as reported by `inspect_python`, contains the HDF5 that its label promises.

    Raises:
        Problem: the HDF5 version differs, or the promised ROS3 driver is missing.
    """
    version = spec["hdf5"]
    if facts["hdf5"] != version:
        raise Problem(
            f"library {name}: hdf5 is {version}, but its h5py uses HDF5 {facts['hdf5']}; correct hdf5: of the library"
        )
    match spec:
        case {"kind": "python"} | {"lock": _} | {"wheel": _} | {"with": _}:
            may_lack = True
        case {"kind": "wheel"}:
            may_lack = not load_pinned_sources()["wheels"][version]["ros3"]
        case _:
            # A user-supplied build of HDF5 may lack the driver.
            may_lack = spec.get("from", "auto") not in OF_RELEASES
    if not facts["ros3"] and not may_lack:
        raise Problem(f"library {name}: its HDF5 {version} lacks the ROS3 driver")


def resolve_origin(spec: dict) -> str:
    """Return the origin that would be recorded for a library if it were built now.

    For a release with several sources, this is the preferred source.

    Raises:
        Problem: as in `provide_library`, for errors that can be detected without a build.
    """
    match spec:
        case {"kind": "source"}:
            return own.list_hdf5_sources(spec)[0].origin
        case {"kind": "wheel"}:
            added = distributions.load_packages(spec)
            return distributions.describe_origin(
                _resolve_wheel_origin("", spec, added), list(map(_describe_package, added))
            )
        case {"kind": "python"}:
            python = own.resolve_path(spec["python"])
            validate_library(spec["python"], spec, inspect_python(python))
            return _inspect_imports(python)[1]["hdf5_source"]
    return spec["kind"]


def _make_wheel_environment(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Make an environment of locked and user-supplied wheels; return its interpreter, facts and build details."""
    added, lock = distributions.load_packages(spec), distributions.find_library_lock(spec)
    source, wheels = _resolve_wheel_origin(name, spec, added), [package.provide_wheel() for package in added]
    unmet = distributions.list_unmet_requirements(
        wheels, distributions.list_versions(spec) | {wheel.name: wheel.version for wheel in wheels}
    )
    locks = [LOCK, *([lock] if lock else [])]
    other = find_python(spec["python"]) if "python" in spec else {}
    if other and wheels:
        raise Problem(f"library {name}: user-supplied packages require the workflow's Python; remove python:")

    def build_environment(folder: Path, workshop: Workshop) -> dict:
        if not wheels:
            return inspect_python(make_environment(workshop, folder, *locks, base=other.get("path")))
        gives_way = partial(distributions.is_replaced, names=set.union(*(wheel.brings for wheel in wheels)))
        python = make_environment(workshop, folder, *locks, _write_wheel_lock(wheels, workshop), gives_way=gives_way)
        required = [
            line
            for wheel in wheels
            for line in _expect_installed(python, wheel, distributions.read_locked_versions(spec))
        ]
        return inspect_python(python) | {"required": required}

    inputs = {"locks": list(map(compute_file_digest, locks)), "python": toolchain.get_python_identity() | other}
    inputs |= {"added": [[wheel.name, wheel.version, wheel.key] for wheel in wheels]} if wheels else {}
    piece = provide_piece(Recipe(f"wheel-{spec['hdf5']}", inputs, build_environment, ("bin/python",)))
    seen = dict(piece.facts)
    facts = {"compiler": None, "hdf5_source": source, "s3_stack": None, "headers": {}}
    if keys := [package.key for package in added if package.origin == source]:
        facts["source_key"] = keys[0]
    if wheels:
        versions = [{"version": wheel.version, "sha256": wheel.key} for wheel in wheels]
        facts["added"] = [_describe_package(one) | version for one, version in zip(added, versions, strict=True)]
        facts["unmet"] = unmet + seen.pop("required")
    return piece.folder / "bin/python", seen, {"inputs_sha256": piece.key, "cached": piece.cached} | facts


def _resolve_wheel_origin(name: str, spec: dict, added: Sequence[Package]) -> str:
    """Return the origin of HDF5 in a library of kind wheel.

    This is the user-supplied package that contains h5py, or the lock file that pins h5py.
    """
    if own_h5py := [package for package in added if H5PY in package.brings]:
        return own_h5py[0].origin
    if lock := distributions.find_library_lock(spec):
        return f"wheel {lock.stem}"
    raise Problem(
        f"{f'library {name}: ' if name else ''}envs/sources.yaml lacks an h5py wheel with HDF5 {spec['hdf5']}"
        f" (available: {', '.join(load_pinned_sources()['wheels'])}); write kind: source"
    )


def _describe_package(package: Package) -> dict:
    """Describe a user-supplied package for an artefact; `brings` lists the distributions that it replaces."""
    return {"name": package.name, "origin": package.origin, "brings": sorted(package.brings)}


def _write_wheel_lock(wheels: Sequence[Wheel], workshop: Workshop) -> Path:
    """Copy wheels into the build's temporary directory and return a lock file that pins the copies.

    Raises:
        Problem: a wheel has changed since its hash was computed.
    """
    lock = workshop.work / "added.lock"
    for wheel in wheels:
        copy = workshop.work / wheel.path.name
        shutil.copyfile(wheel.path, copy)
        if compute_file_digest(copy) != wheel.key:
            raise Problem(f"{wheel.path} changed during the copy; run again when nothing writes to it")
    lines = [f"{one.name} @ {(workshop.work / one.path.name).as_uri()} --hash=sha256:{one.key}\n" for one in wheels]
    lock.write_text("".join(lines), encoding="utf-8")
    return lock


def _expect_installed(python: Path, wheel: Wheel, locked: Collection[str]) -> list[str]:
    """Check that a wheel's version is installed in an environment and that its modules can be imported.

    Only modules that are named after the wheel or after a locked distribution are imported.

    Returns:
        Descriptions of other distributions' requirements that the wheel's version does not satisfy.

    Raises:
        Problem: another version is installed, or an import fails.
    """
    names = [module for module in wheel.modules if canonicalize_name(module) in {wheel.name, *locked}]
    amiss = f"{wheel.path} cannot be imported with the other packages of the library"
    seen = ask_python(python, _INSTALLED.format(name=wheel.name, modules=names), "/", amiss)
    if seen["version"] != wheel.version:
        raise Problem(f"{wheel.path} is {wheel.name} {wheel.version}, but {seen['version']} was installed")
    return distributions.list_conflicts(seen["required"], wheel)


def _make_source_environment(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Make an environment whose h5py is compiled against the library's HDF5.

    Returns:
        The interpreter, facts and build details of the environment.
    """
    other = find_python(spec["python"]) if "python" in spec else {}
    toolchain.read_header_versions(toolchain.get_python_header(spec.get("python", "")), folder=other.get("include", ""))
    hdf5 = provide_hdf5(spec)
    tools = toolchain.create_tools_recipe(other)

    def build_environment(folder: Path, workshop: Workshop) -> dict:
        python = provide_piece(tools).folder / "bin" / "python"
        tree = fetch_sdist(workshop, python, "h5py")
        wheels = workshop.work / "wheels"
        # By default, h5py's build compiles its modules one at a time; this setuptools option compiles them in parallel.
        commands = ("build_ext", "--parallel", str(count_cores()), "bdist_wheel", "--dist-dir", wheels)
        variables = {
            "CC": toolchain.find_compiler(),
            "CFLAGS": f"{CFLAGS} -fwrapv",
            "HDF5_DIR": str(hdf5.folder),
            "HDF5_VERSION": spec["hdf5"],
            "H5PY_ROS3": str(int(own.has_feature(hdf5.folder / "include", "ROS3_VFD"))),
            "H5PY_DIRECT_VFD": "0",
        }
        workshop.run_step("compile h5py", python, "setup.py", *commands, cwd=tree, **variables)
        under_test = make_environment(workshop, folder, LOCK, base=other.get("path"))
        (wheel,) = wheels.iterdir()
        plain = ("--no-deps", "--offline", "--compile-bytecode")
        workshop.run_step("install h5py", find_uv(), "pip", "install", "--python", under_test, *plain, wheel)
        return inspect_python(under_test)

    inputs = {
        "lock": compute_file_digest(LOCK),
        "python": toolchain.get_python_identity() | other,
        "hdf5": hdf5.key,
        "h5py": load_pinned_sources()["sdists"]["h5py"],
        "compiler": toolchain.describe_compiler(),
        "tools": toolchain.get_tools_key(),
    }
    piece = provide_piece(Recipe(f"source-{spec['hdf5']}", inputs, build_environment, ("bin/python",)))
    build_facts = {"compiler": inputs["compiler"], "flags": CFLAGS} | hdf5.facts
    facts = piece.facts
    if hdf5.facts["hdf5_source"].startswith(own.INSTALLED):
        # Record its files, because an installed HDF5 can be replaced in place.
        facts = facts | {"imported": [get_identity(file) for file in hdf5.folder.glob("lib/libhdf5*.so")]}
    return piece.folder / "bin/python", facts, {"inputs_sha256": piece.key, "cached": piece.cached} | build_facts


def _inspect_user_python(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Inspect the environment of a user-supplied interpreter, without installing anything in it.

    Returns:
        The interpreter, facts that include the HDF5 and h5py files that it imports, and build details.
    """
    python = own.resolve_path(spec["python"])
    facts = inspect_python(python)
    files, build = _inspect_imports(python)
    return python, facts | {"imported": files}, build


def _inspect_imports(python: Path) -> tuple[list[str], dict]:
    """Return the HDF5 and h5py files that an interpreter imports, and the build details of its packages.

    The build details include hashes, by package, of all modules loaded by importing h5py, numpy, dask and distributed,
    and of the relevant shared libraries (METHOD 14).

    Returns:
        The identities of the HDF5 and h5py files, and the build details.
    """
    seen = ask_python(python, _IMPORTED, ROOT / "scripts")
    hashes = {package: "\n".join(map(compute_file_digest, files)) for package, files in seen["files"].items()}
    hashes = {package: hashlib.sha256(text.encode()).hexdigest() for package, text in hashes.items()}
    key = hashlib.sha256(json.dumps([seen["distributions"], hashes], sort_keys=True).encode()).hexdigest()
    packages = sorted(f"{package} {version}" for package, version in seen["distributions"].items() if package != "h5py")
    build = _NOT_BUILT | {"hdf5_source": own.format_origin("local python", key), "source_key": key}
    build |= {"packages": packages, "imports": hashes}
    # The other packages' versions are in each record's fingerprint.
    of = ((package, file) for package, files in seen["files"].items() for file in files)
    return [get_identity(file) for package, file in of if package not in ("numpy", "dask", "distributed")], build


def _inspect_conda(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Return the interpreter, facts and build details of the conda environment in which this program runs."""
    # Compare the prefixes, because an environment that the user has activated sets CONDA_PREFIX as well.
    if os.path.realpath(os.environ.get("CONDA_PREFIX", "")) != os.path.realpath(sys.prefix):
        raise Problem(
            f"library {name}: kind conda requires Snakemake's --sdm conda (environment envs/{name}.yaml);"
            " add --sdm conda, or write kind: source"
        )
    # Without a lock file, record the versions that conda selected, except the package under test.
    packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions() if one.name != "h5py")
    build = _NOT_BUILT | {"hdf5_source": f"conda {sys.prefix}", "packages": packages}
    return Path(sys.executable), inspect_python(Path(sys.executable)), build


_KINDS = {
    "wheel": _make_wheel_environment,
    "source": _make_source_environment,
    "conda": _inspect_conda,
    "python": _inspect_user_python,
}
