"""The tables of what was in force: caches, processes and hosts, verification, versions."""

import json

import pandas as pd

from scripts.report import account, prose
from scripts.report.page import Table
from scripts.studies.blobs.report.data import Results, reads
from scripts.studies.blobs.report.listings import levels, ordered, told_of


def conditions(results: Results) -> Table:
    """Return what was in force in each cell, as it was read back."""
    cells, told = ordered(results.measured, results), told_of(results, "effective")
    if told.empty and not cells["cache_state"].any():
        return Table("conditions", "", pd.DataFrame())
    frame = levels(cells, results)
    effective = [told.get(cell, {}) for cell in cells["cell"]]
    frame["repeats"] = cells["n"]
    frame["processes in force"] = [_processes(one) for one in effective]
    frame["cores"] = [one.get("usable_cores") for one in effective]
    frame["oversubscribed"] = ["yes" if one.get("oversubscribed") else "" for one in effective]
    frame["idle processes"] = [one.get("idle_processes") or None for one in effective]
    frame["operations"] = [one.get("operations") for one in effective]
    frame["cache state"] = cells["cache_state"]
    frame["in memory before / %"] = cells["cell"].map(_resident(results)).fillna("")
    frame["verified"] = [one.get("verified") or "" for one in effective]
    frame["O_DIRECT"] = ["yes" if one.get("direct") else "" for one in effective]
    frame["stripes"] = [account.fact(one.get("stripe")) for one in effective]
    frame["MPI-IO hints"] = [account.fact(one.get("mpi_io_hints")) for one in effective]
    odd = (cells["cache_state"] != cells["cache"]) & ~cells["cache"].isin(("any", "direct"))
    over = {
        "cache state": odd & (cells["cache_state"] != ""),
        "oversubscribed": frame["oversubscribed"] == "yes",
        "idle processes": frame["idle processes"].notna(),
    }
    shown = account.without_empty(frame)
    whole = dict.fromkeys(("cores", "idle processes", "operations", "repeats"), "{:.0f}".format)
    return Table(
        "conditions",
        "What was in force, as read back. In memory before: the share of the files in the page cache before the "
        "iterations, the least and the most of them. Verified: when what was read was checked against the manifest, "
        "always outside the time. Operations: of the process with most.",
        shown,
        whole,
        {column: flags for column, flags in over.items() if column in shown},
        "another cache state than asked, more processes than cores, processes without work",
    )


def software(results: Results) -> Table:
    """Return MPI, launcher and client by store, a row each that occurred."""
    rows = {}
    told = told_of(results, "effective")
    stores = dict(zip(results.cells["cell"], results.cells["store"], strict=True))
    for cell, one in told.items():
        row = {
            "store": results.names.store(stores.get(cell, "")),
            "client": str(one.get("client") or ""),
            "MPI": str(one.get("mpi") or ""),
            "started by": str(one.get("launcher") or ""),
            "hosts": len(one.get("hosts") or []),
        }
        rows[json.dumps(row)] = row
    return Table("software", "What read: client of the store, MPI and its launcher.", pd.DataFrame(list(rows.values())))


def datasets(results: Results) -> Table:
    """Return the objects of each size."""
    rows = []
    for name, told in (results.facts.get("data") or {}).items():
        layout = (told or {}).get("layout") or {}
        shown = {account.plain_name(key): value for key, value in layout.items() if isinstance(value, (int, float))}
        rows.append({"dataset": name, **shown})
    frame = pd.DataFrame(rows)
    return Table("data", "The objects: random bytes that do not compress.", frame, _formats(frame))


def _formats(frame: pd.DataFrame) -> dict:
    return {column: "{:,.0f}".format for column in frame if column != "dataset"}


def _processes(effective: dict) -> str:
    hosts = [host.get("processes") for host in effective.get("hosts") or []]
    if not effective.get("processes"):
        return ""
    if len(hosts) < 2:
        return str(effective["processes"])
    each = f"{hosts[0]} each" if len(set(hosts)) == 1 else prose.listing(map(str, hosts))
    return f"{effective['processes']} on {len(hosts)} hosts ({each})"


def _resident(results: Results) -> dict[str, str]:
    rows = reads(results.samples)
    rows = rows[rows["valid"] & rows["resident_before"].notna()] if len(rows) else rows
    if rows.empty:
        return {}
    ends = 100 * rows.groupby("cell")["resident_before"].agg(["min", "max"])
    return {cell: prose.span(pair, "{:.1f}".format) for cell, pair in ends.iterrows()}
