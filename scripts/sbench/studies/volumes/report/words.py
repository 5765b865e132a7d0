"""Text templates of the volumes report; `sbench.pages.words` contains the templates shared by all reports."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # Headline: a clause on volumes with the most favourable verdict, then clauses on the others.
    "meets": "{metric} stayed below {limit} on {series}",
    "misses": "{metric} did not stay below {limit} on {series}",
    "undecided": "it is undecided whether {metric} stayed below {limit} on {series}",
    "not judged": "{metric} could not be judged against {limit} on {series}",
    "but misses": ", but not on {series}",
    "but undecided": "; undecided on {series}",
    "but not judged": "; not judged on {series}",
    "kept by": "{metric} stayed below {limit} on {many} of {of} volumes{most}",
    "kept by series": "{metric} stayed below {limit} in {many} of {of} series of jobs{most}",
    "at the earliest": "{time} at the earliest",
    "highest": " (at most {value} ms)",
    "others": "; {others}",
    "missed by": "{many} missed it (slowest: {slowest})",
    "open": "{many} undecided",
    "unjudged": "{many} not judged",
    "reached": "{iops:,.0f} IOPS on {series} (p99 {p99} ms)",
    "of series": "{operation}, {many} series",
    "no limit": "{of}: {each}; no limit applies.",
    # Latencies, limits and shares.
    "when due": "{operation} since its due time",
    "on hosts": "on each of {many} hosts",
    "more": "{many} more",
    "own limit": "the limit {name} of {height}",
    "over limit": "{share} % of operations{time}",
    "over limit in time": ", {share} % of the time",
    "at least": "at least {low} ms",
    "between": "between {low} and {high} ms",
    # Outcome of a limit.
    "limit": "{metric} {verb} {limit}",
    "limit undecided": "it is {undecided} whether {metric} meets {limit}",
    "slowest segment": " in the slowest of {segments} segments",
    "over": "{jobs} at or above it individually",
    "all jobs": " in all {jobs}{time}",
    "first jobs": " in the first {jobs}{time}",
    "then": "then {verb}{at}",
    "later battery": " in a later battery",
    "from job": " from {jobs} on",
    "as late": "as late as {job}",
    # Next steps.
    "use only": "Use {series}, the only volume that stayed below {limit}: {value}.",
    "use lowest": "Use {series}: {value}, lower than the other volumes below {limit}.",
    "use any": "Use any of {series}: all stayed below {limit}, and none was shown to be the lowest.",
    "larger": "Replace {volume} by a volume with a baseline of at least {demand} IOPS, which these jobs request; its "
    "baseline without burst credits is {baseline}.",
    "more jobs here": "Raise {jobs} and run again to decide on {series}: more jobs narrow the interval.",
    "more jobs elsewhere": "Import more jobs, with fio's {json}, to decide on {series}: more jobs narrow the interval.",
    "too short": "batteries too short to meet a limit",
    "again": "Measure {series} again: {why}.",
    "more batteries": "Raise {batteries} to {needed} or more for verdicts on differences: with fewer, a difference may "
    "come from other load at the time, not from the volume.",
    # Limitations of the data, with remedies.
    "single battery": "Each volume has a single battery, so intervals do not cover another day, volume or machine; "
    "raise {batteries} to {needed} to compare volumes.",
    "buckets": "fio's latency buckets are about 0.8 % wide: ignore smaller differences, and a percentile slightly "
    "above the maximum.",
    "no histograms": "{lacking} of {batteries} batteries came without histograms, so bounds replace their percentiles; "
    "run fio with {json}.",
    "no times": "The times of some jobs are unknown: read durations as estimates from latencies and pauses.",
    "hosts differ": "Volumes were measured on different hosts: before you blame a volume, measure both on the same "
    "host.",
    "not measured here": "All results are imported: ask their authors about other load and earlier use of the volumes.",
    "caches of devices": "A disk that acknowledges writes before they are safe looks fast: check that its cache has "
    "power-loss protection.",
    "files left out": '{files} of the import could not be used: see "Failed, invalid and left out".',
    # Captions of plots. The "… drawn" texts are appended if a plot contains that element.
    "figure of jobs": "Each mark is a job. Dashed: the limits.",
    "changes drawn": " Dotted, in the colour of its line: the first job after a change.",
    "credits drawn": " Lower panel: burst credits left, by the model of the volume's type.",
    "figure of series": "Bars: 95 % CI, or bounds without a histogram. Dashed: the limits.",
    "series drawn": " Drawn: the {drawn} highest of {of}; the numbers have all.",
    "figure of segments": "Bars: median p99 of a segment.",
    "axis shared": " All panels share the latency axis.",
    "jumps drawn": " Dotted: the first job of a segment, with the ratio to the segment before.",
    "segments drawn": " Drawn: the {drawn} batteries whose p99 changed most; the numbers have all.",
    "figure of rates": "Each mark is a job: IOPS (left) and throughput (right) of fio.",
    "device drawn": " Crosses: I/Os of the device.",
    "ceilings drawn": " Dashed: the provisioned rate of the volume.",
    "baselines drawn": " Dotted: its rate without burst credits.",
    "no rates": "unknown for these results.",
    "figure of depths": "Each mark is a series of jobs.",
    "depths drawn": " The first {drawn} are drawn.",
    "figure of percentiles": "Half of all operations are left of 50, 1 in 100 right of 99. Marks: percentiles of "
    "merged histograms, some with their 95 % CI; at least 10 operations are above each. Dashed: the limits.",
    "no curve": " Without histograms, and so without a curve: {lacking} series.",
    "no bins": "unknown without histograms; run fio with --output-format=json+.",
    "figure of load": "Each mark is a job. Dashed: the limits.",
    "no load": "unknown for these results.",
    # Titles of collapsed tables.
    "fold": "{title} ({rows} rows)",
    "title of segments": "Segments",
    "title of series": "All jobs together",
    "title of jobs": "{metric} of {operation}{about}",
    "title of left out": "Unusable files of the import",
    # Captions of tables, and explanations of their colours.
    "table at a glance": "Each verdict covers all jobs of a series. Beside it: p99 [95 % CI] of these jobs or, if "
    "their level changed and they do not meet the limit or lack histograms, of the slowest segment with this verdict. "
    "Stayed below: from the start of the battery to the first segment that does not meet the limit.",
    "shares at a glance": " Operations at the limit or above: their share of all operations and, because a stall of "
    "any length is a single operation, their share of the time [95 % CI].",
    "table of rates": "Rates and latencies over all jobs of a series; the highest p99 first.",
    "table of limits": "The limits and their sources.",
    "table of segments": "Series whose level changed, segment by segment; p99 is the median of the jobs.",
    "table of series": "Percentiles of merged histograms with 95 % CI, empty with fewer than 10 operations above them; "
    "rates are operations or bytes divided by time. Intervals from bounds of the jobs (without histograms): median of "
    "the jobs' percentiles, with the smallest and the largest. Device writes per write: I/Os of the device per write "
    "of fio.",
    "table of jobs": "{metric} of {operation} in {unit}, by job and volume{about}.",
    "yellow": "yellow (△) at {height:g} ms or more, ",
    "red": "red (▲) at {height:g} ms or more",
    "table of node": "{about}: latencies of {operation}, rates, and the state of the host, job by job.",
    "table of left out": "Files of the import that could not be used.",
    "table of batteries": "Batteries in the order of their start (UTC).",
    "credits carry over": " Burst credits that a battery spends are missing at the start of the next on the volume.",
    "table of volumes": "Volumes, by the configuration or the instance's metadata, and the software that wrote to "
    "them.",
}

fill = make_fill(TEMPLATES)
