"""The work of a battery: the jobs that were due and done, and what they read and wrote."""

from collections.abc import Sequence


def count_work(due: int, done: int, samples: Sequence[dict]) -> dict[str, int]:
    """Return the `work` of a record: jobs that were due and done, and the bytes of its samples."""
    moved = {key: sum(row[key] or 0 for row in samples) for key in ("read_bytes", "write_bytes")}
    return {"jobs_asked": due, "jobs_done": done, **moved}
