"""Check records of the particles study: number of particles, threads per worker, and reads per chunk."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(3)
def check_particles(layout: dict, label: int | str, particles: int) -> Iterator[str]:
    """Check that a snapshot has the number of particles that its label implies."""
    if layout["particles"] != particles:
        yield f"the snapshot must have {label} particles (got {layout['particles']})"


@rule(9)
def check_chunks(work: dict) -> Iterator[str]:
    """Check that each chunk was read as often as the task list contains it."""
    if work["chunks_twice"]:
        yield f"{work['chunks_twice']} chunks were not read exactly as often as listed"


@rule(10)
def check_threads(effective: dict, threads: int) -> Iterator[str]:
    """Check that workers had the number of threads in the label."""
    if effective["threads"] != threads:
        yield f"workers must have {threads} threads (got {effective['threads']})"
