"""Declaration of the arrays report: its factors, metrics and table columns."""

from collections.abc import Mapping

from sbench.pages.cell_tables import WHOLE, from_readers, from_readers_in_mib
from sbench.pages.declaration import Column, Factor, Metric, Report, Value, build_rate_summary
from sbench.pages.names import describe_user_build, format_added_packages, format_rate
from sbench.pages.prose import format_number
from sbench.studies.arrays.pieces import parse_shape

MIB = 2**20
BACKENDS = {"library": "the HDF5 library", "hsds": "HSDS", "zarr": "Zarr"}
OPERATIONS = {"write": "writing", "read": "reading", "limits": "requests near the limit", "faults": "faults"}
ACCESSES = {
    "whole": "the whole array",
    "rows": "rows of chunks",
    "columns": "columns of chunks",
    "blocks": "chunk by chunk",
    "pieces": "pieces below the request limit",
}
PROTOCOLS = {"client": "the client library", "binary": "bare requests", "json": "JSON"}
# Backends with service-specific factors, and backends with a configurable number of requests in flight.
OF_SERVICE, IN_FLIGHT = {"backend": ("hsds",)}, {"backend": ("hsds", "zarr")}
VALUES = {"formula": "the published values", "floats": "temperatures", "random": "values that cannot be compressed"}


def _format_software(level: str, facts: dict) -> str:
    """Format a library as "HDF5 2.0.0 (name)", without the name if it only repeats the release."""
    spec = (facts.get("libraries") or {}).get(level, {})
    if format_added_packages(spec):
        return describe_user_build(level, spec)
    version, release = spec.get("hdf5", ""), level == f"hdf5-{spec.get('hdf5')}" and not spec.get("own")
    return f"HDF5 {version}" if release else f"HDF5 {version} ({level})" if version else level


def _format_sides(level: str, _facts: dict) -> str:
    """Format a shape such as "1500x275" as "1,500 × 275"."""
    return " × ".join(f"{int(side):,}" for side in level.split("x") if side)


RATE = Value(
    "rate",
    "Rate",
    "MiB/s",
    means="Rate: bytes of the array's values divided by the time to write or read them; higher is better.",
    summary=build_rate_summary("bytes", MIB),
)
ACKNOWLEDGED = Value(
    "acknowledged_rate",
    "Rate until acknowledged",
    "MiB/s",
    means="Rate until acknowledged: the same bytes divided by the time until the last write is acknowledged; it is "
    "stored later.",
    summary=build_rate_summary("bytes", MIB, "acknowledged_s"),
)


def _format_amount(levels: Mapping) -> str:
    """Describe the operation of a cell with the amount of data, such as "writing 50 MiB".

    Returns:
        The description; an empty string if the operation is not timed or the levels lack a shape.
    """
    shape, chunks, operation = (levels.get(name) or "" for name in ("shape", "chunks", "operation"))
    if operation not in ("write", "read") or not shape:
        return ""
    shape = parse_shape(shape, chunks or shape)
    return f"{OPERATIONS[operation]} {format_rate(shape.bytes / MIB)} MiB"


REPORT = Report(
    study="arrays",
    title="Arrays through a service",
    headline="backend",
    factors=(
        Factor("library", known_as=_format_software, within="in {}"),
        Factor("store", place=True, within="on {}"),
        Factor("backend", names=BACKENDS, within="with {}", order=tuple(BACKENDS)),
        Factor("operation", names=OPERATIONS, within="{}", given=True, order=tuple(OPERATIONS)),
        Factor("shape", subject="an array of {}", label="{}", within="for {}", known_as=_format_sides, given=True),
        Factor("chunks", subject="chunks of {}", known_as=_format_sides, plural=True),
        Factor("compression", names={"none": "no compression", "gzip": "gzip"}, given=True),
        Factor("values", names=VALUES, plural=True, within="of {}", given=True),
        Factor("access", names=ACCESSES, within="for {}", given=True, order=tuple(ACCESSES)),
        Factor("protocol", names=PROTOCOLS, only=OF_SERVICE),
        Factor("nodes", unit="data node", axis="Data nodes", only=OF_SERVICE),
        Factor("request_limit", size=True, subject="a request limit of {}", axis="Request limit", only=OF_SERVICE),
        Factor("streaming", names={"on": "streaming", "off": "no streaming"}, only=OF_SERVICE),
        Factor("clients", unit="client", axis="Clients at once"),
        Factor(
            "concurrency",
            names={"unset": "the default number of requests in flight", "1": "1 request in flight"},
            subject="{} requests in flight",
            plural=True,
            axis="Requests in flight",
            only=IN_FLIGHT,
        ),
        Factor("cache", place=True),
    ),
    metrics=(
        Metric("total", "time to write or read the array"),
        Metric("acknowledged", "time until acknowledged"),
        Metric("open", "time to open or create the array"),
        Metric("first_byte", "time to the first byte"),
    ),
    values=(RATE, Value("total_s", "Time", "s", means="Lower is better."), ACKNOWLEDGED),
    amount=_format_amount,
    named=lambda results: {"the HDF service": BACKENDS["hsds"]},
    panels=("operation", "compression", "store", "access", "cache"),
    harness=(Column("start of clients / s", "cluster_start_s", format_number),),
    effective=(
        Column("HDF5", "hdf5"),
        *(Column(title, from_readers(f"effective.{name}")) for title, name in (("HSDS", "hsds"), ("Zarr", "zarr"))),
        Column("objects", from_readers("work.stored_objects", "median"), WHOLE),
        Column("stored / MiB", from_readers_in_mib("work.stored_bytes"), format_number),
        Column("in whole chunks / MiB", from_readers_in_mib("work.padded_bytes"), format_number),
        Column("service ready after / s", from_readers("effective.ready_s", "median"), format_number),
    ),
    along="clients",
)
METHOD = (
    "A record writes or reads the array once. The time of a write ends when all bytes are stored: a file is closed "
    "and synchronised (fsync), a service has flushed and its files are synchronised, an object store has "
    "acknowledged. The time includes opening or creating the array.",
    "Each record starts a service on this machine, with the data nodes of the cell. Before a read, the array is "
    "written through the service and its nodes restart. A cold read finds empty memory; a warm read follows an untimed "
    "read. Written values are read back from restarted nodes, untimed.",
    "Every value read is compared with the generated value.",
)
