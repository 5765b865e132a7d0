"""Makes the Python environment of a library under test: its own HDF5 and h5py, the rest from one lock for all."""

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from scripts.building import toolchain
from scripts.building.cache import Recipe, file_digest, provide
from scripts.building.hdf5 import CFLAGS, provide_hdf5
from scripts.building.shell import Workshop, clean_environment, cores, make_environment, uv
from scripts.building.sources import ENVS, LOCK, fetch_sdist, own_lock, pinned, promised
from scripts.lib.program import Problem

_INSPECT = """
import json, h5py, numpy, dask, distributed
versions = {module.__name__: module.__version__ for module in (h5py, numpy, dask)}
print(json.dumps({"hdf5": h5py.version.hdf5_version} | versions | {"ros3": bool(h5py.get_config().ros3)}))
"""


def provide_library(name: str, spec: dict) -> dict:
    """Return the environment artefact of a library under test, built now if the cache does not have it.

    Args:
        name: the library's name, for messages and the artefact.
        spec: its entry in the configuration: `kind`, `hdf5` (version) and, for source, `from`.

    Raises:
        Problem: the version is not pinned, something is missing, a build failed, or it is not what its label says.
    """
    start = time.monotonic()
    python, facts, build = {"wheel": _wheel, "source": _source, "conda": _conda}[spec["kind"]](name, spec)
    verify(name, spec, facts)
    packages = build.get("packages")
    return {
        **{"environment": 1, "status": "done", "library": name, "kind": spec["kind"], "python": str(python)},
        **facts,
        "build": build | {"seconds": round(time.monotonic() - start, 1)},
        "promised": promised(spec, facts, build),
        "lock_sha256": hashlib.sha256("\n".join(packages).encode()).hexdigest() if packages else file_digest(LOCK),
    }


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


def verify(name: str, spec: dict, facts: dict) -> None:
    """Compare what an environment has (`inspect_python`) with what its label promises.

    Raises:
        Problem: the HDF5 version differs, or ROS3 was promised and is not there.
    """
    version = spec["hdf5"]
    if facts["hdf5"] != version:
        raise Problem(f"library {name}: its label says HDF5 {version}, its h5py has {facts['hdf5']}")
    may_lack = spec["kind"] == "wheel" and ("lock" in spec or not pinned()["wheels"][version]["ros3"])
    if not facts["ros3"] and not may_lack:
        raise Problem(f"library {name}: its HDF5 {version} has no ROS3 driver")


def _wheel(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of an environment with a wheel of h5py, or with whatever its lock names."""
    version = spec["hdf5"]
    if not (lock := own_lock(spec)):
        raise Problem(
            f"library {name}: no h5py wheel with HDF5 {version} is in envs/sources.yaml"
            f" (which has {', '.join(pinned()['wheels'])}); make its kind source"
        )

    def build(folder: Path, workshop: Workshop) -> dict:
        return inspect_python(make_environment(workshop, folder, LOCK, lock))

    inputs = {"locks": [file_digest(LOCK), file_digest(lock)], "python": toolchain.python_identity()}
    piece = provide(Recipe(f"wheel-{version}", inputs, build, ("bin/python",)))
    facts = {"compiler": None, "hdf5_source": f"wheel {lock.stem}", "s3_stack": None, "headers": {}}
    return piece.folder / "bin/python", piece.facts, {"inputs_sha256": piece.key, "cached": piece.cached} | facts


def _source(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of an environment whose h5py is linked to an HDF5 built here."""
    toolchain.header_versions(toolchain.PYTHON)
    hdf5 = provide_hdf5(spec["hdf5"], spec.get("from", "auto"))
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
            "HDF5_VERSION": spec["hdf5"],
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
    piece = provide(Recipe(f"source-{spec['hdf5']}", inputs, build, ("bin/python",)))
    facts = {"compiler": inputs["compiler"], "flags": CFLAGS} | hdf5.facts
    return piece.folder / "bin/python", piece.facts, {"inputs_sha256": piece.key, "cached": piece.cached} | facts


def _conda(name: str, spec: dict) -> tuple[Path, dict, dict]:
    """Return interpreter, facts and build of the conda environment whose interpreter runs this program."""
    # Somebody's own activated environment has the variable too.
    if os.path.realpath(os.environ.get("CONDA_PREFIX", "")) != os.path.realpath(sys.prefix):
        raise Problem(
            f"library {name} is of kind conda and needs Snakemake's --sdm conda"
            f" (its environment is envs/{name}.yaml); or make its kind source"
        )
    # There is no lock: what conda chose is read back, but for the package that is under test.
    packages = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions() if one.name != "h5py")
    build = {"inputs_sha256": None, "cached": True, "compiler": None, "s3_stack": None, "headers": {}}
    build |= {"hdf5_source": f"conda {sys.prefix}", "packages": packages}
    return Path(sys.executable), inspect_python(Path(sys.executable)), build
