"""Shared memory that killed MPI processes leave behind.

MPICH names a segment by a hash of its launcher's process number, and its processes take a segment that is there for
their own. One that killed processes left behind makes a later job with the same number fail in MPI_Init.
"""

import os
import re
import time
from pathlib import Path

FOLDER = Path("/dev/shm")
_NAME = re.compile(r"mpich_shm_[0-9a-f]+_[0-9]+")
# Between making a segment and mapping it a process needs less.
_AGE_S = 5.0


def sweep() -> list[str]:
    """Remove this user's segments that no process has mapped; returns their names."""
    old = [path for path in FOLDER.glob("mpich_shm_*") if _NAME.fullmatch(path.name) and _is_ours_and_old(path)]
    if not old:
        return []
    used = _mapped()
    gone = [path for path in old if path.name not in used]
    for path in gone:
        path.unlink(missing_ok=True)
    return [path.name for path in gone]


def _is_ours_and_old(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and time.time() - status.st_mtime > _AGE_S


def _mapped() -> set[str]:
    """Return the names of the segments that this user's processes have mapped (proc(5), maps)."""
    names: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            names.update(_NAME.findall(maps.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            continue
    return names
