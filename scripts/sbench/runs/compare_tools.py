"""Compare results of other benchmark tools (`tool_files`), and print verdicts on each benchmark.

Ratios compare times. Rates are converted to times per byte or operation first.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from sbench.pages import markup, names, prose, words
from sbench.probe.program import Problem, escape_text, print_json, write_json
from sbench.probe.sizes import format_size
from sbench.runs import rules, tool_files
from sbench.runs.rules import Rule
from sbench.runs.tool_files import HYPERFINE, Series, Tool, ToolFile
from sbench.verdicts import MIN_BLOCKS, samples, sessions, stats
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome
from sbench.verdicts.sessions import is_coinciding

EQUIVALENCE_PERCENT = 5
# Largest number of benchmarks to print line by line.
_PRINTED = 30
_ORDER = (Outcome.SLOWER, Outcome.FASTER, Outcome.NO_EVIDENCE, Outcome.NOT_COMPARABLE, Outcome.TOO_FEW, Outcome.SAME)
_PREFIXES = {1: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}
_FILE, _BLOCK = "file", "block"


@dataclass(frozen=True)
class Sides:
    """The two sides of a comparison.

    Attributes:
        tool: the tool that measured.
        names: names of the sides.
        noun: the unit of the statistics: the tool's word for a sample, "block", or "file".
        pairs: for each benchmark, the series of both sides.
        alone: the benchmarks that only one side has.
        machines: the names of the machines of each side, as far as the files name them.
        has_own_machines: whether the files of each side are mostly of other machines, so that no file is judged.
    """

    tool: Tool
    names: tuple[str, str]
    noun: str
    pairs: dict[str, tuple[Series, Series]]
    alone: list[str]
    machines: tuple[str, str] = ("", "")
    has_own_machines: bool = False


@dataclass(frozen=True)
class Row:
    """The result of a benchmark.

    Attributes:
        benchmark: name of the benchmark.
        verdict: the outcome.
        unit: unit of `base` and `other`, empty if unknown.
        base, other: medians of both sides.
        samples_base, samples_other: numbers of samples, or of blocks.
        ratio, ratio_low, ratio_high: the ratio of times other / base with its 95 % CI; NaN if unknown.
        p: corrected for all benchmarks.
        detectable_ratio: the smallest slowdown that these samples would have detected with a power of 0.8.
        needed: number of samples per side that would detect the difference of `--detect` with a power of 0.9.
        missing: number of samples that the smaller side lacks for this; 0 for decided benchmarks.
        is_serial: whether neighbouring samples depend on each other.
        lost: number of samples of both sides that failed, or of blocks without one of the sides.
    """

    benchmark: str
    verdict: str
    unit: str
    base: float
    other: float
    samples_base: int
    samples_other: int
    ratio: float
    ratio_low: float
    ratio_high: float
    p: float
    detectable_ratio: float
    needed: float
    missing: float
    is_serial: bool
    lost: int


@dataclass(frozen=True)
class Output:
    """Where to write the results of a comparison: paths, or None."""

    as_json: bool
    summary: Path | None
    metrics: Path | None


def compare_files(
    base: Sequence[str], other: Sequence[str], fail_on: str, detect_percent: float, output: Output
) -> int:
    """Compare result files, print the outcome, and return the exit status: 3 if a rule is broken, otherwise 0.

    Args:
        base: paths of the files of one side; with several files, each is a session and the unit of the statistics.
        other: the files of the other side; empty if `base` is a file with both arms.
        fail_on: rules such as "slower > 10 %".
        detect_percent: difference, in percent, that undecided benchmarks should be able to detect.
        output: files to write.

    Raises:
        Problem: a file cannot be read or compared, or a rule is not about times.
    """
    parsed = _parse_rules(fail_on)
    if not 0 < detect_percent < math.inf:
        raise Problem(f"--detect must be a positive percentage (got {detect_percent:g})")
    sides = build_sides(*([tool_files.read_tool_file(path) for path in paths] for paths in (base, other)))
    rows = judge_sides(sides, detect_percent)
    table = pd.DataFrame([asdict(row) for row in rows]).assign(of_sessions="")
    outcome = rules.judge_rules(parsed, table, pd.DataFrame(), "benchmark")
    notes = [*_list_notes(sides, rows, detect_percent), *_describe_rules(outcome)]
    if output.summary:
        _append_summary(output.summary, sides, rows, notes, detect_percent)
    if output.metrics:
        _write_metrics(output.metrics, rows)
    if output.as_json:
        about = {"tool": sides.tool.name, "sides": sides.names, "unit": sides.noun, "notes": notes}
        print_json(about | outcome | {"verdicts": [asdict(row) for row in rows]})
    else:
        lines = [_describe_row(sides, row, detect_percent) for row in _choose_rows(rows)]
        print(*map(escape_text, [_describe_sides(sides, rows), *lines, *notes]), sep="\n")
    return rules.FAILED if outcome["broken"] else 0


def _parse_rules(text: str) -> list[Rule]:
    parsed = rules.parse_rules(text)
    if counted := next((kind for kind, _ in parsed if " " in kind), ""):
        raise Problem(
            f"results of other tools have no counts for the rule {counted!r} of --fail-on; use slower or faster"
        )
    return parsed


def build_sides(base: Sequence[ToolFile], other: Sequence[ToolFile]) -> Sides:
    """Pair the series of two sides.

    Raises:
        Problem: the files are of different tools or have the same content, or their series cannot be compared.
    """
    files = [*base, *other]
    first = files[0]
    for number, file in enumerate(files):
        if file.tool != first.tool:
            raise Problem(
                f"{first.path} is of {first.tool.name}, {file.path} of {file.tool.name}; name files of one tool"
            )
        if twin := next((of for of in files[:number] if of.digest == file.digest), None):
            raise Problem(f"{twin.path} and {file.path} have the same content; name files of different measurements")
    if not other:
        return _split_arms(first)
    has_sessions = len(base) > 1 or len(other) > 1
    series = [_join_files(side, has_sessions) for side in (base, other)]
    if all(len(of) == 1 for of in series) and set(series[0]) != set(series[1]):
        # Commands that differ in an option, for example, are the two sides of a single benchmark.
        name = " → ".join(name for of in series for name in of)
        series = [{name: next(iter(of.values()))} for of in series]
    pairs = {name: (of, series[1][name]) for name, of in series[0].items() if name in series[1]}
    titles = _name_sides(base, other)
    alone = [
        f"{name or 'values'} ({title})"
        for title, of, there in zip(titles, series, reversed(series), strict=True)
        for name in of
        if name not in there
    ]
    if not pairs:
        raise Problem(f"{titles[0]} and {titles[1]} have no benchmark in common: {prose.format_list(alone)}")
    machines = tuple(" and ".join(sorted({file.machine for file in side} - {""})) for side in (base, other))
    named = [{file.machine} for file in files]
    own = has_sessions and {""} not in named and is_coinciding([0] * len(base) + [1] * len(other), named)
    checked = _build_checked(first.tool, titles, pairs, alone, has_sessions)
    return replace(checked, machines=machines, has_own_machines=own)


def _split_arms(file: ToolFile) -> Sides:
    """Return the sides of a single file: its first arm, and each other arm."""
    arms = list(file.series)
    if file.tool == HYPERFINE:
        arms = [replace(of, benchmark="", arm=of.benchmark) for of in file.series]
    first = arms[0].arm
    by_arm = {(of.benchmark, of.arm): of for of in arms}
    others = [of for of in arms if of.arm != first and (of.benchmark, first) in by_arm]
    if not others:
        raise Problem(f"{file.path} has a single side; name a second file, or a file with two arms (CSV or hyperfine)")
    several = len({of.arm for of in others}) > 1
    pairs = {
        ": ".join(filter(None, (of.benchmark, of.arm * several))): (by_arm[of.benchmark, first], of) for of in others
    }
    return _build_checked(file.tool, (first, "other arms" if several else others[0].arm), pairs, [], False)


def _join_files(files: Sequence[ToolFile], has_sessions: bool) -> dict[str, Series]:
    """Return the series of a side by benchmark. If files are sessions, a sample is the median of a file."""
    series: dict[str, list[Series]] = {}
    for file in files:
        if len({of.arm for of in file.series}) > 1:
            raise Problem(f"{file.path} has several arms; name it alone, or name files with a single arm")
        for of in file.series:
            series.setdefault(of.benchmark, []).append(of)
    if not has_sessions:
        return {name: of for name, (of,) in series.items()}
    for name, of in series.items():
        _check_units(name, of)
    return {
        name: Series(name, tuple(median(part.samples) for part in of), of[0].unit, lost=sum(part.lost for part in of))
        for name, of in series.items()
    }


def _name_sides(base: Sequence[ToolFile], other: Sequence[ToolFile]) -> tuple[str, str]:
    """Name each side by its files, without folders if this distinguishes the sides."""
    paths = [[side[0].path, side[-1].path][: len(side)] for side in (base, other)]
    short, long = ([" … ".join(map(of, ends)) for ends in paths] for of in (lambda path: Path(path).name, str))
    first, second = short if short[0] != short[1] else long
    return first, second


def _build_checked(
    tool: Tool, sides: tuple[str, str], pairs: dict[str, tuple[Series, Series]], alone: list[str], has_sessions: bool
) -> Sides:
    for name, pair in pairs.items():
        _check_units(name, pair)
    has_blocks = {bool(of.blocks) for pair in pairs.values() for of in pair}
    if len(has_blocks) > 1:
        raise Problem(f"{sides[0]} and {sides[1]}: only one of them has a column block; add it to both, or to neither")
    if has_blocks == {True}:
        if not any(set(a.blocks) & set(b.blocks) for a, b in pairs.values()):
            raise Problem(f"{sides[0]} and {sides[1]} have no block in common; leave out the column block")
    elif max(min(len(of.samples) for of in pair) for pair in pairs.values()) < 2:
        few = f"{sides[0]} or {sides[1]} has a single {_FILE if has_sessions else tool.noun} of each benchmark"
        raise Problem(
            f"{few}; a verdict needs {sessions.LEAST} on each side ({tool.command}, or several files and --with)"
        )
    noun = _FILE if has_sessions else _BLOCK if has_blocks == {True} else tool.noun
    return Sides(tool, sides, noun, pairs, alone)


def _check_units(name: str, series: Sequence[Series]) -> None:
    if len(units := sorted({of.unit or "no unit" for of in series})) > 1:
        raise Problem(f"{name or 'values'}: the units differ ({' and '.join(units)}); convert one of the files")


def judge_sides(sides: Sides, detect_percent: float) -> list[Row]:
    """Return the verdicts on all benchmarks, which are a family."""
    numbers = [_take_numbers(pair, sides.noun == _BLOCK) for pair in sides.pairs.values()]
    if sides.noun == _BLOCK:
        blocks = list(dict.fromkeys(block for pair in numbers for block in pair[0]))
        d = np.array(
            [
                [math.log(b[block] / a[block]) if block in a and block in b else math.nan for a, b in numbers]
                for block in blocks
            ]
        )
        judged = samples.judge_blocks(d, EQUIVALENCE_PERCENT, detect_percent)
    else:
        base, other = ([np.array(list(pair[side].values())) for pair in numbers] for side in (0, 1))
        judged = samples.judge_samples(base, other, EQUIVALENCE_PERCENT, detect_percent)
    rows = []
    for (name, pair), (a, b), one in zip(sides.pairs.items(), numbers, judged, strict=True):
        counts, lost = (len(a), len(b)), [of.lost for of in pair]
        if sides.noun == _BLOCK:
            counts, lost = (one.verdict.blocks,) * 2, [len(b.keys() - a.keys()), len(a.keys() - b.keys())]
        outcome = stats.apply_losses(one.verdict.verdict, *lost)
        outcome = Outcome.NOT_COMPARABLE if sides.has_own_machines and outcome in JUDGED else outcome
        one = one._replace(verdict=one.verdict._replace(verdict=outcome))
        rows.append(_build_row(name, pair, counts, one, sum(lost)))
    return rows


def _take_numbers(pair: tuple[Series, Series], has_blocks: bool) -> list[dict]:
    """Return the times of both sides by block, or by number. Rates become times per byte or operation."""
    power = -1 if pair[0].is_rate else 1
    of_sides = [tool_files.compute_block_medians(of) if has_blocks else dict(enumerate(of.samples)) for of in pair]
    return [{key: value**power for key, value in of.items()} for of in of_sides]


def _build_row(
    name: str, pair: tuple[Series, Series], counts: tuple[int, ...], judged: samples.Judgement, lost: int
) -> Row:
    verdict, needed = judged.verdict, judged.needed
    is_open = verdict.verdict in (Outcome.NO_EVIDENCE, Outcome.TOO_FEW)
    missing = max(0.0, needed - min(counts)) if is_open else 0.0
    detectable = verdict.detectable_ratio if math.isfinite(verdict.detectable_ratio) else math.nan
    ends = (verdict.low, verdict.high, verdict.p, detectable)
    medians = (float(median(of.samples)) for of in pair)
    numbers = (*medians, *counts, verdict.ratio, *ends, needed, missing)
    return Row(name, verdict.verdict, pair[0].unit, *numbers, judged.is_serial, lost)


def _describe_sides(sides: Sides, rows: Sequence[Row]) -> str:
    counts = [(sum(row.verdict == outcome for row in rows), outcome) for outcome in _ORDER]
    parts = [f"{count} {outcome}" for count, outcome in counts if count]
    number = prose.format_count(len(rows), "benchmark")
    return f"{sides.names[1]} compared with {sides.names[0]} ({sides.tool.name}), {number}: {', '.join(parts)}"


def _choose_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in the order of their outcomes; of many rows, only rows that differ."""
    ordered = sorted(rows, key=lambda row: _ORDER.index(row.verdict))
    return ordered if len(rows) <= _PRINTED else [row for row in ordered if row.verdict in ORDERED]


def _describe_row(sides: Sides, row: Row, detect_percent: float) -> str:
    """Describe a result in a line: outcome, medians, effect with its interval, p, and the numbers of samples."""
    name = f"{row.benchmark}: " if row.benchmark else ""
    outcome = words.get_outcome(row.verdict, EQUIVALENCE_PERCENT)
    parts = [f"{_format_value(row.base, row.unit)} → {_format_value(row.other, row.unit)}", _describe_effect(row)]
    if row.verdict in JUDGED:
        parts.append(f"p = {prose.format_number(row.p)}" if row.p >= 0.001 else "p < 0.001")
    parts.append(_describe_counts(sides, row))
    return "; ".join(
        [f"{name}{outcome}, {', '.join(filter(None, parts))}", *_describe_power(sides, row, detect_percent)]
    )


def _describe_effect(row: Row) -> str:
    if math.isnan(row.ratio_low) or not math.isfinite(row.ratio):
        return ""
    effect = names.describe_effect([row.ratio], row.ratio_low, row.ratio_high)
    return f"{effect.text} {effect.interval}"


def _describe_counts(sides: Sides, row: Row) -> str:
    lost = f", {row.lost:,} lost, which may be the slow ones" if row.lost else ""
    if row.samples_base == row.samples_other:
        each = "" if sides.noun == _BLOCK else " each"
        return f"{prose.format_count(row.samples_base, sides.noun)}{each}{lost}"
    return f"{row.samples_base:,} and {prose.format_count(row.samples_other, sides.noun)}{lost}"


def _describe_power(sides: Sides, row: Row, detect_percent: float) -> Iterator[str]:
    """Yield the detectable difference, and the number of samples that an open comparison needs."""
    if row.verdict in JUDGED and math.isfinite(row.detectable_ratio):
        yield f"{_format_percent(row.detectable_ratio)} would have been detected"
    if row.verdict not in (Outcome.NO_EVIDENCE, Outcome.TOO_FEW):
        return
    nouns = prose.make_plural(sides.noun)
    if math.isnan(row.needed):
        least = MIN_BLOCKS if sides.noun == _BLOCK else sessions.LEAST
        yield (
            f"at least {least} {nouns} of each side are needed"
            if row.verdict == Outcome.TOO_FEW
            else (f"no number of {nouns} up to {samples.MOST:,} would detect {detect_percent:g} %")
        )
    elif row.missing:
        yield f"{row.needed:,.0f} {nouns} of each side would detect {detect_percent:g} % ({row.missing:,.0f} more)"


def _format_percent(ratio: float) -> str:
    return (
        f"{prose.format_number(100 * (ratio - 1))} % longer" if ratio < 2 else f"{prose.format_ratio(ratio)}× as long"
    )


def _format_value(value: float, unit: str) -> str:
    """Format a time with a prefix, a rate of bytes as MiB/s, and other values as numbers."""
    if unit == "B/s":
        return f"{format_size(value)}/s"
    scale = next((of for of in _PREFIXES if value >= of), 1e-9) if unit == "s" else 1
    return f"{prose.format_number(value / scale)} {_PREFIXES[scale]}{unit}".rstrip()


def _list_notes(sides: Sides, rows: Sequence[Row], detect_percent: float) -> list[str]:
    """Return what the verdicts do not cover, and other notes, in a line each."""
    notes = [_describe_scope(sides)]
    if sides.has_own_machines or (all(sides.machines) and sides.machines[0] != sides.machines[1]):
        notes.append(
            f"{sides.names[0]} is of machine {sides.machines[0]}, {sides.names[1]} of {sides.machines[1]}: a difference"
            " may be between the machines."
        )
    if serial := sum(row.is_serial for row in rows):
        which = f"{serial} of {prose.format_count(len(rows), 'benchmark')}"
        notes.append(
            f"Neighbouring {prose.make_plural(sides.noun)} depend on each other in {which}: CIs may be too narrow;"
            " measure in blocks."
        )
    if len(rows) > _PRINTED:
        notes.append(f"Only benchmarks that differ are listed; --json and --summary list all {len(rows):,}.")
    if sides.alone:
        notes.append(f"Only on one side: {prose.format_list(sides.alone[:_PRINTED])}.")
    return notes


def _describe_scope(sides: Sides) -> str:
    if sides.noun == _BLOCK:
        return "Blocks pair both sides; the verdicts cover the machine and the time of these blocks."
    if sides.noun == _FILE:
        return "The unit is the file; the verdicts assume that both sides were measured in turn, in the order A B B A …"
    samples_of, scope = prose.make_plural(sides.noun), sides.tool.scope
    return f"All {samples_of} of a side are of one {scope}: the verdicts do not cover another {scope} or machine."


def _describe_rules(outcome: Mapping[str, Sequence[str]]) -> list[str]:
    titles = {"broken": "Fails", "open": "Not decided", "passed": "Passes"}
    return [f"{title}: {', '.join(outcome[key])}." for key, title in titles.items() if outcome[key]]


def _append_summary(path: Path, sides: Sides, rows: Sequence[Row], notes: Sequence[str], detect_percent: float) -> None:
    """Append a table in Markdown to a file, such as the summary of a step in GitHub Actions."""
    lines = [
        "| benchmark | verdict | before | after | effect [95 % CI] | p | samples |",
        "|---|---|---:|---:|---|---:|---|",
    ]
    for row in sorted(rows, key=lambda row: _ORDER.index(row.verdict)):
        outcome = words.get_outcome(row.verdict, EQUIVALENCE_PERCENT)
        counts = "; ".join([_describe_counts(sides, row), *_describe_power(sides, row, detect_percent)])
        medians = [_format_value(value, row.unit) for value in (row.base, row.other)]
        p = prose.format_number(row.p) if row.verdict in JUDGED else ""
        cells = (row.benchmark, markup.bold(outcome) if row.verdict in ORDERED else outcome, *medians)
        cells = (*map(escape_text, cells[:1]), *cells[1:], _describe_effect(row), p, counts)
        lines.append(f"| {' | '.join(map(markup.render_markdown_cell, cells))} |")
    title = escape_text(_describe_sides(sides, rows))
    blocks = [markup.render_markdown(markup.heading(2, "Benchmarks"), title), "\n".join(lines)]
    blocks.append(markup.render_markdown(*(markup.paragraph(escape_text(note)) for note in notes)))
    with path.open("a", encoding="utf-8") as file:
        file.write("\n\n".join(blocks) + "\n\n")


def _write_metrics(path: Path, rows: Sequence[Row]) -> None:
    """Write the medians of the second side as customSmallerIsBetter of github-action-benchmark; rates become times."""
    metrics = []
    for row in rows:
        is_rate = row.unit.endswith("/s")
        of = {"name": row.benchmark or "value", "unit": f"s/{row.unit[:-2]}" if is_rate else row.unit or "value"}
        of["value"] = 1 / row.other if is_rate else row.other
        if math.isfinite(row.ratio_low):
            of["range"] = f"× {row.ratio_low:.4g} to {row.ratio_high:.4g} of the other side"
        metrics.append(of | {"extra": f"{row.verdict}, {row.samples_other} samples"})
    write_json(path, metrics)
