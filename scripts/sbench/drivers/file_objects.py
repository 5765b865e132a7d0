"""Read objects of S3 with h5py over Python file objects: of s3fs, or of remfile with a signed address."""

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
# The kinds of fsspec's caches that users choose.
READ_CACHES = ("none", "readahead", "blockcache", "bytes")


class _FileObject(Driver):
    """Base class for h5py over a Python file object, which HDF5 reads in place of any other file, too."""

    def supports_need(self, need: str, address: str) -> bool:
        return need in (WITHIN, LINKS)


class _S3FS(_FileObject):
    """h5py over s3fs, with fsspec's cache (default: readahead, 50 MiB) and s3fs's default of a client per process."""

    s3 = True
    needs = ("s3fs",)
    libraries = ("s3fs", "fsspec", "aiobotocore")
    page_buffers = chunk_caches = True
    read_caches = READ_CACHES

    def open(self, address: str, access: Access) -> native.File:
        return _File(open_s3_file(address, access), access)


class _RemFile(_FileObject):
    """h5py over remfile, which supports only HTTP: private objects have a signed address. Its disk cache is off.

    It gets a file's size by requesting all of it and disconnecting, which a server counts as offered bytes.
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
    """Return a file object's library as driver, unless HDF5 reads with another driver, and the object's cache."""
    library = type(source).__module__.partition(".")[0]
    effective = {"driver": library if driver == "fileobj" else driver}
    if (cache := getattr(source, "cache", None)) is not None:
        effective["read_cache"] = "none" if cache.name == "none" else format_read_cache(cache.name, cache.blocksize)
    return effective


def open_s3_file(address: str, access: Access) -> "s3fs.S3File":
    """Open an object of S3 as a file of s3fs, with the read cache of `access`."""
    kind, _, size = access.read_cache.partition("-")
    options = {} if kind == DEFAULT else {"cache_type": kind}
    if size:
        options["block_size"] = sizes.parse_size(size)
    return build_filesystem(access).open(parse_place(address, access), "rb", **options)


def open_source(address: str, access: Access) -> "io.IOBase":
    """Open a file of the disk, or an object of S3 as `open_s3_file` does."""
    return open_s3_file(address, access) if "://" in address else open(address, "rb")


def build_filesystem(access: Access) -> "s3fs.S3FileSystem":
    """Return the process's s3fs for a store, with the environment's credentials and endpoint."""
    import s3fs

    return s3fs.S3FileSystem(**build_s3fs_settings(access))


def build_s3fs_settings(access: Access) -> dict:
    """Return s3fs's settings for a store with the environment's credentials and endpoint."""
    key, secret, token = native.get_credentials(access.store)
    settings = {"anon": access.store["anonymous"], "client_kwargs": {"region_name": access.store["region"]}}
    if key:
        settings |= {"key": key, "secret": secret, "token": token or None}
    if endpoint := os.environ.get(ENDPOINT):
        settings |= {"endpoint_url": endpoint, "config_kwargs": {"s3": {"addressing_style": "path"}}}
    return settings


def parse_place(address: str, access: Access) -> str:
    """Return bucket and key of an object's URL, "bucket/key"."""
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
