"""Find the C compiler, headers and interpreters that a build from source needs, before anything is built."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sbench.build.cache import Recipe
from sbench.build.shell import Workshop, get_base_python, get_clean_environment, make_environment
from sbench.build.sources import ENVS
from sbench.probe.program import Problem, compute_file_digest, find_tool


@dataclass(frozen=True)
class Header:
    """A header, its macro with the version of the library, and the packages that install it."""

    name: str
    macro: str
    debian: str
    rhel: str


CURL = Header("curl/curl.h", "LIBCURL_VERSION", "libcurl4-openssl-dev", "libcurl-devel")
OPENSSL = Header("openssl/opensslv.h", "OPENSSL_VERSION_TEXT", "libssl-dev", "openssl-devel")
ZLIB = Header("zlib.h", "ZLIB_VERSION", "zlib1g-dev", "zlib-devel")


def get_python_header(release: str = "") -> Header:
    """Return the header of a release of Python, such as "3.13"; by default of the workflow's release."""
    name = f"python{release or '{}.{}'.format(*sys.version_info)}"
    return Header("Python.h", "PY_VERSION", f"{name}-dev", f"{name}-devel")


def find_compiler() -> str:
    """Return the path of the first C compiler on PATH that compiles: $CC, else gcc or cc.

    Raises:
        Problem: no compiler compiles.
    """
    named = os.environ.get("CC")
    remedy = "install a C compiler: apt install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (RHEL)"
    trial = ("-S", "-o", "-", "-x", "c", os.devnull)
    return find_tool(*([named] if named else ["gcc", "cc"]), remedy=remedy, trial=trial, env=get_clean_environment())


def describe_compiler() -> str:
    """Return the first line that the C compiler prints for --version; errors as for `find_compiler`."""
    answer = subprocess.run([find_compiler(), "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0]


def read_header_versions(*headers: Header, folder: str = "") -> dict[str, str]:
    """Return the version in each header, by the header's name; `folder` has the headers of another Python.

    Raises:
        Problem: the compiler or some headers are missing; the line names the packages.
    """
    versions = {header: _read_header_version(header, folder) for header in headers}
    missing = [header for header, version in versions.items() if version is None]
    if missing:
        names = ", ".join(header.name for header in missing)
        debian, rhel = (" ".join(getattr(header, family) for header in missing) for family in ("debian", "rhel"))
        raise Problem(f"{names} missing: apt install {debian} (Debian, Ubuntu), dnf install {rhel} (RHEL)")
    return {header.name: version for header, version in versions.items()}


def create_tools_recipe(other: Mapping[str, str] = MappingProxyType({})) -> Recipe:
    """Return the recipe of the environment with CMake, Ninja, Cython and pip for builds.

    `other` is its interpreter, by default the interpreter of the workflow (`interpreters.find_python`).
    """

    def build_tools(folder: Path, workshop: Workshop) -> dict:
        make_environment(workshop, folder, ENVS / "build.lock", base=other.get("path"))
        return {}

    inputs = {"lock": get_tools_key(), "python": get_python_identity() | other}
    return Recipe("build-tools", inputs, build_tools, ("bin/python", "bin/cmake", "bin/ninja"))


def get_tools_key() -> str:
    """Return the part of a build's key that identifies the build tools; the Python that runs them is no part of it."""
    return compute_file_digest(ENVS / "build.lock")


def get_python_abi() -> dict[str, str]:
    """Return the facts that decide whether an interpreter can use code compiled for another interpreter."""
    return {name: sysconfig.get_config_var(name) for name in ("SOABI", "HOST_GNU_TYPE")} | {"libc": get_libc_version()}


def get_python_identity() -> dict[str, str]:
    """Return the facts that decide whether environments made from two interpreters are the same."""
    return get_python_abi() | {"path": str(get_base_python())}


def get_libc_version() -> str:
    """Return the C library's name and version."""
    return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"


def _read_header_version(header: Header, folder: str) -> str | None:
    """Read a version with the preprocessor; return None without such a header."""
    command = [find_compiler(), "-E", "-P", "-I", folder or sysconfig.get_path("include"), "-"]
    source = f"#include <{header.name}>\nversion {header.macro}\n"
    answer = subprocess.run(
        command, input=source, capture_output=True, text=True, env=get_clean_environment(), check=False
    )
    return answer.stdout.rpartition("version ")[2].strip().strip('"') if answer.returncode == 0 else None
