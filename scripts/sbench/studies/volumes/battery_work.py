"""Count the work of a battery: jobs due and done, and bytes read and written."""

from collections.abc import Sequence


def count_work(due: int, done: int, samples: Sequence[dict]) -> dict[str, int]:
    """Return the `work` of a record: jobs due and done, and bytes that its samples read and wrote."""
    moved = {key: sum(row[key] or 0 for row in samples) for key in ("read_bytes", "write_bytes")}
    return {"jobs_asked": due, "jobs_done": done, **moved}
