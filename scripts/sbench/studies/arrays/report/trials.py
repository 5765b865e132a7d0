"""Summarise the outcomes of HSDS requests around the size limit and with injected faults, over all repeats."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from sbench.pages import cell_tables, names, prose, run_files
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.probe import sizes
from sbench.studies.arrays.pieces import TRIALS
from sbench.studies.arrays.report import MIB, words

ANSWERED, BINARY = "answered", ("binary read", "binary write")
STREAMING = {"on": "with streaming", "off": "without streaming"}
# Patterns of the names of trials with limited memory in data nodes, and with many requests in flight.
ROOM, AT_ONCE = (
    re.compile(r"data node may take (\S+) × the request"),
    re.compile(r"(\d+) requests in flight, (\d+) tasks"),
)
AMOUNTS = ["request_bytes", "service_node_bytes", "first_byte_s", "trial_s"]
TEXTS = ("cell", "operation", "streaming", "request_limit", "phase", "outcome")


def load_trials(tables: Path | str) -> pd.DataFrame:
    """Return the trials of valid records as a DataFrame with one row per trial, empty if there are none."""
    samples = run_files.read_table(Path(tables, "samples.csv"), TEXTS)
    if samples.empty or "phase" not in samples:
        return pd.DataFrame(columns=[*TEXTS, *AMOUNTS, "times_limit", "number"])
    samples = samples[samples["operation"].isin(TRIALS) & run_files.is_true(samples["valid"])]
    return samples.sort_values("number", kind="stable").reset_index(drop=True)


def build_trials_table(trials: pd.DataFrame, operation: str) -> Table:
    """Build the table of an operation's trials: outcomes, memory growth and times, with and without streaming."""
    some = trials[trials["operation"] == operation]
    if some.empty:
        return Table(operation, "", pd.DataFrame())
    rows = []
    for (what, times), trial in some.groupby(["phase", "times_limit"], sort=False, dropna=False):
        row = {"trial": what} | ({"× limit": times} if operation == "limits" else {})
        row["request / MiB"] = trial["request_bytes"].median() / MIB
        of_level = {title: trial[trial["streaming"] == level] for level, title in STREAMING.items()}
        row |= {title: _format_outcomes(part["outcome"]) for title, part in of_level.items()}
        for title, part in of_level.items():
            row |= _compute_amounts(part[part["outcome"] == ANSWERED], title)
        rows.append(row)
    frame = cell_tables.remove_empty_columns(pd.DataFrame(rows))
    numbers = [name for name in frame if frame[name].dtype.kind == "f" and name != "× limit"]
    colours = {"": "unknown", ANSWERED: "faster"}
    over = {name: [colours.get(one, "slower") for one in frame[name]] for name in STREAMING.values() if name in frame}
    limit = prose.format_list(sizes.format_size(sizes.parse_size(level)) for level in some["request_limit"].unique())
    formats = {"× limit": "{:g}".format} | dict.fromkeys(numbers, prose.format_number)
    caption = words.fill("table of trials", limit=limit)
    return Table(operation, caption, frame, formats, over, words.fill("colours of trials"))


def write_headline(run: Results, trials: pd.DataFrame) -> str:
    """Return the headline of a run that has trials and no timed cells; otherwise an empty string."""
    if len(run.measured) or trials.empty:
        return ""
    sentences = [text for text, _ in describe_streaming(trials)] or list(describe_survivors(trials))
    return bold(" ".join(sentences[: len(STREAMING)]))


def describe_streaming(trials: pd.DataFrame) -> Iterator[Sentence]:
    """Yield sentences on how many requests above the size limit succeed, by streaming mode, and on memory growth."""
    near = trials[trials["operation"] == "limits"]
    above, binary = near["times_limit"] > 1, near["phase"].isin(BINARY)
    for level, title in STREAMING.items():
        if len(of_level := near[above & binary & (near["streaming"] == level)]):
            others = of_level["outcome"][of_level["outcome"] != ANSWERED]
            fields = {
                "how": prose.capitalize_first(title),
                "answered": len(of_level) - len(others),
                "of": len(of_level),
            }
            fields["others"] = _describe_failures(others, len(of_level))
            fields["times"] = prose.format_list(map("{:g}".format, sorted(of_level["times_limit"].unique())), "or")
            yield words.fill("above limit", **fields), ()
    on = near["streaming"] == "on"
    if len(reads := near[on & (near["phase"] == BINARY[0]) & (near["outcome"] == ANSWERED)]):
        ends = [part[AMOUNTS].median() for _, part in reads.groupby("times_limit")]
        (small, growth), (large, most) = ([_format_mib(ends[place][name]) for name in AMOUNTS[:2]] for place in (0, -1))
        first, last = (names.format_seconds(ends[-1][name]) for name in AMOUNTS[2:])
        fields = {"small": small, "growth": growth, "large": large, "most": most}
        yield words.fill("memory", **fields, first=first, last=last), ()
    others = near[above & on & ~near["phase"].isin((*BINARY, "h5pyd read"))]
    if len(others):
        kinds = [f"{what}: {_format_outcomes(part['outcome'])}" for what, part in others.groupby("phase", sort=False)]
        yield words.fill("other requests", kinds="; ".join(kinds)), ()


def _describe_failures(others: pd.Series, of: int) -> str:
    """Return a clause on the outcomes of failed requests, or an empty string if none of the `of` requests failed."""
    outcomes = _format_outcomes(others) if len(others) else ""
    # Several outcomes are counted, so that "all were" does not fit.
    if len(others) == of and others.nunique() == 1 and outcomes.startswith("refused"):
        return words.fill("none answered", outcomes=outcomes)
    return words.fill("not answered", many=len(others), outcomes=outcomes) if len(others) else ""


def describe_survivors(trials: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on reads by nodes with limited memory, and on concurrent requests rejected as too many."""
    room, at_once = (trials.join(trials["phase"].str.extract(name).astype(float)) for name in (ROOM, AT_ONCE))
    for (level, size), part in room[room[0].notna()].groupby(["streaming", "request_bytes"], sort=False):
        answered = (part["outcome"] == ANSWERED).groupby(part[0])
        counts = "; ".join(f"{times:g} ×: {some.sum()} of {len(some)}" for times, some in answered)
        yield words.fill("room", how=prose.capitalize_first(STREAMING[level]), size=_format_mib(size), counts=counts)
    for (many, tasks), part in at_once.groupby([0, 1]):
        busy = prose.format_span(part["outcome"].str.extract(r"(\d+)")[0].astype(float), "{:g}".format)
        yield words.fill("turned away", many=many, tasks=tasks, busy=busy)


def _format_mib(size: float) -> str:
    return f"{prose.format_number(size / MIB)} MiB"


def _compute_amounts(answered: pd.DataFrame, title: str) -> dict[str, float]:
    return {
        f"service node's memory {title} / MiB": answered["service_node_bytes"].median() / MIB,
        f"data node's memory {title} / MiB": answered["data_node_bytes"].median() / MIB,
        f"first byte {title} / s": answered["first_byte_s"].median(),
        f"last byte {title} / s": answered["trial_s"].where(answered["first_byte_s"].notna()).median(),
    }


def _format_outcomes(outcomes: Iterable[str]) -> str:
    """Return the outcome that all repeats share, or count the repeats with each outcome, as in "2 × timed out"."""
    counts = pd.Series(list(outcomes), dtype=str).value_counts(sort=False)
    if len(counts) == 1:
        return counts.index[0]
    return ", ".join(f"{count} × {outcome}" for outcome, count in counts.items())
