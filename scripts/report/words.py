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
    "course": "{new} against {old}{in_time}{under}: {steps} ({evidence}).{turn}",
    "turns": "The order turns {where}.",
    "in time": " in the time to {spent}",
    "order": "{new} {effect}{spent} {than} {old}",
    "spent": " to {spent}",
    "both the same": "{new} and {old} were {same}{in_time}, ratio {ratio}",
    "step the same": "{same}, ratio {ratio}",
    "no evidence": "{nothing} that {new} and {old} differ{in_time}: {doubt}",
    "step no evidence": "{nothing} of a difference ({doubt})",
    "ratios": ", ratio {ratios}",
    "ratio": "ratio {ratio}",
    "against": "{new} against {old}: ",
    "failures": "{who} in {failed} of {attempts} attempts [{low:.0f}, {high:.0f} %]",
    "failed": "; failed: {sides}",
    "explained": "; requests, bytes and CPU time explain it",
    "same direction": "; requests and bytes point the same way",
    "not explained": "; not explained by requests or bytes{some}",
    "corrected": "{which} 1, but not after correction for all comparisons of this factor",
    "excludes": "the interval excludes",
    "exclude": "{many} of {of} intervals exclude{s}",
    "at both": "at {first} and at {last}",
    "at all sizes": "at all sizes from {first} to {last}",
    # Where arms gain no more.
    "arm": "{arm} (base: {level}{value})",
    "few repeats": "fewer than {needed} complete repeats, so where it stops to gain is not decided",
    "stops": "no gain is shown beyond {at}: the {what} with {after} is {ratio} of that",
    "still gains": "still gains at {most}, the most measured",
    # Leaders.
    "no leader": "No arm was shown to be the fastest.",
    "most without verdict": "{at}, most was measured with {arm}; {why}.",
    "not told apart": "{at}, nothing was shown to be faster than {arms}{rest}",
    "fastest": "{at}, {arms} {fastest}{among}{same}{rest}",
    "not judged": "; not judged: {arms}.",
    "of those judged": " of those judged",
    "each as fast": ", each as fast as the other",
    "unjudged": "without repeats nothing is judged",
    "apart": "the arms are not comparable",
    "few": "too few repeats for a verdict",
    "ahead": "it has no verdict, so nothing is decided",
    "slow blocks": "; in {slow} of {blocks} blocks {who} took {times} its usual time against the other",
    "slow blocks of both": "; in {slow} of {blocks} blocks the ratio was {times} off its usual value, either way",
    "detectable": "a difference of {times} would have been detected",
    "noisy": "the run is too noisy to tell",
    # What these data cannot say.
    "serial": "Blocks resemble those before them (p = {p}, of all comparisons together), so verdicts are false more "
    "often than stated: measure again at another time.",
    "stalls": "Arms that were the same: a stall in fewer than {percent} % of reads may be in none of their blocks.",
    "kept": "Verdicts are of {what}.",
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
