"""Build a library under test unless it is in the cache, and write the path of its interpreter."""

import argparse
from pathlib import Path

from sbench.build.cache import set_build_copy
from sbench.build.environments import provide_library
from sbench.probe.program import Problem, parse_json_object, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Build or find the library that the arguments specify, write its environment artefact, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="the library's name in the configuration")
    parser.add_argument("--spec", required=True, type=_parse_library, help="its entry there, JSON")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    args = parser.parse_args(argv)
    with set_build_copy(args.spec.get("copy", "")):
        write_json(args.out, provide_library(args.library, args.spec))
    return 0


def _parse_library(text: str) -> dict:
    """Parse and validate a library's configuration entry, because arguments are not checked by a schema."""
    spec = parse_json_object(text)
    kinds = {"wheel", "source", "conda", "python"}
    needs = ("hdf5", "python") if spec.get("kind") == "python" else ("hdf5",)
    texts = (*map(spec.get, needs), *(value for key, value in spec.items() if key != "with"))
    named = all(isinstance(value, str) for value in texts) and isinstance(spec.get("with", []), list)
    if not named or spec.get("kind") not in kinds:
        given = f"kind ({', '.join(sorted(kinds))}) and {' and '.join(needs)}"
        raise Problem(f"--spec must have {given}, all as strings (got {text})")
    return spec


if __name__ == "__main__":
    run_main(main)
