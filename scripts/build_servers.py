"""Build the servers of embedded stores, or find them in the cache, and write their paths."""

import argparse
from pathlib import Path

from sbench.build.servers import SERVERS, provide_servers
from sbench.probe.program import run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Provide the servers and write their artefact; return 0."""
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
