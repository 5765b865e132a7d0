"""What a report says about a run beside its figures: machines, libraries, stores, settings, failed attempts."""

import contextlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd

from scripts.frame import records, software
from scripts.frame import study as studies
from scripts.lib.program import Problem, read_json
from scripts.stores import network as networks
from scripts.stores import store as stores


def facts(config: dict, study: str, results: Path, kept: Sequence[records.Kept], imported: dict) -> dict:
    """Return what the report of a study says about its run, whose artefacts are in the folder `results`.

    `imported` is the artefact of results from elsewhere, empty without any.
    """
    plan = read_json(results / study / "plan.json")
    measured = [one.record for one in kept if one.record and one.record["status"] == "done"]
    hosts = [host for record in measured for host in hosts_of(record)]
    machines = [{key: value for key, value in host.items() if not key.startswith("load_")} for host in hosts]
    machines = list({json.dumps(one, sort_keys=True): one for one in machines}.values())
    return {
        "run": config["run"],
        "study": study,
        "question": config["studies"][study]["question"],
        "repeats": studies.of(study).repeats(config),
        "equivalence_percent": config["equivalence_percent"],
        "machine": next(iter(machines), {}),
        "machines": machines,
        "libraries": {name: _library(results / "environments" / f"{name}.json") for name in config["libraries"]},
        "stores": config["stores"],
        "settings": config["studies"][study],
        "data": {name: _data(results / "data" / name / "manifest.json") for name in sorted(_datasets(plan))},
        "not_provided": not_provided(_datasets(plan), results / "data"),
        "limits": [*_limits(config, measured), *unsealed(measured), *software.unseen(kept)],
        **studies.of(study).facts(plan, kept, imported),
        "sessions": sorted({record["session"] for record in measured if "session" in record}),
        "on_purpose": software.on_purpose(kept, config["studies"][study]["compare"]),
        "code": sorted({record["provenance"]["code_sha256"] for record in measured}),
        "git": sorted({record["provenance"].get("git") or "no clone" for record in measured}),
        "dirty": any(record["provenance"].get("dirty") for record in measured),
        "order": order(measured),
        "failed_attempts": failed_attempts(results),
    }


def order(measured: Sequence[dict]) -> dict:
    """Return in which order cells were measured, as the records say; {} where they do not.

    Returns:
        repeats: how many there are.
        complete: repeats that have a record of each cell.
        orders: how many orders of the cells there are among the complete repeats.
        overlapping: records that began before another one on the same machine had ended; None where times are unknown.
    """
    if not measured or any("position" not in record for record in measured):
        return {}
    positions = pd.DataFrame([{key: record[key] for key in ("repeat", "name", "position")} for record in measured])
    positions = positions.pivot_table(index="repeat", columns="name", values="position", aggfunc="last")
    complete = positions.dropna()
    orders = complete.rank(axis="columns").drop_duplicates()
    counts = {"repeats": len(positions), "complete": len(complete), "orders": len(orders)}
    return counts | {"overlapping": _overlapping(measured)}


def _overlapping(measured: Sequence[dict]) -> int | None:
    """How many records began before another one on the same machine had ended; starts are known to the second."""
    if not all(record.get("started_utc") and record.get("step_seconds") for record in measured):
        return None
    starts = pd.Series([datetime.fromisoformat(record["started_utc"]).timestamp() for record in measured])
    ends = starts + [record["step_seconds"] for record in measured]
    nodes = [record["host"].get("node", "") for record in measured]
    steps = pd.DataFrame({"node": nodes, "start": starts, "end": ends}).sort_values("start", kind="stable")
    last_end = steps.groupby("node")["end"].transform(lambda ends: ends.cummax().shift())
    return int((steps["start"] + 1 < last_end).sum())


def failed_attempts(results: Path) -> list[dict]:
    """Return the artefacts of earlier attempts that failed or could not be used, oldest first; not what was skipped."""
    return [
        {
            "attempt": attempt.name,
            "what": str(path.relative_to(attempt.parent)),
            "reasons": records.reasons(path, attempt, results.name),
        }
        for attempt in sorted((results / "failed").glob("*/"))
        for path in sorted(attempt.glob("**/*.json"))
        if not records.skipped(path)
    ]


def hosts_of(record: dict) -> list[dict]:
    """Return the machines that measured a record: its own, or those of its processes where they were elsewhere."""
    own = record["host"]
    others = [host for host in (record.get("effective") or {}).get("hosts") or [] if "cpu" in host]
    if all(host.get("node") == own.get("node") for host in others):
        return [own]
    return [{key: value for key, value in host.items() if key not in ("name", "processes")} for host in others]


def unsealed(measured: list[dict]) -> list[str]:
    """Return how many records are from before there were digests."""
    count = sum("digest" not in record for record in measured)
    words = "were edited since they were written is not known, and they count"
    line = f"{count} of {len(measured)} records are from before records had a digest: whether they {words}"
    return [line] if count else []


def _library(path: Path) -> dict:
    return read_json(path) if path.exists() else {"status": "failed", "reasons": ["it was not built"]}


def _data(path: Path) -> dict:
    """What the report says of a dataset; nothing where it was removed, as each record has its checksum."""
    if not path.exists():
        return {}
    manifest = read_json(path)
    size = sum(file["bytes"] for file in manifest.get("files", []))
    return {"status": manifest["status"], "layout": manifest.get("layout"), "bytes": size}


def not_provided(datasets: set[str], folder: Path) -> list[str]:
    """Return a line for each dataset that could not be made or put into a store: its cells were not measured."""
    lines = []
    for name in sorted(datasets):
        failed = {}
        for path in sorted(folder.glob(f"{name}/*.json")):
            # What is broken is named where it is used.
            with contextlib.suppress(Problem):
                artefact = read_json(path)
                if artefact.get("status") == "failed":
                    failed[path.stem] = "; ".join(artefact["reasons"])
        if "manifest" in failed:
            lines.append(f"{name} could not be made: {failed['manifest']}")
        else:
            lines += [f"{name} could not be put into {store}: {reasons}" for store, reasons in failed.items()]
    return lines


def _datasets(plan: dict) -> set[str]:
    return {cell["dataset"] for cell in plan["cells"].values() if cell["dataset"]}


def _limits(config: dict, measured: list[dict]) -> list[str]:
    """Return what figures of the stores that were read cannot say, by the file systems that their files lay on."""
    types: dict[str, set[str]] = {}
    costs: dict[str, dict[str, dict]] = {}
    for record in measured:
        name = record["cell"]["store"]
        types.setdefault(name, set()).add(record["host"].get("file_system") or "")
        if network := record.get("network"):
            costs.setdefault(name, {})[record["session"]] = network
    lines = {name: stores.of(config["stores"][name]).limits(types[name]) for name in sorted(types)}
    return [
        "; ".join(filter(None, [f"{name}: {line}", networks.as_measured(list(costs.get(name, {}).values()))]))
        for name, line in lines.items()
    ]
