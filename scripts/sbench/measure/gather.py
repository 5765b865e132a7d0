"""Read the records of a study, and write its tables and the facts for its report."""

import contextlib
import json
import os
from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from pathlib import Path

# Resampling uses small matrices, for which a second OpenBLAS thread would only spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd

from sbench.design import fingerprint, records, validity
from sbench.design import matrix as matrices
from sbench.design import study as studies
from sbench.measure import judging, session_records, tables
from sbench.measure.judging import CONTROL
from sbench.probe import sizes
from sbench.probe.program import Problem, compute_file_digest, read_json, write_json
from sbench.probe.slowed import SHARES
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.verdicts import stats
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

_ALARMS = "alarms"
# All controls other than plain A/A twins.
_APART = (*SHARES, *studies.ANEW)
# The resolution of start times in seconds. In older records, it is a full second.
_MS = 0.001
# Entries that identify a machine, and do not change from day to day.
_MACHINE = ("node", "cpu", "ram_bytes")


def write_results(config: dict, study: str, results: Path, imported: dict) -> None:
    """Compute the tables and the facts of a study, and then write them to CSV files and facts.json.

    `results` is the folder of the run. `imported` is the artefact of external results; empty if the study imports none.
    """
    folder = results / study
    matrix, kept = read_study(folder, config["run"], study)
    made = build_tables(config, study, matrix, kept, imported)
    summary = build_facts(config, study, results, kept, imported)
    summary["name"] = matrices.build_permanent_name(
        study, config, sorted(compute_file_digest(one.path) for one in kept if one.path.is_file()), imported
    )
    summary["config"] = config
    if "looks" in made:
        summary["limits"] += list_changed_looks(folder, made["looks"])
    summary["controls"] = merge_controls(made["verdicts"], kept, results, study, summary["machine"])
    write_tables(made, folder)
    write_json(folder / "facts.json", summary)


def read_study(folder: Path, run_name: str, study: str) -> tuple[pd.DataFrame, list[records.Kept]]:
    """Read the matrix of a study and the records of its cells from the study's folder in a run."""
    matrix = tables.read_matrix(folder / "matrix.csv")
    return matrix, list(records.read_records(folder / "records", tables.get_levels(matrix), run_name, study))


def build_tables(
    config: dict, study: str, matrix: pd.DataFrame, kept: Sequence[records.Kept], imported: dict
) -> dict[str, pd.DataFrame]:
    """Build the tables of a study, either its special ones or the standard ones for results in blocks.

    Returns:
        Name of the table -> table.
    """
    program, unable = studies.get_study(study), records.find_unable_cells(kept)
    matrix, kept = matrix[~matrix["cell"].isin(unable)], [one for one in kept if one.cell not in unable]
    own = program.build_tables(matrix, kept, imported, config)
    if own is not None:
        return own
    runs, samples = tables.build_runs_and_samples(matrix, kept)
    timed = judging.select_timed(program, matrix)
    judgement = judging.judge_study(config, program, matrix, runs)
    full = tables.list_full_blocks(one.record for one in kept if one.record and one.record["status"] == "done")
    made = {"samples": samples, "cells": tables.build_cells_table(matrix, runs, full)}
    made |= {"verdicts": judging.format_verdicts(timed, judgement)}
    made |= {"looks": judging.build_looks_table(timed, judgement)} if judgement.schedule else {}
    return made | {
        "requests": tables.build_exchanges_table(kept),
        "records": session_records.build_records_table(timed, runs),
    }


def write_tables(made: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write tables as CSV files, with all digits for the samples and 12 digits for computed values."""
    for name, table in made.items():
        tables.write_table(table, folder / f"{name}.csv", digits=None if name == "samples" else 12)


def build_facts(config: dict, study: str, results: Path, kept: Sequence[records.Kept], imported: dict) -> dict:
    """Collect the facts for a study's report.

    `results` is the folder of the run. `imported` is the artefact of external results; empty if the study imports none.
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
        **({"billed_machine": config["machine"]} if "machine" in config else {}),
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
            *_describe_dropped_cells(results / study / "records", plan["cells"]),
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


def list_changed_looks(folder: Path, replayed: pd.DataFrame) -> list[str]:
    """Return a line for each look of the last session that contains verdicts which the records do not reproduce.

    `folder` is the study's folder, and `replayed` is looks.csv, computed from the records. Looks after the last one in
    `replayed` are ignored, because they belong to rounds that do not count.
    """
    lines = []
    names = ["baseline_cell", "contender_cell", "look", "blocks", "verdict", "decision"]
    expected = {tuple(row) for row in replayed[names].itertuples(index=False)}
    last = max((row[2] for row in expected), default=0)
    for path in sorted((folder / "looks").glob("*.json"), key=lambda path: int(path.stem)):
        rows = [tuple(row.get(name) for name in names) for row in read_json(path).get("comparisons", [])]
        if changed := sum(row[2] <= last and row not in expected for row in rows):
            lines.append(
                f"looks/{path.name} disagrees with the records ({sizes.format_count(changed, 'verdict')}): records were"
                " edited or added, or the code that judges has changed"
            )
    return lines


def compare_nodes(measured: Sequence[dict]) -> list[dict]:
    """Compare the speed of the nodes.

    Returns:
        For each node: node, records (the number of its records), and low, middle and high, the quartiles of the ratio
        of a record's time to the median time of its cell on all nodes.
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
    """Count the different measuring orders of the blocks.

    Returns:
        An empty dictionary if a record lacks its position, otherwise:

        - repeats: the number of repeats;
        - full: the repeats that were to measure every cell (see `tables.list_full_blocks`);
        - complete: the number of these with records of all cells;
        - orders: the number of different orders in all repeats that measured all cells due;
        - overlapping: the number of records that began before another one on the same machine ended; None if unknown.
    """
    if not measured or any("position" not in record for record in measured):
        return {}
    positions = pd.DataFrame([{key: record[key] for key in ("repeat", "name", "position")} for record in measured])
    positions = positions.pivot_table(index="repeat", columns="name", values="position", aggfunc="last")
    due = {record["repeat"]: record.get("block_cells", positions.shape[1]) for record in measured}
    complete = positions[positions.notna().sum(axis="columns") >= positions.index.map(due)]
    orders = complete.rank(axis="columns").drop_duplicates()
    full = tables.list_full_blocks(measured)
    counts = {"repeats": len(positions), "full": full, "complete": len(complete.index.intersection(full))}
    counts |= {"orders": len(orders)}
    return counts | {"overlapping": _count_overlapping(measured)}


def _count_overlapping(measured: Sequence[dict]) -> int | None:
    """Count the records whose measurement began before an earlier one on the same machine ended; None if unknown.

    Times are the machine's uptime, which setting its clock does not change. Older records have UTC times, which are
    compared within a session; if two of these in whole seconds are equal, the lower position is first.
    """
    if not all(record.get("started_utc") and record.get("step_seconds") for record in measured):
        return None
    steps = pd.DataFrame([_compute_step_times(record) for record in measured]).sort_values(["start", "position"])
    last_end = steps.groupby(["node", "clock"])["end"].transform(lambda ends: ends.cummax().shift())
    return int((steps["latest"] < last_end).sum())


def _compute_step_times(record: dict) -> dict:
    """Return the earliest start, latest start and end of a record's measuring job in s, with its node and clock."""
    start = record.get("started_uptime_s") or datetime.fromisoformat(record["started_utc"]).timestamp()
    latest = start + (_MS if "." in record["started_utc"] else 1)
    place = {
        "node": record["host"].get("node", ""),
        "clock": ("started_uptime_s" in record and record["host"].get("boot")) or record.get("session", ""),
        "position": record["position"],
    }
    return {**place, "start": start, "latest": latest, "end": start + record["step_seconds"]}


def list_failed_attempts(results: Path) -> list[dict]:
    """Return the failed or unusable artefacts of earlier attempts, oldest first, excluding skipped jobs."""
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
    """Return the machines that measured a record.

    This is the record's host, or the hosts of its worker processes if any of them ran on another node.
    """
    own = record["host"]
    others = [host for host in (record.get("effective") or {}).get("hosts") or [] if "cpu" in host]
    if all(host.get("node") == own.get("node") for host in others):
        return [own]
    return [{key: value for key, value in host.items() if key not in ("name", "processes")} for host in others]


def describe_unsealed(measured: list[dict]) -> list[str]:
    """Return a line that counts the records without a digest; an empty list if all have it."""
    count = sum("digest" not in record for record in measured)
    line = f"{count} of {len(measured)} records predate digests: they count, but later edits would not be noticed"
    return [line] if count else []


def _describe_dropped_cells(folder: Path, cells: Container[str]) -> list[str]:
    names = records.list_dropped_cells(folder, cells)
    many = sizes.format_count(len(names), "measured cell")
    line = f"{many} that the configuration no longer has, left out of all tables and verdicts: {', '.join(names)}"
    return [line] if names else []


def list_unmet_requirements(results: Path, config: dict) -> list[str]:
    """Return a line for each version requirement of user-supplied packages that a library does not meet."""
    artefacts = {name: _read_library(results / "environments" / f"{name}.json") for name in config["libraries"]}
    lines = {name: (artefact.get("build") or {}).get("unmet", ()) for name, artefact in artefacts.items()}
    return [f"{name}: {line}" for name, of_library in lines.items() for line in of_library]


def _read_library(path: Path) -> dict:
    """Read a library's artefact for the report, without the list of imported files."""
    artefact = read_json(path) if path.exists() else {"status": "failed", "reasons": ["it was not built"]}
    return {key: value for key, value in artefact.items() if key != "imported"}


def _read_dataset(path: Path) -> dict:
    """Read a dataset's status, layout and size for the report; return an empty dictionary if it was removed."""
    if not path.exists():
        return {}
    manifest = read_json(path)
    size = sum(file["bytes"] for file in manifest.get("files", []))
    return {"status": manifest["status"], "layout": manifest.get("layout"), "bytes": size}


def describe_missing_data(datasets: set[str], folder: Path) -> list[str]:
    """Describe which datasets could not be generated or uploaded, in one line for each reason."""
    of_reasons: dict[tuple[str, str], list[str]] = {}
    for name in sorted(datasets):
        failed = {}
        for path in sorted(folder.glob(f"{name}/*.json")):
            # Unreadable artefacts are reported by the job that uses them.
            with contextlib.suppress(Problem):
                artefact = read_json(path)
                if artefact.get("status") == "failed":
                    failed[path.stem] = "; ".join(artefact["reasons"])
        # If generating the data failed, its uploads failed for the same reason.
        for what, reasons in ({"manifest": failed["manifest"]} if "manifest" in failed else failed).items():
            could_not = "made" if what == "manifest" else f"put into {what}"
            of_reasons.setdefault((could_not, reasons), []).append(name)
    return [f"{', '.join(names)} could not be {what}: {why}" for (what, why), names in of_reasons.items()]


def _list_datasets(plan: dict) -> set[str]:
    return {cell["dataset"] for cell in plan["cells"].values() if cell["dataset"]}


def _describe_limits(config: dict, measured: list[dict]) -> list[str]:
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
    """Summarize the verdicts on controls for a study's report, over all runs on the same machine.

    The other runs are in the same parent folder as `results`. Their counts are saved in controls.json in the study's
    folder, so that the report does not change if those runs are removed.

    Returns:
        An empty dictionary without slowed controls, otherwise:

        - runs: the number of runs with controls, including this one;
        - slow5, slow10: [number found slower, number judged] for slowed cells;
        - copied, rebuilt: [number found faster or slower, number judged] for these kinds of twins;
        - alarms: the same for plain A/A twins;
        - reached: level -> median, over this run's records, of the ratio of deliberate waits to the rest of the total.
    """
    own = count_controls(verdicts)
    if not SHARES.keys() & own.keys():
        return {}
    path = results / study / "controls.json"
    others: dict = {}
    # A damaged file is replaced with the counts of the runs that still exist.
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
    """Count the verdicts on controls.

    Returns:
        Kind of control -> [number of differences found, number judged]. Plain A/A twins are counted as `alarms`.
    """
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
    """Return the counts of controls in other runs on the same machine: name of the run -> counts.

    Unreadable runs are skipped, because their own reports mention them.
    """
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
