"""Declaration of the blobs report: its factors, metrics and table columns."""

from sbench.pages import prose
from sbench.pages.cell_tables import WHOLE, format_fact, from_readers, from_readers_in_mib
from sbench.pages.declaration import NODES, Column, Contest, Factor, Metric, Report, Scaling, Value, build_rate_summary
from sbench.pages.names import Names
from sbench.studies.blobs import patterns
from sbench.studies.blobs.report import words

MIB = 2**20
AGAIN = "retries, sum of repeats"
MOST = "{:,.0f}".format


def _is_unequal(row: dict) -> bool:
    """Return whether the compared cells deliver different numbers of bytes because of the compared factor itself."""
    whole = {side: row[side] in patterns.WHOLE for side in ("baseline", "contender", "pattern")}
    mixed = row["factor"] == "pattern" and whole["baseline"] != whole["contender"]
    grown = row["factor"] == "processes" and whole["pattern"]
    return mixed or grown or row["factor"] == "size"


def _format_arm(levels: dict, names: Names) -> str:
    own = ", own objects" if levels["objects"] == "own" else ""
    return f"{levels['pattern']}{own} on {names.format_store(levels['store'])}"


def _format_group(cell: dict) -> str:
    return words.fill("whole objects" if cell["pattern"] in patterns.WHOLE else "sections")


def _format_hosts(hosts: list[dict]) -> str:
    counts = [host["processes"] for host in hosts]
    if len(counts) < 2:
        return str(sum(counts))
    each = f"{counts[0]} each" if len(set(counts)) == 1 else prose.format_list(map(str, counts))
    return f"{sum(counts)} on {len(counts)} hosts ({each})"


def _count_if_several(nodes: list[str]) -> int | None:
    return len(set(nodes)) if len(set(nodes)) > 1 else None


BANDWIDTH = Value(
    "mib_s",
    "Bandwidth",
    "MiB/s",
    means="Bandwidth: all bytes that reached the processes divided by the time; higher is better.",
    summary=build_rate_summary("bytes", MIB),
    bound="ceiling_mib_s",
    bound_name="bare client",
)
LATENCY = Value(
    "latency_s",
    "Latency",
    "s",
    "Latency of an iteration / s",
    "Latency: until the last process is done; lower is better.",
)
FIRST = Value(
    "first_ratio",
    "First iteration / median of the later ones",
    means="A record's first iteration divided by the median of its later ones; above 1, the first took longer.",
    ratio=True,
)
IMBALANCE = Value(
    "imbalance",
    "Last process done / first process done",
    means="Time until the last process is done / time until the first is done, from the start of the iteration: "
    "median over the record.",
    ratio=True,
)
SHARE = Value(
    "share",
    "Bandwidth / bandwidth of the bare client",
    means="Bandwidth of a record / bandwidth of the bare client from the same store in the same record. Patterns with "
    "a single reading process are omitted, as each byte that it fetches counts for every process.",
    ratio=True,
)
READ_BACK = {
    **{"verified": "verified", "O_DIRECT": "direct", "stripes": "stripe", "MPI-IO hints": "mpi_io_hints"},
    **{"client": "client", "MPI": "mpi", "started by": "launcher"},
}
REPORT = Report(
    study="blobs",
    title="Parallel input",
    headline="store",
    factors=(
        Factor("store", within="from {}"),
        Factor("pattern", order=tuple(patterns.PATTERNS)),
        Factor("size", size=True, subject="{}", within="at {}", axis="Size of an object"),
        Factor("processes", subject="{} processes", plural=True, names={"1": "1 process"}, axis="MPI processes"),
        NODES,
        Factor(
            "objects",
            names={"shared": "a shared object", "own": "an object per process"},
            labels={"shared": "shared object", "own": "own objects"},
            order=("shared", "own"),
        ),
        Factor("operation_size", size=True, plural=True, subject="operations of {}", axis="Size of an operation"),
        Factor("chunk_size", size=True, plural=True, subject="chunks of {}", axis="Size of a chunk"),
        Factor(
            "concurrency",
            subject="{} requests in flight",
            plural=True,
            names={"1": "1 request in flight"},
            axis="Requests in flight per process",
        ),
        Factor("cache", place=True, labels={"direct": "direct I/O", "any": "any cache"}, label="{} cache"),
    ),
    metrics=(
        Metric("total", "time of the iterations"),
        Metric("first", "time of the first iteration"),
        Metric("latency", "latency of an iteration"),
        Metric("first_broadcast", "time of the first broadcast"),
        Metric("ranks_start", "time to start the processes"),
    ),
    values=(
        *(BANDWIDTH, LATENCY, FIRST, IMBALANCE, SHARE),
        *map(Value, ("first_s", "spread", "ceiling_mib_s", "iterations")),
        *map(Value, ("read_share", "distributing_s", "bare_distributing_s")),
    ),
    panels=("pattern", "objects", "size"),
    contest=Contest(("store", "pattern", "objects"), "was fastest", _format_group, _format_arm),
    # In some patterns the number of bytes grows with the number of processes, so compare the time per byte.
    scaling=Scaling("processes", "byte_s", "time per byte"),
    harness=(
        Column("start of the processes / s", "ranks_start_s", prose.format_number),
        Column("first broadcast / s", "first_broadcast_s", prose.format_number),
        Column("empty iterations / s", "null_s", prose.format_number),
        Column("verifying / s", "verify_s", prose.format_number),
    ),
    effective=(
        Column("nodes in force", from_readers("effective.ran_on", of=_count_if_several), WHOLE),
        Column("processes in force", from_readers("effective.hosts", of=_format_hosts)),
        Column("cores", from_readers("effective.usable_cores"), WHOLE),
        Column(
            "idle processes",
            from_readers("effective.idle_processes", of=lambda idle: idle or None),
            WHOLE,
            meaning="processes without work",
        ),
        Column("operations", from_readers("effective.operations"), MOST),
        *(Column(title, from_readers(f"effective.{name}", of=format_fact)) for title, name in READ_BACK.items()),
        Column("allowed memory growth / MiB", from_readers_in_mib("memory.allowed_bytes", "max"), MOST),
        Column("memory growth of a process / MiB", from_readers_in_mib("memory.growth_bytes", "max"), MOST),
    ),
    moved=(
        Column("requests sent by the clients", from_readers("attempts", "median"), MOST),
        Column(
            AGAIN,
            from_readers("retries", "sum"),
            MOST,
            lambda again, _: again.fillna(0) > 0,
            "requests that a client retried",
        ),
    ),
    along="size",
    unequal=_is_unequal,
)
METHOD = (
    "A launch starts the MPI processes and reads many times; a record has one launch or several. An iteration lies "
    "between two barriers: its latency is the time from the start of the first process to the end of the last, by the "
    "machine's clock (the longest of several machines). The page cache is set before every iteration, untimed. "
    "Bandwidth and median latency leave out a launch's first iteration if there are others.",
    "Bytes count for each process that receives them: an object read once and broadcast to four counts four times.",
    "Stores and patterns that the configuration does not compare are compared pairwise if they deliver the same "
    "bytes; these pairs form a further family, contest in verdicts.csv. Patterns that deliver whole objects are not "
    "compared with patterns that deliver sections.",
    "The bare client measures the ceiling of the store: after the iterations, the reading processes make bare "
    "requests, with the same number in flight, to the same store, objects and cache state, without MPI and SDK, and "
    "drop the bytes; on a file system they make plain reads.",
    "After each iteration, untimed, every block of every process is checked against the manifest, and the buffers are "
    "overwritten; data beyond a single operation are checked in a separate pass. Objects are random bytes.",
)
