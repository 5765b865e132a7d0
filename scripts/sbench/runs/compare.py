"""Compare two groups ("sides") of one or more runs, cell by cell. Sessions are the statistical unit.

The exit status is 3 if a rule of `--fail-on` is violated. With a single session per side, differences in time are shown
but not judged. Counts of requests, bytes, opens and connections are exactly reproducible, so two repeats are enough to
judge them.
"""

import itertools
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from sbench.design.matrix import build_permanent_name
from sbench.measure import tables
from sbench.measure.families import LOST
from sbench.pages import prose
from sbench.pages.markup import FOREIGN
from sbench.probe.program import Problem, print_json, read_json, write_json
from sbench.runs import sides
from sbench.runs.rebuild import make_index, make_page
from sbench.runs.rules import FAILED, Rule, judge_rules, parse_rules
from sbench.runs.side_by_side import describe_elsewhere
from sbench.runs.sides import Side
from sbench.runs.tool_files import is_tool_file
from sbench.verdicts import sessions, stats
from sbench.verdicts.outcomes import JUDGED, Outcome

OUT, HISTORY = "compare", "history"
EQUIVALENCE_PERCENT = 5
# Metadata to exclude from the list of differences: values that differ between any two runs, and values of libraries
# that do not describe their build.
_OF_RUNS = re.compile(
    r"configuration (run|repeats|order_seed|only|again|ask_above|extra_blocks|comparison)\b|machine boot(_id)?\b"
    r"|library \S+ (status|environment|python|library|build (seconds|cached|inputs_sha256))\b"
)
Pair = tuple[pd.DataFrame, pd.DataFrame]


def compare_runs(
    base: Sequence[str], other: Sequence[str], paired: bool, fail_on: str, keep: str | None, as_json: bool = False
) -> int:
    """Compare two sides, write the results to results/compare and reports/compare, and print the outcome.

    Args:
        base: first side: names of runs, paths of archives or of baselines, or published/<study>.
        other: second side, like `base`; empty to only save `base` as a baseline.
        paired: whether to pair the sessions of both sides in chronological order.
        fail_on: rules such as "slower > 10 %, more requests".
        keep: path of the baseline to write `base` to.
        as_json: whether to print the outcome as JSON.

    Returns:
        Exit status: 3 if a rule is violated, otherwise 0.
    """
    rules = parse_rules(fail_on)
    if keep and Path(keep).suffix != sides.BASELINE:
        raise Problem(f"the name of a baseline must end with {sides.BASELINE} (got --keep {keep})")
    if keep and is_tool_file(keep):
        raise Problem(f"--keep {keep} would overwrite a file that is not a baseline; name a new file")
    first = sides.load_side(base)
    if keep:
        sides.write_baseline(first, Path(keep))
        print(f"{keep}: {', '.join(f'{study} of {first.get_name(study)}' for study in first.records)}")
    return report_comparison(first, sides.load_side(other), paired, rules, as_json) if other else 0


def report_comparison(
    base: Side, other: Side, paired: bool = False, rules: Sequence[Rule] = (), as_json: bool = False
) -> int:
    """Write tables and pages for the studies common to both sides, print the outcome, and return the exit status."""
    return publish_comparison(
        {study: compare_study(study, base, other, paired, rules) for study in _list_common_studies(base, other)},
        as_json=as_json,
    )


def publish_comparison(
    compared: Mapping[str, tuple[dict, dict[str, pd.DataFrame]]],
    notebook: str = OUT,
    as_json: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Write the tables and pages of comparisons, print the outcome, and return the exit status.

    Args:
        compared: study -> metadata for facts.json, and tables.
        notebook: notebook of the pages.
        as_json: whether to print the outcome as JSON.
        more: further entries of the printed JSON.
    """
    results, reports = Path("results", OUT), Path("reports", OUT)
    if run_there := next(results.glob("*/records"), None):
        raise Problem(f"{run_there} belongs to a run named compare, and comparisons need that folder; rename {results}")
    answers, outcomes, status = [], {}, 0
    for path in (*results.glob("*"), *reports.glob("*")):
        if path.is_file():
            path.unlink()
        elif path.name != HISTORY:
            shutil.rmtree(path)
    for study, (facts, made) in compared.items():
        folder = results / study
        for name, table in made.items():
            tables.write_table(table, folder / f"{name}.csv", digits=12)
        write_json(folder / "facts.json", facts)
        answers.append(make_page(notebook, folder, reports / f"{study}.html"))
        answer = read_json(answers[-1])
        headline = FOREIGN.sub("", answer["headline"])
        outcomes[study] = {"headline": headline, **facts["outcome"], "verdicts": made["verdicts"].to_dict("records")}
        if not as_json:
            print(f"{answer['title']}: {headline}", *facts.get("lines", ()), sep="\n")
        status = FAILED if facts["outcome"]["broken"] else status
        for warning in _list_warnings(facts):
            print(f"warning: {warning}", file=sys.stderr)
    page = make_index(answers, reports)
    if as_json:
        print_json({"studies": outcomes, **more, "report": str(page)})
    else:
        print(f"report: {page}")
    return status


def compare_study(
    study: str, base: Side, other: Side, paired: bool = False, rules: Sequence[Rule] = ()
) -> tuple[dict, dict[str, pd.DataFrame]]:
    """Compare the results of two sides for a study.

    Cells with equal factor levels are compared even if other settings differ.

    Returns:
        The metadata for facts.json, and these tables:
            cells: one row per cell and side, as in cells.csv, with the additional factor `run`.
            verdicts: one row per common cell, as in verdicts.csv, for the factor `run`.
            counts: requests, bytes, opens and connections of common cells, with outcomes (`sessions.compare_counts`).
            alone: cells that only one side has.
            differences: other differences between the sides, with both values.
            records: records of both sides with the cell names in `cells`; `unit_of` is the session.
    """
    names, both = _list_side_names(study, base, other), (base.records[study], other.records[study])
    factors = _list_factors(both)
    both = tuple(
        records.reindex(columns=list(dict.fromkeys([*records, *factors])))
        .fillna(dict.fromkeys(factors, ""))
        .assign(unit_of=records["session"] + "\n" + records["run"], run=name)
        for records, name in zip(both, names, strict=True)
    )
    by_levels = [dict(list(records.groupby(factors, sort=False))) for records in both]
    common = {levels: (own, by_levels[1][levels]) for levels, own in by_levels[0].items() if levels in by_levels[1]}
    facts = _build_facts(study, names, base, other)
    units = [sorted(records["unit_of"].unique()) for records in both] if paired else None
    judged = _judge_cells(list(common.values()), units, facts["equivalence_percent"])
    facts["pairs"] = list(zip(*units, strict=True)) if units else []
    facts["sessions_of"] = [_count_most_sessions(records, factors) for records in both]
    facts["sessions_due"] = sessions.LEAST_PAIRS if paired else sessions.LEAST
    is_judged = min(facts["sessions_of"]) >= facts["sessions_due"]
    facts["apart"] = sessions.find_apart(*map(select_measured, both)) if is_judged else []
    heads = [dict(zip(factors, levels, strict=True)) for levels in common]
    verdicts = [
        {
            "factor": "run",
            "baseline": names[0],
            "contender": names[1],
            "run": "",
            **head,
            **_build_time_row(study, pair, verdict, facts["apart"], paired),
        }
        for head, pair, verdict in zip(heads, common.values(), judged, strict=True)
    ]
    made = {
        "verdicts": pd.DataFrame(verdicts),
        "counts": pd.DataFrame(
            [head | build_counts_row(pair) for head, pair in zip(heads, common.values(), strict=True)]
        ),
        "cells": pd.DataFrame([row for records in both for row in _list_cells(records, factors)]),
        "records": pd.concat([_add_cell_names(records, factors) for records in both]),
        "alone": _find_lone_cells(names, by_levels, factors),
        "differences": find_differences(study, names, base, other),
    }
    facts["outcome"] = judge_rules(rules, made["verdicts"], made["counts"])
    return facts, made


def find_differences(study: str, names: Sequence[str], base: Side, other: Side) -> pd.DataFrame:
    """List differences in metadata between two sides, with one column of values per side."""
    values = [list_properties(side.facts[study]) for side in (base, other)]
    rows = [
        {"what": what, **{name: " | ".join(sorted(of.get(what, ()))) for name, of in zip(names, values, strict=True)}}
        for what in dict.fromkeys(itertools.chain(*values))
        if values[0].get(what) != values[1].get(what)
    ]
    return pd.DataFrame(rows, columns=["what", *names])


def _list_warnings(facts: Mapping) -> list[str]:
    """Return a warning if rules on time were not judged because the sessions of both sides did not alternate.

    Otherwise, the list is empty.
    """
    times = [rule for rule in facts["outcome"]["rules"] if " " not in rule.partition(" >")[0]]
    if not facts["apart"] or not times:
        return []
    base, other = facts["sides"]
    where = f"{other} was measured {describe_elsewhere(facts['apart'], base)}"
    seen = f"; from these sessions only: {prose.format_list(warned)}" if (warned := facts["outcome"]["warned"]) else ""
    return [f"{prose.format_list(times)}: not judged, because {where}{seen}; measure in the order A B B A (docs/ci.md)"]


def _list_common_studies(base: Side, other: Side) -> list[str]:
    """List the studies that both sides contain; raise Problem if there are none, or if a session is on both sides."""
    common = [study for study in base.records if study in other.records]
    if not common:
        raise Problem(f"the sides must share a study: {', '.join(base.records)}; {', '.join(other.records)}")
    for study in common:
        if shared := sorted(base.get_sessions(study) & other.get_sessions(study)):
            raise Problem(
                f"both sides have run {shared[0][0]}, session {shared[0][1] or 'unknown'}: name two different runs"
            )
    return common


def _list_side_names(study: str, base: Side, other: Side) -> list[str]:
    """Return a display name per side; if these are the same, add the runs' permanent names to distinguish them."""
    names = [side.get_name(study) for side in (base, other)]
    if names[0] != names[1]:
        return names
    return [f"{names[0]} ({side.facts[study][0].get('name', place)})" for place, side in (("A", base), ("B", other))]


def _list_factors(both: Pair) -> list[str]:
    factors = (list(records)[1 : list(records).index("repeat")] for records in both)
    return [name for name in dict.fromkeys(itertools.chain(*factors)) if name != "control"]


def select_measured(records: pd.DataFrame) -> pd.DataFrame:
    """Select the valid records with a measured value."""
    return records[records["valid"] & (records["value"] > 0)]


def _count_most_sessions(records: pd.DataFrame, factors: Sequence[str]) -> int:
    valid = select_measured(records)
    return int(valid.groupby(list(factors))["unit_of"].nunique().max()) if len(valid) else 0


def _judge_cells(
    pairs: Sequence[Pair], units: Sequence[list] | None, equivalence_percent: float
) -> list[stats.Verdict]:
    """Return a verdict on the time of each cell, or "not comparable" if both sides read different data.

    Args:
        pairs: records of both sides, per cell.
        units: sessions of both sides, in chronological order, for a paired comparison; None for an unpaired comparison.
        equivalence_percent: largest difference that counts as the same.
    """
    if units and len(units[0]) != len(units[1]):
        raise Problem(
            f"--paired requires equal numbers of sessions (got {len(units[0])} and {len(units[1])}); leave out"
            " sessions without a partner"
        )
    if not pairs:
        return []
    tables_of = [
        _compute_session_logs([pair[side] for pair in pairs], how, units and units[side])
        for how in ("median", "mean")
        for side in (0, 1)
    ]
    base, other, *means = (table.to_numpy(copy=True) for table in tables_of)
    times = [list(table.index) for table in tables_of[:2]]
    apart = [_has_different_data(pair) for pair in pairs]
    other[:, apart] = np.nan
    judged = sessions.judge_sessions(base, other, bool(units), equivalence_percent, means=means, times=times)
    return [
        one._replace(verdict=Outcome.NOT_COMPARABLE) if is_apart else one
        for one, is_apart in zip(judged, apart, strict=True)
    ]


def _compute_session_logs(cells: Sequence[pd.DataFrame], how: str, units: list | None = None) -> pd.DataFrame:
    """Return the natural logarithm of each session's median or mean, with a row per session and a column per cell.

    The index contains the sessions, each beginning with its time.

    Args:
        cells: records of one side, per cell.
        how: "median" or "mean" of the valid records of a session.
        units: sessions to include, in this order; None for all sessions.
    """
    valid = map(select_measured, cells)
    sums = {number: records.groupby("unit_of")["value"].agg(how) for number, records in enumerate(valid)}
    table = pd.DataFrame(sums).sort_index() if units is None else pd.DataFrame(sums, index=units)
    return np.log(table.astype(float))


def _has_different_data(pair: Pair) -> bool:
    data = [set(records["data"].fillna("")) - {""} for records in pair]
    return all(data) and data[0] != data[1]


def _build_time_row(study: str, pair: Pair, verdict: stats.Verdict, apart: Sequence[str], paired: bool) -> dict:
    """Build the row of verdicts.csv that compares the time of a cell, without the columns for factor levels.

    If the sessions of both sides did not alternate (`apart` is not empty), the verdict applies to these sessions only:
    it is moved to the column `of_sessions`, and the cell counts as not comparable.
    """
    metric = import_module(f"sbench.studies.{study}.report").REPORT.metrics[0].name
    medians = [records.loc[records["valid"], "value"].median() for records in pair]
    note = "the data differ" if verdict.verdict == Outcome.NOT_COMPARABLE else ""
    failed = [int((~records["valid"]).sum()) for records in pair]
    if (outcome := stats.apply_losses(verdict.verdict, *failed)) != verdict.verdict:
        verdict, note = verdict._replace(verdict=outcome), f"{LOST}: {failed[0]} and {failed[1]} of the two sides"
    of_sessions = verdict.verdict if apart and verdict.verdict in JUDGED else ""
    if of_sessions:
        note, verdict = f"measured {describe_elsewhere(apart)}", verdict._replace(verdict=Outcome.NOT_COMPARABLE)
    row = {"metric": metric, "role": "decides", "blocks": verdict.blocks}
    row |= {"looks": len(sessions.list_looks(verdict.blocks, paired)), "verdict": verdict.verdict}
    row |= dict(zip(("baseline_s", "contender_s"), medians, strict=True))
    row |= {"ratio": verdict.ratio, "ratio_low": verdict.low, "ratio_high": verdict.high, "p": verdict.p}
    for side, records, lost in zip(("baseline", "contender"), pair, failed, strict=True):
        row |= {f"attempts_{side}": len(records), f"failed_{side}": lost}
    return row | {"detectable_ratio": np.nan, "note": note, "of_sessions": of_sessions}


def build_counts_row(pair: Pair) -> dict:
    """Build the row of counts for a cell: for each count, the medians of both sides and the outcome.

    The outcome is an empty string if both sides read different data.
    """
    valid = [records[records["valid"]] for records in pair]
    row = {}
    for name in sessions.COUNTS:
        row |= {f"{name}_{side}": of[name].median() for side, of in zip(("base", "other"), valid, strict=True)}
        row[name] = "" if _has_different_data(pair) else sessions.compare_counts(*valid, name)
    return row


def _add_cell_names(records: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    """Return a side's records with an additional column `cell`: the name of the side and a number."""
    number = records.groupby(list(factors), sort=False).ngroup() + 1
    own = records.assign(cell=records["run"] + " " + number.astype(str))
    return own[["cell", "repeat", "unit_of", "valid", "value", *sessions.COUNTS]]


def _list_cells(records: pd.DataFrame, factors: Sequence[str]) -> Iterator[dict]:
    names = _add_cell_names(records, factors)["cell"]
    for levels, of in records.groupby(list(factors), sort=False):
        valid, column = of[of["valid"]], f"{of['figure'].iloc[0]}_{of['unit'].iloc[0]}"
        middle, run_of = stats.estimate_median(valid["value"]), of["run"].iloc[0]
        yield {
            **{"cell": names[of.index[0]], "run": run_of, **dict(zip(factors, levels, strict=True))},
            **{"control": "", "n": len(valid), "failed": len(of) - len(valid), "sessions": of["unit_of"].nunique()},
            **{column: middle.value, f"{column}_low": middle.low, f"{column}_high": middle.high},
            **{name: valid[name].median() for name in ("requests", "opens", "connections")},
            **{"bytes_delivered": valid["bytes"].median(), "cache_state": _join_states(valid["cache_state"])},
        }


def _join_states(states: pd.Series) -> str:
    return " | ".join(sorted(set(states.dropna().astype(str)) - {""}))


def _find_lone_cells(names: Sequence[str], by_levels: Sequence[Mapping], factors: Sequence[str]) -> pd.DataFrame:
    sides_and_others = zip(names, by_levels, reversed(by_levels), strict=True)
    rows = [(name, *levels) for name, own, others in sides_and_others for levels in own if levels not in others]
    return pd.DataFrame(rows, columns=["only in", *factors])


def _build_facts(study: str, names: Sequence[str], base: Side, other: Side) -> dict:
    """Build the metadata of a comparison.

    The settings and the machine are taken from the last run on the second side.
    """
    parts, newest = [*base.facts[study], *other.facts[study]], other.facts[study][-1]
    figures = [set(map(" in ".join, side.records[study][["figure", "unit"]].to_numpy())) for side in (base, other)]
    if len(set.union(*figures)) > 1:
        a, b = (" and ".join(sorted(of)) for of in figures)
        raise Problem(
            f"{study}: {names[0]} has {a}, {names[1]} has {b}; compare runs of the same version of this project"
        )
    merged = {
        key: {name: of for one in parts for name, of in (one.get(key) or {}).items()} for key in ("libraries", "stores")
    }
    return {
        **{"run": f"{names[1]} vs {names[0]}", "study": study, "sides": names, **merged},
        "question": f"Does {names[1]} differ from {names[0]}?",
        "equivalence_percent": max(one.get("equivalence_percent", EQUIVALENCE_PERCENT) for one in parts),
        "settings": (newest.get("settings") or {}) | {"compare": []},
        "machine": next(iter(newest.get("machines") or []), {}),
        "sessions": sorted({session for one in parts for session in one.get("sessions") or []}),
        "name": build_permanent_name(study, sorted(one["name"] for one in parts if "name" in one)),
    }


def list_properties(facts: Sequence[Mapping]) -> dict[str, set[str]]:
    """Return the properties that may differ between runs: a readable name, mapped to the set of values.

    Properties that differ between any two runs are left out.
    """
    values: dict[str, set[str]] = {}
    for one in facts:
        parts = [("configuration", one.get("config") or {}), *(("machine", of) for of in one.get("machines") or [])]
        parts += [(f"library {name}", of) for name, of in (one.get("libraries") or {}).items()]
        parts += [
            ("software", of.get(key) or {})
            for of in (one.get("software") or {}).values()
            for key in ("distributions", "files")
        ]
        parts += [("order of reads by", {reads["access"]: reads["sha256"]}) for reads in one.get("reads") or []]
        parts += [("measuring code", {"sha256": code}) for code in one.get("code") or []]
        parts += [("measuring code", {"commit": commit}) for commit in one.get("git") or []]
        for name, part in parts:
            for path, value in _walk_leaves(part):
                if not _OF_RUNS.match(what := f"{name} {path}"):
                    values.setdefault(what, set()).add(str(value))
    return values


def _walk_leaves(part: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _walk_leaves(value, f"{path} {key}".strip())
    elif isinstance(part, list) and any(isinstance(one, Mapping) for one in part):
        for number, one in enumerate(part, 1):
            yield from _walk_leaves(one, f"{path} {number}")
    elif part is not None:
        yield path, part
