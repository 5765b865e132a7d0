"""Templates of the texts of the page of particles, like `sbench.pages.words` for the texts of all pages."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # Reasons.
    "dask never faster": "No Dask method was shown to be faster than the serial loop at any size.",
    "chunk and task": "The loop reads a chunk in {chunk} ms; a task that reads nothing costs {tasks}.",
    "cost of task": "{cost} ms with {method}",
    # Tasks through yt.
    "through yt": "{what}: a task of yt-delayed is sent {own} without reading; one of delayed {other}. Ratio of times "
    "{ratio}: {verdict}.",
    "objects of yt": ", yt's chunk and dataset,",
    "sent": "{size:,.0f} bytes{what} and costs {cost} ms",
    # A copy in Parquet.
    "converting": "{what}, {method}: a copy takes {making} s to make and {copy} MiB instead of {files} MiB. Reading it "
    "against the HDF5 files: {outcome}; {pays}.",
    "pays from": "from {reads:,} [{fewest:,}, {most:,}] reads on, converting pays",
    "never pays": "converting was not shown to pay, however often it is read",
    "pays undecided": "whether converting pays is not decided",
    # Out of core.
    "table of memory": "Reductions whose workers together had a limit of memory; data as 8-byte numbers; median [95 % "
    "CI].",
    "colours of memory": "a worker that took more than its limit",
    # Limits.
    "taken for one": "{who}, {particles} particles: {listed:,.0f} chunks were listed and {read:,.0f} read: Dask takes "
    "tasks that read the same for one. Its time is not that of reading what was listed.",
    "one machine": "All processes ran on one machine: what they send each other does not cross a network.",
    "read again": "In {cells} chunks were read more than once: after the first time their bytes were warm.",
    "not printed": "The published timings are not shown: {problem}.",
}
fill = make_fill(TEMPLATES)
