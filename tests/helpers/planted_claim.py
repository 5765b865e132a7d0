"""The module of planted claims: arms whose requests, bytes, values and delays are options, so that the truth is known.

Tests copy it into a clone, once for each claim, whose title says what decides.
"""

import http.client
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_SIZE = 2**20


def make_data(folder: Path) -> None:
    """Write two objects with different values."""
    (folder / "zeros.bin").write_bytes(bytes(_SIZE))
    (folder / "ones.bin").write_bytes(b"\1" * _SIZE)


def prepare(options: dict) -> Callable[[], dict]:
    """Return a function that sends GETs for ranges.

    Options are `gets`; `size`, the bytes of each range; `step`, the distance between ranges; `delay_s`, seconds to
    sleep; `key`, the object; `fails`.
    """
    if options.get("fails"):
        raise ValueError("planted failure")
    gets, size, step = options.get("gets", 1), options.get("size", 1000), options.get("step", 1000)
    url = urllib.parse.urlsplit(build_url(options.get("key", "zeros.bin"), "http"))
    connection = http.client.HTTPConnection(url.netloc)
    connection.connect()

    def read() -> dict:
        time.sleep(options.get("delay_s", 0))
        values = []
        for number in range(gets):
            begin = number * step
            connection.request("GET", url.path, headers={"Range": f"bytes={begin}-{begin + size - 1}"})
            values.append(connection.getresponse().read())
        return {"checksum": compute_checksum(values[0])}

    return read


def judge(runs: "Runs") -> "Judgement":
    """Judge by what the title names."""
    arm, base = runs.claim.contrast
    if runs.claim.title == "times":
        return runs.judge_speedup(float(runs.claim.claimed))
    if runs.claim.title == "equal values":
        unequal = runs.list_unequal()
        return runs.decide(not unequal, len(unequal), f"{len(unequal)} arms read other values")
    column = runs.claim.title
    if column == "repeated":
        count = runs.read_count(arm, column)
        return runs.decide(runs.agrees(count), count, f"{arm} repeats {count:.0f} requests")
    ratio = runs.read_count(base, column) / runs.read_count(arm, column)
    return runs.decide(runs.agrees(ratio), ratio, f"{ratio:.3g} times as many {column} of {base} as of {arm}")
