"""Builds one library under test, or finds it in the cache, and writes which interpreter has it."""

import argparse
from pathlib import Path

from scripts.building.environments import provide_library
from scripts.lib.program import json_object, run, write_json


def main(argv: list[str] | None = None) -> int:
    """Provide the library that the arguments name and write its environment artefact; return 0.

    Raises:
        Problem: the specification is wrong, something is missing, or a build failed.
    """
    parser = argparse.ArgumentParser(prog="python -m scripts.build_library", description=__doc__)
    parser.add_argument("--library", required=True, metavar="NAME", help="the library's name in the configuration")
    parser.add_argument(
        "--spec",
        required=True,
        type=json_object,
        metavar="JSON",
        help="kind (wheel, source or conda), hdf5 (version) and, for source, from (auto, tarball, crate or a path);"
        ' such as \'{"kind": "source", "hdf5": "2.0.0"}\'',
    )
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="the artefact to write (JSON)")
    args = parser.parse_args(argv)
    write_json(args.out, provide_library(args.library, args.spec))
    return 0


if __name__ == "__main__":
    run(main)
