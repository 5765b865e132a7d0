"""Define the report of the shots study: its factors, metrics and columns."""

import math

import pandas as pd

from sbench.drivers import DEFAULT
from sbench.pages.cell_tables import get_column, get_numbers
from sbench.pages.declaration import NODES, PAGE_BUFFER, Column, Factor, Metric, Report, Scaling, Value
from sbench.pages.names import describe_user_build, format_size, get_added_versions, select_libraries
from sbench.pages.prose import format_list, format_number
from sbench.probe import sizes
from sbench.stores import network


def format_hdf5_version(name: str, facts: dict) -> str:
    """Return the display name of a library, such as "HDF5 2.0.0".

    For a user-supplied build, it is "HDF5 2.0.0 (my-branch)" or "s3fs 2025.2.0 (my-s3fs)". If two libraries have the
    same release of HDF5, it is the library's name in the configuration.
    """
    of_study = select_libraries(facts) or facts.get("libraries") or {}
    spec = of_study.get(name) or {}
    if own := describe_user_build(name, spec):
        return own
    # If a user supplied a package such as s3fs, name the other libraries by their release of this package.
    added = dict.fromkeys(package for other in of_study.values() for package in get_added_versions(other or {}))
    if added and all(package in spec.get("promised", {}) for package in added):
        return format_list(f"{package} {spec['promised'][package]}" for package in added)
    versions = {key: spec.get("hdf5") for key, spec in of_study.items() if spec and not spec.get("own")}
    version = versions.get(name)
    return f"HDF5 {version}" if version and list(versions.values()).count(version) == 1 else name


def _format_selection(level: str, facts: dict) -> str:
    """Describe the parts of datasets that are read, such as "all of each dataset" or "1 of 10 chunks"."""
    names = {"all": "all of each dataset", "metadata": "the metadata alone"}
    return names.get(
        level, f"{level} of each dataset" if level.startswith("[") else level.replace("/", " of ") + " chunks"
    )


def _get_buffer_in_force(_, cells: pd.DataFrame) -> pd.Series:
    """Return the size of the page buffer that was read back, in MiB if it is a number, otherwise unchanged."""
    buffers = get_numbers(cells, "page_buffer_bytes")
    return (buffers / 2**20).where(buffers.notna(), get_column(cells, "page_buffer_bytes"))


def _compute_bound(run, cells: pd.DataFrame) -> pd.Series:
    """Return the emulated network's rate limit in MiB/s for one connection per worker, or NaN if it has no limit."""
    stores = run.facts.get("stores") or {}
    networks = [(stores.get(name) or {}).get("network") for name in cells["store"]]
    rates = map(network.compute_rate_limit, networks, get_numbers(cells, "workers"))
    return pd.Series(rates, index=cells.index, dtype=float).replace(math.inf, math.nan)


def _compute_moved_rate(_, cells: pd.DataFrame) -> pd.Series:
    """Return the bytes received divided by the total runtime, in MiB/s."""
    return get_numbers(cells, "bytes_delivered").fillna(get_numbers(cells, "bytes_offered")) / 2**20 / cells["total_s"]


def _get_handshakes(run, cells: pd.DataFrame) -> pd.Series:
    """Return the number of TLS handshakes per record, or NaN if connections are not encrypted."""
    return cells["cell"].map(run.facts.get("handshakes") or {}).astype(float)


def _format_chunk_cache(level: str, facts: dict) -> str:
    """Describe a chunk cache: "64 MiB", "64 MiB and 10,007 slots", or "8 MiB (default)"."""
    default = (facts.get("settings") or {}).get("rdcc_nbytes")
    if level == DEFAULT:
        return level if default is None else f"{sizes.format_size(default)} ({level})"
    nbytes, _, slots = level.partition("-")
    return format_size(nbytes) + (f" and {int(slots):,} slots" if slots else "")


def _format_fault(level: str, _: dict) -> str:
    kind, _, every = level.partition("-every-")
    return f"{kind} in every {every}th GET" if every else "no faults"


REPORT = Report(
    study="shots",
    title="Reading HDF5 files",
    headline="library",
    factors=(
        Factor("library", known_as=format_hdf5_version, within="in {}", names={"unknown": "an unknown library"}),
        Factor("store", place=True, within="from {}"),
        Factor("driver", place=True),
        Factor("cache", place=True),
        Factor("layout", subject="the {} layout", within="on {level} files", label="{}", apart=True),
        Factor(
            "access",
            names={
                "shots": "reading all signals of a shot",
                "signals": "reading a signal of all shots",
                "files": "reading files",
                "datasets": "reading the same datasets of all files",
            },
            labels={
                "shots": "all signals of a shot",
                "signals": "a signal of all shots",
                "files": "files",
                "datasets": "the same datasets of all files",
            },
            within="{}",
            given=True,
        ),
        Factor("selection", known_as=_format_selection, within="{}", given=True, added="all"),
        PAGE_BUFFER,
        Factor("read_cache", subject="the {} read cache", names={"none": "no read cache"}, added="default"),
        Factor(
            "chunk_cache",
            subject="a chunk cache of {}",
            label="chunk cache of {}",
            known_as=_format_chunk_cache,
            order=("default",),
            added="default",
        ),
        Factor("fault", known_as=_format_fault, within="with {}", given=True, added="none"),
        Factor("workers", unit="worker", axis="Number of Dask workers"),
        NODES,
    ),
    metrics=(
        Metric("total", "total runtime"),
        Metric("open", "time to open a file"),
        Metric("first", "time to read the first dataset"),
        Metric("rest", "time to read the later datasets"),
    ),
    values=(
        Value("total_s", "Total runtime", "s", means="Total runtime in seconds; lower is better."),
        Value("first_s", "First dataset of a task", "s", axis="Time per dataset / s"),
        Value("later_s", "Later datasets", "s"),
    ),
    panels=("store", "driver", "cache", "layout", "access", "selection"),
    scaling=Scaling("workers"),
    harness=(
        Column("start of workers / s", "cluster_start_s", format_number),
        Column("planning / s", "plan_s", format_number),
        Column("empty tasks / s", "null_s", format_number),
        Column("gathering / s", "gather_s", format_number),
        Column("verifying / s", "verify_s", format_number),
    ),
    effective=(
        Column("HDF5", "hdf5"),
        Column(
            "page buffer in force / MiB",
            _get_buffer_in_force,
            lambda size: f"{size:g}" if isinstance(size, float) else size,
        ),
    ),
    moved=(
        Column("throughput / MiB/s", "throughput_mib_s", format_number),
        Column("moved / MiB/s", _compute_moved_rate, format_number),
        Column("bound / MiB/s", _compute_bound, format_number),
        Column("TLS handshakes", _get_handshakes, "{:.0f}".format),
    ),
)
METHOD = (
    "Each cell is measured in a fresh process. The clock starts when the workers are up and stops before the "
    "verification of the values. Times are medians with 95 % CI; throughput is all bytes divided by the total runtime.",
    "The tasks, datasets, bytes and checksum of each valid repeat match the manifest. Moved: bytes received divided by "
    "the total runtime; bound: the rate of the emulated network, with a connection per worker.",
)
