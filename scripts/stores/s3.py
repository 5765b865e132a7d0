"""S3 as a client sees it: credentials, addresses, and putting a data set there and verifying it."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from boto3.exceptions import Boto3Error
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from scripts.lib.program import Problem

_BLOCK = 1 << 22
_CHECK_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def client(store: dict, endpoint: str | None, credentials: dict[str, str] | None):
    """Return a boto3 client for a store of the configuration.

    Args:
        store: its entry: region, anonymous.
        endpoint: URL of the service, None for AWS.
        credentials: {"access_key", "secret_key"} of an embedded server; None takes the environment's or AWS's chain.
    """
    options: dict = {"connect_timeout": 5, "read_timeout": 60, "retries": {"total_max_attempts": 3}}
    if store["anonymous"]:
        options["signature_version"] = UNSIGNED
    keys = {}
    if credentials:
        options["proxies"] = {}
        keys = {"aws_access_key_id": credentials["access_key"], "aws_secret_access_key": credentials["secret_key"]}
    return boto3.client("s3", endpoint_url=endpoint, region_name=store["region"], config=Config(**options), **keys)


def environment_credentials(store: dict) -> dict[str, str]:
    """Return the variables that give HDF5 the credentials of AWS's chain; HDF5 1.14 knows no chain of its own.

    Raises:
        Problem: the store is not anonymous and the chain finds nothing.
    """
    if store["anonymous"]:
        return {}
    found = boto3.Session().get_credentials()
    if found is None:
        raise Problem(
            "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, configure an AWS profile,"
            " or say anonymous: true"
        )
    frozen = found.get_frozen_credentials()
    variables = {"AWS_ACCESS_KEY_ID": frozen.access_key, "AWS_SECRET_ACCESS_KEY": frozen.secret_key}
    return variables | ({"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {})


def base_url(store: dict, endpoint: str | None) -> str:
    """Return the URL of the bucket and prefix: path style at an endpoint, virtual-hosted style at AWS."""
    bucket = (
        f"{endpoint}/{store['bucket']}" if endpoint else f"https://{store['bucket']}.s3.{store['region']}.amazonaws.com"
    )
    return "/".join(filter(None, [bucket, store["prefix"]]))


def ensure_bucket(s3, store: dict) -> None:
    """Make the bucket of an embedded server."""
    if store["bucket"] not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=store["bucket"])


def provide(
    s3, store: dict, dataset: str, files: Iterable[tuple[dict, Path]], say: Callable[[str], None]
) -> dict[str, int]:
    """Bring the files of a data set into the bucket and verify them by reading them back.

    Objects that are there with the right bytes are not uploaded again.

    Args:
        s3: a client (`client`).
        store: the store's entry in the configuration.
        dataset: id of the data set, the folder within the prefix.
        files: (entry of the manifest, local path) of each file.
        say: gets a line for each file.

    Returns:
        {"uploaded", "found", "retries"}: files, files, and what the SDK tried again.

    Raises:
        Problem: one line that names the endpoint, the bucket or the object and what to do.
    """
    done = {"uploaded": 0, "found": 0, "retries": 0}
    s3.meta.events.register("after-call", lambda parsed, **_: _count_retries(parsed, done))
    place = _place(s3, store)
    with explained(s3, place):
        for entry, path in files:
            key = "/".join(filter(None, [store["prefix"], dataset, entry["name"]]))
            if _matches(s3, store["bucket"], key, entry):
                done["found"] += 1
                continue
            if store["anonymous"]:
                raise Problem(
                    f"{key} is not in {place} as generated; upload it, or give credentials and drop anonymous"
                )
            say(f"uploading {key} ({entry['bytes']} bytes)")
            s3.upload_file(str(path), store["bucket"], key)
            if not _matches(s3, store["bucket"], key, entry):
                raise Problem(f"{key} reads back differently from {place} than it was uploaded")
            done["uploaded"] += 1
    return done


def reachable(s3, store: dict) -> str:
    """Ask the service for the bucket and say where it was found.

    Raises:
        Problem: the service, the credentials or the bucket are not as the configuration says.
    """
    place = _place(s3, store)
    with explained(s3, place):
        s3.list_objects_v2(Bucket=store["bucket"], Prefix=store["prefix"], MaxKeys=1)
    return place


def _place(s3, store: dict) -> str:
    return f"bucket {store['bucket']} at {s3.meta.endpoint_url}"


@contextlib.contextmanager
def explained(s3, place: str) -> Iterator[None]:
    """Turn the SDK's errors into one line that names the place `place`."""
    try:
        yield
    except ClientError as error:
        raise Problem(_explain(error, place)) from error
    except (BotoCoreError, Boto3Error) as error:
        host = urlsplit(s3.meta.endpoint_url).netloc
        raise Problem(
            f"{host} cannot be reached ({type(error).__name__}); check the endpoint of the store and the network"
        ) from error


def _matches(s3, bucket: str, key: str, entry: dict) -> bool:
    """Say whether the object is there with the size and the sha256 of the manifest."""
    try:
        answer = s3.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
            return False
        raise
    with contextlib.closing(answer["Body"]) as body:
        if answer["ContentLength"] != entry["bytes"]:
            return False
        hashed = hashlib.sha256()
        for block in body.iter_chunks(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest() == entry["sha256"]


def _count_retries(parsed: dict, done: dict[str, int]) -> None:
    done["retries"] += parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0)


def _explain(error: ClientError, place: str) -> str:
    code = error.response["Error"].get("Code", "?")
    remedy = {
        "NoSuchBucket": "make the bucket, or correct its name in the configuration",
        "InvalidAccessKeyId": _CHECK_KEYS,
        "XAdminUserNotFound": _CHECK_KEYS,
        "SignatureDoesNotMatch": _CHECK_KEYS,
        "AccessDenied": "the credentials may not do this: check them and the bucket's policy",
        "PermanentRedirect": "the bucket lies in another region: correct region in the configuration",
    }.get(code, "see the service's documentation of this code")
    return f"{place} answers {code} to {error.operation_name}; {remedy}"
