"""Templates for headlines, recommendations, reasons and limitations, and a phrase for each outcome."""

from collections.abc import Callable, Mapping

from sbench.verdicts import HARNESS, MIN_BLOCKS
from sbench.verdicts.outcomes import Outcome

OUTCOMES = {
    Outcome.SAME: "the same within ±{percent:g} %",
    Outcome.NO_EVIDENCE: "no evidence",
    Outcome.NOT_COMPARABLE: "not comparable",
    Outcome.TOO_FEW: "too few repeats",
}
# Outcomes after a number of comparisons.
COUNTED = {Outcome.NO_EVIDENCE: "without evidence of a difference", Outcome.TOO_FEW: "with too few repeats"}
# The meaning of each verdict, as printed on all pages; {percent} is the range that counts as the same.
MEANINGS = {
    Outcome.SAME: "the 95 % CIs of the ratio and of the ratio of mean times lie within ±{percent:g} %; not corrected "
    "for other comparisons",
    "faster, slower": "p ≤ 0.05 (less if blocks were added after a first look), corrected for all comparisons of the "
    "factor, and the 95 % CI excludes 1",
    Outcome.NO_EVIDENCE: "neither of these, or lost records forbid them; a difference may exist; "
    "the page gives the smallest that this run could have detected",
    Outcome.NOT_COMPARABLE: "the two sides differ in measuring code, data or software, were never measured in the same "
    f"session on the same machine, or the harness takes more than {HARNESS} % of a side's time and may reverse the "
    "order",
    Outcome.TOO_FEW: f"fewer than {MIN_BLOCKS} blocks with two valid sides from the same session and machine",
}
TEMPLATES = {
    # The headline of a page.
    "not measured": "No results: {cells} failed or broke a rule of measuring{why}.",
    "no comparison": "No comparison varies {factor}, which the question asks about.",
    "too few": "No verdict yet: {blocks} of at least {needed}.",
    "same": "{new} and {old} were the same within ±{percent:g} % in {many}.",
    "undecided": "Undecided: {new} vs {old}{medians}.",
    "medians": ": medians {new} and {old}",
    "unjudged leader": "Undecided: {arm} took the least time ({time}), without a verdict ({why}).",
    "least of several": "{where}among {many}, {leaders}.",
    "leads": "{arm} took the least time{cases}{effect}",
    "leads, too": "{arm}{cases}{effect}",
    "in cases": " in {cases} of {of} cases",
    "effect": " ({effect} {baseline})",
    # Below the headline.
    "tally": "Decided: {parts}.",
    "tally of factor": "{decided} of {of} of the {factor}{others}",
    "tally of all": "{decided} of {of}{others}",
    "tally of others": "{decided} of {rest}{others}",
    "insensitive": "Sensitivity, tested with one cell ({arm}): differences below about {percent} cannot be "
    "detected{others}; {remedy}.",
    "too noisy": "Sensitivity, tested with one cell ({arm}): too noisy to detect differences below {times}×{others}; "
    "{remedy}.",
    "in range": " ({many} smaller)",
    # Findings.
    "course": "{new} vs {old}{under}: {steps} ({evidence}).{turn}",
    "turns": "The order reverses {where}.",
    "turn": "between {before} and {after}",
    "of comparisons": "{many} comparisons, {evidence} each",
    "in comparisons": " in {many} of {of} comparisons",
    "with none": " without",
    "in some comparisons": "in {many} of {of} comparisons (see the figure)",
    "order": "{new} {effect} {than} {old}",
    "both the same": "{new} and {old} were {same}, ratio {ratio}",
    "step the same": "{same}, ratio {ratio}",
    "no evidence": "{nothing} of a difference: {doubt}",
    "step no evidence": "{nothing} of a difference ({doubt})",
    "ratios": ", ratio {ratios}",
    "ratio": "ratio {ratio}",
    "against": "{new} vs {old}{under}: ",
    "failures": "{who} in {failed} of {attempts} attempts [{low:.0f}, {high:.0f} %]",
    "failed sides": "; failed: {sides}",
    "explained": "; explained by requests, bytes and CPU time",
    "same direction": "; requests and bytes differ in the same direction",
    "not explained": "; not explained by requests or bytes{some}",
    "in decided": " in {many} of {of}",
    "corrected": "{which} 1, but the corrected p is too large",
    "excludes": "the interval excludes",
    "exclude": "{many} of {of} intervals exclude{s}",
    "at size": "at {first}",
    "up to size": "up to {last}",
    "from size on": "from {first} on",
    "between sizes": "from {first} to {last}",
    "at both": "at {first} and {last}",
    "at all sizes": "at every {noun} from {first} to {last}",
    # Limits of scaling.
    "arm": "{arm} (base: {level}{value})",
    "few repeats": "scaling not judged: fewer than {needed} complete repeats",
    "stops": "no speed-up shown beyond {at}: {metric} with {after} / with {at} = {ratio}",
    "still gains": "still faster at {most}, the largest number measured",
    # Leaders.
    "no leader": "No configuration was shown to be fastest.",
    "most without verdict": "{arm} had the highest rate {at}, but {why}.",
    "not told apart": "it is undecided whether {arms} {fastest} {at}{rest}",
    "headline undecided": "whether the {factors} matters is undecided",
    "headlines undecided": "whether {factors} matter is undecided",
    "fastest": "{arms} {fastest} {at}{among}{same}{rest}",
    "more arms": "{many} more",
    "values at ends": "{low} at {first}, {high} at {last}",
    "not judged": "; not judged: {arms}.",
    "outside": "{where}: no verdict on {arms} {at}.",
    "of those judged": " of those judged",
    "each as fast": ", equally fast",
    "unjudged": "it needs repeats to judge",
    "apart": "the configurations are not comparable",
    "few": "there are too few repeats for a verdict",
    "ahead": "it has no verdict, so the order is undecided",
    "slow blocks": "; in {slow} of {blocks} blocks {who} took {times} its usual time relative to the other",
    "slow blocks of both": "; in {slow} of {blocks} blocks the ratio was off by {times}",
    "detectable": "a difference of {times} would have been detected",
    "noisy": "too noisy to decide",
    "one small effect": "1 effect shown is",
    "small effects": "{many} effects shown are",
    # Controls of the verdict rule.
    "no control": "A/A control: no cell was measured twice, so false alarms were not counted.",
    "control": "A/A control ({cells} measured twice): false alarms {alarms}.",
    "control unjudged": "A/A control ({cells} measured twice): too few complete blocks to judge.",
    "alarms of the total": "in {alarms} of {of} comparisons of the total",
    "alarms of parts": "in {alarms} of {of} of its parts",
    "too few to judge": "too few complete blocks to judge any",
    "slowed unjudged": "Planted slowdowns of {shares}: {outcome}.",
    "slowed": "Sensitivity, over {runs} on this machine: planted slowdowns detected: {shares}; false alarms: {alarms} "
    "of {of}{bound}.{reached}",
    "slowed detected": "{percent} in {detected} of {of}",
    "alarms bound": " (upper bound {percent})",
    "waits": " Actual slowdowns in this run: {shares}.",
    "anew": "{control}: {outcome}{ratio}{runs}.",
    "times": ", {ratio:.2f} [{low:.2f}, {high:.2f}] times the time",
    "in runs": "; different in {differing} of {runs} on this machine",
    # Method.
    "each cell in each": "each of {repeats} measured every cell once",
    "each cell in some": "{complete} of {repeats} measured every cell once; the others lack some",
    "some cells in others": " {more} more measured some of the cells: times and rates of cells leave these out, "
    "comparisons do not.",
    "no full block": " No repeat measured every cell, so times and rates of different cells are of different repeats.",
    "in few orders": ", in {orders} only",
    "in own orders": ", in a new order each time",
    "time unknown": "start and end times are not known",
    "none overlap": "no two records overlap in time",
    "overlap": "{records} overlapped in time with an earlier record",
    "method of values": "Values are shown as they are; without repeats, differences are not judged.",
    "method of others": "The authors describe their method; the audit page quotes and tests it.",
    "method of ratios": "A comparison computes the ratio contender / baseline within each block: median, 95 % "
    "bootstrap CI over blocks, and a sign-flip test of whole blocks, corrected for all comparisons of a factor.",
    "method of verdicts": "Verdict {verdict}: {meaning}.",
    "method of metrics": "Verdicts use the {title}; the other metrics locate a difference.",
    "method of repeats": "Figures show outliers, too. Failed and invalid repeats are shown, but enter no verdict.",
    "families": "The comparisons of a factor on a metric are a family. If nothing differs, at most {percent} % of "
    "runs report a difference in a family. Families here: {parts}.",
    "families that decide": "{many} on the deciding metric (together at most {percent} %)",
    "families of parts": "{many} on other metrics (together at most {percent} %)",
    # Limits of the data.
    "invalid": '{repeats} of {cells} broke a rule of measuring and {be} in no verdict: see "Failed, invalid and left '
    'out".',
    "edited": '{repeats} of {cells} {been} edited after it was written and {be} in no verdict: see "Failed, invalid '
    'and left out".',
    "failed": '{repeats} of {cells} failed: see "Failed, invalid and left out".',
    "few repeats of cells": "{cells} {have} fewer than {needed} valid repeats, too few for a verdict.",
    "cold": '"Cold" refers to the page caches of the reading machines and of an embedded server; caches of '
    "hypervisor, disk and remote services are not controlled.",
    "odd cache": "The requested cache state could not be verified in {cells}.",
    "oversubscribed": "In {cells} more workers or processes ran than there are cores; they compete for the cores, so "
    "scaling beyond the cores means little.",
    "harness": "In {cells} the harness takes more than {percent} % of the {title}, up to {most} %; see the table of "
    "its cost.",
    "unequal": "{many} {are} left out: the two sides deliver different amounts.",
    "untried": "{many} {are} left out: at least one of the two cells was never tried.",
    "unmade": "{many} {are} left out: different versions of the measuring code measured the two sides, or no session "
    "on a single machine has both; {again} measures cells again.",
    "lacking": "{many} lack{s} blocks, because their two sides were not measured in the same session on the same "
    "machine; {table} lists them.",
    "serial": "Successive blocks are correlated (p = {p} over all comparisons), so false verdicts are more frequent "
    "than stated{some}; measure again at another time.",
    "serial looks": ", above all the {many} that rest{s} on blocks added after the first look (see All verdicts)",
    "of sessions": "Intervals are of the repeats of {sessions}; intervals of another session may lie apart from them.",
    "stalls": "Verdicts “same” do not rule out stalls in fewer than {percent} % of reads.",
    "kept": "Verdicts hold for {parts}.",
    "kept data": "a single placement of the data",
    "kept build": "a single build",
    "reference limit": "{reference}: {limit}.",
    "reference not against": "{reference} is missing from figures over {axes}: this run has no matching level with "
    "the same read and kind of store.",
    "reference nowhere": "{reference} is not drawn: this run lacks comparable cells.",
    "withheld": "{many} withheld: contradicted by the raw records or by a sentence above.",
    "unchecked": "Statements are not checked against the raw records: these tables are from an earlier version.",
    # Advice.
    "use": "{situation}use {choices}: {time}.",
    "with rest": "{time} ({rest})",
    "with rest, too": "{time}, {rest}",
    "times at levels": "{low} ({of_low}) to {high} ({of_high})",
    "rather": "{level} ({others})",
    "gain": "{gain}× as fast as {other}",
    "too many repeats": "{comparisons} without evidence of a difference ({pairs}): to detect a difference of "
    "{percent} % there, more than {most} repeats would be needed.",
    "more repeats": "{comparisons} without evidence of a difference ({pairs}): {more} more repeats{about} would detect "
    "a difference of {percent} %; raise {repeats} to {needed} and run again.",
    # Runs that measure until they can decide.
    "looks taken": "After {blocks} of at most {most} blocks: {parts}.",
    "decided of": "{decided} of {comparisons} decided",
    "given up": "{many} given up, as more blocks would not decide them",
    "not comparable": "{many} not comparable",
    "still open": "{many} open",
    "looks": "Each row is a look at the results; a comparison ends at the look that decides it or gives it up. At most "
    "{many} comparisons, those with most looks.",
    "more blocks": "to detect 10 % there, raise {repeats} to {needed}",
    "steadier": "to detect 10 % there, let each repeat read more data, or use a quieter machine",
    # Reasons.
    "moved": "{new} transferred {of_new}; {old} transferred {of_old}.{why}",
    "costs": "1,000 such {work} cost {of_new} USD with {new} and {of_old} USD with {old} ({prices}).",
    "prices": "requests to {title}{transfer}, list prices of {dates}",
    "emulated prices": "as requests to {title}{transfer}, list prices of {dates}",
    "prices of transfer": " and transfer out of the region",
    "moved by side": "{size} MiB in {requests}",
    "as measured": "A model of requests, bytes, CPU time and opens predicts {model}× the time of {old}, which agrees "
    "with the measured {measured}×.",
    "same way": "A model of requests, bytes, CPU time and opens predicts {model}× the time of {old} (measured: "
    "{measured}×): the same direction.",
    "unexplained": "A model of requests, bytes, CPU time and opens predicts {model}× the time of {old} (measured: "
    "{measured}×): {strong}.",
    "by neither": "requests and bytes do not explain it",
    # Captions of figures, and optional parts of them.
    "comparisons of blocks": "Ratio of {title}, first name to second name: median over all blocks [95 % CI].",
    "comparisons of jobs": "Ratio of {title}, first name to second name [95 % CI].",
    "first is": " Left of 1, the first is {less}. Shaded: the same within ±{percent:g} %.",
    "question first": " The comparisons of the {factor}, which the question is about, come first.",
    "marks": "Small marks: repeats; large mark and bar: their summary with its 95 % CI, from 6 repeats on.",
    "grey marks": "Grey and hollow: published values, from other machines with unknown cache states; in no summary or "
    "verdict.",
    "first panels": " The first {drawn} of {of} panels are drawn; the numbers have all.",
    "dotted bound": " Dotted lines or stars: the highest rate of the {bound} in the panel's cells.",
    "performance ratio": "Median {title} at the arm's smallest level divided by the median here; above 1 is faster. "
    "Intervals leave out the uncertainty of the base.",
    # Captions of tables, meanings of their colours, and text in particular cells.
    "table of ratios": "{value}, medians. Above 1: faster than {base} under the same conditions.",
    "table at a glance": "{new} vs {old}, a column per metric. The {title} decides; the other columns locate a "
    "difference.",
    "table of verdicts": "All comparisons of the {title}: ratio of first name to second name, median over all blocks; "
    "p, corrected for all comparisons of the factor; number of looks at the results, as blocks were added."
    "{where}",
    "colours of verdicts": "the verdict, grey if undecided",
    "table of requests": "Requests and bytes that reached the store within the timed window (medians over the "
    "repeats), connections opened, and the mean number of requests in flight while there was any. Amplification: "
    "bytes delivered (offered, if delivery was not measured) / bytes of data; below 1 if data are compressed.{prices}",
    "prices of table": " USD: {prices} ({file}), without storage, discounts and free tiers.",
    "table of conditions": "Conditions in force, as read back from library and system. In memory: share of the files "
    "in this machine's page cache. Outlying: repeats outside Tukey's fences, flagged but not removed.",
    "table of harness": "Median cost of the harness. The {title} includes only planning and dispatch; empty work, "
    "which moves no bytes, shows their cost. Start-up and verification are not included.",
    "colours of harness": "the harness takes more than {percent} % of the {title}",
    "table of trouble": "Failed repeats, and repeats that broke a rule of measuring ([INVALID]) or changed after they "
    "were written ([EDITED]): shown, but in no verdict.",
    "table of omitted": "Combinations of the matrix that were not measured.",
    "table of attempts": "Earlier failures, moved aside and repeated.",
    "table of machine": "The measuring machine.",
    "table of nodes": "Time of a record / median time of its cell on all nodes: quartiles of each node.",
    "table of data": "The data, as read back from the files.",
    "table of libraries": "The libraries under test.",
    "table of best": "The fastest configuration measured: median {title} [95 % CI].{without}{common}",
    "best without failures": " Configurations with failures are listed only if all have failures.",
    "failed attempts": " ({failed:.0f} of {attempts:.0f} failed)",
}


def make_fill(templates: Mapping[str, str]) -> Callable[..., str]:
    """Return a function that fills in one of the given templates."""

    def fill(name: str, /, **values: object) -> str:
        return templates[name].format(**values)

    return fill


fill = make_fill(TEMPLATES)


def get_outcome(outcome: str, percent: float = 5) -> str:
    """Return the phrase that describes an outcome in a sentence."""
    return OUTCOMES.get(Outcome(outcome), outcome).format(percent=percent)


def get_counted(outcome: str) -> str:
    """Return the phrase that follows a number of comparisons with an outcome, as in "3 with too few repeats"."""
    return COUNTED.get(Outcome(outcome), get_outcome(outcome))


def get_mark(outcome: str) -> str:
    """Return the phrase for an outcome in tables and figures, which omits the range that counts as the same."""
    return Outcome.SAME if outcome == Outcome.SAME else get_outcome(outcome)
