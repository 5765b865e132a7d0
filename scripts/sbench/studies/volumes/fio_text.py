"""Extract fio's output from a text: JSON documents, or fio's human-readable output.

The text may be a log with other lines before, between and after, and with the line prefixes of container logs or of
fio's client. Human-readable output is converted to documents of the same form as fio's JSON, with the available values.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from sbench.probe.program import Problem

# Keys that are added to fio's documents. ROUNDED: number of ns by which percentiles of a latency may be rounded up.
# SIGNAL: the signal that ended fio. MIXED: the names of jobs with different options that fio merged into this job.
ROUNDED, SIGNAL, MIXED = "rounded_ns", "ended by", "unlike jobs"
NOTHING = "contains no fio results"
KINDS = ("read", "write", "trim")
_KEY = re.compile(r'"fio version"\s*:')
_VERSION = re.compile(r"(?:hostname=.*, fio=)?(fio-\d+\.[\w.-]+?)(?:, flags=\d+)?\s*$")
# The bounded repetitions limit the time of the search in lines with many spaces.
_PREFIXED = re.compile(
    r'^([^\n"]{0,200}?)[ \t]{0,80}(?:"fio version"\s*:|(?<!fio=)\bfio-\d+\.[\w.-]+\s*$)', re.MULTILINE
)
# The prefix of fio's client on the lines of a host, and the name of its combined result for all hosts.
_CLIENT, ALL = re.compile(r"<([\w.:-]+)> ?"), "All clients"
_SIGNALLED = re.compile(r"fio: terminating on (signal \d+)")
# Some versions of fio print nan or inf for undefined numbers, which is not valid JSON.
_NO_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf)\b")
_TERSE = re.compile(r"^[345];fio-\d", re.MULTILINE)
_UNITS = {"n": 1, "u": 1000, "m": 1_000_000}
_THOUSANDS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
# The lines of fio's human-readable output (stat.c of fio 3).
_HEAD = re.compile(
    r"(?P<name>\S.*?): \(g=(?P<group>\d+)\): rw=(?P<rw>[\w:]+), bs=(?P<bs>.+?), ioengine=(?P<ioengine>[^,\s]+), "
    r"iodepth=(?P<iodepth>\d+)"
)
_SIZE = re.compile(r"([\d.]+)([KMGT]?)i?B?", re.IGNORECASE)
_ENDS = re.compile(r"[\d.]+[KMGT]?i?B?-[\d.]+[KMGT]?i?B?", re.IGNORECASE)
_JOB = re.compile(
    r"(?P<name>\S.*?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d+)\): err=\s*(?P<error>\d+)"
    r"(?:.*?: pid=(?P<pid>\d+): (?P<time>.+))?"
)
_TRAFFIC = re.compile(
    r"\s*(?P<kind>read|write|trim|mixed)\s*: IOPS=(?P<iops>[\d.]+[kMG]?), BW=.*?"
    r"\((?P<size>[\d.]+)(?P<unit>[KMGTP]?)i?B/(?P<ms>\d+)msec\)"
)
_LATENCY = re.compile(
    r"\s*(?P<name>[sc]?lat|sync) \((?P<unit>[num])sec\): min=\s*(?P<min>[\d.]+[kMG]?), max=\s*(?P<max>[\d.]+[kMG]?), "
    r"avg=\s*(?P<mean>[\d.]+[kMG]?), stdev=\s*(?P<stddev>[\d.]+[kMG]?)"
)
_PERCENTILES = re.compile(r"\s*(?P<name>[sc]?lat|sync) percentiles \((?P<unit>[num])sec\):")
_PERCENTILE = re.compile(r"([\d.]+)th=\[\s*(?:>=\s*)?(\d+)\s*\]")
_ISSUED = re.compile(r"\s*issued rwts?\s*: total=(?P<total>[\d,]+) short=(?P<short>[\d,]+)")
_DISK = re.compile(r"\s+(?P<name>[\w-]+): ios=(?P<reads>\d+)/(?P<writes>\d+),.* util=(?P<util>[\d.]+)%")


def parse_documents(text: str) -> tuple[list[dict], str]:
    """Extract fio's documents from a text, in order.

    If a run reported several times (--status-interval), only its last document is returned.

    Returns:
        The documents, and an error message if the rest of the text is damaged, otherwise an empty string.

    Raises:
        Problem: the text contains no documents. This message and the error message begin with a verb, so that callers
            can prefix the file name.
    """
    text, kept, wrong = _remove_prefix(text), [], ""
    try:
        for document in _parse_json(text) if _KEY.search(text) else _parse_human_output(text.splitlines()):
            if kept and _is_same_run(kept[-1], document):
                kept.pop()
            kept.append(document)
    except Problem as problem:
        wrong = str(problem)
    except (ValueError, IndexError, KeyError, OverflowError):
        wrong = "is damaged: a line of fio's output has an invalid number"
    if not kept:
        terse = "is fio's terse output, which lacks latencies of fsync; use --output-format=json+"
        raise Problem(wrong or (terse if _TERSE.search(text) else NOTHING))
    return kept, wrong


def _remove_prefix(text: str) -> str:
    """Remove the prefixes that container logs add to the lines of fio's output."""
    if text.startswith('{"log":'):
        with suppress(ValueError, KeyError, TypeError):
            text = "".join(json.loads(line)["log"] for line in text.splitlines() if line.strip())
    mark = _PREFIXED.search(text)
    prefix = mark[1].rstrip(" \t{[") if mark else ""
    if not prefix:
        return text
    # Times and counters in the prefix change from line to line.
    form = re.sub(r"\d+", r"\\d+", re.sub(r"\D+", lambda match: re.escape(match[0]), prefix))
    return re.sub(rf"^{form} ?", "", text, flags=re.MULTILINE)


def _parse_json(text: str) -> Iterator[dict]:
    """Yield fio's JSON documents in a text. The key "fio version" may be anywhere in a document."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    text = _NO_NUMBER.sub(r"\1null", text) if "nan" in text or "inf" in text else text
    with suppress(ValueError, RecursionError):
        # Another program may have sorted the keys, or combined several documents.
        yield from _find_documents(decoder.decode(text))
        return
    begins, ended = [match.start() for match in _KEY.finditer(text)], 0
    for number, begin in enumerate(begins, 1):
        # The text before the key may be missing, for example in a copy from a terminal.
        opened = text.rfind("{", ended, begin)
        lost = opened < 0 or bool(text[opened + 1 : begin].strip())
        part = "{" + text[begin:] if lost else text[opened:]
        try:
            document, end = decoder.raw_decode(part)
        except RecursionError as error:
            raise Problem(NOTHING) from error
        except json.JSONDecodeError as error:
            which = f" in output {number} of {len(begins)}" if len(begins) > 1 else ""
            if "Unterminated" in error.msg or re.fullmatch(r'\s*[\w".+-]*\s*', part[error.pos :]):
                raise Problem(f"is cut off{which}: fio was interrupted, or the copy is incomplete") from error
            raise Problem(f"is damaged{which} at line {error.lineno} of fio's output ({error.msg})") from error
        except ValueError as error:
            raise Problem("is damaged: a number has too many digits") from error
        signal = _SIGNALLED.search(text, ended, begin)
        ended = len(text) - len(part) + end
        yield document | ({SIGNAL: signal[1]} if signal else {})


def _refuse_constant(constant: str) -> None:
    """Raise a Problem for the constants NaN and Infinity, which fio spells differently."""
    raise Problem(f"has the number {constant}, which is impossible")


def _find_documents(value: object) -> Iterator[dict]:
    if isinstance(value, dict) and "fio version" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _find_documents(part)


def _is_same_run(earlier: dict, later: dict) -> bool:
    """Return whether `later` is a later report on the same run as `earlier`."""
    runs = [_get_progress(one) for one in (earlier, later)]
    if not all(runs) or runs[0].keys() != runs[1].keys():
        return False
    if any(runs[1][name][0] < done for name, (done, _) in runs[0].items()):
        return False
    seconds = [max(ran for _, ran in run.values()) for run in runs]
    ends = [_get_end_s(one) for one in (earlier, later)]
    if not all(ends):
        return seconds[1] > seconds[0] and runs[1] != runs[0]
    starts = [end - ran for end, ran in zip(ends, seconds, strict=True)]
    return abs(starts[1] - starts[0]) < abs(starts[1] - ends[0])


def _get_end_s(document: dict) -> float:
    """Return the time at which fio wrote a document, in seconds since 1970; 0 if missing."""
    with suppress(TypeError, ValueError, OverflowError):
        return float(document.get("timestamp_ms") or 0) / 1000 or float(document.get("timestamp") or 0)
    return 0.0


def _get_progress(document: dict) -> dict[tuple, tuple[int, float]]:
    """Return (finished operations, run time in seconds) for each job, or an empty dict if the document is invalid."""
    jobs, run = document.get("jobs"), {}
    with suppress(TypeError, AttributeError, ValueError, OverflowError):
        for place, job in enumerate(jobs or []):
            sections = [job.get(kind) or {} for kind in KINDS]
            done = sum(int(section.get("total_ios") or 0) for section in sections)
            ran = max(float(section.get("runtime") or 0) for section in sections) / 1000
            run[place, str(job.get("jobname"))] = done, ran
        return run
    return {}


def _parse_human_output(lines: Iterable[str]) -> Iterator[dict]:
    """Convert fio's human-readable output to documents, one per run."""
    heads: dict[str, dict[str, str]] = {}
    entries: dict[tuple, dict] = {}
    document, entry, section, host = {"fio version": "fio of unknown version"}, None, {}, {}
    for line in lines:
        if client := _CLIENT.match(line):
            line, host = line[client.end() :], {"hostname": client[1]}
        if head := _HEAD.match(line):
            if entries:
                yield _build_document(document, entries)
                heads, entries, document = {}, {}, {"fio version": document["fio version"]}
            heads[head["name"]], entry = _parse_head_options(head), None
        elif (job := _JOB.match(line)) and job["name"] == ALL:
            entry = None
        elif job:
            entry = host | {"jobname": job["name"], "groupid": int(job["group"]), "error": int(job["error"])}
            options = heads.get(job["name"], {})
            entry["job options"] = options | ({"numjobs": job["jobs"]} if job["jobs"] != "1" else {})
            unlike = sorted(name for name, own in heads.items() if own != options)
            entry |= {MIXED: [job["name"], *unlike]} if unlike and job["jobs"] != "1" else {}
            entry |= {"ended": _parse_ctime(job["time"])}
            section = {}
            # Repeated reports of a job have the same process id.
            entries[job["name"], job["pid"] or len(entries), *host.values()] = entry
        elif version := _VERSION.match(line):
            document["fio version"] = version[1]
        elif signal := _SIGNALLED.search(line):
            document[SIGNAL] = signal[1]
        elif disk := _DISK.match(line):
            counts = {"read_ios": int(disk["reads"]), "write_ios": int(disk["writes"]), "util": float(disk["util"])}
            document.setdefault("disk_util", []).append(host | {"name": disk["name"], **counts})
        elif entry is not None:
            section = _add_line(line, entry, section)
    if entries:
        yield _build_document(document, entries)


def _add_line(line: str, entry: dict, section: dict) -> dict:
    """Parse a line into its job's entry. Return the section of the entry to which the following lines belong."""
    if match := _TRAFFIC.match(line):
        nbytes = float(match["size"]) * 1024 ** " KMGTP".index(match["unit"] or " ")
        section = entry[match["kind"]] = {"io_bytes": round(nbytes), "runtime": int(match["ms"])}
        # This is an estimate; a later line gives the exact count.
        section["total_ios"] = round(_parse_number(match["iops"]) * int(match["ms"]) / 1000)
    elif match := _LATENCY.match(line):
        section = entry.setdefault("sync", {}) if match["name"] == "sync" else section
        unit, part = _UNITS[match["unit"]], section.setdefault(_get_latency_key(match["name"]), {})
        part |= {key: unit * _parse_number(match[key]) for key in ("min", "max", "mean", "stddev")}
        _update_rounding(part, unit * _compute_resolution(match["max"]))
    elif match := _PERCENTILES.match(line):
        section = entry.setdefault("sync", {}) if match["name"] == "sync" else section
        section["unit"], section["of"] = match["unit"], _get_latency_key(match["name"])
    elif line.lstrip().startswith("|") and "of" in section:
        unit, part = _UNITS[section["unit"]], section.setdefault(section["of"], {})
        part.setdefault("percentile", {}).update({p: unit * int(ns) for p, ns in _PERCENTILE.findall(line)})
        _update_rounding(part, unit if unit > 1 else 0)
    elif match := _ISSUED.match(line):
        total, short = ([int(count) for count in match[key].split(",") if count] for key in ("total", "short"))
        for kind, count in zip(KINDS, total, strict=False):
            if kind in entry:
                _set_count(entry[kind], count, entry["job options"])
        # Some versions count syncs as short reads if the job does not read.
        syncs = total[3] if len(total) > 3 and total[3] else 0 if total[0] else short[0]
        if "sync" in entry and syncs:
            entry["sync"].setdefault("lat_ns", {})["N"] = syncs
    return section


def _set_count(section: dict, count: int, options: dict[str, str]) -> None:
    """Set the exact number of reads or writes, and of bytes if the block size is fixed.

    The bytes that fio prints have only three digits, so they are replaced by operations × block size if these agree.
    """
    section["total_ios"] = count
    for part in (section[name] for name in ("clat_ns", "lat_ns") if name in section):
        part["N"] = count
    nbytes = count * int(options["bs"]) if options.get("bs", "").isdigit() else 0
    # The last block of a file may be shorter.
    if abs(nbytes - section["io_bytes"]) <= max(0.01 * nbytes, int(options.get("bs") or 0)):
        section["io_bytes"] = nbytes


def _build_document(document: dict, entries: dict[tuple, dict]) -> dict:
    ended = [entry.pop("ended") for entry in entries.values()]
    keys = [(entry.get("hostname"), entry["jobname"], entry["groupid"]) for entry in entries.values()]
    for entry, count in zip(entries.values(), map(Counter(keys).get, keys), strict=True):
        entry["job options"] |= {"numjobs": str(count)} if count > 1 else {}
    return document | {"timestamp": max(filter(None, ended), default=0), "jobs": list(entries.values())}


def _parse_head_options(head: Mapping[str, str]) -> dict[str, str]:
    """Parse the options in the line that fio prints before it starts a job."""
    options = {key: head[key] for key in ("rw", "ioengine", "iodepth")}
    sizes = [
        [_parse_bytes(*end) for end in ends] for ends in (_SIZE.findall(part) for part in _ENDS.findall(head["bs"]))
    ]
    if sizes and len(sizes) >= 2:
        low, high = sizes["write" in head["rw"]]
        options["bs" if low == high else "bsrange"] = str(low) if low == high else f"{low}-{high}"
    return options


def _parse_bytes(number: str, unit: str) -> int:
    return round(float(number) * 1024 ** " KMGT".index(unit.upper() or " "))


def _get_latency_key(what: str) -> str:
    return "lat_ns" if what == "sync" else f"{what}_ns"


def _update_rounding(part: dict, ns: float) -> None:
    part[ROUNDED] = max(part.get(ROUNDED, 0), ns)


def _parse_number(text: str) -> float:
    """Parse a number with an optional unit, such as 94332, 6381.4k or 1.2M."""
    return float(text.rstrip("kMG")) * _THOUSANDS[text[-1] if text[-1].isalpha() else ""]


def _compute_resolution(text: str) -> float:
    """Return the place value of the last digit of a printed number: 100 for 6381.4k."""
    decimals = len(text.rstrip("kMG").partition(".")[2])
    return _THOUSANDS[text[-1] if text[-1].isalpha() else ""] / 10**decimals


def _parse_ctime(text: str | None) -> float | None:
    """Convert a time in the format of ctime(3) to seconds since 1970, assuming UTC; None if unreadable."""
    with suppress(ValueError, TypeError):
        return datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    return None
