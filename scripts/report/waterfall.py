"""The requests of two arms, one by one: which part of a file each asked for, and when it came."""

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.findings import BEYOND
from scripts.report.plot import Figure, Look, Marks, Panel
from scripts.report.results import Results

MIB = 2**20
_NAME, _TITLE = "requests-in-time", "Requests, one by one"


def figure(run: Results) -> Figure:
    """Return the requests of the pair of cells of which most was decided; without panels where none were recorded."""
    rows, recorded = run.comparisons(), set(run.requests.get("cell", ()))
    rows = rows[rows["baseline_cell"].isin(recorded) & rows["contender_cell"].isin(recorded)] if len(rows) else rows
    if rows.empty:
        counted = "requests" in run.cells and run.cells["requests"].notna().any()
        return Figure(_NAME, _TITLE, "not recorded." if counted else "", (), pd.DataFrame())
    # Decided first, of the factor that the question is about first, the largest effect first.
    ranks = rows.assign(
        decided=rows["verdict"].isin(BEYOND),
        own=rows["factor"] == run.report.headline,
        effect=np.abs(np.log(rows["ratio"].astype(float))),
    )
    pair = ranks.sort_values(["own", "decided", "effect"], ascending=False, kind="stable").iloc[0]
    names = run.names.pair(pair, run.names.level)
    arms = [run.requests[run.requests["cell"] == pair[f"{side}_cell"]] for side in ("contender", "baseline")]
    end = max(float(arm["end_s"].max()) for arm in arms)
    # Of the same files, the same place is at the same height.
    alike = len({frozenset(arm["object"]) for arm in arms}) == 1
    panels = tuple(
        _panel(f"{name}: {_summary(arm)}", arm, _places(pd.concat(arms) if alike else arm), end)
        for name, arm in zip(names, arms, strict=True)
    )
    where = ", ".join(filter(None, [run.names.place(pair), _levels(pair, run)]))
    caption = (
        f"{prose.capital(where)}. Each line is one request, from the first"
        " byte of its range when it was asked for to the last when it came; of several files, one lies above the other."
        f" As recorded in repeat {int(arms[0]['repeat'].iloc[0])}."
    )
    return Figure(_NAME, _TITLE, caption, panels, pd.concat(arms), columns=2)


def _panel(title: str, arm: pd.DataFrame, places: dict[str, tuple[int, int]], end: float) -> Panel:
    height = max((base + size for base, size in places.values()), default=1) / MIB
    return Panel(
        title=title,
        x_label="Time since the window opened / s",
        y_label="Position in the files / MiB",
        marks=(Marks("", Look("#0072B2", ""), _stretches(arm, places), joined=True),),
        x_ends=(0.0, end * 1.02),
        y_ends=(-0.03 * height, height * 1.03),
    )


def _levels(pair: pd.Series, run: Results) -> str:
    """The levels that both arms share and other comparisons do not."""
    inside = [name for name in run.report.names if name not in run.report.places and name != pair["factor"]]
    return run.names.row(pair, run.varying(run.comparisons(), inside))


def _places(rows: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Where each object begins when all stand one above the other, and its bytes as far as they were asked for."""
    sizes = (rows["offset_bytes"] + rows["bytes"]).groupby(rows["object"]).max().dropna().astype(int)
    starts = sizes.cumsum() - sizes
    return {name: (int(starts[name]), int(size)) for name, size in sizes.items()}


def _stretches(rows: pd.DataFrame, places: dict[str, tuple[int, int]]) -> pd.DataFrame:
    """A line for each request with a range, with a gap behind it."""
    rows = rows[rows["offset_bytes"].notna()].sort_values("begin_s")
    low = (rows["object"].map({name: base for name, (base, _) in places.items()}) + rows["offset_bytes"]) / MIB
    ends = {"x": (rows["begin_s"], rows["end_s"]), "y": (low, low + rows["bytes"] / MIB)}
    gap = np.full(len(rows), np.nan)
    return pd.DataFrame(
        {axis: np.column_stack([*(np.asarray(end, float) for end in two), gap]).ravel() for axis, two in ends.items()}
    )


def _summary(rows: pd.DataFrame) -> str:
    """How many requests there were for how much, and the fewest that would have done."""
    fewest, once = least(rows)
    total = int(brought(rows)["bytes"].sum())
    again = f", {prose.number((total - once) / MIB)} MiB of it again" if total - once > 0.01 * total else ""
    count = prose.count(len(rows), "request")
    return f"{count} for {prose.number(total / MIB)} MiB{again}; {fewest} would have brought it"


def brought(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the answers with bytes of a range, in the order of objects and of their bytes."""
    return rows[(rows["bytes"] > 0) & rows["offset_bytes"].notna()].sort_values(["object", "offset_bytes"])


def least(rows: pd.DataFrame) -> tuple[int, int]:
    """Return the fewest requests that would have brought the bytes that came, each once, and how many bytes these are.

    One request brings one stretch of an object without a gap.
    """
    rows = brought(rows)
    stretches = total = 0
    for _, own in rows.groupby("object", sort=False):
        ends = (own["offset_bytes"] + own["bytes"]).cummax()
        before = ends.shift(fill_value=-1)
        stretches += int((own["offset_bytes"] > before).sum())
        total += int((ends - own["offset_bytes"].where(own["offset_bytes"] > before, before)).clip(lower=0).sum())
    return stretches, total
