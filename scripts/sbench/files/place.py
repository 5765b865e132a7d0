"""The place that advice is for: a disk, a bucket, or an emulated network, each with a round trip and a rate."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from sbench.probe.program import Problem
from sbench.stores import bare
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.shots import addresses
from sbench.studies.shots.inputs import Source, build_store_entry

# Taken for a store whose round trip (ms) and rate (MiB/s per connection) are neither given nor measured, and for a read
# of a disk.
ELSEWHERE = {"latency_ms": 20, "per_connection_mib_s": 50}
_DISK = {"latency_ms": 0.1, "per_connection_mib_s": 500}


@dataclass(frozen=True)
class Place:
    """Where files are read from.

    Attributes:
        store: the store's entry in a configuration.
        network: latency_ms and per_connection_mib_s, which forecasts take.
        words: both in words, with their sources.
    """

    store: dict
    network: dict[str, float]
    words: str


def find_place(own: dict | None, given: dict[str, int], in_bucket: dict | None, files: Sequence[Source]) -> Place:
    """Return the place that a user asks about, and measure its network if it is a bucket.

    Args:
        own: the store's entry of the user's own bucket, to which files are uploaded.
        given: latency_ms and per_connection_mib_s, as far as the user gives them.
        in_bucket: the store's entry of the bucket that the files lie in; None if they lie here.
        files: the files.

    Raises:
        Problem: the bucket does not answer.
    """
    if not (own or given or in_bucket):
        return Place({"kind": "posix"}, _DISK, _describe_network(_DISK, {}, {}))
    measured = _measure_network(own or in_bucket, files if not own else []) if own or in_bucket else {}
    network = ELSEWHERE | measured | given
    words = _describe_network(network, given, measured)
    if own:
        return Place(own, network, words)
    # An embedded server emulates it.
    emulated = {key: max(1, round(value)) for key, value in network.items()}
    return Place({"kind": "s3", "bucket": "advise", "server": "embedded", "network": emulated}, network, words)


def parse_network(latency: int | None, rate: int | None) -> dict[str, int]:
    """Return what is given of latency_ms and per_connection_mib_s.

    Raises:
        Problem: one is less than 1.
    """
    given = {"latency_ms": latency, "per_connection_mib_s": rate}
    if any(value is not None and value < 1 for value in given.values()):
        raise Problem("--latency (ms) and --rate (MiB/s) are whole numbers from 1")
    return {key: value for key, value in given.items() if value is not None}


def parse_store(address: str) -> dict | None:
    """Return the store's entry of a user's own bucket, s3://bucket/prefix; None for "".

    Raises:
        Problem: it is no such address.
    """
    if not address:
        return None
    if not (bucket := addresses.get_bucket(address)):
        raise Problem(f"{address} is no place in a bucket; write --store s3://bucket/prefix")
    prefix = address.removeprefix(addresses.IN_BUCKET).partition("/")[2].strip("/")
    return build_store_entry(bucket) | {"prefix": prefix, "upload": True}


def _measure_network(spec: dict, files: Sequence[Source]) -> dict[str, float]:
    """Return a bucket's network by ten requests without a body, and a ranged GET where it has one of the files."""
    store = stores.get_store(spec)
    location, env = store.resolve_location({"location": {"key": ""}}, None, dict(os.environ))
    largest = max(files, key=attrgetter("bytes"), default=None)
    name = largest.where.removeprefix(f"{addresses.IN_BUCKET}{spec['bucket']}/") if largest else "latency"
    getter = bare.build_connector(location, store.sign_addresses(location, [name], env))()
    measured = networks.measure_network(getter, name, min(largest.bytes, networks.READ_BYTES) if largest else 0)
    rate = {"per_connection_mib_s": measured["mib_s"]} if "mib_s" in measured else {}
    return {"latency_ms": 1000 * measured["round_trip_s"], **rate}


def _describe_network(network: dict, given: dict, measured: dict) -> str:
    def describe_source(key: str) -> str:
        return "as given" if key in given else "measured" if key in measured else "assumed"

    figures = {"latency_ms": "a round trip of {:.3g} ms", "per_connection_mib_s": "{:.3g} MiB/s per connection"}
    return ", ".join(f"{text.format(network[key])} ({describe_source(key)})" for key, text in figures.items())
