"""Look up published runtimes for planned measurements (config/facts/shots_runtimes.yaml)."""

import functools
from pathlib import Path

from sbench import drivers
from sbench.probe.program import read_yaml
from sbench.stores import store as stores
from sbench.studies.shots.settings import Settings

RUNTIMES = Path("config/facts/shots_runtimes.yaml")


def find_runtime(settings: Settings) -> tuple[float, str] | None:
    """Look up the published runtime of a configuration. Return the seconds and a note, or None if there is none.

    The location of the data, driver, access, number of workers and S3 client must be the same. The page buffer may
    differ, because such a file fits into the bytes that ROS3 reads when it opens the file; the note gives its published
    size. The time is scaled by the number of shots or signals.
    """
    cell, data, store = settings.cell, settings.data, stores.get_store(settings.store)
    facts = _load_facts()
    place = "local" if store.files else store.billed_service
    alike = {"place": place, "driver": cell.driver, "access": cell.access, "stack": _get_s3_client(settings.library)}
    whole = data.signals == facts["signals"] and data.files is None and cell.layout == "single-shot"
    if not whole or (cell.read_cache, cell.chunk_cache, cell.nodes) != (drivers.DEFAULT, drivers.DEFAULT, "1"):
        return None
    alike_rows = [
        row for row in facts["runtimes"] if all(row.get(name, level) == level for name, level in alike.items())
    ]
    rows = [row for row in alike_rows if cell.workers in row["seconds"]]
    if not rows:
        return None
    row = max(rows, key=lambda row: row["page_buffer"] == cell.page_buffer)
    if cell.access == "shots":
        share = settings.read_shots or data.shots
    else:
        share = settings.count_signals() / facts["signals"] * data.shots / facts["files"]
    # For local data, an untimed second pass reads all data again for checksums.
    seconds = row["seconds"][cell.workers] * share * (1 if store.is_networked else 2)
    return seconds, f"as published, page buffer {row['page_buffer']}"


def _get_s3_client(library: dict) -> str:
    return "libcurl" if library["hdf5"].startswith("1.") else "aws-c-s3"


@functools.cache
def _load_facts() -> dict:
    return read_yaml(RUNTIMES)
