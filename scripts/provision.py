"""Brings a data set into a store and verifies it there; says where measuring programs find it.

A posix store without a path reads files where they were generated. Object stores get them through their API: HDF5 2.x
refuses objects that were put into a server's folder by hand. Objects that are made as they are sent (entries with
`content`) lie on no disk of this machine, but that of a posix store or of an embedded server.
"""

import argparse
import contextlib
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.lib.program import Problem, json_object, read_json, run, sync, write_json
from scripts.stores import addresses, azure, azure_data, s3, servers, transfer


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
    files = [(entry, _local(entry, arguments.manifest.parent)) for entry in manifest["files"]]
    if gone := [path for _, path in files if path and not path.exists()]:
        raise Problem(f"{gone[0]} is gone; remove {arguments.manifest} and run again")
    if "data_sha256" not in manifest:
        raise Problem(f"{arguments.manifest} was written by an earlier version; remove it and run again")
    provide = {"posix": _posix, "s3": _s3, "azure-blob": _azure_blob, "azure-files": _azure_files}
    artefact = provide[arguments.store["kind"]](arguments.store, manifest["dataset"], files, arguments)
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


def _posix(store: dict, dataset: str, files: list[transfer.File], arguments: argparse.Namespace) -> dict:
    made = any(path is None for _, path in files)
    if "path" not in store and not made:
        folders = {path.parent for _, path in files}
        if len(folders) != 1:
            raise Problem(f"the files of {dataset} lie in several folders; put them into one")
        return {"location": {"folder": str(folders.pop())}, "local_files": [str(path) for _, path in files]}
    folder = Path(store["path"]) / dataset if "path" in store else arguments.manifest.parent / "objects"
    if "path" in store and not (above := Path(store["path"]).absolute().parent).is_dir():
        # Else a file system that is not mounted would be measured by the disk beneath it.
        raise Problem(f"there is no {above}; mount the file system, or correct the store's path")
    for entry, path in files:
        target = folder / entry["name"]
        if target.exists() and target.stat().st_size == entry["bytes"] and _sha256(target) == entry["sha256"]:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            with transfer.opened(entry, path) as source, open(part, "wb") as copy:
                shutil.copyfileobj(source, copy, transfer.READ_BYTES)
            sync(part)
            part.replace(target)
        except OSError as error:
            raise Problem(
                f"{target} cannot be written: {error.strerror}; correct the store's path or free its disk"
            ) from error
        if _sha256(target) != entry["sha256"]:
            raise Problem(f"{target} reads back differently than it was written")
        _say(f"{'made' if path is None else 'copied'} {target}")
    return {"location": {"folder": str(folder)}, "local_files": [str(folder / entry["name"]) for entry, _ in files]}


def _s3(store: dict, dataset: str, files: list[transfer.File], arguments: argparse.Namespace) -> dict:
    embedded = store.get("server") == "embedded"
    with contextlib.ExitStack() as stack:
        endpoint, credentials = store.get("endpoint"), None
        if embedded:
            binaries = read_json(arguments.servers)
            served = stack.enter_context(servers.s3(binaries, arguments.folder, None, sys.stdout))
            endpoint, credentials = served.endpoint, served.credentials
        else:
            s3.environment_credentials(store)
        client = s3.client(store, endpoint, credentials)
        if embedded:
            s3.ensure_bucket(client, store)
        done = transfer.provide(s3.Bucket(client, store, dataset), files, _say)
    local = arguments.folder / store["bucket"] / store["prefix"] / dataset
    return {
        "location": {"dataset": dataset},
        "local_files": [str(local / entry["name"]) for entry, _ in files] if embedded else [],
        "folder": str(arguments.folder) if embedded else None,
        "upload": done,
    }


def _azure_blob(store: dict, dataset: str, files: list[transfer.File], arguments: argparse.Namespace) -> dict:
    artefact = {"location": {"dataset": dataset}, "local_files": [], "folder": None}
    if store.get("server") != "embedded":
        azure.credentials(store)
        done = transfer.provide(azure_data.Container(store, dataset), files, _say)
        return artefact | {"account_url": azure.account_url(store), "upload": done}
    # A folder for each data set: only one server at a time may work in it, and its extents are of this data set alone.
    folder, done = arguments.folder / dataset, None
    if folder.exists():
        with _azurite(store, dataset, folder, arguments.servers) as container:
            if not transfer.lacking(container, files, _say):
                done = {"uploaded": 0, "found": len(files), "retries": container.retries}
    if done is None:
        # Extents of what was replaced stay for a while, and would count as files that are read.
        shutil.rmtree(folder, ignore_errors=True)
        with _azurite(store, dataset, folder, arguments.servers) as container:
            done = transfer.provide(container, files, _say)
    local = [str(path) for path in servers.extents(folder)]
    return artefact | {"local_files": local, "folder": str(folder), "upload": done}


@contextlib.contextmanager
def _azurite(store: dict, dataset: str, folder: Path, binaries: Path) -> Iterator[azure_data.Container]:
    """Serve the blobs of a folder for the length of a `with` block; they are saved when it ends.

    Raises:
        Problem: they could not be saved.
    """
    with servers.azurite(read_json(binaries), folder, None, sys.stdout, patience_s=servers.SAVE_S) as served:
        connection = addresses.connection_string(served.endpoint, served.credentials)
        container = azure_data.Container(store, dataset, connection)
        container.ensure()
        yield container
    if status := served.processes["azurite"].returncode:
        raise Problem(f"Azurite ended with status {status} before it had saved its metadata; run again")


def _azure_files(store: dict, dataset: str, files: list[transfer.File], arguments: argparse.Namespace) -> dict:
    azure.credentials(store)
    done = transfer.provide(azure_data.Share(store, dataset), files, _say)
    account = {"account_url": azure.account_url(store)}
    return {"location": {"dataset": dataset}, "local_files": [], "folder": None, **account, "upload": done}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    run(main)
