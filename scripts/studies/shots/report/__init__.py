"""What the report of the study `shots` shows and says."""

from scripts.report.declaration import Factor, Metric, Report


def hdf5_version(name: str, facts: dict) -> str:
    """Return "HDF5 2.0.0", or the library's own name where two libraries hold the same HDF5."""
    versions = {key: (value or {}).get("hdf5") for key, value in (facts.get("libraries") or {}).items()}
    version = versions.get(name)
    return f"HDF5 {version}" if version and list(versions.values()).count(version) == 1 else name


REPORT = Report(
    study="shots",
    title="Reading shot files",
    headline="library",
    factors=(
        Factor("library", known_as=hdf5_version, within="in {}"),
        Factor("store", place=True),
        Factor("driver", place=True),
        Factor(
            "access",
            names={"shots": "reading all signals of a shot", "signals": "reading one signal of all shots"},
            labels={"shots": "all signals of a shot", "signals": "one signal of all shots"},
            within="{}",
            given=True,
        ),
        Factor("layout", subject="the {} layout", within="on {level} files", label="{}", apart=True),
        Factor(
            "page_buffer",
            subject="a {} page buffer",
            names={"0": "no page buffer", "unset": "the default page buffer"},
            label="{} page buffer",
            size=True,
        ),
        Factor("workers", unit="worker"),
        Factor("cache", place=True),
    ),
    metrics=(
        Metric("total", "total runtime"),
        Metric("open", "one open", "open a file"),
        Metric("first", "the first dataset", "read the first dataset"),
        Metric("rest", "the datasets after the first", "read the datasets after the first"),
    ),
)
