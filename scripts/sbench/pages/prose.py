"""Format numbers, lists and names as they appear in the text of a report."""

import re
from collections.abc import Iterable

import numpy as np


def format_number(value: float) -> str:
    """Format a number with three significant digits and no exponent; return "unknown" if it is not finite."""
    if not np.isfinite(value):
        return "unknown"
    rounded = float(f"{value:.3g}")
    digits = 2 if rounded == 0 else max(0, 2 - int(np.floor(np.log10(abs(rounded)))))
    return f"{value:.{digits}f}"


def format_ratio(value: float) -> str:
    """Format a ratio with enough digits to distinguish it from 1: two decimals between 0.1 and 10."""
    return f"{value:.2f}" if 0.1 <= value < 10 else format_number(value)


def format_span(values: Iterable[float], text=format_ratio) -> str:
    """Format numbers as a range such as "1.12–1.34", with a shared unit only once.

    If the formatted ends are equal, return them as a single number.
    """
    values = [value for value in values if np.isfinite(value)]
    low, high = text(min(values)), text(max(values))
    if low == high:
        return low
    (number, unit), (_, other) = (re.fullmatch(r"(-?[\d.,]*)(.*)", end).groups() for end in (low, high))
    return f"{low} to {high}" if low.startswith("-") else f"{number if unit == other else low}–{high}"


def format_list(parts: Iterable[str], last: str = "and") -> str:
    """Join parts as "a, b and c"."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def format_count(number_of: int, noun: str) -> str:
    """Format a count with its noun: "1 block", "6 blocks", "2 libraries"."""
    return f"1 {noun}" if number_of == 1 else f"{number_of} {make_plural(noun)}"


def make_plural(noun: str) -> str:
    """Return the plural of a noun."""
    plural = re.sub(r"(?<![aeiou])y$", "ie", noun) if noun.endswith("y") else re.sub(r"ss$", "sse", noun)
    return f"{plural}s"


def capitalize_first(text: str) -> str:
    """Return text with its first letter in upper case; percentiles such as p99 remain unchanged."""
    return text if re.match(r"p\d", text) else text[:1].upper() + text[1:]


def format_name(name: str) -> str:
    """Format the name of a factor or key for display, with spaces for underscores."""
    return name.replace("_", " ")


def describe_provenance(facts: dict) -> str:
    """Describe the measuring code, its git commits and the number of sessions.

    Return an empty string if the code is unknown.
    """
    codes, commits = facts.get("code") or [], facts.get("git") or []
    if not codes:
        return ""
    dirty = ", with uncommitted changes" if facts.get("dirty") else ""
    sessions = f" in {format_count(len(facts['sessions']), 'session')}" if facts.get("sessions") else ""
    return (
        f"Measured{sessions} by code {', '.join(code[:12] for code in codes)} "
        f"(commit {', '.join(commit[:12] for commit in commits) or 'unknown'}{dirty})."
    )
