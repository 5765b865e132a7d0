"""Format levels, stores, sizes and ratios for display, so that all pages use the same names."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from sbench.design.study import list_mappings
from sbench.pages import prose
from sbench.pages.declaration import Factor, Report
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.stores import network as networks
from sbench.stores import store as stores

MULTIPLE = 1.5  # ratios above this (or below its inverse) are printed as a multiple, others in percent
_STATES = {
    "cold": "cold cache",
    "warm": "served from memory (page cache)",
    "mixed": "partly from memory (page cache)",
    "unverified": "cache state unverified",
    "elsewhere": "caches of the service unknown",
    "direct": "past the page cache",
}
_ORDER = {state: place for place, state in enumerate(("cold", "warm", "direct", "any", "elsewhere", "unverified"))}


_PREFIXES = (("ns", 1e9), ("µs", 1e6), ("ms", 1e3))


class Effect(NamedTuple):
    """A ratio of times as text, "took 24 % longer".

    Attributes:
        text: the effect.
        interval: its confidence interval, "[21, 29]".
        than: the word before the baseline, "than" or "as".
    """

    text: str
    interval: str
    than: str


def describe_effect(
    ratios: Iterable[float], low: float, high: float, plural: bool = False, is_time: bool = True, is_bound: bool = False
) -> Effect:
    """Describe the ratio of contenders to baselines, such as "took 24 % longer" or "was 12 % lower".

    Args:
        ratios: contender / baseline, all above or all below 1.
        low: lower confidence limit, or the lowest of several.
        high: upper confidence limit, or the highest of several.
        plural: whether the subject is plural, as in "chunks of 4 MiB".
        is_time: whether the ratios compare times.
        is_bound: whether the ratios are lower bounds on the effect.
    """
    ratios, at_least = list(ratios), "at least " * is_bound
    least, most = min(ratios), max(ratios)
    longer = least >= 1
    values, ends = ((least, most), (low, high)) if longer else ((most, least), (high, low))
    # Values other than times can be at most 100 % lower, so that a percentage always suffices.
    if most >= MULTIPLE or (is_time and least <= 1 / MULTIPLE):
        if not longer:
            values, ends = ([1 / value for value in pair] for pair in (values, ends))
        fast = f"{'were' if plural else 'was'} {{}}× as fast"
        high_or_long = "took {}× as long" if is_time else "was {}× as high"
        text = (high_or_long if longer else fast).format(at_least + _format_range(*values, format_two_digits))
        return Effect(text, _format_interval(*ends, format_two_digits), "as")
    # A confidence limit on the other side of 1 gets the opposite sign.
    values, ends = ([100 * (value - 1) * (1 if longer else -1) for value in pair] for pair in (values, ends))
    if is_time:
        text = "took {} % longer" if longer else "took {} % less time"
    else:
        text = "was {} % higher" if longer else "was {} % lower"
    return Effect(
        text.format(at_least + _format_range(*values, format_percentage)),
        _format_interval(*ends, format_percentage),
        "than",
    )


def format_ratio_with_interval(value: float, low: float, high: float) -> str:
    """Format a ratio as "1.24 [1.21, 1.29]"; return an empty string for NaN."""
    return "" if pd.isna(value) else format_with_interval(value, low, high, prose.format_ratio)


def format_multiple(value: float, low: float, high: float, is_time: bool = True) -> str:
    """Format a ratio of times as "1.24× as long [1.21, 1.29]", or inverted as "1.24× as fast" if it is below 1.

    Ratios of other quantities read "0.81× as high". Return an empty string for NaN.
    """
    if pd.isna(value):
        return ""
    text, ends = "as long" if is_time else "as high", (low, high)
    if is_time and value < 1:
        text, value, ends = "as fast", 1 / value, (1 / high, 1 / low)
    interval = f" {_format_interval(*ends, prose.format_ratio)}" if pd.notna(low) and pd.notna(high) else ""
    return f"{prose.format_ratio(value)}× {text}{interval}"


def format_rate(value: float) -> str:
    """Format a value with three significant digits, or without decimals from 100 on."""
    return f"{value:,.0f}" if value >= 100 else prose.format_number(value)


def format_with_interval(value: float, low: float, high: float, text: Callable[[float], str] = format_rate) -> str:
    """Format a value with its confidence interval, "1,240 [1,210, 1,290]", or alone if the interval is unknown."""
    return text(value) + (f" {_format_interval(low, high, text)}" if pd.notna(low) and pd.notna(high) else "")


def format_value(value: float, unit: str) -> str:
    """Format a value with its unit; times have an SI prefix instead of leading zeros."""
    return format_seconds(value) if unit == "s" else f"{format_rate(value)} {unit}".strip()


def format_seconds(value: float) -> str:
    """Format a time with three significant digits and an SI prefix: "45.1 µs", "1.02 s"; "unknown" if not finite."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0 s"
    unit, factor = next(((unit, factor) for unit, factor in _PREFIXES if value < 0.9995 / factor * 1000), ("s", 1.0))
    return f"{prose.format_number(value * factor)} {unit}"


def format_seconds_with_interval(value: float, low: float, high: float) -> str:
    """Format a time and its confidence interval in the same unit: "45.1 µs [37.9, 103]"."""
    text = format_seconds(value)
    factor = dict(_PREFIXES).get(text.split()[-1], 1.0)
    return f"{text} {_format_interval(low * factor, high * factor, prose.format_number)}"


def format_seconds_span(values: Iterable[float]) -> str:
    """Format the range of times as "1.02 s", "1.02–2.40 s" or "980 ms–1.02 s"."""
    values = [value for value in values if math.isfinite(value)]
    return prose.format_span(values, format_seconds) if values else "unknown"


def format_two_digits(value: float) -> str:
    """Format a multiple with two significant digits: "2.3", "13"."""
    return f"{value:.2f}" if value < 0.1 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def format_gain(value: float) -> str:
    """Format a speedup with enough digits to distinguish it from 1: "1.07", "2.3", "13"."""
    return f"{value:.2f}" if value < 1.2 else format_two_digits(value)


def format_percentage(value: float) -> str:
    """Format a percentage without decimals, or with one decimal if it is below 1."""
    return f"{value:.0f}" if abs(value) >= 1 else f"{value:.1f}"


def _format_range(low: float, high: float, text) -> str:
    first, last = text(low), text(high)
    return first if first == last else f"{first}–{last}"


def _format_interval(low: float, high: float, text) -> str:
    return f"[{text(low)}, {text(high)}]"


def parse_amount(level: str) -> float:
    """Parse a level as a number or as a size in bytes; return NaN if it is neither."""
    try:
        return float(sizes.parse_size(level))
    except Problem:
        return float("nan")


def format_size(level: str) -> str:
    """Format a size such as "64MiB" as "64 MiB"."""
    digits = level.rstrip("kKMGTiB")
    return f"{digits} {level[len(digits) :]}" if digits and digits != level else level


def select_libraries(facts: Mapping) -> dict[str, dict]:
    """Return the facts about each library that occurs in a study's matrix."""
    named = {name for part in list_mappings(facts.get("settings") or {}) for name in part.get("library", [])}
    return {name: spec for name, spec in (facts.get("libraries") or {}).items() if name in named and spec}


def describe_software(name: str, spec: Mapping) -> str:
    """Describe a library as "HDF5 2.0.0", or a user-supplied build as "HDF5 2.0.0 (my-branch, git 1a2b3c4d5e6f)".

    A library with user-supplied packages is described as "s3fs 2025.2.0 (my-s3fs, local wheel 1a2b3c4d5e6f) on HDF5
    2.0.0".
    """
    if added := format_added_packages(spec):
        origins = prose.format_list(dict.fromkeys(one["origin"] for one in spec["build"]["added"]))
        return f"{added} ({name}, {origins}) on HDF5 {spec['hdf5']}"
    own = f" ({name}, {spec['build']['hdf5_source']})" if spec.get("own") else ""
    return f"HDF5 {spec['hdf5']}{own}"


def describe_user_build(name: str, spec: Mapping) -> str:
    """Describe a user-supplied build as "HDF5 2.0.0 (my-branch)" or "s3fs 2025.2.0 (my-s3fs)".

    Return an empty string for other libraries.
    """
    if not spec.get("own"):
        return ""
    return f"{format_added_packages(spec) or 'HDF5 ' + spec['hdf5']} ({name})"


def format_added_packages(spec: Mapping) -> str:
    """List a library's user-supplied packages with their versions, except h5py; an empty string if there are none."""
    added = get_added_versions(spec)
    return prose.format_list(f"{name} {version}" for name, version in added.items()) if added else ""


def get_added_versions(spec: Mapping) -> dict[str, str]:
    """Map the names of a library's user-supplied packages, except h5py, to their versions."""
    build = spec.get("build") or {}
    others = [one for one in build.get("added") or [] if one["origin"] != build["hdf5_source"]]
    return {one["name"]: one["version"] for one in others}


class Names:
    """The display names of a run's levels, stores and storage locations."""

    def __init__(self, report: Report, facts: dict) -> None:
        """Store the study's declaration and the run's facts."""
        self.report, self.facts = report, facts

    def format_level(self, factor: str, level: str) -> str:
        """Format a level concisely, for row labels and legends."""
        declared = self.report.get_factor(factor)
        if declared.label and level not in declared.labels and level not in declared.names:
            return declared.label.format(self._format_bare_level(declared, level))
        return declared.labels.get(level) or self.format_subject(factor, level)

    def format_table_level(self, factor: str, level: str) -> str:
        """Format a level for a table column whose heading names the factor."""
        declared = self.report.get_factor(factor)
        return declared.labels.get(level) or self._format_bare_level(declared, level)

    def format_subject(self, factor: str, *levels: str) -> str:
        """Format levels as the subject of a sentence: "a 64 or 256 MiB page buffer"."""
        declared = self.report.get_factor(factor)
        named = [declared.names[level] for level in levels if level in declared.names]
        bare = [self._format_bare_level(declared, level) for level in levels if level not in declared.names]
        if bare and declared.unit:
            named.append(prose.format_list(bare, "or") + f" {declared.unit}" + "s" * (bare != ["1"]))
        elif bare:
            named.append(declared.subject.format(_format_alternatives(bare)))
        return prose.format_list(named, "or")

    def format_pair(self, row: Mapping, call: Callable[[str, str], str]) -> tuple[str, str]:
        """Return the names of a comparison's contender and baseline.

        If both begin with "HDF5 ", the baseline's prefix is omitted, except for two builds of the same version.
        """
        new, old = (call(row["factor"], row[side]) for side in ("contender", "baseline"))
        # Two builds of the same version differ only in the text that follows it.
        alike = new.partition(" (")[0] == old.partition(" (")[0]
        return new, old.removeprefix("HDF5 ") if new.startswith("HDF5 ") and not alike else old

    def format_condition(self, factor: str, levels: Iterable[str]) -> str:
        """Format levels as a condition in a sentence: "with a 64 MiB page buffer"."""
        levels, declared = list(levels), self.report.get_factor(factor)
        bare = _format_alternatives([self._format_bare_level(declared, level) for level in levels])
        return declared.within.format(self.format_subject(factor, *levels), level=bare)

    def format_row(self, row: Mapping, factors: Iterable[str]) -> str:
        """Join the levels of `factors` that apply to a row as its label in a figure; return "all" if none applies."""
        return self.format_levels(row, factors) or "all"

    def format_levels(self, row: Mapping, factors: Iterable[str]) -> str:
        """Join the levels of the `factors` that apply to a row; return an empty string if none applies."""
        meant = (factor for factor in factors if row[factor] and self.has_meaning(factor, row))
        return " · ".join(self.format_level(factor, row[factor]) for factor in meant)

    def has_meaning(self, factor: str, row: Mapping) -> bool:
        """Return whether a factor applies to a row or, if the row is a comparison, to at least one side."""
        for other, levels in self.report.get_factor(factor).only.items():
            sides = ("baseline", "contender") if row.get("factor") == other else (other,)
            own = {row.get(side) for side in sides} - {None, ""}
            if own and not own & set(levels):
                return False
        return True

    def format_store(self, name: str) -> str:
        """Return the display name of a store: "disk", "S3 (emulated, 20 ms, 50 MiB/s)", "Azurite on loopback"."""
        stores = self.facts.get("stores") or {}
        usual = _describe_store(name, stores.get(name) or {})
        alike = [other for other in stores if _describe_store(other, stores[other] or {}) == usual]
        return f"{usual} ({name})" if len(alike) > 1 else usual

    def format_place(self, row: Mapping) -> str:
        """Describe where the bytes of a row came from under the conditions in effect: "from memory (page cache)"."""
        store = row.get("store") or "" if "store" in self.report.places else ""
        state = str(row.get("state") or row.get("cache") or "")
        driver = row.get("driver") if "driver" in self.report.places else ""
        compared = {row[side] for side in ("baseline", "contender")} if row.get("factor") == "store" else {store}
        driver = f"by {driver}" if driver and max(map(self._count_drivers, compared)) > 1 else ""
        of_state = _STATES.get(state, f"cache states differ ({state})" if "|" in state else "")
        named = self.format_condition("store", [store]) if store else ""
        if state == "warm" and (not store or _is_file_store((self.facts.get("stores") or {}).get(store) or {})):
            files = f", files on {self.format_store(store)}" if store else ""
            named, of_state = f"from memory (page cache{files})", ""
        return ", ".join(filter(None, [named, driver, of_state]))

    def get_sort_key(self, factor: str, level: str) -> tuple:
        """Return a level's sort key: the declared order first, then numbers and sizes by amount, then names."""
        declared = self.report.get_factor(factor)
        if level in declared.order:
            return (0, declared.order.index(level), "")
        number = parse_amount(level)
        return (1, number, "") if number == number else (2, _ORDER.get(level, len(_ORDER)), level)

    def sort_rows(self, table: pd.DataFrame, factors: Iterable[str]) -> pd.DataFrame:
        """Sort a table by the levels of `factors`, with the first factor as the primary key."""
        keys = [
            [self.get_sort_key(name, level) for name, level in zip(factors, row, strict=True)]
            for row in zip(*(table[name] for name in factors), strict=True)
        ]
        return table.iloc[sorted(range(len(keys)), key=keys.__getitem__)] if keys else table

    def list_combinations(self, table: pd.DataFrame, factors: list[str]) -> list[tuple]:
        """List the distinct combinations of levels in a table, sorted. Without factors, return an empty combination."""
        distinct = self.sort_rows(table[factors].drop_duplicates(), factors)
        return list(distinct.itertuples(index=False, name=None)) if factors else [()]

    def _format_bare_level(self, factor: Factor, level: str) -> str:
        if factor.name == "store":
            return self.format_store(level)
        if factor.known_as:
            return factor.known_as(level, self.facts)
        return format_size(level) if factor.size else level

    def _count_drivers(self, store: str) -> int:
        """Count the drivers used with a store in this run, because pages name the driver only if there are several."""
        parts = list_mappings(self.facts.get("settings") or {})
        return len({driver for part in parts if store in part.get("store", []) for driver in part.get("driver", [])})


def _format_alternatives(levels: list[str]) -> str:
    """Join levels as alternatives, with a shared unit only once: "64 or 256 MiB"."""
    units = {level.partition(" ")[2] for level in levels}
    if len(levels) > 1 and len(units) == 1 and all(level[:1].isdigit() for level in levels):
        levels = [*(level.partition(" ")[0] for level in levels[:-1]), levels[-1]]
    return prose.format_list(levels, "or")


def _is_file_store(spec: dict) -> bool:
    return "kind" in spec and stores.get_store(spec).files


def _describe_store(name: str, spec: dict) -> str:
    """Return a file system's name. Describe any other store by its server and the emulated network, if any."""
    if "kind" not in spec or _is_file_store(spec):
        return name
    store, network = stores.get_store(spec), spec.get("network") or {}
    if not store.embedded:
        return store.service or name
    server = store.server + " over TLS" * bool(spec.get("tls"))
    emulated = networks.format_name(network)
    return f"{server} (emulated, {emulated})" if emulated else f"{server} on loopback"
