"""The page cache before every iteration of a cell (METHOD 8)."""

import os
import socket
import time
from pathlib import Path

from scripts.lib import cache
from scripts.stores import store as stores
from scripts.studies.blobs.patterns import Plan

_TRIES, _PAUSE_S = 11, 0.02


def files(job: dict, plan: Plan) -> list[Path]:
    """Return the files on this machine that hold what a cell reads.

    On a file system, and of the S3 server, an object is a file; Azurite's extents cannot be told apart, so it is all.
    """
    local = [Path(file) for file in job["local_files"]]
    return local[: plan.objects] if stores.of(job["settings"]["store"]).file_per_object else local


def worst(wanted: str, fractions: list[float]) -> float | None:
    """Return the resident fraction that is furthest from the state that was asked for."""
    return (min if wanted == "warm" else max)(fractions, default=None)


def ready(wanted: str, files: list[Path]) -> dict | None:
    """Bring files into the state that a cell asks for; those that are in the cache already are not read once more.

    Returns:
        As `scripts.lib.cache.prepare`; None where no file of the store is on this machine.
    """
    if not files:
        return None
    if wanted == "warm":
        fraction = cache.resident(files)
        if fraction is not None and fraction >= cache.WARM_AT_LEAST:
            return {"asked": wanted, "state": cache.verified_state(fraction), "resident_before": fraction}
    for _ in range(_TRIES):
        state = cache.prepare(wanted, files)
        if wanted not in ("cold", "direct") or state["state"] in ("cold", "unverified"):
            break
        _let_go_of_sent_pages()
        time.sleep(_PAUSE_S)
    return state


def _let_go_of_sent_pages() -> None:
    """Let every core free what it has received: it holds pages of files that a server has sent without copying them.

    Linux frees them when the core next handles a packet, which on a core that idles is never (skb_defer_free_flush).
    """
    cores = os.sched_getaffinity(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
        packets.bind(("127.0.0.1", 0))
        try:
            for core in cores:
                os.sched_setaffinity(0, {core})
                packets.sendto(b"", packets.getsockname())
                packets.recv(1)
        finally:
            os.sched_setaffinity(0, cores)
