"""What a job file of fio asks for: its options, and how much it writes or reads."""

import configparser
import re

from scripts.lib.program import Problem

# fio counts in powers of two whether the prefix has an i or not, as kb_base=1024 is its default.
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0, "d": 86400.0}


def options(text: str) -> dict[str, str]:
    """Return the options of a job file with one job, those of its [global] section included.

    Raises:
        Problem: it is no job file, or has not just one job.
    """
    parser = configparser.ConfigParser(
        allow_no_value=True, interpolation=None, delimiters=("=",), inline_comment_prefixes=(";", "#"), strict=False
    )
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise Problem(f"no job file of fio: {' '.join(str(error).split())}") from error
    jobs = [section for section in parser.sections() if section != "global"]
    if len(jobs) != 1:
        raise Problem(f"a job file here has one job, this one has {len(jobs)}: {', '.join(jobs)}")
    shared = dict(parser["global"]) if parser.has_section("global") else {}
    return {key.replace("-", "_"): value or "1" for key, value in (shared | dict(parser[jobs[0]])).items()}


def total_bytes(options: dict[str, str]) -> int:
    """Return the bytes of all files of a job: its size for each of its processes."""
    if "size" not in options:
        raise Problem("a job file here says the size of its files: size=…")
    return size_in_bytes(options["size"]) * int(options.get("numjobs", 1))


def block_bytes(options: dict[str, str]) -> int:
    """Return the bytes of one operation; 4 KiB is fio's default."""
    return size_in_bytes(options.get("bs", options.get("blocksize", "4k")).split(",")[0])


def runtime_s(options: dict[str, str]) -> float:
    """Return how long a job runs, in seconds, or 0 where its size says when it ends."""
    return seconds(options["runtime"]) if options.get("time_based", "0") != "0" and "runtime" in options else 0.0


def syncs(options: dict[str, str]) -> bool:
    """Return whether each write, or every few, is forced to the disk."""
    return any(options.get(name, "0") not in ("0", "") for name in ("fdatasync", "fsync", "sync"))


def size_in_bytes(text: str) -> int:
    """Return the bytes of "2300", "16k", "200m" or "1GiB"."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if not match:
        raise Problem(f"{text!r} is no size; write it as 2300, 16k, 200m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def seconds(text: str) -> float:
    """Return the seconds of "30", "30s" or "2m"."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text, re.IGNORECASE)
    if not match or match[2].lower() not in _SECONDS:
        raise Problem(f"{text!r} is no time; write it as 30, 30s or 2m")
    return float(match[1]) * _SECONDS[match[2].lower()]
