"""Check that a battery of fio jobs is complete, and that fio's output is free of faults."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(9)
def check_finished(record: dict) -> Iterator[str]:
    """Check that at least one job of the battery finished."""
    if not record["samples"]:
        yield [*record["faults"], "the battery finished no job"][0]


@rule(9)
def check_jobs(work: dict) -> Iterator[str]:
    """Check that all planned jobs of the battery finished."""
    if work["jobs_done"] < work["jobs_asked"]:
        yield f"{work['jobs_done']} of {work['jobs_asked']} jobs done"


@rule(10)
def check_output(record: dict) -> Iterator[str]:
    """Report the faults that were found in fio's output, such as jobs that did not run with their options."""
    yield from record["faults"]
