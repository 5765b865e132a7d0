"""Open files with HDF5's sec2 and ROS3 drivers through h5py, and read back the settings in force (METHOD 10)."""

import ctypes
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.drivers import DEFAULT, IN_PLACE, UNSET, Access, Driver, Unable, Where, format_read_cache
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.stores.s3 import KEYS

if TYPE_CHECKING:
    import h5py
    import numpy as np


# Default total size of HDF5's block cache in bytes (HDF5_ROS3_VFD_DEFAULT_BLOCK_CACHE_SIZE).
_BLOCKS_BYTES = 2**27


class _Sec2(Driver):
    """HDF5's default driver sec2, which reads files of mounted file systems with POSIX calls."""

    files = True
    page_buffers = chunk_caches = True

    def supports_need(self, need: str, address: str) -> bool:
        # HDF5 opens other files of a virtual dataset, or external links, with the same driver.
        return True

    def open(self, address: str, access: Access) -> "File":
        return File(address, build_access_list(access))


class _Ros3(Driver):
    """HDF5's read-only driver ROS3, which sends GET requests for byte ranges to S3.

    Requests are signed with credentials from environment variables, unless the store is anonymous. HDF5 1.14 uses
    libcurl, and HDF5 2.0 and later use aws-c-s3. HDF5 2.2 and later cache blocks of a file, by default 128 MiB in
    blocks of 16 MiB; for a paged file, they cache only the first block. The read cache "none" disables this cache if
    the library has it.
    """

    s3 = True
    optional = True
    page_buffers = chunk_caches = True
    read_caches = ("none", "block")

    def supports_need(self, need: str, address: str) -> bool:
        # HDF5 requests other objects of the bucket in the same way.
        return need != IN_PLACE

    def trusts_system(self, hdf5: str) -> bool:
        # libcurl (before HDF5 2.0) ignores environment variables; s2n, the TLS library of aws-c-s3, uses SSL_CERT_FILE.
        return int(hdf5.partition(".")[0]) < 2

    def open(self, address: str, access: Access) -> "File":
        plist = build_access_list(access)
        if not hasattr(plist, "set_fapl_ros3"):
            raise Problem("this library lacks the ROS3 driver; name a library of kind source")
        key, secret, token = (word.encode() for word in get_credentials(access.store))
        plist.set_fapl_ros3(access.store["region"].encode(), key, secret)
        if token:
            plist.set_fapl_ros3_token(token)
        cache = _BlockCache(plist)
        if access.read_cache != DEFAULT:
            cache.set_level(access.read_cache)
        return _Ros3File(address, plist, cache)


class File:
    """An HDF5 file that is open for reading."""

    def __init__(self, address: str, plist: "h5py.h5p.PropFAID") -> None:
        """Open the file at `address`, a path or URL, with an HDF5 file access property list."""
        import h5py

        self._file = h5py.File(h5py.h5f.open(address.encode(), h5py.h5f.ACC_RDONLY, plist))

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        """Read the values of the dataset at `path`, or of its part `where`."""
        return self._file[path][where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        """Yield the path, shape and attributes of each group and dataset.

        An object with several names is yielded once, with the first of them.
        """
        yield from walk_file(self._file)

    def read_settings(self) -> dict:
        """Return the settings in force for the file, as reported by HDF5.

        Returns:
            {"driver", "page_buffer_bytes", "rdcc_nbytes", "rdcc_nslots", "paged", "page_size"}, with sizes in bytes.
        """
        from h5py import h5f

        plist, creation = self._file.id.get_access_plist(), self._file.id.get_create_plist()
        return {
            "driver": self._file.driver,
            "page_buffer_bytes": plist.get_page_buffer_size()[0],
            **read_chunk_cache(self._file),
            "paged": creation.get_file_space_strategy()[0] == h5f.FSPACE_STRATEGY_PAGE,
            "page_size": creation.get_file_space_page_size(),
        }

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Ros3File(File):
    def __init__(self, address: str, plist: "h5py.h5p.PropFAID", cache: "_BlockCache") -> None:
        self._cache = cache
        super().__init__(address, plist)

    def read_settings(self) -> dict:
        settings, size = super().read_settings(), self._cache.block_bytes
        if size is None:
            return settings
        return settings | {"read_cache": format_read_cache("block", size) if size else "none"}


class _BlockCache:
    """The settings of ROS3's block cache in a file access property list. They require functions that h5py lacks."""

    def __init__(self, plist: "h5py.h5p.PropFAID") -> None:
        from h5py import h5p

        # Symbols of HDF5 are looked up in h5py's extension module and the libraries that it is linked to.
        self._plist, self._library = plist, ctypes.CDLL(h5p.__file__)

    @property
    def block_bytes(self) -> int | None:
        """The block size in bytes: 0 if the cache is disabled, or None if the library does not have this cache."""
        if not (call := getattr(self._library, "H5Pget_fapl_ros3_block_caching", None)):
            return None
        block, total = ctypes.c_size_t(), ctypes.c_size_t()
        if call(ctypes.c_int64(self._plist.id), ctypes.byref(block), ctypes.byref(total), None) < 0:
            raise Problem("HDF5 does not report its block cache")
        return block.value if total.value else 0

    def set_level(self, level: str) -> None:
        """Set the block size, as in "block-4MiB", or disable the cache with "none"."""
        size = sizes.parse_size(level.partition("-")[2] or "0")
        call = getattr(self._library, "H5Pset_fapl_ros3_block_caching", None)
        if call:
            total = ctypes.c_size_t(max(size, _BLOCKS_BYTES))
            if call(ctypes.c_int64(self._plist.id), ctypes.c_size_t(size), total, ctypes.c_bool(True)) < 0:
                raise Problem(f"HDF5 rejects the block cache {level}")
        elif size:
            raise Unable(f"ros3 does not support read cache {level} in this library: HDF5 must be 2.2 or newer")


def read_chunk_cache(file: "h5py.File") -> dict[str, int]:
    """Return the chunk cache settings of an open h5py file: {"rdcc_nbytes", "rdcc_nslots"}."""
    _, slots, nbytes, _ = file.id.get_access_plist().get_cache()
    return {"rdcc_nbytes": nbytes, "rdcc_nslots": slots}


def walk_file(file: "h5py.File") -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
    """Yield the path, shape and attributes of each group and dataset of an open h5py file."""
    import h5py

    from sbench.probe import hdf5_tree

    objects = [file]
    try:
        # `append` returns None, so the visit continues.
        file.visititems(lambda _, item: objects.append(item))
    except UnicodeDecodeError:
        objects = list(_walk_links(file))
    for item in objects:
        if isinstance(item, h5py.Group | h5py.Dataset):
            shape = (item.shape or ()) if isinstance(item, h5py.Dataset) else None
            yield (
                hdf5_tree.to_text(item.name),
                shape,
                {hdf5_tree.to_text(name): _read_attribute(item, name) for name in item.attrs},
            )


def _walk_links(file: "h5py.File") -> Iterator[object]:
    """Yield all groups and datasets of a file, including those whose names `h5py.File.visititems` cannot decode."""
    import h5py

    from sbench.probe import hdf5_tree

    kinds = {h5py.h5g.GroupID: h5py.Group, h5py.h5d.DatasetID: h5py.Dataset}
    for link in hdf5_tree.walk_links(file):
        if link.first and type(link.object) in kinds:
            yield kinds[type(link.object)](link.object)


def _read_attribute(item: object, name: str | bytes) -> object:
    """Return the value of an attribute, or None if h5py cannot read its type."""
    try:
        return item.attrs[name]
    except (TypeError, ValueError, OSError, RuntimeError, KeyError):
        return None


def get_credentials(store: dict) -> tuple[str, str, str]:
    """Return an S3 store's access key, secret key and session token from environment variables.

    The token is an empty string if it is unset. For an anonymous store, all three are empty strings.

    Raises:
        Problem: the access key or the secret key is missing.
    """
    if store["anonymous"]:
        return "", "", ""
    key, secret, token = (os.environ.get(name, "") for name in (*KEYS, "AWS_SESSION_TOKEN"))
    if not (key and secret):
        raise Problem(f"no S3 credentials in the environment; set {' and '.join(KEYS)}, or write anonymous: true")
    return key, secret, token


def build_access_list(access: Access) -> "h5py.h5p.PropFAID":
    """Return an HDF5 file access property list for `access`, with the default driver.

    This uses h5py's low-level API because `h5py.File(page_buf_size=0)` leaves the size unset and cannot request 0.
    """
    from h5py import h5f, h5p

    plist = h5p.create(h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5f.CLOSE_STRONG)
    elements, slots, _, preemption = plist.get_cache()
    plist.set_cache(elements, access.rdcc_nslots or slots, access.rdcc_nbytes, preemption)
    if access.page_buffer != UNSET:
        plist.set_page_buffer_size(access.page_buffer, 0, 0)
    return plist


DRIVERS = {"sec2": _Sec2(), "ros3": _Ros3()}
