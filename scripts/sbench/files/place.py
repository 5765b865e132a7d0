"""Determine the storage for which to give advice (disk, bucket or emulated network), its latency and its data rate."""

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

# Assumed round trip (ms) and rate (MiB/s per connection) of a remote store unless given or measured, and of a disk.
ELSEWHERE = {"latency_ms": 20, "per_connection_mib_s": 50}
_DISK = {"latency_ms": 0.1, "per_connection_mib_s": 500}


@dataclass(frozen=True)
class Place:
    """The storage for which to give advice.

    Attributes:
        store: configuration entry of the store.
        network: latency_ms and per_connection_mib_s, for forecasts.
        words: description of both values, with their sources.
    """

    store: dict
    network: dict[str, float]
    words: str


def find_place(own: dict | None, given: dict[str, int], in_bucket: dict | None, files: Sequence[Source]) -> Place:
    """Determine the storage for which the user requests advice.

    The network of a bucket is measured. Latency and rate that the user specified take precedence.

    Args:
        own: configuration entry of the user's bucket for uploads, if any.
        given: latency_ms and per_connection_mib_s, as far as the user specified them.
        in_bucket: configuration entry of the bucket that contains the files; None if they are on this machine.
        files: the files.

    Raises:
        Problem: the bucket does not respond.
    """
    if not (own or given or in_bucket):
        return Place({"kind": "posix"}, _DISK, _describe_network(_DISK, {}, {}))
    measured = _measure_network(own or in_bucket, files if not own else []) if own or in_bucket else {}
    network = ELSEWHERE | measured | given
    words = _describe_network(network, given, measured)
    if own:
        return Place(own, network, words)
    # An embedded server emulates the network.
    emulated = {key: max(1, round(value)) for key, value in network.items()}
    return Place({"kind": "s3", "bucket": "advise", "server": "embedded", "network": emulated}, network, words)


def parse_network(latency: int | None, rate: int | None) -> dict[str, int]:
    """Return the given values as `latency_ms` and `per_connection_mib_s`, omitting values that are None.

    Raises:
        Problem: a value is less than 1.
    """
    given = {"latency_ms": latency, "per_connection_mib_s": rate}
    if any(value is not None and value < 1 for value in given.values()):
        raise Problem("--latency (ms) and --rate (MiB/s) must be at least 1")
    return {key: value for key, value in given.items() if value is not None}


def parse_store(address: str) -> dict | None:
    """Return the configuration entry of a store that uploads to s3://bucket/prefix; None for an empty string.

    Raises:
        Problem: the address is not of this form.
    """
    if not address:
        return None
    bucket, prefix = addresses.split_bucket_address(address, "--store")
    return build_store_entry(bucket) | {"prefix": prefix, "upload": True}


def _measure_network(spec: dict, files: Sequence[Source]) -> dict[str, float]:
    """Measure a bucket's latency by HEAD requests, and its data rate by a ranged GET of the largest of `files`.

    Without files, only the latency is measured.
    """
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
