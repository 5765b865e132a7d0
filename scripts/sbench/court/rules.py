"""Test the rules of docs/method.md on a study's tables, whose columns are declared in audit/columns.yaml."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pandas as pd

from sbench.court import derived
from sbench.court.ceilings import BROKEN, KEPT, UNTOLD, compute_rates, judge_ceilings, judge_plateaus
from sbench.court.timings import Timings, build_timings, format_levels
from sbench.pages import prose
from sbench.verdicts import MIN_BLOCKS

REPEATS = f"each cell has at least {MIN_BLOCKS} repeats"
COLUMNS = ("rule", "method", "table", "outcome", "data")
# A first access counts as slow if it is the slowest and takes at least this many times the median of the others.
FIRST = 1.5
# Ratios of work, or of actual to ideal speed-up, count as an increase only if they exceed this value.
MORE = 1.1
# Maximum number of series to list in a description.
_MOST = 4
_MISSING = {
    "repeat": "identifiers of repeats",
    "input": "names of the data",
    "work": "work per run, such as the number of files",
    "workers": "number of workers",
    "batches_of": "tasks of each list",
    "items": "items of each task",
    "part": "time of each task",
    "sample": "times of single steps",
    "steps": "order of the steps",
    "time": "times",
    "over": "a series of sizes or workers",
    "machine": "machine type",
    "through": "limiting part of the machine",
    "rate": "printed rates",
    "amount": "bytes or objects moved",
    "cpu": "CPU seconds",
    "readings": "a size with two possible meanings",
}


def judge_rules(declared: Sequence[Mapping], tables: Mapping[str, pd.DataFrame], machines: Mapping) -> pd.DataFrame:
    """Test each rule on all tables that declare the roles it needs; if none does, report the missing roles.

    Args:
        declared: the declarations of a study.
        tables: printed tables by name; all values are strings.
        machines: {machine: {ceiling: {value, unit, note}}}.

    Returns:
        DataFrame with the columns `COLUMNS`; `outcome` is `KEPT`, `BROKEN` or `UNTOLD`.
    """
    views = [_build_view(spec, tables, machines) for spec in declared]
    rows = []
    for rule in RULES:
        able = ((needs, [view for view in views if not _list_lacking(needs, view)]) for needs in rule.needs.split("|"))
        needs, best = next(filter(itemgetter(1), able), ("", []))
        rows += [_judge_view(rule, needs, view) for view in best] or [_build_unknown_row(rule, views)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _build_view(spec: Mapping, tables: Mapping[str, pd.DataFrame], machines: Mapping) -> Timings:
    """Build the table of a declaration; return an empty table if one of the tables to concatenate is missing."""
    if absent := [name for name in spec["table"].split(" + ") if name not in tables]:
        nothing = pd.DataFrame()
        return Timings(spec | {"absent": absent[0]}, nothing, nothing, machines)
    return build_timings(spec, tables, machines)


def _list_lacking(needs: str, data: Timings) -> list[str]:
    return [role for role in needs.split() if role not in data.spec]


def _judge_view(rule: "Rule", needs: str, data: Timings) -> tuple:
    spec = data.spec
    if "absent" in spec:
        return rule.name, rule.method, spec["table"], UNTOLD, f"{spec['absent']} is missing"
    if data.frame.empty:
        return rule.name, rule.method, spec["table"], UNTOLD, f"no rows with {spec.get('rows', 'numbers')}"
    outcome, text = rule.test(data)
    assumed = f"; assuming that {spec['assuming']}" if "assuming" in spec and "amount" in needs else ""
    return rule.name, rule.method, spec["table"], outcome, text + assumed


def _build_unknown_row(rule: "Rule", views: Sequence[Timings]) -> tuple:
    lacks = min((_list_lacking(rule.needs.partition("|")[0], view) for view in views), key=len)
    words = dict.fromkeys(_MISSING[role] for role in lacks)
    return rule.name, rule.method, "", UNTOLD, f"missing: {', '.join(words)}"


def _judge_repeats(data: Timings) -> tuple[str, str]:
    counts = data.group_by_cell(data.get_values("repeat"), runs=False).nunique()
    few = counts < MIN_BLOCKS
    text = f"{prose.format_count(len(counts), 'cell')} with {_format_counts(counts, 'repeat')} each"
    if "averaged" in data.spec:
        text += f" (only the mean of {prose.format_span(data.get_values('averaged'), '{:g}'.format)} runs)"
    return (
        (BROKEN, f"{text}; {'all' if few.all() else few.sum()} have too few repeats for a verdict")
        if few.any()
        else (KEPT, text)
    )


def _judge_inputs(data: Timings) -> tuple[str, str]:
    inputs = pd.util.hash_pandas_object(data.get_values("input"), index=False)
    once = ~pd.DataFrame({"run": data.group_by_cell(inputs).ngroup(), "input": inputs}).duplicated()
    # Runs have read the same set of inputs if the sums of the hashes of their distinct inputs are equal.
    sets, counts = data.group_by_cell(inputs.where(once, 0)).sum(), data.group_by_cell(once).sum()
    texts, same = [], True
    for (name, runs), (_, of_runs) in zip(data.split_by_level(sets), data.split_by_level(counts), strict=True):
        different = runs.nunique()
        same &= different == 1
        what = f"the same {of_runs.iloc[0]:,} values" if different == 1 else f"{different} different sets"
        texts.append(f"{name}{prose.format_count(len(runs), 'run')} read {what} of {data.spec['input']}")
    return KEPT if same else BROKEN, "; ".join(texts)


def _judge_work(data: Timings) -> tuple[str, str]:
    if "work" not in data.spec:
        outcome, growth = _judge_growth(data)
        missing = f"missing: {_MISSING['work']}"
        return outcome, "; ".join(filter(None, (growth, missing) if outcome == BROKEN else (missing, growth)))
    texts, same = [], True
    for what, column in data.spec["work"].items():
        for name, runs in data.split_by_level(data.group_by_cell(data.compute_column(column)).sum()):
            same &= runs.nunique() == 1
            texts.append(
                f"{name}{prose.format_span(runs, '{:,.0f}'.format)} {what} per run in "
                f"{prose.format_count(len(runs), 'run')}"
            )
    return KEPT if same else BROKEN, "; ".join(texts)


def _judge_growth(data: Timings) -> tuple[str, str]:
    """Find a series that takes suspiciously little time for added work, which suggests that some work was skipped.

    Its time must grow less than half as much as the time of each other series for the same added work.
    """
    over, table = data.spec["over"], compute_rates(data).dropna(subset="rate").sort_values(data.spec["over"])
    of_series = table.groupby(data.series_columns or (lambda row: ""), sort=False)
    steps = table.assign(
        more=table["amount"] / of_series["amount"].shift(),
        longer=table["time"] / of_series["time"].shift(),
        before=of_series[over].shift(),
    )
    steps = steps[steps["more"] > MORE]
    if steps.empty:
        return UNTOLD, ""
    least = steps.loc[(steps["longer"] / steps["more"]).idxmin()]
    others = steps[(steps[over] == least[over]) & (steps.index != least.name)]
    named = format_levels(tuple(least[name] for name in data.series_columns)) or "the series"
    beside = f"; all others: {prose.format_span(others['longer'])}×" if len(others) else ""
    undone = len(others) and least["longer"] < others["longer"].min() / 2
    text = (
        f"{named} took {prose.format_ratio(least['longer'])}× as long for {prose.format_ratio(least['more'])}× the work"
        f" (from {over} {least['before']:g} to {least[over]:g}{beside})"
    )
    return (BROKEN, text) if undone else (UNTOLD, text)


def _judge_idle_workers(data: Timings) -> tuple[str, str]:
    tasks = pd.DataFrame({"items": data.get_values("items"), "workers": data.get_values("workers")})
    lists = data.group_by_cell(tasks, data.spec["batches_of"]).agg(
        tasks=("items", "size"), items=("items", "sum"), workers=("workers", "first")
    )
    batches = np.ceil(lists["items"] / np.ceil(lists["items"] / lists["workers"]))
    odd = int((lists["tasks"] != batches).sum())
    beside = _find_parallel_lists(data)
    alone = lists[~beside.reindex(lists.index, fill_value=False)]
    idle = alone[alone["tasks"] < alone["workers"]]
    text = f"in {len(idle):,} of {len(alone):,} task lists some workers had nothing to do"
    if len(idle):
        worst = idle.loc[(idle["tasks"] / idle["workers"]).idxmin()]
        text += f" (at worst {worst['workers'] - worst['tasks']:g} of {worst['workers']:g})"
    if beside.any():
        text += f"; {int(beside.sum()):,} more ran in parallel, so their workers may have had tasks of other lists"
    text += f"; {odd:,} lists differ from a ceil division" if odd else "; all lists are ceil-divided"
    return BROKEN if len(idle) or odd else KEPT if len(alone) else UNTOLD, text


def _find_parallel_lists(data: Timings) -> pd.Series:
    """Return a mask of the task lists that must have run in parallel with other lists of the same run.

    This is the case if the slowest tasks of the run's lists together took longer than the run.
    """
    if _list_lacking("part time", data):
        return pd.Series(dtype=bool)
    slowest = data.group_by_cell(data.get_values("part"), data.spec["batches_of"]).max()
    runs = slowest.index.names[:-1]
    took = data.group_by_cell(data.get_values("time")).first().reindex(slowest.index.droplevel(-1))
    return slowest.groupby(level=runs, sort=False).transform("sum") > took.to_numpy()


def _judge_speed_ups(data: Timings) -> tuple[str, str]:
    """Find speed-ups that exceed the increase in workers, which suggests that an earlier run filled a cache."""
    workers, time = data.get_values("workers").rename("workers"), data.get_values("time")
    speed = (data.get_values("amount") if "amount" in data.spec else 1) / time
    names = [name for name in data.cell_columns if not data.frame[name].equals(workers)]
    speeds = speed.groupby([*(data.frame[name] for name in names), workers], sort=False).median()
    worst, steps = None, 0
    series = speeds.groupby(level=names, sort=False) if names else [((), speeds)]
    for level, own in series:
        own = own.droplevel(names) if names else own
        own = own.sort_index()
        for (few, slow), (many, fast) in pairwise(own.items()):
            steps += 1
            excess = (fast / slow) / (many / few)
            if excess > MORE and (worst is None or excess > worst[0]):
                worst = excess, level, few, many, fast / slow
    if not steps:
        return UNTOLD, "each series has a single number of workers"
    if worst is None:
        return KEPT, f"no superlinear speed-up in {prose.format_count(steps, 'step')} to more workers"
    _, level, few, many, ratio = worst
    where = f"{format_levels(level if isinstance(level, tuple) else (level,))}: " if names else ""
    return BROKEN, (
        f"{where}{many:g} workers are {prose.format_ratio(ratio)}× as fast as {few:g}, more than {many / few:g}×; an"
        " earlier run may have filled a cache"
    )


def _judge_first_access(data: Timings) -> tuple[str, str]:
    medians = data.group_by_cell(data.get_values("sample"), data.spec["steps"]).median()
    slower, ratios = [], []
    for level, series in medians.groupby(level=medians.index.names[:-1], sort=False):
        if len(series) > 2:
            ratios.append(series.iloc[0] / series.iloc[1:].median())
            if ratios[-1] >= FIRST and series.iloc[0] > series.iloc[1:].max():
                slower.append(f"{format_levels(level[: len(data.cell_columns)])} ({prose.format_number(ratios[-1])}×)")
    if not ratios:
        return UNTOLD, "each series has fewer than three steps"
    span = prose.format_span(ratios)
    text = f"in {len(ratios)} series the first {data.spec['steps']} took {span}× the median of the others"
    if slower:
        text += f"; in {len(slower)} it was the slowest (at least {FIRST}× the median) and is averaged: "
        text += "; ".join(slower[:_MOST])
    return BROKEN if slower else KEPT, text


def _judge_rates(data: Timings) -> tuple[str, str]:
    if "rate" not in data.spec:
        part, items = data.get_values("part"), data.get_values("items")
        ratios = data.group_by_cell(items / part).mean() / (
            data.group_by_cell(items).sum() / data.group_by_cell(part).sum()
        )
        return (
            KEPT,
            f"the table prints no rates; means of rates would be {prose.format_span(ratios)}× the rate of the totals",
        )
    amount, time = data.spec["amount"], data.spec["time"]
    wrong = derived.select_disagreeing(data.texts, data.spec["rate"], f"({amount}) / ({time})")
    count, above = int(data.get_values("rate").notna().sum()), int((wrong["percent"] > 0).sum())
    below = len(wrong) - above
    if not len(wrong):
        return KEPT, f"all {count} printed rates agree with amount / time"
    text = f"{len(wrong)} of {count} printed rates differ from amount / time: {above} higher"
    text += f" (as means of rates are, by up to {wrong['percent'].max():.1f} %)" if above else ""
    text += f", {below} lower"
    # For equal amounts, the rate of the totals is the harmonic mean of the rates, which never exceeds the arithmetic
    # mean.
    text += ", which is impossible for a mean of rates" if below and "averaged" in data.spec else ""
    return BROKEN if above > below or (below and "averaged" in data.spec) else UNTOLD, text


def _describe_cpu(data: Timings) -> tuple[str, str]:
    shares = data.group_by_cell(data.get_values("cpu")).sum() / data.group_by_cell(data.get_values("time")).sum()
    parts = [f"{format_levels(level)} {100 * share:.0f} %" for level, share in shares.items()]
    return KEPT, f"CPU time in percent of the elapsed time: {'; '.join(parts)}"


def _judge_readings(data: Timings) -> tuple[str, str]:
    readings, rate = data.spec["readings"], data.spec["rate"]
    printed = data.get_values("rate")
    values = {words: data.compute_column(text) for words, text in readings.items()}
    with np.errstate(divide="ignore"):
        distance = np.log(pd.DataFrame(values).div(printed, axis=0)).abs().dropna()
    if distance.empty:
        return UNTOLD, "the table contains no rate"
    nearest = distance.idxmin(axis=1).value_counts()
    wrong = {words: len(derived.select_disagreeing(data.texts, rate, text)) for words, text in readings.items()}
    parts = [
        f"{nearest.get(words, 0)} fit “{words}” best ({len(distance) - wrong[words]} within rounding)"
        for words in readings
    ]
    outcome = KEPT if nearest.idxmax() == data.spec["stated"] else BROKEN
    return outcome, f"stated: “{data.spec['stated']}”; of {len(distance)} rates, {', '.join(parts)}"


def _format_counts(counts: pd.Series, noun: str) -> str:
    return f"{prose.format_span(counts, str)} {noun}{'' if counts.max() == 1 else 's'}"


@dataclass(frozen=True)
class Rule:
    """A rule for measurements.

    Attributes:
        name: the rule as a statement.
        method: its numbers in docs/method.md.
        needs: required roles, separated by spaces; | separates alternatives, of which the first available is used.
        test: function that returns the outcome and a description.
    """

    name: str
    method: str
    needs: str
    test: Callable[[Timings], tuple[str, str]]


RULES = (
    Rule(REPEATS, "5, 17", "repeat", _judge_repeats),
    Rule("all arms read the same data", "3", "input", _judge_inputs),
    Rule("the work is the same in every run", "9", "work|over amount time", _judge_work),
    Rule("every worker has a task", "12", "workers batches_of items", _judge_idle_workers),
    Rule("no superlinear speed-up", "8", "workers time", _judge_speed_ups),
    Rule("averages exclude a slow first access", "7", "sample steps", _judge_first_access),
    Rule("no plateau at the machine's ceiling", "20", "over amount time", judge_plateaus),
    Rule("no rate above the machine's ceiling", "20", "machine through", judge_ceilings),
    Rule("rates are totals divided by total time", "16", "rate amount time|items part", _judge_rates),
    Rule("CPU seconds are printed with the times", "14", "cpu time", _describe_cpu),
    Rule("sizes have their stated meaning", "3, 16", "rate readings", _judge_readings),
)
