"""Count the planned and finished jobs of a battery (a series of fio jobs), and the bytes it read and wrote."""

from collections.abc import Sequence


def count_work(due: int, done: int, samples: Sequence[dict]) -> dict[str, int]:
    """Build a record's `work` entry: planned and finished jobs, and the total bytes read and written."""
    moved = {key: sum(row[key] or 0 for row in samples) for key in ("read_bytes", "write_bytes")}
    return {"jobs_asked": due, "jobs_done": done, **moved}
