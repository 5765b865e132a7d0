"""Read S3 objects with h5py through Python file objects, from s3fs or from remfile with a presigned URL."""

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sbench.drivers import DEFAULT, LINKS, WITHIN, Access, Driver, format_read_cache, native
from sbench.probe import sizes
from sbench.stores.s3 import ENDPOINT

if TYPE_CHECKING:
    import io

    import s3fs

_VALID_S = 12 * 3600
# fsspec's cache types that a configuration may choose.
READ_CACHES = ("none", "readahead", "blockcache", "bytes")


class _FileObject(Driver):
    """Base class for drivers that pass a Python file object to h5py.

    HDF5 would also read this object in place of any other file that the first file refers to.
    """

    def supports_need(self, need: str, address: str) -> bool:
        return need in (WITHIN, LINKS)


class _S3FS(_FileObject):
    """h5py over s3fs, with one S3 client per process (s3fs's default).

    The read cache is fsspec's; by default it reads ahead 50 MiB.
    """

    s3 = True
    needs = ("s3fs",)
    libraries = ("s3fs", "fsspec", "aiobotocore")
    page_buffers = chunk_caches = True
    read_caches = READ_CACHES

    def open(self, address: str, access: Access) -> native.File:
        return _File(open_s3_file(address, access), access)


class _RemFile(_FileObject):
    """h5py over remfile, with its disk cache off. remfile supports only HTTP, so private objects need a presigned URL.

    To learn a file's size, remfile requests the whole file and disconnects. A server counts this as offered bytes.
    """

    s3 = True
    needs = ("remfile", "botocore")
    libraries = ("remfile", "requests", "urllib3", "botocore.auth")
    page_buffers = chunk_caches = True

    def open(self, address: str, access: Access) -> native.File:
        import remfile

        return _File(remfile.File(_sign_address(address, access)), access)


class _File(native.File):
    def __init__(self, source: "io.IOBase", access: Access) -> None:
        from h5py import h5fd

        plist = native.build_access_list(access)
        plist.set_fileobj_driver(h5fd.fileobj_driver, source)
        self._source = source
        super().__init__(repr(source), plist)

    def read_settings(self) -> dict:
        effective = super().read_settings()
        return effective | get_source_settings(self._source, effective["driver"])

    def close(self) -> None:
        super().close()
        self._source.close()


def get_source_settings(source: "io.IOBase", driver: str = "fileobj") -> dict:
    """Return the reading library and cache settings of a Python file object that is passed to h5py.

    Returns:
        {"driver", "read_cache"}. "driver" is the object's library, or `driver` if HDF5 uses another driver than
        "fileobj". "read_cache" is present if the object has a cache.
    """
    library = type(source).__module__.partition(".")[0]
    effective = {"driver": library if driver == "fileobj" else driver}
    if (cache := getattr(source, "cache", None)) is not None:
        effective["read_cache"] = "none" if cache.name == "none" else format_read_cache(cache.name, cache.blocksize)
    return effective


def open_s3_file(address: str, access: Access) -> "s3fs.S3File":
    """Open an S3 object with s3fs, with the read cache in `access`."""
    kind, _, size = access.read_cache.partition("-")
    options = {} if kind == DEFAULT else {"cache_type": kind}
    if size:
        options["block_size"] = sizes.parse_size(size)
    return build_filesystem(access).open(parse_place(address, access), "rb", **options)


def open_source(address: str, access: Access) -> "io.IOBase":
    """Open the file at a path, or the S3 object at a URL with s3fs."""
    return open_s3_file(address, access) if "://" in address else open(address, "rb")


def build_filesystem(access: Access) -> "s3fs.S3FileSystem":
    """Return an s3fs file system for a store, with credentials and endpoint from the environment.

    s3fs caches its file systems, so that all calls in a process with the same settings return the same object.
    """
    import s3fs

    return s3fs.S3FileSystem(**build_s3fs_settings(access))


def build_s3fs_settings(access: Access) -> dict:
    """Build the arguments of `s3fs.S3FileSystem`. Credentials and endpoint come from environment variables."""
    key, secret, token = native.get_credentials(access.store)
    settings = {"anon": access.store["anonymous"], "client_kwargs": {"region_name": access.store["region"]}}
    if key:
        settings |= {"key": key, "secret": secret, "token": token or None}
    if endpoint := os.environ.get(ENDPOINT):
        settings |= {"endpoint_url": endpoint, "config_kwargs": {"s3": {"addressing_style": "path"}}}
    return settings


def parse_place(address: str, access: Access) -> str:
    """Convert an S3 object's URL to "bucket/key"."""
    if endpoint := os.environ.get(ENDPOINT):
        return unquote(address.removeprefix(f"{endpoint}/"))
    return f"{access.store['bucket']}/{unquote(address.partition('://')[2].partition('/')[2])}"


def _sign_address(address: str, access: Access) -> str:
    key, secret, token = native.get_credentials(access.store)
    if not key:
        return address
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request, owner = AWSRequest("GET", address), Credentials(key, secret, token or None)
    S3SigV4QueryAuth(owner, "s3", access.store["region"], _VALID_S).add_auth(request)
    return request.url


DRIVERS = {"s3fs": _S3FS(), "remfile": _RemFile()}
