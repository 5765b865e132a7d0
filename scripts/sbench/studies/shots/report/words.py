"""Templates of text on the pages of shots; `sbench.pages.words` has the templates of all pages."""

from sbench.pages.words import make_fill

FAULTS = {"reset": "a connection reset", "503": "a 503 SlowDown", "cut": "an answer cut at its half"}
TEMPLATES = {
    "order of reads": "{what}: {objects}, one after the other; within each: {datasets} ({reads} in all).",
    "table of reads": "The order of reads, on which requests and bytes depend if a reader keeps or prefetches bytes: "
    "one object after the other, as the first record has them; within each, its datasets in the order of the manifest "
    "(results/{run}/data/…/manifest.json), each file opened once. Several workers read consecutive parts of that "
    "order. The hash is that of all reads.",
    "index": "{who}: the index takes {seconds} s{requests} to make{pays}.",
    "index never pays": "; its reads took no less time than those with {driver}, the fastest without one, in medians "
    "that were not compared",
    "index pays": "; by the medians it pays from {reads} on, against {driver}, the fastest without one ({saved} s "
    "saved per read)",
    "fault": "{what} in every {every}th GET",
    "not met": "has not met",
    "recovers": "recovers from",
    "never recovers": "does not recover from",
    "not always recovers": "does not always recover from",
    "recovered": "{who} recovered in all {reads} that met a fault",
    "failed reads": "of the reads by {who}, {failed}",
    "failed with": "{failed} of {attempts} failed with {fault}",
    "failed": "{failed} of {reads} failed {interval} %]",
    "survived": "; {faults} survived",
    "cost of faults": ", at {gets} more GET{s} and {seconds} s each",
    "table of recovery": "Reads that met a fault, and those that ended with an error or other values. Faults survived, "
    "and what each cost beside the cell without faults, are of the reads that recovered.",
    "table of object times": "mean-obj-time in seconds, {access}: tasks of all repeats, by effective page buffer and "
    "number of workers.",
}
fill = make_fill(TEMPLATES)
