"""Check the claims and the labels of the published report on gp2 and gp3 volumes against its data.

The docstrings of the decorated functions are quotations from that report.
"""

import pandas as pd

from sbench.design.claim import Claims

GP2, GP3 = ["gp2x1", "gp2x2"], ["gp3x1", "gp3x2"]
# SLOW_FROM: the first slow job of each gp2 layout. NORMAL: jobs in which neither layout is slow. SLOW: jobs in which
# both are slow.
SLOW_FROM = {"gp2x1": "g3", "gp2x2": "h3"}
NORMAL, SLOW = slice(None, "g2"), slice("h3", None)
claims = Claims(latencies="all_metrics_long.csv")


def _get_layouts(latencies: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a latency metric (ms), such as p99, as a table with a row per job and a column per layout."""
    return latencies.set_index(["job_Id", "layout"])[f"sync_lat_{metric}_ms"].unstack()


def _compare_layouts(
    latencies: pd.DataFrame, metric: str, layout: str, against: str, jobs: slice = slice(None)
) -> pd.Series:
    """Return the ratio of a metric between two layouts (`layout` / `against`) for each job."""
    layouts = _get_layouts(latencies, metric).loc[jobs]
    return layouts[layout] / layouts[against]


def _compare_jobs(latencies: pd.DataFrame, metric: str, layouts: str | list[str], since: str):
    """Return the ratio of a metric's mean from the job `since` on to its mean before, for one or more layouts."""
    values = _get_layouts(latencies, metric)[layouts]
    return values[values.index >= since].mean() / values[values.index < since].mean()


def _count_fast_jobs(latencies: pd.DataFrame, metric: str, limit: float) -> pd.Series:
    """Count the jobs of each layout in which a metric is below a limit (ms)."""
    return (_get_layouts(latencies, metric) < limit).sum()


def _compare_types(latencies: pd.DataFrame, jobs: slice) -> pd.Series:
    """Return the ratio of p99 (gp3 / gp2) per job, for all pairs of a gp3 and a gp2 layout."""
    return pd.concat([_compare_layouts(latencies, "p99", gp3, gp2, jobs) for gp3 in GP3 for gp2 in GP2])


@claims.compares("mean", "~1.0", "factor of the mean", "volumes")
def gp3_similar_mean(latencies):
    """gp3: had similar results in both scenarios"""
    return _compare_layouts(latencies, "mean", "gp3x2", "gp3x1")


@claims.compares("p99, jobs from the 33rd on vs the jobs before", "~1.0", "factor of the mean p99", "volumes")
def gp3_stable(latencies):
    """gp3 become bellow from max and stable until the end of all tests"""
    return _compare_jobs(latencies, "p99", GP3, "g3")


@claims.compares(
    "p99, reading the maximum as the red limit of the table, 10 ms", "<10", "ms", "volumes: limit as a parameter"
)
def gp3_below_max(latencies):
    """gp3 become bellow from max and stable until the end of all tests"""
    return _get_layouts(latencies, "p99")[GP3].stack()


@claims.quantifies("p99", "32", "jobs", "volumes: gp2 credit model", layout=GP2)
def slow_after_32(latencies, layout):
    """after 32th job the gp2 disks consumed all burst credits (higher than max [380 IOPS]) and become slow (5/6x) due
    to throttlings"""
    return _count_fast_jobs(latencies, "p99", 10)[layout]


@claims.quantifies(
    "p99.9, jobs before the rise",
    "32",
    "jobs",
    "volumes: gp2 credit model",
    name="slow-after-32",
    layout=GP2,
    metric=["p99.9"],
)
def slow_after_32_p99_9(latencies, layout, metric):
    """Same points of sync_lat_p99_ms; plus:"""
    return _count_fast_jobs(latencies, metric, 20)[layout]


@claims.explains("p99", tested_by="volumes: gp2 credit model")
def credits_consumed():
    """after 32th job the gp2 disks consumed all burst credits"""


@claims.explains("p99", tested_by="volumes: gp2 credit model, device counters")
def due_to_throttling():
    """become slow (5/6x) due to throttlings"""


@claims.compares("p99", "~5..6", "factor of the mean p99", "volumes", layout=GP2, metric=["p99"])
@claims.compares(
    'p99.9 ("Same points of sync_lat_p99_ms; plus:")',
    "~5..6",
    "factor of the mean p99.9",
    "volumes",
    layout=GP2,
    metric=["p99.9"],
)
@claims.compares("p99, tested with the mean", "~5..6", "factor of the mean", "volumes", layout=GP2, metric=["mean"])
def five_six_times(latencies, layout, metric):
    """become slow (5/6x) due to throttlings"""
    return _compare_jobs(latencies, metric, layout, SLOW_FROM[layout])


@claims.compares(
    "p99, jobs below the red limit of the table, 10 ms", ">1", "factor of the number of jobs, gp2x2 / gp2x1", "volumes"
)
def longer_reliable(latencies):
    """the cluster with etcd as second disk using gp2 was more reliable for a longer period, comparing with single disk
    node"""
    jobs = _count_fast_jobs(latencies, "p99", 10)
    return jobs["gp2x2"] / jobs["gp2x1"]


@claims.compares("p99.9, jobs before the rise", ">1", "factor of the number of jobs, gp2x2 / gp2x1", "volumes")
def longer_reliable_p99_9(latencies):
    """Same points of sync_lat_p99_ms; plus:"""
    jobs = _count_fast_jobs(latencies, "p99.9", 20)
    return jobs["gp2x2"] / jobs["gp2x1"]


@claims.compares("Results")
def same_capacity():
    """The volume has same capacity using standard values for IOPS and throughput (gp3)"""


@claims.quantifies("Results", "4", "clusters")
def four_clusters(latencies):
    """the tests was done in 4 clusters in two disk layouts (single disk, etcd isolated) using gp2 and gp3"""
    return latencies["battery_id"].nunique()


@claims.quantifies("Results; and under p99.9, mean, max, stddev, all metrics", "50", "count")
def fifty_tests(latencies):
    """Total of FIO consecutive tests: 50"""
    return latencies.groupby("layout")["job_Id"].nunique()


@claims.quantifies("Results", "~1500..2000", "IOPS", "volumes: device counters (/proc/diskstats) per job")
def max_iops_all_jobs():
    """Max IOPS on all jobs job: ~1.5/2k IOPS"""


@claims.quantifies("p99.9, mean, max, stddev, all metrics", "2000", "IOPS", "volumes: device counters per job")
def max_iops_this_job():
    """Max IOPS on this job: 2k IOPS"""


@claims.quantifies(
    'Results; "Max IOPS on gp2: 386 (128GiB)" five times', "386", "IOPS", "volumes: credit model with baseline 384"
)
def max_iops_gp2():
    """Max IOPS for gp2 device: 386 (capacity=128GiB, throughput*=128 MiB/s)"""
    return 3 * 128


@claims.quantifies("p99.9, mean, max, stddev, all metrics", "386", "IOPS")
def max_iops_gp2_128gib():
    """Max IOPS on gp2: 386 (128GiB)"""
    return 3 * 128


@claims.quantifies("p99", "380", "IOPS")
def max_iops_380():
    """(higher than max [380 IOPS])"""
    return 3 * 128


@claims.quantifies("Results", "3000", "IOPS")
def max_iops_gp3():
    """Max IOPS for gp3 device: 3000"""
    return 3000


@claims.quantifies("p99.9, mean, max, stddev, all metrics", "3000", "IOPS")
def max_iops_gp3_default():
    """Max IOPS on gp3: 3000 [default] (128GiB)"""
    return 3000


@claims.quantifies("Results", "128", "MiB/s")
def throughput_gp2():
    """throughput*=128 MiB/s"""
    return 128


@claims.quantifies("Results", "120", "MiB/s")
def throughput_gp3():
    """throughput=120MiB/s"""
    return 125


@claims.quantifies("AWS note", "128..250", "MiB/s")
def aws_throughput_range():
    """ "The throughput limit is between 128 MiB/s and 250 MiB/s, depending on the volume size."""


@claims.quantifies("AWS note", "128", "MiB/s")
def aws_throughput_small():
    """Volumes smaller than or equal to 170 GiB deliver a maximum throughput of 128 MiB/s."""


@claims.quantifies("AWS note", "250", "MiB/s")
def aws_throughput_medium():
    """Volumes larger than 170 GiB but smaller than 334 GiB deliver a maximum throughput of 250 MiB/s if burst credits
    are available."""


@claims.quantifies("AWS note", "250", "MiB/s")
def aws_throughput_large():
    """Volumes larger than or equal to 334 GiB deliver 250 MiB/s regardless of burst credits."""


@claims.explains("AWS note", "2018-12-03", "date")
def aws_before_2018():
    """gp2 volumes that were created before December 3, 2018 and that have not been modified since creation might not
    reach full performance unless you modify the volume."
    """


@claims.compares("p99", ">1", "factor", "volumes", layout=GP3, against=GP2)
def gp3_higher_normal(latencies, layout, against):
    """gp3 in normal conditions had lattency higher than gp2"""
    return _compare_layouts(latencies, "p99", layout, against, NORMAL)


@claims.compares(
    "p99.9, gp3 in normal conditions higher than gp2",
    ">1",
    "factor",
    "volumes",
    name="gp3-higher-normal",
    layout=GP3,
    against=GP2,
    metric=["p99.9"],
)
def gp3_higher_normal_p99_9(latencies, layout, against, metric):
    """Same points of sync_lat_p99_ms; plus:"""
    return _compare_layouts(latencies, metric, layout, against, NORMAL)


@claims.compares("p99, jobs with both gp2 layouts slow", "<1", "factor, gp3 / gp2", "volumes")
def trade_off_reliability(latencies):
    """Trade-off in reliability (when long intensive IOPS) and performance (in normal operation)"""
    return _compare_types(latencies, SLOW)


@claims.compares("p99, jobs with all layouts fast", ">1", "factor, gp3 / gp2", "volumes")
def trade_off_performance(latencies):
    """Trade-off in reliability (when long intensive IOPS) and performance (in normal operation)"""
    return _compare_types(latencies, NORMAL)


@claims.compares("p99.9", ">1", "factor", "volumes", type=["gp2", "gp3"])
def isolated_slower_p999(latencies, type):
    """isolated etcd disk reported slower than single disk"""
    return _compare_layouts(latencies, "p99.9", f"{type}x2", f"{type}x1")


@claims.compares("p99.9, jobs from the 33rd on vs the jobs before", "~1.0", "factor of the mean p99.9", "volumes")
def gp3_stable_long_p99_9(latencies):
    """gp3 become stable in a long period of writes"""
    return _compare_jobs(latencies, "p99.9", GP3, "g3")


@claims.compares("p99.9, gp3 below the red limit of the table, 10 ms", "<10", "ms", "volumes: limit as a parameter")
def gp3_below_max_p99_9(latencies):
    """Same points of sync_lat_p99_ms; plus:"""
    return _get_layouts(latencies, "p99.9")[GP3].stack()


@claims.compares("mean", ">1", "factor", "volumes")
def isolated_slower_mean_gp2(latencies):
    """gp2: isolated etcd disk reported slower than single disk"""
    return _compare_layouts(latencies, "mean", "gp2x2", "gp2x1")


@claims.compares("max", "<1", "factor", "volumes")
def isolated_gp2_reliable_max(latencies):
    """isolated gp2 become more reliable than single disk when burst balance ended"""
    return _compare_layouts(latencies, "max", "gp2x2", "gp2x1", SLOW)


@claims.compares(
    "stddev, jobs with both layouts slow", "~1.0", "factor of the standard deviation, gp2x2 / gp2x1", "volumes"
)
def similar_deviation(latencies):
    """gp2: similar/expected deviation when throttling for both disk layouts"""
    return _compare_layouts(latencies, "stddev", "gp2x2", "gp2x1", SLOW)


@claims.explains("stddev", tested_by="volumes: gp2 credit model")
def expected_deviation():
    """gp2: similar/expected deviation when throttling for both disk layouts"""


# Functions that recompute published labels (results/published/volumes/audit/labels.csv)


def compute_forced_writes_per_second(latencies):
    return 1000 / latencies["sync_lat_mean_ms"]


def list_battery_ids(latencies):
    return latencies["battery_id"]
