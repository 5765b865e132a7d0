"""obstore: 9 times as fast as fsspec and 2.8 times as fast as aioboto3, for many small concurrent GETs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_KEY, _HEADER, _SIZE = "image.tif", 16 * 1024, 2**20
_CLAIMED = {"fsspec": 9, "aioboto3": 2.8}
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
    """Compare the seconds of both other clients with 250 connections with obstore's over each network."""
    from sbench.court.judging import HOLDS, describe_networks
    from sbench.pages.prose import format_list, format_ratio

    sent = {runs.read_count(arm) for arm in runs.claim.arms}
    if len(sent) > 1:
        return runs.leave_open(f"the clients send {format_list(f'{count:.0f}' for count in sorted(sent))} requests")
    base, *_ = runs.claim.contrast
    places, parts, cpu, held = range(len(runs.claim.networks)), [], [], True
    for client, claimed in _CLAIMED.items():
        pair = base, f"{client}, 250 connections"
        gains = 1 / runs.compare_times("seconds", pair)["ratio"]
        fits = [place for place in places if runs.judge_speedup(claimed, "seconds", pair, [place]).verdict == HOLDS]
        said = f"agrees if {describe_networks(runs.claim, fits)}" if fits else "cannot be told"
        span = format_list(map(format_ratio, gains))
        parts.append(f"{claimed} times {client} {said} (by seconds, it is {span} times as fast)")
        held &= len(fits) == len(places)
        cpu.append(f"{format_ratio(1 / runs.compare_times('cpu_s', pair)['ratio'].median())} times (with {client})")
    reason = (
        "all clients send the same requests; client and server share the cores of a machine, which limits seconds, so"
        f" that a lower ratio refutes nothing: for {base}, {format_list(parts)}; CPU seconds for the same requests are"
        f" {format_list(cpu)} those of {base}"
    )
    ratio = float((1 / runs.compare_times()["ratio"]).median())
    return runs.decide(True, ratio, reason) if held else runs.leave_open(reason)
