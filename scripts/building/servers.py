"""Builds the embedded stores' servers with a Go toolchain of its own, and leaves nothing of Go behind."""

import os
import platform
import re
from pathlib import Path

from scripts.building.cache import Recipe, file_digest, provide
from scripts.building.shell import Workshop, make_environment
from scripts.building.sources import ENVS
from scripts.lib.program import Problem

# The program's name here -> its package, and its module in envs/servers/go.mod.
PROGRAMS = {
    "versitygw": ("github.com/versity/versitygw/cmd/versitygw", "github.com/versity/versitygw"),
    "toxiproxy": ("github.com/Shopify/toxiproxy/v2/cmd/server", "github.com/Shopify/toxiproxy/v2"),
}

MODULE = ENVS / "servers"


def provide_servers() -> dict:
    """Return the artefact that says where the servers' programs are, built now if the cache does not have them.

    Raises:
        Problem: a step of the build failed (modules cannot be fetched, disk full …).
    """
    inputs = {
        "go.mod": file_digest(MODULE / "go.mod"),
        "go.sum": file_digest(MODULE / "go.sum"),
        "go": file_digest(ENVS / "go.lock"),
        "machine": platform.machine(),
    }
    piece = provide(Recipe("servers", inputs, _build, tuple(PROGRAMS)))
    build = {
        "inputs_sha256": piece.key,
        "seconds": piece.seconds,
        "cpu_seconds": piece.cpu_seconds,
        "cached": piece.cached,
    }
    places = {name: str(piece.folder / name) for name in PROGRAMS}
    return {"status": "done", **places, "versions": piece.facts["versions"], "build": build}


def _build(folder: Path, workshop: Workshop) -> dict:
    make_environment(workshop, workshop.work / "go", ENVS / "go.lock")
    variables = go_variables(workshop.work)
    go = workshop.work / "go" / "bin" / "go"
    for name, (package, _) in PROGRAMS.items():
        flags = ("-trimpath", "-ldflags=-s -w", "-o", folder / name)
        workshop.run(f"compile {name}", go, "build", *flags, package, cwd=MODULE, **variables)
    for name, flag in (("versitygw", "--version"), ("toxiproxy", "-version")):
        workshop.run(f"start {name}", folder / name, flag)
    return {"versions": pinned_versions()}


def go_variables(work: Path) -> dict[str, str]:
    """Return what makes Go read the user's settings, write within `work` only and take exactly the pinned modules."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    return {
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
    }


def pinned_versions() -> dict[str, str]:
    """Return the servers' versions in envs/servers/go.mod.

    Raises:
        Problem: one of them is not required there.
    """
    text = (MODULE / "go.mod").read_text(encoding="utf-8")
    versions = {}
    for name, (_, module) in PROGRAMS.items():
        found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} v(\S+)", text, re.MULTILINE)
        if not found:
            raise Problem(f"{MODULE / 'go.mod'} does not require {module}; restore the file")
        versions[name] = found[1]
    return versions
