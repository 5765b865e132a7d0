"""Show the history of a configuration: the time of each arm and the ratio of each comparison over all its sessions.

A change that both arms of a comparison share belongs to the machine, and a change in one arm to that arm
(`sbench.verdicts.shared_changes`). The properties that changed in the same session are listed with it.
"""

import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.design import schema
from sbench.design.blocks import list_factor_pairs
from sbench.measure import session_records, tables
from sbench.pages import names, prose
from sbench.probe.program import Problem, print_json, write_json
from sbench.runs import compare, sides
from sbench.runs.rebuild import make_index, make_page
from sbench.runs.sides import Side
from sbench.verdicts import changes, shared_changes, stats
from sbench.verdicts.shared_changes import Owner

ARMS = ("baseline", "contender")
# Entries of a configuration that may change during its history: versions of libraries.
_VERSIONS = "configuration libraries "
_CODE = "measuring code"
# The packages in the lock file of a library, which repeat the measured versions.
_PROMISED = re.compile(r"library \S+ promised ")
# The largest number of changed properties in a sentence.
_NAMED = 4
_LEVEL = ("level", "jump", "low", "high")
# The versions of a library to show with each session; all that changed are shown as well.
_SHOWN = ("hdf5", "h5py")


class Group(NamedTuple):
    """The same change in several comparisons.

    Attributes:
        number: number of the first session after the change, counted from 1.
        owner: "machine", "arm" or "undecided".
        arm: factor and level of the arm, as in "library hdf5-2.0.0"; empty if the change is not of an arm.
        rows: the rows of changes.csv.
    """

    number: int
    owner: str
    arm: str
    rows: list[dict]


def report_history(sources: Sequence[str], as_json: bool = False) -> int:
    """Write the history of each study to results/compare/history and reports/compare/history, and print its changes.

    Args:
        sources: names of runs, paths of archives or of baselines.
        as_json: whether to print a JSON object.

    Returns:
        Exit status 0.

    Raises:
        Problem: a source cannot be read, a session is named twice, or no study has a comparison.
    """
    side = sides.load_side(sources)
    histories = {study: build_history(study, side) for study in side.records}
    compared = {study: history for study, history in histories.items() if len(history[1]["series"])}
    if not compared:
        raise Problem(f"{', '.join(histories)}: no session has both arms of a comparison that the configuration names")
    folders = [Path(folder, compare.OUT, compare.HISTORY) for folder in ("results", "reports")]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    answers, printed = [], {}
    for study, (facts, made) in compared.items():
        folder = folders[0] / study
        for name, table in made.items():
            tables.write_table(table, folder / f"{name}.csv", digits=12)
        write_json(folder / "facts.json", facts)
        answers.append(make_page(compare.HISTORY, folder, folders[1] / f"{study}.html"))
        printed[study] = facts | {name: _to_rows(table) for name, table in made.items()}
        if not as_json:
            print(f"{facts['title']}: {facts['headline']}", *facts["sentences"], *facts["notes"], sep="\n")
    page = make_index(answers, folders[1])
    skipped = [study for study in histories if study not in compared]
    if as_json:
        print_json({"studies": printed, "without_comparisons": skipped, "report": str(page)})
    else:
        print(*(f"{study}: no session has both arms of a comparison" for study in skipped), f"report: {page}", sep="\n")
    return 0


def build_history(study: str, side: Side) -> tuple[dict, dict[str, pd.DataFrame]]:
    """Build the history of a study.

    Returns:
        The metadata for facts.json, and these tables:
            sessions: one row per session in the order of their times: number (empty if left out), session, run,
                machine, changed (the properties that differ from the session before), and left_out (the reason).
            series: one row per comparison and session: the time of each arm, and the ratio contender / baseline, each
                with its interval.
            changes: one row per change and comparison: the session, the owner, the level of each series since the
                change and its jump.
    """
    records = side.records[study].assign(unit_of=lambda table: table["session"] + "\n" + table["run"])
    facts_of = {unit: _select_facts(side.facts[study], own) for unit, own in records.groupby("unit_of")}
    properties = {unit: _list_properties(facts_of[unit], own) for unit, own in records.groupby("unit_of")}
    # Sources with other configurations may have other factors, whose columns follow the others.
    columns = [*list(records)[1 : list(records).index("repeat")], *schema.get_factors(study)]
    factors = [name for name in dict.fromkeys(columns) if name in records and name != "control"]
    records = records.fillna(dict.fromkeys(factors, ""))
    left_out = _find_other_sessions(records, properties, factors)
    kept = [unit for unit in properties if unit not in left_out]
    numbers = {unit: number for number, unit in enumerate(kept, 1)}
    newest, usual = facts_of[kept[-1]][-1], records[records["unit_of"].isin(kept)]
    series = _build_series(usual, (newest.get("settings") or {}).get("compare") or [], factors, numbers)
    made = {
        "sessions": _build_sessions_table(records, properties, numbers, left_out),
        "series": series,
        "changes": _build_changes_table(series, newest.get("equivalence_percent", compare.EQUIVALENCE_PERCENT)),
    }
    report = import_module(f"sbench.studies.{study}.report").REPORT
    groups = group_changes(made["changes"])
    facts = {
        **{"study": study, "title": f"History of {report.title}", "metric": report.metrics[0].title},
        **{"unit": usual["unit"].iloc[0], "runs": sorted(usual["run"].unique()), "sessions": len(kept)},
        **{"comparisons": int(series["comparison"].nunique()) if len(series) else 0},
        "missing_sessions": max(0, changes.MIN_SERIES - len(kept)),
    }
    facts |= {"headline": _write_headline(facts, groups)}
    facts |= {"sentences": [_describe_change(group, facts, made["sessions"]) for group in groups]}
    return facts | {"notes": _list_notes(facts, made)}, made


def _to_rows(table: pd.DataFrame) -> list[dict]:
    return table.astype(object).where(table.notna(), None).to_dict("records")


def group_changes(table: pd.DataFrame) -> list[Group]:
    """Group the rows of changes.csv that are the same change: the same session and owner, and the same arm if any."""
    groups: dict[tuple, list[dict]] = {}
    for row in table.to_dict("records"):
        groups.setdefault((row["number"], row["owner"], row["arm"]), []).append(row)
    return [Group(*key, rows) for key, rows in sorted(groups.items())]


def _select_facts(facts: Sequence[Mapping], records: pd.DataFrame) -> list[Mapping]:
    """Select the metadata of the run and session of some records; raise Problem if there are none."""
    run, session = records["run"].iloc[0], records["session"].iloc[0]
    own = [part for part in facts if part["run"] == run and session in (part.get("sessions") or [session])]
    if not own:
        raise Problem(f"the facts of run {run} lack its session {session}; write its tables again with sbench run")
    return own


def _list_properties(facts: Sequence[Mapping], records: pd.DataFrame) -> dict[str, set[str]]:
    """Return the properties of a session (see `compare.list_properties`), with the machines and code of its records."""
    machines = set(records["machine"].fillna("")) - {""}
    hosts = [host for part in facts for host in part.get("machines") or []]
    here = [host for host in hosts if session_records.name_machine(host) in machines]
    listed = compare.list_properties([part | {"machines": here or hosts, "code": []} for part in facts])
    properties = {what: values for what, values in listed.items() if not _PROMISED.match(what)}
    figures = set(map(" in ".join, records[["figure", "unit"]].to_numpy()))
    return properties | {_CODE: set(records["code"].fillna("")), "figure": figures}


def _find_other_sessions(
    records: pd.DataFrame, properties: Mapping[str, Mapping[str, set[str]]], factors: Sequence[str]
) -> dict[str, str]:
    """Return the sessions that are not part of the history, with the reasons.

    The history consists of the sessions with the most frequent configuration and measuring code (the latest, if there
    are several), except sessions that read other data than most.
    """
    left_out = {unit: "its time is unknown" for unit in properties if unit.startswith("\n")}
    own = {unit: _select_identity(of) for unit, of in properties.items() if unit not in left_out}
    if not own:
        raise Problem("no source has a session with a time; sbench compare --history needs runs with sessions")
    counts = Counter(repr(sorted(of.items())) for of in own.values())
    usual = max(reversed(list(own.values())), key=lambda of: counts[repr(sorted(of.items()))])
    for unit, of in own.items():
        if unlike := next((what for what in sorted(usual.keys() | of) if of.get(what) != usual.get(what)), ""):
            here, there = (" | ".join(values.get(unlike, ["absent"])) for values in (of, usual))
            left_out[unit] = f"{unlike} is {_shorten(here)} instead of {_shorten(there)}"
    rest = records[~records["unit_of"].isin(left_out) & records["data"].fillna("").ne("")]
    most = rest.groupby([*factors])["data"].transform(lambda data: data.value_counts().index[0])
    return left_out | dict.fromkeys(rest.loc[rest["data"] != most, "unit_of"], "it read other data")


def _select_identity(properties: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Select the properties that must be equal in all sessions of a history."""
    return {
        what: sorted(values)
        for what, values in properties.items()
        if what in (_CODE, "figure") or (what.startswith("configuration ") and not what.startswith(_VERSIONS))
    }


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _build_series(
    records: pd.DataFrame, compared: Sequence[Mapping], factors: Sequence[str], numbers: Mapping[str, int]
) -> pd.DataFrame:
    """Build series.csv. A session is missing in a comparison if its arms have no block in common."""
    cells = dict(list(compare.select_measured(records).groupby([*factors], sort=False)))
    levels = {str(number): dict(zip(factors, key, strict=True)) for number, key in enumerate(cells)}
    values = [own.pivot_table("value", "repeat", "unit_of") for own in cells.values()]
    pairs = [
        (entry["factor"], levels[base], levels[other], values[int(base)], values[int(other)])
        for entry in compared
        if entry["factor"] in factors
        for base, other in list_factor_pairs(levels, entry["factor"], str(entry["baseline"]))
    ]
    heads = [
        {"factor": factor, "baseline": base[factor], "contender": other[factor]}
        | {name: "" if name == factor else level for name, level in other.items()}
        for factor, base, other, *_ in pairs
    ]
    labels = _label_comparisons(heads, factors)
    rows = [
        {"comparison": label, **head, "number": numbers[unit], **own}
        for label, head, (*_, base, other) in zip(labels, heads, pairs, strict=True)
        for unit, own in _summarize_sessions(base, other)
    ]
    return pd.DataFrame(rows)


def _summarize_sessions(base: pd.DataFrame, other: pd.DataFrame) -> Iterator[tuple[str, dict]]:
    """Summarize each session in which both arms have a block in common, from tables (block, session) of times."""
    base, other = base.align(other, join="inner")
    d = np.log(other.to_numpy(dtype=float)) - np.log(base.to_numpy(dtype=float))
    ends = stats.compute_bootstrap_interval(d)
    for place, unit in enumerate(base.columns):
        if not np.isfinite(d[:, place]).any():
            continue
        row = {"blocks": int(np.isfinite(d[:, place]).sum())}
        for arm, table in zip(ARMS, (base, other), strict=True):
            middle = stats.estimate_median(table[unit])
            row |= {f"{arm}_value": middle.value, f"{arm}_low": middle.low, f"{arm}_high": middle.high}
        ratios = np.exp([np.nanmedian(d[:, place]), ends[0][place], ends[1][place]]).tolist()
        yield unit, row | dict(zip(("ratio", "ratio_low", "ratio_high"), ratios, strict=True))


def _label_comparisons(heads: Sequence[Mapping], factors: Sequence[str]) -> list[str]:
    """Name comparisons as "hdf5-2.0.0 vs hdf5-1.14.6 · s3", with the levels in which comparisons differ."""
    varying = [name for name in factors if len({head[name] for head in heads if head["factor"] != name}) > 1]
    several = len({head["factor"] for head in heads}) > 1
    parts = [
        [
            f"{head['factor'] + ': ' if several else ''}{head['contender']} vs {head['baseline']}",
            *(head[name] for name in varying if head[name]),
        ]
        for head in heads
    ]
    return [" · ".join(part) for part in parts]


def _build_changes_table(series: pd.DataFrame, equivalence_percent: float) -> pd.DataFrame:
    """Build changes.csv. `arm` is the factor and level that a change belongs to, and `moved` the arm with its size."""
    rows = []
    for _, own in series.groupby("comparison", sort=False) if len(series) else ():
        own = own.sort_values("number")
        arms = [own[column].to_numpy() for column in ("baseline_value", "contender_value", "ratio")]
        for change in shared_changes.find_changes(*arms, equivalence_percent):
            levels = own.iloc[change.first, : own.columns.get_loc("blocks")].to_dict()
            parts = {name: getattr(change, name) for name in (*ARMS, "ratio")}
            larger = max(ARMS, key=lambda arm: abs(np.log(parts[arm].jump)))
            is_single = change.owner in ARMS
            levels |= {
                "owner": "arm" if is_single else str(change.owner),
                "moved": change.owner if is_single else larger,
            }
            levels |= {"arm": f"{levels['factor']} {levels[change.owner]}" if is_single else ""}
            rows.append(levels | {f"{name}_{key}": getattr(parts[name], key) for name in parts for key in _LEVEL})
    single = {(row["number"], row["arm"]) for row in rows if row["arm"]}
    rows = [row | _find_shared_level(row, single) for row in rows]
    return pd.DataFrame(rows, columns=[*rows[0]] if rows else ["comparison", "number", "owner", "arm"])


def _find_shared_level(row: Mapping, single: Collection[tuple[int, str]]) -> dict[str, str]:
    """Return the owner of a change of both arms that have a level which changed alone in another comparison.

    Two arms with different page buffers have the same library. If this library became slower than another one in the
    same session, the change belongs to the library and not to the machine. Otherwise, the result is empty.
    """
    if row["owner"] != Owner.MACHINE:
        return {}
    for number, arm in sorted(single):
        factor, _, level = arm.partition(" ")
        if abs(number - row["number"]) <= 1 and factor != row["factor"] and row[factor] == level:
            return {"owner": "arm", "arm": arm}
    return {}


def _build_sessions_table(
    records: pd.DataFrame,
    properties: Mapping[str, Mapping[str, set[str]]],
    numbers: Mapping[str, int],
    left_out: Mapping[str, str],
) -> pd.DataFrame:
    """Build sessions.csv (see `build_history`)."""
    rows, before = [], None
    for unit, own in properties.items():
        session, run = unit.split("\n")
        machines = set(records.loc[records["unit_of"] == unit, "machine"].fillna("")) - {""}
        row = {"number": numbers.get(unit), "session": session, "run": run, "machine": " | ".join(sorted(machines))}
        row |= {"cpu": _join(own, "machine cpu"), "kernel": _join(own, "machine kernel")}
        row |= {"versions": _describe_versions(own), "changed": "", "left_out": left_out.get(unit, "")}
        if unit in numbers:
            row["changed"] = "; ".join(_list_differences(before, own)) if before else ""
            before = own
        rows.append(row)
    return pd.DataFrame(rows).astype({"number": "Int64"})


def _list_differences(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> Iterator[str]:
    """List the properties that differ between two sessions, as in "machine kernel 6.1 → 6.5"."""
    for what in dict.fromkeys((*before, *after)):
        if before.get(what) != after.get(what):
            yield f"{what} {_shorten(_join(before, what) or 'absent')} → {_shorten(_join(after, what) or 'absent')}"


def _describe_versions(properties: Mapping[str, set[str]]) -> str:
    """Describe the versions of HDF5 and h5py in the libraries, as in "hdf5-main: hdf5 2.0.0, h5py 3.16.0"."""
    versions: dict[str, list[str]] = {}
    for what in properties:
        match what.split(" "):
            case ["library", name, key] if key in _SHOWN:
                versions.setdefault(name, []).append(f"{key} {_join(properties, what)}")
    return "; ".join(f"{name}: {', '.join(parts)}" for name, parts in sorted(versions.items()))


def _join(properties: Mapping[str, set[str]], what: str) -> str:
    return " | ".join(sorted(properties.get(what, ())))


def _write_headline(facts: Mapping, groups: Sequence[Group]) -> str:
    many = (
        f"{prose.format_count(facts['sessions'], 'session')}, {prose.format_count(facts['comparisons'], 'comparison')}"
    )
    if missing := facts["missing_sessions"]:
        needed = f"{changes.MIN_SEGMENT} before and {changes.MIN_SEGMENT} after it"
        return f"{many}: a change point needs {changes.MIN_SERIES} sessions ({needed}); {missing} more are missing."
    if not groups:
        return f"{many}: no change of {changes.MIN_JUMP_PERCENT:.0f} % or more."
    of = Counter(group.owner for group in groups)
    what = {
        "machine": "of the machine",
        "arm": "of a single arm",
        "undecided": "undecided",
    }
    listed = prose.format_list(f"{of[owner]} {text}" for owner, text in what.items() if of[owner])
    return f"{many}: {prose.format_count(len(groups), 'change')} ({listed})."


def _describe_change(group: Group, facts: Mapping, sessions: pd.DataFrame) -> str:
    """Describe a change: the session, the times before and after it, its owner, and the changed properties.

    The times are of the comparison with the largest jump.
    """
    row = max(group.rows, key=lambda row: abs(np.log(row[f"{row['moved']}_jump"])))
    arm = row["moved"]
    session = sessions[sessions["number"] == group.number].iloc[0]
    level, jump, low, high = (row[f"{arm}_{key}"] for key in _LEVEL)
    times = " → ".join(names.format_value(value, facts["unit"]) for value in (level / jump, level))
    size = f"×{names.format_with_interval(jump, low, high, prose.format_ratio)}"
    many = f"{len(group.rows)} of {prose.format_count(facts['comparisons'], 'comparison')}"
    whose = {
        "machine": f"a change of the machine, because both arms share it in {many}",
        "arm": f"a change of {group.arm} alone, in {many}",
        "undecided": f"undecided whether a change of the machine or of an arm, in {many}",
    }[group.owner]
    where = f"Session {group.number} ({session['session']}, run {session['run']})"
    largest = f", largest: {row['comparison']}" if len(group.rows) > 1 else ""
    return f"{where}: {times} ({size}{largest}); {whose}. {_describe_causes(group.number, sessions)}"


def _describe_causes(number: int, sessions: pd.DataFrame) -> str:
    """Describe the properties that changed in a session or, if there are none, in the session before or after it."""
    changed = sessions.dropna(subset="number").set_index("number")["changed"]
    for near, when in ((number, "in this session"), (number - 1, "a session earlier"), (number + 1, "a session later")):
        if parts := [part for part in changed.get(near, "").split("; ") if part]:
            more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
            return f"Changed {when}: {', '.join(parts[:_NAMED])}{more}."
    return "No recorded property of machine or versions changed."


def _list_notes(facts: Mapping, made: Mapping[str, pd.DataFrame]) -> list[str]:
    """List the sessions that were left out, comparisons with too few sessions, and several machines."""
    sessions = made["sessions"]
    rows = sessions[sessions["left_out"] != ""].to_dict("records")
    lines = [f"Left out: session {row['session'] or 'unknown'} of run {row['run']}: {row['left_out']}." for row in rows]
    of = made["series"]["comparison"].value_counts() if len(made["series"]) else pd.Series(dtype=int)
    if few := int((of < changes.MIN_SERIES).sum()) if not facts["missing_sessions"] else 0:
        some = prose.format_count(few, "comparison")
        lines.append(f"{some} with fewer than {changes.MIN_SERIES} sessions that measured both arms: no change points.")
    if (machines := sessions.loc[sessions["number"].notna(), "machine"].nunique()) > 1:
        lines.append(f"The sessions are of {machines} machines: a change may be a change of machine.")
    return lines
