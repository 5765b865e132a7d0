"""Describe the number of workers or processes beyond which arms no longer improve, from verdicts (METHOD 19)."""

import pandas as pd

from sbench.pages import names, prose, words
from sbench.pages.results import Results
from sbench.verdicts import stats
from sbench.verdicts.scaling import find_stops


def describe_stops(run: Results) -> list[str]:
    """Write for each arm beyond which level it no longer improves, with a sentence for all arms that stop alike.

    Each arm is named with its lowest level and the value there. The rule is METHOD 19.
    """
    scaling, value = run.report.scaling, run.report.values[0]
    if run.records.empty or not scaling:
        return []
    records = run.records[run.records["valid"] & run.records["cell"].isin(run.measured["cell"])]
    others = [name for name in run.report.names if name != scaling.factor]
    arms = find_stops(records, others, scaling.factor, scaling.time, run.same_percent)
    arms = arms[arms["outcome"] != "single"]
    tells = run.select_telling_factors(arms, others) or others[:1]
    cells = run.measured.set_index([*others, scaling.factor])[value.column]
    lines: dict[str, list[str]] = {}
    for arm in arms.to_dict("records"):
        base = cells.get((*(arm[name] for name in others), str(arm["base"])), float("nan"))
        level = run.names.format_level(scaling.factor, str(arm["base"]))
        base_value = f", {names.format_value(base, value.unit)}" if pd.notna(base) else ""
        own = records[(records[others] == [arm[name] for name in others]).all(axis=1)]
        named = words.fill("arm", arm=run.names.format_row(arm, tells), level=level, value=base_value)
        lines.setdefault(_write_stop(arm, own, run), []).append(named)
    return [f"{prose.capitalize_first('; '.join(who))}: {outcome}." for outcome, who in lines.items()]


def _write_stop(arm: dict, records: pd.DataFrame, run: Results) -> str:
    scaling = run.report.scaling
    if arm["outcome"] == "few":
        return words.fill("few repeats", needed=stats.MIN_BLOCKS)
    if arm["outcome"] == "stops":
        at, after = (run.names.format_level(scaling.factor, str(arm[key])) for key in ("stops_at", "next"))
        effect = names.format_ratio_with_interval(arm["ratio"], arm["ratio_low"], arm["ratio_high"])
        return words.fill("stops", at=at, metric=scaling.title, after=after, ratio=effect)
    most = run.names.format_level(scaling.factor, max(records[scaling.factor], key=int))
    return words.fill("still gains", most=most)
