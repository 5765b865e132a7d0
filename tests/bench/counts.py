"""Counts of requests compared with the truth, and the time that the emulated network adds to a request."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sbench.build import servers
from sbench.probe.program import build_command, read_json
from sbench.stores import bare
from sbench.stores import store as stores
from sbench.stores.embedded import Proxy
from sbench.stores.s3 import ENDPOINT, KEYS, client
from sbench.verdicts import stats
from tests.bench import common
from tests.bench.common import Row, Say, at_most
from tests.helpers import request_truth as truth

_LIBRARY = {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"}
_SIZES = (4 * 2**10, 2**20)
_GOAL_US = 300
# A connection is fast or slow for as long as it lasts, by the buffers that the kernel gives it.
_PAIRS = 20


def compare_counts(folder: Path, say: Say, requests: int = 10_000, gets: int = 1000) -> Iterator[Row]:
    """Compare counted requests with the truth, and measure the time that the network adds to a request."""
    words = ("--library", "readers", "--spec", json.dumps(_LIBRARY), "--out", folder / "readers.json")
    common.run_command(build_command("build_library", *words))
    python = read_json(folder / "readers.json")["python"]
    for name, (clients, network) in truth.WINDOWS.items():
        say(name)
        (folder / name).mkdir()
        # Retried and aborted requests are a tenth of the others.
        share = requests / len(clients) / (1 if network == {} and len(clients) > 1 else 10)
        rounds = {one: max(1, round(share / truth.ROUND_REQUESTS[one])) for one in clients}
        compared = truth.compare_clients(folder / name, python, rounds, network)
        what = f"{name}: {compared.requests:,} requests of {compared.clients} clients"
        number = len(compared.differences)
        against = "; ".join(compared.differences)[:500]
        yield Row(what, f"{number} differences", against, goal="0 differences", within=not number)
    say("time that the network adds")
    yield from _measure_delay(folder / "delay", gets)


def _measure_delay(folder: Path, gets: int) -> Iterator[Row]:
    """Measure GETs through a network without limits and directly, in turn, over several connections that are kept."""
    spec = {"kind": "s3", "bucket": "bench", "region": "us-east-1", "server": "embedded", "anonymous": False}
    binaries, store = servers.provide_servers(("versitygw", "toxiproxy")), stores.get_store(spec)
    folder.mkdir()
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        store.serve_folder(binaries, folder / "data", None, log) as served,
        contextlib.ExitStack() as stack,
    ):
        proxy = Proxy(stack, binaries["toxiproxy"], served.endpoint, {}, log)
        keys = dict(zip(KEYS, served.credentials.values(), strict=True))
        direct, through = ({**keys, ENDPOINT: endpoint} for endpoint in (served.endpoint, proxy.endpoint))
        s3 = client.build_client(spec, direct)
        s3.create_bucket(Bucket="bench")
        s3.put_object(Bucket="bench", Key="o", Body=bytes(max(_SIZES)))
        addresses = [store.sign_addresses({"key": ""}, ["o"], env) for env in (direct, through)]
        for size in _SIZES:
            seconds = np.concatenate([_time_gets(addresses, size, gets // _PAIRS) for _ in range(_PAIRS)])
            added = stats.estimate_median(1e6 * (seconds[:, 1] - seconds[:, 0]))
            against = f"[{added.low:.0f}, {added.high:.0f}] µs; directly {common.format_seconds(seconds[:, 0])}"
            yield at_most(f"a GET of {size // 1024:,} KiB: added by the network", added.value, _GOAL_US, "µs", against)


def _time_gets(addresses: list[dict[str, bare.Address]], size: int, gets: int) -> np.ndarray:
    """Return the seconds of GETs over a new connection to each address, in turn: gets × addresses."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(bare.Http(address))) for address in addresses]
        for connection in connections:
            connection.connect("o")
        return np.array([[_time_get(connection, size) for connection in connections] for _ in range(gets)])


def _time_get(connection: bare.Http, size: int) -> float:
    begin = time.perf_counter()
    connection.read_range("o", 0, size)
    return time.perf_counter() - begin
