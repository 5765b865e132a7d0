"""Build the embedded servers unless they are in the cache, and write the paths of their programs."""

import argparse
from pathlib import Path

from sbench.build.servers import SERVERS, provide_servers
from sbench.probe.program import run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Build or find the servers, write their artefact, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    parser.add_argument(
        "--need", nargs="*", default=SERVERS, choices=SERVERS, help="names of the servers to provide (default: all)"
    )
    args = parser.parse_args(argv)
    write_json(args.out, {"status": "done", **provide_servers(args.need)})
    return 0


if __name__ == "__main__":
    run_main(main)
