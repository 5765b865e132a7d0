"""What a service did with requests near its limits, and where something went wrong: outcomes, counted over repeats."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from scripts.lib import sizes
from scripts.report import prose, results
from scripts.report.page import Table
from scripts.studies.arrays.pieces import TRIALS
from scripts.studies.arrays.report import MIB

ANSWERED, BINARY = "answered", ("binary read", "binary write")
STREAMING = {"on": "with streaming", "off": "without streaming"}
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
    rows = []
    for (what, times), trial in some.groupby(["phase", "times_limit"], sort=False, dropna=False):
        row = {"what": what} | ({"× limit": times} if operation == "limits" else {})
        row["request / MiB"] = trial["request_bytes"].median() / MIB
        of_level = {title: trial[trial["streaming"] == level] for level, title in STREAMING.items()}
        row |= {title: _outcomes(part["outcome"]) for title, part in of_level.items()}
        for title, part in of_level.items():
            row |= _amounts(part[part["outcome"] == ANSWERED], title)
        rows.append(row)
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
    binary = some[some["phase"].isin(BINARY)]
    for level, title in STREAMING.items():
        of_level = binary[binary["streaming"] == level]
        if len(of_level):
            answered, most = (of_level["outcome"] == ANSWERED).sum(), of_level["times_limit"].max()
            yield (
                f"{prose.capital(title)}, {answered} of {len(of_level)} binary reads and writes of up to {most:g} "
                f"times the request limit were answered{_others(of_level['outcome'])}."
            )
    on = some[some["streaming"] == "on"]
    largest = on[on["times_limit"].eq(on["times_limit"].max()) & on["phase"].isin(BINARY) & (on["outcome"] == ANSWERED)]
    for what, part in largest.groupby("phase", sort=False):
        request, grown = (prose.number(part[name].median() / MIB) for name in ("request_bytes", "service_node_bytes"))
        first, last = (prose.number(part[name].median()) for name in ("first_byte_s", "trial_s"))
        bytes_in = (
            ""
            if part["first_byte_s"].isna().all()
            else f"; its first byte came after {first} s, its last after {last} s"
        )
        yield f"A {what} of {request} MiB made the service node's memory grow by {grown} MiB{bytes_in}."
    others = on[~on["phase"].isin((*BINARY, "h5pyd read"))]
    if len(others):
        kinds = [f"{what}: {_outcomes(part['outcome'])}" for what, part in others.groupby("phase", sort=False)]
        yield f"What else was above the limit, with streaming: {'; '.join(kinds)}."


def _amounts(answered: pd.DataFrame, title: str) -> dict[str, float]:
    """Return what trials that were answered took: memory, and the seconds until the first and the last byte."""
    return {
        f"service node's memory {title} / MiB": answered["service_node_bytes"].median() / MIB,
        f"data node's memory {title} / MiB": answered["data_node_bytes"].median() / MIB,
        f"first byte {title} / s": answered["first_byte_s"].median(),
        f"last byte {title} / s": answered["trial_s"].where(answered["first_byte_s"].notna()).median(),
    }


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
