"""Opening HDF5 files the way a cell asks for, and reading back what the library made of it (METHOD 10)."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py

from scripts.lib.page_buffer import UNSET
from scripts.lib.program import Problem


@dataclass(frozen=True)
class Access:
    """How files are opened.

    Attributes:
        driver: "sec2" or "ros3".
        page_buffer: bytes asked for; UNSET leaves the library's default, which is not the same as 0.
        rdcc_nbytes: chunk cache of each dataset, bytes.
        region: region of the bucket (ros3).
        anonymous: read without credentials (ros3); otherwise they come from the environment.
    """

    driver: str
    page_buffer: int
    rdcc_nbytes: int
    region: str = "us-east-1"
    anonymous: bool = False


def versions() -> dict:
    """Return what this interpreter's library is: {"hdf5", "h5py", "numpy", "python", "ros3"}."""
    return {
        "hdf5": h5py.version.hdf5_version,
        "h5py": h5py.version.version,
        "numpy": sys.modules["numpy"].__version__,
        "python": sys.version.split()[0],
        "ros3": bool(h5py.get_config().ros3),
    }


def access_list(access: Access) -> h5py.h5p.PropFAID:
    """Return HDF5's file access property list for `access`.

    The low-level list is used because `h5py.File(page_buf_size=0)` means "unset": only here can 0 be asked for.
    """
    plist = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    elements, slots, _, preemption = plist.get_cache()
    plist.set_cache(elements, slots, access.rdcc_nbytes, preemption)
    if access.page_buffer != UNSET:
        plist.set_page_buffer_size(access.page_buffer, 0, 0)
    if access.driver == "ros3":
        _set_ros3(plist, access)
    return plist


def open_file(address: str, plist: h5py.h5p.PropFAID) -> h5py.File:
    """Open the file at `address` (a path or a URL) for reading, with an access list made by `access_list`."""
    return h5py.File(h5py.h5f.open(address.encode(), h5py.h5f.ACC_RDONLY, plist))


def effective(file: h5py.File) -> dict:
    """Return what holds for an open file, as the library and the file tell it.

    {"page_buffer_bytes", "rdcc_nbytes", "rdcc_nslots", "paged", "page_size", "driver"}; sizes in bytes.
    """
    plist = file.id.get_access_plist()
    creation = file.id.get_create_plist()
    strategy = creation.get_file_space_strategy()[0]
    _, slots, nbytes, _ = plist.get_cache()
    return {
        "driver": file.driver,
        "page_buffer_bytes": plist.get_page_buffer_size()[0],
        "rdcc_nbytes": nbytes,
        "rdcc_nslots": slots,
        "paged": strategy == h5py.h5f.FSPACE_STRATEGY_PAGE,
        "page_size": creation.get_file_space_page_size(),
    }


def _set_ros3(plist: h5py.h5p.PropFAID, access: Access) -> None:
    if not hasattr(plist, "set_fapl_ros3"):
        raise Problem("this library has no ROS3 driver; name a library of kind source")
    key, secret, token = (
        b"" if access.anonymous else os.environ.get(name, "").encode()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    )
    if not access.anonymous and not (key and secret):
        raise Problem("no S3 credentials in the environment; set them, or say anonymous: true")
    plist.set_fapl_ros3(access.region.encode(), key, secret)
    if token:
        plist.set_fapl_ros3_token(token)


def address_of(location: dict, name: str) -> str:
    """Return the path or URL of the file `name` at a location: {"folder"} or {"url"}."""
    return f"{location['url']}/{name}" if "url" in location else str(Path(location["folder"]) / name)
