"""List the combinations of driver and cache settings that `sbench advise` compares for a set of files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sbench.drivers import DEFAULT
from sbench.studies.shots.accesses import Accesses

# Default size of each dataset's chunk cache in bytes, which is the default of HDF5 2.
RDCC_NBYTES = 8 * 2**20
_BUFFERS = ("0", "64MiB", "256MiB")
_CACHES = ("blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB")
FACTORS = ("layout", "driver", "page_buffer", "read_cache", "chunk_cache")


@dataclass(frozen=True)
class Arm:
    """A driver with its cache settings for a set of files, and forecasts for reading a single object with it.

    Attributes:
        layout: name of the set of files.
        driver: name of the driver.
        page_buffer: size of HDF5's page buffer, such as "64MiB", or "unset".
        read_cache: read cache of the driver, such as "blockcache-4MiB".
        chunk_cache: size and slots of each dataset's chunk cache.
        requests: forecast number of requests, keyed by level of the factor `selection`.
        bytes: forecast number of bytes, with the same keys.
        seconds: forecast time in seconds, with the same keys.
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
        """The settings as a mapping from factor to level."""
        return {factor: getattr(self, factor) for factor in FACTORS}

    def compute_mean(self, what: str, accesses: Accesses) -> float:
        """Return the mean of a forecast ("requests", "bytes" or "seconds"), weighted by the shares of the reads."""
        return sum(share * getattr(self, what)[level] for level, share in accesses.shares.items())

    def compute_rank(self, accesses: Accesses) -> tuple[float, float]:
        """Return a sort key that ranks by forecast mean time, and then by forecast mean bytes."""
        return self.compute_mean("seconds", accesses), self.compute_mean("bytes", accesses)


def get_arm_key(levels: Mapping[str, object]) -> tuple[str, ...]:
    """Return a key that identifies an `Arm`: the level of each factor in `FACTORS`, or its default if missing."""
    return tuple(str(levels.get(factor, DEFAULT)) for factor in FACTORS)


def list_arms(layout: str, from_s3: bool, paged: bool, chunk_cache: str = "") -> Iterator[Arm]:
    """Yield the drivers and cache settings to compare for a set of files, starting with the defaults.

    Args:
        layout: name of the set.
        from_s3: whether the files are in an S3 bucket.
        paged: whether the files use HDF5's paged allocation, which the page buffer requires.
        chunk_cache: a larger chunk cache to try in addition, in combination with each other setting; an empty string
            for none.
    """
    plain = []
    for driver in ("ros3", "s3fs") if from_s3 else ("sec2",):
        plain.append(Arm(layout, driver))
        buffers = _BUFFERS if paged and driver != "s3fs" else ()
        plain += [Arm(layout, driver, buffer) for buffer in buffers if (driver, buffer) != ("sec2", "0")]
    plain += [Arm(layout, "s3fs", read_cache=cache) for cache in (_CACHES if from_s3 else ())]
    yield from plain
    yield from (replace(arm, chunk_cache=chunk_cache) for arm in plain if chunk_cache)
