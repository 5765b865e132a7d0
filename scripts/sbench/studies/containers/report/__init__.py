"""Declaration of the containers report: its factors, metrics and table columns."""

from sbench.pages.cell_tables import from_readers, from_readers_in_mib
from sbench.pages.declaration import Column, Factor, Metric, Report, Value
from sbench.pages.names import format_size
from sbench.pages.prose import format_number

SOURCE = "hdf5"
CONTAINERS = {
    "hdf5": "the HDF5 files as they are",
    "hdf5-repacked": "repacked HDF5",
    "kerchunk-json": "kerchunk references in JSON",
    "kerchunk-parquet": "kerchunk references in Parquet",
    "icechunk-virtual": "virtual Icechunk",
    "icechunk": "Icechunk",
    "zarr": "Zarr",
    "zarr-shards": "Zarr with shards",
    "parquet": "Parquet",
}
_FIXED = {"map": "a map", "series": "a time series", "box": "a box", "all": "all values", "walk": "the metadata walk"}
OPENINGS = {"library": "the library of the format", "xarray": "xarray", "open_mfdataset": "open_mfdataset"}
_SHARDED = {"container": ("zarr-shards",)}
_OF_ZARR = {"container": ("zarr", "zarr-shards", "icechunk", "icechunk-virtual", "kerchunk-json", "kerchunk-parquet")}


def _format_access(level: str, _facts: dict) -> str:
    """Format an access such as "rows-64-batch16-sorted" as "64 random rows, sorted, 16 per call"."""
    if level in _FIXED:
        return _FIXED[level]
    kind, number, *more = level.split("-")
    batch = [f"{part.removeprefix('batch')} per call" for part in more if part.startswith("batch")]
    return ", ".join([f"{number} random {kind}", *(["sorted"] if "sorted" in more else []), *batch])


def _format_sides(level: str, _facts: dict) -> str:
    """Format a shape such as "1x180x360" as "1 × 180 × 360"."""
    return " × ".join(f"{int(side):,}" for side in level.split("x")) if level[:1].isdigit() else level


def _format_read_cache(level: str, _facts: dict) -> str:
    """Format a read cache such as "blockcache-64KiB" as "a blockcache of 64 KiB"."""
    kind, _, size = level.partition("-")
    named = {"default": "the default read cache", "none": "no read cache"}
    return named.get(kind, f"a {kind} of {format_size(size)}")


def _format_opening(level: str, _facts: dict) -> str:
    """Format an opening such as "open_mfdataset+minimal" as "open_mfdataset (minimal)"."""
    base, *names = level.split("+")
    return OPENINGS.get(base, base) + (f" ({', '.join(names)})" if names else "")


REPORT = Report(
    study="containers",
    title="Containers for the same data",
    headline="container",
    factors=(
        Factor("library", within="in {}"),
        Factor("store", place=True, within="on {}"),
        Factor("container", names=CONTAINERS, within="from {}", order=tuple(CONTAINERS)),
        Factor("access", known_as=_format_access, within="for {}", given=True, order=tuple(_FIXED)),
        Factor("shape", subject="an array of {}", label="{}", within="for {}", known_as=_format_sides, given=True),
        Factor("chunks", subject="source chunks of {}", known_as=_format_sides, plural=True, given=True),
        Factor("compression", names={"none": "no compression", "deflate": "deflate"}, given=True),
        Factor("files", unit="file", axis="Files", given=True),
        Factor(
            "container_chunks",
            subject="chunks of {}",
            names={"same": "the chunks of the source"},
            known_as=_format_sides,
        ),
        Factor("shard_chunks", subject="shards of {} chunks", known_as=_format_sides, plural=True, only=_SHARDED),
        Factor("codec", names={"same": "the codec of the source", "none": "no codec"}),
        Factor("client", names={"default": "the usual client"}),
        Factor("read_cache", known_as=_format_read_cache),
        Factor("opening", known_as=_format_opening, within="through {}"),
        Factor(
            "concurrency",
            subject="{} requests in flight",
            names={"unset": "the default requests in flight"},
            axis="Requests in flight",
            only=_OF_ZARR,
        ),
        Factor(
            "threads",
            subject="{} decoding threads",
            names={"unset": "the default decoding threads"},
            axis="Decoding threads",
            only=_OF_ZARR,
        ),
        Factor(
            "coalescing",
            subject="merging up to {}",
            names={"unset": "the default merging"},
            only=_SHARDED,
        ),
        Factor("workers", names={"unset": "no Dask workers"}),
        Factor("cache", place=True),
    ),
    metrics=(
        Metric("total", "time to open and read"),
        Metric("open", "time to open"),
        Metric("convert", "time of the conversion"),
    ),
    values=(Value("total_s", "Time", "s", means="Lower is better."),),
    panels=("access", "store", "files", "shape", "cache"),
    effective=(
        Column("HDF5", "hdf5"),
        *(
            Column(title, from_readers(f"effective.{name}"))
            for title, name in (("Zarr", "zarr"), ("Icechunk", "icechunk"))
        ),
        Column("client", from_readers("effective.client")),
        Column("chunks", from_readers("effective.chunks")),
        Column("shards", from_readers("effective.shards")),
        Column("codec", from_readers("effective.codec")),
    ),
    moved=(Column("container / MiB", from_readers_in_mib("conversion.bytes"), format_number),),
)
METHOD = (
    "A record makes the container from the source files, in a window of its own. It opens the container and reads a "
    "value, so that all modules are imported. Then it opens and reads it with new clients, which is timed. The source "
    "files are read as they are; their copies in the store are made before.",
    "Parts to read, and the order of random rows, depend on the seed alone: all records of an access read the same.",
    "Every value read is compared with the generated value, after the time.",
    "The server counts all requests from opening to the last value.",
)
