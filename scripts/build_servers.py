"""Builds the embedded stores' servers, or finds them in the cache, and writes where they are."""

import argparse
from pathlib import Path

from scripts.building.azurite import PROGRAM, provide_azurite
from scripts.building.servers import PROGRAMS, provide_servers
from scripts.lib.program import run, write_json

SERVERS = (*PROGRAMS, "azurite")


def main(argv: list[str] | None = None) -> int:
    """Provide the servers and write their artefact; return 0.

    Raises:
        Problem: a step of the build failed.
    """
    parser = argparse.ArgumentParser(prog="python -m scripts.build_servers", description=__doc__)
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the artefact to write (JSON)")
    parser.add_argument("--need", nargs="*", default=SERVERS, choices=SERVERS, help="which of them (default: all)")
    args = parser.parse_args(argv)
    artefact: dict = {"status": "done", "versions": {}, "builds": {}}
    if set(args.need) & set(PROGRAMS):
        compiled = provide_servers()
        artefact |= {name: compiled[name] for name in PROGRAMS}
        artefact["versions"] |= compiled["versions"]
        artefact["builds"]["servers"] = compiled["build"]
    if "azurite" in args.need:
        piece = provide_azurite()
        artefact |= {"node": str(piece.folder / "node"), "azurite": str(piece.folder / PROGRAM)}
        artefact["versions"] |= piece.facts["versions"]
        artefact["builds"]["azurite"] = {
            "inputs_sha256": piece.key,
            "seconds": piece.seconds,
            "cpu_seconds": piece.cpu_seconds,
            "cached": piece.cached,
        }
    write_json(args.out, artefact)
    return 0


if __name__ == "__main__":
    run(main)
