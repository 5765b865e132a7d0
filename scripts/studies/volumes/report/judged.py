"""The tables of what was judged: limits, segments, differences."""

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.page import Table
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Levels, Results
from scripts.studies.volumes.series import FACTORS


def glance(results: Results) -> Table:
    """Return a row a series, a column a limit: the verdict with the value it rests on, and how long it was kept."""
    verdicts = results.verdicts
    if verdicts.empty:
        return Table("at-a-glance", "", pd.DataFrame())
    whole = verdicts[verdicts["segment"] == "all"]
    keys = list(dict.fromkeys(whole[list(FACTORS)].itertuples(index=False, name=None)))
    frame = words.columns(pd.DataFrame(keys, columns=list(FACTORS)), results)
    over = {}
    for (limit, metric, height), rows in whole.groupby(["limit", "metric", "limit_ms"], sort=False):
        own = {tuple(row[factor] for factor in FACTORS): row for row in rows.to_dict("records")}
        name = f"{limit}: {metric} below {height:g} ms"
        frame[name] = [_verdict(_deciding(own[key], results)) if key in own else "" for key in keys]
        over[name] = [_colour(own[key]["verdict"]) if key in own else "" for key in keys]
        frame[f"{limit}: kept for"] = [_kept(own[key], results) if key in own else "" for key in keys]
    caption = (
        "The verdict on a whole series, with the value and interval of the segment that decides it. Kept for: from the "
        "battery's start to the first segment that does not meet the limit."
    )
    return Table("at-a-glance", caption, frame, over=over, meaning="the verdict; grey where there is none")


def limits(results: Results) -> Table:
    """Return the limits of the run and who set them."""
    frame = results.limits.rename(columns={"limit_ms": "below / ms"})
    return Table("limits", "The limits, and who set them.", frame, {"below / ms": "{:g}".format})


def segments(results: Results) -> Table:
    """Return the segments of each series that changed, a row each."""
    rows = results.segments
    if rows.empty:
        return Table("segments", "", rows)
    changed = rows.groupby(list(FACTORS))["jump"].transform(lambda jumps: jumps.notna().any()).astype(bool)
    rows = rows[changed].reset_index(drop=True)
    if rows.empty:
        return Table("segments", "", rows)
    frame = words.columns(rows, results)
    frame["segment"], frame["from job"], frame["to job"] = rows["segment"], rows["first_job"], rows["last_job"]
    frame["jobs"], frame["p99 / ms"] = rows["jobs"], rows["p99_ms"]
    frame["times the one before"] = [
        f"{prose.ratio(row['jump'])}{words.interval(row['jump_low'], row['jump_high'], prose.ratio)}"
        if pd.notna(row["jump"])
        else ""
        for row in rows.to_dict("records")
    ]
    caption = "The series whose level changed, segment by segment. p99: the median of the jobs' own p99."
    return Table("segments", caption, frame, {"jobs": "{:.0f}".format, "p99 / ms": prose.number})


def differences(results: Results) -> Table:
    """Return the comparisons, a row each, with the method."""
    rows = results.comparisons
    if rows.empty:
        return Table("differences", "", rows)
    rows = rows.reset_index(drop=True)
    frame = pd.DataFrame({"contender": rows["contender"], "baseline": rows["baseline"]})
    for factor in FACTORS:
        if rows[factor].replace("", np.nan).nunique() > 1:
            frame[factor] = [words.level(factor, value) for value in rows[factor]]
    frame["metric"], frame["phase"] = rows["metric"].map(words.metric), rows["phase"]
    frame["difference"] = [
        f"{words.signed(row['percent'])}{words.interval(row['low'], row['high'], words.signed)}"
        if pd.notna(row["percent"])
        else ""
        for row in rows.to_dict("records")
    ]
    for column in ("verdict", "method"):
        if column in rows:
            frame[column] = rows[column]
    return Table("differences", "Difference of the contender from the baseline, with its 95 % CI.", frame)


def _verdict(row: dict) -> str:
    value = words.interval(row["low_ms"], row["high_ms"])
    latency = f" {prose.number(row['value_ms'])}{value} ms" if pd.notna(row["value_ms"]) else ""
    return f"{row['verdict']}{latency}"


def _colour(verdict: str) -> str:
    return verdict if verdict in ("meets", "misses") else "unknown"


def _segments_of(row: dict, results: Results) -> pd.DataFrame:
    """What a verdict on a whole series was made of."""
    own = results.of("verdicts", Levels(*(row[factor] for factor in FACTORS)))
    return own[(own["limit"] == row["limit"]) & (own["segment"] != "all")]


def _deciding(row: dict, results: Results) -> dict:
    """The segment that decided a series' verdict, the slowest of several; the series where there is none."""
    own = _segments_of(row, results)
    own = own[(own["verdict"] == row["verdict"]) & own["value_ms"].notna()]
    return own.loc[own["value_ms"].idxmax()].to_dict() if len(own) else row


def _kept(row: dict, results: Results) -> str:
    own = _segments_of(row, results)
    if row["verdict"] == "meets":
        return "all jobs"
    before = int(own["jobs"][(own["verdict"] == "meets").cummin()].sum())
    if pd.notna(row.get("kept_s")) and before:
        return f"{words.duration(float(row['kept_s']))}, {prose.count(before, 'job')}"
    if before:
        return prose.count(before, "job")
    return "not at all" if row["verdict"] == "misses" else ""
