"""The load average against latency: rank correlations, and the time that a hypervisor took."""

import numpy as np
import pandas as pd
from scipy import stats

from scripts.report import names
from scripts.report.account import without_empty
from scripts.report.page import Table
from scripts.studies.volumes.report import phrases
from scripts.studies.volumes.report.batteries import Results

FEWEST = 8  # jobs for a correlation
TWO = "{:.2f}".format


def correlations(run: Results) -> Table:
    """Return one row per battery: load before its jobs, Spearman's rank correlation with their p99, and steal."""
    rows = []
    for trace in run.traces:
        jobs = trace.jobs.reindex(columns=["load1_before", "p99_ms", "steal_percent"])
        pairs = jobs[["load1_before", "p99_ms"]].dropna()
        rho = low = high = np.nan
        if len(pairs) >= FEWEST and (pairs.nunique() > 1).all():
            # Spearman's correlation is Pearson's of the ranks; the interval takes jobs as independent (Fisher).
            correlation = stats.pearsonr(*pairs.rank().to_numpy().T)
            rho, (low, high) = correlation.statistic, correlation.confidence_interval(0.95)
        load, steal = pairs["load1_before"], jobs["steal_percent"]
        if len(pairs):
            rows.append(
                {"series": phrases.legend(trace, run), "jobs": len(pairs)}
                | {"load, least": load.min(), "load, median": load.median(), "load, most": load.max()}
                | {"rank correlation": names.with_interval(rho, low, high, TWO) if low <= high else ""}
                | {"with the load, p99": "rises" if low > 0 else "falls" if high < 0 else "neither is shown"}
                | {"steal, median / %": steal.median(), "steal, most / %": steal.max()}
            )
    return Table(
        "load-correlations",
        "Spearman's rank correlation of the load average before a job with the job's p99, with its 95 % CI, and the "
        "processor time that the hypervisor took (steal). The load average counts what waits for the disk too, so a "
        "slow volume raises it: which of the two comes first these data do not tell.",
        without_empty(pd.DataFrame(rows)),
        dict.fromkeys(("load, least", "load, median", "load, most", "steal, median / %", "steal, most / %"), TWO),
    )
