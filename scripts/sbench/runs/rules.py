"""Rules of `--fail-on`, such as "slower > 10 %": parse them, and evaluate them against verdicts."""

import re
from collections.abc import Sequence

import pandas as pd

from sbench.probe.program import Problem
from sbench.verdicts.outcomes import Outcome

# Exit status if a rule is broken.
FAILED = 3
_RULE = re.compile(
    r"(slower|faster|(?:more|fewer) (?:requests|bytes|opens|connections))(?:\s*>\s*(\d+(?:\.\d+)?)\s*%)?"
)
Rule = tuple[str, float]


def parse_rules(text: str) -> list[Rule]:
    """Return the rules in a text, which separates them by commas, as pairs of words and a percentage.

    Raises:
        Problem: a part of the text is not a rule.
    """
    return [_parse_rule(part.strip()) for part in text.split(",") if part.strip()]


def _parse_rule(text: str) -> Rule:
    if not (match := _RULE.fullmatch(text)):
        raise Problem(f"--fail-on must be a rule such as 'slower > 10 %, more requests' (got {text!r})")
    return match[1], float(match[2] or 0)


def judge_rules(rules: Sequence[Rule], verdicts: pd.DataFrame, counts: pd.DataFrame, noun: str = "cell") -> dict:
    """Evaluate the rules of `--fail-on` against the verdicts on cells, or on comparisons with another `noun`.

    Returns:
        Lists of descriptions:
            rules: all rules.
            broken: violated rules, with the number of cells.
            warned: rules violated in these sessions only. They do not fail the comparison, because the sessions of both
                sides did not alternate.
            open: rules that no cell decides.
            passed: all remaining rules. If only some cells decide a rule, its description includes their number.
    """
    by_kind: dict[str, list[str]] = {"rules": [], "broken": [], "warned": [], "open": [], "passed": []}
    for what, percent in rules:
        word, _, count = what.partition(" ")
        text, bound = f"{what} > {percent:g} %" if percent else what, 1 + percent / 100
        by_kind["rules"].append(text)
        if verdicts.empty:
            by_kind["open"].append(text)
            continue
        if count:
            share, verdict = counts[f"{count}_other"] / counts[f"{count}_base"], counts[count]
            decided = verdict.isin((Outcome.SAME, Outcome.MORE, Outcome.FEWER))
        else:
            share, verdict = verdicts["ratio"], verdicts["verdict"]
            # Without evidence of a change, the confidence interval may still exclude a change as large as in the rule.
            low, high = verdicts["ratio_low"], verdicts["ratio_high"]
            within = high <= bound if word == "slower" else low >= 1 / bound
            decided = verdict.isin((Outcome.SAME, Outcome.FASTER, Outcome.SLOWER)) | (
                (verdict == Outcome.NO_EVIDENCE) & within
            )
        beyond = share > bound if word in ("slower", "more") else share < 1 / bound
        alone = "" if count else verdicts["of_sessions"]
        if broken := int(((verdict == word) & beyond).sum()):
            by_kind["broken"].append(f"{text} in {broken} of {len(verdict)} {noun}s")
        elif warned := int(((alone == word) & beyond).sum()):
            by_kind["warned"].append(f"{text} in {warned} of {len(verdict)} {noun}s")
        elif not decided.any():
            by_kind["open"].append(text)
        else:
            part = "" if decided.all() else f" (decided in {decided.sum()} of {len(decided)} {noun}s)"
            by_kind["passed"].append(f"{text}{part}")
    return by_kind
