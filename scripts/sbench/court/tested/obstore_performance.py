"""obstore: 9 times as fast as fsspec and 2.8 times as fast as aioboto3, for many small concurrent GETs."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_KEY, _HEADER, _SIZE = "image.tif", 16 * 1024, 2**20
_CLAIMED = {"fsspec": 9, "aioboto3": 2.8}
_MEASURES = {"cpu_s": "CPU seconds", "seconds": "seconds"}
Fetch = Callable[[], Awaitable]


def make_data(folder: Path) -> None:
    """Write the object whose first bytes are read."""
    (folder / _KEY).write_bytes(bytes(range(256)) * (_SIZE // 256))


def prepare(options: dict) -> Callable[[], dict]:
    """Open a client with a pool of connections, and return a function that reads the header many times."""
    loop = asyncio.new_event_loop()
    open_client = {"obstore": _open_obstore, "fsspec": _open_fsspec, "aioboto3": _open_aioboto3}[options["client"]]
    fetch = loop.run_until_complete(open_client(options["pool"]))

    async def fetch_all() -> list:
        slots = asyncio.Semaphore(options["concurrency"])

        async def fetch_header() -> object:
            async with slots:
                return await fetch()

        return await asyncio.gather(*(fetch_header() for _ in range(options["gets"])))

    def read() -> dict:
        values = loop.run_until_complete(fetch_all())
        return {"checksum": compute_checksum(values[0], b"%d" % sum(map(len, values)))}

    return read


async def _open_obstore(_: int) -> Fetch:
    from obstore.store import S3Store

    store = S3Store(build_url("").split("/")[2], client_options={"allow_http": True})
    return lambda: store.get_range_async(_KEY, start=0, length=_HEADER)


async def _open_fsspec(pool: int) -> Fetch:
    import s3fs

    client = s3fs.S3FileSystem(asynchronous=True, config_kwargs={"max_pool_connections": pool})
    await client.set_session()
    return lambda: client._cat_file(build_url(_KEY), start=0, end=_HEADER)


async def _open_aioboto3(pool: int) -> Fetch:
    import aioboto3
    from botocore.config import Config

    client = await aioboto3.Session().client("s3", config=Config(max_pool_connections=pool)).__aenter__()
    span = {"Bucket": build_url("").split("/")[2], "Key": _KEY, "Range": f"bytes=0-{_HEADER - 1}"}

    async def fetch() -> bytes:
        response = await client.get_object(**span)
        async with response["Body"] as body:
            return await body.read()

    return fetch


def judge(runs: "Runs") -> "Judgement":
    """Compare (CPU) seconds of both other clients with obstore's, for each size of their pools and network."""
    from sbench.court.judging import AGREES
    from sbench.pages.prose import format_list, format_ratio

    sent = {runs.read_count(arm) for arm in runs.claim.arms}
    if len(sent) > 1:
        return runs.leave_open(f"the clients send {format_list(f'{count:.0f}' for count in sorted(sent))} requests")
    base = runs.claim.contrast[0]
    pools = sorted({arm["options"]["pool"] for arm in runs.claim.arms.values()})
    gains = {
        (what, client, pool): list(1 / runs.compare_times(column, (base, f"{client}, {pool} connections"))["ratio"])
        for column, what in _MEASURES.items()
        for client in _CLAIMED
        for pool in pools
    }
    cases = {
        f"{network['latency_ms']} ms, {pool} connections and {what}": [
            claimed / AGREES <= gains[what, client, pool][place] <= claimed * AGREES
            for client, claimed in _CLAIMED.items()
        ]
        for place, network in enumerate(runs.claim.networks)
        for pool in pools
        for what in _MEASURES.values()
    }
    held = [name for name, fits in cases.items() if all(fits)]
    spans = []
    for what, client in itertools.product(_MEASURES.values(), _CLAIMED):
        values = list(itertools.chain.from_iterable(gains[what, client, pool] for pool in pools))
        spans.append(f"{format_ratio(min(values))} to {format_ratio(max(values))} times {client} by {what}")
    reason = f"all clients send the same requests, and obstore has a throughput of {format_list(spans)}"
    ratio = median(itertools.chain.from_iterable(gains["CPU seconds", "fsspec", pool] for pool in pools))
    if held and len(held) < len(cases):
        return runs.limit(f"round trip, connections and measure are {format_list(held, 'or')}", ratio, reason)
    return runs.decide(bool(held), ratio, reason)
