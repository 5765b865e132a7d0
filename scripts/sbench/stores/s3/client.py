"""Connect to S3: credentials, presigned URLs, listings, one-line error messages, and uploads of datasets."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import BinaryIO

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
)
from botocore.parsers import ResponseParserError

from sbench.probe.program import Problem
from sbench.stores import transfer
from sbench.stores.bare import VALID_S, Address
from sbench.stores.reading import Absent, Denied
from sbench.stores.s3 import ENDPOINT, KEYS

_NO_CREDENTIALS = (
    "no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, configure an AWS profile,"
    " or write anonymous: true"
)
_CORRECT_REGION = "correct region in the configuration, or AWS_REGION"
_OF_ANOTHER_REGION = ("AuthorizationHeaderMalformed", "PermanentRedirect", "301", "IllegalLocationConstraintException")
NO_RANGE = ("InvalidRange", "416")
_LOG_IN = "log in again: the session has expired"
_REMEDIES = {
    "NoSuchBucket": "create the bucket, or correct its name",
    "InvalidBucketName": "correct the bucket's name",
    "NoSuchKey": "the object no longer exists: remove the artefact of its provisioning step and run again",
    "AccessDenied": "check the bucket's policy and the credentials; without credentials only public data can be read",
    "InvalidObjectState": "the object is archived: restore it first",
    "AuthorizationHeaderMalformed": "the service refuses the credentials or the region: check them",
    "PermanentRedirect": f"the bucket is in another region: {_CORRECT_REGION}",
    "ProfileNotFound": "correct AWS_PROFILE",
    "InvalidRegionError": _CORRECT_REGION,
    "ValueError": "write the endpoint as http://host:port or https://host:port",
    "RequestTimeTooSkewed": "correct the clock of this machine",
    **dict.fromkeys(
        ("SlowDown", "ServiceUnavailable", "503"), "the service throttles requests: lower the concurrency, or run later"
    ),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "PartialCredentialsError"),
        "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    **dict.fromkeys(("ExpiredToken", "SSOTokenLoadError", "UnauthorizedSSOTokenError"), _LOG_IN),
}


class NoCredentials(Problem):
    """The AWS credential chain finds no credentials."""

    def __init__(self) -> None:
        """Initialise with a message that includes the remedy."""
        super().__init__(_NO_CREDENTIALS)


def build_client(store: dict, env: Mapping[str, str] = os.environ, **config: object):
    """Create a boto3 client for a store.

    Args:
        store: the store's configuration entry: region, anonymous, server.
        env: environment variables with the endpoint of a service other than AWS, and with the keys of an embedded
            server. For all other services, the keys come from the AWS credential chain.
        config: arguments of botocore's Config.

    Raises:
        Problem: AWS environment variables or configuration files are invalid, or set an endpoint that is not in the
            store's configuration entry.
    """
    endpoint = env.get(ENDPOINT)
    _expect_no_endpoint_elsewhere(endpoint)
    # Set explicitly, so that the user's AWS configuration files have no influence.
    options: dict = {
        "connect_timeout": 5,
        "read_timeout": 60,
        "retries": {"mode": "legacy", "total_max_attempts": 3},
        "s3": {"addressing_style": "path" if endpoint else "auto"},
        "ignore_configured_endpoint_urls": True,
        **config,
    }
    if store["anonymous"]:
        options["signature_version"] = UNSIGNED
    keys = {}
    if store.get("server") == "embedded":
        options["proxies"] = {}
        keys = {name.lower(): env[name] for name in KEYS}
    with convert_errors():
        made = boto3.client("s3", endpoint_url=endpoint, region_name=store["region"], config=Config(**options), **keys)
    made.meta.events.register_first("needs-retry.s3", _build_region_hook(store))
    return made


def _build_region_hook(store: dict) -> Callable[..., None]:
    """Return a hook that raises Problem if the bucket is in another region, instead of letting the SDK follow it there.

    HDF5 does not follow such redirects either, so the SDK must not hide a wrong region.
    """

    def expect_region(response: tuple | None, **_: object) -> None:
        answer = response[1] if response else {}
        error = answer.get("Error", {})
        if error.get("Code") not in _OF_ANOTHER_REGION:
            return
        there = error.get("Region") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
        if there not in (None, store["region"]):
            raise Problem(f"bucket {store['bucket']} is in region {there}, not in {store['region']}; {_CORRECT_REGION}")

    return expect_region


def load_credential_variables(store: dict) -> dict[str, str]:
    """Return the credentials of the AWS credential chain as environment variables, or {} for an anonymous store.

    HDF5 1.14 reads only these environment variables and does not implement the chain.

    Raises:
        NoCredentials: the store is not anonymous, and the chain finds no credentials.
        Problem: the user's AWS settings are invalid, or set an endpoint that is not in the store's configuration entry.
    """
    _expect_no_endpoint_elsewhere(store.get("endpoint"))
    if store["anonymous"]:
        return {}
    with convert_errors():
        credentials = boto3.Session().get_credentials()
        frozen = credentials and credentials.get_frozen_credentials()
    if not frozen:
        raise NoCredentials
    variables = dict(zip(KEYS, (frozen.access_key, frozen.secret_key), strict=True))
    return variables | ({"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {})


def build_store_entry(bucket: str) -> dict:
    """Return a store's configuration entry for a bucket, with the endpoint and region that AWS tools would use.

    The entry is anonymous if the AWS credential chain finds no credentials.

    Raises:
        Problem: AWS environment variables or configuration files are invalid, or the endpoint contains credentials,
            which would be recorded.
    """
    endpoint = os.environ.get(f"{ENDPOINT}_S3") or os.environ.get(ENDPOINT)
    if "@" in (endpoint or ""):
        raise Problem(f"{ENDPOINT} must not contain credentials; move them to {' and '.join(KEYS)}")
    with convert_errors():
        region = os.environ.get("AWS_REGION") or boto3.Session().region_name or "us-east-1"
    entry = {"kind": "s3", "bucket": bucket, "prefix": "", "region": region, "anonymous": False}
    entry |= {"endpoint": endpoint.rstrip("/")} if endpoint else {}
    try:
        load_credential_variables(entry)
    except NoCredentials:
        entry["anonymous"] = True
    return entry


def _expect_no_endpoint_elsewhere(endpoint: str | None) -> None:
    """Raise Problem if an environment variable sets an endpoint and the store's configuration entry does not."""
    for name in (f"{ENDPOINT}_S3", ENDPOINT):
        if os.environ.get(name) and not endpoint:
            raise Problem(f"{name} is set, but the store lacks an endpoint; add endpoint: to the store or unset {name}")


class Target(transfer.Target):
    """The destination of a dataset in a bucket."""

    most_parts = 10_000

    def __init__(self, store: dict, env: Mapping[str, str], key: str) -> None:
        """Create the client, without sending a request."""
        self._s3, self._bucket, self.writable = build_client(store, env), store["bucket"], not store["anonymous"]
        super().__init__(describe_place(self._s3, store), key)

    def convert_errors(self) -> contextlib.AbstractContextManager:
        """Convert the SDK's exceptions to `Problem` with a one-line message."""
        return convert_errors(self.where)

    def make_holder(self) -> None:
        """Create the bucket if it is missing."""
        with contextlib.suppress(self._s3.exceptions.BucketAlreadyOwnedByYou):
            self._s3.create_bucket(Bucket=self._bucket)

    def fetch_part_bytes(self, name: str) -> int | None:
        """Return the size in bytes of an object's first part, or None if the service does not report it."""
        try:
            answer = self._s3.head_object(Bucket=self._bucket, Key=self.build_object_key(name), PartNumber=1)
        except ClientError:
            return None
        # The ETag of a multipart upload ends with a hyphen and the number of parts.
        return answer["ContentLength"] if "PartsCount" in answer or "-" not in answer.get("ETag", "-") else None

    def upload_object(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload an object, in parts if it is large; a failed upload leaves no parts behind."""
        parts = {"multipart_threshold": part, "multipart_chunksize": part, "max_concurrency": transfer.THREADS}
        config = TransferConfig(**parts, preferred_transfer_client="classic")
        # Queued parts also occupy memory.
        config.max_in_memory_upload_chunks = transfer.THREADS
        self._s3.upload_fileobj(
            source, self._bucket, self.build_object_key(name), Config=config, Callback=progress.add_bytes
        )


def upload_file(store: dict, path: Path) -> None:
    """Upload a file to a bucket under the store's prefix and the file's name; it becomes an object whole or not at all.

    Raises:
        Problem: the bucket cannot be reached, or rejects the upload.
    """
    target = Target(store, {ENDPOINT: store["endpoint"]} if "endpoint" in store else {}, store["prefix"])
    size = path.stat().st_size
    key, part = target.build_object_key(path.name), transfer.choose_part_bytes(size, target.most_parts)
    progress = transfer.Progress(f"uploading {key}", size, functools.partial(print, file=sys.stderr))
    with target.convert_errors(), open(path, "rb") as source:
        target.upload_object(path.name, source, size, part, progress)


def describe_credentials(store: dict) -> str:
    """Return "found" if the AWS credential chain finds credentials, or a note that the store needs none."""
    return "found" if load_credential_variables(store) else "anonymous, none needed"


def find_holder(store: dict) -> str:
    """Check that the bucket exists and can be listed, and return its description for messages.

    Raises:
        Problem: the service cannot be reached, rejects the credentials, or does not contain the bucket.
    """
    s3 = build_client(store, {ENDPOINT: store["endpoint"]} if "endpoint" in store else {})
    place = describe_place(s3, store)
    with convert_errors(place):
        answer = s3.list_objects_v2(Bucket=store["bucket"], Prefix=store["prefix"], MaxKeys=1)
    if "Name" not in answer:
        raise Problem(_describe_wrong_service(place))
    return place


def list_objects(store: dict, prefix: str, keys: list[str], below: bool = True) -> dict[str, tuple[int, dict]]:
    """List objects, given by their keys or by a prefix, with their sizes and versions.

    Args:
        store: the store's configuration entry.
        prefix: key prefix of the objects to list.
        keys: keys of the objects; if not empty, `prefix` is ignored.
        below: whether to list objects in subfolders of the prefix. If False, each subfolder is one entry,
            {"prefix/name/": (0, {})}.

    Returns:
        {key: (bytes, version)}; for versions see `get_version`.

    Raises:
        Problem: the bucket cannot be listed, or a key is missing.
    """
    s3 = build_client(store, {ENDPOINT: store["endpoint"]} if "endpoint" in store else {})
    if keys:
        return {key: _fetch_entry(s3, store, key) for key in keys}
    place, entries = describe_place(s3, store), {}
    with convert_errors(place):
        for page in _list_pages(s3, store, place, {"Prefix": prefix} | ({} if below else {"Delimiter": "/"})):
            entries |= {entry["Prefix"]: (0, {}) for entry in page.get("CommonPrefixes", [])}
            entries |= {entry["Key"]: (entry["Size"], get_version(entry)) for entry in page.get("Contents", [])}
    return entries


def download_object(store: dict, key: str, path: Path) -> None:
    """Download an object to a file.

    Raises:
        Problem: the object does not exist, or cannot be read.
    """
    s3 = build_client(store, {ENDPOINT: store["endpoint"]} if "endpoint" in store else {})
    with convert_errors(f"{key} in {describe_place(s3, store)}"):
        s3.download_file(store["bucket"], key, str(path))


def _fetch_entry(s3, store: dict, key: str) -> tuple[int, dict]:
    """Return the size and version of an object. Use GET, because the response to a failed HEAD has no error code."""
    place = describe_place(s3, store)
    with convert_errors(f"{key} in {place}"):
        try:
            answer = s3.get_object(Bucket=store["bucket"], Key=key, Range="bytes=0-0")
        except ClientError as error:
            if error.response["Error"].get("Code") not in NO_RANGE:
                raise
            # The object is empty, so its first byte cannot be requested.
            return 0, get_version(s3.head_object(Bucket=store["bucket"], Key=key))
        answer["Body"].close()
    return parse_object_size(answer, place), get_version(answer)


def _list_pages(s3, store: dict, place: str, wanted: dict) -> Iterator[dict]:
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=store["bucket"], **wanted):
            if "Name" not in page:
                raise Problem(_describe_wrong_service(place))
            yield page
    except ClientError as error:
        if error.response["Error"].get("Code") != "AccessDenied":
            raise
        credentials = "set credentials" if store["anonymous"] else "check the credentials"
        raise Problem(
            f"no permission to list {place}; name each object instead of a folder or pattern, or {credentials}"
        ) from error


def get_version(answer: dict) -> dict[str, str | None]:
    """Return the version of an object: {"etag"}, or {"modified"} if the service sends no ETag.

    Args:
        answer: response to a request for the object, or its entry in a listing.
    """
    if etag := answer.get("ETag"):
        return {"etag": etag}
    modified = answer.get("LastModified")
    # Responses have a resolution of 1 s; listings may be more precise.
    return {"modified": modified and modified.astimezone(UTC).isoformat(timespec="seconds")}


def sign_addresses(store: dict, key: str, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
    """Return a presigned URL for each object under the key prefix `key`, with empty headers."""
    s3 = build_client(store, env, signature_version="s3v4")

    def sign_address(name: str) -> str:
        wanted = {"Bucket": store["bucket"], "Key": f"{key}/{name}".lstrip("/")}
        return s3.generate_presigned_url("get_object", Params=wanted, ExpiresIn=VALID_S)

    with convert_errors():
        return {name: (sign_address(name), {}) for name in names}


def parse_object_size(answer: dict, place: str) -> int:
    """Return an object's size from the response to a ranged request.

    Raises:
        Problem: the service does not support byte ranges, so it is not S3; `place` describes the bucket.
    """
    if "ContentRange" not in answer:
        raise Problem(_describe_wrong_service(place))
    return int(answer["ContentRange"].rpartition("/")[2])


def describe_place(s3, store: dict) -> str:
    """Describe a bucket and its endpoint, for messages."""
    return f"bucket {store['bucket']} at {s3.meta.endpoint_url}"


@contextlib.contextmanager
def convert_errors(place: str = "") -> Iterator[None]:
    """Convert the SDK's exceptions to `Problem`, `Absent` or `Denied` with a one-line message.

    The message begins with `place`, or describes the invalid setting if the error occurred before any request.
    """
    try:
        yield
    except ClientError as error:
        kinds = {"NoSuchKey": Absent, "404": Absent, "AccessDenied": Denied, "403": Denied}
        kind = kinds.get(error.response["Error"].get("Code"), Problem)
        raise kind(_describe_error(error, place)) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError, Boto3Error) as error:
        raise Problem(
            f"{place} cannot be reached ({type(error).__name__}); check the endpoint and the network"
        ) from error
    except ResponseParserError as error:
        raise Problem(_describe_wrong_service(place)) from error
    except NoCredentialsError as error:
        raise NoCredentials from error
    except (BotoCoreError, ValueError) as error:
        remedy = _REMEDIES.get(type(error).__name__, "correct the AWS_* variables, or the files in ~/.aws")
        words = " ".join(str(error).split()).rstrip(".")
        raise Problem(f"the S3 client rejects its settings: {words}; {remedy}") from error


def _describe_wrong_service(place: str) -> str:
    return f"{place} does not respond like S3; check the endpoint"


def _describe_error(error: ClientError, place: str) -> str:
    code = error.response["Error"].get("Code", "?")
    kind = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("content-type", "")
    # If a web server responds with an HTML page, the SDK reports it as an error of S3.
    if code not in _REMEDIES and kind.startswith("text/html"):
        return _describe_wrong_service(place)
    remedy = _REMEDIES.get(code, "see the service's documentation of this code")
    return f"{place}: {error.operation_name} failed with {code}; {remedy}"
