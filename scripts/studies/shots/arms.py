"""Ways to read files: which make sense, and what each is forecast to ask for and to take."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.lib.program import Problem
from scripts.stores import network as networks

# Chunk cache of each dataset in bytes, which forecast and measurement have in common.
RDCC_NBYTES = 8 * 2**20
# What a read of a disk is taken to cost, where no network is emulated.
DISK = {"latency_ms": 0.1, "per_connection_mib_s": 500}
_BUFFERS = ("0", "64MiB", "256MiB")
_CACHES = ("blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB")


@dataclass(frozen=True)
class Arm:
    """A way to read a set of files: levels of the factors, and what an object is forecast to take, in bytes and s."""

    layout: str
    driver: str
    page_buffer: str = "unset"
    read_cache: str = "default"
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def levels(self) -> dict[str, str]:
        """Its levels by factor."""
        return {key: getattr(self, key) for key in ("layout", "driver", "page_buffer", "read_cache")}


def sensible(layout: str, from_s3: bool, paged: bool) -> Iterator[Arm]:
    """Yield the ways to read a set of files that make sense, the one without any setting first."""
    for driver in ("ros3", "s3fs") if from_s3 else ("sec2",):
        yield Arm(layout, driver)
        buffers = _BUFFERS if paged and driver != "s3fs" else ()
        yield from (Arm(layout, driver, buffer) for buffer in buffers if (driver, buffer) != ("sec2", "0"))
    yield from (Arm(layout, "s3fs", read_cache=cache) for cache in (_CACHES if from_s3 else ()))


def forecast(
    arms: Sequence[Arm], python: str, paths: Sequence[Path], datasets: list[str], selection: str, network: dict
) -> list[Arm]:
    """Return arms of one layout with what reading the files once takes, the requests one after the other.

    Args:
        arms: of files that are laid out alike.
        python: the interpreter of the library that will read.
        paths: of the files.
        datasets: patterns, as in data.datasets.
        selection: the level of the factor.
        network: as in a store.

    Raises:
        Problem: the files cannot be read so.
    """
    question = {
        "datasets": datasets,
        "selection": selection,
        "rdcc_nbytes": RDCC_NBYTES,
        "arms": [arm.levels for arm in arms],
    }
    questions = json.dumps([{"path": str(path)} | question for path in paths])
    command = [python, "-sE", "-m", "scripts.studies.shots.forecast"]
    done = subprocess.run(command, input=questions, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Problem(f"what is read of {paths[0]} cannot be forecast: {last.removeprefix('problem: ')}")
    taken = []
    for arm, answers in zip(arms, zip(*json.loads(done.stdout), strict=True), strict=True):
        requests, size = (sum(answer[key] for answer in answers) for key in ("requests", "bytes"))
        took = requests * network.get("latency_ms", 0) / 1000 + size / 2**20 / networks.mib_s(network, 1)
        taken.append(replace(arm, requests=requests, bytes=size, seconds=took))
    return taken
