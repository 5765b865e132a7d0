"""Arms of advice: ways to read a set of files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sbench.drivers import DEFAULT
from sbench.studies.shots.accesses import Accesses

# Chunk cache of each dataset in bytes, unless an arm sets another: the default of HDF5 2.
RDCC_NBYTES = 8 * 2**20
_BUFFERS = ("0", "64MiB", "256MiB")
_CACHES = ("blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB")
FACTORS = ("layout", "driver", "page_buffer", "read_cache", "chunk_cache")


@dataclass(frozen=True)
class Arm:
    """A way to read a set of files: levels of the factors, and the forecast for one object.

    Attributes:
        requests, bytes, seconds: forecasts for one object, by level of the factor `selection`.
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
        """Return the arm's levels by factor."""
        return {factor: getattr(self, factor) for factor in FACTORS}

    def compute_mean(self, what: str, accesses: Accesses) -> float:
        """Return the mean of a forecast over all accesses, weighted by their shares."""
        return sum(share * getattr(self, what)[level] for level, share in accesses.shares.items())

    def compute_rank(self, accesses: Accesses) -> tuple[float, float]:
        """Return a key that sorts the best arm first: by time, then by bytes."""
        return self.compute_mean("seconds", accesses), self.compute_mean("bytes", accesses)


def get_arm_key(levels: Mapping[str, object]) -> tuple[str, ...]:
    """Return the levels that identify an arm; a missing level is the default."""
    return tuple(str(levels.get(factor, DEFAULT)) for factor in FACTORS)


def list_arms(layout: str, from_s3: bool, paged: bool, chunk_cache: str = "") -> Iterator[Arm]:
    """Yield the arms for a set of files, the arm with default settings first.

    Args:
        layout: name of the set.
        from_s3: whether the files are in a bucket.
        paged: whether the files have pages, so that HDF5's page buffer works.
        chunk_cache: a larger chunk cache to try with each arm, too; "" for none.
    """
    plain = []
    for driver in ("ros3", "s3fs") if from_s3 else ("sec2",):
        plain.append(Arm(layout, driver))
        buffers = _BUFFERS if paged and driver != "s3fs" else ()
        plain += [Arm(layout, driver, buffer) for buffer in buffers if (driver, buffer) != ("sec2", "0")]
    plain += [Arm(layout, "s3fs", read_cache=cache) for cache in (_CACHES if from_s3 else ())]
    yield from plain
    yield from (replace(arm, chunk_cache=chunk_cache) for arm in plain if chunk_cache)
