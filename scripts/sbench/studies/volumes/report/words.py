"""Templates of the texts on the page of volumes; `sbench.pages.words` has the templates that all pages share."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # The headline.
    "headline": "{what} {clauses}.",
    "meets": "stayed below {limit} on {series}",
    "misses": "did not stay below {limit} on {series}",
    "undecided": "may or may not be below {limit} on {series}",
    "not judged": "cannot be judged against {limit} on {series}",
    "kept by": "{many} of {of} series stayed below {limit}",
    "missed by": "{many} did not, the slowest {slowest}",
    "open": "{many} may or may not",
    "unjudged": "{many} cannot be judged",
    "reached": "{iops:,.0f} IOPS on {series} (p99 {p99} ms)",
    "of series": "{many} series, {what}",
    "no limit": "{of}: {each}; no limit is for such operations.",
    # Latencies, limits and shares.
    "when due": "{operation} from when it was due",
    "on hosts": "on each of {many} hosts",
    "more": "{many} more",
    "own limit": "the limit {name} of {height}",
    "over limit": "{share} % of operations{time}",
    "over limit in time": ", {share} % of the time",
    "at least": "at least {low} ms",
    "between": "between {low} and {high} ms",
    # The outcome of a limit.
    "limit": "{what} {verb} {limit}",
    "limit undecided": "it is {undecided} whether {what} meets {limit}",
    "slowest segment": " in the slowest of {segments} segments",
    "over": "{jobs} over it by {own}",
    "all jobs": " in all {jobs}{time}",
    "first jobs": " in the first {jobs}{time}",
    "then": "then {verb}{at}",
    "later battery": " in a later battery",
    "from job": " from {jobs} on",
    "as late": "as late as {job}",
    # The next steps.
    "use only": "Use {series}: {value}, the only one that stayed below {limit}.",
    "use lowest": "Use {series}: {value}, shown to be lower than the others below {limit}.",
    "use any": "Use any of {series}: all stayed below {limit}, and none was shown to be lower than the others.",
    "larger": "In place of {volume}, take a volume with a baseline of at least {demand} IOPS, which these "
    "jobs ask for: its {own} are all that it has without credits.",
    "more jobs here": "Raise {jobs} and run again to decide on {series}: more jobs narrow the interval.",
    "more jobs elsewhere": "Import more jobs, with fio's {json}, to decide on {series}: more jobs narrow the interval.",
    "too short": "too short a battery to meet a limit",
    "again": "Measure {series} again: {why}.",
    "more batteries": "Raise {batteries} to {needed} or more to compare volumes: fewer cannot tell a slower "
    "volume from a busier hour.",
    # The limits of these data.
    "one battery": "Each volume was measured in one battery: the intervals hold for that battery's operations and say "
    "nothing of another day, another volume of the same type or another machine. A difference between volumes "
    "cannot be told from one between two hours.",
    "buckets": "fio counts latencies in buckets about 0.8 % wide, and a percentile is a bucket's value: a "
    "difference of that size means nothing, and a percentile can exceed the maximum.",
    "no histograms": "{lacking} of {batteries} batteries came without histograms (fio's json+): the p99 of "
    "several jobs together is not known. What stands for it is the median of the jobs' own, in brackets the "
    "smallest and the largest of them; limits are judged by these.",
    "no times": "The times of some jobs are not known: how long a limit was kept follows from latencies and pauses.",
    "hosts differ": "Volumes were measured on different hosts: a difference between them may be one between the hosts.",
    "not measured here": "Nothing was measured here: of the machines these results came from nothing is known "
    "beyond the files, neither what else ran nor what the volumes had spent before.",
    "caches of devices": "What hypervisor, controller and device keep in caches of their own is not seen; a disk that "
    "acknowledges before data are safe looks fast.",
    "files left out": '{files} of the import could not be used: see "Failed, invalid and left out".',
    # Captions of figures, and additions if not all is drawn.
    "figure of jobs": "A mark is a job. Dashed: the limits. Dotted, in its line's colour: the first job after a "
    "change. Below, where a volume's type has burst credits: what the model leaves of them.",
    "figure of series": "Bars: the 95 % CI, or the bounds where there is no histogram. Dashed: the limits.",
    "series drawn": " The {drawn} with the highest of {of} are drawn, all are in the numbers.",
    "figure of segments": "Bars: the median p99 of a segment; dotted: its first job, with the ratio to the segment "
    "before. All panels have the same axis of latency.",
    "segments drawn": " The {drawn} in which p99 changed most are drawn, all are in the numbers.",
    "figure of rates": "A mark is a job: operations that fio completed (left) and bytes it moved (right). Crosses: "
    "what the device did for it, where the kernel tells. Dashed: the most that the volume's type and size allow, where "
    "known; dotted: what they allow without burst credits.",
    "no rates": "These are not known.",
    "figure of depths": "A mark is a series.",
    "depths drawn": " The first {drawn} are drawn.",
    "figure of percentiles": "Half of all operations lie left of 50, 1 in 100 right of 99. Marks: the percentiles, "
    "some with their 95 % CI, from merged histograms; a percentile with fewer than 10 operations above it is refused. "
    "Dashed: the limits.",
    "no curve": " {lacking} series without histograms have no curve.",
    "no bins": "These results came without histograms (fio's json+): percentiles of several jobs cannot be merged.",
    "figure of load": "A mark is a job. Dashed: the limits.",
    "no load": "The load average is not known.",
    # Captions of tables, and the meanings of their colours.
    "table at a glance": "The verdict on a whole series, with the value and interval of the segment that decides it. "
    "Kept for: from the battery's start to the first segment that does not meet the limit. At or above it: the share "
    "of operations, and that of time with its 95 % CI, as a job begins no other operation while one stalls.",
    "table of rates": "Operations and bytes divided by time over all jobs of a series, and their latencies; the "
    "highest p99 first.",
    "table of limits": "The limits, and who set them.",
    "table of segments": "The series whose level changed, segment by segment. p99: the median of the jobs' own p99.",
    "table of series": "All jobs of a series together: percentiles of merged histograms with 95 % CI, refused (empty) "
    "where fewer than 10 operations lie above; operations and bytes divided by time over all jobs. Intervals from "
    "bounds of the jobs: without histograms the median of the jobs' own percentiles, with the smallest and the "
    "largest. Device writes per write: write I/Os that the device completed for each write of fio.",
    "table of jobs": "{metric} of {operation} in ms{about}, by job and volume.",
    "yellow": "yellow (△) from {height:g} ms on, ",
    "red": "red (▲) from {height:g} ms on",
    "table of node": "{about}: latencies of {operation}, and the rest, job by job.",
    "table of left out": "Files of the import that are not in the tables.",
    "table of batteries": "The batteries in the order of their start (UTC): credits that one spends are gone for the "
    "next on the volume.",
    "table of volumes": "The volumes, as the configuration or the instance's metadata say, and what wrote to them.",
}

fill = make_fill(TEMPLATES)
