"""Makes the Python environment of a library under test: its own HDF5 and h5py, the rest from one lock for all."""

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from scripts.building import toolchain
from scripts.building.cache import Piece, Recipe, file_digest, provide
from scripts.building.hdf5 import CFLAGS, provide_hdf5
from scripts.building.shell import Workshop, clean_environment, cores, make_environment, uv
from scripts.building.sources import ENVS, ROOT, fetch_sdist, pinned, wheel_has_ros3
from scripts.lib.program import Problem

KINDS = ("wheel", "source", "conda")
LOCK = ENVS / "measure.lock"

_INSPECT = """
import json, h5py, numpy, dask, distributed
versions = {module.__name__: module.__version__ for module in (h5py, numpy, dask)}
print(json.dumps({"hdf5": h5py.version.hdf5_version} | versions | {"ros3": bool(h5py.get_config().ros3)}))
"""


@dataclass(frozen=True)
class Library:
    """A library under test as the configuration describes it; `source` is its key `from`."""

    name: str
    kind: str
    hdf5: str
    source: str = "auto"


def provide_library(name: str, spec: dict) -> dict:
    """Return the environment artefact of a library under test, built now if the cache does not have it.

    Args:
        name: the library's name, for messages and the artefact.
        spec: `kind` (wheel, source, conda), `hdf5` (version) and, for source, `from` (auto, tarball, crate, a path).

    Raises:
        Problem: the specification is wrong, something is missing, a build failed, or it is not what its label says.
    """
    library = read_spec(name, spec)
    start = time.monotonic()
    python, facts, build = {"wheel": _wheel, "source": _source, "conda": _conda}[library.kind](library)
    verify(library, facts)
    build["seconds"] = round(time.monotonic() - start, 1)
    head = {"environment": 1, "status": "done", "library": name, "kind": library.kind, "python": str(python)}
    packages = build.get("packages")
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest() if packages else file_digest(LOCK)
    return head | facts | {"build": build, "lock_sha256": digest}


def library_python(kind: str, hdf5: str) -> Path:
    """Return the interpreter of an environment, such as `library_python("wheel", "2.0.0")`, built now if need be.

    Raises:
        Problem: as `provide_library`.
    """
    return Path(provide_library(f"{kind}-{hdf5}", {"kind": kind, "hdf5": hdf5})["python"])


def read_spec(name: str, spec: object) -> Library:
    """Return the library that a specification describes.

    Raises:
        Problem: a key is unknown, missing or not text.
    """
    if not isinstance(spec, dict) or spec.get("kind") not in KINDS:
        kind = spec.get("kind") if isinstance(spec, dict) else spec
        raise Problem(f"library {name}: its kind is {kind!r}; it can be {', '.join(KINDS)}")
    allowed = ["kind", "hdf5"] + ["from"] * (spec["kind"] == "source")
    if unknown := sorted(set(spec) - set(allowed)):
        raise Problem(
            f"library {name}: {', '.join(unknown)} is unknown; kind {spec['kind']} has the keys {', '.join(allowed)}"
        )
    values = {"from": "auto"} | spec
    for key in allowed:
        if not isinstance(values.get(key), str):
            raise Problem(f'library {name}: {key} is {values.get(key)!r}; it must be quoted text, such as "2.0.0"')
    return Library(name, values["kind"], values["hdf5"], values["from"])


def lacking() -> list[str]:
    """Return the packages of the workflow's programs that this interpreter does not have."""
    wanted = re.findall(r"^[a-z][\w-]*", (ENVS / "workflow.in").read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in wanted if not any(importlib.metadata.distributions(name=name))]


def inspect_python(python: Path) -> dict:
    """Return the versions of HDF5, h5py, numpy and dask that an interpreter imports, and whether it has ROS3.

    Raises:
        Problem: it cannot be started, or one of them cannot be imported.
    """
    command = [str(python), "-sE", "-c", _INSPECT]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, cwd="/", env=clean_environment(), check=False)
    except OSError as error:
        raise Problem(f"{python} cannot be started: {error.strerror}") from error
    if answer.returncode:
        reason = (answer.stderr.strip() or f"status {answer.returncode}").splitlines()[-1]
        raise Problem(f"{python} cannot import what a library under test needs: {reason}")
    return json.loads(answer.stdout)


def verify(library: Library, facts: dict) -> None:
    """Compare what an environment has (`inspect_python`) with what its label promises.

    Raises:
        Problem: the HDF5 version differs, or ROS3 was promised and is not there.
    """
    if facts["hdf5"] != library.hdf5:
        raise Problem(f"library {library.name}: its label says HDF5 {library.hdf5}, its h5py has {facts['hdf5']}")
    promised = library.kind != "wheel" or wheel_has_ros3(library.hdf5)
    if promised and not facts["ros3"]:
        raise Problem(f"library {library.name}: its HDF5 {library.hdf5} has no ROS3 driver")


def _wheel(library: Library) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of an environment with a wheel of h5py, its own or a redistribution."""
    wheels = pinned()["wheels"]
    if library.hdf5 not in wheels:
        raise Problem(
            f"library {library.name}: no h5py wheel with HDF5 {library.hdf5} is in envs/sources.yaml"
            f" (which has {', '.join(wheels)}); make its kind source"
        )
    lock = ROOT / wheels[library.hdf5]["lock"]

    def build(folder: Path, workshop: Workshop) -> dict:
        return inspect_python(make_environment(workshop, folder, LOCK, lock))

    inputs = {"locks": [file_digest(LOCK), file_digest(lock)], "python": toolchain.python_identity()}
    piece = provide(Recipe(f"wheel-{library.hdf5}", inputs, build, ("bin/python",)))
    facts = {"hdf5_source": f"wheel {lock.stem}", "s3_stack": None, "headers": {}}
    return piece.folder / "bin" / "python", piece.facts, _build_facts(piece) | facts


def _source(library: Library) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of an environment whose h5py stands on an HDF5 built here."""
    toolchain.header_versions(toolchain.PYTHON)
    hdf5 = provide_hdf5(library.hdf5, library.source)
    tools = toolchain.tools_recipe()

    def build(folder: Path, workshop: Workshop) -> dict:
        python = provide(tools).folder / "bin" / "python"
        tree = fetch_sdist(workshop, python, "h5py")
        wheels = workshop.work / "wheels"
        # h5py's own build compiles one module after the other; setuptools can compile them side by side.
        commands = ("build_ext", "--parallel", str(cores()), "bdist_wheel", "--dist-dir", wheels)
        variables = {
            "CC": toolchain.compiler_path(),
            "CFLAGS": f"{CFLAGS} -fwrapv",
            "HDF5_DIR": str(hdf5.folder),
            "HDF5_VERSION": library.hdf5,
            "H5PY_ROS3": "1",
            "H5PY_DIRECT_VFD": "0",
        }
        workshop.run("compile h5py", python, "setup.py", *commands, cwd=tree, **variables)
        under_test = make_environment(workshop, folder, LOCK)
        (wheel,) = wheels.iterdir()
        plain = ("--no-deps", "--offline", "--compile-bytecode")
        workshop.run("install h5py", uv(), "pip", "install", "--python", under_test, *plain, wheel)
        return inspect_python(under_test)

    inputs = {
        "lock": file_digest(LOCK),
        "python": toolchain.python_identity(),
        "hdf5": hdf5.key,
        "h5py": pinned()["sdists"]["h5py"],
        "compiler": toolchain.compiler(),
        "tools": tools.key,
    }
    piece = provide(Recipe(f"source-{library.hdf5}", inputs, build, ("bin/python",)))
    facts = {"compiler": inputs["compiler"], "flags": CFLAGS} | hdf5.facts
    return piece.folder / "bin" / "python", piece.facts, _build_facts(piece, hdf5) | facts


def _conda(library: Library) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of the conda environment whose interpreter runs this program."""
    # Somebody's own activated environment has the variable too.
    if os.path.realpath(os.environ.get("CONDA_PREFIX", "")) != os.path.realpath(sys.prefix):
        raise Problem(
            f"library {library.name} is of kind conda and needs Snakemake's --sdm conda"
            f" (its environment is envs/{library.name}.yaml); or make its kind source"
        )
    python = Path(sys.executable)
    build = {"inputs_sha256": None, "cached": True, "compiler": None, "s3_stack": None, "headers": {}}
    # There is no lock: what conda chose is read back, but for the package that is under test.
    packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions() if one.name != "h5py")
    return python, inspect_python(python), build | {"hdf5_source": f"conda {sys.prefix}", "packages": packages}


def _build_facts(piece: Piece, *parts: Piece) -> dict:
    """Return what an artefact says of the build of `piece` and of the parts it stands on."""
    pieces = {
        part.name: {"cached": part.cached, "seconds": part.seconds, "cpu_seconds": part.cpu_seconds}
        for part in (*parts, piece)
    }
    return {"inputs_sha256": piece.key, "cached": piece.cached, "compiler": None, "pieces": pieces}
