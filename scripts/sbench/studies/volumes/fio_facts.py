"""Parse the notes that accompany fio's output: facts of a job and of a battery, and the published log lines."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from sbench.probe.host import MEMORY_DEVICE, MEMORY_FILE_SYSTEMS

_LOADS = re.compile(r"load averages?:\s*([\d.,]+)\s+([\d.,]+)\s+([\d.,]+)")
# dateutil fills gaps from a default: if two defaults give two dates, the text lacks a complete date.
_DAYS = (datetime(2000, 1, 1), datetime(2001, 2, 2))
# 02/08/2021 does not show which number is the month.
_ORDER_UNKNOWN = re.compile(r"\d[/.]\d+[/.]\d")

_ALIKE = {key: key for key in ("cpu", "cores", "kernel", "mount_point", "mount_options")}
_HOST = {"node": "host", **_ALIKE, "file_system": "mount_type", "device": "mount_source"}


class LogLine(NamedTuple):
    """A line of the published log, written before a job: `[a1] <=> host <=> date <=> output of uptime`."""

    job_id: str
    host: str
    began_s: float | None  # seconds since 1970, None for an unreadable date
    zoned: bool  # whether the date has a zone; a date without a zone counts as UTC
    load: tuple[float | None, ...]  # averages over 1, 5 and 15 minutes, None if missing


def parse_log_lines(text: str) -> list[LogLine]:
    """Return the lines of a log that have the published form; skip the others."""
    lines = []
    for line in text.splitlines():
        job_id, *parts = (part.strip() for part in line.split("<=>"))
        marked = re.search(r"\[([^\[\]]+)\]$", job_id)
        if marked and len(parts) >= 3:
            began_s, zoned = parse_date(parts[1])
            lines.append(LogLine(marked[1].strip(), parts[0], began_s, zoned, parse_load_averages(parts[2])))
    return lines


def parse_key_values(text: str) -> dict[str, str]:
    """Return the `key: value` lines of a text."""
    cut = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in cut if colon and key.strip()}


def parse_battery_facts(text: str) -> dict[str, object]:
    """Return the entries of battery.txt, with numbers for numeric entries; unreadable numbers stay text."""
    facts = parse_key_values(text)
    numbers = {key: number(facts.get(key, "")) for key, number in _NUMBERS.items()}
    return facts | {key: value for key, value in numbers.items() if value is not None}


def find_memory_kind(facts: dict[str, object]) -> str:
    """Return the memory (file system or device) that held a battery's files, by its facts; "" without such a fact."""
    kind, device = str(facts.get("mount_type", "")), str(facts.get("device", ""))
    kind = kind if kind in MEMORY_FILE_SYSTEMS else device if MEMORY_DEVICE.fullmatch(device) else ""
    return str(facts.get("memory") or kind)


def get_host_facts(facts: dict[str, object]) -> dict[str, object]:
    """Return the machine's facts of battery.txt by the names of `probe.host.read_facts`; None if missing."""
    return {name: facts.get(key) for name, key in _HOST.items()}


def parse_date(text: str) -> tuple[float | None, bool]:
    """Return seconds since 1970 (UTC) and whether the text has a zone; (None, False) for an unreadable text.

    Accepted are seconds since 1970, ISO 8601, 20210802-182537, the output of date(1), and RFC 5322.
    """
    # Import here: Snakemake asks this study for its files and may lack dateutil.
    from dateutil import parser

    text = " ".join(text.split())
    if re.fullmatch(r"\d{9,11}(\.\d*)?", text):
        return float(text), True
    # Accept zones as offsets only, because names of zones are ambiguous.
    zones = {"tzinfos": lambda _, offset_s: None if offset_s is None else timezone(timedelta(seconds=offset_s))}
    try:
        value, other = (parser.parse(text, default=day, **zones) for day in _DAYS)
    except (ValueError, ArithmeticError):
        return None, False
    if value != other or _ORDER_UNKNOWN.search(text):
        return None, False
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp(), value.tzinfo is not None


def format_utc(seconds: float | None) -> str | None:
    """Return seconds since 1970 as 2021-08-02T18:25:37Z."""
    if seconds is None or not 0 < seconds < 2**35:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_load_averages(text: str) -> tuple[float | None, ...]:
    """Return the three load averages of uptime(1), in any locale, or of /proc/loadavg; None if missing."""
    match = _LOADS.search(text) or re.match(r"\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)", text)
    return (
        tuple(_parse_float(value.rstrip(",").replace(",", ".")) for value in match.groups()) if match else (None,) * 3
    )


def compute_steal_percent(before: str, after: str) -> float | None:
    """Return the percentage of processor time that the hypervisor kept, between two first lines of /proc/stat."""
    first, last = (_parse_counts(line)[:8] for line in (before, after))
    if len(first) < 8 or len(last) < 8 or sum(last) <= sum(first) or last[7] < first[7]:
        return None
    return 100 * (last[7] - first[7]) / (sum(last) - sum(first))


def compute_device_counts(before: str, after: str, seconds: float | None) -> dict[str, float | None]:
    """Return {"read_ios", "write_ios", "util"} of a device between two of its lines of diskstats; {} without them.

    Return {} if counters ran backwards, because the device changed meanwhile. A line comes from /proc/diskstats, or
    from the stat file of the device, which lacks numbers and name in front.
    """
    first, last = (_parse_counts(line) for line in (before, after))
    if min(len(first), len(last)) < 10:
        return {}
    reads, writes, busy = (last[place] - first[place] for place in (0, 4, 9))
    if min(reads, writes, busy) < 0:
        return {}
    return {"read_ios": reads, "write_ios": writes, "util": min(100.0, busy / 10 / seconds) if seconds else None}


def parse_count(text: str) -> int | None:
    """Return a count, such as of bytes or of ticks; None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _parse_counts(line: str) -> list[int]:
    """Return the counts of a line of /proc/stat or diskstats, after the name if the line has a name."""
    counts = [parse_count(word) for word in line.split()]
    named = max((place for place, number in enumerate(counts) if number is None), default=-1)
    return counts[named + 1 :]


def _parse_float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]*)?", text) else None


_NUMBERS = {
    **dict.fromkeys(("format", "jobs", "jobs_done", "cores", "file_system_bytes"), parse_count),
    "pause_s": _parse_float,
}
