"""Count the S3 requests of any program: serve folders as buckets, run the program, and report its requests.

The buckets are on a server on the loopback interface. The program finds it by environment variables.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sbench.build import servers
from sbench.files import ranges
from sbench.files.ranges import Totals
from sbench.probe.program import Problem
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.stores.embedded import Served

REGION = "us-east-1"
# The network that the estimate assumes if none is emulated, and the settings of options.
LATENCY_MS, RATE_MIB_S = 20, 50
_SERVERS = ("versitygw", "toxiproxy")
# Rules of S3 for bucket names (3 to 63 characters). Clients refuse other names before they send a request.
_NAME, _NOT_IN_NAMES = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"), re.compile(r"[^a-z0-9-]+")
# The bucket that is served if no folder is named.
_EMPTY = "empty"
_MOST = {"latency": 60_000, "rate": 1_000_000}


class Query(NamedTuple):
    """The arguments of a count.

    Attributes:
        buckets: the folder of each bucket, by name; None for an empty bucket.
        command: the program and its arguments.
        folder: working directory of the program.
        network: settings of the emulated network; missing settings mean no delay and no rate limit.
        in_place: whether uploads go to the folders themselves.
        anonymous: whether requests without credentials may read.
    """

    buckets: Mapping[str, Path | None]
    command: Sequence[str]
    folder: str
    network: Mapping[str, float]
    in_place: bool = False
    anonymous: bool = False


class Count(NamedTuple):
    """The requests of a program.

    Attributes:
        status: exit status of the program, as a shell reports it.
        seconds: its duration.
        passed: the recorded traffic (`Proxy.fetch_traffic`).
        objects: object (bucket/key) -> totals of its GET requests, in the order of the first requests.
        gap: largest distance in bytes between neighbouring ranges that count as one request in `Totals.runs`.
        counted: number of requests that the server counted itself.
    """

    status: int
    seconds: float
    passed: dict
    objects: dict[str, Totals]
    gap: int
    counted: int


def name_bucket(folder: Path) -> str:
    """Derive a bucket name from a folder's name: in lower case, with hyphens for all but letters and digits."""
    name = _NOT_IN_NAMES.sub("-", folder.resolve().name.lower()).strip("-")
    return f"{name}-data" if 0 < len(name) < 3 else name[:63].strip("-") or "data"


def build_query(given: argparse.Namespace) -> Query:
    """Build a query from the arguments of the command line.

    Raises:
        Problem: an argument is missing or wrong.
    """
    if not given.after:
        raise Problem("count needs a program to run; write it after --, such as: sbench count data -- python script.py")
    buckets = {}
    named = [(name_bucket(Path(folder)), folder) for folder in given.folders]
    for text in given.bucket:
        name, equals, folder = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise Problem(f"--bucket must be NAME=FOLDER, with a name of 3 to 63 lower-case characters (got {text})")
        named.append((name, os.path.join(given.called_from, os.path.expanduser(folder))))
    for name, folder in named:
        if name in buckets:
            raise Problem(f"two folders have the bucket name {name}; name one of them with --bucket NAME=FOLDER")
        buckets[name] = Path(folder).absolute()
    for option in ("latency", "rate"):
        if not 0 <= getattr(given, option) <= _MOST[option]:
            raise Problem(f"--{option} must be between 0 and {_MOST[option]:,} (got {getattr(given, option):g})")
    network = {"latency_ms": round(given.latency), "per_connection_mib_s": given.rate}
    network = {key: value for key, value in network.items() if value}
    return Query(buckets or {_EMPTY: None}, given.after, given.called_from, network, given.in_place, given.anonymous)


def count_requests(query: Query) -> Count:
    """Run a program with the buckets, and count its requests.

    Raises:
        Problem: a folder or the command does not exist, or a server does not start.
    """
    for folder in filter(None, query.buckets.values()):
        if not folder.is_dir():
            raise Problem(f"{folder} must be a folder, which is served as a bucket; name an existing folder")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise Problem(f"{folder} cannot be read: permission denied")
    command = query.command[0]
    if os.sep not in command and not shutil.which(command):
        raise Problem(f"the command {command} was not found in PATH; write it after -- as you would without sbench")
    binaries = servers.provide_servers(_SERVERS)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sbench-count-")))
        log = stack.enter_context((scratch / "servers.log").open("w", encoding="utf-8"))
        spec = {"kind": "s3", "bucket": next(iter(query.buckets)), "region": REGION, "server": "embedded"}
        own = {"sidecar": str(scratch / "metadata"), "anonymous": False}
        buckets = scratch / "buckets"
        (scratch / "metadata").mkdir()
        buckets.mkdir()
        for name, folder in query.buckets.items():
            _provide_bucket(buckets / name, folder, query.in_place)
        store = stores.get_store(spec | own)
        served = stack.enter_context(store.serve_folder(binaries, buckets, dict(query.network), log))
        env = os.environ | list_variables(served, spec["bucket"])
        if query.anonymous:
            _allow_anonymous_reads(spec | own, env, query.buckets)
        served.open_window()
        began = time.monotonic()
        status = _run_command(query.command, query.folder, env)
        seconds = time.monotonic() - began
        counts, passed = served.close_window()
        gap = _compute_gap(query.network)
        rows = ranges.group_by_object(row for row in passed["exchanges"] if "/" in row["path"].strip("/"))
        objects = {
            urllib.parse.unquote(path.lstrip("/")): ranges.summarise_object(of, _find_size(buckets, path), gap)
            for path, of in rows.items()
        }
        return Count(status, seconds, passed, objects, gap, sum(of["count"] for of in counts.values()))


def _allow_anonymous_reads(spec: dict, env: Mapping[str, str], buckets: Iterable[str]) -> None:
    from sbench.stores.s3 import client

    s3 = client.build_client(spec, env)
    for name in buckets:
        there = [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
        allowed = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": there}
        policy = {"Version": "2012-10-17", "Statement": [allowed]}
        s3.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))


def list_variables(served: Served, bucket: str) -> dict[str, str]:
    """Return the environment variables by which S3 clients find the server (see docs/count.md for each client)."""
    endpoint, (access_key, secret_key) = served.endpoint, served.credentials.values()
    host = urllib.parse.urlsplit(endpoint).netloc
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_SESSION_TOKEN": "",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        # Apache Arrow's object_store, which obstore and icechunk use.
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        # fsspec, which passes them to s3fs.
        "FSSPEC_S3_ENDPOINT_URL": endpoint,
        # GDAL.
        "AWS_S3_ENDPOINT": host,
        "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "SBENCH_BUCKET": bucket,
        "SBENCH_URL": f"{endpoint}/{bucket}",
    }


def _provide_bucket(bucket: Path, folder: Path | None, in_place: bool) -> None:
    """Make a folder available to the server, so that uploads do not reach it unless `in_place`.

    Its files are hard links. The server writes an object to a new file, and its metadata elsewhere, so that the user's
    files do not change. If they cannot be linked, because they are on another file system or belong to another user,
    they are copied.
    """
    if in_place and folder:
        bucket.symlink_to(folder)
        return
    bucket.mkdir()
    for path, _, files in os.walk(folder, followlinks=True) if folder else ():
        there = bucket / Path(path).relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for name in files:
            source = Path(path, name)
            try:
                os.link(source.resolve(), there / name)
            except OSError:
                shutil.copyfile(source, there / name)


def _find_size(buckets: Path, path: str) -> int | None:
    """Return the size in bytes of an object by its URL path; None if it does not exist (any more)."""
    with contextlib.suppress(OSError):
        return (buckets / urllib.parse.unquote(path.lstrip("/"))).stat().st_size
    return None


def _run_command(command: Sequence[str], folder: str, env: Mapping[str, str]) -> int:
    """Run a command in the foreground, and return its exit status as a shell reports it."""
    try:
        process = subprocess.Popen(command, cwd=folder, env=env)
    except PermissionError:
        raise Problem(f"the command {command[0]} is not executable") from None
    except OSError as error:
        raise Problem(f"the command {command[0]} cannot be started: {error.strerror}") from error
    with _ignore_interrupts():
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the command, which receives it too; its requests are reported all the same."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _compute_gap(network: Mapping[str, float]) -> int:
    """Return how many bytes can be transferred in the time of a round trip, on the emulated or the assumed network."""
    latency_ms, rate = get_network(network)
    return int(latency_ms / 1000 * rate * networks.MIB)


def get_network(network: Mapping[str, float]) -> tuple[float, float]:
    """Return the latency in ms and the rate in MiB/s per connection, with the assumed values for missing settings."""
    return network.get("latency_ms") or LATENCY_MS, network.get("per_connection_mib_s") or RATE_MIB_S


def list_method_counts(passed: Mapping) -> dict[str, dict[str, int]]:
    """Count the requests, the failed ones, and the bytes of responses, by method; listings of a bucket are LIST."""
    counts: dict[str, Counter[str]] = {}
    for row in passed["exchanges"]:
        is_listing = row["method"] == "GET" and "/" not in row["path"].strip("/")
        of_method = counts.setdefault("LIST" if is_listing else row["method"], Counter(count=0, failed=0, bytes=0))
        of_method.update(count=1, failed=not row["status"].startswith(("2", "3")), bytes=row["bytes"])
    return {method: dict(of) for method, of in sorted(counts.items())}


def estimate_seconds(count: Count, query: Query) -> float:
    """Estimate how long the requests take on the emulated or the assumed network.

    Each request takes a round trip, and its bytes are transferred at the rate of a connection. The mean number of
    requests in flight is that of the program's run.
    """
    latency_ms, rate = get_network(query.network)
    requests, sent = len(count.passed["exchanges"]), sum(row["bytes"] for row in count.passed["exchanges"])
    at_once = networks.compute_in_flight(count.passed)["in_flight"] or 1
    return (requests * latency_ms / 1000 + sent / networks.MIB / rate) / at_once
