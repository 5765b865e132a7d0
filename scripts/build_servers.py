"""Builds the embedded stores' servers (versitygw, toxiproxy), or finds them in the cache, and writes where they are."""

import argparse
from pathlib import Path

from scripts.building.servers import provide_servers
from scripts.lib.program import run, write_json


def main(argv: list[str] | None = None) -> int:
    """Provide the servers and write their artefact; return 0.

    Raises:
        Problem: a step of the build failed.
    """
    parser = argparse.ArgumentParser(prog="python -m scripts.build_servers", description=__doc__)
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the artefact to write (JSON)")
    args = parser.parse_args(argv)
    write_json(args.out, provide_servers())
    return 0


if __name__ == "__main__":
    run(main)
