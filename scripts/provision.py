"""Copy a dataset to a store, verify it there, and record its location for the programs that measure it.

A posix store without a path uses files where they were generated. Objects generated during the upload (manifest entries
with `content`) are not written to a local disk, except in a posix store or an embedded server.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from sbench.probe import sizes
from sbench.probe.program import Problem, compute_file_digest, parse_json_object, read_json, run_main, write_json
from sbench.stores import store as stores


def main(argv: list[str] | None = None) -> int:
    """Provide the dataset and write the artefact with its location."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--store", required=True, type=parse_json_object, help="the store's entry in the configuration, JSON"
    )
    parser.add_argument("--manifest", required=True, type=Path, help="manifest of the dataset")
    parser.add_argument("--servers", nargs="?", type=Path, help="artefact of build_servers, for an embedded server")
    parser.add_argument("--folder", required=True, type=Path, help="folder for the workflow's files of the store")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    arguments = parser.parse_args(argv)
    manifest = read_json(arguments.manifest)
    if "data_sha256" not in manifest:
        raise Problem(f"{arguments.manifest} is from an earlier version; remove it and run again")
    parts = {"part_bytes": sizes.parse_size(manifest["part_size"])} if "part_size" in manifest else {}
    files = []
    for entry in manifest["files"]:
        # Files without `content` were generated earlier or belong to the user.
        made = "content" in entry or "in_place" in manifest
        path = None if made else Path(entry.get("path", arguments.manifest.parent / entry["name"]))
        if path and not path.exists():
            raise Problem(f"{path} is gone; remove {arguments.manifest} and run again")
        files.append((entry | parts, path))
    say = partial(print, file=sys.stderr, flush=True)
    store = stores.get_store(arguments.store)
    if "in_place" in manifest:
        artefact = {"location": {"key": manifest["in_place"]}, "local_files": [], "folder": None}
    else:
        if store.has_separate_data:
            # Files that are read in place have not been read completely, and thus not hashed, until now.
            files = [
                (
                    entry if "content" in entry or "sha256" in entry else entry | {"sha256": compute_file_digest(path)},
                    path,
                )
                for entry, path in files
            ]
        artefact = store.provide_dataset(manifest["dataset"], files, arguments.folder, arguments.servers, say)
    head = {"provision": 1, "status": "done", "manifest": str(arguments.manifest)}
    write_json(arguments.out, artefact | head | {name: manifest[name] for name in ("dataset", "data_sha256")})
    return 0


if __name__ == "__main__":
    run_main(main)
