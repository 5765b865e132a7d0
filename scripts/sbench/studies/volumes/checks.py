"""Checks of a battery of fio: its jobs, and what fio's own output says of them."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(9)
def check_finished(record: dict) -> Iterator[str]:
    """Check that some job of the battery was finished."""
    if not record["samples"]:
        yield [*record["faults"], "no job of the battery was finished"][0]


@rule(9)
def check_jobs(work: dict) -> Iterator[str]:
    """Check that all jobs were done."""
    if work["jobs_done"] < work["jobs_asked"]:
        yield f"{work['jobs_done']} jobs were done, {work['jobs_asked']} asked"


@rule(10)
def check_output(record: dict) -> Iterator[str]:
    """Check that jobs were run as asked, as the measuring program read it in fio's output."""
    yield from record["faults"]
