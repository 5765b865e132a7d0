"""Looks, before anything is built, whether a run can work here: a line for each thing, with its remedy."""

import argparse
import importlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from scripts.analysis import config as configuration
from scripts.analysis import matrix
from scripts.lib import cache, host
from scripts.lib.program import Problem, run
from scripts.stores import s3

Finding = tuple[str, bool, str]
_SPARE_BYTES = 2 * 2**30


def main(argv: list[str] | None = None) -> int:
    """Print a line for each check; status 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", default="config/config.yaml", help="the configuration (default: %(default)s)")
    config = configuration.load(parser.parse_args(argv).configfile)
    console = Console(highlight=False, soft_wrap=True)
    failed = 0
    for what, fine, detail in findings(config):
        failed += not fine
        console.print(f"[{'green' if fine else 'red'}]{'ok    ' if fine else 'AMISS '}[/] {what}: {detail}")
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
    yield from _disk(config)
    folders = {"results": Path("results")}
    folders |= {f"store {name}": Path(store["path"]) for name, store in config["stores"].items() if "path" in store}
    for name, folder in folders.items():
        yield from _folder(name, folder)
    for name, store in config["stores"].items():
        if store["kind"] == "s3":
            yield from _s3(name, store)


def _tools(config: dict) -> Iterator[Finding]:
    kinds = {library["kind"] for library in config["libraries"].values()}
    if "source" in kinds:
        for tool, package in {"gcc": "gcc", "g++": "g++", "make": "make"}.items():
            found = shutil.which(tool)
            yield f"tool {tool}", bool(found), found or f"apt install {package}, or dnf install {package}"
    if "conda" in kinds:
        found = shutil.which("conda") or shutil.which("mamba")
        yield (
            "tool conda",
            bool(found),
            found or "install conda and call Snakemake with --sdm conda, or use kind: source",
        )


def _disk(config: dict) -> Iterator[Finding]:
    needed = _SPARE_BYTES
    for study in config["studies"]:
        program = importlib.import_module(f"scripts.measure_{study}")
        cells, _ = matrix.expand(config, study)
        embedded = any(cell.settings["store"].get("server") == "embedded" for cell in cells)
        needed += sum(program.data_bytes(data) for data in matrix.datasets(cells).values()) * (2 if embedded else 1)
    free = shutil.disk_usage(".").free
    enough = free >= needed
    yield (
        "free disk",
        enough,
        f"{free / 2**30:.1f} GiB, {needed / 2**30:.1f} needed"
        + ("" if enough else "; free some or make the data smaller"),
    )


def _folder(name: str, folder: Path) -> Iterator[Finding]:
    """Write a file there and see whether its cache state can be set and verified, and whether it takes attributes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".preflight-") as file:
            file.write(os.urandom(1 << 20))
            file.flush()
            yield f"{name} writable", True, str(folder)
            yield _try(f"{name} page cache", lambda: _cache_state(Path(file.name)))
            yield _try(f"{name} attributes", lambda: _attributes(Path(file.name)))
    except OSError as error:
        yield f"{name} writable", False, f"{folder}: {error.strerror}; make it writable or name another folder"


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


def _s3(name: str, store: dict) -> Iterator[Finding]:
    if store.get("server") == "embedded":
        yield f"store {name}", True, "embedded, served on the loopback"
        return
    yield _try(f"store {name} credentials", lambda: _credentials(store))
    yield _try(f"store {name} bucket", lambda: s3.reachable(s3.client(store, store.get("endpoint"), None), store))


def _credentials(store: dict) -> str:
    return "found" if s3.environment_credentials(store) else "anonymous, none needed"


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, True, look()
    except Problem as problem:
        return what, False, str(problem)


if __name__ == "__main__":
    run(main)
