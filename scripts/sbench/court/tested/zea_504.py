"""zea#504: chunks of 8 MB are in the middle of a broad optimum, which is the same for local files and the cloud."""

import asyncio
import math
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    import pandas as pd

    from sbench.court.judging import Judgement, Runs

# A transmit has 544 samples of 1,024 elements, which is 1.1 MB; 149 of them are the frame of 166 MB of the claim.
_TRANSMITS, _SAMPLES, _ELEMENTS = 149, 544, 1024
_CHUNKS = (1, 2, 4, 8, 15, 149)
# As in zea 0.1.8: MAX_CONCURRENT_REQUESTS and MAX_WORKERS.
_IN_FLIGHT, _WORKERS = 16, min(16, os.cpu_count() or 4)


def make_data(folder: Path) -> None:
    """Write a frame with chunks of each size, and the codec of zea."""
    import hdf5plugin

    from sbench.court.shapes import frames

    frame = frames.make_frame(_TRANSMITS, _SAMPLES, _ELEMENTS)
    codec = hdf5plugin.Blosc(cname="zstd", clevel=7, shuffle=hdf5plugin.Blosc.BITSHUFFLE)
    for transmits in _CHUNKS:
        frames.write_frame(folder / f"{transmits}.h5", frame, transmits, **codec)


def prepare(options: dict) -> Callable[[], dict]:
    """List the chunks of a frame, and return a function that reads it as `zea.data.chunk_reader` does."""
    import fsspec
    import h5py
    import numpy as np
    from numcodecs import blosc

    url = build_url(f"{options['transmits']}.h5", "http")
    with fsspec.filesystem("http").open(url, block_size=2**16) as opened, h5py.File(opened) as file:
        data = file["raw_data"]
        infos = [data.id.get_chunk_info(number) for number in range(data.id.get_num_chunks())]
        shape, dtype, size = data.shape, data.dtype, data.chunks
    chunks = {info.chunk_offset[1]: (info.byte_offset, info.size) for info in infos}
    fetch = _open_file(url) if options["local"] else _open_url(url)

    def read_frame() -> np.ndarray:
        out = np.empty(shape, dtype)

        def decode(start: int, raw: bytes) -> None:
            target = out[0, start : start + size[1]]
            if len(target) == size[1]:
                blosc.decompress(raw, dest=target)
            else:
                target[...] = np.frombuffer(blosc.decompress(raw), dtype).reshape(size)[0, : len(target)]

        with ThreadPoolExecutor(_WORKERS) as pool:
            fetch(pool, chunks, decode)
        return out

    def read() -> dict:
        seconds = []
        for _ in range(options["reads"]):
            began = time.perf_counter()
            out = read_frame()
            seconds.append(time.perf_counter() - began)
        return {"frame_s": min(seconds), "checksum": compute_checksum(out[0, ::10, ::64].tobytes())}

    return read


def _open_file(url: str) -> Callable:
    """Copy a file, and return a function that reads and decodes its chunks in threads, as `LocalFetcher` does."""
    # The copy is in the page cache.
    path, _ = urllib.request.urlretrieve(url, Path(tempfile.mkdtemp(), "frame.h5"))
    descriptor = os.open(path, os.O_RDONLY)
    os.unlink(path)

    def fetch(pool: ThreadPoolExecutor, chunks: dict, decode: Callable) -> None:
        def read_chunk(start: int) -> None:
            offset, size = chunks[start]
            decode(start, os.pread(descriptor, size, offset))

        list(pool.map(read_chunk, chunks))

    return fetch


def _open_url(url: str) -> Callable:
    """Return a function that requests all chunks, 16 at a time, and then decodes them, as `HTTPFetcher` does."""
    import fsspec
    from fsspec.asyn import sync

    client = fsspec.filesystem("http")

    def fetch(pool: ThreadPoolExecutor, chunks: dict, decode: Callable) -> None:
        async def gather() -> list[bytes]:
            slots = asyncio.Semaphore(_IN_FLIGHT)

            async def read_range(offset: int, size: int) -> bytes:
                async with slots:
                    return await client._cat_file(url, start=offset, end=offset + size)

            return await asyncio.gather(*(read_range(*place) for place in chunks.values()))

        list(pool.map(decode, chunks, sync(client.loop, gather)))

    return fetch


def judge(runs: "Runs") -> "Judgement":
    """Check for the local file and over each network that chunks of 2 to 16 MB are in the optimum."""
    from sbench.court.judging import AGREES
    from sbench.pages.prose import format_list

    sizes = {transmits: transmits * _SAMPLES * _ELEMENTS * 2 / 1e6 for transmits in _CHUNKS}
    sent = {
        transmits: runs.read_count(arm) / runs.claim.arms[arm]["options"]["reads"]
        for transmits in _CHUNKS
        for arm in (f"{transmits}, HTTP",)
    }
    wrong = [transmits for transmits, count in sent.items() if count != math.ceil(_TRANSMITS / transmits)]
    if wrong:
        return runs.leave_open(f"chunks of {format_list(map(str, wrong))} transmits do not need a request each")
    ratios = {place: _compare_sizes(table) for place, table in _list_places(runs).items()}
    claimed = [transmits for transmits in _CHUNKS if 2 <= sizes[transmits] < 17]
    held = [place for place, table in ratios.items() if (table.loc[claimed, "high"] <= AGREES).all()]
    refuted = [place for place, table in ratios.items() if (table.loc[claimed, "low"] > AGREES).any()]
    plateaus = {place: table.index[table["ratio"] <= AGREES] for place, table in ratios.items()}
    common = set.intersection(*map(set, plateaus.values()))
    middle = math.sqrt(sizes[min(common)] * sizes[max(common)]) if common else math.nan
    spans = [
        f"{sizes[min(plateau)]:.3g} to {sizes[max(plateau)]:.3g} MB with {place}" for place, plateau in plateaus.items()
    ]
    reason = (
        f"a frame needs {format_list(f'{count:.0f}' for count in sent.values())} requests with chunks of"
        f" {format_list(f'{size:.3g}' for size in sizes.values())} MB, and the optimum is {format_list(spans)}"
    )
    if unclear := [place for place in ratios if place not in (*held, *refuted)]:
        return runs.leave_open(
            f"{reason}; six blocks do not decide whether it has 2.2 to 16.7 MB with {format_list(unclear)}"
        )
    if held and refuted:
        return runs.limit(f"the data come from {format_list(held, 'or')}", middle, reason)
    return runs.decide(bool(held), middle, reason)


def _list_places(runs: "Runs") -> dict[str, "pd.DataFrame"]:
    """Return the seconds of a frame over each network and from a local file: a row per block, a column per size.

    A local file is read over all networks. The fastest read of a block counts, since other load only delays reads.
    """
    frame = runs.frame.assign(transmits=runs.frame["arm"].str.extract(r"(\d+),", expand=False).astype(int))
    remote = frame["arm"].str.endswith("HTTP")
    places = {
        f"a round trip of {network['latency_ms']} ms": frame[remote & (frame["network"] == place)]
        for place, network in enumerate(runs.claim.networks)
    }
    return {
        place: rows.pivot_table(index="block", columns="transmits", values="frame_s", aggfunc="min")
        for place, rows in (places | {"a local file": frame[~remote]}).items()
    }


def _compare_sizes(seconds: "pd.DataFrame") -> "pd.DataFrame":
    """Return the ratio of times of each size to the fastest one, by its median, with the 95 % CI."""
    from sbench.verdicts import judge as compare

    ratios = seconds.div(seconds[seconds.median().idxmin()], axis=0)
    table = compare(ratios.assign(equal=1.0).rename(columns=str), baseline="equal")
    return table.set_axis(table.index.astype(int))
