"""Parse arguments such as 'Latency (ms)=time_ms' and store=arm, which assign roles to the columns of a user's table.

The result has the format of the declarations of published tables (`timings`), so the same rules apply to it.
"""

import re
from collections.abc import Sequence

import pandas as pd

from sbench.court import derived
from sbench.probe.program import Problem

_BYTES = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60}
# Roles whose columns are not numeric; more than one column may have the roles arm and within.
_TEXTS = ("arm", "within", "direction", "input", "repeat")
_COUNTS = ("workers", "averaged")
WORDS = (
    "arm (a side of the comparison), within (a condition), direction (read, write), input (name of the data), repeat,"
    f" averaged (runs in a mean), workers, time_UNIT and cpu_UNIT ({', '.join(_SECONDS)}), size_UNIT in total and"
    f" each_UNIT per worker ({', '.join(_BYTES)}), rate_UNIT_s"
)


def parse_declaration(named: Sequence[str], header: Sequence[str], table: str) -> dict:
    """Build the declaration of a table from the roles of its columns.

    Args:
        named: arguments of the form `column=role`.
        header: names of the table's columns.
        table: name of the table.

    Raises:
        Problem: an argument is invalid, its column is missing from the header, no column is a time or a rate, or no
            column names the arms.
    """
    roles: dict[str, list[str]] = {}
    for word in named:
        column, equals, role = word.rpartition("=")
        if not equals or not _is_role(role):
            raise Problem(f"--columns must be column=role (got {word!r}); roles are {WORDS}")
        if column not in header:
            raise Problem(f"--columns: {table} lacks the column {column!r}; its columns are {', '.join(header)}")
        if "`" in column:
            raise Problem(f"--columns: a column name must not contain a backquote (got {column!r}); rename the column")
        if role in roles and role not in ("arm", "within"):
            raise Problem(
                f"--columns: {roles[role][0]!r} and {column!r} both have the role {role}; keep a single column"
            )
        roles.setdefault(role, []).append(column)
    numbers = {column: "number" for role, columns in roles.items() if role not in _TEXTS for column in columns}
    kinds = {column: numbers.get(column, "text") for columns in roles.values() for column in columns}
    time, cpu = (_build_expression(roles, role, _SECONDS) for role in ("time", "cpu"))
    size, each = (_build_expression(roles, role, _BYTES) for role in ("size", "each"))
    workers = _quote_column(roles["workers"][0]) if "workers" in roles else "1"
    amount = size or (f"{each} * {workers}" if each else "")
    rate = next((role for role in roles if role.startswith("rate_")), "")
    if not time and not rate:
        raise Problem(
            f"--columns: no column is a time or a rate; add column=time_UNIT or column=rate_UNIT_s; roles are {WORDS}"
        )
    sizes = [columns[0] for role, columns in roles.items() if role.startswith(("size_", "each_"))]
    within = [*roles.get("within", []), *roles.get("direction", []), *sizes]
    spec = {"table": table, "kinds": kinds, "within": within, "arms": roles.get("arm") or roles.get("input") or within}
    spec |= {role: roles[role][0] for role in ("repeat", "averaged", "workers", "input") if role in roles}
    spec |= {"repeat": "index"} if "repeat" not in roles else {}
    over = [*sizes, *roles.get("workers", [])]
    spec |= {"over": over[0]} if over else {}
    spec["within"] = [*within, *(roles.get("workers", []))]
    parts = {"time": time, "cpu": cpu, "amount": f"{amount} / {_BYTES['mib']}" if amount else ""}
    spec |= {role: text for role, text in parts.items() if text}
    if rate:
        unit = rate.removeprefix("rate_").removesuffix("_s")
        spec |= {"rate": roles[rate][0], "unit": f"{unit}/s"}
        spec |= {"amount": f"{amount} / {_BYTES[unit]}"} if amount else {}
    if not spec["arms"]:
        raise Problem(f"--columns: no column names the arms; add column=arm; roles are {WORDS}")
    return spec


def has_rates(spec: dict) -> bool:
    """Return whether a table declares rates together with amounts and times, so that the rates can be recomputed."""
    return {"rate", "amount", "time"} <= spec.keys()


def list_wrong_rates(spec: dict, texts: pd.DataFrame) -> list[str]:
    """Describe the printed rates that differ from amount / time.

    Return one line with the largest deviation per level of the column `over`, or of the first column in `arms` if
    `over` is not declared.
    """
    wrong = derived.select_disagreeing(texts, spec["rate"], f"({spec['amount']}) / ({spec['time']})")
    by = spec.get("over") or spec["arms"][0]
    lines = []
    for level, rows in wrong.groupby(by, sort=False):
        worst = rows.loc[rows["percent"].abs().idxmax()]
        rest = f", the largest of {len(rows)} deviations" if len(rows) > 1 else ""
        lines.append(
            f"  {by} {level}: {spec['rate']} {worst['printed']:g}, but amount / time is {worst['recomputed']:g}"
            f" ({worst['percent']:+.1f} %){rest}"
        )
    return lines


def _is_role(role: str) -> bool:
    base, _, unit = role.partition("_")
    if base == "rate":
        return re.fullmatch(r"(\w+)_s", unit) is not None and unit.removesuffix("_s") in _BYTES
    units = {"time": _SECONDS, "cpu": _SECONDS, "size": _BYTES, "each": _BYTES}
    return role in (*_TEXTS, *_COUNTS) or unit in units.get(base, {})


def _build_expression(roles: dict[str, list[str]], base: str, units: dict[str, float]) -> str:
    """Return a pandas expression that converts the column with a role to seconds or bytes.

    The result is an empty string if no column has the role.
    """
    for unit, factor in units.items():
        if columns := roles.get(f"{base}_{unit}"):
            return f"{factor!r} * {_quote_column(columns[0])}"
    return ""


def _quote_column(column: str) -> str:
    return f"`{column}`"
