"""Brings a dataset into a store and verifies it there; says where measuring programs find it.

A posix store without a path reads files where they were generated. Object stores get them through their API: HDF5 2.x
refuses objects that were put into a server's folder by hand. Objects that are made as they are sent (entries with
`content`) lie on no disk of this machine, but that of a posix store or of an embedded server.
"""

import argparse
import sys
from pathlib import Path

from scripts.lib import sizes
from scripts.lib.program import Problem, json_object, read_json, run, write_json
from scripts.stores import store as stores


def main(argv: list[str] | None = None) -> int:
    """Write the provision's artefact."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, type=json_object, help="the store's entry in the configuration, JSON")
    parser.add_argument("--manifest", required=True, type=Path, help="manifest of the dataset")
    parser.add_argument("--servers", nargs="?", type=Path, help="artefact of build_servers, for an embedded server")
    parser.add_argument("--folder", required=True, type=Path, help="where an embedded server keeps its files")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    arguments = parser.parse_args(argv)
    manifest = read_json(arguments.manifest)
    parts = {"part_bytes": sizes.in_bytes(manifest["part_size"])} if "part_size" in manifest else {}
    files = [(entry | parts, _local(entry, arguments.manifest.parent)) for entry in manifest["files"]]
    if gone := [path for _, path in files if path and not path.exists()]:
        raise Problem(f"{gone[0]} is gone; remove {arguments.manifest} and run again")
    if "data_sha256" not in manifest:
        raise Problem(f"{arguments.manifest} was written by an earlier version; remove it and run again")
    place = stores.Place(arguments.manifest.parent, arguments.folder, arguments.servers)
    artefact = stores.of(arguments.store).provide(manifest["dataset"], files, place, _say)
    artefact |= {
        "provision": 1,
        "status": "done",
        "dataset": manifest["dataset"],
        "manifest": str(arguments.manifest),
        "data_sha256": manifest["data_sha256"],
    }
    write_json(arguments.out, artefact)
    return 0


def _local(entry: dict, folder: Path) -> Path | None:
    """Return the file of a manifest's entry; None where the entry says how its content is made."""
    return None if "content" in entry else Path(entry.get("path", folder / entry["name"]))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
