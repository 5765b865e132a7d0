"""What was asked, how it was measured, how the verdict rule did on itself, and what the data cannot say."""

import pandas as pd

from scripts.analysis import prose
from scripts.analysis.shots import words
from scripts.analysis.shots.results import ABSENT, Results, numbers

JUDGED = ("faster", "slower", "same", "no evidence")


def question(results: Results) -> str:
    """Return what the run was asked, as a quotation, and what it measured."""
    asked = results.facts.get("question", "")
    repeats = prose.count(int(results.cells["n"].sum()), "valid repeat")
    return (f"> {asked}\n\n" if asked else "") + f"{prose.count(len(results.cells), 'cell')}, {repeats} in all."


def nothing_decided(results: Results) -> str:
    """Return what to say where no sentence tells of a verdict."""
    return ABSENT["verdicts"] if results.verdicts.empty else "Nothing was decided."


def method(results: Results) -> list[str]:
    """Return how it was measured and judged, in short."""
    if results.verdicts.empty:
        return ["Each value is drawn as it is; there are no repeats to judge differences by."]
    return [
        "A repeat is a block: every cell once, in a seeded random order, each in a fresh process, nothing else "
        "running.",
        "Times are medians with 95 % intervals; throughput is all bytes by all time. The clock starts when the workers "
        "are up.",
        "A comparison takes the ratio contender / baseline within each block: median, 95 % bootstrap interval over "
        "blocks, and a sign-flip test of whole blocks, corrected for all comparisons of one factor.",
        f"Verdict: interval within ±{words.equivalence(results.facts):g} %: as fast; adjusted p at most 0.05 and the "
        "interval without 1: faster or slower; else no evidence, with the smallest difference this run could have "
        "seen. Below 6 blocks there is none.",
        "The total runtime decides. Opens, first data sets and the rest are judged apart and say where a difference "
        "arises.",
        "Every repeat is drawn; none is removed as an outlier. Tasks, data sets, bytes and checksum of each valid "
        "repeat equal the manifest's.",
    ]


def control(results: Results) -> str:
    """Return how the verdict rule did on cells that were measured twice under two names."""
    rows = results.verdicts
    rows = rows[rows["role"] == "control"] if len(rows) else rows
    if rows.empty:
        return "A/A control: no cell was measured twice under two names, so false alarms were not counted."
    total = rows["metric"] == "total"
    parts = []
    for chosen, name in ((rows[total], "on the total runtime"), (rows[~total], "on its parts")):
        judged = chosen[chosen["verdict"].isin(JUDGED)]
        if len(judged):
            alarms = int(judged["verdict"].isin(("faster", "slower")).sum())
            parts.append(f"{prose.count(alarms, 'false alarm')} out of {len(judged)} {name}")
    told = prose.listing(parts) if parts else "too few complete blocks to judge any"
    pairs = prose.count(rows["contender"].nunique() if rows["contender"].any() else int(total.sum()), "cell")
    return f"A/A control, {pairs} measured twice under two names, where any difference is a false alarm: {told}."


def limits(results: Results) -> list[str]:
    """Return what these data cannot say."""
    facts, cells = results.facts, results.measured
    lines = []
    told = [str(line) for line in facts.get("limits", [])]
    if told and max(map(len, told)) < 40:
        told = [f"measured with: {', '.join(told)}. It is no verdict for other networks, stores or machines"]
    lines += [f"{prose.capital(line.rstrip('.'))}." for line in told]
    if (cells["cache"] == "cold").any():
        lines.append(
            '"Cold" is said of this machine\'s page cache only: caches of hypervisor, disk and remote services are not '
            "controlled."
        )
    if "cache_state" in cells and (
        odd := int(((cells["cache_state"] != cells["cache"]) & (cells["cache"] != "any")).sum())
    ):
        lines.append(f"The cache state that was asked for could not be verified in {prose.count(odd, 'cell')}.")
    if "oversubscribed" in cells and (many := int(is_true(cells["oversubscribed"]).sum())):
        lines.append(f"In {prose.count(many, 'cell')} more workers ran than there are cores (marked oversubscribed).")
    if "idle_workers" in cells and (idle := int((numbers(cells["idle_workers"]) > 0).sum())):
        lines.append(f"In {prose.count(idle, 'cell')} some workers had nothing to do.")
    for column, what in (("invalid", "broke a rule of measuring and is in no verdict"), ("failed", "failed")):
        repeats, affected = int(results.cells[column].sum()), int((results.cells[column] > 0).sum())
        if repeats:
            what = what.replace(" is ", " is " if repeats == 1 else " are ")
            lines.append(
                f"{prose.count(repeats, 'repeat')} of {prose.count(affected, 'cell')} {what}: "
                'see "Failed, invalid and left out".'
            )
    if few := int((cells["n"] < 6).sum()):
        has = "has" if few == 1 else "have"
        lines.append(f"{prose.count(few, 'cell')} {has} fewer than 6 valid repeats, too few for a verdict.")
    return lines + list(results.absent)


def is_true(column: pd.Series) -> pd.Series:
    """Return which cells of a column of booleans, however the CSV spelt them, are true."""
    return column.astype(str).str.lower().eq("true")
