"""HDF5's own driver for objects of S3: read-only, on libcurl in HDF5 1.14, on aws-c-s3 from 2.0."""

import os
from typing import TYPE_CHECKING

from scripts.lib.program import Problem
from scripts.studies.shots.drivers import Access, Driver, File

if TYPE_CHECKING:
    import h5py

    from scripts.stores.store import Store


class Ros3(Driver):
    """Ranged GETs, signed with the environment's credentials unless the store is anonymous."""

    optional = True

    def reads(self, store: "Store") -> bool:
        """Return whether the store speaks S3."""
        return store.spec["kind"] == "s3"

    def open(self, address: str, access: Access) -> File:
        """Open an object."""
        from scripts.studies.shots import hdf5

        plist = hdf5.access_list(access)
        _set_ros3(plist, access.store["region"], access.store["anonymous"])
        return hdf5.File(address, plist)


def _set_ros3(plist: "h5py.h5p.PropFAID", region: str, anonymous: bool) -> None:
    if not hasattr(plist, "set_fapl_ros3"):
        raise Problem("this library has no ROS3 driver; name a library of kind source")
    key, secret, token = (
        b"" if anonymous else os.environ.get(name, "").encode()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    )
    if not anonymous and not (key and secret):
        raise Problem("no S3 credentials in the environment; set them, or say anonymous: true")
    plist.set_fapl_ros3(region.encode(), key, secret)
    if token:
        plist.set_fapl_ros3_token(token)


DRIVER = Ros3()
