"""Judge measurements of containers, and format the advice on them as text."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pandas as pd

from sbench.files import container_code
from sbench.files.container_code import ORIGINAL, REPACKED, Files, Form
from sbench.files.container_files import Contents
from sbench.files.container_forms import Forecast
from sbench.files.container_session import Read
from sbench.files.patterns import Pattern
from sbench.pages import names as texts
from sbench.probe import sizes
from sbench.verdicts import stats
from sbench.verdicts.api import judge
from sbench.verdicts.outcomes import Outcome

_LEAST_BLOCKS = 6
_SECONDS = "{:.3g} s"


@dataclass
class Measured:
    """Forecasts and measurements of containers, by name of the form.

    Attributes:
        patterns: the accesses.
        base: the form of the files as they are.
        place: description of the storage.
        forms: all forms.
        forecasts: a forecast for each access.
        probes: the first read of each access, with its requests.
        conversions: time to make the container in seconds; 0 if nothing is made.
        left_out: why forms could not be measured.
        choosing: reads by block and form, which chose a form.
        blocks: reads by block of the files as they are and of the chosen form, which did not choose it.
        chosen: name of the chosen form.
    """

    patterns: Sequence[Pattern]
    base: Form
    place: str
    forms: dict[str, Form] = field(default_factory=dict)
    forecasts: dict[str, list[Forecast]] = field(default_factory=dict)
    probes: dict[str, list[Read]] = field(default_factory=dict)
    conversions: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    choosing: list[dict[str, list[Read]]] = field(default_factory=list)
    blocks: list[dict[str, list[Read]]] = field(default_factory=list)
    chosen: str = ""

    def weigh(self, reads: Sequence[Read]) -> float:
        """Return the time of the mix of all accesses in seconds, weighted by their shares."""
        return sum(pattern.share * read.seconds for pattern, read in zip(self.patterns, reads, strict=True))

    def compute_forecast(self, name: str) -> float:
        """Return the forecast time of the mix of all accesses in seconds."""
        return sum(pattern.share * of.seconds for pattern, of in zip(self.patterns, self.forecasts[name], strict=True))

    def build_record(self) -> dict:
        """Return all measurements as JSON objects."""

        def convert(blocks: Sequence[Mapping[str, Sequence[Read]]]) -> list[dict]:
            return [{name: [read._asdict() for read in reads] for name, reads in block.items()} for block in blocks]

        return {
            "accesses": [pattern._asdict() for pattern in self.patterns],
            "store": self.place,
            "forms": {name: asdict(form) for name, form in self.forms.items()},
            "forecasts": {name: [each._asdict() for each in rows] for name, rows in self.forecasts.items()},
            "probes": convert([self.probes])[0],
            "conversions_s": self.conversions,
            "left_out": self.left_out,
            "choosing": convert(self.choosing),
            "blocks": convert(self.blocks),
            "chosen": self.chosen,
        }


def format_forecast(measured: Measured, name: str) -> str:
    """Format the forecast of a form as a line. The cache of s3fs is not forecast."""
    if measured.forms[name].cache:
        return f"{name}: s3fs with {measured.forms[name].cache}"
    parts = [
        f"{pattern.name} {forecast.requests:,.0f} requests, {sizes.format_size(round(forecast.bytes))}"
        for pattern, forecast in zip(measured.patterns, measured.forecasts[name], strict=True)
    ]
    return f"{name}: {'; '.join(parts)} by forecast"


def format_advice(measured: Measured, files: Files, contents: Contents) -> list[str]:
    """Format the advice: whether to convert, how to open, the gain, notes, and the code of the conversion."""
    notes = [f"note:   {text}" for text in _list_notes(measured)]
    verdict, gain = judge_blocks(measured)
    form = measured.forms[measured.chosen] if verdict == Outcome.FASTER else measured.base
    convert = "no, leave the files as they are"
    if verdict not in (Outcome.FASTER, Outcome.SAME, Outcome.SLOWER) and measured.chosen != measured.base.name:
        convert = "undecided, leave the files as they are for now"
    elif form.chunks or measured.conversions.get(form.name):
        convert = f"{form.container}{_describe_chunks(form)}; see the code below"
    opening = container_code.build_opening(form, files)
    lines = [f"convert: {convert}", "open:", *_indent(opening), f"gain:   {gain}", *notes]
    if form.container == REPACKED:
        return [*lines, "code:", f"    {_format_repacking(form, contents)}"]
    code = container_code.build_conversion(form, files)
    return [*lines, "code:", *_indent(code)] if code else lines


def judge_blocks(measured: Measured) -> tuple[Outcome, str]:
    """Compare the chosen form with the files as they are, in the blocks that did not choose it.

    Returns:
        The outcome, and the gain as a text.
    """
    base, chosen = measured.base.name, measured.chosen
    if chosen == base:
        return Outcome.NOT_JUDGED, f"no container was faster by a tenth in {len(measured.choosing)} blocks"
    rows = [
        {name: measured.weigh(block[name]) for name in (base, chosen)} for block in measured.blocks if len(block) == 2
    ]
    if len(rows) < _LEAST_BLOCKS:
        return Outcome.TOO_FEW, f"unknown: {len(rows)} complete blocks, and a verdict needs {_LEAST_BLOCKS}"
    table = pd.DataFrame(rows)
    verdict = judge(table, base).loc[chosen]
    times = [texts.format_two_digits(1 / verdict[key]) for key in ("ratio", "high", "low")]
    before, after = (_SECONDS.format(table[name].median()) for name in (base, chosen))
    text = (
        f"{times[0]} [{times[1]}, {times[2]}] times as fast as the files as they are: {after} instead of {before} per"
        f" read, {_count_requests(measured, chosen)} requests instead of {_count_requests(measured, base)}; in"
        f" {len(rows)} blocks that did not select it"
    )
    if made := measured.conversions.get(chosen):
        text += f"; {_describe_break_even(table[base] - table[chosen], made)}"
    return Outcome(verdict["verdict"]), text


def _describe_break_even(saved: pd.Series, made: float) -> str:
    """Describe after how many reads of the mix a conversion of `made` seconds has paid off."""
    estimate = stats.estimate_median(saved.to_numpy())
    if estimate.low <= 0:
        return f"made in {_SECONDS.format(made)}; whether that pays off is not decided"
    reads = [max(1, round(made / value)) for value in (estimate.value, estimate.high, estimate.low)]
    return f"made in {_SECONDS.format(made)}, which pays off after {reads[0]:,} [{reads[1]:,}, {reads[2]:,}] reads"


def _count_requests(measured: Measured, name: str) -> str:
    reads = [
        sum(p.share * read.requests for p, read in zip(measured.patterns, block[name], strict=True))
        for block in measured.blocks
        if name in block
    ]
    return f"{pd.Series(reads).median():,.0f}"


def _list_notes(measured: Measured) -> list[str]:
    """Return a note for each form that was measured: its requests and its forecast, and its time in the choice."""
    notes = []
    for name, reads in measured.probes.items():
        parts = []
        for number, (pattern, read) in enumerate(zip(measured.patterns, reads, strict=True)):
            times = [block[name][number].seconds for block in measured.choosing if name in block]
            of_time = f", {_SECONDS.format(pd.Series(times).median())}" if times else ""
            forecast = (
                ""
                if measured.forms[name].container == ORIGINAL
                else f" ({measured.forecasts[name][number].requests:,.0f} by forecast)"
            )
            parts.append(f"{pattern.name} {read.requests:,} requests{forecast}{of_time}")
        notes.append(f"{name}{_describe_chunks(measured.forms[name])}: {'; '.join(parts)}")
    return notes


def _describe_chunks(form: Form) -> str:
    shapes = [f"{name} {'x'.join(map(str, sides))}" for name, sides in form.chunks.items()]
    shards = [f"{name} {'x'.join(map(str, sides))}" for name, sides in form.shards.items()]
    return (f" with chunks {', '.join(shapes)}" if shapes else "") + (
        f" in shards {', '.join(shards)}" if shards else ""
    )


def _format_repacking(form: Form, contents: Contents) -> str:
    options = " ".join(
        shlex.join(["-l", f"{contents.group.rstrip('/')}/{name}:CHUNK={'x'.join(map(str, sides))}"])
        for name, sides in form.chunks.items()
    )
    key = form.key
    return (
        f'mkdir -p {key}; for file in {Form(ORIGINAL).key}/*; do h5repack {options} "$file" {key}/"${{file##*/}}"; done'
    )


def _indent(code: str) -> list[str]:
    return [f"    {line}" for line in code.splitlines()]
