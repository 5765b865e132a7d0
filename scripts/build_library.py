"""Builds one library under test, or finds it in the cache, and writes which interpreter has it."""

import argparse
from pathlib import Path

from scripts.building.environments import provide_library
from scripts.lib.program import json_object, run, write_json


def main(argv: list[str] | None = None) -> int:
    """Provide the library that the arguments name and write its environment artefact; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="the library's name in the configuration")
    parser.add_argument("--spec", required=True, type=json_object, help="its entry there, JSON")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    args = parser.parse_args(argv)
    write_json(args.out, provide_library(args.library, args.spec))
    return 0


if __name__ == "__main__":
    run(main)
