"""Install a release of a package with the versions of other packages that were the newest when it was published."""

import importlib.metadata
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

from sbench.build.packages import STRAYS
from sbench.build.release_range import run_uv
from sbench.build.shell import PIN
from sbench.probe.program import Problem

# The time at which a file was uploaded, in a lock file of PEP 751.
_UPLOADED = re.compile(r"upload-time = ([0-9T:.+-]+Z?)")
# Some packages are released one after the other and require each other's exact version, such as fsspec and then s3fs.
_MARGIN = timedelta(hours=6)
# The newest versions, whatever the user's settings of uv are.
_NEWEST = ("--resolution", "highest", "--prerelease", "if-necessary-or-explicit")


class Dated(NamedTuple):
    """The packages of an environment.

    Attributes:
        requirements: a requirement with an exact version for each package, by name.
        until: the time of which these versions are the newest, for `uv --exclude-newer`; an empty string if unknown.
    """

    requirements: dict[str, str]
    until: str


def resolve_release(package: str, release: str, wanted: Sequence[str], python: Path | str) -> Dated:
    """Return the versions of all packages of an environment with a release, as of the date of the release.

    If the registry does not state when files were uploaded, the newest possible versions are used.

    Args:
        package: name of the package.
        release: its version.
        wanted: further requirements, such as "s3fs" or "xarray>=2025.1".
        python: the interpreter.

    Raises:
        Unusable: the release, or a requirement, is not available for this interpreter.
    """
    what, pinned = f"{package} {release}", f"{package}=={release}"
    options = ("pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python)
    described = run_uv(what, *options, "--no-deps", "--format", "pylock.toml", "-", text=[pinned])
    uploaded = [datetime.fromisoformat(text) for text in _UPLOADED.findall(described)]
    until = (max(uploaded) + _MARGIN).isoformat() if uploaded else ""
    locked = run_uv(what, *options, *_NEWEST, *_format_until(until), "-", text=[pinned, *wanted])
    return Dated({canonicalize_name(pin["name"]): pin["what"] for pin in PIN.finditer(locked)}, until)


def _format_until(until: str) -> list[str]:
    return ["--exclude-newer", until] if until else []


def install_packages(what: str, packages: Dated, folder: Path, base: Path | str) -> Path:
    """Make an environment contain exactly these packages, without their requirements, and return its interpreter.

    Packages that it contains already are kept, with their compiled modules. A package without a wheel is built, with
    the build backend of its time.

    Args:
        what: what the environment is for, for messages.
        packages: the packages.
        folder: folder of the environment.
        base: the interpreter from which it is created.

    Raises:
        Unusable: a package cannot be installed.
    """
    python, requirements = folder / "bin/python", list(packages.requirements.values())
    if not python.exists():
        run_uv(what, "venv", "--quiet", "--no-project", "--python", base, folder)
    for installed in importlib.metadata.distributions(path=[str(path) for path in folder.glob("lib/*/site-packages")]):
        if f"{canonicalize_name(installed.name)}=={installed.version}" not in requirements:
            _remove_compiled_modules(installed)
    options = ("--quiet", "--python", python, *_format_until(packages.until))
    run_uv(what, "pip", "sync", *options, "-", text=requirements)
    return python


def expect_no_shadows(script: Path, folder: Path) -> None:
    """Check that a script does not import modules of its folder instead of the packages of an environment.

    Args:
        script: path of the script.
        folder: folder of the environment.

    Raises:
        Problem: the folder of the script contains a module of an installed package.
    """
    modules = {path.name.partition(".")[0] for path in folder.glob("lib/*/site-packages/*")} - {*STRAYS}
    for name in sorted(modules):
        for path in (script.parent / f"{name}.py", script.parent / name / "__init__.py"):
            if path.exists():
                raise Problem(f"the script would import {path} instead of the installed package; move one of them")


def _remove_compiled_modules(installed: importlib.metadata.Distribution) -> None:
    """Remove the compiled modules of a package, so that another version does not use them.

    Python recognises a changed module by its size and time, which may be the same in two wheels.
    """
    for folder in {Path(installed.locate_file(file)).parent for file in installed.files or ()}:
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)


def list_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of the packages whose versions differ, or that only one of two environments has."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
