"""Read the data of a study once before the first measurement, so that no cell is the first to read them."""

import argparse
import sys
from pathlib import Path

from sbench.probe import page_cache
from sbench.probe.program import read_json, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Read the data on this machine; failed provisions are ignored here and reported by the cells that need them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provisions", nargs="*", type=Path, default=[], help="artefacts of the data in their stores")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    arguments = parser.parse_args(argv)
    read = {}
    for path in arguments.provisions:
        artefact = read_json(path)
        if artefact["status"] == "done":
            read[str(path)] = page_cache.load_files(artefact["local_files"])
            print(f"read {read[str(path)]} bytes for {path}", file=sys.stderr)
    write_json(arguments.out, {"status": "done", "bytes_read": read})
    return 0


if __name__ == "__main__":
    run_main(main)
