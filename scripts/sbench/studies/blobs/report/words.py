"""Templates of the texts of the page of blobs, like `sbench.pages.words` for the texts of all pages."""

from sbench.pages.words import make_fill

TEMPLATES = {
    # Groups of arms, and the picture.
    "whole objects": "where each process gets a whole object",
    "sections": "where each process gets a section",
    "picture": "What four processes get of the objects. Thick arrows: reads from the store; thin ones: messages "
    "between processes. Each process holds what is drawn in it; colours say whose section a block is.",
    "own objects": "own objects: rank i reads its section of object i, so that no two read the same object.",
    # Tables.
    "of own objects": "{pattern}, each of an object of its own",
    "how": "latency: median of the iterations after the first (of a single one, that one); bandwidth: all bytes "
    "divided by the time, without the first iteration; [95 % CI] over the repeats, where they are 6 or more",
    "how as published": "latency: as printed, the mean of all iterations; bandwidth: all bytes divided by it",
    "colours of trouble": "a repeat of the cell broke a rule of measuring",
    "table of iterations": "Medians over the repeats. Later: the median of a record's iterations after the first; "
    "slowest / fastest iteration: of the later ones.",
    "table of distribution": "Medians over the repeats. Reading: the share of the latency in which rank 0 reads; "
    "distributing: the rest; bare MPI: the same bytes, broadcast or scattered from rank 0's memory after the "
    "iterations, which bounds it.",
    # Limits.
    "one machine": "All processes ran on one machine: broadcasts go through its memory, not over a network between "
    "machines.",
    "refused": "The bare client could not be measured in {many}: {reason}.",
    "threads": "In {many} of an earlier version the bare client was threads of one process on one machine, which may "
    "get less than several.",
    "above bare client": "In {many} the processes got more than the bare client, by more than 5 %: what it gets is "
    "measured, and there it is not a bound.",
    "retried": "The clients retried {many}; the times include that.",
    "idle": "In {many} some processes had nothing to read.",
}
fill = make_fill(TEMPLATES)
