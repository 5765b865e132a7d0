"""Declare the report of the particles study: factors, metrics, tables, and descriptions of the method."""

from sbench.pages.cell_tables import WHOLE, from_readers, from_readers_in_mib
from sbench.pages.declaration import (
    NODES,
    PAGE_BUFFER,
    Column,
    Contest,
    Factor,
    Metric,
    Report,
    Scaling,
    Value,
    build_rate_summary,
)
from sbench.pages.prose import format_number
from sbench.studies.particles.methods import METHODS, PUBLISHED

MILLION = 1e6
OPERATIONS = {
    "load": "loading into an array",
    "sum": "summing",
    "moments": "computing mean and variance",
    "histogram": "computing a histogram",
}

# Names of the methods in sentences; labels and tables have the levels.
_METHODS = {name: f"Dask {name}" for name, method in METHODS.items() if method.dask and not method.yt}
_METHODS["serial"] = "the serial loop"
_LABELS = {name: name for name in METHODS}


def format_particles(level: str, _facts: dict | None = None) -> str:
    """Format a number of particles, such as "1.94 million"."""
    return f"{int(level) / MILLION:.3g} million" if level.isdigit() else "user-supplied"


def format_method(cell: dict) -> str:
    """Return the name of a cell's method, with its name in the published study in parentheses if it has one there."""
    published = PUBLISHED.get((cell["operation"], cell["method"]))
    return f"{cell['method']} ({published})" if published else cell["method"]


REPORT = Report(
    study="particles",
    title="Chunks of particles",
    headline="method",
    factors=(
        Factor("library", within="in {}"),
        Factor("store", place=True, within="from {}"),
        Factor(
            "driver",
            names={"sec2": "HDF5 files", "ros3": "HDF5 files through ROS3", "parquet": "a Parquet copy"},
            within="from {}",
        ),
        PAGE_BUFFER,
        Factor("particles", known_as=format_particles, unit="particle", within="for {}", axis="Particles", given=True),
        Factor(
            "chunk",
            known_as=lambda level, _: f"{int(level):,}" if level.isdigit() else level,
            subject="chunks of at most {} particles",
            plural=True,
            axis="Particles in a chunk",
        ),
        Factor("rereads", names={"1": "each chunk once"}, subject="each chunk {} times", within="reading {}"),
        Factor("operation", names=OPERATIONS, within="{}", given=True),
        Factor(
            "selection",
            names={"all": "all particles", "region": "particles of a region"},
            within="of {}",
            given=True,
        ),
        Factor("method", names=_METHODS, labels=_LABELS),
        Factor("workers", unit="worker", axis="Number of Dask workers"),
        NODES,
        Factor("threads", unit="thread", axis="Threads of a worker"),
        Factor("pool", names={"processes": "workers as processes", "threads": "workers as threads"}, plural=True),
        Factor("memory", names={"none": "no memory limit"}, subject="at most {} of memory", size=True),
        Factor("cache", place=True),
    ),
    metrics=(
        Metric("total", "time of the iterations"),
        Metric("first", "time of the first iteration"),
        Metric("chunk", "time to read a chunk"),
        Metric("prepare", "time to make the copy or yt's index"),
    ),
    values=(
        Value(
            "rate",
            "Rate",
            "million particles/s",
            means="Rate: particles of all chunks divided by the time of the iterations; higher is better.",
            summary=build_rate_summary("done", MILLION),
        ),
        Value("iteration_s", "Time of an iteration", "s", means="Lower is better."),
        Value(
            "overhead_ms",
            "Cost of a task without reading",
            "ms",
            means="An iteration that reads nothing, divided by the number of chunks: the cost of Dask or of the loop.",
        ),
        Value(
            "spread",
            "Reading: busiest worker / mean",
            ratio=True,
            means="Reading time of the busiest worker, divided by the mean over the workers.",
        ),
    ),
    panels=("operation", "selection", "store", "driver", "cache"),
    contest=Contest(
        ("method",),
        "was fastest",
        lambda cell: OPERATIONS[cell["operation"]],
        lambda levels, names: names.format_subject("method", levels["method"]),
    ),
    scaling=Scaling("workers"),
    harness=(
        Column("start of workers / s", "cluster_start_s", format_number),
        Column("recording of reads / s", "null_s", format_number),
    ),
    effective=(
        Column("HDF5", "hdf5"),
        Column("stored bytes of the field / MiB", from_readers_in_mib("effective.read_bytes"), format_number),
        Column("reading processes", from_readers("effective.readers", "median"), WHOLE),
        Column("bytes per task", from_readers("effective.task_bytes", "median"), WHOLE),
        Column("moved between processes / MiB", from_readers_in_mib("effective.moved_bytes"), format_number),
        Column("peak memory of the client / MiB", from_readers_in_mib("effective.client_peak_bytes"), format_number),
        Column(
            "peak memory of the largest worker / MiB", from_readers_in_mib("effective.worker_peak_bytes"), format_number
        ),
    ),
    along="particles",
)
METHOD = (
    "A record starts a Dask cluster, even for methods without Dask, and repeats the same iteration. The clock runs "
    "from the call of the method until the client has the result: it includes building the graph, not starting the "
    "cluster. Rates and times leave out the first iteration if there are others; the time of an iteration is their "
    "median.",
    "Each process counts the chunks that it reads. After each iteration, untimed checks require that every chunk was "
    "read as often as listed, and compare the result with the manifest: the checksum of a loaded array, sums within "
    "1e-9, the counts of a histogram.",
)
