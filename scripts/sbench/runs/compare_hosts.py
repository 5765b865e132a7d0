"""Compare the arms of a configuration that many hosts measured, with the host as the statistical unit."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sbench.design import study as studies
from sbench.measure import judging, session_records, tables
from sbench.measure.families import LOST
from sbench.measure.judging import CONTROL, TOTAL, Judged, Judgement
from sbench.pages import names, prose
from sbench.probe.program import Problem, escape_text
from sbench.runs import compare, privacy, session_archives
from sbench.runs.rules import Rule, judge_rules, parse_rules
from sbench.runs.session_archives import Session
from sbench.verdicts import MIN_BLOCKS, hosts, stats
from sbench.verdicts.outcomes import JUDGED, Outcome
from sbench.verdicts.stats import Floats

# Exit status if archives were refused, or if counts contradict each other, but no rule of --fail-on is broken.
DOUBTFUL = 1
# Largest number of comparisons, and of contradictions, to print line by line.
_PRINTED, _NAMED = 30, 5
_EXACT = ("requests", "bytes")
# Columns of runs that describe the rounds of a session, which the merged sessions of a host do not have.
_ROUNDS = ("round", "most_repeats")
_OF_FACTS = ("libraries", "software")
_ORDER = (Outcome.FASTER, Outcome.SLOWER, Outcome.SAME)
Pair = tuple[str, str]


@dataclass(frozen=True)
class Measured:
    """The sessions of a study, with blocks that are numbered across all sessions.

    Attributes:
        sessions: the sessions.
        hosts: the host of each session.
        matrices: the matrix of each session, without cells that it could not read.
        runs: the runs of each session.
    """

    sessions: Sequence[Session]
    hosts: Sequence[str]
    matrices: Sequence[pd.DataFrame]
    runs: Sequence[pd.DataFrame]


def compare_hosts(place: str, fail_on: str = "", as_json: bool = False) -> int:
    """Gather the archives of sessions, compare the arms over their hosts, write the pages, and print the outcome.

    Args:
        place: a folder with archives, or s3://bucket/prefix.
        fail_on: rules such as "slower > 10 %, more requests".
        as_json: whether to print the outcome as JSON.

    Returns:
        Exit status: 3 if a rule is violated; 1 if archives were refused or counts contradict each other; otherwise 0.

    Raises:
        Problem: there are no archives, or too few hosts remain after some archives were refused.
    """
    rules = parse_rules(fail_on)
    sessions, refused = session_archives.load_sessions(place)
    of_sessions = session_archives.name_hosts(sessions)
    many = len(set(of_sessions))
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    if refused and many < MIN_BLOCKS:
        raise Problem(
            f"{prose.format_count(many, 'host')} remain after {prose.format_count(len(refused), 'archive')} of {place}"
            f" {'was' if len(refused) == 1 else 'were'} refused, and a verdict needs {MIN_BLOCKS}; gather the archives"
            " again"
        )
    left_out = [study for study in sessions[0].parts if not _is_in_blocks(study)]
    for study in left_out:
        print(f"left out: {study}, because its batteries are not compared in blocks", file=sys.stderr)
    compared = {
        study: compare_study(study, sessions, of_sessions, rules, refused)
        for study in sessions[0].parts
        if study not in left_out
    }
    if not compared:
        raise Problem(f"{place} contains no study that is compared in blocks; gather sessions of another study")
    doubts = [line for facts, _ in compared.values() for line in facts["contradictions"]]
    for line in doubts:
        print(f"contradiction: {line}", file=sys.stderr)
    about = [
        {"archive": session.where, "host": host, "started": session.started}
        for session, host in zip(sessions, of_sessions, strict=True)
    ]
    more = {"hosts": many, "sessions": about, "refused": refused, "contradictions": doubts, "left_out": left_out}
    status = compare.publish_comparison(compared, "hosts", as_json, more)
    return status or (DOUBTFUL if refused or doubts else 0)


def _is_in_blocks(study: str) -> bool:
    """Return whether a study has the standard tables, whose comparisons are made block by block."""
    return type(studies.get_study(study)).build_tables is studies.Study.build_tables


def compare_study(
    study: str, sessions: Sequence[Session], of_sessions: Sequence[str], rules: Sequence[Rule], refused: Sequence[str]
) -> tuple[dict, dict[str, pd.DataFrame]]:
    """Compare the arms of a study over the hosts of its sessions.

    Args:
        study: the study.
        sessions: sessions of one configuration.
        of_sessions: the host of each session.
        rules: rules of `--fail-on`.
        refused: lines about refused archives, for the page.

    Returns:
        The metadata for facts.json, and these tables:
            verdicts: one row per comparison, as in verdicts.csv, with hosts as `blocks` and the columns of `_describe`.
            counts: requests, bytes, opens and connections of the comparisons, with outcomes.
            sessions: one row per comparison and session, with the session's verdict.
            hosts: one row per comparison and host, with the verdict from all blocks of the host.
            cells: one row per cell, over all sessions.
            records: the records of all sessions, with blocks that are numbered across sessions.
    """
    config, program = sessions[0].config, studies.get_study(study)
    measured = _number_blocks(study, sessions, of_sessions)
    by_session = [_judge_runs(config, program, *part) for part in zip(measured.matrices, measured.runs, strict=True)]
    by_host = _judge_each_host(config, program, measured)
    matrix = measured.matrices[0]
    pairs = {key: judged for of_session in reversed(by_session) for key, judged in of_session.items()}
    if not pairs:
        raise Problem(f"the configuration of {study} compares no cells; add `compare` to it")
    percent = config["equivalence_percent"]
    rows, spreads = [], []
    for factor in dict.fromkeys(judged.factor for judged in pairs.values()):
        keys = [key for key, judged in pairs.items() if judged.factor == factor]
        d, means = (_collect_logs(by_session, keys, column) for column in ("ratio", "mean_ratio"))
        verdicts = hosts.judge_hosts(d, of_sessions, percent, config["seed"], means)
        for number, (key, verdict) in enumerate(zip(keys, verdicts, strict=True)):
            values = [of_session[key].values for of_session in by_session if key in of_session]
            rows.append(pairs[key]._replace(values=_merge_values(verdict, values, d[:, number])))
            spreads.append(_describe(hosts.estimate_spread(d[:, number], of_sessions), d[:, number], by_host, key))
    table = judging.format_verdicts(matrix, Judgement(rows, math.nan, None, 0))
    ends = pd.DataFrame(
        [{"baseline_cell": row.baseline["cell"], "contender_cell": row.contender["cell"]} for row in rows]
    )
    verdicts = pd.concat([table, ends, pd.DataFrame(spreads)], axis=1).assign(of_sessions="")
    runs, every = pd.concat(measured.runs, ignore_index=True), pd.concat(measured.matrices).drop_duplicates("cell")
    records = session_records.build_records_table(judging.select_timed(program, every), runs)
    records = records.merge(_list_units(measured), on="repeat")
    of_cells = dict(list(records.groupby("cell")))
    empty = records.iloc[:0]
    counts = pd.DataFrame(
        [compare.build_counts_row(tuple(of_cells.get(cell, empty) for cell in cells)) for cells in ends.to_numpy()]
    )
    facts = {
        **{
            key: privacy.hide_identities(value)
            for key, value in sessions[0].parts[study].facts.items()
            if key in _OF_FACTS
        },
        **{
            "run": f"on {len(set(of_sessions))} hosts",
            "study": study,
            "question": config["studies"][study].get("question", ""),
            "settings": config["studies"][study],
            "stores": privacy.hide_identities(config["stores"]),
            "name": "",
        },
        **{"equivalence_percent": percent, "sessions": sorted({session.started for session in sessions})},
        **{"machine": _find_machine(sessions, study), "hosts": len(set(of_sessions)), "archives": len(sessions)},
        **{"refused": list(refused), "apart": [], "outcome": judge_rules(rules, verdicts, counts, "comparison")},
        "contradictions": list(_find_contradictions(records)),
    }
    facts["lines"] = list(map(escape_text, _list_lines(verdicts)))
    return facts, {
        **{"verdicts": verdicts, "counts": counts, "records": records},
        "cells": tables.build_cells_table(every, runs),
        "sessions": pd.DataFrame(_list_rows(by_session, [session.name for session in sessions], of_sessions)),
        "hosts": pd.DataFrame(_list_rows(by_host.values(), list(by_host), list(by_host))),
    }


def _number_blocks(study: str, sessions: Sequence[Session], of_sessions: Sequence[str]) -> Measured:
    runs, last = [], 0
    for session in sessions:
        own = session.parts[study].runs
        runs.append(own.assign(repeat=own["repeat"] + last))
        last += int(own["repeat"].max()) if len(own) else 0
    return Measured(sessions, of_sessions, [session.parts[study].matrix for session in sessions], runs)


def _judge_runs(config: dict, program: studies.Study, matrix: pd.DataFrame, runs: pd.DataFrame) -> dict[Pair, Judged]:
    """Return the comparisons of total times by their cells, without controls."""
    judgement = judging.judge_study(config, program, matrix, runs, [TOTAL])
    return {
        (row.baseline["cell"], row.contender["cell"]): row
        for row in judgement.rows
        if row.factor != CONTROL and row.metric == TOTAL
    }


def _judge_each_host(config: dict, program: studies.Study, measured: Measured) -> dict[str, dict[Pair, Judged]]:
    judged = {}
    for host in dict.fromkeys(measured.hosts):
        places = [place for place, other in enumerate(measured.hosts) if other == host]
        runs = pd.concat([measured.runs[place] for place in places], ignore_index=True)
        if len(places) > 1:
            runs = runs.drop(columns=[name for name in _ROUNDS if name in runs])
        judged[host] = _judge_runs(config, program, measured.matrices[places[0]], runs)
    return judged


def _collect_logs(by_session: Sequence[Mapping[Pair, Judged]], keys: Sequence[Pair], column: str) -> Floats:
    """Return ln of a ratio of each session, an array (sessions, comparisons), NaN if a session has none."""
    ratios = [
        [of_session[key].values[column] if key in of_session else math.nan for key in keys] for of_session in by_session
    ]
    return np.log(np.array(ratios, dtype=float))


def _merge_values(verdict: stats.Verdict, values: Sequence[Mapping], d: Floats) -> dict:
    """Return the entries of verdicts.csv for a comparison over hosts, from the entries of its sessions."""
    counts = {
        name: sum(of[name] for of in values)
        for name in ("attempts_baseline", "failed_baseline", "attempts_contender", "failed_contender")
    }
    lacking = [of["note"] for of in values if not np.isfinite(of["ratio"])]
    outcome = stats.apply_losses(verdict.verdict, counts["failed_baseline"], counts["failed_contender"])
    note = LOST if outcome != verdict.verdict else ""
    if lacking:
        note = f"no ratio in {prose.format_count(len(lacking), 'session')}: {lacking[0]}"
        outcome = outcome if np.isfinite(d).any() else Outcome.NOT_COMPARABLE
    medians = {name: stats.estimate_median([of[name] for of in values]).value for name in ("baseline_s", "contender_s")}
    return {
        **values[0],
        **{"blocks": verdict.blocks, **medians, "ratio": verdict.ratio, "ratio_low": verdict.low},
        **{"ratio_high": verdict.high, "p": verdict.p, "looks": 1, "verdict": outcome, **counts, "note": note},
        **{"detectable_ratio": verdict.detectable_ratio, **dict.fromkeys(("mean_ratio", "mean_low"), math.nan)},
        **{"mean_high": math.nan, "slow_baseline": 0, "slow_contender": 0, "slow_ratio": math.nan},
        **{"used_blocks": "", "harness_percent": max((of["harness_percent"] for of in values), default=math.nan)},
    }


def _describe(spread: hosts.Spread, d: Floats, by_host: Mapping[str, Mapping[Pair, Judged]], key: Pair) -> dict:
    """Return the columns about the hosts of a comparison: how many had which verdict, and the spread."""
    outcomes = Counter(of_host[key].values["verdict"] for of_host in by_host.values() if key in of_host)
    many = {f"{outcome}_on": outcomes.pop(outcome, 0) for outcome in _ORDER}
    return {
        **{"sessions_used": int(np.isfinite(d).sum()), **many, "undecided_on": outcomes.total()},
        **{"between_percent": 100 * math.expm1(spread.between), "within_percent": 100 * math.expm1(spread.within)},
        **{"between_share": spread.share, "between_share_low": spread.low, "between_share_high": spread.high},
    }


def _list_units(measured: Measured) -> pd.DataFrame:
    """Return the host and the archive of each block."""
    rows = [
        {"repeat": repeat, "host": host, "unit_of": session.name}
        for session, host, runs in zip(measured.sessions, measured.hosts, measured.runs, strict=True)
        for repeat in runs["repeat"].unique()
    ]
    return pd.DataFrame(rows, columns=["repeat", "host", "unit_of"])


def _list_rows(
    judged: Iterable[Mapping[Pair, Judged]], units: Sequence[str], of_units: Sequence[str]
) -> Iterator[dict]:
    columns = ("blocks", "baseline_s", "contender_s", "ratio", "ratio_low", "ratio_high", "verdict", "note")
    for of_unit, unit, host in zip(judged, units, of_units, strict=True):
        for (base, other), row in of_unit.items():
            head = {"baseline_cell": base, "contender_cell": other, "unit_of": unit, "host": host}
            own = {name: row.values[name] for name in (*columns, "used_blocks", "harness_percent")}
            yield head | own


def _find_machine(sessions: Sequence[Session], study: str) -> dict:
    """Return the CPU and cores if all hosts have the same."""
    machines = [session.parts[study].facts.get("machine") or {} for session in sessions]
    kept = {key: machines[0].get(key) for key in ("cpu", "cores")}
    return kept if all({key: of.get(key) for key in kept} == kept for of in machines) else {}


def _find_contradictions(records: pd.DataFrame) -> Iterator[str]:
    """Describe counts that are exact in each session, but differ between sessions that read the same objects.

    Counts of equal work repeat exactly (METHOD 11): a session with other counts was edited, or its host differs.
    """
    valid = records[records["valid"]].fillna({"read": ""})
    lines = []
    for name in _EXACT:
        counted = valid[valid[name].notna()].groupby(["cell", "read", "unit_of"])[name].agg(["first", "nunique"])
        for (cell, _), of_sessions in counted.groupby(level=["cell", "read"]):
            values = of_sessions["first"].droplevel(["cell", "read"])
            if (of_sessions["nunique"] > 1).any() or values.nunique() == 1:
                continue
            usual = values.mode()
            others = values[values != usual[0]]
            where = prose.format_list([*others.index[:_NAMED], *(["others"] if len(others) > _NAMED else [])])
            amounts = prose.format_span(others, "{:,.0f}".format)
            lines.append(
                f"{where}: {amounts} {name} in {cell}, but {usual[0]:,.0f} in {(values == usual[0]).sum()} others"
            )
    yield from lines[:_PRINTED]
    if len(lines) > _PRINTED:
        yield f"and {len(lines) - _PRINTED} more contradictions"


def _list_lines(verdicts: pd.DataFrame) -> Iterator[str]:
    """Describe each comparison in a line, as printed."""
    levels = [name for name in verdicts.columns[3 : list(verdicts).index("metric")] if verdicts[name].nunique() > 1]
    for row in verdicts.head(_PRINTED).to_dict("records"):
        where = ", ".join(f"{prose.format_name(name)} {row[name]}" for name in levels if row[name])
        pair = f"{row['contender']} vs {row['baseline']}{f', {where}' if where else ''}"
        yield f"{pair}: {row['verdict']}, {describe_row(row)}"
    if len(verdicts) > _PRINTED:
        yield f"and {len(verdicts) - _PRINTED} more comparisons, which the page lists"


def describe_row(row: Mapping) -> str:
    """Describe a comparison: the ratio, the verdicts on its hosts, the spread, and what so many hosts can detect."""
    parts = [f"ratio {names.format_ratio_with_interval(row['ratio'], row['ratio_low'], row['ratio_high'])}"]
    parts = [] if math.isnan(row["ratio"]) else parts
    parts.append(describe_hosts(row))
    if not math.isnan(row["between_share"]):
        parts.append(f"{describe_share(row)} of the spread is between hosts")
    if row["verdict"] in JUDGED and math.isfinite(row["detectable_ratio"]):
        detectable = prose.format_ratio(row["detectable_ratio"])
        parts.append(f"{row['blocks']} such hosts can detect a ratio of {detectable}")
    if row["verdict"] == Outcome.TOO_FEW:
        parts.append(f"a verdict needs {MIN_BLOCKS} hosts")
    return "; ".join([*parts, *filter(None, [row["note"]])])


def describe_share(row: Mapping) -> str:
    """Return the share of the spread that is between hosts with its interval, as in "63 % [5, 92]"."""
    share, low, high = (100 * row[f"between_share{end}"] for end in ("", "_low", "_high"))
    return f"{share:.0f} % [{low:.0f}, {high:.0f}]"


def describe_hosts(row: Mapping) -> str:
    """Describe the verdicts of single hosts, as in "faster on 5 of 6 hosts, the same on 1, undecided on 0"."""
    words = {Outcome.SAME: "the same"}
    many = {words.get(outcome, outcome): int(row[f"{outcome}_on"]) for outcome in _ORDER}
    many |= {"undecided": int(row["undecided_on"])}
    parts = sorted(((number, word) for word, number in many.items() if number), reverse=True)
    (number, first), *others = parts or [(0, "measured")]
    texts = [f"{first} on {number} of {prose.format_count(sum(many.values()), 'host')}"]
    return ", ".join([*texts, *(f"{word} on {number}" for number, word in others)])
