"""How factors, levels and numbers of the study are called where people read them."""

from collections.abc import Iterable, Sequence

import pandas as pd

from scripts.lib import sizes
from scripts.lib.program import Problem
from scripts.report import prose
from scripts.studies.blobs.patterns import WHOLE

FACTORS = (
    *("store", "pattern", "size", "processes", "objects", "operation_size", "chunk_size", "concurrency", "cache"),
)
PLACE = ("cache",)
SIZES = ("size", "operation_size", "chunk_size")
METRICS = {
    "total": "time of all iterations",
    "first": "time of the first iteration",
    "rest": "time of the iterations after the first",
    "latency": "latency of an iteration",
    "first_broadcast": "time of the first broadcast",
    "ranks_start": "time to start the processes",
}
# In the order of the pages: patterns that give each process a whole object, then those that give it a section.
PATTERNS = (
    *WHOLE,
    *("sections", "sections-interleaved", "scatter"),
    *("mpi-io", "mpi-io-interleaved", "mpi-io-collective", "mpi-io-collective-interleaved"),
)
KINDS = {"s3": "S3", "azure-blob": "Azure Blob", "azure-files": "Azure Files"}
SERVERS = {"azure-blob": "Azurite"}
_ORDER = {"cold": 0, "warm": 1, "direct": 2, "any": 3, "shared": 0, "own": 1}


def store(name: str, facts: dict) -> str:
    """Return "S3", "Azure Blob" or "disk": a store by its kind where it is named so, else by its name."""
    kind = KINDS.get(_told(name, facts).get("kind", ""), "")
    return kind if kind.lower().replace(" ", "-") == name.lower() else name


def source(name: str, facts: dict) -> str:
    """Return a store with what stands in its place: "Azure Blob (Azurite, loopback)", "S3 (20 ms emulated)"."""
    told = _told(name, facts)
    if told.get("server") != "embedded":
        return store(name, facts)
    network = told.get("network") or {}
    limits = [
        f"{network[key]:g} {unit}"
        for key, unit in (("latency_ms", "ms"), ("bandwidth_mib_s", "MiB/s"))
        if network.get(key)
    ]
    place = f"{', '.join(limits)} emulated" if limits else "" if "loopback" in name else "loopback"
    told_in = ", ".join(filter(None, [SERVERS.get(told.get("kind", "")), place]))
    return f"{store(name, facts)} ({told_in})" if told_in else store(name, facts)


def level(factor: str, value: str, facts: dict) -> str:
    """Return a level in few words, as rows and legends have it."""
    match factor:
        case "store":
            return store(value, facts)
        case "size":
            return size(value)
        case "processes":
            return "1 process" if value == "1" else f"{value} processes"
        case "objects":
            return f"{value} object" if value == "shared" else f"{value} objects"
        case "operation_size":
            return f"operations of {size(value)}"
        case "chunk_size":
            return f"chunks of {size(value)}"
        case "concurrency":
            return "1 chunk at once" if value == "1" else f"{value} chunks at once"
        case "cache":
            return {"direct": "direct I/O", "any": "any cache"}.get(value, f"{value} cache")
        case _:
            return value


def levels(factor: str, values: Iterable[str], facts: dict) -> str:
    """Return several levels of a factor as a sentence has them: "1 or 2 processes"."""
    values = sorted(dict.fromkeys(values), key=lambda value: in_order((value,)))
    named = [level(factor, value, facts) for value in values]
    if len(values) == 1:
        return named[0]
    match factor:
        case "processes":
            return f"{prose.listing(values, 'or')} processes"
        case "operation_size" | "chunk_size":
            return f"{factor.split('_')[0]}s of {prose.listing(map(size, values), 'or')}"
        case "concurrency":
            return f"{prose.listing(values, 'or')} chunks at once"
        case "cache" if not set(values) - {"cold", "warm"}:
            return "cold or warm cache"
        case "store":
            return prose.listing((source(value, facts) for value in values), "or")
        case _:
            return prose.listing(named, "or")


def place(row: pd.Series | dict, facts: dict) -> str:
    """Return where a row's bytes came from: store and cache state."""
    parts = [source(row["store"], facts)] if row.get("store") else []
    parts += [level("cache", row["cache"], facts)] if row.get("cache") not in ("", "any", None) else []
    return ", ".join(parts)


def label(row: pd.Series | dict, factors: Iterable[str], facts: dict) -> str:
    """Return a row's levels of `factors`, joined, as a figure's row or a legend is called."""
    return " · ".join(level(factor, row[factor], facts) for factor in factors if row[factor]) or "all"


def varying(table: pd.DataFrame, factors: Iterable[str] = FACTORS) -> list[str]:
    """Return the factors that have more than one level in `table`."""
    return [factor for factor in factors if table[factor].nunique() > 1]


def sorted_levels(table: pd.DataFrame, factors: list[str]) -> list[tuple]:
    """Return the combinations of levels that occur in `table`, numbers and sizes by size, patterns as on the page."""
    return sorted(set(table[factors].itertuples(index=False, name=None)), key=in_order)


def in_order(values: Iterable[str]) -> list[tuple]:
    """Return a sort key of levels: sizes and numbers by size, patterns and cache states as people name them."""
    return [_key(value) for value in values]


def amount(value: str) -> float:
    """Return a level as a number: bytes of a size; NaN where it is none."""
    try:
        return float(sizes.in_bytes(value))
    except Problem:
        return float("nan")


def size(value: str) -> str:
    """Return "64 MiB" of "64MiB"."""
    digits = value.rstrip("KMGTiB")
    return f"{digits} {value[len(digits) :]}" if digits and digits != value else value


def usual(cells: pd.DataFrame) -> dict[str, str]:
    """Return the level of each factor but store, pattern and size that most cells have: said once, not each time."""
    found = {}
    for factor in FACTORS[3:]:
        counts = cells[factor].value_counts()
        if len(counts) and 2 * counts.iloc[0] > len(cells):
            found[factor] = str(counts.index[0])
    return found


def worth(factor: str, value: str, usual_levels: dict[str, str]) -> bool:
    """Return whether a level has to be said."""
    return bool(value) and value != usual_levels.get(factor) and (factor, value) != ("cache", "any")


def stretch(sizes: Sequence[str], of: Sequence[str]) -> str:
    """Return where among the sizes `of` that were measured some beside each other lie: "up to 4 MiB", "at 1 MiB"."""
    first, last = size(sizes[0]), size(sizes[-1])
    if len(sizes) == 1:
        return f"at {first}"
    if len(sizes) == len(of) == 2:
        return f"at {first} and at {last}"
    if len(sizes) == len(of):
        return f"at all sizes from {first} to {last}"
    if sizes[0] == of[0]:
        return f"up to {last}"
    return f"from {first} on" if sizes[-1] == of[-1] else f"from {first} to {last}"


def pattern_of(row: pd.Series | dict) -> str:
    """Return a pattern, and whether each process has an object of its own where the pattern leaves that open."""
    return f"{row['pattern']}, own objects" if row.get("objects") == "own" else row["pattern"]


def whole(pattern: str) -> bool:
    """Return whether a pattern gives each process a whole object, not a section of one."""
    return pattern in WHOLE


def latency(records: pd.DataFrame) -> str:
    """Return what the latency of a record is."""
    told = "median of the iterations after the first"
    return f"{told} (of a single one, that one)" if (records["iterations"] == 1).any() else told


def rate(value: float) -> str:
    """Return a bandwidth in MiB/s as people read it: three digits, all before the point."""
    return f"{value:,.0f}" if value >= 100 else prose.number(value)


def interval(low: float, high: float, text=prose.number) -> str:
    """Return " [2.40, 2.42]" with a blank before it, or nothing where there is none."""
    return f" [{text(low)}, {text(high)}]" if pd.notna(low) and pd.notna(high) else ""


def _told(name: str, facts: dict) -> dict:
    return (facts.get("stores") or {}).get(name) or {}


def _key(value: str) -> tuple:
    number = amount(value)
    if number == number:
        return (0, number, "")
    if value in PATTERNS:
        return (1, PATTERNS.index(value), "")
    return (2, _ORDER.get(value, 9), value)
