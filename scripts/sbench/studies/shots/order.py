"""Describe the order in which objects and datasets are read, which affects the number of requests and bytes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

# Number of objects and of reads to list in the description; the manifest lists all.
_SHOWN = 4


def list_pairs(manifest: Mapping, access: str, object_id: str) -> list[tuple[str, str]]:
    """List what is read for an object, in order: pairs of shot and signal, or of file and dataset."""
    objects = manifest["objects"]
    if access in ("shots", "files"):
        return [(object_id, signal) for signal in objects[object_id]]
    # An object of user files is a path pattern, which may match several datasets in each file.
    paths = manifest["datasets"][object_id] if access == "datasets" else [object_id]
    return [(shot, path) for shot, held in objects.items() for path in paths if path in held]


def describe_order(manifest: Mapping, access: str, objects: Sequence[str]) -> dict:
    """Describe the order in which a single worker reads objects.

    Returns:
        A dict with the following keys:
        access: the level of the factor `access`.
        objects: the first few objects.
        objects_count: the number of all objects.
        first: the file and dataset of the first few reads.
        reads: the number of all reads.
        sha256: a hash of all reads in order.
    """
    reads = [read for object_id in objects for read in _iter_reads(manifest, access, object_id)]
    hashed = hashlib.sha256("\n".join("\t".join(read) for read in reads).encode("utf-8", "surrogateescape"))
    return {
        **{"access": access, "objects": list(objects[:_SHOWN]), "objects_count": len(objects)},
        **{"first": [read[:2] for read in reads[:_SHOWN]], "reads": len(reads), "sha256": hashed.hexdigest()},
    }


def _iter_reads(manifest: Mapping, access: str, object_id: str) -> Iterator[list[str]]:
    """Yield (file, dataset, selected part) for each read of an object. Reads from the same file are consecutive."""
    of_files: dict[str, list[list[str]]] = {}
    for shot, signal in list_pairs(manifest, access, object_id):
        entry = manifest["objects"][shot][signal]
        rows = ([entry["file"], path, str(where)] for path, _, _, *where in entry["datasets"])
        of_files.setdefault(entry["file"], []).extend(rows)
    for of_file in of_files.values():
        yield from of_file
