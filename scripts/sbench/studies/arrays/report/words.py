"""Templates of text on the page of arrays; `sbench.pages.words` has the templates of all pages."""

from sbench.pages.words import make_fill

TEMPLATES = {
    "acknowledged": "{service} acknowledges what is written to {store} {compression} at {acknowledged} MiB/s and has "
    "stored it at {stored} MiB/s: it stores what it holds about once a second.",
    "cores": "{place}, writing {what} with gzip took, in CPU seconds, the service's nodes {service}; the library's "
    "processes {library}.",
    "table of writing": "Writing: bytes of the values divided by the time; medians, 95 % CI.",
    "table of nodes": "What a service's nodes took while a cell was measured; medians.",
    "table of trials": "The service's limit is {limit}. Outcomes over all repeats; memory: by how much the peak of a "
    "node grew while the request was answered; medians.",
    "colours of trials": "every repeat was answered; no repeat was",
    "above limit": "{how}, {answered} of {of} binary reads and writes of up to {most:g} times the request limit were "
    "answered{others}.",
    "not answered": "; the others: {outcomes}",
    "memory": "With streaming, a binary read of {small} made the service node's memory grow by {growth}, one of "
    "{large} by {most}; its first byte came after {first} s, its last after {last} s.",
    "other requests": "What else was above the limit, with streaming: {kinds}.",
    "room": "{how}, reads of {size} were answered by data nodes with a memory limit as follows (room as a multiple of "
    "the read): {counts}.",
    "turned away": "Of {many:g} requests in flight to a service that takes {tasks:g} tasks, {busy} were turned away "
    "(503).",
    "beside client": "The service runs beside its client, whose cores it takes, without a network between them or "
    "containers.",
    "not printed": "The published rates are not shown: {problem}.",
}
fill = make_fill(TEMPLATES)
