"""Text templates of the blobs report; templates that all reports share are in `sbench.pages.words`."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # Names of groups of compared cells, and captions of the diagram of patterns.
    "whole objects": "when each process reads a whole object",
    "sections": "when each process reads a section",
    "picture": "Data flow for four processes. Thick arrows: reads from the store; thin arrows: messages between "
    "processes. Boxes show the data of each process; a colour per section.",
    "own objects": "own objects: rank i reads its section of object i, so no two ranks read the same object.",
    # Tables.
    "of own objects": "{pattern}, each of a different object",
    "how": "latency: median of the iterations after the first; bandwidth: all bytes divided by the time, without the "
    "first iteration if there are others; [95 % CI] over 6 or more repeats",
    "how as published": "latency: as printed, the mean of all iterations; bandwidth: all bytes divided by it",
    "colours of trouble": "a repeat of the cell broke a rule of measuring",
    "table of iterations": "Medians over the repeats. Later: median of a record's iterations after the first; slowest "
    "/ fastest iteration without the first.",
    "table of distribution": "Medians over the repeats. Reading: the share of the latency in which rank 0 reads; "
    "distributing: the rest; bare MPI, its lower bound: the same bytes, broadcast or scattered from rank 0's memory "
    "after the iterations.",
    # Limitations.
    "one machine": "All processes ran on the same machine, so broadcasts go through memory, not over a network.",
    "refused": "The bare client could not be measured in {many}: {reason}.",
    "threads": "In {many} of an earlier version the bare client was a single process with threads, which may reach a "
    "lower rate than several processes.",
    "above bare client": "In {many} the processes were more than 5 % faster than the bare client: its measured rate "
    "is not a bound there.",
    "retried": "The clients retried {many}; the times include the retries.",
    "idle": "In {many} some processes read nothing.",
}
fill = make_fill(TEMPLATES)
