"""Claims of the field: a module per claim of config/claims, with the function that judges it (CONTRIBUTING.md)."""

import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py


def compute_checksum(*values: bytes | memoryview) -> str:
    """Return a short digest of the values that an arm has read, to compare the arms."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value)
    return digest.hexdigest()[:16]


def build_url(key: str, scheme: str = "s3") -> str:
    """Return the URL of an object in the bucket of the claims: s3://bucket/key, or with another scheme http://…/key."""
    return f"s3://{os.environ['SBENCH_BUCKET']}/{key}" if scheme == "s3" else f"{os.environ['SBENCH_URL']}/{key}"


def open_ros3(key: str, page_buffer: int = -1, rdcc_nbytes: int = 2**20) -> "h5py.File":
    """Open an object in the bucket of the claims with HDF5's driver ROS3, without credentials.

    Args:
        key: key of the object.
        page_buffer: size of HDF5's page buffer in bytes, or -1 for the library's default.
        rdcc_nbytes: size of each dataset's chunk cache in bytes.
    """
    import h5py

    from sbench.drivers import Access
    from sbench.drivers.native import build_access_list

    plist = build_access_list(Access("ros3", page_buffer, rdcc_nbytes))
    plist.set_fapl_ros3(os.environ["AWS_REGION"].encode(), b"", b"")
    return h5py.File(h5py.h5f.open(build_url(key, "http").encode(), h5py.h5f.ACC_RDONLY, plist))


def walk_file(file: "h5py.File", passes: int = 1) -> str:
    """Visit all objects of a file and read their attributes, and return a checksum of names, shapes and attributes.

    Args:
        file: the open file.
        passes: 1 to read the attributes of an object when it is visited, 2 to read all attributes after the visit.
    """
    rows: list[tuple] = []
    items: list[tuple] = []

    def describe(name: str, item: "h5py.HLObject") -> None:
        rows.append((name, getattr(item, "shape", None), dict(item.attrs)))

    # `append` returns None, so the visit continues.
    file.visititems(describe if passes == 1 else lambda *entry: items.append(entry))
    for entry in items:
        describe(*entry)
    return compute_checksum(repr(rows).encode())
