"""Serve folders as S3 buckets on the loopback interface, and record the requests that reach them."""

import contextlib
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sbench.build import servers
from sbench.build.cache import find_piece
from sbench.files import ranges
from sbench.files.ranges import Totals
from sbench.probe import sizes
from sbench.probe.program import Problem, get_proxy_variables
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.stores import trust
from sbench.stores.embedded import Served, is_listing

REGION, _PROFILE = "us-east-1", "AWS_PROFILE"
# The network for which gaps between ranges are judged if none is emulated.
LATENCY_MS, RATE_MIB_S = 20, 50
_MOST_LATENCY_MS = 60_000
# In MiB/s per connection.
_LEAST_RATE, _MOST_RATE = 0.01, 1_000_000
LIST = "LIST"
_SERVERS = ("versitygw", "toxiproxy")
# Variables with the file of the authorities that a client trusts. curl and rasterio prefer the last two.
_TRUST = (*trust.VARIABLES, "CURL_CA_BUNDLE", "GDAL_CURL_CA_BUNDLE")
# The smallest amount of copied bytes that is reported.
_WORTH_A_NOTE = 64 * networks.MIB
# Rules of S3 for bucket names. Clients refuse other names before they send a request.
_NAME, _NOT_IN_NAMES = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"), re.compile(r"[^a-z0-9-]+")


class Requests(NamedTuple):
    """The requests that reached the buckets.

    Attributes:
        methods: method -> {"count", "failed", "bytes"}, with the bytes of response bodies; listings of a bucket are
            `LIST`.
        objects: object ("bucket/key") -> totals of its GET requests, in the order of the first requests.
        passed: the recorded traffic (`Proxy.fetch_traffic`).
        gap: largest distance in bytes between neighbouring ranges that count as one request in `Totals.runs`.
        counted: the server's own statistics: method -> {"count", "failed", "bytes_offered"}; listings are `GET`.
    """

    methods: dict[str, dict[str, int]]
    objects: dict[str, Totals]
    passed: dict
    gap: int
    counted: dict[str, dict[str, int | None]]


@dataclass
class Buckets:
    """Running servers.

    Attributes:
        variables: the environment variables by which S3 clients find the server (docs/count.md).
        folder: the folder of the buckets.
        notes: sentences about files that are not served, or copied.
    """

    variables: dict[str, str]
    folder: Path
    notes: list[str]
    _served: Served
    _metadata: Path
    _gap: int

    def allow_anonymous_reads(self, bucket: str) -> None:
        """Let requests without credentials read a bucket."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        allowed = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
        policy = {"Version": "2012-10-17", "Statement": [allowed | {"Resource": resources}]}
        # The place where the server stores the policies of buckets.
        path = self._metadata / bucket / "meta/policy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(policy), encoding="utf-8")

    def reset_requests(self) -> None:
        """Discard the requests recorded so far."""
        self._served.open_window()

    def read_requests(self) -> Requests:
        """Return the requests since the last reset.

        Raises:
            Problem: some requests cannot be counted.
        """
        counts, passed = self._served.close_window()
        rows = ranges.group_by_object(row for row in passed["exchanges"] if not _is_of_bucket(row))
        objects = {path.lstrip("/"): ranges.summarise_object(read, self._gap) for path, read in rows.items()}
        if dead := self._served.list_dead_servers():
            raise Problem(f"{dead[0]} ended while the program ran, so requests are missing; run again")
        return Requests(_count_methods(passed), objects, passed, self._gap, counts)


def name_bucket(folder: Path) -> str:
    """Derive a bucket name from a folder's name: in lower case, with hyphens for all but letters and digits."""
    name = _NOT_IN_NAMES.sub("-", folder.resolve().name.lower()).strip("-")
    return f"{name}-data" if 0 < len(name) < 3 else name[:63].strip("-") or "data"


def check_name(name: str) -> bool:
    """Return whether a bucket may have this name."""
    return bool(_NAME.fullmatch(name))


@contextlib.contextmanager
def serve_buckets(
    folders: Mapping[str, Path | None],
    network: Mapping[str, float],
    in_place: bool = False,
    anonymous: bool = False,
    encrypted: bool = False,
) -> Iterator[Buckets]:
    """Serve folders as buckets during a `with` block.

    Args:
        folders: the folder of each bucket, by name; None for an empty bucket.
        network: settings of the emulated network, as in a store's configuration entry.
        in_place: whether uploads go to the folders themselves; otherwise they go to a scratch copy.
        anonymous: whether requests without credentials may read.
        encrypted: whether clients connect with TLS, with a certificate of an authority made for this block.

    Raises:
        Problem: a folder does not exist or cannot be read, or a server does not start.
    """
    for folder in filter(None, folders.values()):
        if not folder.is_dir():
            raise Problem(f"{folder} must be a folder, which is served as a bucket; name an existing folder")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise Problem(f"{folder} cannot be read: permission denied")
    if missing := [name for name in _SERVERS if not find_piece(servers.create_server_recipe(name))]:
        print(f"building {' and '.join(missing)}, once: about 2 minutes", file=sys.stderr, flush=True)
    binaries = servers.provide_servers(_SERVERS)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sbench-buckets-")))
        log = stack.enter_context((scratch / "servers.log").open("w", encoding="utf-8"))
        spec = {"kind": "s3", "bucket": next(iter(folders)), "region": REGION, "server": "embedded"}
        spec |= {"anonymous": False, "sidecar": str(scratch / "metadata"), "tls": encrypted}
        (scratch / "metadata").mkdir()
        (scratch / "buckets").mkdir()
        notes: list[str] = []
        for name, folder in folders.items():
            bucket = scratch / "buckets" / name
            if folder and in_place:
                bucket.symlink_to(folder)
                stack.enter_context(_remove_leftovers(folder))
            elif folder:
                notes += _fill_bucket(bucket, folder, scratch)
            else:
                bucket.mkdir()
        store = stores.get_store(spec)
        served = stack.enter_context(store.serve_folder(binaries, scratch / "buckets", dict(network), log))
        variables = _list_variables(served, spec["bucket"])
        if encrypted:
            bundle = scratch / "authorities.pem"
            bundle.write_text(_read_authorities() + served.proxy.fetch_authority(), encoding="utf-8")
            variables |= dict.fromkeys(_TRUST, str(bundle))
        buckets = Buckets(variables, scratch / "buckets", notes, served, scratch / "metadata", _compute_gap(network))
        for name in folders if anonymous else ():
            buckets.allow_anonymous_reads(name)
        buckets.reset_requests()
        yield buckets


def build_environment(before: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the variables of clients, and without AWS_PROFILE.

    Keys make a profile unnecessary, and clients fail if it does not exist.
    """
    return {name: value for name, value in {**before, **variables}.items() if name != _PROFILE}


def check_network(latency_ms: float, rate: float, prefix: str = "--") -> None:
    """Check the settings of an emulated network; 0 means no delay or no limit.

    Args:
        latency_ms: round-trip time in ms.
        rate: rate of a connection in MiB/s.
        prefix: beginning of the names of the options that set them.

    Raises:
        Problem: a setting is out of range.
    """
    if not 0 <= latency_ms <= _MOST_LATENCY_MS:
        raise Problem(f"{prefix}latency must be between 0 and {_MOST_LATENCY_MS:,} ms (got {latency_ms})")
    if rate and not _LEAST_RATE <= rate <= _MOST_RATE:
        raise Problem(f"{prefix}rate must be between {_LEAST_RATE:g} and {_MOST_RATE:,} MiB/s (got {rate:g})")


def get_network(network: Mapping[str, float]) -> tuple[float, float]:
    """Return the latency in ms and the rate in MiB/s per connection, with the assumed values for missing settings."""
    return network.get("latency_ms") or LATENCY_MS, network.get("per_connection_mib_s") or RATE_MIB_S


def _compute_gap(network: Mapping[str, float]) -> int:
    """Return how many bytes can be transferred in the time of a round trip, on the emulated or the assumed network."""
    latency_ms, rate = get_network(network)
    return int(latency_ms / 1000 * rate * networks.MIB)


def get_method(row: Mapping) -> str:
    """Return the method of a request; a GET request that lists a bucket, or all buckets, is a `LIST`."""
    return LIST if is_listing(row) else row["method"]


def is_failed(row: Mapping) -> bool:
    """Return whether a request has no response, or one with an error status."""
    return not row["status"].startswith(("2", "3"))


def _is_of_bucket(row: Mapping) -> bool:
    return "/" not in row["path"].strip("/")


def _count_methods(passed: Mapping) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for row in passed["exchanges"]:
        of_method = counts.setdefault(get_method(row), Counter(count=0, failed=0, bytes=0))
        of_method.update(count=1, failed=is_failed(row), bytes=row["bytes"])
    return {method: dict(numbers) for method, numbers in sorted(counts.items())}


def _list_variables(served: Served, bucket: str) -> dict[str, str]:
    endpoint, (access_key, secret_key) = served.endpoint, served.credentials.values()
    url = urllib.parse.urlsplit(endpoint)
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_SESSION_TOKEN": "",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        # Apache Arrow's object_store, which obstore and icechunk use.
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        # fsspec passes a user's endpoint to s3fs. Programs that pass one themselves fail if this variable is set, too.
        **{name: endpoint for name in ("FSSPEC_S3_ENDPOINT_URL",) if name in os.environ},
        # GDAL.
        "AWS_S3_ENDPOINT": url.netloc,
        "AWS_HTTPS": "YES" if url.scheme == "https" else "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE",
        **get_proxy_variables(os.environ),
        "SBENCH_BUCKET": bucket,
        "SBENCH_URL": f"{endpoint}/{bucket}",
    }


def _read_authorities() -> str:
    """Return the PEM certificates of the authorities that clients trust here; empty if no file is readable."""
    paths = ssl.get_default_verify_paths()
    # Debian has a file with all certificates only in the folder of certificates.
    bundles = [os.environ.get(name, "") for name in _TRUST]
    bundles += [paths.cafile or "", os.path.join(paths.openssl_capath, "ca-certificates.crt")]
    for bundle in bundles:
        if os.path.isfile(bundle) and os.access(bundle, os.R_OK):
            return Path(bundle).read_text(encoding="utf-8", errors="replace") + "\n"
    return ""


def _fill_bucket(bucket: Path, folder: Path, scratch: Path) -> list[str]:
    """Make the files of a folder available to the server, so that uploads do not reach the folder.

    The files are hard links. The server writes an object to a new file, and its metadata elsewhere, so that the user's
    files do not change. Files that cannot be linked, because they are on another file system or belong to another user,
    are copied.

    Returns:
        Sentences about files that are left out or copied.

    Raises:
        Problem: a folder or file cannot be read, or there is not enough space for the copies.
    """
    copied, left_out = [], []
    for path, files in _walk_folder(folder, scratch):
        there = bucket / path.relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for name in files:
            source = Path(path, name)
            try:
                # Sockets, pipes and broken links are not objects.
                source = source.resolve(strict=True)
                is_file = source.is_file()
            except (OSError, RuntimeError):
                is_file = False
            if not is_file:
                left_out.append(Path(path, name))
                continue
            try:
                os.link(source, there / name)
            except OSError:
                copied.append((source, there / name))
    notes = []
    if left_out:
        number = sizes.format_count(len(left_out), "file")
        notes.append(f"{number} of {folder} left out, neither file nor folder, such as {left_out[0]}")
    return notes + _copy_files(copied, folder, scratch)


def _walk_folder(folder: Path, scratch: Path) -> Iterator[tuple[Path, list[str]]]:
    """Walk a folder like `os.walk`; follow links to folders, but enter each folder only once, and not `scratch`."""

    def refuse(error: OSError) -> None:
        raise Problem(f"{error.filename} cannot be read: {error.strerror}; make it readable, or serve another folder")

    entered = {_identify(scratch)}
    for path, names, files in os.walk(folder, followlinks=True, onerror=refuse):
        if (place := _identify(Path(path))) in entered:
            names.clear()
            continue
        entered.add(place)
        names.sort()
        yield Path(path), sorted(files)


def _identify(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_dev, facts.st_ino


def _copy_files(files: list[tuple[Path, Path]], folder: Path, scratch: Path) -> list[str]:
    total, free = sum(source.stat().st_size for source, _ in files), shutil.disk_usage(scratch).free
    if total > free:
        raise Problem(
            f"{sizes.format_size(total)} of {folder} must be copied to {scratch.parent}, which has"
            f" {sizes.format_size(free)} left; set TMPDIR to a folder on the same file system, or add --in-place"
        )
    for source, copy in files:
        try:
            shutil.copyfile(source, copy)
        except OSError as error:
            raise Problem(f"{source} cannot be read: {error.strerror}; make it readable") from error
    if total < _WORTH_A_NOTE:
        return []
    return [
        f"{sizes.format_size(total)} of {folder} copied to {scratch.parent}; with TMPDIR on the same file system, they"
        " are linked"
    ]


@contextlib.contextmanager
def _remove_leftovers(folder: Path) -> Iterator[None]:
    """Remove the folder for unfinished uploads that the server leaves in a bucket, if it is new and empty."""
    left = folder / ".sgwtmp"
    is_ours = not left.exists()
    try:
        yield
    finally:
        for path in (left / "multipart", left) if is_ours else ():
            with contextlib.suppress(OSError):
                path.rmdir()
