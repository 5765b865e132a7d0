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


class Limit(NamedTuple):
    """A limit of a budget, and the measured number.

    Attributes:
        name: name of the limit, such as "get", or "bytes of data/a.h5".
        allowed: the limit as written in the budget.
        measured: the measured number.
        is_met: whether the measured number meets the limit.
        rows: the requests that the limit is about.
    """

    name: str
    allowed: object
    measured: int
    is_met: bool
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


def measure_limits(budget: Budget, requests: Requests) -> list[Limit]:
    """Return the limits of a budget with the measured numbers."""
    rows, numbers = requests.passed["exchanges"], count_totals(requests)
    limits = [
        Limit(name, allowed, numbers[name], _is_met(allowed, numbers[name], name), select_rows(rows, name))
        for name, allowed in budget.items()
        if name != OBJECTS
    ]
    for key, of_key in (budget.get(OBJECTS) or {}).items():
        of_object = requests.objects.get(key)
        rows_of_key = [row for row in rows if row["path"].lstrip("/") == key]
        for name, allowed in of_key.items():
            if of_object:
                measured = of_object.requests if name == "get" else getattr(of_object, _TOTALS[name])
                is_met = _is_met(allowed, measured, name)
            else:
                # Probably the name is wrong, so that "<= 4" is no success.
                measured, is_met = 0, _parse_limit(allowed, "", name)[1] == 0
            limits.append(Limit(f"{name} of {key}", allowed, measured, is_met, rows_of_key or rows))
    return limits


def find_excesses(budget: Budget, requests: Requests) -> list[Limit]:
    """Return the limits of a budget that the requests do not meet."""
    return [limit for limit in measure_limits(budget, requests) if not limit.is_met]


def count_totals(requests: Requests) -> dict[str, int]:
    """Return the measured number of each limit in `NAMES`, 0 included."""
    totals = ranges.add_totals(requests.objects.values())
    numbers = {name: requests.methods.get(method, {}).get("count", 0) for name, method in METHODS.items()}
    numbers |= {name: getattr(totals, field) for name, field in _TOTALS.items()}
    numbers["requests"] = sum(of_method["count"] for of_method in requests.methods.values())
    numbers["failed"] = sum(of_method["failed"] for of_method in requests.methods.values())
    # Clients may keep connections that they opened before.
    numbers["connections"] = len({row["connection"] for row in requests.passed["exchanges"]})
    return numbers


def build_budget(requests: Requests) -> dict:
    """Return the budget that allows exactly these requests."""
    counts = {name: requests.methods[method]["count"] for name, method in METHODS.items() if method in requests.methods}
    counts["requests"] = sum(numbers["count"] for numbers in requests.methods.values())
    sent = ranges.add_totals(requests.objects.values()).sent
    return counts | ({"bytes": sent} if sent else {})


def format_excesses(excesses: Sequence[Limit]) -> Iterator[str]:
    """Yield a table of the limits that are not met, and the requests of the first of them."""
    yield f"{'limit':24} {'allowed':>14} {'measured':>14}"
    for limit in excesses:
        yield f"{limit.name:24} {limit.allowed!s:>14} {format_measured(limit):>14}"
    if excesses[0].rows:
        yield f"requests of {excesses[0].name}:"
    yield from (f"  {line}" for line in format_rows(excesses[0].rows))


def format_measured(limit: Limit) -> str:
    """Format the measured number of a limit, with B for bytes."""
    return f"{limit.measured:,}{' B' if get_unit(limit.name) == 'B' else ''}"


def get_unit(name: str) -> str:
    """Return the unit of a limit's number: B, connections or requests."""
    kind = name.split()[0]
    return "B" if kind in SIZES else "connections" if kind == "connections" else "requests"


def format_rows(rows: Sequence[Mapping]) -> Iterator[str]:
    """Yield a line for each of the first requests, and the number of the others."""
    for row in rows[:_LISTED]:
        yield f"{row['method']} {row['path']} {row['range']} {row['status']} {sizes.format_size(row['bytes'])}"
    if len(rows) > _LISTED:
        yield f"… and {len(rows) - _LISTED:,} more"


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
