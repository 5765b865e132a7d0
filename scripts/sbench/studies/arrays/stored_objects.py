"""Access objects of a store, or files of a folder, through obstore: Zarr's chunks, and objects of a service."""

from collections.abc import Mapping

import obstore
from obstore.store import LocalStore, ObjectStore

from sbench.stores import store as stores


def open_store(place: Mapping[str, str], spec: Mapping) -> ObjectStore:
    """Open the objects of a place: {"folder"}, or {"prefix"} in the store of a configuration's entry.

    Raises:
        Problem: not all backends support the credentials in the environment.
    """
    if "folder" in place:
        return LocalStore(place["folder"], mkdir=True)
    return stores.get_store(spec).open_objects(place["prefix"])


def read_object(store: ObjectStore, key: str) -> bytes:
    """Return the bytes of an object, empty if it is absent."""
    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return b""


def count_objects(store: ObjectStore, prefix: str = "") -> tuple[int, int]:
    """Return the number and the bytes of the objects below a prefix."""
    sizes = [entry["size"] for entries in obstore.list(store, prefix) for entry in entries]
    return len(sizes), sum(sizes)


def remove_objects(store: ObjectStore, prefix: str = "") -> None:
    """Remove all objects below a prefix."""
    for entries in obstore.list(store, prefix):
        obstore.delete(store, [entry["path"] for entry in entries])
