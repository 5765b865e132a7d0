"""Templates for text in reports of the shots study; `sbench.pages.words` contains the templates for all reports."""

from sbench.pages.words import make_fill

FAULTS = {"reset": "a connection reset", "503": "a 503 SlowDown", "cut": "a response cut at half its length"}
TEMPLATES = {
    "order of reads": "{access}: {objects}, in this order; within each: {datasets} ({reads} in all).",
    "table of reads": "The order of reads, which affects requests and bytes if a reader caches or prefetches: objects "
    "in the order of the first record; within each, datasets in the order of the manifest "
    "(results/{run}/data/…/manifest.json), each file opened once. Several workers read consecutive parts of that "
    "order. The hash covers all reads.",
    "index": "{who}: making the index takes {seconds} s{requests}{pays}.",
    "index never pays": "; its reads were not faster than with {driver}, the fastest driver without an index "
    "(medians, not compared)",
    "index pays": "; by the medians it pays off from {reads} on, compared with {driver}, the fastest driver without "
    "an index ({saved} s saved per read)",
    "fault": "{fault} in every {every}th GET",
    "not met": "did not encounter",
    "recovers": "recovers from",
    "never recovers": "does not recover from",
    "not always recovers": "does not always recover from",
    "recovered": "{who} recovered in all {reads} with a fault",
    "failed reads": "of the reads by {who}, {failed}",
    "failed with": "{failed} of {attempts} failed with {fault}",
    "failed": "{failed} of {reads} failed {interval} %]",
    "survived": "; {faults} survived",
    "cost of faults": ", each at a cost of {gets} additional GET{s} and {seconds} s",
    "table of recovery": "Reads: reads with at least one fault. Failed: reads that ended with an error or wrong "
    "values. Survived faults and their cost, compared with the cell without faults, refer to the recovered reads.",
    "table of object times": "mean-obj-time, {access}: tasks of the repeats that measured every cell, by effective "
    "page buffer and number of workers.",
}
fill = make_fill(TEMPLATES)
