"""Looks, before anything is built, whether a run can work here: a line for each thing, with its remedy."""

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from scripts.building.sources import hdf5_archives
from scripts.frame import config as configuration
from scripts.frame import matrix, studies
from scripts.lib import cache, host, memory, sizes
from scripts.lib.program import Problem, run
from scripts.stores import azure, s3
from scripts.studies.blobs import patterns
from scripts.studies.shots import files

Finding = tuple[str, bool, str]
_SPARE_BYTES = 2 * 2**30


def main(argv: list[str] | None = None) -> int:
    """Print a line for each check; status 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", default="config/config.yaml", help="the configuration (default: %(default)s)")
    file = parser.parse_args(argv).configfile
    config = configuration.load(file)
    matrix.check(config, [file])
    console = Console(highlight=False, soft_wrap=True)
    failed = 0
    for what, fine, detail in findings(config):
        failed += not fine
        sign = ("ok    ", "green") if fine else ("AMISS ", "red")
        console.print(Text.assemble(sign, f" {what}: {detail}"))
    return 1 if failed else 0


def findings(config: dict) -> Iterator[Finding]:
    """Yield (what, fine, detail or remedy) for each thing that a run of `config` needs."""
    system = platform.system()
    yield (
        "system",
        system == "Linux",
        f"{system}, {host.facts()['cpu']}, {host.usable_cores()} cores"
        if system == "Linux"
        else "only Linux is supported",
    )
    yield from _tools(config)
    yield from inputs(config)
    mpi = config["studies"].get("blobs", {}).get("mpi")
    # Machines that a launcher or a hostfile adds are looked at by the cells themselves.
    if mpi is not None and not mpi.keys() & {"launcher", "hostfile"}:
        yield _try("memory", lambda: _memory(matrix.expand(config, "blobs")[0]))
    for folder, use in _uses(config).items():
        yield from _folder(folder, use)
    yield from _volumes(config)
    for name, store in config["stores"].items():
        if store["kind"] != "posix":
            yield from _service(name, store)


def _tools(config: dict) -> Iterator[Finding]:
    kinds = {library["kind"] for library in config["libraries"].values()}
    if "source" in kinds:
        for tool, package in {"gcc": "gcc", "g++": "g++", "make": "make"}.items():
            found = shutil.which(tool)
            yield f"tool {tool}", bool(found), found or f"apt install {package}, or dnf install {package}"
    if "volumes" in config["studies"]:
        found = shutil.which("fio")
        yield "tool fio", bool(found), found or "apt install fio, or dnf install fio"
    if launcher := config["studies"].get("blobs", {}).get("mpi", {}).get("launcher"):
        found = shutil.which(launcher[0])
        yield f"tool {launcher[0]}", bool(found), found or "load the cluster's module for it, or correct mpi.launcher"
    if "conda" in kinds:
        found = shutil.which("conda") or shutil.which("mamba")
        yield (
            "tool conda",
            bool(found),
            found or "install conda and call Snakemake with --sdm conda, or use kind: source",
        )


def inputs(config: dict) -> Iterator[Finding]:
    """Look at what the configuration names beside stores: sources of libraries, and the user's own files."""
    for name, library in config["libraries"].items():
        if library["kind"] == "source":
            yield _try(f"library {name}", lambda one=library: hdf5_archives(one["hdf5"], one["from"])[0].origin)
    shots = config["studies"].get("shots", {})
    if "files" in shots.get("data", {}):
        yield _try("data.files", lambda: _own_files(shots))


def _own_files(shots: dict) -> str:
    """Say what one of the user's own files is, and see that it is what the matrix takes it for."""
    source = Path(shots["data"]["files"])
    if not (paths := files.of_source(source) if source.exists() else []):
        raise Problem(f"{source}: no {', '.join(files.SUFFIXES)} file is there; correct studies.shots.data.files")
    found = files.glance(paths[0])
    paged = f"paged ({found['page_size']} bytes)" if found["page_size"] else "not paged"
    words = f"{paths[0]} is {paged}, {found['layout']}, {found['shots']} shots of {found['signals']} signals"
    mappings = configuration.mappings(shots)
    layouts = {level for mapping in mappings for level in mapping["layout"]}
    if layouts != {found["layout"]}:
        raise Problem(f"{words}; the matrix says {', '.join(sorted(layouts))}: write the layout that the files have")
    buffers = {level for mapping in mappings for level in mapping["page_buffer"]} - {"unset", "0"}
    if buffers and not found["page_size"]:
        ask = f"a page buffer of {', '.join(sorted(buffers))} has no effect on it"
        raise Problem(f'{words}; {ask}: repack it (h5repack -S PAGE), or take "0" or unset')
    return words


def _memory(cells: list[matrix.Cell]) -> str:
    """Say how much the processes of the largest cell take; each cell of blobs looks again when it begins."""
    count, needed = max(map(_processes, cells), key=lambda one: one[1])
    free = memory.available()
    processes = "process needs" if count == 1 else "processes need"
    words = f"{count} {processes} {sizes.text(needed)}, {sizes.text(free)} are free"
    if needed > free:
        raise Problem(f"{words}; choose a smaller operation_size, or fewer processes")
    return words


def _processes(cell: matrix.Cell) -> tuple[int, int]:
    """Return how many processes a cell of blobs has, and the bytes that they take together."""
    data, count = cell.settings["data"], int(cell.levels["processes"])
    size = sizes.in_bytes(data["size"])
    layout = {"size_bytes": size, "block_bytes": sizes.block_bytes(size)}
    manifest = {"dataset": cell.dataset, "layout": layout, "files": [{}] * data["objects"]}
    plan = patterns.of(cell.settings, manifest)
    return count, sum(plan.buffer_bytes(rank) + memory.SPARE for rank in range(count))


@dataclass
class _Use:
    """What a run does in a folder: the bytes it writes there, and whether it sets the cache state or attributes.

    A folder that the run makes need not be there; one that a volume is mounted on must.
    """

    size: int = 0
    made: bool = False
    cache: bool = False
    attributes: bool = False


def _uses(config: dict) -> dict[Path, _Use]:
    """Return the folders that a run of `config` writes to and what it does there.

    Generated files lie in results/, where a posix store without a path reads them; a store with a path and an embedded
    server have a copy. Objects that are made as they are put into a store are there alone.
    """
    uses = {Path("results"): _Use(_SPARE_BYTES, made=True)}
    for study in config["studies"]:
        program = studies.of(study)
        cells, _ = matrix.expand(config, study)
        known = matrix.datasets(cells)
        sizes = {name: program.data_bytes(data) for name, data in known.items()}
        made = {name: program.made_bytes(data) for name, data in known.items()}
        uses[Path("results")].size += sum(made.values())
        for name in {cell.levels["store"] for cell in cells}:
            store, of_store = config["stores"][name], [cell for cell in cells if cell.levels["store"] == name]
            embedded = store.get("server") == "embedded"
            if (store["kind"] != "posix" and not embedded) or "device" in store:
                continue
            use = uses.setdefault(Path(store.get("path", "results")), _Use())
            copied = embedded or "path" in store
            read = {cell.dataset for cell in of_store if cell.dataset}
            use.size += sum(sizes[dataset] for dataset in read if copied or not made[dataset])
            use.size += max(program.disk_bytes(cell.settings) for cell in of_store)
            use.cache |= any(cell.levels.get("cache") in ("cold", "warm") for cell in of_store)
            use.attributes |= embedded and store["kind"] == "s3"
            use.made |= any(cell.dataset for cell in of_store)
    return uses


def _folder(folder: Path, use: _Use) -> Iterator[Finding]:
    """Write a file there and see whether what a run does with such files works."""
    try:
        if folder.exists() and not folder.is_dir():
            yield f"{folder} there", False, "is a file, not a folder; move it, or correct the store's path"
            return
        if use.made and not folder.absolute().parent.is_dir():
            yield f"{folder} there", False, f"there is no {folder.parent}; mount it, or correct the store's path"
            return
        if use.made:
            folder.mkdir(exist_ok=True)
        elif not folder.is_dir():
            yield f"{folder} there", False, "no such folder; mount the volume there, or correct the store's path"
            return
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".preflight-") as file:
            file.write(os.urandom(1 << 20))
            file.flush()
            yield f"{folder} writable", True, host.mount(folder)["file_system"]
            if use.cache:
                yield _try(f"{folder} page cache", lambda: _cache_state(Path(file.name)))
            if use.attributes:
                yield _try(f"{folder} attributes", lambda: _attributes(Path(file.name)))
    except OSError as error:
        yield f"{folder} writable", False, f"{error.strerror}; make it writable or name another folder"
        return
    free = shutil.disk_usage(folder).free
    remedy = "" if free >= use.size else "; free some or make the data smaller"
    yield f"{folder} free", free >= use.size, f"{free / 2**30:.1f} GiB, {use.size / 2**30:.1f} needed{remedy}"


def _volumes(config: dict) -> Iterator[Finding]:
    """See that what the study volumes writes to is a device, and not the machine's memory."""
    section = config["studies"].get("volumes", {})
    for name in sorted({name for mapping in configuration.mappings(section) for name in mapping["store"]}):
        place = Path(config["stores"][name].get("device") or config["stores"][name].get("path", "results"))
        if place.exists() and (memory_of := host.in_memory(place)):
            remedy = "name a folder on a disk, as no volume is measured there"
            yield f"volume {name}", False, f"{place} lies in memory ({memory_of}); {remedy}"


def _cache_state(path: Path) -> str:
    cold = cache.prepare("cold", [path])["state"]
    warm = cache.prepare("warm", [path])["state"]
    if (cold, warm) != ("cold", "warm"):
        raise Problem(
            f"cold gives {cold}, warm gives {warm} on {host.mount(path)['file_system']};"
            " cells there will be unverified or invalid"
        )
    return f"can be made cold and warm, and verified, on {host.mount(path)['file_system']}"


def _attributes(path: Path) -> str:
    try:
        os.setxattr(path, "user.preflight", b"1")
    except OSError as error:
        raise Problem(
            f"no user attributes on {host.mount(path)['file_system']} ({error.strerror});"
            " the embedded S3 server needs them: put the clone on another file system"
        ) from error
    return "user attributes work (the embedded S3 server needs them)"


def _service(name: str, store: dict) -> Iterator[Finding]:
    if store.get("server") == "embedded":
        yield f"store {name}", True, "embedded, served on the loopback"
        return
    what, credentials, look = {
        "s3": ("bucket", _credentials, _bucket),
        "azure-blob": ("container", azure.credentials, azure.reachable),
        "azure-files": ("share", azure.credentials, azure.reachable),
    }[store["kind"]]
    yield _try(f"store {name} credentials", lambda: credentials(store))
    yield _try(f"store {name} {what}", lambda: look(store))


def _bucket(store: dict) -> str:
    return s3.reachable(s3.client(store, store.get("endpoint"), None), store)


def _credentials(store: dict) -> str:
    return "found" if s3.environment_credentials(store) else "anonymous, none needed"


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, True, look()
    except Problem as problem:
        return what, False, str(problem)


if __name__ == "__main__":
    run(main)
