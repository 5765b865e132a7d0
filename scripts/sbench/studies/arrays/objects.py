"""Objects of a store, or files of a folder, through obstore: Zarr's chunks, and what a service has stored."""

import os
from collections.abc import Mapping

import obstore
from obstore.store import AzureStore, LocalStore, ObjectStore, S3Store

from sbench.probe.program import Problem
from sbench.stores import azure, s3

_PLAIN = {"client_options": {"allow_http": True}}


def opened(place: Mapping[str, str], spec: Mapping) -> ObjectStore:
    """Return the objects of a place: {"folder"}, or {"prefix"} in the store of a configuration's entry.

    Raises:
        Problem: the credentials in the environment are not of a kind that all backends take.
    """
    if "folder" in place:
        return LocalStore(place["folder"], mkdir=True)
    if spec["kind"] == "s3":
        credentials = dict(zip(("access_key_id", "secret_access_key"), map(os.environ.get, s3.KEYS), strict=True))
        service = {"region": spec["region"], "endpoint": os.environ.get(s3.ENDPOINT)} | credentials
        given = {key: value for key, value in service.items() if value}
        return S3Store(spec["bucket"], prefix=place["prefix"], **given, **_PLAIN)
    parts = dict(part.split("=", 1) for part in connection_string().split(";") if part)
    account = {"account_name": parts["AccountName"], "account_key": parts["AccountKey"]}
    # An endpoint names the account only where it is not that of the service itself.
    account |= {"endpoint": parts["BlobEndpoint"]} if "BlobEndpoint" in parts else {}
    return AzureStore(spec["container"], prefix=place["prefix"], **account, **_PLAIN)


def connection_string() -> str:
    """Return the connection string of an Azure account, which HSDS needs and Zarr takes, too."""
    if text := os.environ.get(azure.CONNECTION):
        return text
    raise Problem(f"HSDS and Zarr take the credentials of Azure from {azure.CONNECTION}; set it")


def content(store: ObjectStore, key: str) -> bytes:
    """Return what an object holds; nothing where there is none."""
    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return b""


def held(store: ObjectStore, prefix: str = "") -> tuple[int, int]:
    """Return how many objects lie below a prefix, and their bytes."""
    sizes = [entry["size"] for entries in obstore.list(store, prefix) for entry in entries]
    return len(sizes), sum(sizes)


def remove(store: ObjectStore, prefix: str = "") -> None:
    """Remove all objects below a prefix."""
    for entries in obstore.list(store, prefix):
        obstore.delete(store, [entry["path"] for entry in entries])
