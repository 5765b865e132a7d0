"""The figure of percentile curves of the merged histograms."""

from dataclasses import replace

import pandas as pd

from scripts.report.plot import Figure, Look, Marks, Panel
from scripts.studies.volumes.report import arms, words
from scripts.studies.volumes.report.data import Results

NAMED = (50.0, 90.0, 99.0, 99.9, 99.99)
NO_BINS = "These results came without histograms (fio's json+): percentiles of several jobs cannot be merged."


def percentiles(results: Results) -> Figure:
    """Return the percentile curve of each series, on an axis of 1 in N operations."""
    title = "Percentiles of all jobs together"
    curves = results.percentiles
    panels = []
    for about, traces in arms.panels(results):
        marks = []
        for series, _ in traces:
            rows = results.of("percentiles", series)
            # A curve is of all batteries of a volume, and drawn once.
            if series.battery == 1 and results.has_bins(series) and len(rows):
                marks += _curve(rows, arms.name(series, results), arms.look(series, results))
        if marks:
            operation = words.operation(traces[0][1]["operation"].iloc[0], traces[0][0], results)
            panel = Panel(
                title=f"{operation}{f': {about}' if about else ''}",
                x_label="Percentile (slowest 1 in N operations)",
                y_label=f"{operation} / ms",
                marks=tuple(marks),
                x_log=True,
                rules=arms.limit_rules(results),
                height=380,
            )
            panels.append(arms.with_ticks(_with_percentiles(panel)))
    if not panels:
        return Figure("percentiles", title, NO_BINS, (), pd.DataFrame())
    lacking = [series for series in results.series if not results.has_bins(series)]
    caption = (
        "Half of all operations lie left of 50, 1 in 100 right of 99. Marks: the percentiles with their 95 % CI "
        "from merged histograms; a percentile with fewer than 10 operations above it is refused. Dashed: the limits."
        + (f" {len(lacking)} series without histograms have no curve." if lacking else "")
    )
    columns = [column for column in curves if column != "cell"]
    return Figure("percentiles", title, caption, tuple(panels), curves[columns])


def _curve(rows: pd.DataFrame, label: str, look: Look) -> list[Marks]:
    percentile = pd.to_numeric(rows["percentile"], errors="coerce")
    rows = rows.assign(percentile=percentile)[percentile < 100].sort_values("percentile")
    points = pd.DataFrame(
        {
            "x": 1 / (1 - rows["percentile"] / 100),
            "y": rows["ms"],
            "y_low": rows["low"],
            "y_high": rows["high"],
            "n": rows["N"],
        }
    )
    named = points[[any(abs(value - name) < 1e-9 for name in NAMED) for value in rows["percentile"]]]
    line = Marks("", replace(look, marker=""), points[["x", "y"]], joined=True)
    return [line, Marks(label, look, named, size=8)]


def _with_percentiles(panel: Panel) -> Panel:
    low, high = panel.x_range()
    chosen = [name for name in NAMED if low <= 1 / (1 - name / 100) <= high]
    ticks = tuple(1 / (1 - name / 100) for name in chosen)
    return replace(panel, x_ticks=ticks, x_tick_texts=tuple(f"{name:g}" for name in chosen))
