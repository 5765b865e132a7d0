"""Advice on files: whether and how to repack them, how to open them, and the gain over the files as they are."""

import math
from collections.abc import Callable

import pandas as pd

from scripts.lib import sizes
from scripts.report import comparisons, names, pages, prose, recommendation, words
from scripts.report.headline import Said
from scripts.report.markup import bold, bullets, code
from scripts.report.page import Page, Table
from scripts.report.plot import Figure
from scripts.report.results import Results
from scripts.report.statements import Comparison, Counts, Gain, NoGain, Statement
from scripts.statistics.outcomes import JUDGED
from scripts.studies.shots.arms import key_of
from scripts.studies.shots.probe import is_miss, mean
from scripts.studies.shots.report import opening
from scripts.studies.shots.report.opening import Target
from scripts.studies.shots.report.ways import DETECTED, Advice, Way, facts_of, read_advice
from scripts.studies.shots.trial import LONGEST_S, ORIGINAL, WORTH

_KINDS = {
    "paged": "repack the files with pages",
    "chunks": "repack the files with other chunks",
    "large": "merge all files into one, with pages",
}


def lines(run: Results) -> list[str]:
    """Return the lines that advice ends with, in plain text."""
    if not (advice := read_advice(run)):
        return ["advice: none, since the files as they are could not be measured; the report lists the reasons"]
    notes = [f"note:   {note}" for note in _list_notes(advice, run)]
    gain = _gain(advice, lambda *of: f"{_times(*of)}: {_effort(*of)}")
    if advice.best is not advice.base:
        gain += f", {_cost(advice.facts, advice.best)}"
    if not run.select([(gain, state(advice, run))]):
        return [f"advice: {words.fill('withheld', many='none')}", *notes]
    undecided = "undecided, leave the files as they are until it is"
    repack = undecided if advice.is_undecided else _repack(advice.facts, advice.best)
    return [*_lines(advice, advice.best, gain, repack), *notes]


def state(advice: Advice, run: Results) -> tuple[Statement, ...]:
    """Return what advice states of measured times and requests: what the best way gains, or that none does."""
    if advice.best is advice.base:
        faster = (*advice.uneven, *advice.faster)
        others = [way for way in advice.ways if way.rows.keys() == advice.shares.keys() and way not in faster]
        gained = [Gain(_comparisons(copy, run), tuple(advice.shares.values())) for copy in [advice.copy] if copy]
        return (NoGain(tuple(_comparisons(way, run) for way in others)), *gained)
    both = [[way.cells[level] for level in advice.shares] for way in (advice.best, advice.base)]
    cells = tuple(tuple(cell["cell"] for cell in side) for side in both)
    requests = [[float(cell.get("requests", math.nan)) for cell in side] for side in both]
    spans = tuple((min(side), max(side)) for side in requests)
    counts = () if math.isnan(sum(map(sum, requests))) else (("requests", *spans),)
    return Gain(_comparisons(advice.best, run), tuple(advice.shares.values())), Counts(cells, counts)


def _comparisons(way: Way, run: Results) -> tuple[Comparison, ...]:
    return run.to_comparisons(pd.DataFrame(way.rows.values()))


def lines_by_forecast(facts: dict) -> list[str]:
    """Return the lines for advice without any measurement."""

    def rank(way: Way) -> tuple[float, float]:
        return mean(way.arm, "seconds", facts), mean(way.arm, "bytes", facts)

    ways = [Way(arm) for arm in facts["considered"] if arm["layout"] in (ORIGINAL, *facts["copies"])]
    base, best = ways[0], min((way for way in ways if way.layout == ORIGINAL), key=rank)
    best = best if rank(best)[0] < WORTH * rank(base)[0] else base
    copy = min(ways, key=rank)
    best = copy if rank(copy)[0] < WORTH * rank(best)[0] else best
    gain = f"by forecast, not measured: {_forecast(best.arm, facts)}"
    if best is not base:
        times = names.times(rank(base)[0] / rank(best)[0])
        gain += f" instead of {_forecast(base.arm, facts)} with {base.name}, {times} times as fast"
    return _lines(Advice(facts, ways, base), best, gain, _repack(facts, best))


def _lines(advice: Advice, best: Way, gain: str, repack: str) -> list[str]:
    target = _target(advice.facts, best)
    printed = [f"repack: {repack}", f"open:   {opening.with_h5py(best.arm, target)}"]
    if best.arm["driver"] == "ros3":
        other = advice.find_best_of("s3fs", best.layout)
        printed.append(f"        ({opening.ROS3})")
        printed += [f"or:     {opening.with_h5py(other.arm, target)}"] if other else []
    return [*printed, f"gain:   {gain}"]


def answer(run: Results) -> pages.Answer | None:
    """Return the answer of a run that was made for advice; None of other runs."""
    if not (advice := read_advice(run)):
        return None
    best, target = advice.best, _target(advice.facts, advice.best)
    by_ros3 = best.arm["driver"] == "ros3"
    to_do = [f"Repack: {code(_repack(advice.facts, best))}"] if best.layout != ORIGINAL else []
    to_do.append(f"Open: {code(opening.with_h5py(best.arm, target))}" + f" ({opening.ROS3})" * by_ros3)
    to_do += [f"With xarray: {code(line)}" for line in [opening.with_xarray(best.arm, target)] if line]
    if by_ros3 and (other := advice.find_best_of("s3fs", best.layout)):
        to_do.append(f"With PyPI's h5py: {code(opening.with_h5py(other.arm, target))}")
    text = bold(prose.capital("undecided" if advice.is_undecided else _recommend(best)))
    to_do += recommendation.more_repeats(run) if advice.is_undecided else []
    said = [(f"{text}: {_gain(advice, _times)}.", state(advice, run))]
    return pages.Answer(pages.select_headline(said, run), to_do, _picture(advice, run))


def reasons(run: Results) -> list[Said]:
    """Return sentences on why some ways are slow, and on how forecasts compare; none for other runs."""
    if not (advice := read_advice(run)):
        return []
    effort = [] if advice.best is advice.base else [_gain(advice, _effort), _cost(advice.facts, advice.best)]
    return [(f"{prose.capital(note)}.", ()) for note in [", ".join(effort), *_list_notes(advice, run)] if note]


def outcome(run: Results) -> dict:
    """Return the recommended way, or the best other one if nothing helps, against the files as they are.

    {"arm", "layout", "opened" (driver and settings), "verdict" ("" without one), "gain": how many times as fast, nan
    where it was not measured}, of the first access.
    """
    advice = read_advice(run)
    way = advice.best
    if way is advice.base:
        others = [other for other in advice.ways if other.rows]
        way = min(others, key=lambda other: advice.ratio(other, "ratio"), default=way)
    row = next(iter(way.rows.values()), {"verdict": "", "ratio": math.nan})
    measured = {"arm": way.arm, "layout": way.layout, "opened": way.name, "verdict": row["verdict"]}
    return measured | {"gain": 1 / row["ratio"]}


def show(page: Page, run: Results) -> None:
    """Show all ways with forecasts and measurements, and the copies, if advice was asked of a run."""
    if facts := facts_of(run):
        page.section("What was considered", bullets([f"Place: {facts['place']}.", *_list_copies(facts)]))
        page.table(_considered(run, facts), "")


def _picture(advice: Advice, run: Results) -> Figure:
    tried = [(way, level, row) for way in advice.ways for level, row in way.rows.items()]
    several = len(advice.shares) > 1
    rows = pd.DataFrame([row for *_, row in tried])
    labels = [f"{way.layout}, {way.name}" + f", {level}" * several for way, level, _ in tried]
    title = f"Against the files as they are, {advice.base.name}"
    panels = (comparisons.panel(rows, labels, title, run),) if tried else ()
    caption = comparisons.caption(run, rows) if tried else ""
    return Figure("advice", "What was measured", caption, panels, comparisons.numbers(run, rows) if tried else rows)


def _gain(advice: Advice, describe: Callable[[Advice, str], str]) -> str:
    """Return the gain of the recommended way over the files as they are, as described for each access."""
    best, base = advice.best, advice.base
    if best is base:
        text = f"no way was shown to be faster than the files as they are, read with {base.name}{_each(advice, base)}"
        if copy := advice.copy:
            gains = f"{names.times(1 / advice.ratio(copy, 'ratio'))}×"
            text = (
                f"no way without a copy was shown to be faster than {base.name}{_each(advice, base)}, and"
                f" {copy.layout} with {copy.name} gains too little for one ({gains})"
            )
        unseen = f"; gains below {names.times(advice.detectable)} times could not be detected"
        return text + (unseen if advice.detectable > DETECTED else "")
    shares = advice.shares.items() if len(advice.shares) > 1 else [(next(iter(advice.shares)), None)]
    parts = ((f"{level} ({100 * share:.0f} %): " if share else "") + describe(advice, level) for level, share in shares)
    return "; ".join([*parts, *_of_files(advice)])


def _of_files(advice: Advice) -> list[str]:
    """Return the gain by file, and of which files that is."""
    if not (many := len(advice.best.gains)):
        together = any(cell.get("access") == "datasets" for cell in advice.best.cells.values())
        return ["of these files alone"] if together else []
    gains = f"{prose.span(advice.quoted, names.times)}×"
    files = "this file" if many == 1 else f"these {many} files"
    if not advice.is_of_others:
        return [f"of {files} alone {gains}"]
    rest = len(advice.quoted)
    of = f"the {rest} of {files} by which it was not chosen" if rest < many else f"each of {files}"
    return [f"of {of} {gains}"]


def _list_notes(advice: Advice, run: Results) -> list[str]:
    notes = [*advice.facts["unsuited"], *_list_unjudged(advice), *_list_clients(advice, run)]
    notes += _list_misses(advice, run)
    notes += [_describe_uneven(way) for way in advice.uneven]
    return [*notes, *_list_unmeasured(advice)]


def _times(advice: Advice, level: str) -> str:
    row = advice.best.rows[level]
    ratio, *ends = (1 / row[key] for key in ("ratio", "ratio_high", "ratio_low"))
    # The harness's own time may be a part of either side's.
    bound = "" if pd.isna(row.get("harness_percent")) else "at least " if ratio > 1 else "at most "
    than = f"as {'' if advice.best.layout == ORIGINAL else 'the files as they are '}with {advice.base.name}"
    return f"{bound}{names.times(ratio)} [{', '.join(map(names.times, ends))}] times as fast {than}"


def _effort(advice: Advice, level: str) -> str:
    """Return the seconds and requests of an object before and after, for one access."""
    both = [way.cells[level] for way in (advice.best, advice.base)]
    text = " instead of ".join(f"{prose.number(cell['total_s'] / advice.files)} s" for cell in both) + " per read"
    counts = [cell.get("requests", math.nan) for cell in both]
    if any(map(pd.isna, counts)):
        return text
    after, before = (f"{count / advice.files:,.0f}" for count in counts)
    return f"{text}, {after} requests instead of {before}"


def _each(advice: Advice, way: Way) -> str:
    return " in " + " and ".join(
        f"{prose.number(cell['total_s'] / advice.files)} s" + f" ({level})" * (len(way.cells) > 1)
        for level, cell in way.cells.items()
    )


def _list_clients(advice: Advice, run: Results) -> list[str]:
    """Return the times of the first file and of each further one, where a record reads several with one client."""
    times = [_first_and_next(run, way) for way in (advice.best, advice.base)]
    if advice.files < 2 or None in times:
        return []
    (first, further), (first_before, further_before) = times
    if advice.best is advice.base:
        return [f"the first file {prose.number(first)} s, each further one {prose.number(further)} s"]
    return [
        f"the first file {prose.number(first)} instead of {prose.number(first_before)} s, each further one"
        f" {prose.number(further)} instead of {prose.number(further_before)} s"
    ]


def _first_and_next(run: Results, way: Way) -> tuple[float, float] | None:
    cells = {cell["cell"] for cell in way.cells.values()}
    samples = run.samples[run.samples["cell"].isin(cells)]
    order = samples.groupby(["cell", "repeat"], observed=True).cumcount()
    seconds = samples["open+read-data-time"]
    return (seconds[order == 0].median(), seconds[order > 0].median()) if (order > 0).any() else None


def _list_misses(advice: Advice, run: Results) -> list[str]:
    """Return the measured ways that took much longer than their forecast and their processor time."""
    cpu = run.samples.groupby(["cell", "repeat"], observed=True)["cpu-time"].sum().groupby("cell").median()
    missed = []
    for way in advice.ways:
        for level, cell in way.cells.items():
            expected = way.arm["seconds"][level] + cpu.get(cell["cell"], 0) / advice.files
            if is_miss(taken := cell["total_s"] / advice.files, expected):
                of = f" for {level}" * (len(advice.shares) > 1)
                missed.append(
                    f"{way.layout} with {way.name} took {names.times(taken / expected)} times its forecast{of}"
                )
    return missed


def _list_unjudged(advice: Advice) -> list[str]:
    ways: dict[str, list[str]] = {}
    for way in advice.unjudged:
        verdicts = {row["verdict"] for row in way.rows.values()} - set(JUDGED)
        ways.setdefault(min(verdicts, default="not measured"), []).append(f"{way.layout} with {way.name}")
    return [f"not decided ({verdict}): {prose.listing(of)}" for verdict, of in ways.items()]


def _describe_uneven(way: Way) -> str:
    gaining = sum(gain > 1 for gain in way.gains.values())
    gains = f"{prose.span(way.gains.values(), names.times)}×, on {gaining} of these {len(way.gains)} files more than 1×"
    return f"not advised, as other files may gain nothing: {way.layout} with {way.name}, {gains}"


def _list_unmeasured(advice: Advice) -> list[str]:
    """Return the way without any setting where it takes too long to be measured."""
    first = advice.facts["considered"][0]
    if key_of(first) == key_of(advice.base.arm):
        return []
    return [f"{Way(first).name}: {_forecast(first, advice.facts)} by forecast, too long to be measured"]


def _forecast(arm: dict, facts: dict) -> str:
    requests, size, seconds = (mean(arm, what, facts) for what in ("requests", "bytes", "seconds"))
    return f"{requests:,.0f} requests, {sizes.text(round(size))} and {_duration(seconds)}"


def _duration(seconds: float) -> str:
    if seconds < 2 * LONGEST_S:
        return f"{prose.number(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _target(facts: dict, best: Way) -> Target:
    where = facts["where"]
    return Target(where["files"].get(best.layout, where["files"][ORIGINAL]), where["region"], where["groups"])


def _cost(facts: dict, best: Way) -> str:
    if best.layout == ORIGINAL:
        return "without a copy"
    copy = facts["copies"][best.layout]
    change = 100 * (copy["copy_bytes"] / copy["original_bytes"] - 1)
    took = copy["seconds"] / (copy["original_bytes"] / 2**30)
    return f"for a copy of {change:+.0f} % bytes that takes {prose.number(took)} s per GiB to make"


def _repack(facts: dict, best: Way) -> str:
    return facts["copies"][best.layout]["typed"] if best.layout != ORIGINAL else "no, leave the files as they are"


def _recommend(best: Way) -> str:
    files = "leave the files as they are" if best.layout == ORIGINAL else _KINDS[best.layout.partition("-")[0]]
    return f"{files}, and read them with {best.name}"


def _list_copies(facts: dict) -> list[str]:
    """Return how each set of copies was made, and why others could not be."""
    made = [
        f"{name}: {code(copy['typed'])}; {sizes.text(copy['original_bytes'])} became {sizes.text(copy['copy_bytes'])}"
        f" in {prose.number(copy['seconds'])} s"
        for name, copy in facts["copies"].items()
    ]
    return made + [f"Left out: {reason}" for reason in facts["left_out"]]


def _considered(run: Results, facts: dict) -> Table:
    advice = read_advice(run)
    measured = {key_of(way.arm): way.cells for way in advice.ways} if advice else {}
    rows = []
    for arm in facts["considered"]:
        for level in facts["accesses"]:
            cell = measured.get(key_of(arm), {}).get(level, {})
            row = {"files": arm["layout"], "driver and setting": Way(arm).name, "access": level}
            row |= {"requests": arm["requests"][level], "MiB": arm["bytes"][level] / 2**20}
            row |= {"time / s": arm["seconds"][level], **_per_object(cell, advice)}
            rows.append(row)
    caption = (
        "Ways to read one object, by HDF5's reads of the first file and each driver's requests for them: a round trip"
        " for each request, and all bytes at the rate of one connection, without computing. Measured: medians."
    )
    frame = pd.DataFrame(rows).sort_values("time / s", kind="stable", ignore_index=True)
    frame = frame.drop(columns="access") if len(facts["accesses"]) == 1 else frame
    number = dict.fromkeys(("MiB", "time / s", "time, measured / s"), prose.number)
    return Table(
        "considered", caption, frame, number | {"requests": "{:,.0f}".format, "requests, measured": "{:,.0f}".format}
    )


def _per_object(cell: dict, advice: Advice | None) -> dict[str, float]:
    """Return the measured requests and seconds of one object; nan where there are none."""
    requests, seconds = (cell.get(key, math.nan) for key in ("requests", "total_s"))
    files = advice.files if advice else 1
    return {"requests, measured": requests / files, "time, measured / s": seconds / files}
