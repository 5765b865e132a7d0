"""Gathers the records of a study, each read once, into its tables and into what its report says beside its figures."""

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

# Of the small matrices of resampling, a second thread has no part to do, and waits for its next one at full speed.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd

from sbench.design import fingerprint, records, validity
from sbench.design import matrix as matrices
from sbench.design import study as studies
from sbench.measure import session_records, tables
from sbench.measure.judging import CONTROL, build_verdicts_table
from sbench.probe.program import Problem, compute_file_digest, read_json, write_json
from sbench.probe.slowed import SHARES
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.verdicts import stats
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

_ALARMS = "alarms"
# All controls but plain A/A twins.
_APART = (*SHARES, *studies.ANEW)
# What starts are known to; those of older records to the second.
_MS = 0.001
# What is the same machine on another day.
_MACHINE = ("node", "cpu", "ram_bytes")


def write_results(config: dict, study: str, results: Path, imported: dict) -> None:
    """Write the tables and facts.json of a study; all of it is computed before the first is written.

    Args:
        config: the resolved configuration.
        study: its name.
        results: the run's folder.
        imported: the artefact of results from elsewhere, empty without any.
    """
    folder = results / study
    matrix, kept = read_study(folder, config["run"], study)
    made = build_tables(config, study, matrix, kept, imported)
    said = build_facts(config, study, results, kept, imported)
    said["name"] = matrices.build_permanent_name(
        study, config, sorted(compute_file_digest(one.path) for one in kept if one.path.is_file()), imported
    )
    said["config"] = config
    said["controls"] = merge_controls(made["verdicts"], kept, results, study, said["machine"])
    write_tables(made, folder)
    write_json(folder / "facts.json", said)


def read_study(folder: Path, run_name: str, study: str) -> tuple[pd.DataFrame, list[records.Kept]]:
    """Return the matrix of a study and the records of its cells, from the study's folder of a run."""
    matrix = tables.read_matrix(folder / "matrix.csv")
    return matrix, list(records.read_records(folder / "records", tables.get_levels(matrix), run_name, study))


def build_tables(
    config: dict, study: str, matrix: pd.DataFrame, kept: Sequence[records.Kept], imported: dict
) -> dict[str, pd.DataFrame]:
    """Return the tables of a study by name: those of blocks, or those that it makes of its records itself."""
    program, unable = studies.get_study(study), records.find_unable_cells(kept)
    matrix, kept = matrix[~matrix["cell"].isin(unable)], [one for one in kept if one.cell not in unable]
    own = program.build_tables(matrix, kept, imported, config)
    if own is not None:
        return own
    runs, samples = tables.build_runs_and_samples(matrix, kept)
    compare, equivalence = program.get_section(config)["compare"], config["equivalence_percent"]
    timed = matrix.loc[[program.is_timed(levels) for levels in tables.get_levels(matrix).values()]]
    contest = functools.partial(program.get_contest, config=config)
    judged = build_verdicts_table(timed, runs, compare, equivalence, config["seed"], contest, program.of_tasks)
    made = {"samples": samples, "cells": tables.build_cells_table(matrix, runs), "verdicts": judged}
    return made | {
        "requests": tables.build_exchanges_table(kept),
        "records": session_records.build_records_table(timed, runs),
    }


def write_tables(made: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write tables as CSV: what was measured in full, what was computed from it with 12 digits."""
    for name, table in made.items():
        tables.write_table(table, folder / f"{name}.csv", digits=None if name == "samples" else 12)


def build_facts(config: dict, study: str, results: Path, kept: Sequence[records.Kept], imported: dict) -> dict:
    """Return what the report of a study says about its run, whose artefacts are in the folder `results`.

    `imported` is the artefact of results from elsewhere, empty without any.
    """
    plan = read_json(results / study / "plan.json")
    measured = [one.record for one in kept if one.record and one.record["status"] == "done"]
    hosts = [host for record in measured for host in list_hosts(record)]
    machines = [{key: value for key, value in host.items() if not key.startswith("load_")} for host in hosts]
    machines = list({json.dumps(one, sort_keys=True): one for one in machines}.values())
    return {
        "run": config["run"],
        "study": study,
        "question": config["studies"][study].get("question", ""),
        "repeats": studies.get_study(study).count_repeats(config),
        "equivalence_percent": config["equivalence_percent"],
        "machine": next(iter(machines), {}),
        "machines": machines,
        **({"nodes": nodes} if len(nodes := compare_nodes(measured)) > 1 else {}),
        "libraries": {name: _read_library(results / "environments" / f"{name}.json") for name in config["libraries"]},
        "stores": config["stores"],
        "settings": config["studies"][study],
        "data": {
            name: _read_dataset(results / "data" / name / "manifest.json") for name in sorted(_list_datasets(plan))
        },
        "unable": records.find_unable_cells(kept),
        "not_provided": describe_missing_data(_list_datasets(plan), results / "data"),
        "limits": [
            *_describe_limits(config, measured),
            *describe_unsealed(measured),
            *fingerprint.describe_unseen_records(kept),
            *list_unmet_requirements(results, config),
        ],
        **studies.get_study(study).build_facts(plan, kept, imported, config),
        "sessions": sorted({record["session"] for record in measured if "session" in record}),
        "software": fingerprint.read_fingerprints(kept),
        "on_purpose": fingerprint.describe_environments(kept, config["studies"][study]["compare"]),
        "code": sorted({record["provenance"]["code_sha256"] for record in measured}),
        "git": sorted({record["provenance"].get("git") or "no clone" for record in measured}),
        "dirty": any(record["provenance"].get("dirty") for record in measured),
        "order": count_orders(measured),
        "failed_attempts": list_failed_attempts(results),
    }


def compare_nodes(measured: Sequence[dict]) -> list[dict]:
    """Return for each node how many records it measured, and how long they took against the medians of their cells.

    Returns:
        node, records, then quartiles of time / median time of the cell on all nodes: low, middle, high.
    """
    rows = [
        {"node": record["host"].get("node", ""), "cell": record["name"], "total": record["seconds"].get("total")}
        for record in measured
    ]
    times = pd.DataFrame(rows, columns=["node", "cell", "total"]).dropna()
    ratios = times["total"].astype(float) / times.groupby("cell")["total"].transform("median")
    return [
        {"node": node, "records": len(of_node), **dict(zip(("low", "middle", "high"), quartiles, strict=True))}
        for node, of_node in ratios.groupby(times["node"])
        for quartiles in [of_node.quantile([0.25, 0.5, 0.75]).tolist()]
    ]


def count_orders(measured: Sequence[dict]) -> dict:
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
    return counts | {"overlapping": _count_overlapping(measured)}


def _count_overlapping(measured: Sequence[dict]) -> int | None:
    """How many records began before another one on the same machine had ended.

    Of those that began in the same second, as older records say it, the first is the one with the lower position.
    """
    if not all(record.get("started_utc") and record.get("step_seconds") for record in measured):
        return None
    steps = pd.DataFrame([_compute_step_times(record) for record in measured]).sort_values(["start", "position"])
    last_end = steps.groupby("node")["end"].transform(lambda ends: ends.cummax().shift())
    return int((steps["latest"] < last_end).sum())


def _compute_step_times(record: dict) -> dict:
    """When a record's step began, at the earliest and at the latest, and ended, in seconds since 1970, and where."""
    start = datetime.fromisoformat(record["started_utc"]).timestamp()
    latest = start + (_MS if "." in record["started_utc"] else 1)
    place = {"node": record["host"].get("node", ""), "position": record["position"]}
    return {**place, "start": start, "latest": latest, "end": start + record["step_seconds"]}


def list_failed_attempts(results: Path) -> list[dict]:
    """Return the artefacts of earlier attempts that failed or could not be used, oldest first; not what was skipped."""
    return [
        {
            "attempt": attempt.name,
            "what": str(path.relative_to(attempt.parent)),
            "reasons": records.list_failure_reasons(path, attempt, results.name),
        }
        for attempt in sorted((results / "failed").glob("*/"))
        for path in sorted(attempt.glob("**/*.json"))
        if not records.is_skipped(path)
    ]


def list_hosts(record: dict) -> list[dict]:
    """Return the machines that measured a record: its own, or those of its processes where they were elsewhere."""
    own = record["host"]
    others = [host for host in (record.get("effective") or {}).get("hosts") or [] if "cpu" in host]
    if all(host.get("node") == own.get("node") for host in others):
        return [own]
    return [{key: value for key, value in host.items() if key not in ("name", "processes")} for host in others]


def describe_unsealed(measured: list[dict]) -> list[str]:
    """Return how many records are from before there were digests."""
    count = sum("digest" not in record for record in measured)
    words = "were edited since they were written is not known, and they count"
    line = f"{count} of {len(measured)} records are from before records had a digest: whether they {words}"
    return [line] if count else []


def list_unmet_requirements(results: Path, config: dict) -> list[str]:
    """Return which requirements of user-supplied packages libraries meet with other versions, a line for each."""
    artefacts = {name: _read_library(results / "environments" / f"{name}.json") for name in config["libraries"]}
    lines = {name: (artefact.get("build") or {}).get("unmet", ()) for name, artefact in artefacts.items()}
    return [f"{name}: {line}" for name, of_library in lines.items() for line in of_library]


def _read_library(path: Path) -> dict:
    """What the report says of a library, without the files that each record of it found unchanged."""
    artefact = read_json(path) if path.exists() else {"status": "failed", "reasons": ["it was not built"]}
    return {key: value for key, value in artefact.items() if key != "imported"}


def _read_dataset(path: Path) -> dict:
    """What the report says of a dataset; nothing where it was removed, as each record has its checksum."""
    if not path.exists():
        return {}
    manifest = read_json(path)
    size = sum(file["bytes"] for file in manifest.get("files", []))
    return {"status": manifest["status"], "layout": manifest.get("layout"), "bytes": size}


def describe_missing_data(datasets: set[str], folder: Path) -> list[str]:
    """Return a line for each reason why datasets could not be made or put into a store, and were not measured."""
    of_reasons: dict[tuple[str, str], list[str]] = {}
    for name in sorted(datasets):
        failed = {}
        for path in sorted(folder.glob(f"{name}/*.json")):
            # What is broken is named where it is used.
            with contextlib.suppress(Problem):
                artefact = read_json(path)
                if artefact.get("status") == "failed":
                    failed[path.stem] = "; ".join(artefact["reasons"])
        # Without a manifest no store has got it.
        for what, reasons in ({"manifest": failed["manifest"]} if "manifest" in failed else failed).items():
            could_not = "made" if what == "manifest" else f"put into {what}"
            of_reasons.setdefault((could_not, reasons), []).append(name)
    return [f"{', '.join(names)} could not be {what}: {why}" for (what, why), names in of_reasons.items()]


def _list_datasets(plan: dict) -> set[str]:
    return {cell["dataset"] for cell in plan["cells"].values() if cell["dataset"]}


def _describe_limits(config: dict, measured: list[dict]) -> list[str]:
    """Return what figures of the stores that were read cannot say, by the file systems that their files lay on."""
    lines = []
    for name in sorted({record["cell"]["store"] for record in measured}):
        of_store = [record for record in measured if record["cell"]["store"] == name]
        types = {record["host"].get("file_system") or "" for record in of_store}
        costs = {record["session"]: record["network"] for record in of_store if record.get("network")}
        cost = [networks.describe_measured(list(costs.values()))] if costs else []
        lines.append("; ".join([f"{name}: {stores.get_store(config['stores'][name]).describe_limits(types)}", *cost]))
    return lines


def merge_controls(
    verdicts: pd.DataFrame, kept: Iterable[records.Kept], results: Path, study: str, machine: dict
) -> dict:
    """Return what a report says of the controls of a study; {} where none was slowed.

    Other runs are those beside the folder `results` that were measured on the same `machine`. What is read of them is
    kept in controls.json in the study's folder, so that pages say the same where those runs are not there.

    Returns:
        runs: how many runs have controls, this one included. slow5, slow10: in how many of them, and of how many that
        were judged, the slowed cell was found to be slower; copied, rebuilt: in how many of how many the twin that has
        something anew was faster or slower; alarms: how many plain A/A twins were, of how many. reached: by level,
        waits / the rest of the total, the median of this run's records.
    """
    own = count_controls(verdicts)
    if not SHARES.keys() & own.keys():
        return {}
    path = results / study / "controls.json"
    others: dict = {}
    # One that is damaged is made again of what is still there.
    with contextlib.suppress(Problem):
        others = read_json(path)
    others |= _read_other_controls(results, study, machine)
    write_json(path, others)
    runs = [own, *others.values()]
    pooled = {
        name: [sum(one.get(name, (0, 0))[place] for one in runs) for place in (0, 1)] for name in (*_APART, _ALARMS)
    }
    return {"runs": len(runs), **pooled, "reached": _compute_reached_shares(kept)}


def count_controls(verdicts: pd.DataFrame) -> dict[str, list[int]]:
    """Return of each kind of control that verdicts have: [found, judged], plain A/A twins as `alarms`."""
    if not {"role", "control", "metric", "verdict"} <= set(verdicts):
        return {}
    rows = verdicts[(verdicts["role"] == CONTROL) & (verdicts["metric"] == "total")]
    kinds = rows["control"].where(rows["control"].isin(_APART), _ALARMS)
    return {
        kind: [int(judged.isin((Outcome.SLOWER,) if kind in SHARES else ORDERED).sum()), len(judged)]
        for kind, of_kind in rows["verdict"].groupby(kinds)
        for judged in [of_kind[of_kind.isin(JUDGED)]]
    }


def _read_other_controls(results: Path, study: str, machine: dict) -> dict[str, dict]:
    """The counts of other runs on the machine, by name; what cannot be read is a matter of its own report."""
    own: list[object] = [machine.get(key) for key in _MACHINE]
    counted: dict[str, dict] = {}
    for path in sorted(results.parent.glob(f"*/{study}/facts.json")):
        with contextlib.suppress(Problem, OSError, ValueError):
            there = read_json(path).get("machine") or {}
            if path.parents[1] != results and machine and [there.get(key) for key in _MACHINE] == own:
                verdicts = pd.read_csv(path.with_name("verdicts.csv"), dtype=str, keep_default_na=False)
                counted |= {path.parents[1].name: of_kinds} if (of_kinds := count_controls(verdicts)) else {}
    return counted


def _compute_reached_shares(kept: Iterable[records.Kept]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for one in kept:
        if one.record and not validity.list_faults(one.record) and (waited := one.record["work"].get("waited_s")):
            rest = one.record["seconds"]["total"] - waited
            shares.setdefault(one.levels["control"], []).append(waited / rest)
    return {level: stats.estimate_median(values).value for level, values in shares.items()}
