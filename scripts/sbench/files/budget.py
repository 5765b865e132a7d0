"""Compare the requests that reached the buckets with a budget: limits of requests, bytes and connections."""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sbench.design.yaml_file import read_mapping
from sbench.files import ranges
from sbench.files.buckets import LIST, Requests, get_method, is_failed
from sbench.probe import sizes
from sbench.probe.program import Problem

_OPERATORS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq}
_LIMIT = re.compile(r"(<=|<|>=|>|==)?\s*(\d+)\s*(B|KiB|MiB|GiB|TiB|)")
# HTTP methods, by their names in a budget.
METHODS = {name.lower(): name for name in ("GET", "HEAD", "PUT", "POST", "DELETE", LIST)}
# Limits of an object, and of all objects together.
_TOTALS = {"bytes": "sent", "distinct": "distinct", "repeated": "repeated"}
SIZES = ("bytes", "distinct")
_OF_OBJECT = ("get", *_TOTALS)
NAMES = (*METHODS, *_TOTALS, "requests", "failed", "connections")
OBJECTS = "objects"
# The number of requests of an exceeded limit that are listed.
_LISTED = 20

Budget = Mapping[str, object]


class Excess(NamedTuple):
    """A limit that is not met.

    Attributes:
        name: name of the limit, such as "get", or "bytes of data/a.h5".
        limit: the limit as written in the budget.
        measured: the measured number.
        rows: the requests that the limit is about.
    """

    name: str
    limit: object
    measured: int
    rows: Sequence[Mapping]


def read_budget(path: Path) -> Budget:
    """Read a budget from a YAML file, and check it.

    Raises:
        Problem: the file cannot be read, or contains an unknown name or an invalid limit.
    """
    budget = read_mapping(path)
    check_budget(budget, str(path))
    return budget


def check_budget(budget: Budget, where: str) -> None:
    """Raise Problem if a budget contains an unknown name or an invalid limit; `where` begins the message."""
    for name, limit in budget.items():
        if name == OBJECTS:
            if not isinstance(limit, dict) or not limit:
                raise Problem(f"{where}: {OBJECTS}: must be a mapping from objects to limits (got {limit})")
            for key, limits in limit.items():
                if not isinstance(limits, dict) or (unknown := [one for one in limits if one not in _OF_OBJECT]):
                    named = unknown[0] if isinstance(limits, dict) else limits
                    raise Problem(f"{where}: {key}: must be a mapping of {', '.join(_OF_OBJECT)} (got {named})")
                check_budget(limits, f"{where}: {key}")
        elif name not in NAMES:
            raise Problem(f"{where}: unknown limit {name}; use {', '.join(NAMES)} or {OBJECTS}")
        else:
            _parse_limit(limit, where, name)


def measure_requests(requests: Requests) -> dict[str, int]:
    """Return the numbers that a budget can limit, by the names of `NAMES`; sizes in bytes."""
    totals = ranges.add_totals(requests.objects.values())
    counts = {name: requests.methods.get(method, {}).get("count", 0) for name, method in METHODS.items()}
    counts |= {name: getattr(totals, field) for name, field in _TOTALS.items()}
    counts["requests"] = sum(numbers["count"] for numbers in requests.methods.values())
    counts["failed"] = sum(numbers["failed"] for numbers in requests.methods.values())
    # Clients may keep connections that they opened before.
    counts["connections"] = len({row["connection"] for row in requests.passed["exchanges"]})
    return counts


def find_excesses(budget: Budget, requests: Requests) -> list[Excess]:
    """Return the limits of a budget that the requests do not meet."""
    rows, counts = requests.passed["exchanges"], measure_requests(requests)
    excesses = [
        Excess(name, limit, counts[name], select_rows(rows, name))
        for name, limit in budget.items()
        if name != OBJECTS and not _is_met(limit, counts[name], name)
    ]
    for key, limits in (budget.get(OBJECTS) or {}).items():
        of_object = requests.objects.get(key)
        of_key = [row for row in rows if row["path"].lstrip("/") == key]
        for name, limit in limits.items():
            if of_object:
                measured = of_object.requests if name == "get" else getattr(of_object, _TOTALS[name])
                is_met = _is_met(limit, measured, name)
            else:
                # Probably the name is wrong, so that "<= 4" is no success.
                measured, is_met = 0, _parse_limit(limit, "", name)[1] == 0
            if not is_met:
                excesses.append(Excess(f"{name} of {key}", limit, measured, of_key or rows))
    return excesses


def build_budget(requests: Requests) -> dict:
    """Return the budget that allows exactly these requests."""
    counts = {name: requests.methods[method]["count"] for name, method in METHODS.items() if method in requests.methods}
    counts["requests"] = sum(numbers["count"] for numbers in requests.methods.values())
    sent = ranges.add_totals(requests.objects.values()).sent
    return counts | ({"bytes": sent} if sent else {})


def format_excesses(excesses: Sequence[Excess]) -> Iterator[str]:
    """Yield a table of the limits that are not met, and the requests of the first of them."""
    yield f"{'limit':24} {'allowed':>14} {'measured':>14}"
    for one in excesses:
        unit = " B" if one.name.split()[0] in SIZES else ""
        yield f"{one.name:24} {one.limit!s:>14} {one.measured:>14,}{unit}"
    rows = excesses[0].rows
    if rows:
        yield f"requests of {excesses[0].name}:"
    for row in rows[:_LISTED]:
        yield f"  {row['method']} {row['path']} {row['range']} {row['status']} {sizes.format_size(row['bytes'])}"
    if len(rows) > _LISTED:
        yield f"  … and {len(rows) - _LISTED:,} more"


def select_rows(rows: Sequence[Mapping], name: str) -> list[Mapping]:
    """Return the requests that a limit is about."""
    method = METHODS.get(name, "GET" if name in _TOTALS else "")
    return [row for row in rows if method in ("", get_method(row)) and (name != "failed" or is_failed(row))]


def _is_met(limit: object, measured: int, name: str) -> bool:
    compare, value = _parse_limit(limit, "", name)
    return compare(measured, value)


def _parse_limit(limit: object, where: str, name: str) -> tuple:
    """Return the comparison and the number of a limit: an integer (exactly as many), or text such as "<= 20 MiB"."""
    match = _LIMIT.fullmatch(str(limit).strip()) if not isinstance(limit, bool) else None
    if not match or (match[3] and name not in SIZES):
        example = '"<= 20 MiB"' if name in SIZES else '4 or "<= 4"'
        raise Problem(f"{where}: {name}: must be a limit such as {example} (got {limit})")
    value = int(match[2]) * (1 if match[3] in ("", "B") else sizes.parse_size(f"1{match[3]}"))
    return _OPERATORS[match[1] or "=="], value
