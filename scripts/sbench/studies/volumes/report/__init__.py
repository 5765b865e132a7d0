"""Declare the report of the study `volumes`."""

from sbench.pages.declaration import Factor, Metric, Report

_BESIDE = {"same": "on the same volume", "other": "on another volume"}
_STATES = ("full", "partly spent", "spent")
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
    unit="job",
)
METHOD = (
    "A battery is one fio job many times in a row on one volume, with a pause between; its jobs are shown in time "
    "order, each as it is, none left out as an outlier.",
    "Latencies are those that fio measured around each operation. Percentiles of several jobs come from their "
    "merged histograms, never from averaged percentiles, and are refused where fewer than 10 operations lie above "
    "them. 95 % CI come from resampling whole jobs. Rates are all operations or bytes divided by all time.",
    "A limit is met if the 95 % CI of the percentile lies below it, missed if above it, else undecided. "
    "A series is judged segment by segment: it meets a limit if every segment does, and misses it if any does.",
    "A job waits for each operation before it begins the next, so it begins none while the volume stalls (coordinated "
    "omission): a stall of a second is one operation of etcd's 10,029, and leaves their p99 as it is. Hence the share "
    "of time at or above a limit beside that of operations: the sum of such latencies divided by the time of the jobs. "
    "Its 95 % CI is that over jobs, and at least the width of fio's buckets.",
    "A job with a rate (rate_iops) is an open loop: its latencies count from when each operation was due, as computed "
    "from fio's log of latencies, in which each operation waits for those before it. It is compared with open loops "
    "only, and its share of operations at or above a limit is that of time.",
    "Segments are found by a search for changes in the level of the jobs' p99; a jump is the ratio of the medians "
    "of the jobs on both sides.",
    "Credits follow the published rules of the volume's type: spent by what the device does above its baseline, "
    "refilled at the baseline. What a write costs is counted by the device, or follows from the jobs after the "
    "credits were gone (hindsight), or is assumed; the answer says which.",
    "Comparisons are ratios contender / baseline of all jobs or, where a volume changed, apart for the jobs before the "
    "first change and after the last: an interval within ±{percent:g} % is the same, one without 1 faster or slower, "
    "any other no evidence. They need 6 batteries a side (too few repeats), of which not all were measured in "
    "one order (not comparable); the method of each is in the numbers.",
)
# METHOD 23: declare a rule that cannot apply, with the reason; numbers and names are as in docs/method.md.
NOT_APPLICABLE = {
    "2, blocks in random order": "a battery is one series in time order, whose jobs are in no block; batteries are in "
    "random order unless a volume is known to have burst credits, which carry over from battery to battery",
    "5, repeats": "a battery is one record; its jobs are a series, not independent repeats of a block",
    "6, A/A control": "measuring a volume twice is measuring it with other credits",
    "8, cache state": "each write is forced to the disk, and what reads find in memory is fio's own setting (direct, "
    "invalidate) and not verified",
    "9, checksum": "fio writes values of its own making; jobs, bytes and operations done are compared with those asked",
    "11, requests": "a file system counts no requests; what the device did is shown where the kernel tells",
    "13, the harness's own cost": "fio starts its own clock; nothing of the workflow runs between its operations",
    "17, comparisons of blocks": "below 6 batteries a side the jobs of two series are compared, without a "
    "verdict, by the method given in the numbers of each comparison",
}
