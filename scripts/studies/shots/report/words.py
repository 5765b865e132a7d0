"""How factors, levels and numbers are called where people read them."""

from collections.abc import Iterable

import pandas as pd

from scripts.report import prose
from scripts.studies.shots.report.results import FACTORS, in_order

PLACE = ("store", "driver", "cache")
METRICS = {
    "total": "total runtime",
    "open": "one open",
    "first": "the first data set",
    "rest": "the data sets after the first",
}
ALONG = {("shot-major", "shots"), ("signal-major", "signals")}
ACROSS = {("shot-major", "signals"), ("signal-major", "shots")}


def library(name: str, facts: dict) -> str:
    """Return "HDF5 2.0.0", or the library's own name where two libraries hold the same HDF5."""
    versions = {key: (value or {}).get("hdf5") for key, value in facts.get("libraries", {}).items()}
    version = versions.get(name)
    if version and list(versions.values()).count(version) == 1:
        return f"HDF5 {version}"
    return name


def size(text: str) -> str:
    """Return "64 MiB" of "64MiB"."""
    digits = text.rstrip("kKMGTiB")
    return f"{digits} {text[len(digits) :]}" if digits and digits != text else text


def level(factor: str, value: str, facts: dict) -> str:
    """Return a level in few words, as rows and legends have it."""
    match factor:
        case "library":
            return library(value, facts)
        case "workers":
            return "1 worker" if value == "1" else f"{value} workers"
        case "page_buffer":
            return f"buffer {size(value)}"
        case "access":
            return {"shots": "by shot", "signals": "by signal"}.get(value, value)
        case _:
            return value


def subject(factor: str, value: str, facts: dict) -> str:
    """Return a level as the subject of a sentence."""
    match factor, value:
        case "library", _:
            return library(value, facts)
        case "page_buffer", "0":
            return "no page buffer"
        case "page_buffer", "unset":
            return "the library's own choice of page buffer"
        case "page_buffer", _:
            return f"a {size(value)} page buffer"
        case "layout", _:
            return f"the {value} layout"
        case "access", _:
            return "reading " + reading(value)
        case "workers", _:
            return level(factor, value, facts)
        case "cache", _:
            return f"a {value} cache"
        case "store", _:
            return store(value, facts)
        case _:
            return f"{factor} {value}"


def condition(factor: str, values: list[str], facts: dict) -> str:
    """Return levels as the condition of a sentence: "with a 64 MiB page buffer"."""
    match factor:
        case "access":
            return "reading " + prose.listing(map(reading, values), "or")
        case "layout":
            return f"on {prose.listing(values, 'or')} files"
        case "page_buffer" if values == ["0"]:
            return "without a page buffer"
        case "page_buffer" if values == ["unset"]:
            return "with the page buffer unset"
        case "direction":
            return f"where access {'follows' if values == ['along'] else 'crosses'} the layout"
        case "library":
            return f"in {prose.listing((library(value, facts) for value in values), 'or')}"
        case "workers" if len(values) > 1:
            return f"with {prose.listing(values, 'or')} workers"
        case _:
            return f"with {prose.listing((subject(factor, value, facts) for value in values), 'or')}"


def reading(access: str) -> str:
    """Return what one access reads."""
    return {"shots": "all signals of a shot", "signals": "one signal of all shots"}.get(access, access)


def store(name: str, facts: dict) -> str:
    """Return "S3 (20 ms, 50 MiB/s emulated)" or "disk"."""
    told = facts.get("stores", {}).get(name) or {}
    kind = {"posix": "disk", "s3": "S3"}.get(told.get("kind", ""), name)
    if kind.lower() != name.lower() and told:
        kind = f"{kind} ({name})" if kind == "disk" else f"{kind} {name}"
    network = told.get("network") or {}
    limits = [
        f"{network[key]:g} {unit}"
        for key, unit in (("latency_ms", "ms"), ("bandwidth_mib_s", "MiB/s"))
        if network.get(key)
    ]
    if limits:
        return f"{kind} ({', '.join(limits)} emulated)"
    return f"{kind} (loopback)" if told.get("server") == "embedded" else kind


def place(row: pd.Series | dict, facts: dict) -> str:
    """Return where a row's bytes came from: store, driver where it does not go without saying, cache state."""
    usual = {"s3": "ros3", "posix": "sec2"}.get((facts.get("stores", {}).get(row["store"]) or {}).get("kind"))
    parts = [store(row["store"], facts)] if row["store"] else []
    parts += [f"by {row['driver']}"] if row["driver"] and row["driver"] != usual else []
    parts += [f"{row['cache']} cache"] if row["cache"] else []
    return ", ".join(parts)


def varying(table: pd.DataFrame, factors: Iterable[str] = FACTORS) -> list[str]:
    """Return the factors that have more than one level in `table`."""
    return [factor for factor in factors if table[factor].nunique() > 1]


def label(row: pd.Series | dict, factors: Iterable[str], facts: dict) -> str:
    """Return a row's levels of `factors`, joined, as a figure's row is called."""
    return " · ".join(level(factor, row[factor], facts) for factor in factors if row[factor]) or "all"


def sorted_levels(table: pd.DataFrame, factors: list[str]) -> list[tuple]:
    """Return the combinations of levels that occur in `table`, by layout, access and so on, numbers by size."""
    return sorted(set(table[factors].itertuples(index=False, name=None)), key=in_order)
