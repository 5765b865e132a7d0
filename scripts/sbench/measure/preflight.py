"""Check whether a run can work on this machine before it builds anything, and suggest a remedy for each problem."""

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from sbench.build import toolchain
from sbench.build.cache import get_cache_folder
from sbench.build.distributions import describe_origin, has_user_parts
from sbench.build.environments import provide_library, resolve_origin
from sbench.design import config as configuration
from sbench.design import matrix
from sbench.design import study as studies
from sbench.design.study import Cell
from sbench.probe import host, page_cache, sizes, slurm
from sbench.probe.processes import expect_shared_memory, find_free_port
from sbench.probe.program import Problem, expect_temporary_folder, find_tool, print_json, read_json
from sbench.stores import store as stores

Finding = tuple[str, bool, str]
_SPARE_BYTES = 2 * 2**30
# Subfolders of results/ that are under version control.
_COMMITTED = ("published", "example")


def run_checks(file: str, as_json: bool = False) -> int:
    """Check the requirements of a configuration and print a line for each check, or a single JSON object.

    Return the exit status: 1 if a check fails, otherwise 0.
    """
    config = configuration.load_config(file)
    matrix.expand_all(config, [file])
    made = []
    console = Console(highlight=False, soft_wrap=True)
    for what, fine, detail in list_findings(config):
        made.append({"check": what, "passed": bool(fine), "detail": detail})
        if not as_json:
            sign = ("ok    ", "green") if fine else ("FAILED", "red")
            console.print(sign[0], style=sign[1], end=" ")
            print(f"{what}: {detail}", flush=True)
    if as_json:
        print_json({"checks": made})
    elif slurm.has_nodes_elsewhere():
        print(
            f"These checks are for this machine. Cells run on Slurm nodes; to check a node: srun ./sbench check {file}"
        )
    return int(not all(one["passed"] for one in made))


def list_findings(config: dict) -> Iterator[Finding]:
    """Yield (name, whether it passed, detail or remedy) for each check of a configuration's requirements."""
    linux = platform.system() == "Linux"
    machine = (
        f"Linux, {host.read_facts()['cpu']}, {host.count_usable_cores()} cores" if linux else "only Linux is supported"
    )
    yield "system", linux, machine
    yield _run_check("loopback", lambda: f"servers can listen on 127.0.0.1 (tried port {find_free_port()})")
    yield _run_check("shared memory", expect_shared_memory)
    yield _run_check("temporary files", expect_temporary_folder)
    yield from _check_tools(config)
    yield from check_inputs(config, _install_wheels)
    cells = {study: matrix.expand_matrix(config, study)[0] for study in config["studies"]}
    for study, of_study in cells.items():
        for what, look in studies.get_study(study).list_needs(config, of_study):
            yield _run_check(what, look)
    for folder, use in _list_uses(config, cells).items():
        yield from _check_folder(folder, use)
    for name, spec in config["stores"].items():
        for what, look in stores.get_store(spec).list_requirements():
            yield _run_check(f"store {name} {what}".rstrip(), look)
    yield from _list_disk_use(get_cache_folder(), Path("results"))


def _list_disk_use(cached: Path, results: Path) -> Iterator[Finding]:
    runs = {path: _count_bytes(path) for path in results.glob("[!.]*") if path.name not in _COMMITTED and path.is_dir()}
    if cached.exists():
        yield "cache", True, f"{sizes.format_size(_count_bytes(cached))} of builds; rm -r {cached} removes them"
    if runs:
        largest = max(runs, key=lambda path: runs[path])
        detail = f"{sizes.format_size(sum(runs.values()))}, most in {largest} ({sizes.format_size(runs[largest])})"
        yield "results", True, f"{detail}; rm -r results/<run> reports/<run> removes a run"


def _count_bytes(folder: Path) -> int:
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            # A run in progress may have removed the file.
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(top, name)).st_blocks
    return total


def _check_tools(config: dict) -> Iterator[Finding]:
    kinds = {library["kind"] for library in config["libraries"].values()}
    if "source" in kinds:
        yield _run_check("tool gcc", toolchain.find_compiler)
    if "conda" in kinds:
        remedy = "install conda and call Snakemake with --sdm conda, or use kind: source"
        yield _run_check("tool conda", partial(find_tool, "conda", remedy=remedy))


def check_inputs(
    config: dict, wheels: Callable[[str, dict], str] = lambda _, spec: resolve_origin(spec)
) -> Iterator[Finding]:
    """Check the user-supplied inputs of a configuration: sources of libraries, and files that studies read.

    `wheels` checks a library that is installed from user-supplied wheels or lock files, given its name and
    specification, and returns a description of its origin.
    """
    yield from _check_sources(config, wheels)
    for study in config["studies"]:
        for what, look in studies.get_study(study).list_inputs(config):
            yield _run_check(what, look)


def _check_sources(config: dict, wheels: Callable[[str, dict], str]) -> Iterator[Finding]:
    for name, library in config["libraries"].items():
        if library["kind"] in ("source", "python"):
            yield _run_check(f"library {name}", partial(resolve_origin, library))
        elif library.keys() & {"lock", "wheel", "with"}:
            yield _run_check(f"library {name}", partial(wheels, name, library))


def _install_wheels(name: str, library: dict) -> str:
    """Install a library from wheels and describe its origin.

    Installing takes seconds and is the only complete test.
    """
    build = provide_library(name, library)["build"]
    return "; ".join([describe_origin(build["hdf5_source"], build.get("added", ())), *build.get("unmet", ())])


def check_begun_libraries(config: dict) -> Iterator[str]:
    """Yield a message for each user-supplied library that has changed since the run began."""
    for name, library in config["libraries"].items():
        # Missing or unreadable inputs are reported by the job that needs them.
        with contextlib.suppress(Problem):
            artefact = read_json(Path("results", config["run"], "environments", f"{name}.json"))
            build = artefact.get("build", {"hdf5_source": ""})
            before = describe_origin(build["hdf5_source"], build.get("added", ()))
            if has_user_parts(build) and (now := resolve_origin(library)) != before:
                yield (
                    f"library {name} has changed: it is {now}, run {config['run']} began with {before} and keeps that"
                    " build; give the run another name (--name) to measure the present library"
                )


@dataclass
class _Use:
    """The requirements of a run on a folder.

    Attributes:
        size: the number of bytes that the run writes there.
        made: whether the run creates the folder if it is missing. Mount points must exist.
        cache: whether the run sets the page cache state of files there.
        attributes: whether the run sets extended attributes of files there.
    """

    size: int = 0
    made: bool = False
    cache: bool = False
    attributes: bool = False


def _list_uses(config: dict, cells_of: dict[str, list[Cell]]) -> dict[Path, _Use]:
    """Return the folders that a run writes to, and what it requires of them.

    Generated files are in results/, where a posix store without a path also reads them. Stores with a path and embedded
    servers have another copy. Objects that are generated during the upload exist only in the store.
    """
    uses = {Path("results"): _Use(_SPARE_BYTES, made=True)}
    for study, cells in cells_of.items():
        program = studies.get_study(study)
        datasets = matrix.list_datasets(cells)
        made = {name: program.estimate_made_bytes(data) for name, data in datasets.items()}
        uses[Path("results")].size += sum(made.values())
        for name in {cell.levels["store"] for cell in cells}:
            spec, of_store = config["stores"][name], [cell for cell in cells if cell.levels["store"] == name]
            store = stores.get_store(spec)
            if store.elsewhere or "device" in spec:
                continue
            use = uses.setdefault(Path(spec.get("path", "results")), _Use())
            copied, read = store.has_separate_data, {cell.dataset for cell in of_store if cell.dataset}
            use.size += sum(program.estimate_data_bytes(datasets[data]) for data in read if copied or not made[data])
            use.size += max(program.estimate_disk_bytes(cell.settings) for cell in of_store)
            use.cache |= any(cell.levels.get("cache") in ("cold", "warm") for cell in of_store)
            use.attributes |= store.embedded and store.attributes
            use.made |= bool(read)
    return uses


def _check_folder(folder: Path, use: _Use) -> Iterator[Finding]:
    """Check that a folder is usable: writable, large enough, and with the required page cache and attributes."""
    if amiss := _check_presence(folder, use.made):
        yield f"folder {folder}", False, amiss
        return
    try:
        folder.mkdir(exist_ok=True)
        kind = host.find_mount(folder)["file_system"]
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".preflight-") as file:
            file.write(os.urandom(1 << 20))
            file.flush()
            yield f"{folder} writable", True, kind
            if use.cache:
                yield _run_check(f"{folder} page cache", partial(_test_cache_state, Path(file.name), kind))
            if use.attributes:
                yield _run_check(f"{folder} attributes", partial(_test_attributes, Path(file.name), kind))
    except OSError as error:
        yield f"{folder} writable", False, f"{error.strerror}; make it writable or name another folder"
        return
    free = shutil.disk_usage(folder).free
    remedy = "" if free >= use.size else "; free disk space or make the data smaller"
    yield f"{folder} free", free >= use.size, f"{free / 2**30:.1f} GiB, {use.size / 2**30:.1f} needed{remedy}"


def _check_presence(folder: Path, made: bool) -> str:
    if folder.exists() and not folder.is_dir():
        return "is a file, not a folder; move it, or correct the store's path"
    if made and not folder.absolute().parent.is_dir():
        return f"{folder.parent} does not exist; mount it, or correct the store's path"
    return "" if made or folder.is_dir() else "no such folder; mount the volume there, or correct the store's path"


def _test_cache_state(path: Path, kind: str) -> str:
    cold, warm = (page_cache.set_cache_state(state, [path])["state"] for state in ("cold", "warm"))
    if (cold, warm) != ("cold", "warm"):
        raise Problem(f"cold gives {cold}, warm gives {warm} on {kind}; expect unverified or invalid cells there")
    return f"cold and warm states work, and can be verified, on {kind}"


def _test_attributes(path: Path, kind: str) -> str:
    try:
        os.setxattr(path, "user.preflight", b"1")
    except OSError as error:
        raise Problem(
            f"{kind} does not support user attributes ({error.strerror}), which the embedded server needs;"
            " put the clone on another file system"
        ) from error
    return "user attributes work (the embedded server needs them)"


def _run_check(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, True, look()
    except Problem as problem:
        return what, False, str(problem)
