"""Text templates of the arrays report; templates that all reports share are in `sbench.pages.words`."""

from sbench.pages.words import make_fill

TEMPLATES = {
    "acknowledged": "{service} acknowledges writes to {store} {compression} at {acknowledged} MiB/s and stores them "
    "at {stored} MiB/s: it flushes about once per second.",
    "cores": "{place}, writing {array} with gzip: CPU seconds of the service's nodes: {service}; of the library's "
    "processes: {library}.",
    "table of writing": "Writing: bytes of the values divided by the time; medians, 95 % CI.",
    "table of nodes": "CPU time and memory of a service's nodes during a cell; medians.",
    "table of trials": "The service's limit is {limit}. Outcomes are those of all repeats. Memory is the median growth "
    "of a node's peak during the request.",
    "colours of trials": "all repeats succeeded; all repeats failed",
    "above limit": "{how}, {answered} of {of} binary reads and writes of {times} times the request limit "
    "succeeded{others}.",
    "none answered": "; all were {outcomes}",
    "not answered": "; outcomes of the other {many}: {outcomes}",
    "memory": "With streaming, a binary read of {small} increased the service node's memory by {growth}, a read of "
    "{large} by {most}. The first byte of the {large} arrived after {first}, the last after {last}.",
    "other requests": "Other requests above the limit, with streaming: {kinds}.",
    "room": "{how}, successful reads of {size} by data nodes with a memory limit (additional memory as a "
    "multiple of the read): {counts}.",
    "turned away": "Of {many:g} requests in flight to a service with a limit of {tasks:g} tasks, {busy} were "
    "rejected (503).",
    "beside client": "Service and client share the cores of a machine, without containers or a network between them.",
    "not printed": "The published rates are not shown: {problem}.",
}
fill = make_fill(TEMPLATES)
