"""Build records.csv, a table with one row per record, for comparisons between runs."""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping

import pandas as pd

from sbench.design import matrix as matrices
from sbench.design.prices import BILLED
from sbench.measure import tables
from sbench.verdicts.sessions import COLUMNS, HASHES, MACHINE

_DIGITS, _NODE_DIGITS = 10, 8


def build_records_table(matrix: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Build records.csv, with one row per record of the cells in `matrix`.

    `runs` is from `tables.build_runs_and_samples`.

    Returns:
        The following columns:

        - cell and its factors.
        - `COLUMNS`. `value` is the total time, missing if it was not measured. `bytes` are the bytes delivered, or the
          bytes offered if the former are unknown. `read` and the columns after it are short hashes: of the objects
          read, the code, the data and the packages.
        - the numbers of requests by price (`prices.BILLED`).
        - `null_s`, the time of the harness, and `<metric>_s` for each metric other than the total.
        - `machine` (see `name_machine`).
    """
    own = ["seconds total", "bytes_delivered", "bytes_offered", "seconds null", *tables.PLACES, *COLUMNS, *BILLED]
    others = {f"seconds {name}": f"{name}_s" for name in tables.list_metrics(runs) if name != "total"}
    rows = matrix[["cell", *tables.list_factors(matrix)]].merge(runs, on="cell")
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, *own, *others])))
    rows = rows.assign(valid=rows["ok"].astype(bool), figure="total", value=rows["seconds total"], unit="s")
    rows["bytes"] = rows["bytes_delivered"].fillna(rows["bytes_offered"])
    rows["read"] = rows["read"].map(matrices.compute_digest, na_action="ignore")
    for name in HASHES:
        rows[name] = rows[name].astype("string").str[:_DIGITS]
    rows[MACHINE] = [name_machine(_parse_host(row)) for row in rows[[*tables.PLACES]].to_dict("records")]
    rows = rows.assign(null_s=rows["seconds null"]).rename(columns=others)
    return rows[["cell", *tables.list_factors(matrix), *COLUMNS, *BILLED, "null_s", *others.values(), MACHINE]]


def name_machine(host: Mapping) -> str:
    """Return two short hashes separated by a space: of the machine's CPU and memory, and of its node name.

    The result is an empty string if the machine is unknown. If the node name was anonymized ("node <hash>"), use the
    hash that it contains.
    """
    if not host.get("node") and not host.get("cpu"):
        return ""
    kind, node = matrices.compute_digest([host.get("cpu"), host.get("ram_bytes")]), str(host.get("node"))
    hidden = re.fullmatch(rf"node ([0-9a-f]{{{_NODE_DIGITS}}})", node)
    return f"{kind} {hidden[1] if hidden else hashlib.sha256(node.encode()).hexdigest()[:_NODE_DIGITS]}"


def _parse_host(places: Mapping) -> dict:
    texts = {name: value for name, value in places.items() if isinstance(value, str)}
    parts = (zip(tables.PLACES[name], json.loads(value), strict=True) for name, value in texts.items())
    return dict(itertools.chain(*parts))


def get_code_hash(record: dict) -> str:
    """Return the short hash of the code that measured a record; an empty string if it is unknown."""
    code: str = (record.get("provenance") or {}).get("code_sha256", "")
    return code[:_DIGITS]
