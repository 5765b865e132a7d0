"""Interpret fio job options from job files or fio's output: compare and name jobs, and compute the requested work."""

import configparser
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sbench.probe.program import Problem

_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Aliases and the option names that fio's output uses; `fio --cmdhelp=<option>` lists them.
_ALIASES = {
    **{"blocksize": "bs", "blocksize_range": "bsrange", "fileoffset": "offset", "fill_fs": "fill_device"},
    **{"io_limit": "io_size", "iomem": "mem", "iodepth_batch_submit": "iodepth_batch", "nr_files": "nrfiles"},
    **{"readwrite": "rw", "timeout": "runtime", "ss": "steadystate"},
    **{"ss_dur": "steadystate_duration", "ss_ramp": "steadystate_ramp_time"},
}
# Options that need no value. fio's output omits them if they lack a value, so they cannot distinguish jobs.
_FLAGS = (
    "blocksize_unaligned|bs_unaligned|exitall|exitall_on_error|group_reporting|new_group|norandommap|refill_buffers|"
    "stonewall|thread|time_based|verify_only|wait_for_previous|zero_buffers"
)
# Names, paths and reporting options: jobs that differ only in these are equal.
_NO_MATTER = re.compile(
    f"{_FLAGS}|(all)?randrepeat|randseed|description|directory|disk_util|exec_(pre|post)run|filename(_format)?|name|"
    "unique_filename|unlink|percentile_list|[cs]?lat_percentiles|unified_rw_reporting|status_interval|log_.*|write_.*_log"
)
_DEFAULTS = {"rw": "read", "bs": "4096", "ioengine": "psync", "iodepth": "1", "numjobs": "1", "direct": "0"}
_SIZES = frozenset(("bs", "filesize", "io_size", "offset", "size"))
_TIMES = frozenset(("ramp_time", "runtime", "startdelay"))
# With any of these options, a job may read and write more or less than its size, or its output counts other bytes.
_ENDS_ELSEWHERE = (
    *("bsrange", "bssplit", "fill_device", "flow", "number_ios", "ramp_time"),
    *("read_iolog", "runtime", "steadystate", "verify", "zonemode"),
)


def parse_job_file(text: str) -> dict[str, str]:
    """Parse the options of a job file with a single job, including its [global] section."""
    parser = configparser.ConfigParser(
        allow_no_value=True, interpolation=None, delimiters=("=",), inline_comment_prefixes=(";", "#"), strict=False
    )
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise Problem(f"not a job file of fio: {' '.join(str(error).split())}") from error
    jobs = [section for section in parser.sections() if section != "global"]
    if len(jobs) != 1:
        raise Problem(f"a job file must have exactly 1 job (got {len(jobs)}: {', '.join(jobs) or 'none'})")
    shared = dict(parser["global"]) if parser.has_section("global") else {}
    return {_normalize_key(key): value or "1" for key, value in (shared | dict(parser[jobs[0]])).items()}


def compute_total_bytes(options: Mapping[str, str]) -> int:
    """Return the total size in bytes of a job's files: its `size` times its number of processes."""
    if "size" not in options:
        raise Problem("a job file must give the size of its files; add size=…")
    return _parse_bytes(options["size"]) * int(options.get("numjobs", 1))


def get_block_bytes(options: Mapping[str, str]) -> int:
    """Return the block size in bytes. If reads and writes have different block sizes, return the first."""
    return _parse_bytes(resolve_options(options)["bs"].split(",")[0])


def get_runtime_s(options: Mapping[str, str]) -> float:
    """Return the run time of a time-based job in seconds, or 0 if the job ends when its size is reached."""
    return _parse_seconds(options["runtime"]) if options.get("time_based", "0") != "0" and "runtime" in options else 0.0


def resolve_options(options: Mapping[str, str]) -> dict[str, str]:
    """Normalize the options that determine a job's work, and add defaults for the main ones.

    Two jobs are equal if these options are equal. Sizes are converted to bytes and times to seconds. Options without a
    value, such as time_based, are dropped, because fio's output omits them.
    """
    spelled = dict(_DEFAULTS)
    for key, value in options.items():
        name = _ALIASES.get(_normalize_key(key), _normalize_key(key))
        if name == "buffered":
            spelled["direct"] = "0" if value == "1" else "1"
        elif not _NO_MATTER.fullmatch(name):
            spelled[name] = value.strip()
            with suppress(Problem, ValueError):
                if name in _SIZES:
                    spelled[name] = ",".join(str(_parse_bytes(part)) if part else "" for part in value.split(","))
                elif name in _TIMES:
                    spelled[name] = f"{_parse_seconds(value):g}"
    if spelled["rw"] == "readwrite":
        spelled["rw"] = "rw"
    return dict(sorted(spelled.items()))


def format_signature(options: Mapping[str, str]) -> str:
    """Build a short name such as `write-2300-sync-fdatasync` or `randread-16k-libaio-qd16x4` (depth × processes)."""
    if "metric" in options:
        return _format_value(options["metric"].removesuffix("_duration_seconds").replace("_", "-"))
    if all(_NO_MATTER.fullmatch(_normalize_key(key)) for key in options):
        return "unknown"
    spelled = resolve_options(options)
    block = "-".join(map(_format_value, spelled["bs"].split(",")))
    words = [_format_value(spelled["rw"]), block, _format_value(spelled["ioengine"].rpartition("/")[2])]
    words += [
        name if every == "1" else f"{name}{_format_value(every)}" for name, every in _get_sync_options(spelled).items()
    ]
    if (spelled["iodepth"], spelled["numjobs"]) != ("1", "1"):
        words.append(f"qd{_format_value(spelled['iodepth'])}x{_format_value(spelled['numjobs'])}")
    return "-".join(words)


def choose_job_names(jobs: Sequence[Mapping[str, str]], job_files: Mapping[str, str]) -> list[str]:
    """Name each job after the job file with equal options, or else by its signature (`format_signature`).

    If different jobs would share a name, the options that differ are appended.

    Args:
        jobs: options of each job.
        job_files: contents of job files by name (config/fio). Files without exactly one job are skipped.
    """
    files = {}
    for name, text in sorted(job_files.items(), reverse=True):
        with suppress(Problem):
            files[tuple(resolve_options(parse_job_file(text)).items())] = name
    spelled = [tuple(resolve_options(options).items()) for options in jobs]
    short = {one: files.get(one) or format_signature(options) for one, options in zip(spelled, jobs, strict=True)}
    unique = {}
    for one, name in short.items():
        alike = [other for other, theirs in short.items() if theirs == name]
        differing = sorted({key for other in alike for key, _ in set(other) ^ set(one)})
        unique[one] = "-".join([name, *(f"{key}-{_format_value(dict(one).get(key, 'unset'))}" for key in differing)])
    return [unique[one] for one in spelled]


def compute_asked_bytes(options: Mapping[str, str]) -> tuple[int, int] | None:
    """Return how many bytes a job should read and write, and a tolerance, or None if they are not determined.

    The tolerance is a block per file, because fio does not access an incomplete last block.
    """
    spelled = resolve_options(options)
    if "trim" in spelled["rw"] or any(_is_given(spelled, key) for key in _ENDS_ELSEWHERE):
        return None
    try:
        size = _parse_bytes(spelled.get("io_size") or spelled.get("size", ""))
        block = max(map(_parse_bytes, spelled["bs"].split(",")))
    except (Problem, ValueError):
        return None
    files, loops, processes = (_parse_small_number(spelled.get(key, "1")) for key in ("nrfiles", "loops", "numjobs"))
    rounds = loops * processes
    return (size * rounds, block * files * rounds) if size and files and rounds else None


def compute_asked_syncs(options: Mapping[str, str], writes: int) -> tuple[float, int] | None:
    """Return the number of fsync or fdatasync calls that a job with `writes` writes should make, and a tolerance.

    Return None if the number is undefined: the job does not sync, or it also reads, and fio then syncs after reads too.
    """
    spelled = resolve_options(options)
    every = [_parse_small_number(value) for value in _get_sync_options(spelled).values()]
    processes, writing = (
        _parse_small_number(spelled["numjobs"]),
        spelled["rw"].partition(":")[0] in ("write", "randwrite"),
    )
    other = _is_given(spelled, "sync_file_range") or _is_given(spelled, "verify")
    if len(every) != 1 or not every[0] or not processes or other or not writing:
        return None
    last = _is_given(spelled, "end_fsync") + _is_given(spelled, "fsync_on_close")
    # fio omits the syncs of writes that are still in flight when the last write completes.
    return writes / every[0], processes * (max(_parse_small_number(spelled["iodepth"]), 1) + last)


def compute_asked_seconds(options: Mapping[str, str], done_bytes: int) -> float:
    """Return the requested run time of a job in seconds, or 0 if it may end earlier because it reaches its size."""
    spelled = resolve_options(options)
    if not _is_given(spelled, "runtime") or any(_is_given(spelled, key) for key in ("number_ios", "steadystate")):
        return 0.0
    amount = compute_asked_bytes({key: value for key, value in spelled.items() if key not in ("runtime", "ramp_time")})
    timed = options.get("time_based", "0") != "0"
    with suppress(Problem, ValueError):
        return _parse_seconds(spelled["runtime"]) if timed or (amount and done_bytes < amount[0] - amount[1]) else 0.0
    return 0.0


def find_latency_switch(options: Mapping[str, str]) -> str:
    """Return the option, if any, by which a job disables the latencies needed here, otherwise an empty string."""
    spelled = resolve_options(options)
    return next((name for name in ("gtod_reduce", "disable_clat", "disable_lat") if _is_given(spelled, name)), "")


def is_contradicted(options: Mapping[str, str], reads: int, writes: int) -> bool:
    """Return whether a job contradicts its options: a read job wrote, or a write job read without verification."""
    kind = {_normalize_key(key): value for key, value in options.items()}.get("rw", options.get("readwrite", ""))
    kind = kind.partition(":")[0]
    never = {"read": writes, "randread": writes, "write": reads, "randwrite": reads}.get(kind, 0)
    return bool(never) and not _is_given(resolve_options(options), "verify")


def get_open_loop_rate(options: Mapping[str, str]) -> float:
    """Return a job's rate in operations per second if they are evenly spaced, one in flight at a time; otherwise 0."""
    spelled = resolve_options(options)
    even = spelled.get("rate_process", "linear") == "linear" and spelled.get("io_submit_mode", "inline") == "inline"
    return float(_parse_small_number(spelled.get("rate_iops", ""))) if even and count_in_flight(options) == 1 else 0.0


def count_in_flight(options: Mapping[str, str]) -> int:
    """Return the maximum number of operations in flight: queue depth × processes."""
    spelled = resolve_options(options)
    return max(_parse_small_number(spelled["iodepth"]), 1) * max(_parse_small_number(spelled["numjobs"]), 1)


def has_timed_syncs(options: Mapping[str, str]) -> bool:
    """Return whether a job writes and calls fdatasync or fsync, whose latencies fio measures."""
    spelled = resolve_options(options)
    return spelled["rw"].partition(":")[0] not in ("read", "randread") and bool(_get_sync_options(spelled))


def _get_sync_options(spelled: dict[str, str]) -> dict[str, str]:
    """Return the sync options in use (fdatasync, fsync) with the number of writes per call."""
    return {name: spelled[name] for name in ("fdatasync", "fsync") if _is_given(spelled, name)}


def _is_given(spelled: dict[str, str], name: str) -> bool:
    return spelled.get(name, "0") != "0"


def _parse_small_number(text: str) -> int:
    """Parse a non-negative integer of at most nine digits; return 0 for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0


def _normalize_key(key: str) -> str:
    return key.lower().replace("-", "_")


def _parse_bytes(text: str) -> int:
    """Convert a size such as "2300", "16k", "200m" or "1GiB" to bytes."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if not match:
        raise Problem(
            f"a size must be a whole number, with or without a unit, such as 2300, 16k, 200m or 1g (got {text!r})"
        )
    # By fio's default (kb_base=1024), units are powers of two with or without an i in the prefix.
    return int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")


def _parse_seconds(text: str) -> float:
    """Convert a time such as "30", "30s" or "2m" to seconds."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text, re.IGNORECASE)
    if not match or match[2].lower() not in _SECONDS:
        raise Problem(f"a time must be a number, with or without a unit, such as 30, 30s or 2m (got {text!r})")
    return float(match[1]) * _SECONDS[match[2].lower()]


def _format_value(value: str) -> str:
    """Format an option's value for a directory name: multiples of 1,024 with a unit, special characters as dashes."""
    if re.fullmatch(r"[0-9]{1,18}", value) and int(value):
        for power, letter in ((30, "g"), (20, "m"), (10, "k")):
            if int(value) % 2**power == 0:
                return f"{int(value) >> power}{letter}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", value[:40]).strip("-")
