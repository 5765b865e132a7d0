"""The files of config/ that the volumes study reads: fio's jobs, and facts with their sources."""

from functools import cache
from pathlib import Path

from sbench.probe.program import read_yaml

JOB_FILE = "config/fio/{}.fio"
LIMITS = Path("config/facts/limits.yaml")
VOLUME_TYPES = Path("config/facts/volume_types.yaml")


def read_job(name: str) -> str:
    """Return the text of a job file of config/fio."""
    return Path(JOB_FILE.format(name)).read_text(encoding="utf-8", errors="replace")


@cache
def read_facts(path: Path) -> dict:
    """Return facts with their sources, of config/facts."""
    return read_yaml(path)
