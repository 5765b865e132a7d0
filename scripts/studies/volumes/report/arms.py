"""How series are drawn: which share a panel, how an arm looks, what the axis of time is."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.plot import COLOURS, GREY, Look, Marks, Panel, Rule, round_ticks
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Levels, Results
from scripts.studies.volumes.series import FACTORS

TOGETHER = 2 * len(COLOURS)  # volumes in a panel
INVALID = Look(GREY, "x")
Trace = tuple[Levels, pd.DataFrame]


def look(series: Levels, results: Results) -> Look:
    """Return the look of a series, the same in every figure: colour and marker by volume, dash by background."""
    styles = list(dict.fromkeys((one.background, one.battery) for one in results.series))
    arm, style = (series.store, series.host), (series.background, series.battery)
    return Look.of(results.arms.index(arm), styles.index(style) if style in styles else 0)


def panels(results: Results) -> Iterator[tuple[str, list[Trace]]]:
    """Yield (title, traces) of each panel: a job file, and of its volumes no more than one tells apart."""
    for job in results.levels("job"):
        own = [trace for trace in results.traces if trace[0].job == job]
        chunks: dict[int, list[Trace]] = {}
        for trace in own:
            arm = results.arms.index((trace[0].store, trace[0].host))
            chunks.setdefault(arm // TOGETHER, []).append(trace)
        title = f"job {job}" if len(results.levels("job")) > 1 else ""
        for number, chunk in enumerate(chunks.values(), 1):
            part = f"volumes, part {number} of {len(chunks)}" if len(chunks) > 1 else ""
            yield ", ".join(filter(None, [title, part])), chunk


def name(series: Levels, results: Results) -> str:
    """Return what a series is called in a panel, which tells its job file already."""
    return words.label(series, results, without=("job",))


@dataclass(frozen=True)
class Clock:
    """The axis of time of a panel: minutes since the battery began, or numbers of jobs where a start is unknown."""

    minutes: bool

    @classmethod
    def of(cls, traces: list[Trace]) -> "Clock":
        """Return the clock that all of a panel's series can be read by."""
        return cls(bool(traces) and all(rows["minutes"].notna().all() for _, rows in traces))

    @property
    def label(self) -> str:
        """What the axis is called."""
        return "Minutes since the battery's first job began" if self.minutes else "Number of the job"

    def time(self, rows: pd.DataFrame) -> pd.Series:
        """Return where jobs are drawn."""
        return rows["minutes"] if self.minutes else rows["number"]

    def start_of(self, number: float, rows: pd.DataFrame) -> float:
        """Return where the job of a number begins; beyond the last job as if jobs went on alike."""
        if not self.minutes:
            return float(number) - 0.5
        at, numbers = rows["minutes"].to_numpy(float), rows["number"].to_numpy(float)
        if len(at) < 2 or number <= numbers[-1]:
            return float(np.interp(number, numbers, at))
        return float(at[-1] + (number - numbers[-1]) * (at[-1] - at[0]) / (numbers[-1] - numbers[0]))


def notes(rows: pd.DataFrame) -> pd.Series:
    """Return what the pointer tells of a job beside its value."""
    return rows["job_Id"]


def limit_rules(results: Results) -> tuple[Rule, ...]:
    """Return the limits as lines; those of one height share a name."""
    heights: dict[float, list[str]] = {}
    for row in results.limits.to_dict("records"):
        heights.setdefault(float(row["limit_ms"]), []).append(row["limit"])
    return tuple(Rule(height, f"{', '.join(dict.fromkeys(who))} {height:g}") for height, who in heights.items())


def change_rules(traces: list[Trace], results: Results, clock: Clock, jumps: bool = False) -> tuple[Rule, ...]:
    """Return the first job of each later segment as a line in the arm's colour, named by its job, or with the jump."""
    rules = []
    for series, rows in traces:
        segments = results.of_battery("segments", series)
        for segment in segments[segments["jump"].notna()].to_dict("records") if len(segments) else []:
            text = segment["first_job"] + (f" ×{prose.number(segment['jump'])}" if jumps else "")
            at = clock.start_of(segment["first_number"], rows)
            own = GREY if jumps else look(series, results).colour
            rules.append(Rule(at, text, "x", own, "dotted"))
    return tuple(rules)


def with_ticks(panel: Panel) -> Panel:
    """Make the y axis logarithmic where its values span more than a decade, with round numbers along it."""
    return on_one_scale([panel])[0]


def on_one_scale(panels: list[Panel]) -> list[Panel]:
    """Give panels the same y axis: logarithmic where their values span more than a decade, with round numbers."""
    for logarithmic in (True, False):
        scaled = [replace(panel, y_log=logarithmic) for panel in panels]
        ends = [panel.y_range() for panel in scaled]
        low, high = min((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=1.0)
        if not logarithmic or high >= 12 * low:
            break
    together = [replace(panel, y_ends=(low, high)) for panel in scaled] if len(panels) > 1 else scaled
    return [replace(panel, y_ticks=round_ticks(low, high)) for panel in together] if logarithmic else together


def numbers(traces: list[Trace], columns: list[str]) -> pd.DataFrame:
    """Return the columns of all traces that there are, with the levels."""
    frames = [rows[[column for column in (*FACTORS, "repeat", *columns) if column in rows]] for _, rows in traces]
    return pd.concat(frames) if frames else pd.DataFrame()


def invalid_marks(traces: list[Trace], column: str, clock: Clock) -> list[Marks]:
    """Return the jobs of invalid batteries, drawn and marked."""
    if not traces:
        return []
    jobs = pd.concat([rows for _, rows in traces])
    points = pd.DataFrame({"x": clock.time(jobs), "y": jobs[column], "note": notes(jobs)}).dropna(subset=["x", "y"])
    return [Marks("[INVALID]", INVALID, points, size=6)] if len(points) else []
