"""What every report says of its verdicts: within what two times are the same, how the rule did on itself, trouble."""

import pandas as pd

from scripts.lib.slowed import SHARES
from scripts.report import prose
from scripts.report.markup import bold, code, paragraph
from scripts.statistics import HARNESS, JUDGED, MIN_BLOCKS, stats

# What each verdict means, wherever it is explained; {percent} is what counts as the same.
VERDICTS = {
    "same": "the 95 % CIs of the ratio and of the ratio of mean times lie within ±{percent:g} %",
    "faster, slower": "p ≤ 0.05, divided by how often the results were looked at and corrected for all comparisons of "
    "that factor, and the 95 % CI excludes 1",
    "no evidence": "none of these, which does not mean that there is no difference; the report gives the smallest one "
    "that this run could have detected",
    "not comparable": "the two sides differ in measuring code, data or software, were never measured in one session on "
    f"one machine, or the harness takes more than {HARNESS} % of the time of one",
    "too few repeats": f"fewer than {MIN_BLOCKS} blocks in which both sides are valid and of one session and machine",
}

TROUBLES = {
    "invalid": "broke a rule of measuring and {be} in no verdict",
    "edited": "{been} edited after it was written and {be} in no verdict",
    "failed": "failed",
}


def equivalence(facts: dict) -> float:
    """Return the percentage within which two times count as the same."""
    return float(facts.get("equivalence_percent") or (facts.get("settings") or {}).get("equivalence_percent") or 5)


def control(verdicts: pd.DataFrame) -> str:
    """Return how the verdict rule did on cells that were measured twice under two names."""
    rows = verdicts[(verdicts["role"] == "control") & ~_slowed(verdicts)] if len(verdicts) else verdicts
    if rows.empty:
        return "A/A control: no cell was measured twice under two names, so false alarms were not counted."
    total, parts = rows["metric"] == "total", []
    for chosen, name in ((rows[total], "on the total runtime"), (rows[~total], "on its parts")):
        judged = chosen["verdict"][chosen["verdict"].isin(JUDGED)]
        if len(judged):
            alarms = prose.count(int(judged.isin(("faster", "slower")).sum()), "false alarm")
            parts.append(f"{alarms} out of {len(judged)} {name}")
    outcome = prose.listing(parts) if parts else "too few complete blocks to judge any"
    pairs = prose.count(rows["contender"].nunique(), "cell")
    return f"A/A control, {pairs} measured twice under two names, where any difference is a false alarm: {outcome}."


def slowed(facts: dict) -> str:
    """Return how many cells slowed on purpose were found to be slower, over the runs of the machine; "" without any."""
    counts = facts.get("controls") or {}
    levels = sorted(SHARES.keys() & counts.keys(), key=SHARES.get, reverse=True)
    if not levels:
        return ""
    names = [_percent(SHARES[level]) for level in levels]
    if not any(counts[level][1] for level in levels):
        return f"Cells slowed on purpose, by {prose.listing(names)}: too few complete blocks to judge any."
    names[0] += " apart"
    detected = [f"{name}: {counts[level][0]} of {counts[level][1]}" for name, level in zip(names, levels, strict=True)]
    alarms, judged = counts["alarms"]
    bound = f" (at most {_percent(stats.at_most(alarms, judged))})" if judged else ""
    shares = [_percent(counts["reached"][level]) for level in levels if level in counts["reached"]]
    reached = f" Here their waits were {prose.listing(shares)} of the rest of the total." if shares else ""
    return (
        f"This run tells {'; '.join(detected)}; false alarms {alarms} of {judged}{bound}. Counted over "
        f"{prose.count(counts['runs'], 'run')} on this machine, with cells that waited on purpose.{reached}"
    )


def unfound(verdicts: pd.DataFrame) -> str:
    """Return that the control which differs most was judged and not found to be slower; "" where it was found."""
    if verdicts.empty or "control" not in verdicts:
        return ""
    level = max(SHARES, key=SHARES.get)
    rows = verdicts[(verdicts["role"] == "control") & (verdicts["control"] == level) & (verdicts["metric"] == "total")]
    missed = rows["verdict"][~rows["verdict"].isin(("slower", "too few repeats"))]
    if missed.empty:
        return ""
    return paragraph(
        f"{bold('Caution')}: a cell slowed on purpose by {_percent(SHARES[level])} was not found to be slower "
        f"({missed.iloc[0]}), so this run may miss differences of that size. Raise {code('repeats')} and run again."
    )


def _slowed(verdicts: pd.DataFrame) -> pd.Series:
    return verdicts.get("control", pd.Series("", verdicts.index)).isin(SHARES)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def families(verdicts: pd.DataFrame) -> list[str]:
    """Return how often verdicts that rest on chance alone are to be expected, over all families of a report."""
    rows = verdicts[(verdicts["role"] != "control") & verdicts["verdict"].isin(JUDGED)] if len(verdicts) else verdicts
    if rows.empty:
        return []
    deciding = rows["role"] == "decides"
    counts = [len(part.groupby(["factor", "metric"])) for part in (rows[deciding], rows[~deciding])]
    parts = [
        f"{count} on {what} (together at most {min(5 * count, 100)} %)"
        for count, what in zip(counts, ("the figure that decides", "its parts"), strict=True)
        if count
    ]
    return [
        "All comparisons of a factor on one figure are a family. Where nothing differs, at most 5 % of runs call any "
        f"arm of it faster or slower. Families here: {prose.listing(parts)}."
    ]


def method(facts: dict) -> list[str]:
    """Return how differences between two arms are judged, in short."""
    meanings = verdicts(equivalence(facts)).items()
    return [
        "A comparison takes the ratio contender / baseline within each block: median, 95 % bootstrap CI over "
        "blocks, and a sign-flip test of whole blocks, corrected for all comparisons of one factor.",
        f"Verdicts: {'; '.join(f'{verdict} ({meaning})' for verdict, meaning in meanings)}.",
    ]


def verdicts(percent: float) -> dict[str, str]:
    """Return what each verdict means, where differences within `percent` count as the same."""
    return {verdict: meaning.format(percent=percent) for verdict, meaning in VERDICTS.items()}


def of_trouble(cells: pd.DataFrame, blocks: bool = True) -> list[str]:
    """Return how many repeats failed, broke a rule of measuring, or, where they are blocks, are too few to judge."""
    lines = []
    for kind, trouble in TROUBLES.items():
        counts = cells[kind] - (cells["edited"] if kind == "invalid" else 0)
        if many := int(counts.sum()):
            be, been = ("is", "was") if many == 1 else ("are", "were")
            of = f"{prose.count(many, 'repeat')} of {prose.count(int((counts > 0).sum()), 'cell')}"
            lines.append(f'{of} {trouble.format(be=be, been=been)}: see "Failed, invalid and left out".')
    if blocks and (few := int(((cells["n"] > 0) & (cells["n"] < MIN_BLOCKS) & (cells["control"] == "")).sum())):
        have = f"{prose.count(few, 'cell')} {'has' if few == 1 else 'have'}"
        lines.append(f"{have} fewer than {MIN_BLOCKS} valid repeats, too few for a verdict.")
    return lines


def is_true(column: pd.Series) -> pd.Series:
    """Return which cells of a column of booleans, however the CSV spelt them, are true."""
    return column.astype(str).str.lower().eq("true")
