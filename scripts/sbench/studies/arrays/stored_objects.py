"""Objects of a store, or files of a folder, through obstore: Zarr's chunks, and what a service has stored."""

from collections.abc import Mapping

import obstore
from obstore.store import LocalStore, ObjectStore

from sbench.stores import store as stores


def open_store(place: Mapping[str, str], spec: Mapping) -> ObjectStore:
    """Return the objects of a place: {"folder"}, or {"prefix"} in the store of a configuration's entry.

    Raises:
        Problem: the credentials in the environment are not of a kind that all backends take.
    """
    if "folder" in place:
        return LocalStore(place["folder"], mkdir=True)
    return stores.get_store(spec).open_objects(place["prefix"])


def read_object(store: ObjectStore, key: str) -> bytes:
    """Return what an object holds; nothing where there is none."""
    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return b""


def count_objects(store: ObjectStore, prefix: str = "") -> tuple[int, int]:
    """Return how many objects lie below a prefix, and their bytes."""
    sizes = [entry["size"] for entries in obstore.list(store, prefix) for entry in entries]
    return len(sizes), sum(sizes)


def remove_objects(store: ObjectStore, prefix: str = "") -> None:
    """Remove all objects below a prefix."""
    for entries in obstore.list(store, prefix):
        obstore.delete(store, [entry["path"] for entry in entries])
