"""Validate and resolve the sets of user files in a configuration, whose groups and datasets may be arranged freely."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from sbench import drivers
from sbench.design.study import resolve_setting
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.shots import selection
from sbench.studies.shots.addresses import get_bucket
from sbench.studies.shots.settings import Levels, Settings


def find_mistakes(data: dict, config: dict, where: str) -> Iterator[str]:
    """Yield messages about buckets that lack a store, sets that lack patterns, and patterns for unknown sets."""
    for name, what in data["files"].items():
        bucket = get_bucket(what)
        if bucket and not _find_store(bucket, config):
            yield (
                f"{where}.files.{name}: no store has the bucket {bucket}; add a store"
                f" {{kind: s3, bucket: {bucket}}} with"
                " its endpoint or region, and anonymous: true if it needs no credentials"
            )
        if isinstance(patterns := data.get("datasets"), dict) and name not in patterns:
            yield f"{where}.datasets lacks the set {name}; add its patterns"
    if isinstance(patterns := data.get("datasets"), dict) and (strange := patterns.keys() - data["files"].keys()):
        yield f"{where}.datasets: {min(strange)} is not a set (sets: {', '.join(data['files'])})"


def get_data_settings(section: dict, config: dict, levels: dict[str, str]) -> dict:
    """Return the data settings of the set of user files that the factor `layout` names.

    For files in a bucket, "at" is the configuration entry of its store.
    """
    kept = {
        key: resolve_setting(section[key], levels) for key in ("files", "datasets", "part_size") if key in section
    } | levels
    if bucket := get_bucket(kept["files"]):
        kept["at"] = config["stores"][_find_store(bucket, config)]
    return {"datasets": ["/**"]} | kept


def _find_store(bucket: str, config: dict) -> str:
    """Return the name of the store for a user's bucket, or an empty string if the configuration has none."""
    names = (name for name, spec in config["stores"].items() if spec.get("bucket") == bucket and "server" not in spec)
    return next(names, "")


def list_obstacles(cell: Levels, config: dict, files: dict | str | None) -> Iterator[str]:
    """Yield a message for each reason why a cell cannot read its files.

    Args:
        cell: the levels of the cell.
        config: the resolved configuration.
        files: the setting `files`: a dict of named sets, a file or directory with shots, or None if files are
            generated. Sets have files and datasets, while the other files have shots and signals.
    """
    own, store = isinstance(files, dict), config["stores"][cell.store]
    if own and (bucket := get_bucket(files[cell.layout])):
        if cell.store != _find_store(bucket, config):
            yield f"the files of {cell.layout} are in the bucket {bucket}, which another store reads"
    elif own and stores.get_store(store).elsewhere and not store.get("upload"):
        unasked = "user files are uploaded to a remote service only if its store sets upload: true"
        yield f"the files of {cell.layout} are on this machine; {unasked}"
    if own != (cell.access in ("files", "datasets")):
        yield f"access {cell.access} is for {'files with shots' if own else 'sets of user files'}"
    if cell.selection != selection.ALL and not own:
        yield f"selection {cell.selection} is for sets of user files; shots are read as a whole"
    if cell.selection == selection.METADATA and drivers.get_driver(cell.driver).reads_copy:
        yield f"driver {cell.driver} cannot list the objects of a file, as selection metadata requires"


@lru_cache
def _count_files_and_bytes(files: str) -> tuple[int, int]:
    """Return the number and total size of local files in bytes. For files in a bucket, return a rough guess.

    Args:
        files: the paths and patterns in JSON, so that results can be cached.
    """
    if get_bucket(wanted := json.loads(files)):
        return 1, 2**27
    # Imported here because it imports h5py, which is not needed to process settings.
    from sbench.studies.shots.inputs import find_sources

    sizes = [source.bytes for source in find_sources(wanted)]
    return len(sizes), sum(sizes)


def estimate_record(settings: Settings) -> dict:
    """Estimate a record's requests, bytes and seconds from the user files and the fraction that is read."""
    cell, network, level = settings.cell, settings.network, settings.data.selection
    count, size = _count_files_and_bytes(json.dumps(settings.data.files))
    read = min(settings.read_files or count, count) if cell.access == "files" else count
    part = {selection.ALL: 1.0, selection.METADATA: 0.01}.get(level, 0.1)
    part = 1 / int(level[2:]) if re.match("1/", level) else part
    nbytes = size * read / max(count, 1) * part
    requests = read * 10 + nbytes / 2**20
    rate = min(500, networks.compute_rate_limit(network, int(cell.workers.rstrip("x")))) * 2**20
    seconds = nbytes / rate + requests * network.get("latency_ms", 0) / 1000
    return {"requests": int(requests), "bytes": int(nbytes), "seconds": seconds, "least": True}
