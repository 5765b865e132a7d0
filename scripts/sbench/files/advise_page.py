"""Present advice on files: whether and how to repack them, how to open them, and the gain over the original files."""

import itertools
import math
from collections.abc import Callable

import pandas as pd

from sbench.files import opening_code, words
from sbench.files.opening_code import Target
from sbench.files.probes import compute_mean, is_miss
from sbench.files.trial import LONGEST_S, ORIGINAL, WORTH
from sbench.files.ways import DETECTED, Advice, Way, get_advice_facts, read_advice
from sbench.pages import comparisons, names, pages, prose, recommendation
from sbench.pages import words as shared
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, bullets, code
from sbench.pages.page import Page, Table
from sbench.pages.plot import Figure
from sbench.pages.results import Results
from sbench.pages.statements import Comparison, Counts, Gain, NoGain, Statement
from sbench.probe import sizes
from sbench.studies.shots.arms import get_arm_key
from sbench.verdicts.outcomes import JUDGED


def format_advice(run: Results) -> list[str]:
    """Format the advice as lines of plain text."""
    if not (advice := read_advice(run)):
        return [f"advice: {words.fill('no advice')}"]
    notes = [f"note:   {note}" for note in _list_notes(advice, run)]
    gain = _describe_gain(advice, lambda *of: f"{_describe_ratio(*of)}: {_describe_effort(*of)}")
    if advice.best is not advice.base:
        gain += f", {_describe_cost(advice.facts, advice.best)}"
    if not run.select_sentences([(gain, build_statements(advice, run))]):
        return [f"advice: {shared.fill('withheld', many='none')}", *notes]
    repack = words.fill("undecided") if advice.is_undecided else _describe_repack(advice.facts, advice.best)
    return [*_format_lines(advice, advice.best, gain, repack), *notes]


def build_statements(advice: Advice, run: Results) -> tuple[Statement, ...]:
    """Build the statements of the advice, which can be checked against the records.

    They state how much faster the recommended way to read is and how many requests it needs, or that no way is faster.
    """
    if advice.best is advice.base:
        faster = (*advice.uneven, *advice.faster)
        others = [way for way in advice.ways if way.rows.keys() == advice.shares.keys() and way not in faster]
        gained = [
            Gain(_list_comparisons(copy, run), tuple(advice.shares.values())) for copy in [advice.rejected_copy] if copy
        ]
        return (NoGain(tuple(_list_comparisons(way, run) for way in others)), *gained)
    both = [[way.cells[level] for level in advice.shares] for way in (advice.best, advice.base)]
    cells = tuple(tuple(cell["cell"] for cell in side) for side in both)
    requests = [[float(cell.get("requests", math.nan)) for cell in side] for side in both]
    spans = tuple((min(side), max(side)) for side in requests)
    counts = () if math.isnan(sum(map(sum, requests))) else (("requests", *spans),)
    return Gain(_list_comparisons(advice.best, run), tuple(advice.shares.values())), Counts(cells, counts)


def _list_comparisons(way: Way, run: Results) -> tuple[Comparison, ...]:
    return run.to_comparisons(pd.DataFrame(way.rows.values()))


def format_forecast_advice(facts: dict) -> list[str]:
    """Format advice that is based on forecasts alone as lines of plain text.

    Args:
        facts: section `advice` of the configuration.
    """

    def compute_rank(way: Way) -> tuple[float, float]:
        return compute_mean(way.arm, "seconds", facts), compute_mean(way.arm, "bytes", facts)

    ways = [Way(arm) for arm in facts["considered"] if arm["layout"] in (ORIGINAL, *facts["copies"])]
    base, best = ways[0], min((way for way in ways if way.layout == ORIGINAL), key=compute_rank)
    best = best if compute_rank(best)[0] < WORTH * compute_rank(base)[0] else base
    copy = min(ways, key=compute_rank)
    best = copy if compute_rank(copy)[0] < WORTH * compute_rank(best)[0] else best
    gain = words.fill("by forecast", forecast=_describe_forecast(best.arm, facts))
    if best is not base:
        times = names.format_two_digits(compute_rank(base)[0] / compute_rank(best)[0])
        gain += words.fill("instead", forecast=_describe_forecast(base.arm, facts), base=base.name, times=times)
    return _format_lines(Advice(facts, ways, base), best, gain, _describe_repack(facts, best))


def _format_lines(advice: Advice, best: Way, gain: str, repack: str) -> list[str]:
    target = _build_target(advice.facts, best)
    printed = [f"repack: {repack}", f"open:   {opening_code.build_h5py_code(best.arm, target)}"]
    if best.arm["driver"] == "ros3":
        other = advice.find_best_of("s3fs", best.layout)
        printed.append(f"        ({words.fill('ros3')})")
        printed += [f"or:     {opening_code.build_h5py_code(other.arm, target)}"] if other else []
    return [*printed, f"gain:   {gain}"]


def build_answer(run: Results) -> pages.Answer | None:
    """Build the headline, next steps and figure of an advice run; None for other runs."""
    if not (advice := read_advice(run)):
        return None
    best, target = advice.best, _build_target(advice.facts, advice.best)
    by_ros3 = best.arm["driver"] == "ros3"
    to_do = [f"Repack: {code(_describe_repack(advice.facts, best))}"] if best.layout != ORIGINAL else []
    to_do.append(f"Open: {code(opening_code.build_h5py_code(best.arm, target))}" + f" ({words.fill('ros3')})" * by_ros3)
    to_do += [f"With xarray: {code(line)}" for line in [opening_code.build_xarray_code(best.arm, target)] if line]
    if by_ros3 and (other := advice.find_best_of("s3fs", best.layout)):
        to_do.append(f"With PyPI's h5py: {code(opening_code.build_h5py_code(other.arm, target))}")
    text = bold(prose.capitalize_first("undecided" if advice.is_undecided else _describe_recommendation(best)))
    to_do += recommendation.describe_needed_repeats(run) if advice.is_undecided else []
    fields = [(f"{text}: {_describe_gain(advice, _describe_ratio)}.", build_statements(advice, run))]
    return pages.Answer(pages.select_headline(fields, run), to_do, _draw_ways(advice, run))


def list_reasons(run: Results) -> list[Sentence]:
    """Return the sentences that support the advice: times, requests, cost of copies, and notes.

    The list is empty if the run is not for advice.
    """
    if not (advice := read_advice(run)):
        return []
    effort = (
        []
        if advice.best is advice.base
        else [_describe_gain(advice, _describe_effort), _describe_cost(advice.facts, advice.best)]
    )
    return [(f"{prose.capitalize_first(note)}.", ()) for note in [", ".join(effort), *_list_notes(advice, run)] if note]


def describe_outcome(run: Results) -> dict:
    """Describe how the recommended way to read compares with the original files, for the first access.

    If no way is faster, describe the best of the remaining ways instead.

    Returns:
        arm, layout: the arm, and the name of its set of files.
        opened: driver and settings.
        verdict: verdict against the original files; an empty string if not measured.
        gain: speed-up over the original files; NaN if not measured.
    """
    advice = read_advice(run)
    way = advice.best
    if way is advice.base:
        others = [other for other in advice.ways if other.rows]
        way = min(others, key=lambda other: advice.compute_ratio(other, "ratio"), default=way)
    row = next(iter(way.rows.values()), {"verdict": "", "ratio": math.nan})
    measured = {"arm": way.arm, "layout": way.layout, "opened": way.name, "verdict": row["verdict"]}
    return measured | {"gain": 1 / row["ratio"]}


def show_ways(page: Page, run: Results) -> None:
    """Render the list of copies, and the table of forecasts and measurements, if the run is for advice."""
    if facts := get_advice_facts(run):
        page.show_section("Ways considered", bullets([words.fill("place", place=facts["place"]), *_list_copies(facts)]))
        page.show_table(_build_ways_table(run, facts), "")


def _draw_ways(advice: Advice, run: Results) -> Figure:
    tried = [(way, level, row) for way in advice.ways for level, row in way.rows.items()]
    several = len(advice.shares) > 1
    rows = pd.DataFrame([row for *_, row in tried])
    labels = [f"{way.layout}, {way.name}" + f", {level}" * several for way, level, _ in tried]
    title = f"Against the original files, {advice.base.name}"
    panels = (comparisons.build_panel(rows, labels, title, run),) if tried else ()
    caption = comparisons.write_caption(run, rows) if tried else ""
    return Figure("advice", "Measured ways", caption, panels, comparisons.select_numbers(run, rows) if tried else rows)


def _describe_gain(advice: Advice, describe: Callable[[Advice, str], str]) -> str:
    """Describe how much faster the recommended way is than reading the original files.

    Args:
        advice: the measured ways.
        describe: function of the advice and an access that describes the gain for this access.
    """
    best, base = advice.best, advice.base
    if best is base:
        fields = {"base": f"{base.name}{_describe_seconds(advice, base)}"}
        text = words.fill("none faster", **fields)
        if copy := advice.rejected_copy:
            gain = names.format_two_digits(1 / advice.compute_ratio(copy, "ratio"))
            text = words.fill("none without copy", **fields, layout=copy.layout, way=copy.name, gain=gain)
        unseen = words.fill("unseen", times=names.format_two_digits(advice.detectable_gain))
        return text + (unseen if advice.detectable_gain > DETECTED else "")
    shares = advice.shares.items() if len(advice.shares) > 1 else [(next(iter(advice.shares)), None)]
    parts = ((f"{level} ({100 * share:.0f} %): " if share else "") + describe(advice, level) for level, share in shares)
    return "; ".join([*parts, *_describe_file_gains(advice)])


def _describe_file_gains(advice: Advice) -> list[str]:
    """Describe the range of speed-ups over individual files, and to which files the advice applies."""
    if not (many := len(advice.best.gains)):
        together = any(cell.get("access") == "datasets" for cell in advice.best.cells.values())
        return [words.fill("these alone")] if together else []
    rest, which = len(advice.quoted_gains), "gains alone"
    if advice.is_of_others:
        which = "gains of rest" if rest < many else "gains of each"
    files = words.fill("this file" if many == 1 else "these files", many=many)
    return [
        words.fill(which, files=files, rest=rest, gains=prose.format_span(advice.quoted_gains, names.format_two_digits))
    ]


def _list_notes(advice: Advice, run: Results) -> list[str]:
    notes = [*advice.facts["unsuited"], *_list_unjudged(advice), *_list_clients(advice, run)]
    notes += _list_misses(advice, run)
    notes += [_describe_uneven(way) for way in advice.uneven]
    return [*notes, *_list_unmeasured(advice)]


def _describe_ratio(advice: Advice, level: str) -> str:
    row = advice.best.rows[level]
    ratio, *ends = (1 / row[key] for key in ("ratio", "ratio_high", "ratio_low"))
    # The ratio is only a bound if the overhead of the benchmark is part of the times.
    bound = "" if pd.isna(row.get("harness_percent")) else "at least " if ratio > 1 else "at most "
    fields = {
        "bound": bound,
        "times": names.format_two_digits(ratio),
        "ends": ", ".join(map(names.format_two_digits, ends)),
    }
    than = "as fast" if advice.best.layout == ORIGINAL else "as fast as files"
    return words.fill(than, **fields, base=advice.base.name)


def _describe_effort(advice: Advice, level: str) -> str:
    """Describe the time and the number of requests per object, for the recommended way and for the baseline.

    `level` is the access to describe.
    """
    both = [way.cells[level] for way in (advice.best, advice.base)]
    after, before = (prose.format_number(cell["total_s"] / advice.files) for cell in both)
    effort = words.fill("effort", after=after, before=before)
    after, before = (cell.get("requests", math.nan) / advice.files for cell in both)
    if pd.isna(after) or pd.isna(before):
        return effort
    return words.fill("effort and requests", effort=effort, after=after, before=before)


def _describe_seconds(advice: Advice, way: Way) -> str:
    return " in " + " and ".join(
        f"{prose.format_number(cell['total_s'] / advice.files)} s" + f" ({level})" * (len(way.cells) > 1)
        for level, cell in way.cells.items()
    )


def _list_clients(advice: Advice, run: Results) -> list[str]:
    """Return a note with the times of the first file and of later files that are read with the same client.

    The list is empty if each client reads a single file.
    """
    times = [_compute_file_times(run, way) for way in (advice.best, advice.base)]
    if advice.files < 2 or None in times:
        return []
    keys = ("first", "further", "first_before", "further_before")
    fields = {key: prose.format_number(time) for key, time in zip(keys, itertools.chain(*times), strict=True)}
    return [words.fill("files of client" if advice.best is advice.base else "files of clients", **fields)]


def _compute_file_times(run: Results, way: Way) -> tuple[float, float] | None:
    cells = {cell["cell"] for cell in way.cells.values()}
    samples = run.samples[run.samples["cell"].isin(cells)]
    order = samples.groupby(["cell", "repeat"], observed=True).cumcount()
    seconds = samples["open+read-data-time"]
    return (seconds[order == 0].median(), seconds[order > 0].median()) if (order > 0).any() else None


def _list_misses(advice: Advice, run: Results) -> list[str]:
    """Return a note for each way to read that took much longer than its forecast and its CPU time together."""
    cpu = run.samples.groupby(["cell", "repeat"], observed=True)["cpu-time"].sum().groupby("cell").median()
    missed = []
    for way in advice.ways:
        for level, cell in way.cells.items():
            expected = way.arm["seconds"][level] + cpu.get(cell["cell"], 0) / advice.files
            if is_miss(taken := cell["total_s"] / advice.files, expected):
                fields = {"layout": way.layout, "way": way.name, "times": names.format_two_digits(taken / expected)}
                missed.append(words.fill("missed", **fields, access=f" for {level}" * (len(advice.shares) > 1)))
    return missed


def _list_unjudged(advice: Advice) -> list[str]:
    ways: dict[str, list[str]] = {}
    for way in advice.unjudged:
        verdicts = {row["verdict"] for row in way.rows.values()} - set(JUDGED)
        ways.setdefault(min(verdicts, default="not measured"), []).append(f"{way.layout} with {way.name}")
    return [words.fill("not decided", verdict=verdict, ways=prose.format_list(of)) for verdict, of in ways.items()]


def _describe_uneven(way: Way) -> str:
    gaining = sum(gain > 1 for gain in way.gains.values())
    fields = {
        "gains": prose.format_span(way.gains.values(), names.format_two_digits),
        "gaining": gaining,
        "many": len(way.gains),
    }
    return words.fill("uneven", layout=way.layout, way=way.name, **fields)


def _list_unmeasured(advice: Advice) -> list[str]:
    """Return a note if the default settings were not measured because reading would have taken too long."""
    first = advice.facts["considered"][0]
    if get_arm_key(first) == get_arm_key(advice.base.arm):
        return []
    return [words.fill("too long", way=Way(first).name, forecast=_describe_forecast(first, advice.facts))]


def _describe_forecast(arm: dict, facts: dict) -> str:
    requests, size, seconds = (compute_mean(arm, what, facts) for what in ("requests", "bytes", "seconds"))
    return words.fill(
        "forecast", requests=requests, size=sizes.format_size(round(size)), time=_format_duration(seconds)
    )


def _format_duration(seconds: float) -> str:
    if seconds < 2 * LONGEST_S:
        return f"{prose.format_number(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _build_target(facts: dict, best: Way) -> Target:
    where = facts["where"]
    return Target(where["files"].get(best.layout, where["files"][ORIGINAL]), where["region"], where["groups"])


def _describe_cost(facts: dict, best: Way) -> str:
    if best.layout == ORIGINAL:
        return words.fill("without copy")
    copy = facts["copies"][best.layout]
    change = 100 * (copy["copy_bytes"] / copy["original_bytes"] - 1)
    took = copy["seconds"] / (copy["original_bytes"] / 2**30)
    return words.fill("for copy", change=change, seconds=prose.format_number(took))


def _describe_repack(facts: dict, best: Way) -> str:
    return facts["copies"][best.layout]["typed"] if best.layout != ORIGINAL else words.fill("no repack")


def _describe_recommendation(best: Way) -> str:
    kind = best.layout.partition("-")[0]
    files = words.fill("leave") if best.layout == ORIGINAL else words.REPACKING[kind]
    return words.fill("recommend", files=files, way=best.name)


def _list_copies(facts: dict) -> list[str]:
    """Describe how each set of copies was made, and why other layouts were left out."""
    made = []
    for name, copy in facts["copies"].items():
        before, after = (sizes.format_size(copy[f"{side}_bytes"]) for side in ("original", "copy"))
        fields = {"typed": code(copy["typed"]), "original": before, "copy": after}
        made.append(words.fill("copied", name=name, **fields, seconds=prose.format_number(copy["seconds"])))
    return made + [words.fill("left out", reason=reason) for reason in facts["left_out"]]


def _build_ways_table(run: Results, facts: dict) -> Table:
    advice = read_advice(run)
    measured = {get_arm_key(way.arm): way.cells for way in advice.ways} if advice else {}
    rows = []
    for arm in facts["considered"]:
        for level in facts["accesses"]:
            cell = measured.get(get_arm_key(arm), {}).get(level, {})
            row = {"files": arm["layout"], "driver and setting": Way(arm).name, "access": level}
            row |= {"requests": arm["requests"][level], "MiB": arm["bytes"][level] / 2**20}
            row |= {"time / s": arm["seconds"][level], **_compute_object_costs(cell, advice)}
            rows.append(row)
    frame = pd.DataFrame(rows).sort_values("time / s", kind="stable", ignore_index=True)
    frame = frame.drop(columns="access") if len(facts["accesses"]) == 1 else frame
    formats = dict.fromkeys(("MiB", "time / s", "time, measured / s"), prose.format_number)
    formats |= dict.fromkeys(("requests", "requests, measured"), "{:,.0f}".format)
    return Table("considered", words.fill("table of ways"), frame, formats)


def _compute_object_costs(cell: dict, advice: Advice | None) -> dict[str, float]:
    """Return the measured requests and seconds per object; NaN if missing."""
    requests, seconds = (cell.get(key, math.nan) for key in ("requests", "total_s"))
    files = advice.files if advice else 1
    return {"requests, measured": requests / files, "time, measured / s": seconds / files}
