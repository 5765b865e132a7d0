"""Declare the report of the volumes study: factors, metrics, and descriptions of the method."""

from typing import Any

from sbench.pages.declaration import Factor, Metric, Report

_BESIDE = {"same": "on the same volume", "other": "on another volume"}
_STATES = ("full", "partly spent", "spent")


def _name_limits(results: Any) -> dict[str, str]:
    """Return the text for "the application's limit", such as "etcd: 10 ms, openshift: 20 ms"."""
    limits = results.limits[["limit", "limit_ms"]].drop_duplicates() if len(results.limits) else results.limits
    texts = [f"{limit['limit']}: {limit['limit_ms']:g} ms" for limit in limits.to_dict("records")]
    return {"the application's limit": ", ".join(texts)}


REPORT = Report(
    study="volumes",
    title="Latency of volumes",
    headline="store",
    factors=(
        Factor("store", place=True, subject="on {}", within="{}", label="{}"),
        Factor("job", subject="in job {}", within="{}", label="{}"),
        Factor(
            "background",
            names={"none": "without a second job", "unknown": ""}
            | {level: f"with a second job {where}" for level, where in _BESIDE.items()},
            labels={"none": "alone"} | {level: f"load {where}" for level, where in _BESIDE.items()},
            within="{}",
            order=("none", "same", "other"),
        ),
        Factor(
            "start_credits",
            names={"": ""} | {state: f"with {state} burst credits" for state in _STATES},
            labels={state: f"{state} credits" for state in _STATES},
            within="{}",
            order=("", *_STATES),
        ),
        Factor("host", subject="on {}", within="{}", label="{}", labels={"all": "all together"}),
        Factor("phase", within="{}", order=("all", "before the first change", "after the last change")),
    ),
    metrics=(
        Metric("p99", "p99", is_time=False),
        Metric("p50", "p50", is_time=False),
        Metric("p99.9", "p99.9", is_time=False),
        Metric("mean", "mean latency", is_time=False),
        Metric("iops", "throughput in IOPS", is_time=False),
    ),
    values=(),
    named=_name_limits,
    unit="job",
)
# Paragraphs by topic; a page omits topics that do not apply to its volumes.
METHOD = {
    "batteries": "A battery runs a fio job many times in a row on a volume, with pauses. Figures and tables show its "
    "jobs in time order, outliers included.",
    "latencies": "Latencies are fio's, by operation. Percentiles of several jobs come from merged histograms, never "
    "from averages, and need at least 10 operations above them. 95 % CIs resample whole jobs. Rates are all operations "
    "or bytes divided by all time.",
    "limits": "A series of jobs meets a limit if the 95 % CI of the percentile is below it, misses it if the CI is "
    "above it, and is undecided otherwise. Each segment is judged: all must meet the limit, and a single segment can "
    "miss it.",
    "shares": "A job waits for each operation, so it starts none during a stall (coordinated omission): a stall of 1 s "
    "is a single operation of etcd's 10,029 and does not change their p99. Hence the share of time at or above a "
    "limit: the sum of these latencies divided by the time of the jobs. Its 95 % CI resamples jobs and is at least as "
    "wide as fio's buckets.",
    "open loops": "A job with a rate (rate_iops) is an open loop: latencies count from the due time of each operation, "
    "computed from fio's latency log, in which operations wait for earlier operations. Open loops are compared only "
    "with each other, and their share of operations at or above a limit is the share of time.",
    "segments": "A search for changes in the level of the jobs' p99 finds the segments; a jump is the ratio of the "
    "medians after and before it.",
    "burst credits": "Burst credits follow the published rules of the volume's type: I/Os of the device above the "
    "baseline spend them, and the baseline refills them. The page names the source of the I/Os per write: counted by "
    "the device, derived from the jobs after the credits ran out (hindsight), or assumed.",
    "comparisons": "Comparisons are ratios contender / baseline over all jobs or, if a volume changed, separately over "
    "the jobs before the first and after the last change. An interval within ±{percent:g} % means the same, an "
    "interval without 1 faster or slower, any other no evidence. A verdict needs 6 batteries a side (else: too few "
    "repeats), not all in the same order (else: not comparable); the numbers of a figure name the method of each "
    "comparison.",
}
# Rules that cannot apply, with the reasons (METHOD 23). Numbers and names are as in docs/method.md.
NOT_APPLICABLE = {
    "2, blocks in random order": "a battery is a series in time order, without blocks; batteries run in random "
    "order{credits}",
    "5, repeats": "a battery is a single record, and its jobs are a series, not independent repeats",
    "6, A/A control": "a second battery meets the volume in another state",
    "8, cache state": "each write is forced to the disk; the cache state of reads is fio's setting (direct, "
    "invalidate) and not verified",
    "9, checksum": "fio generates its data; checks compare jobs, bytes and operations done with the request",
    "11, requests": "a file system counts no requests; I/Os of the device are shown if the kernel counts them",
    "13, the harness's own cost": "fio starts its clock itself, and the workflow does nothing between its operations",
    "17, comparisons of blocks": "with fewer than 6 batteries a side, jobs of two series are compared without a "
    "verdict; the numbers of each comparison name the method",
}
