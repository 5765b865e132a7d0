"""What every report says of its verdicts: within what two times are the same, how the rule did on itself, trouble."""

import pandas as pd

from scripts.report import prose

JUDGED = ("faster", "slower", "same", "no evidence")
# What each verdict means, wherever it is explained; {percent} is what counts as the same.
VERDICTS = {
    "same": "the 95 % CI of the ratio lies within ±{percent:g} %",
    "faster, slower": "p ≤ 0.05, corrected for all comparisons of that factor, and the 95 % CI excludes 1",
    "no evidence": "none of these, which does not mean that there is no difference; the report gives the smallest one "
    "that this run could have detected",
    "not comparable": "the two sides differ in measuring code, data, packages or machine",
    "too few repeats": "fewer than 6 blocks in which both sides are valid",
}


def equivalence(facts: dict) -> float:
    """Return the percentage within which two times count as the same."""
    return float(facts.get("equivalence_percent") or (facts.get("settings") or {}).get("equivalence_percent") or 5)


def control(verdicts: pd.DataFrame, decides: str = "on the total runtime") -> str:
    """Return how the verdict rule did on cells that were measured twice under two names."""
    rows = verdicts[verdicts["role"] == "control"] if len(verdicts) else verdicts
    if rows.empty:
        return "A/A control: no cell was measured twice under two names, so false alarms were not counted."
    total = rows["metric"] == "total"
    parts = []
    for chosen, name in ((rows[total], decides), (rows[~total], "on its parts")):
        judged = chosen[chosen["verdict"].isin(JUDGED)]
        if len(judged):
            alarms = int(judged["verdict"].isin(("faster", "slower")).sum())
            parts.append(f"{prose.count(alarms, 'false alarm')} out of {len(judged)} {name}")
    outcome = prose.listing(parts) if parts else "too few complete blocks to judge any"
    pairs = prose.count(rows["contender"].nunique() if rows["contender"].any() else int(total.sum()), "cell")
    return f"A/A control, {pairs} measured twice under two names, where any difference is a false alarm: {outcome}."


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
    troubles = {
        "broke a rule of measuring and is in no verdict": cells["invalid"] - cells["edited"],
        "was edited after it was written and is in no verdict": cells["edited"],
        "failed": cells["failed"],
    }
    for what, counts in troubles.items():
        repeats, affected = int(counts.sum()), int((counts > 0).sum())
        if repeats:
            if repeats > 1:
                what = what.replace(" is ", " are ").replace("was ", "were ")
            lines.append(
                f"{prose.count(repeats, 'repeat')} of {prose.count(affected, 'cell')} {what}: "
                'see "Failed, invalid and left out".'
            )
    if blocks and (few := int(((cells["n"] > 0) & (cells["n"] < 6) & (cells["control"] == "")).sum())):
        has = "has" if few == 1 else "have"
        lines.append(f"{prose.count(few, 'cell')} {has} fewer than 6 valid repeats, too few for a verdict.")
    return lines


def is_true(column: pd.Series) -> pd.Series:
    """Return which cells of a column of booleans, however the CSV spelt them, are true."""
    return column.astype(str).str.lower().eq("true")
