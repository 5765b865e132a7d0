"""Parse the files that accompany fio's output, which contain metadata of jobs and batteries, and log lines."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from sbench.probe.host import MEMORY_DEVICE, MEMORY_FILE_SYSTEMS

_LOADS = re.compile(r"load averages?:\s*([\d.,]+)\s+([\d.,]+)\s+([\d.,]+)")
# dateutil fills in missing parts from a default date. If these two defaults give different results, the date in the
# text is incomplete.
_DAYS = (datetime(2000, 1, 1), datetime(2001, 2, 2))
# The order of day and month is ambiguous in 02/08/2021.
_ORDER_UNKNOWN = re.compile(r"\d[/.]\d+[/.]\d")

_ALIKE = {key: key for key in ("cpu", "cores", "kernel", "mount_point", "mount_options")}
_HOST = {"node": "host", **_ALIKE, "file_system": "mount_type", "device": "mount_source"}


class LogLine(NamedTuple):
    """A line of the published log, written before a job starts: `[a1] <=> host <=> date <=> output of uptime`."""

    job_id: str
    host: str
    began_s: float | None  # seconds since 1970; None if the date is unreadable
    zoned: bool  # whether the date has a time zone; otherwise UTC is assumed
    load: tuple[float | None, ...]  # load averages over 1, 5 and 15 minutes; None if missing


def parse_log_lines(text: str) -> list[LogLine]:
    """Parse the log lines in the published form; skip all other lines."""
    lines = []
    for line in text.splitlines():
        job_id, *parts = (part.strip() for part in line.split("<=>"))
        marked = re.search(r"\[([^\[\]]+)\]$", job_id)
        if marked and len(parts) >= 3:
            began_s, zoned = parse_date(parts[1])
            lines.append(LogLine(marked[1].strip(), parts[0], began_s, zoned, parse_load_averages(parts[2])))
    return lines


def parse_key_values(text: str) -> dict[str, str]:
    """Parse the `key: value` lines of a text; skip all other lines."""
    cut = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in cut if colon and key.strip()}


def parse_battery_facts(text: str) -> dict[str, object]:
    """Parse battery.txt; numeric entries are converted to numbers unless they are malformed."""
    facts = parse_key_values(text)
    numbers = {key: number(facts.get(key, "")) for key, number in _NUMBERS.items()}
    return facts | {key: value for key, value in numbers.items() if value is not None}


def find_memory_kind(facts: dict[str, object]) -> str:
    """Return the RAM-backed file system or device on which a battery ran, or an empty string if there was none."""
    kind, device = str(facts.get("mount_type", "")), str(facts.get("device", ""))
    kind = kind if kind in MEMORY_FILE_SYSTEMS else device if MEMORY_DEVICE.fullmatch(device) else ""
    return str(facts.get("memory") or kind)


def get_host_facts(facts: dict[str, object]) -> dict[str, object]:
    """Map the host's entries in battery.txt to the keys of `probe.host.read_facts`. Missing entries become None."""
    return {name: facts.get(key) for name, key in _HOST.items()}


def parse_date(text: str) -> tuple[float | None, bool]:
    """Return the seconds since 1970 (UTC), and whether the text has a time zone; (None, False) if it is unreadable.

    Accepted formats are seconds since 1970, ISO 8601, 20210802-182537, the output of date(1), and RFC 5322.
    """
    # Import late: Snakemake imports this study to list its files, in an environment that may lack dateutil.
    from dateutil import parser

    text = " ".join(text.split())
    if re.fullmatch(r"\d{9,11}(\.\d*)?", text):
        return float(text), True
    # Accept numeric UTC offsets only, because time zone abbreviations are ambiguous.
    zones = {"tzinfos": lambda _, offset_s: None if offset_s is None else timezone(timedelta(seconds=offset_s))}
    try:
        value, other = (parser.parse(text, default=day, **zones) for day in _DAYS)
    except (ValueError, ArithmeticError):
        return None, False
    if value != other or _ORDER_UNKNOWN.search(text):
        return None, False
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp(), value.tzinfo is not None


def format_utc(seconds: float | None) -> str | None:
    """Format seconds since 1970 as in 2021-08-02T18:25:37Z; return None if missing or out of range."""
    if seconds is None or not 0 < seconds < 2**35:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_load_averages(text: str) -> tuple[float | None, ...]:
    """Parse the three load averages in /proc/loadavg or in the output of uptime(1) in any locale; None if missing."""
    match = _LOADS.search(text) or re.match(r"\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)", text)
    return (
        tuple(_parse_float(value.rstrip(",").replace(",", ".")) for value in match.groups()) if match else (None,) * 3
    )


def compute_steal_percent(before: str, after: str) -> float | None:
    """Return the steal time in percent of CPU time between two readings of the first line of /proc/stat."""
    first, last = (_parse_counts(line)[:8] for line in (before, after))
    if len(first) < 8 or len(last) < 8 or sum(last) <= sum(first) or last[7] < first[7]:
        return None
    return 100 * (last[7] - first[7]) / (sum(last) - sum(first))


def compute_device_counts(before: str, after: str, seconds: float | None) -> dict[str, float | None]:
    """Return a device's "read_ios", "write_ios" and "util" (in percent) between two readings of its counters.

    A reading is a line of /proc/diskstats, or of the device's stat file in sysfs, which lacks the leading device
    numbers and name. Return {} if a reading is missing, or if a counter decreased because the device was replaced.
    """
    first, last = (_parse_counts(line) for line in (before, after))
    if min(len(first), len(last)) < 10:
        return {}
    reads, writes, busy = (last[place] - first[place] for place in (0, 4, 9))
    if min(reads, writes, busy) < 0:
        return {}
    return {"read_ios": reads, "write_ios": writes, "util": min(100.0, busy / 10 / seconds) if seconds else None}


def parse_count(text: str) -> int | None:
    """Parse a non-negative integer, such as a number of bytes or ticks; return None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _parse_counts(line: str) -> list[int]:
    """Parse the integer counters of a line of /proc/stat or /proc/diskstats, skipping a leading name."""
    counts = [parse_count(word) for word in line.split()]
    named = max((place for place, number in enumerate(counts) if number is None), default=-1)
    return counts[named + 1 :]


def _parse_float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]*)?", text) else None


_NUMBERS = {
    **dict.fromkeys(("format", "jobs", "jobs_done", "cores", "file_system_bytes"), parse_count),
    "pause_s": _parse_float,
}
