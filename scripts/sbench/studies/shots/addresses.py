"""Parse the paths and URLs of user files, and suggest corrections for URLs that are not supported."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from sbench.probe.program import Problem

IN_BUCKET = "s3://"
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# HTTP URLs of S3 objects in AWS, virtual-hosted style and path style.
_HOST = r"(?:(?P<bucket>[^/]+)\.)?s3[.-](?:dualstack\.)?(?:(?P<region>[a-z]+-[a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?"
_OF_AWS = re.compile(_HOST + "/(?P<path>.+)")


def get_bucket(what: str | Sequence[str]) -> str:
    """Return the name of the bucket that contains all given files, or an empty string for local files.

    Raises:
        Problem: the files are neither all local nor all in the same bucket, or a URL has another scheme.
    """
    buckets = set(map(_parse_bucket, [what] if isinstance(what, str) else what))
    if len(buckets) != 1:
        raise Problem("the files of a set must be in the same bucket, or all on this machine; split the set")
    return buckets.pop()


def split_bucket_address(address: str, option: str) -> tuple[str, str]:
    """Return the bucket and the key prefix of s3://bucket/prefix, the value of `option`.

    Raises:
        Problem: the address is not of this form.
    """
    if not (bucket := get_bucket(address)):
        raise Problem(f"{option} must be s3://bucket/prefix (got {address})")
    return bucket, address.removeprefix(IN_BUCKET).partition("/")[2].strip("/")


def _parse_bucket(place: str) -> str:
    address = _ADDRESS.fullmatch(place)
    if not address:
        return ""
    if not place.startswith(IN_BUCKET):
        # Omit the query, which may contain a signature.
        public = place.partition("?")[0]
        raise Problem(f"{public} is not supported; {_describe_remedy(address[1].lower(), public.partition('://')[2])}")
    bucket = address[2].partition("/")[0]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise Problem(f"{place}: {bucket!r} is not a valid bucket name; write s3://bucket/key")
    return bucket


def _describe_remedy(scheme: str, rest: str) -> str:
    if scheme in ("s3", "s3a", "s3n"):
        return f"write {IN_BUCKET}{rest}"
    if scheme == "file":
        return f"write its path, /{rest.lstrip('/')}"
    if aws := _OF_AWS.fullmatch(rest):
        region = f" (region {aws['region']})" if aws["region"] else ""
        return f"name its bucket: {IN_BUCKET}{'/'.join(filter(None, (aws['bucket'], unquote(aws['path']))))}{region}"
    return "download it, or name its bucket: s3://bucket/key, with the endpoint if the service is not AWS"
