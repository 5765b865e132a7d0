"""Packs the project with all that it needs into one archive, for machines without a network, a compiler, root or git.

It builds what the configuration names, if that is not cached, and writes a compressed tar archive: the project's files,
.venv with its Python, the libraries under test, the servers that its stores need, and fio.
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, cast

from sbench.build import bundle, carried
from sbench.build.bundle import Entry
from sbench.build.distributions import library_key, own_lock
from sbench.build.environments import provide_library
from sbench.build.hdf5 import provide_hdf5
from sbench.build.servers import SERVERS, provide_servers, recipe
from sbench.build.streams import compressing
from sbench.design import config as configuration
from sbench.design.study import REBUILT
from sbench.probe import provenance, unpacked
from sbench.probe.program import Problem, expect_room, file_digest, git_path, replacing
from sbench.stores import store as stores

SUFFIX = ".tar.gz"
RELOCATE = "scripts/relocate.sh"


def pack(file: str, out: str) -> int:
    """Write the archive for a configuration, and print where it is and what to type where it is unpacked; return 0.

    `out` is the archive; "": named after the commit.
    """
    began, code = time.monotonic(), expect_clone()
    top = title(code)
    archive = expect_archive(out or f"{top}{SUFFIX}")
    config = configuration.load(file)
    if own := [name for name, spec in config["libraries"].items() if "python" in spec]:
        raise Problem(
            f"library {own[0]} is an interpreter of your own, which is not packed; leave it out, or use a wheel"
        )
    if rebuilt := [study for study, own in config["studies"].items() if REBUILT in own.get("twins", ())]:
        raise Problem(f"studies.{rebuilt[0]}.twins: an archive has one build of each library; leave out {REBUILT}")
    bundle.expect_tools()
    configured = within(Path(file))
    files = project_files([configured, *map(within, filter(None, map(own_lock, config["libraries"].values())))])
    with tempfile.TemporaryDirectory(prefix="pack.") as work:
        libraries, servers, entries = parts(config, bundle.patcher(Path(work)))
        by_name = {entry.name: entry for entry in (*(Entry(name, Path(name)) for name in files), *entries)}
        print(f"packing {len(by_name):,} files", file=sys.stderr, flush=True)
        glibc = bundle.glibc(by_name.values())
        manifest = {
            **{"pack": 1, "git": code["git"], "dirty": code["dirty"], "configuration": configured},
            **{"machine": platform.machine(), "glibc": glibc, "libraries": libraries, "servers": servers},
            "files": {name: file_digest(name) for name in files},
        }
        write(archive, top, manifest, by_name.values())
    print(
        f"{archive}: {archive.stat().st_size / 1e6:.0f} MB in {time.monotonic() - began:.0f} s"
        f"{', with changes that are not committed' * code['dirty']}, for Linux on {platform.machine()} with"
        f" glibc {glibc} or newer; there: tar -xzf {archive.name} && sh {top}/{RELOCATE}"
    )
    return 0


def expect_clone() -> dict:
    """Return the commit of this folder and whether it was changed, which is that of a clone.

    Raises:
        Problem: it is none.
    """
    if unpacked.manifest():
        raise Problem(
            "this folder was unpacked from an archive itself; call sbench pack in the clone that it came from"
        )
    code = provenance.facts(())
    if not code["git"]:
        raise Problem("git names no commit and no files of this folder; call sbench pack in a clone of the project")
    return code


def title(code: dict) -> str:
    """Return the name of an archive, and of the folder that is in it."""
    return f"storage-benchmarks-{code['git'][:10]}{'-dirty' * code['dirty']}-{platform.machine()}"


def expect_archive(name: str) -> Path:
    """Return the path of the archive to write; that it is named otherwise, or cannot be written, is a Problem."""
    if not name.endswith(SUFFIX):
        raise Problem(f"--out {name}: the archive is compressed with gzip, so end its name in {SUFFIX}")
    expect_room(name)
    return Path(name)


def within(path: Path) -> str:
    """Return the path of a file from this folder; that it is elsewhere is a Problem."""
    here = Path.cwd()
    if not path.resolve().is_relative_to(here):
        raise Problem(f"{path} is not in this folder, so not in the archive; copy it to {here / 'config'}")
    return str(path.resolve().relative_to(here))


def project_files(named: Iterable[str]) -> list[str]:
    """Return the files of the project as git lists them, and those `named` by the user, which git may not know."""
    listed = subprocess.run([git_path(), "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    return sorted({*named, *(name for name in listed.split("\0") if name and Path(name).is_file())})


def parts(config: dict, patched: Callable[[Path, str], Path]) -> tuple[dict, dict, list[Entry]]:
    """Return what the archive says of its libraries and servers, by their keys, and the files beside the project's own.

    What is not built yet is built.

    Raises:
        Problem: a build failed, or fio is missing.
    """
    libraries, servers = {}, {}
    linked: list[Path] = []
    entries = list(bundle.environment(Path(sys.prefix), ".venv"))
    for name, spec in config["libraries"].items():
        if "copy" in spec:
            raise Problem(f"library {name}: an archive has one build of each library; leave out its copy")
        artefact = provide_library(name, spec)
        folder = Path(artefact["python"]).parents[1]
        of_library = bundle.environment(folder, _place(folder))
        if spec["kind"] == "source":
            hdf5 = provide_hdf5(spec)
            # One that is installed may be in a folder of any name.
            place = str(unpacked.FOLDER / f"hdf5-{hashlib.sha256(hdf5.key.encode()).hexdigest()[:16]}")
            entries += bundle.hdf5(hdf5.folder, place, patched)
            of_library = bundle.on_hdf5(of_library, f"{place}/lib", patched)
            linked += hdf5.folder.glob("lib/libhdf5*.so")
        entries += of_library
        # Files of this machine that it would otherwise have to find unchanged.
        there = {"imported": [], "python": f"{_place(folder)}/bin/python"}
        there["build"] = artefact["build"] | {"cached": True}
        libraries[library_key(spec)] = artefact | there
    needed = stores.needed(config["stores"].values())
    versions = provide_servers(needed)["versions"]
    for name in needed:
        folder, key = recipe(name).folder, carried.server_key(name)
        entries += bundle.piece(folder, _place(folder))
        programs = {program: f"{_place(folder)}/{path}" for program, path in SERVERS[name].items()}
        servers[key] = {"server": name, "version": versions[name], "programs": programs}
    return libraries, servers, [*entries, *bundle.interpreter(linked, patched), *bundle.fio(patched)]


def write(out: Path, top: str, manifest: dict, entries: Iterable[Entry]) -> None:
    """Write the archive, whole or not at all; all that is in it is in the folder `top`."""
    text = Entry(str(unpacked.MANIFEST), Path(__file__), json.dumps(manifest, indent=1).encode())
    names: dict[tuple[int, int], str] = {}
    with (
        replacing(out) as part,
        open(part, "wb") as file,
        compressing(file) as packed,
        tarfile.open(fileobj=cast(IO[bytes], packed), mode="w|") as archive,
    ):
        for entry in (text, *entries):
            _add(archive, top, entry, names)


def _add(archive: tarfile.TarFile, top: str, entry: Entry, names: dict[tuple[int, int], str]) -> None:
    """Add a file for everybody; one that is there under another name (`names`, by device and inode) is a link to it."""
    member = tarfile.TarInfo(f"{top}/{entry.name}")
    if entry.link:
        member.type, member.linkname = tarfile.SYMTYPE, entry.link
        return archive.addfile(member)
    status = entry.source.stat()
    member.mtime, member.mode = int(status.st_mtime), 0o755 if status.st_mode & 0o111 else 0o644
    if entry.content is not None:
        member.size = len(entry.content)
        return archive.addfile(member, io.BytesIO(entry.content))
    if (first := names.setdefault((status.st_dev, status.st_ino), member.name)) != member.name:
        member.type, member.linkname = tarfile.LNKTYPE, first
        return archive.addfile(member)
    member.size = status.st_size
    with open(entry.source, "rb") as file:
        return archive.addfile(member, file)


def _place(folder: Path) -> str:
    """Return where in the archive a folder of the cache is."""
    return str(unpacked.FOLDER / folder.name)
