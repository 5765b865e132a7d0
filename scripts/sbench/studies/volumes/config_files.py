"""Read the files in config/ that the volumes study uses: fio job files, documented limits and volume types."""

from functools import cache
from pathlib import Path

from sbench.probe.program import read_yaml

JOB_FILE = "config/fio/{}.fio"
LIMITS = Path("config/facts/limits.yaml")
VOLUME_TYPES = Path("config/facts/volume_types.yaml")


def read_job(name: str) -> str:
    """Return the text of the fio job file with this name in config/fio."""
    return Path(JOB_FILE.format(name)).read_text(encoding="utf-8", errors="replace")


@cache
def read_facts(path: Path) -> dict:
    """Parse a YAML file of config/facts; the result is cached."""
    return read_yaml(path)
