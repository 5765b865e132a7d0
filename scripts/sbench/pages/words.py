"""Templates of headlines, recommendations, reasons and limits, and a phrase for each outcome."""

from collections.abc import Callable, Mapping

from sbench.verdicts import HARNESS, MIN_BLOCKS
from sbench.verdicts.outcomes import Outcome

OUTCOMES = {
    Outcome.SAME: "the same within ±{percent:g} %",
    Outcome.NO_EVIDENCE: "no evidence",
    Outcome.NOT_COMPARABLE: "not comparable",
    Outcome.TOO_FEW: "too few repeats",
}
# Meaning of each verdict on all pages; {percent} is the range that counts as the same.
MEANINGS = {
    Outcome.SAME: "the 95 % CIs of the ratio and of the ratio of mean times lie within ±{percent:g} %, for "
    "each comparison by itself",
    "faster, slower": "p ≤ 0.05, or less where blocks were added after a first look, corrected for all comparisons of "
    "that factor, and the 95 % CI excludes 1",
    Outcome.NO_EVIDENCE: "none of these, or one side lost two records more than the other, which does not mean that "
    "there is no difference; the report gives the smallest one that this run could have detected",
    Outcome.NOT_COMPARABLE: "the two sides differ in measuring code, data or software, were never measured in one "
    f"session on one machine, or the harness takes more than {HARNESS} % of the time of one and may turn the order",
    Outcome.TOO_FEW: f"fewer than {MIN_BLOCKS} blocks in which both sides are valid and of one session and machine",
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
    "least of several": "{where}of {many}, {leaders}.",
    "leads": "{arm} took the least time{cases}{effect}",
    "leads, too": "{arm}{cases}{effect}",
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
    "turn": "between {before} and {after}",
    "of comparisons": "{many} comparisons of {evidence}",
    "in comparisons": " in {many} of {of} comparisons",
    "in some comparisons": "in {many} of {of} comparisons (the figure shows which)",
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
    "failed sides": "; failed: {sides}",
    "explained": "; requests, bytes and CPU time explain it",
    "same direction": "; requests and bytes point the same way",
    "not explained": "; not explained by requests or bytes{some}",
    "in decided": " in {many} of {of}",
    "corrected": "{which} 1, but not after correction for all comparisons of this factor",
    "excludes": "the interval excludes",
    "exclude": "{many} of {of} intervals exclude{s}",
    "at size": "at {first}",
    "up to size": "up to {last}",
    "from size on": "from {first} on",
    "between sizes": "from {first} to {last}",
    "at both": "at {first} and at {last}",
    "at all sizes": "at all sizes from {first} to {last}",
    # Limits of scaling.
    "arm": "{arm} (base: {level}{value})",
    "few repeats": "fewer than {needed} complete repeats, so where it stops to gain is not decided",
    "stops": "no gain is shown beyond {at}: the {what} with {after} is {ratio} of that",
    "still gains": "still gains at {most}, the most measured",
    # Leaders.
    "no leader": "No arm was shown to be the fastest.",
    "most without verdict": "{at}, most was measured with {arm}; {why}.",
    "not told apart": "{at}, nothing was shown to be faster than {arms}{rest}",
    "fastest": "{at}, {arms} {fastest}{among}{same}{rest}",
    "more arms": "{many} more",
    "values at ends": "{low} at {first}, {high} at {last}",
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
    "one small effect": "1 effect shown lies",
    "small effects": "{many} effects shown lie",
    # Controls of the verdict rule.
    "no control": "A/A control: no cell was measured twice under two names, so false alarms were not counted.",
    "control": "A/A control, {cells} measured twice under two names, where any difference is a false alarm: {outcome}.",
    "alarms of the total": "{alarms} out of {of} on the total runtime",
    "alarms of parts": "{alarms} out of {of} on its parts",
    "too few to judge": "too few complete blocks to judge any",
    "slowed unjudged": "Cells slowed on purpose, by {shares}: {outcome}.",
    "slowed": "This run tells {shares}; false alarms {alarms} of {of}{bound}. Counted over {runs} on this "
    "machine, with cells that waited on purpose.{reached}",
    "slowed most": "{percent} apart",
    "slowed detected": "{percent}: {detected} of {of}",
    "alarms bound": " (at most {percent})",
    "waits": " Here their waits were {shares} of the rest of the total.",
    "anew": "{what}: {outcome}{ratio}{runs}.",
    "times": ", {ratio:.2f} [{low:.2f}, {high:.2f}] times the time",
    "in runs": "; different in {differing} of {runs} on this machine",
    # Method.
    "each cell in each": "in each of {repeats} every cell was measured once",
    "each cell in some": "every cell was measured once in {complete} of {repeats}, in the others some are missing",
    "in few orders": ", in {orders} only",
    "in own orders": ", in an order of its own",
    "time unknown": "when each began and ended is not known",
    "none overlap": "no two records overlap in time",
    "overlap": "{records} began before an earlier one had ended",
    "method of values": "Each value is drawn as it is; there are no repeats to judge differences by.",
    "method of others": "How it was measured is the study's own; the page of its audit has what it prints of that, and "
    "tests it.",
    "method of ratios": "A comparison takes the ratio contender / baseline within each block: median, 95 % "
    "bootstrap CI over blocks, and a sign-flip test of whole blocks, corrected for all comparisons of one factor.",
    "method of verdicts": "Verdicts: {verdicts}.",
    "method of metrics": "Verdicts use the {title}. The other metrics say where a difference arises.",
    "method of repeats": "Every repeat is drawn; none is removed as an outlier. Failed and invalid repeats are "
    "shown and in no verdict.",
    "families": "All comparisons of a factor on one figure are a family. Where nothing differs, at most {percent} % of "
    "runs call any arm of it faster or slower. Families here: {parts}.",
    "families that decide": "{many} on the figure that decides (together at most {percent} %)",
    "families of parts": "{many} on its parts (together at most {percent} %)",
    # Limits of the data.
    "invalid": '{repeats} of {cells} broke a rule of measuring and {be} in no verdict: see "Failed, invalid and left '
    'out".',
    "edited": '{repeats} of {cells} {been} edited after it was written and {be} in no verdict: see "Failed, '
    'invalid and left out".',
    "failed": '{repeats} of {cells} failed: see "Failed, invalid and left out".',
    "few repeats of cells": "{cells} {have} fewer than {needed} valid repeats, too few for a verdict.",
    "cold": '"Cold" refers to the page caches of the machines that read and of an embedded server: caches of '
    "hypervisor, disk and remote services are not controlled.",
    "odd cache": "The requested cache state could not be verified in {cells}.",
    "oversubscribed": "In {cells} more workers or processes ran than there are cores: they compete for the "
    "cores, so the gain from more of them says little.",
    "harness": "In {cells} the harness itself takes more than {percent} % of the {title}, up to {most} %: see "
    "the table of its cost.",
    "unequal": "{many} {are} left out: the two sides deliver different amounts.",
    "untried": "{many} {are} left out: at least one of the two cells was never tried.",
    "unmade": "{many} {are} left out: different versions of the measuring code measured the two sides, or they were "
    "never measured in one session on one machine; {again} measures cells again.",
    "lacking": "{many} lack{s} blocks whose two sides were not measured in one session on one machine; {table} names "
    "them.",
    "serial": "Blocks resemble those before them (p = {p}, of all comparisons together), so verdicts are false more "
    "often than stated: measure again at another time.",
    "stalls": "Arms that were the same: a stall in fewer than {percent} % of reads may be in none of their blocks.",
    "kept": "Verdicts are of {what}.",
    "kept data": "one placement of the data",
    "kept build": "one build",
    "reference limit": "{reference}: {limit}.",
    "reference not against": "{reference} is left out of figures against {axes}: no level of it was measured here with "
    "the same read from the same kind of place.",
    "reference nowhere": "{reference} is in no figure: nothing of it was measured here alike.",
    "withheld": "{many} withheld: not borne out by the raw records, or contradicted by what is stated above.",
    "unchecked": "Statements are not checked against raw records: these tables are of an earlier version.",
    # Advice.
    "use": "{situation}use {choices}: {time}.",
    "with rest": "{time} ({rest})",
    "rather": "{level} ({others})",
    "gain": "{gain}× as fast as {other}",
    "more blocks": "A difference of 10 % would take about {needed} blocks: raise {repeats}.",
    "steadier": "A difference of 10 % would take more than {most} blocks: read more per run, or use a quieter machine.",
    # Reasons.
    "moved": "{new} made {of_new}; {old} {of_old}{why}.",
    "moved by side": "{requests} for {size} MiB",
    "as measured": "with CPU time and the cost of an open these give {model}×, as measured",
    "same way": "these point the same way: with CPU time and the cost of an open {model}×, measured was {measured}×",
    "unexplained": "with CPU time and the cost of an open these give {model}×, measured was {measured}×: {strong}",
    "by neither": "not explained by requests or bytes",
    # Captions of figures, and parts that not all have.
    "marks": "Small marks: each repeat; large mark and bar: their summary and its 95 % CI, from 6 repeats on.",
    "grey marks": "Grey and hollow: as published, from other machines and whatever their caches held; in no summary or "
    "verdict.",
    "first panels": " The first {drawn} of {of} panels are drawn; all are in the numbers.",
    "dotted bound": " Dotted, or stars: the most that the {bound} got in the panel's cells.",
    "performance ratio": "Median {title} of the base, the arm's smallest level, divided by that of this one; above 1 "
    "is faster. The base's own uncertainty is not in the intervals.",
    # Captions of tables, meanings of their colours, and parts of single cells.
    "table of ratios": "{value}, medians. Above 1 it was faster than {base} in the same conditions.",
    "table at a glance": "{new} against {old}, by what is timed. The {title} decides; the rest is judged row by row.",
    "colours of verdicts": "the verdict; grey where there is none",
    "table of requests": "Requests and bytes that reached the store within the timed window, medians over the repeats, "
    "with the connections that were opened and the mean number of requests under way while there was any. "
    "Amplification: bytes delivered (where not measured: offered) / bytes of data; below 1 where data are compressed.",
    "table of conditions": "What was in force, as read back from library and system. In memory: share of the files in "
    "this machine's page cache. Outlying: the number of a repeat whose total lies outside Tukey's fences; it is "
    "flagged, not removed.",
    "table of harness": "Median cost of the harness. Only planning and dispatch are part of the {title}; empty work, "
    "which moves no bytes, shows what they cost. Start and verification are outside.",
    "colours of harness": "the harness takes more than {percent} % of the {title}",
    "table of trouble": "Repeats that failed, and repeats that broke a rule of measuring ([INVALID]) or are no longer "
    "what was written ([EDITED]): shown, and in no verdict.",
    "table of omitted": "Combinations that the matrix names and that were not measured.",
    "table of attempts": "What failed earlier and was moved aside; it was made again, or blocks were appended.",
    "table of machine": "The machine that measured.",
    "table of nodes": "Time of a record / median time of its cell on all nodes: quartiles of each node.",
    "table of data": "The data, as read back from the files.",
    "table of libraries": "The libraries under test.",
    "table of best": "The configuration with the least {title} of those measured, median [95 % CI].{without}{common}",
    "best without failures": " One with failures is listed only where all have some.",
    "failed attempts": " ({failed:.0f} of {attempts:.0f} failed)",
}


def make_fill(templates: Mapping[str, str]) -> Callable[..., str]:
    """Return a function that fills a template of a table with values."""

    def fill(name: str, /, **values: object) -> str:
        return templates[name].format(**values)

    return fill


fill = make_fill(TEMPLATES)


def get_outcome(outcome: str, percent: float = 5) -> str:
    """Return the phrase of an outcome in a sentence, the same on all pages."""
    return OUTCOMES.get(Outcome(outcome), outcome).format(percent=percent)


def get_mark(outcome: str) -> str:
    """Return the phrase of an outcome in tables and figures, without the range that counts as the same."""
    return Outcome.SAME if outcome == Outcome.SAME else get_outcome(outcome)
