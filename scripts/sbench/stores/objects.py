"""Access objects in an object store, or files in a directory, through obstore."""

from collections.abc import Mapping

import obstore
from obstore.store import LocalStore, ObjectStore

from sbench.stores import store as stores


def open_store(place: Mapping[str, str], spec: Mapping) -> ObjectStore:
    """Open a directory, or a key prefix in an object store.

    Args:
        place: {"folder": path} for a directory, or {"prefix": key prefix} for an object store.
        spec: the object store's entry in the configuration.

    Raises:
        Problem: the credentials in the environment are of a kind that not all backends support.
    """
    if "folder" in place:
        return LocalStore(place["folder"], mkdir=True)
    return stores.get_store(spec).open_objects(place["prefix"])


def read_object(store: ObjectStore, key: str) -> bytes:
    """Return the content of an object, or empty bytes if it does not exist."""
    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return b""


def count_objects(store: ObjectStore, prefix: str = "") -> tuple[int, int]:
    """Return the number of objects under a prefix, and their total size in bytes."""
    sizes = [entry["size"] for entries in obstore.list(store, prefix) for entry in entries]
    return len(sizes), sum(sizes)


def remove_objects(store: ObjectStore, prefix: str = "") -> None:
    """Remove all objects under a prefix."""
    for entries in obstore.list(store, prefix):
        obstore.delete(store, [entry["path"] for entry in entries])
