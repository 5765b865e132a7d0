"""What the report of the study `blobs` shows and says."""

from scripts.report.declaration import Factor, Metric, Report
from scripts.studies.blobs.patterns import WHOLE

# In the order of the pages: patterns that give each process a whole object, then those that give it a section.
PATTERNS = (
    *WHOLE,
    *("sections", "sections-interleaved", "scatter"),
    *("mpi-io", "mpi-io-interleaved", "mpi-io-collective", "mpi-io-collective-interleaved"),
)


def _unequal(row: dict) -> bool:
    """Return whether the arms of a comparison deliver different amounts by their nature."""
    whole = {side: row[side] in WHOLE for side in ("baseline", "contender", "pattern")}
    mixed = row["factor"] == "pattern" and whole["baseline"] != whole["contender"]
    grown = row["factor"] == "processes" and whole["pattern"]
    return mixed or grown or row["factor"] == "size"


REPORT = Report(
    study="blobs",
    title="Parallel input",
    headline="store",
    factors=(
        Factor("store", within="from {}"),
        Factor("pattern", order=PATTERNS),
        Factor("size", size=True, subject="{}", within="at {}"),
        Factor("processes", subject="{} processes", plural=True, names={"1": "1 process"}),
        Factor(
            "objects",
            names={"shared": "one object for all", "own": "an object per process"},
            labels={"shared": "shared object", "own": "own objects"},
            order=("shared", "own"),
        ),
        Factor("operation_size", size=True, plural=True, subject="operations of {}"),
        Factor("chunk_size", size=True, plural=True, subject="chunks of {}"),
        Factor("concurrency", subject="{} requests in flight", plural=True, names={"1": "1 request in flight"}),
        Factor("cache", place=True, labels={"direct": "direct I/O", "any": "any cache"}, label="{} cache"),
    ),
    metrics=(
        Metric("total", "time of all iterations"),
        Metric("first", "time of the first iteration", "read the first time"),
        Metric("rest", "time of the iterations after the first", "read again after the first time"),
        Metric("latency", "latency of an iteration", "finish an iteration"),
        Metric("first_broadcast", "time of the first broadcast", "broadcast the first time"),
        Metric("ranks_start", "time to start the processes", "start the processes"),
    ),
    along="size",
    confirm="rest",
    unequal=_unequal,
)
