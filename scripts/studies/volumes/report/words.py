"""Words of the page of volumes: one table of templates, as `scripts.report.words` is that of what all pages say."""

from scripts.report.words import make_fill

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
    # What became of a limit.
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
    # What to do next.
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
    # What these data cannot say.
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
}

fill = make_fill(TEMPLATES)
