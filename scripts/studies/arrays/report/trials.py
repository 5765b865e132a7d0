"""What a service did with requests near its limits, and where something went wrong: outcomes, counted over repeats."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from scripts.lib import sizes
from scripts.report import prose, results
from scripts.report.page import Table
from scripts.studies.arrays.pieces import TRIALS
from scripts.studies.arrays.report import MIB

ANSWERED = "answered"
STREAMING = {"on": "with streaming", "off": "without"}
TEXTS = ("cell", "operation", "streaming", "request_limit", "phase", "outcome")


def load(tables: Path | str) -> pd.DataFrame:
    """Return the trials of valid records, one row each; none where nothing was tried."""
    samples = results.read_table(Path(tables, "samples.csv"), TEXTS)
    if samples.empty or "phase" not in samples:
        return pd.DataFrame(columns=[*TEXTS, "times_limit", "number"])
    samples = samples[samples["operation"].isin(TRIALS) & results.is_true(samples["valid"])]
    return samples.sort_values("number", kind="stable").reset_index(drop=True)


def table(trials: pd.DataFrame, operation: str) -> Table:
    """Return what came of each trial of an operation, with streaming and without, and what it took of memory."""
    some = trials[trials["operation"] == operation]
    if some.empty:
        return Table(operation, "", pd.DataFrame())
    large = operation == "limits"
    rows = []
    for (what, times), trial in some.groupby(["phase", "times_limit"], sort=False, dropna=False):
        row = {"what": what} | ({"× limit": times} if large else {})
        for level, title in STREAMING.items():
            of_level = trial[trial["streaming"] == level]
            row[title] = _outcomes(of_level["outcome"])
            answered = of_level[of_level["outcome"] == ANSWERED]
            row[f"service node's memory {title} / MiB"] = answered["service_node_bytes"].median() / MIB
            row[f"data node's memory {title} / MiB"] = answered["data_node_bytes"].median() / MIB
            row[f"first byte {title} / s"] = answered["first_byte_s"].median()
            row[f"last byte {title} / s"] = answered["trial_s"].where(answered["first_byte_s"].notna()).median()
        rows.append(row | {"request / MiB": trial["request_bytes"].median() / MIB})
    frame = pd.DataFrame(rows)
    frame = frame.loc[:, [(frame[name].notna() & (frame[name] != "")).any() for name in frame]]
    numbers = [name for name in frame if frame[name].dtype.kind == "f" and name != "× limit"]
    over = {title: _coloured(frame[title]) for title in STREAMING.values() if title in frame}
    limit = prose.listing(sizes.text(sizes.in_bytes(level)) for level in some["request_limit"].unique())
    caption = (
        f"The service's limit is {limit}. Outcomes over all repeats; memory: by how much the peak of a node grew while "
        "the request was answered; medians."
    )
    meaning = "every repeat was answered; no repeat was"
    return Table(
        operation, caption, frame, {"× limit": "{:g}".format} | dict.fromkeys(numbers, prose.number), over, meaning
    )


def answer(trials: pd.DataFrame) -> Iterator[str]:
    """Yield whether streaming lifts the limit, of what requests, and what it costs in memory."""
    some = trials[(trials["operation"] == "limits") & (trials["times_limit"] > 1)]
    binary = some[some["phase"].isin(("read, binary", "write, binary"))]
    for level, title in STREAMING.items():
        of_level = binary[binary["streaming"] == level]
        if len(of_level):
            answered = (of_level["outcome"] == ANSWERED).sum()
            most = of_level["times_limit"].max()
            yield (
                f"{prose.capital(title)}{' streaming' if level == 'off' else ''}, {answered} of {len(of_level)} binary "
                f"reads and writes of up to {most:g} times the request limit were answered"
                f"{_others(of_level['outcome'])}."
            )
    refused = some[some["phase"].str.contains("JSON|strings") & (some["streaming"] == "on")]
    if len(refused):
        kinds = [f"{what} ({_outcomes(part['outcome'])})" for what, part in refused.groupby("phase", sort=False)]
        yield f"Above the limit, also with streaming: {prose.listing(kinds)}."


def _outcomes(outcomes: Iterable[str]) -> str:
    """Return "answered", or how many of the repeats had which outcome."""
    counts = pd.Series(list(outcomes), dtype=str).value_counts(sort=False)
    if len(counts) == 1:
        return counts.index[0]
    return ", ".join(f"{count} × {outcome}" for outcome, count in counts.items())


def _others(outcomes: pd.Series) -> str:
    others = outcomes[outcomes != ANSWERED]
    return f"; the others: {_outcomes(others)}" if len(others) else ""


def _coloured(outcomes: pd.Series) -> list[str]:
    """Return the colour of each outcome: as of a verdict."""
    return ["unknown" if not one else "faster" if one == ANSWERED else "slower" for one in outcomes]
