"""Describe the order of reads, which determines requests and bytes: object by object, dataset by dataset."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

# Number of objects and of reads to list; the manifest has all.
_SHOWN = 4


def list_pairs(manifest: Mapping, access: str, object_id: str) -> list[tuple[str, str]]:
    """Return the (shot or file, signal or dataset) pairs of an object in the order of reading."""
    objects = manifest["objects"]
    if access in ("shots", "files"):
        return [(object_id, signal) for signal in objects[object_id]]
    # A user's dataset is a pattern, which matches several paths in each file.
    paths = manifest["datasets"][object_id] if access == "datasets" else [object_id]
    return [(shot, path) for shot, held in objects.items() for path in paths if path in held]


def describe_order(manifest: Mapping, access: str, objects: Sequence[str]) -> dict:
    """Describe the order in which a single worker reads objects.

    Returns:
        access, objects, objects_count: the level, the first objects, and the number of all.
        first, reads: file and dataset of the first reads, and the number of all.
        sha256: hash of all reads in order.
    """
    reads = [read for object_id in objects for read in _iter_reads(manifest, access, object_id)]
    hashed = hashlib.sha256("\n".join("\t".join(read) for read in reads).encode("utf-8", "surrogateescape"))
    return {
        **{"access": access, "objects": list(objects[:_SHOWN]), "objects_count": len(objects)},
        **{"first": [read[:2] for read in reads[:_SHOWN]], "reads": len(reads), "sha256": hashed.hexdigest()},
    }


def _iter_reads(manifest: Mapping, access: str, object_id: str) -> Iterator[list[str]]:
    """Yield file, dataset and place of each read of an object, file by file, because a file is opened once."""
    of_files: dict[str, list[list[str]]] = {}
    for shot, signal in list_pairs(manifest, access, object_id):
        entry = manifest["objects"][shot][signal]
        rows = ([entry["file"], path, str(where)] for path, _, _, *where in entry["datasets"])
        of_files.setdefault(entry["file"], []).extend(rows)
    for of_file in of_files.values():
        yield from of_file
