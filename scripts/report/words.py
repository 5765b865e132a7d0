"""Words of headlines, recommendations, reasons and limits: one table of templates, and one phrase for each outcome."""

from scripts.statistics.outcomes import Outcome

OUTCOMES = {
    Outcome.SAME: "the same within ±{percent:g} %",
    Outcome.NO_EVIDENCE: "no evidence",
    Outcome.NOT_COMPARABLE: "not comparable",
    Outcome.TOO_FEW: "too few repeats",
}
TEMPLATES = {
    # The headline of a page.
    "not measured": "Nothing was measured, {cells} failed or broke a rule of measuring{why}.",
    "no comparison": "No comparison varies {factor}, which the question asks about.",
    "too few": "No verdict: {blocks} of the {needed} that it needs.",
    "same": "{new} and {old} were the same within ±{percent:g} % in {many}.",
    "undecided": "Not decided between {new} and {old}{medians}.",
    "medians": ": medians {new} and {old}",
    "unjudged leader": "Not decided: {arm} took the least time ({time}) and has no verdict ({why}).",
    "least of several": "Of {many} {factor} levels, {leaders}.",
    "leads": "{arm} took the least time{cases}{effect}",
    "in cases": " in {cases} of {of} cases",
    "effect": " ({effect} {baseline})",
    # Below the headline.
    "tally": "{factor}: {decided} of {of} decided{others}.",
    "insensitive": "Differences below about {percent} cannot be seen in this run; {others}.",
    "too noisy": "This run is too noisy to tell differences below {times}×; {others}.",
    "larger": "the effects shown are larger",
    "in range": "{many} in that range",
    # Findings.
    "slow blocks": "; in {slow} of {blocks} blocks {who} took {times} its usual time against the other",
    "slow blocks of both": "; in {slow} of {blocks} blocks the ratio was {times} off its usual value, either way",
    "detectable": "a difference of {times} would have been detected",
    "noisy": "the run is too noisy to tell",
    # What these data cannot say.
    "serial": "Blocks resemble those before them (p = {p}, of all comparisons together), so verdicts are false more "
    "often than stated: measure again at another time.",
    "stalls": "Arms that were the same: a stall in fewer than {percent} % of reads may be in none of their blocks.",
    "withheld": "{many} withheld: not borne out by the raw records, or contradicted by what is stated above.",
    "unchecked": "Statements are not checked against raw records: these tables are of an earlier version.",
    # What to do next.
    "use": "{situation}use {choices}: {time}.",
    "with rest": "{time} ({rest})",
    "rather": "{level} ({others})",
    "gain": "{gain}× as fast as {other}",
    "more blocks": "A difference of 10 % would take about {needed} blocks: raise {repeats}.",
    "steadier": "A difference of 10 % would take more than {most} blocks: read more per run, or use a quieter machine.",
    # Why.
    "as measured": "with CPU time and the cost of an open these give {model}×, as measured",
    "same way": "these point the same way: with CPU time and the cost of an open {model}×, measured was {measured}×",
    "unexplained": "with CPU time and the cost of an open these give {model}×, measured was {measured}×: {strong}",
}


def fill(name: str, **values: object) -> str:
    """Return a template with its values."""
    return TEMPLATES[name].format(**values)


def get_outcome(outcome: str, percent: float = 5) -> str:
    """Return the phrase of an outcome, which is the same on all pages."""
    return OUTCOMES.get(Outcome(outcome), outcome).format(percent=percent)
