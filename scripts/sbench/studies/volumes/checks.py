"""Check a battery of fio: its jobs, and the faults in fio's output."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(9)
def check_finished(record: dict) -> Iterator[str]:
    """Check that the battery finished a job."""
    if not record["samples"]:
        yield [*record["faults"], "the battery finished no job"][0]


@rule(9)
def check_jobs(work: dict) -> Iterator[str]:
    """Check that the battery did all jobs."""
    if work["jobs_done"] < work["jobs_asked"]:
        yield f"{work['jobs_done']} of {work['jobs_asked']} jobs done"


@rule(10)
def check_output(record: dict) -> Iterator[str]:
    """Check that jobs ran as asked, by the faults that the measuring program found in fio's output."""
    yield from record["faults"]
