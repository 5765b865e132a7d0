"""Arms of advice: ways to read a set of files, and the requests, bytes and time that each is forecast to take."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sbench.drivers import DEFAULT
from sbench.probe.program import Problem, make_command
from sbench.stores import network as networks
from sbench.studies.shots.accesses import Accesses

# Chunk cache of each dataset in bytes, unless an arm sets another: the default of HDF5 2, which reads.
RDCC_NBYTES = 8 * 2**20
_BUFFERS = ("0", "64MiB", "256MiB")
_CACHES = ("blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB")
FACTORS = ("layout", "driver", "page_buffer", "read_cache", "chunk_cache")


@dataclass(frozen=True)
class Arm:
    """A way to read a set of files: levels of the factors, and the forecast of one object.

    Attributes:
        requests, bytes, seconds: of one object, by level of the factor `selection`.
    """

    layout: str
    driver: str
    page_buffer: str = "unset"
    read_cache: str = DEFAULT
    chunk_cache: str = DEFAULT
    requests: Mapping[str, int] | None = None
    bytes: Mapping[str, int] | None = None
    seconds: Mapping[str, float] | None = None

    @property
    def levels(self) -> dict[str, str]:
        """Its levels by factor."""
        return {factor: getattr(self, factor) for factor in FACTORS}

    def mean(self, what: str, accesses: Accesses) -> float:
        """Return the mean of a forecast over all accesses, weighted by their shares."""
        return sum(share * getattr(self, what)[level] for level, share in accesses.shares.items())

    def rank(self, accesses: Accesses) -> tuple[float, float]:
        """Return the key that sorts the best arm first: by time, then by bytes."""
        return self.mean("seconds", accesses), self.mean("bytes", accesses)


def key_of(levels: Mapping[str, object]) -> tuple[str, ...]:
    """Return the levels that tell an arm from others; where one is not said, it is the default."""
    return tuple(str(levels.get(factor, DEFAULT)) for factor in FACTORS)


def list_arms(layout: str, from_s3: bool, paged: bool, chunk_cache: str = "") -> Iterator[Arm]:
    """Yield the ways to read a set of files, the one without any setting first.

    Args:
        layout: name of the set.
        from_s3: the files lie in a bucket.
        paged: the files have pages, so that HDF5's page buffer works.
        chunk_cache: a larger chunk cache to try with each of them, "" for none.
    """
    plain = []
    for driver in ("ros3", "s3fs") if from_s3 else ("sec2",):
        plain.append(Arm(layout, driver))
        buffers = _BUFFERS if paged and driver != "s3fs" else ()
        plain += [Arm(layout, driver, buffer) for buffer in buffers if (driver, buffer) != ("sec2", "0")]
    plain += [Arm(layout, "s3fs", read_cache=cache) for cache in (_CACHES if from_s3 else ())]
    yield from plain
    yield from (replace(arm, chunk_cache=chunk_cache) for arm in plain if chunk_cache)


@dataclass(frozen=True)
class Question:
    """A forecast to make: arms of one layout, and its files, which make up one object."""

    arms: Sequence[Arm]
    paths: Sequence[Path]
    datasets: Sequence[str]


def forecast(
    questions: Sequence[Question], python: str, accesses: Accesses, network: Mapping[str, float]
) -> list[list[Arm] | str]:
    """Return the arms of each layout with their forecasts, or the reason why its files cannot be read.

    Requests are taken to follow one another.

    Args:
        questions: one for each layout.
        python: the interpreter of the library that will read.
        accesses: how files are read.
        network: as in a store.

    Raises:
        Problem: the interpreter fails.
    """
    posed = [
        {
            "path": str(path),
            "datasets": list(one.datasets),
            "selections": list(accesses.shares),
            "rdcc_nbytes": RDCC_NBYTES,
            "arms": [arm.levels for arm in one.arms],
        }
        for one in questions
        for path in one.paths
    ]
    command = make_command("sbench.files.forecast", python=[python])
    done = subprocess.run(command, input=json.dumps(posed), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise Problem(f"requests cannot be forecast: {last.removeprefix('problem: ')}")
    answers = iter(json.loads(done.stdout))
    return [_summed(one, [next(answers) for _ in one.paths], network) for one in questions]


def _summed(question: Question, answers: Sequence[dict], network: Mapping[str, float]) -> list[Arm] | str:
    """Return the arms with the sums over an object's files."""
    if problems := [answer["problem"] for answer in answers if "problem" in answer]:
        return problems[0]
    forecasts = []
    for number, arm in enumerate(question.arms):
        of_files = [answer["arms"][number] for answer in answers]
        requests, size = (
            {level: sum(of[level][key] for of in of_files) for level in of_files[0]} for key in ("requests", "bytes")
        )
        seconds = {level: _seconds(requests[level], size[level], network) for level in requests}
        forecasts.append(replace(arm, requests=requests, bytes=size, seconds=seconds))
    return forecasts


def _seconds(requests: int, size: int, network: Mapping[str, float]) -> float:
    return requests * network.get("latency_ms", 0) / 1000 + size / 2**20 / networks.mib_s(network, 1)
