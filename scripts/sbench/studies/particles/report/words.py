"""Text templates of the particles report; `sbench.pages.words` contains the templates shared by all reports."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # Reasons.
    "dask never faster": "No Dask method was shown to be faster than the serial loop at any size.",
    "chunk and task": "The loop reads a chunk in {chunk} ms; a task that reads nothing costs {tasks}.",
    "cost of task": "{cost} ms with {method}",
    # Tasks through yt.
    "through yt": "{cell}: without reading, a task of yt-delayed {yt}, a task of delayed {other}. With reading, "
    "the ratio of times yt-delayed / delayed is {ratio}: {verdict}.",
    "objects of yt": " (yt's chunk and dataset)",
    "sent": "receives {size:,.0f} bytes{parts} and costs {cost} ms",
    # Parquet copies.
    "converting": "{cell}, {method}: making the copy takes {making} s; it has {copy} MiB, the field in the HDF5 "
    "files {files} MiB. Reading the copy vs the HDF5 files: {outcome}; {pays}.",
    "pays from": "converting pays off from {reads:,} [{fewest:,}, {most:,}] reads on",
    "never pays": "converting was not shown to pay off at any number of reads",
    "pays undecided": "it is undecided whether converting pays off",
    # Memory limits.
    "table of memory": "Reductions with a memory limit for all workers together; data as 8-byte numbers; median [95 % "
    "CI].",
    "colours of memory": "a worker above its limit",
    # Limitations.
    "taken for one": "{who}, {particles} particles: {read:,.0f} of {listed:,.0f} listed chunks were read, because "
    "Dask runs equal tasks once; the time does not cover all listed chunks.",
    "one machine": "All processes ran on the same machine: their messages do not cross a network.",
    "read again": "In {cells} chunks were read more than once: later reads find their bytes in the page cache.",
    "not printed": "The published timings are not shown: {problem}.",
}
fill = make_fill(TEMPLATES)
