"""Bandwidth against the number of processes in words: the base, and beyond how many processes it grows no more."""

import pandas as pd

from scripts.report import judgement, names, prose
from scripts.report.names import Names
from scripts.statistics import stats, verdicts
from scripts.studies.blobs.report import REPORT, words
from scripts.studies.blobs.report.data import Results


def where_it_stops(results: Results) -> list[str]:
    """Return a sentence for each arm that several numbers of processes were measured of (METHOD 19)."""
    records = results.records[results.records["valid"] & (results.records["control"] == "")]
    others = [factor for factor in words.FACTORS if factor != "processes"]
    usual = words.usual(results.measured)
    lines: dict[str, list[str]] = {}
    order = {store: place for place, store in enumerate(results.levels("store"))}
    for levels, arm in sorted(records.groupby(others, sort=False), key=lambda one: order.get(one[0][0], 0)):
        if arm["processes"].nunique() < 2:
            continue
        named = dict(zip(others, levels, strict=True))
        told = [words.pattern_of(named), results.names.store(named["store"]), names.size(named["size"])]
        rest = [one for one in others if one not in ("store", "pattern", "size", "objects")]
        told += [results.names.level(one, named[one]) for one in rest if words.worth(one, named[one], usual)]
        # Bytes grow with the processes in some patterns: what is compared is the time of a byte.
        each = arm.assign(workers=arm["processes"], byte_s=arm["total_s"] / arm["bytes"])
        [found] = verdicts.stops_scaling(
            each.assign(arm=""), ["arm"], "byte_s", judgement.equivalence(results.facts)
        ).to_dict("records")
        first = arm[arm["processes"].astype(int) == found["base_workers"]]["cell"].iloc[0]
        rate = results.cells.set_index("cell")["mib_s"][first]
        base = f"base: {_many(found['base_workers'])}, {words.rate(rate)} MiB/s"
        lines.setdefault(_words(found, each), []).append(f"{', '.join(told)} ({base})")
    return [f"{'; '.join(who)}: {told}." for told, who in lines.items()]


def _words(found: dict, arm: pd.DataFrame) -> str:
    if pd.notna(found["stops_at"]):
        ratio, low, high = (1 / found[key] for key in ("ratio", "ratio_high", "ratio_low"))
        return (
            f"beyond {_many(found['stops_at'])} no more bandwidth is shown: {found['next_workers']} get "
            f"{prose.ratio(ratio)} times as much{words.interval(low, high, prose.ratio)}"
        )
    complete = arm.pivot(index="repeat", columns="processes", values="byte_s").dropna()
    if len(complete) < stats.MIN_BLOCKS:
        return f"fewer than {stats.MIN_BLOCKS} complete repeats: where it stops to grow is not decided"
    return f"still more bandwidth at {_many(max(map(int, arm['processes'])))}, the most measured"


def _many(processes: int) -> str:
    return Names(REPORT, {}).level("processes", str(processes))
