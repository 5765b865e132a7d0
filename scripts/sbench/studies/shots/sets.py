"""Sets of files of the user's own, of any tree, as a configuration names them; nothing here opens one."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote

from sbench import drivers
from sbench.design.study import for_level
from sbench.probe.program import Problem
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.shots import selection

IN_BUCKET = "s3://"
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# An object of AWS over HTTP, in both styles.
_HOST = r"(?:(?P<bucket>[^/]+)\.)?s3[.-](?:dualstack\.)?(?:(?P<region>[a-z]+-[a-z0-9-]+)\.)?amazonaws\.com(?:\.cn)?"
_OF_AWS = re.compile(_HOST + "/(?P<path>.+)")


def mistakes(data: dict, config: dict, where: str) -> Iterator[str]:
    """Yield which sets lie in a bucket that no store has, and which have no patterns of datasets."""
    for name, what in data["files"].items():
        bucket = bucket_of(what)
        if bucket and not _store_of(bucket, config):
            yield (
                f"{where}.files.{name}: no store has the bucket {bucket}; add one, {{kind: s3, bucket: {bucket}}}, with"
                " its endpoint or region, and anonymous: true where no credentials are needed"
            )
        if isinstance(patterns := data.get("datasets"), dict) and name not in patterns:
            yield f"{where}.datasets: {name} is missing"
    if isinstance(patterns := data.get("datasets"), dict) and (strange := patterns.keys() - data["files"].keys()):
        yield f"{where}.datasets: {min(strange)} is none of the sets {', '.join(data['files'])}"


def data(section: dict, config: dict, levels: dict[str, str]) -> dict:
    """Return the settings of the dataset of a set, which is the level of `layout`: `at` is its store in a bucket."""
    kept = {
        key: for_level(section[key], levels) for key in ("files", "datasets", "part_size") if key in section
    } | levels
    if bucket := bucket_of(kept["files"]):
        kept["at"] = config["stores"][_store_of(bucket, config)]
    return {"datasets": ["/**"]} | kept


def bucket_of(what: str | Sequence[str]) -> str:
    """Return the bucket that addresses lie in, "" of local files.

    Raises:
        Problem: they do not lie in one place, or in none that files are read from.
    """
    buckets = set(map(_bucket, [what] if isinstance(what, str) else what))
    if len(buckets) != 1:
        raise Problem("the files of a set lie in one bucket, or all of them here; make two sets of them")
    return buckets.pop()


def _bucket(place: str) -> str:
    """Return the bucket of an address, "" of a path."""
    address = _ADDRESS.fullmatch(place)
    if not address:
        return ""
    if not place.startswith(IN_BUCKET):
        # A question mark may be followed by a signature.
        public = place.partition("?")[0]
        raise Problem(f"{public} is not read; {_remedy(address[1].lower(), public.partition('://')[2])}")
    bucket = address[2].partition("/")[0]
    if not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise Problem(f"{place}: no bucket is called {bucket!r}; write s3://bucket/key")
    return bucket


def _remedy(scheme: str, rest: str) -> str:
    """Return how to name the files of an address that is not a bucket's."""
    if scheme in ("s3", "s3a", "s3n"):
        return f"write {IN_BUCKET}{rest}"
    if scheme == "file":
        return f"write its path, /{rest.lstrip('/')}"
    if aws := _OF_AWS.fullmatch(rest):
        region = f" (region {aws['region']})" if aws["region"] else ""
        return f"name its bucket: {IN_BUCKET}{'/'.join(filter(None, (aws['bucket'], unquote(aws['path']))))}{region}"
    return "download it, or name its bucket: s3://bucket/key, of a service other than AWS with its endpoint"


def _store_of(bucket: str, config: dict) -> str:
    """Return the name of the store that reads a bucket of the user's own, "" if there is none."""
    names = (name for name, spec in config["stores"].items() if spec.get("bucket") == bucket and "server" not in spec)
    return next(names, "")


def misread(levels: dict[str, str], config: dict, files: dict | str | None) -> Iterator[str]:
    """Yield why files are not read so: shots are in those that are generated, or have the same tree."""
    access, selected, own = levels["access"], levels["selection"], isinstance(files, dict)
    store = config["stores"][levels["store"]]
    if own and (bucket := bucket_of(files[levels["layout"]])):
        if levels["store"] != _store_of(bucket, config):
            yield f"the files of {levels['layout']} lie in the bucket {bucket}, where they are read by another store"
    elif own and stores.of(store).elsewhere and not store.get("upload"):
        unasked = "one's own files are not uploaded to a service elsewhere unless its store says upload: true"
        yield f"the files of {levels['layout']} lie here, and {unasked}"
    if own != (access in ("files", "datasets")):
        yield f"access {access} is for {'files with shots' if own else 'sets of files of your own'}"
    if selected != selection.ALL and not own:
        yield f"selection {selected} is for sets of files of your own; shots are read as a whole"
    if selected == selection.METADATA and drivers.of(levels["driver"]).reads_copy:
        yield f"driver {levels['driver']} does not walk a file's tree"


@lru_cache
def _bytes_of(files: str) -> tuple[int, int]:
    """Return how many files a set has here, and their bytes; a guess for those in a bucket, which is not asked."""
    if bucket_of(wanted := json.loads(files)):
        return 1, 2**27
    from sbench.studies.shots.inputs import sources

    sizes = [source.bytes for source in sources(wanted)]
    return len(sizes), sum(sizes)


def estimate(settings: dict, network: dict) -> dict:
    """Estimate a record that reads files of the user's own: what is selected of as many files as are read."""
    cell, data = settings["cell"], settings["data"]
    count, size = _bytes_of(json.dumps(data["files"]))
    read = min(settings["read_files"] or count, count) if cell["access"] == "files" else count
    part = {selection.ALL: 1.0, selection.METADATA: 0.01}.get(level := data.get("selection", selection.ALL), 0.1)
    part = 1 / int(level[2:]) if re.match("1/", level) else part
    nbytes = size * read / max(count, 1) * part
    requests = read * 10 + nbytes / 2**20
    rate = min(500, networks.mib_s(network, int(cell["workers"].rstrip("x")))) * 2**20
    seconds = nbytes / rate + requests * network.get("latency_ms", 0) / 1000
    return {"requests": int(requests), "bytes": int(nbytes), "seconds": seconds, "least": True}
