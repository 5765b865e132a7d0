"""Define the store for an S3 bucket, either of a service or of an embedded versitygw server."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.probe.program import Problem
from sbench.stores.embedded import Served, Server, StatsD
from sbench.stores.s3 import ENDPOINT, KEYS
from sbench.stores.store import PLAIN, ObjectStore

if TYPE_CHECKING:
    import obstore.store

# Up to this number of objects, their versions are requested individually instead of from a listing.
_FEW = 10
# The ETag of files that were not uploaded, for clients that require one.
_NO_ETAG = "0" * 32


class S3(ObjectStore):
    """A bucket of AWS, of another S3 service or of an embedded versitygw."""

    served_by, attributes = "versitygw", True
    service = server = "S3"
    holder = "bucket"
    speaks_s3 = True
    emulated = ("an S3 server", "AWS or another service")

    @property
    def billed_service(self) -> str:
        """The value "s3" for buckets of AWS; an empty string for other services, whose prices are unknown."""
        return "s3" if self.elsewhere and not self.spec.get("endpoint") else ""

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Open the objects under a prefix with obstore."""
        from obstore.store import S3Store

        credentials = dict(zip(("access_key_id", "secret_access_key"), map(os.environ.get, KEYS), strict=True))
        service = {"region": self.spec["region"], "endpoint": os.environ.get(ENDPOINT)} | credentials
        given = {key: value for key, value in service.items() if value}
        return S3Store(self.spec["bucket"], prefix=prefix, **given, **PLAIN)

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment variables that configure an HSDS node to store its objects in the bucket."""
        keys = {name: os.environ[name] for name in KEYS if name in os.environ}
        region = self.spec["region"]
        gateway = os.environ.get(ENDPOINT, f"https://s3.{region}.amazonaws.com")
        return keys | {"AWS_S3_GATEWAY": gateway, "AWS_REGION": region, "BUCKET_NAME": self.spec["bucket"]}

    def create_server(self, binaries: dict, folder: Path) -> Server:
        """Describe a versitygw server for `folder`, whose subfolders are the buckets.

        The setting `sidecar` is a folder for the metadata of objects, instead of attributes of their files. Links to
        folders are then buckets, too.
        """
        keys = {"access_key": "benchmark", "secret_key": secrets.token_hex(20)}
        counter = StatsD()
        sidecar = (
            ["--sidecar", self.spec["sidecar"], "--bucketlinks", "--default-etag", _NO_ETAG]
            if "sidecar" in self.spec
            else []
        )

        def command(port: int) -> list[str]:
            return [
                *(binaries["versitygw"], "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"),
                *("--metrics-statsd-servers", counter.address, "--metrics-service-name", "store"),
                *("posix", *sidecar, str(folder)),
            ]

        env = {"ROOT_ACCESS_KEY": keys["access_key"], "ROOT_SECRET_KEY": keys["secret_key"]}
        return Server("versitygw", command, counter, env, keys)

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """Return the path of each object's file; versitygw stores one file per object."""
        return [folder / self.spec["bucket"] / name for name in names]

    def list_objects(self, prefix: str, keys: Sequence[str] = (), below: bool = True) -> dict[str, tuple[int, dict]]:
        """List objects with their sizes and versions; see `client.list_objects`.

        Args:
            prefix: key prefix.
            keys: keys of the objects; if empty, all objects under `prefix` are listed.
            below: whether to include objects in subfolders; if False, a subfolder is an entry with a trailing slash.

        Returns:
            {key: (bytes, version)}.

        Raises:
            Problem: the bucket cannot be listed, or a key is missing.
        """
        return self._load_module("client").list_objects(self.spec, prefix, keys, below)

    def list_replaced_files(self, files: list[dict], location: dict, env: Mapping[str, str]) -> list[str]:
        """List the keys of the user's objects that are read in place and have changed in size or version."""
        in_place = [entry for entry in files if entry.keys() & {"etag", "modified"}]
        if not in_place:
            return super().list_replaced_files(files, location, env)
        named = {f"{location['key']}/{entry['name']}".lstrip("/"): entry for entry in in_place}
        try:
            # Permission to read objects does not imply permission to list them.
            there = self.list_objects(location["key"], list(named) if len(named) <= _FEW else [])
        except Problem:
            there = self.list_objects("", list(named))
        return [key for key, entry in named.items() if not _is_same(entry, *there.get(key, (-1, {})))]

    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the bucket's URL, and `env` with the credentials, endpoint and region added."""
        if served:
            endpoint, variables = served.endpoint, dict(zip(KEYS, served.credentials.values(), strict=True))
        else:
            from sbench.stores.s3 import client

            endpoint, variables = self.spec.get("endpoint"), client.load_credential_variables(self.spec)
        if endpoint:
            variables[ENDPOINT] = endpoint
            url = f"{endpoint}/{self.spec['bucket']}"
        else:
            url = f"https://{self.spec['bucket']}.s3.{self.spec['region']}.amazonaws.com"
        return url, env | variables | {"AWS_REGION": self.spec["region"]}


def _is_same(entry: dict, size: int, version: dict) -> bool:
    """Return whether an object has the size and version of its manifest entry.

    Only version fields known to both are compared, because responses may lack fields that listings have.
    """
    shared = [key for key in entry.keys() & version.keys() if entry[key] and version[key]]
    return entry["bytes"] == size and all(entry[key] == version[key] for key in shared)


KINDS = {"s3": S3}
