"""What a run can tell apart: its controls, and those of the other runs on its machine (METHOD 6)."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from scripts.frame.records import Kept, faults
from scripts.lib.program import Problem, read_json, write_json
from scripts.lib.slowed import SHARES
from scripts.statistics import JUDGED, stats
from scripts.statistics.verdicts import CONTROL

ALARMS = "alarms"
# What is the same machine on another day.
_MACHINE = ("node", "cpu", "ram_bytes")


def of_run(verdicts: pd.DataFrame, kept: Iterable[Kept], results: Path, study: str, machine: dict) -> dict:
    """Return what a report says of the controls of a study; {} where none was slowed.

    Other runs are those beside the folder `results` that were measured on the same `machine`. What is read of them is
    kept in controls.json in the study's folder, so that pages say the same where those runs are not there.

    Returns:
        runs: how many runs have controls, this one included. slow5, slow10: in how many of them, and of how many that
        were judged, the slowed cell was found to be slower; alarms: how many A/A twins were faster or slower, of how
        many. reached: by level, waits / the rest of the total, the median of this run's records.
    """
    own = counts(verdicts)
    if not SHARES.keys() & own.keys():
        return {}
    path = results / study / "controls.json"
    others: dict = {}
    # One that is damaged is made again of what is still there.
    with contextlib.suppress(Problem):
        others = read_json(path)
    others |= _elsewhere(results, study, machine)
    write_json(path, others)
    runs = [own, *others.values()]
    pooled = {
        name: [sum(one.get(name, (0, 0))[place] for one in runs) for place in (0, 1)] for name in (*SHARES, ALARMS)
    }
    return {"runs": len(runs), **pooled, "reached": _reached(kept)}


def counts(verdicts: pd.DataFrame) -> dict[str, list[int]]:
    """Return of each kind of control that verdicts have: [found, judged], A/A twins as `alarms`: [alarms, judged]."""
    if not {"role", "control", "metric", "verdict"} <= set(verdicts):
        return {}
    rows = verdicts[(verdicts["role"] == CONTROL) & (verdicts["metric"] == "total")]
    kinds = rows["control"].where(rows["control"].isin(SHARES), ALARMS)
    return {
        kind: [int(judged.isin(("slower",) if kind in SHARES else ("faster", "slower")).sum()), len(judged)]
        for kind, of_kind in rows["verdict"].groupby(kinds)
        for judged in [of_kind[of_kind.isin(JUDGED)]]
    }


def _elsewhere(results: Path, study: str, machine: dict) -> dict[str, dict]:
    """The counts of other runs on the machine, by name; what cannot be read is a matter of its own report."""
    own, counted = [machine.get(key) for key in _MACHINE], {}
    for facts in sorted(results.parent.glob(f"*/{study}/facts.json")):
        with contextlib.suppress(Problem, OSError, ValueError):
            there = read_json(facts).get("machine") or {}
            if facts.parents[1] != results and machine and [there.get(key) for key in _MACHINE] == own:
                verdicts = pd.read_csv(facts.with_name("verdicts.csv"), dtype=str, keep_default_na=False)
                counted |= {facts.parents[1].name: of_kinds} if (of_kinds := counts(verdicts)) else {}
    return counted


def _reached(kept: Iterable[Kept]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for one in kept:
        if one.record and not faults(one.record) and (waited := one.record["work"].get("waited_s")):
            rest = one.record["seconds"]["total"] - waited
            shares.setdefault(one.levels["control"], []).append(waited / rest)
    return {level: stats.median(values).value for level, values in shares.items()}
