"""The load average against latency: figure, rank correlations, and the time that a hypervisor took."""

import numpy as np
import pandas as pd
from scipy import stats

from scripts.report import prose
from scripts.report.page import Table
from scripts.report.plot import Figure, Marks, Panel
from scripts.studies.volumes.report import arms, words
from scripts.studies.volumes.report.arms import Trace
from scripts.studies.volumes.report.data import Results
from scripts.studies.volumes.series import FACTORS

TOLD = 8  # series whose correlations are told in words
FEWEST = 8  # jobs for a correlation


def figure(results: Results) -> Figure:
    """Return p99 of each job against the load average before it."""
    title = "Load average before a job against its p99"
    panels = []
    for about, traces in arms.panels(results):
        marks = [_scatter(trace, results) for trace in traces if len(_pairs(trace))]
        if marks:
            operation = words.operation(traces[0][1]["operation"].iloc[0], traces[0][0], results)
            panel = Panel(
                title=f"p99 of {operation}{f': {about}' if about else ''}",
                x_label="Load average over 1 minute, before the job",
                y_label="p99 / ms",
                marks=tuple(marks),
                rules=arms.limit_rules(results),
            )
            panels.append(arms.with_ticks(panel))
    if not panels:
        return Figure("load", title, "The load average is not known.", (), pd.DataFrame())
    caption = "A mark is a job. Dashed: the limits."
    columns = ["number", "job_Id", "load1_before", "load1_after", "steal_percent", "p99_ms"]
    return Figure("load", title, caption, tuple(panels), arms.numbers(results.traces, columns))


def correlations(results: Results) -> pd.DataFrame:
    """Return a row a series: Spearman's rank correlation of load1_before with p99, its interval, load and steal."""
    rows = []
    for trace in results.traces:
        pairs = _pairs(trace)
        if pairs.empty:
            continue
        varies = len(pairs) >= FEWEST and pairs["load1_before"].nunique() > 1 and pairs["p99_ms"].nunique() > 1
        rho = float(stats.spearmanr(pairs["load1_before"], pairs["p99_ms"]).statistic) if varies else np.nan
        low, high = bounds(rho, len(pairs))
        steal = trace[1].get("steal_percent", pd.Series(dtype=float)).dropna()
        rows.append(
            dict(zip(FACTORS, trace[0], strict=False))
            | {"series": words.label(trace[0], results), "jobs": len(pairs)}
            | {f"load1_{name}": getattr(pairs["load1_before"], name)() for name in ("min", "median", "max")}
            | {"rho": rho, "rho_low": low, "rho_high": high}
            | {"steal_median": steal.median(), "steal_max": steal.max()}
        )
    return pd.DataFrame(rows)


def in_words(results: Results) -> list[str]:
    """Return how load average and latency went together, and how much time the hypervisor took."""
    correlated = correlations(results)
    if correlated.empty:
        return []
    valid = correlated[correlated["rho"].notna()]
    lines = [_relation(row) for row in valid.to_dict("records")] if len(valid) <= TOLD else [_relations(valid)]
    if len(unknown := correlated[correlated["rho"].isna()]):
        lines.append(f"{prose.listing(unknown['series'])}: too few jobs, or a load that never changed.")
    if len(valid):
        lines.append(
            "The load average counts what waits for the disk too, so a slow volume raises it: which of the two comes "
            "first these data do not tell."
        )
    stolen = correlated[correlated["steal_max"] > 0]
    if correlated["steal_max"].notna().any():
        worst = stolen.sort_values("steal_max").iloc[-1] if len(stolen) else None
        lines.append(
            "The hypervisor took no processor time (steal 0 % in every job)."
            if worst is None
            else f"The hypervisor took up to {worst['steal_max']:.1f} % of the processor time of a job (steal, "
            f"{worst['series']}; its median there is {worst['steal_median']:.1f} %)."
        )
    return lines


def table(results: Results) -> Table:
    """Return the correlations as a table."""
    correlated = correlations(results)
    if correlated.empty:
        return Table("load-correlations", "", correlated)
    names = {"series": "series", "jobs": "jobs", "load1_min": "load, least", "load1_median": "load, median"}
    names |= {"load1_max": "load, most", "rho": "rank correlation", "rho_low": "low", "rho_high": "high"}
    names |= {"steal_median": "steal, median / %", "steal_max": "steal, most / %"}
    frame = correlated[list(names)].rename(columns=names)
    frame = frame.loc[:, frame.notna().any()]
    two = "{:.2f}".format
    return Table(
        "load-correlations",
        "Spearman's rank correlation of the load average before a job with the job's p99, with its 95 % CI, and "
        "the processor time that the hypervisor took.",
        frame,
        {column: two for column in frame if column not in ("series", "jobs")},
    )


def _pairs(trace: Trace) -> pd.DataFrame:
    rows = trace[1]
    if "load1_before" not in rows:
        return pd.DataFrame(columns=["load1_before", "p99_ms"])
    return rows[["load1_before", "p99_ms", "job_Id"]].dropna()


def _scatter(trace: Trace, results: Results) -> Marks:
    pairs = _pairs(trace)
    points = pd.DataFrame({"x": pairs["load1_before"], "y": pairs["p99_ms"], "note": arms.notes(pairs)})
    return Marks(arms.name(trace[0], results), arms.look(trace[0], results), points, size=7)


def bounds(rho: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of Spearman's rank correlation of n pairs.

    Fisher's interval of atanh(rho), with the variance (1 + rho² / 2) / (n - 3) of Bonett and Wright (Psychometrika 65,
    2000). It takes the pairs as independent, which jobs in a row are only roughly.
    """
    if not np.isfinite(rho) or abs(rho) >= 1:
        return rho, rho
    reach = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return float(np.tanh(np.arctanh(rho) - reach)), float(np.tanh(np.arctanh(rho) + reach))


def _relation(row: dict) -> str:
    if row["rho_low"] > 0:
        relation = "the higher the load before a job, the higher its p99"
    elif row["rho_high"] < 0:
        relation = "the higher the load before a job, the lower its p99"
    else:
        relation = "load and p99 cannot be said to go together"
    interval = words.interval(row["rho_low"], row["rho_high"], "{:.2f}".format)
    return f"{row['series']}: {relation} (rank correlation {row['rho']:.2f}{interval}, {row['jobs']} jobs)."


def _relations(valid: pd.DataFrame) -> str:
    up, down = int((valid["rho_low"] > 0).sum()), int((valid["rho_high"] < 0).sum())
    return (
        f"Of {len(valid)} series, p99 rose with the load before the job in {up} and fell with it in {down}; in "
        f"{len(valid) - up - down} neither can be said (rank correlations {prose.span(valid['rho'], '{:.2f}'.format)})."
    )
