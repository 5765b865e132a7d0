"""Read the files of config/ for the volumes study: job files of fio, and facts with their sources."""

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
    """Return the content of a file of config/facts."""
    return read_yaml(path)
