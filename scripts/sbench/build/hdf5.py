"""Build HDF5 with its ROS3 driver, and Amazon's S3 libraries for HDF5 versions whose driver is based on them."""

import os
import sys
from pathlib import Path

from sbench.build import toolchain
from sbench.build.cache import Piece, Recipe, find_piece, provide_piece
from sbench.build.own import Installed, list_hdf5_sources
from sbench.build.shell import Workshop, count_cores
from sbench.build.sources import Archive, Unreachable, fetch_sdist, load_pinned_sources
from sbench.probe.program import Problem

# Flags for every version: optimised, without assertions or debug information, and without warnings in third-party code.
CFLAGS = "-O2 -DNDEBUG -g0 -w -pipe"

COMMON = (
    "-DCMAKE_BUILD_TYPE=Release",
    f"-DCMAKE_C_FLAGS_RELEASE={CFLAGS}",
    "-DCMAKE_INSTALL_LIBDIR=lib",
    "-DBUILD_TESTING=OFF",
)

HDF5 = (
    "-DBUILD_SHARED_LIBS=ON",
    "-DBUILD_STATIC_LIBS=OFF",
    "-DHDF5_BUILD_TOOLS=OFF",
    "-DHDF5_BUILD_UTILS=OFF",
    "-DHDF5_BUILD_EXAMPLES=OFF",
    "-DHDF5_BUILD_FORTRAN=OFF",
    "-DHDF5_BUILD_CPP_LIB=OFF",
    "-DHDF5_BUILD_JAVA=OFF",
    "-DHDF5_BUILD_HL_LIB=ON",
    "-DHDF5_ENABLE_SZIP_SUPPORT=OFF",
    # HDF5 1.14 uses the first name, HDF5 2.x the second.
    "-DHDF5_ENABLE_Z_LIB_SUPPORT=ON",
    "-DHDF5_ENABLE_ZLIB_SUPPORT=ON",
    "-DHDF5_ENABLE_ROS3_VFD=ON",
    "-DHDF5_NO_PACKAGES=ON",
)

AWS_MODULES = (
    "s2n",
    "aws-c-common",
    "aws-c-sdkutils",
    "aws-c-cal",
    "aws-c-io",
    "aws-checksums",
    "aws-c-compression",
    "aws-c-http",
    "aws-c-auth",
    "aws-c-s3",
)

AWS = ("-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", "-DUSE_OPENSSL=ON")

# One CMake project for all modules, so that they are configured together and compiled in parallel.
AWS_PROJECT = """\
cmake_minimum_required(VERSION 3.26)
project(aws C)
set(IN_SOURCE_BUILD ON)
list(APPEND CMAKE_MODULE_PATH ${{CRT}}/aws-c-common/cmake)
foreach(module {modules})
  add_subdirectory(${{CRT}}/${{module}} ${{module}})
endforeach()
"""


def provide_hdf5(spec: dict) -> Piece:
    """Return the HDF5 of a library of kind source as a cache entry, building it from the first available source.

    A source with a finished build in the cache counts as available, so that no network is needed. An installed HDF5 is
    used in place.

    Raises:
        Problem: the version is not pinned or contradicts the user-supplied source, a header or the compiler is missing,
            no archive is available, or a build step failed.
    """
    version, sources = spec["hdf5"], list_hdf5_sources(spec)
    if isinstance(installed := sources[0], Installed):
        facts = {"hdf5_source": installed.origin, "source_key": installed.key, "s3_stack": None, "headers": {}}
        return Piece(f"{installed.key} {installed.path}", installed.path, facts, cached=True)
    recipes = [create_hdf5_recipe(version, archive) for archive in sources]
    for recipe in recipes:
        if piece := find_piece(recipe):
            return piece
    reasons = []
    for recipe in recipes:
        try:
            return provide_piece(recipe)
        except Unreachable as reason:
            reasons.append(str(reason))
            print(f"{recipe.name}: {reason}", file=sys.stderr, flush=True)
    remedy = f"or download the release on another machine and name the file (from: /path/to/hdf5-{version}.tar.gz)"
    raise Problem(f"the source of HDF5 {version} is not available: {'; '.join(reasons)}; {remedy}")


def create_hdf5_recipe(version: str, archive: Archive) -> Recipe:
    """Return the recipe that builds an HDF5 version from an archive.

    Amazon's S3 libraries, which HDF5 2.x needs, are a separate cache entry.

    Raises:
        Problem: a header or the compiler is missing.
    """
    # Since HDF5 2.0, the ROS3 driver uses Amazon's S3 libraries.
    on_curl = int(version.partition(".")[0]) < 2
    system = toolchain.read_header_versions(toolchain.ZLIB, toolchain.OPENSSL, *([toolchain.CURL] if on_curl else []))
    tools = toolchain.create_tools_recipe()
    aws = None if on_curl else create_aws_recipe()

    def build_hdf5(folder: Path, workshop: Workshop) -> dict:
        tree = archive.unpack(workshop)
        prefix = (f"-DCMAKE_PREFIX_PATH={provide_piece(aws).folder}",) if aws else ()
        install_with_cmake(workshop, "HDF5", provide_piece(tools).folder, tree, folder, *HDF5, *prefix)
        s3_stack = aws.name if aws else f"libcurl-{system[toolchain.CURL.name]}"
        return {"hdf5_source": archive.origin, "source_key": archive.key, "s3_stack": s3_stack, "headers": system}

    inputs = {
        "source": archive.key,
        "compiler": toolchain.describe_compiler(),
        "libc": toolchain.get_libc_version(),
        "tools": toolchain.get_tools_key(),
        "s3": aws.key if aws else "libcurl",
    }
    return Recipe(f"hdf5-{version}", inputs, build_hdf5, ("lib/libhdf5.so", "lib/libhdf5_hl.so", "include/hdf5.h"))


def create_aws_recipe() -> Recipe:
    """Return the recipe that builds Amazon's S3 libraries as static libraries, for all builds of HDF5 2.x.

    Raises:
        Problem: the compiler is missing.
    """
    pin = load_pinned_sources()["sdists"]["awscrt"]
    tools = toolchain.create_tools_recipe()

    def build_s3_stack(folder: Path, workshop: Workshop) -> dict:
        programs = provide_piece(tools).folder
        tree = fetch_sdist(workshop, programs / "bin" / "python", "awscrt")
        project = workshop.work / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(AWS_PROJECT.format(modules=" ".join(AWS_MODULES)), encoding="utf-8")
        install_with_cmake(workshop, "the S3 stack", programs, project, folder, *AWS, f"-DCRT={tree / 'crt'}")
        return {}

    inputs = {
        "source": pin,
        "compiler": toolchain.describe_compiler(),
        "libc": toolchain.get_libc_version(),
        "tools": toolchain.get_tools_key(),
    }
    return Recipe(f"awscrt-{pin['version']}", inputs, build_s3_stack, ("lib/libaws-c-s3.a", "lib/libs2n.a"))


def install_with_cmake(workshop: Workshop, what: str, tools: Path, tree: Path, folder: Path, *flags: str) -> None:
    """Configure and compile the CMake project in `tree`, and install it into `folder`.

    Args:
        workshop: temporary directory and log of the build.
        what: name of the project, for messages.
        tools: environment with CMake and Ninja.
        tree: source tree.
        folder: installation prefix.
        flags: additional CMake options.

    Raises:
        Problem: a step failed.
    """
    build = workshop.work / "build"
    programs = tools / "bin"
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "CC": toolchain.find_compiler()}
    places = ("-G", "Ninja", "-S", tree, "-B", build, f"-DCMAKE_INSTALL_PREFIX={folder}")
    workshop.run_step(f"configure {what}", programs / "cmake", *places, *COMMON, *flags, **variables)
    jobs = ("-j", str(count_cores()))
    workshop.run_step(f"compile {what}", programs / "ninja", "-C", build, *jobs, "install", **variables)
