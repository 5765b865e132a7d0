"""What every report gives account of: failed and invalid cells, what was left out, earlier attempts, the machine."""

from collections.abc import Callable

import pandas as pd

from scripts.report.markup import bold, paragraph
from scripts.report.page import Table
from scripts.statistics.tables import factors, without_doubles


def not_provided(facts: dict) -> str:
    """Return which datasets could not be made or put into their store, whose cells were not measured, and why."""
    return "".join(paragraph(f"{bold('Not measured')}: {line}.") for line in facts.get("not_provided") or [])


def troubled(cells: pd.DataFrame, levels: Callable[[pd.DataFrame], pd.DataFrame]) -> Table:
    """Return the cells with failed or invalid repeats, and why; `levels` gives the columns that tell cells apart."""
    cells = cells[(cells["failed"] > 0) | (cells["invalid"] > 0)].reset_index(drop=True)
    frame = levels(cells)
    frame.insert(0, "", [mark(cell) for cell in cells.to_dict("records")])
    for column in ("failed", "invalid", "n", "reasons"):
        frame["valid" if column == "n" else column] = cells[column]
    return Table(
        "failed-and-invalid",
        "Repeats that failed, and repeats that broke a rule of measuring ([INVALID]) or are no longer what was "
        "written ([EDITED]): shown, and in no verdict.",
        frame,
        over={"": cells["invalid"] > 0},
        meaning="invalid",
    )


def mark(cell: dict) -> str:
    """Return what stands beside a cell with failed or invalid repeats (METHOD 23)."""
    if not cell["invalid"]:
        return "failed"
    marks = ["[INVALID]"] * (cell["invalid"] > cell["edited"]) + ["[EDITED]"] * (cell["edited"] > 0)
    return " ".join(marks)


def omitted(matrix: pd.DataFrame) -> Table:
    """Return the combinations of levels that were not measured, and why."""
    if matrix.empty or "omitted" not in matrix:
        return Table("omitted", "", pd.DataFrame())
    matrix = without_doubles(matrix)
    matrix = matrix[matrix["omitted"] != ""].reset_index(drop=True)
    named = without_empty(matrix[[name for name in factors(matrix) if name != "control"]])
    frame = named.rename(columns=plain_name).assign(reason=matrix["omitted"])
    return Table("omitted", "Combinations that the matrix names and that were not measured.", frame)


def attempts(facts: dict) -> Table:
    """Return builds, data and unreadable records that failed earlier and were moved aside."""
    rows = []
    for attempt in facts.get("failed_attempts") or []:
        details = attempt if isinstance(attempt, dict) else {"reasons": [attempt]}
        reasons = details.get("reasons") or []
        shown = {key: value for key, value in details.items() if isinstance(value, (str, int, float))}
        rows.append(shown | {"reasons": "; ".join(map(str, reasons if isinstance(reasons, list) else [reasons]))})
    return Table(
        "failed-attempts",
        "What failed earlier and was moved aside; it was made again, or blocks were appended.",
        pd.DataFrame(rows),
    )


def machine(facts: dict) -> Table:
    """Return the facts of the machine; a column each where several measured."""
    hosts = facts.get("machines") or [facts.get("machine") or {}]
    names = [f"machine {number}" for number in range(1, len(hosts) + 1)] if len(hosts) > 1 else ["value"]
    keys = dict.fromkeys(key for host in hosts for key in host)
    rows = [
        {"": plain_name(key)} | {name: fact(host.get(key), key) for name, host in zip(names, hosts, strict=True)}
        for key in keys
    ]
    rows = [row for row in rows if any(row[name] for name in names)]
    return Table("machine", "The machine that measured.", pd.DataFrame(rows))


def fact(value: object, key: str = "") -> str:
    """Return one fact as a cell of a table has it."""
    if value is None:
        return ""
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def plain_name(name: str) -> str:
    """Return a factor's or key's name as people read it."""
    return name.replace("_", " ")


def without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns that hold nothing."""
    return frame.loc[:, [(frame[column].notna() & (frame[column] != "")).any() for column in frame]]
