"""Where more workers or processes stop to help, in sentences."""

import pandas as pd

from scripts.report import judgement, names, prose
from scripts.report.results import Results
from scripts.statistics import stats, verdicts


def where_it_stops(run: Results) -> list[str]:
    """Return a sentence for arms that came out alike: bases, and beyond what level they gain no more (METHOD 19)."""
    scaling, value = run.report.scaling, run.report.values[0]
    if run.records.empty or not scaling:
        return []
    records = run.records[run.records["valid"] & run.records["cell"].isin(run.measured["cell"])]
    others = [name for name in run.report.names if name != scaling.factor]
    arms = verdicts.stops_scaling(records, others, scaling.factor, scaling.time, judgement.equivalence(run.facts))
    arms = arms[arms["outcome"] != "single"]
    tells = run.telling(arms, others) or others[:1]
    cells = run.measured.set_index([*others, scaling.factor])[value.column]
    lines: dict[str, list[str]] = {}
    for arm in arms.to_dict("records"):
        base = cells.get((*(arm[name] for name in others), str(arm["base"])), float("nan"))
        level = run.names.level(scaling.factor, str(arm["base"]))
        base_value = f", {prose.number(base)} {value.unit}" if pd.notna(base) else ""
        own = records[(records[others] == [arm[name] for name in others]).all(axis=1)]
        lines.setdefault(_outcome(arm, own, run), []).append(f"{run.names.row(arm, tells)} (base: {level}{base_value})")
    return [f"{prose.capital('; '.join(who))}: {outcome}." for outcome, who in lines.items()]


def _outcome(arm: dict, records: pd.DataFrame, run: Results) -> str:
    scaling = run.report.scaling
    if arm["outcome"] == "few":
        return f"fewer than {stats.MIN_BLOCKS} complete repeats, so where it stops to gain is not decided"
    if arm["outcome"] == "stops":
        at, after = (run.names.level(scaling.factor, str(arm[key])) for key in ("stops_at", "next"))
        effect = names.ratio_with_interval(arm["ratio"], arm["ratio_low"], arm["ratio_high"])
        return f"no gain is shown beyond {at}: the {scaling.title} with {after} is {effect} of that"
    most = run.names.level(scaling.factor, max(records[scaling.factor], key=int))
    return f"still gains at {most}, the most measured"
