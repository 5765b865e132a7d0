"""Brings a generated data set into a store and verifies it there; says where measuring programs find it.

A posix store without a path reads the data where they were generated. An s3 store gets them through its API: HDF5 2.x
refuses objects that were put into a server's folder by hand.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import sys
from pathlib import Path

from scripts.lib.program import Problem, json_object, read_json, run, sync, write_json
from scripts.stores import s3, servers


def main(argv: list[str] | None = None) -> int:
    """Write the provision's artefact."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, type=json_object, help="the store's entry in the configuration, JSON")
    parser.add_argument("--manifest", required=True, type=Path, help="manifest of the data set")
    parser.add_argument("--servers", nargs="?", type=Path, help="artefact of build_servers, for an embedded server")
    parser.add_argument("--folder", required=True, type=Path, help="where an embedded server keeps its files")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    arguments = parser.parse_args(argv)
    manifest = read_json(arguments.manifest)
    files = [(entry, Path(entry.get("path", arguments.manifest.parent / entry["name"]))) for entry in manifest["files"]]
    if gone := [path for _, path in files if not path.exists()]:
        raise Problem(f"{gone[0]} is gone; remove {arguments.manifest} and run again")
    provide = _posix if arguments.store["kind"] == "posix" else _s3
    artefact = provide(arguments.store, manifest["dataset"], files, arguments)
    artefact |= {
        "provision": 1,
        "status": "done",
        "dataset": manifest["dataset"],
        "manifest": str(arguments.manifest),
        "data_sha256": data_sha256(manifest),
    }
    write_json(arguments.out, artefact)
    return 0


def data_sha256(manifest: dict) -> str:
    """Return one hash for all values of a data set, whatever the layout of its files (METHOD 17, not comparable)."""
    lines = [
        json.dumps([shot, signal, entry["datasets"]])
        for shot, signals in sorted(manifest["objects"].items())
        for signal, entry in sorted(signals.items())
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _posix(store: dict, dataset: str, files: list[tuple[dict, Path]], arguments: argparse.Namespace) -> dict:
    if "path" not in store:
        folders = {path.parent for _, path in files}
        if len(folders) != 1:
            raise Problem(f"the files of {dataset} lie in several folders; put them into one")
        return {"location": {"folder": str(folders.pop())}, "local_files": [str(path) for _, path in files]}
    folder = Path(store["path"]) / dataset
    for entry, path in files:
        target = folder / entry["name"]
        if target.exists() and _sha256(target) == entry["sha256"]:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            shutil.copyfile(path, part)
            sync(part)
            part.replace(target)
        except OSError as error:
            raise Problem(
                f"{target} cannot be written: {error.strerror}; correct the store's path or free its disk"
            ) from error
        if _sha256(target) != entry["sha256"]:
            raise Problem(f"{target} reads back differently than it was written")
        print(f"copied {target}", file=sys.stderr)
    return {"location": {"folder": str(folder)}, "local_files": [str(folder / entry["name"]) for entry, _ in files]}


def _s3(store: dict, dataset: str, files: list[tuple[dict, Path]], arguments: argparse.Namespace) -> dict:
    embedded = store.get("server") == "embedded"
    with contextlib.ExitStack() as stack:
        endpoint, credentials = store.get("endpoint"), None
        if embedded:
            binaries = read_json(arguments.servers)
            served = stack.enter_context(servers.s3(binaries, arguments.folder, None, sys.stderr))
            endpoint, credentials = served.endpoint, served.credentials
        else:
            s3.environment_credentials(store)
        client = s3.client(store, endpoint, credentials)
        if embedded:
            s3.ensure_bucket(client, store)
        done = s3.provide(client, store, dataset, files, lambda line: print(line, file=sys.stderr))
    local = arguments.folder / store["bucket"] / store["prefix"] / dataset
    return {
        "location": {"dataset": dataset},
        "local_files": [str(local / entry["name"]) for entry, _ in files] if embedded else [],
        "folder": str(arguments.folder) if embedded else None,
        "upload": done,
    }


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    run(main)
