"""Read result files of benchmark tools: hyperfine, pytest-benchmark, asv, pyperf, google-benchmark, fio, and CSV.

The format is recognised by the content of a file, not by its name.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sbench.probe.program import Problem, shorten_name

# Factors from units of time to seconds.
_SECONDS = {"s": 1.0, "second": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
# The header of the column of values in a CSV, with an optional unit: value, value_ms, value (ms) or value [MiB/s].
_VALUE = re.compile(r"value(?:[ _]*[\[(]?([^\[\]() _]+)[\])]?)?", re.IGNORECASE)
# The beginning of a baseline of this project (`sides.write_baseline`).
_BASELINE = re.compile(rb'\s*\{\s*"baseline"')
_HEAD_BYTES = 200
# The beginning of an archive of this project (xz).
_ARCHIVE = b"\xfd7zXZ"
# Values beyond are errors; float cannot hold much larger integers.
_LEAST, _MOST = 1e-300, 1e300


class Tool(NamedTuple):
    """A benchmark tool.

    Attributes:
        name: its name.
        noun: its word for a sample.
        scope: what all samples of a file have in common.
        command: how to write a usable file.
        machine: keys of the name of the machine in a file; empty if files do not name it.
    """

    name: str
    noun: str
    scope: str
    command: str
    machine: tuple[str, ...] = ()


_START, _SESSION = "start of the program", "session"
HYPERFINE = Tool("hyperfine", "run", _SESSION, "hyperfine --export-json")
PYTEST = Tool("pytest-benchmark", "round", _START, "pytest --benchmark-json", ("machine_info", "node"))
ASV = Tool("asv", "sample", _SESSION, "asv run --record-samples", ("params", "machine"))
PYPERF = Tool("pyperf", "process", _SESSION, "pyperf … --output", ("metadata", "hostname"))
GOOGLE = Tool(
    "google-benchmark", "repetition", _START, "--benchmark_repetitions=10 --benchmark_out", ("context", "host_name")
)
FIO = Tool("fio", "job", _SESSION, "fio --output-format=json")
CSV = Tool("CSV", "row", _SESSION, "the columns arm, block and value")
# A remedy must not overwrite the only copy of a measurement.
_ANEW = "restore it, or measure again into a new file"
_NAMES = ", ".join(tool.name for tool in (HYPERFINE, PYTEST, ASV, PYPERF, GOOGLE, FIO))


@dataclass(frozen=True)
class Series:
    """The samples of a benchmark in a file, in the order of their measurement.

    Attributes:
        benchmark: name of the benchmark.
        samples: positive values in `unit`.
        unit: "s" for times, a unit such as "B/s" for rates, or an empty string for times in an unknown unit.
        arm: name of the arm, if the file names it.
        blocks: names of the blocks of the samples; empty if they were not measured in blocks.
        lost: number of samples that failed.
    """

    benchmark: str
    samples: tuple[float, ...]
    unit: str = "s"
    arm: str = ""
    blocks: tuple[str, ...] = ()
    lost: int = 0

    @property
    def is_rate(self) -> bool:
        """Whether higher values are better."""
        return self.unit.endswith("/s")


@dataclass(frozen=True)
class ToolFile:
    """The content of a result file: path, tool, name of the machine if known, SHA-256, and series (at least one)."""

    path: str
    tool: Tool
    machine: str
    digest: str
    series: tuple[Series, ...]


def is_tool_file(path: str) -> bool:
    """Return whether a source of a comparison is a file, and neither an archive nor a baseline of this project."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return not (head.startswith(_ARCHIVE) or _BASELINE.match(head))


def read_tool_file(path: str) -> ToolFile:
    """Read a result file.

    Raises:
        Problem: the file cannot be read, has an unknown format, or has no samples that can be compared.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not a text file; name results of {_NAMES} (JSON), or a CSV") from error
    tool, content_of, parse = _recognise_format(path, text)
    try:
        series, machine = tuple(_merge_series(parse())), _get_machine(tool, content_of)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise Problem(f"{path} is damaged, or of an unknown version of {tool.name} ({reason}); {_ANEW}") from error
    if not series:
        raise Problem(f"{path} has no samples of {tool.name}; {_ANEW}: {tool.command}")
    return ToolFile(
        path, tool, machine, hashlib.sha256(content).hexdigest(), tuple(_check_series(path, of) for of in series)
    )


def _get_machine(tool: Tool, content: Mapping) -> str:
    value: object = content
    for key in tool.machine:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _recognise_format(path: str, text: str) -> tuple[Tool, Mapping, Callable[[], Iterator[Series]]]:
    """Return the tool that wrote a text, its JSON object (empty for a CSV), and a function that parses it."""
    if not text.strip():
        raise Problem(f"{path} is empty; {_ANEW}")
    if text.lstrip()[0] not in "{[":
        header = text.lstrip().splitlines()[0]
        if not any(_VALUE.fullmatch(name.strip()) for name in header.split(",")):
            raise Problem(
                f"{path} is neither JSON nor a CSV with a column value; name results of {_NAMES}, or a CSV with"
                f" {CSV.command}"
            )
        return CSV, {}, partial(_parse_csv, path, text)
    content = _parse_json(path, text)
    keys = list(content) if isinstance(content, dict) else []
    for needed, tool, parse in _FORMATS:
        if needed <= set(keys):
            return tool, content, partial(parse, content)
    shown = f"its keys: {', '.join(map(shorten_name, keys[:4]))}{', …' * (len(keys) > 4)}" if keys else "no object"
    raise Problem(
        f"{path} is JSON, but neither a baseline nor results of {_NAMES} ({shown}); write its values to a CSV with"
        f" {CSV.command}"
    )


def _parse_json(path: str, text: str) -> object:
    # asv writes NaN for parameters that a benchmark skips.
    try:
        return json.loads(text)
    except RecursionError:
        raise Problem(f"{path} is nested too deeply; {_ANEW}") from None
    except ValueError as error:
        raise Problem(f"{path} is not complete JSON ({error}); {_ANEW}") from error


def _parse_hyperfine(content: Mapping) -> Iterator[Series]:
    for of in content["results"]:
        codes = of.get("exit_codes") or [0] * len(of["times"])
        # A run that failed may have ended early.
        times = tuple(time for time, code in zip(of["times"], codes, strict=True) if code == 0)
        yield Series(of["command"], times, lost=len(codes) - len(times))


def _parse_pytest(content: Mapping) -> Iterator[Series]:
    for of in content["benchmarks"]:
        yield Series(of["fullname"], tuple(of["stats"].get("data") or ()))


def _parse_asv(content: Mapping) -> Iterator[Series]:
    """Yield times; benchmarks of memory and sizes need no statistics."""
    for name, row in content["results"].items():
        values = dict(zip(content["result_columns"], row or (), strict=False))
        if not name.rpartition(".")[2].startswith("time") or not values.get("result"):
            continue
        cases = [", ".join(case) for case in itertools.product(*values.get("params") or ())]
        samples = values.get("samples") or [None] * len(cases)
        for case, result, of in zip(cases, values["result"], samples, strict=True):
            is_skipped = of is None and (result is None or math.isnan(result))
            if not is_skipped:
                yield Series(f"{name}({case})" if case else name, tuple(of or (result,)))


def _parse_pyperf(content: Mapping) -> Iterator[Series]:
    """Yield the mean of each process without its warm-up; processes that calibrate have no values."""
    common = content.get("metadata") or {}
    for of in content["benchmarks"]:
        metadata = common | (of.get("metadata") or {})
        if metadata.get("unit", "second") == "second":
            runs = [run["values"] for run in of["runs"] if run.get("values")]
            yield Series(metadata.get("name", "benchmark"), tuple(map(_average_values, runs)))


def _average_values(values: list[float]) -> float:
    """Return the mean, or a value that is not positive, which `_check_series` reports."""
    return sum(values) / len(values) if min(values) > 0 else min(values)


def _parse_google(content: Mapping) -> Iterator[Series]:
    """Yield repetitions; aggregates, such as the mean over repetitions, are left out."""
    for of in content["benchmarks"]:
        if of.get("run_type", "iteration") == "iteration":
            failed = bool(of.get("error_occurred"))
            times = () if failed else (of["real_time"] * _SECONDS[of.get("time_unit", "ns")],)
            yield Series(of.get("run_name") or of["name"], times, lost=int(failed))


def _parse_fio(content: Mapping) -> Iterator[Series]:
    """Yield the rate and the mean latency of each job; jobs of the same name are samples of the same benchmark.

    Entries of the same name and group are the processes of a job (`numjobs`), which ran at the same time.
    """
    groups: dict[tuple, list[Mapping]] = {}
    for job in content["jobs"]:
        if job["error"]:
            raise ValueError(f"job {job['jobname']} failed with error {job['error']}")
        groups.setdefault((job["jobname"], job.get("groupid")), []).append(job)
    for (name, _), jobs in groups.items():
        for way in ("read", "write"):
            if active := [job[way] for job in jobs if job[way]["total_ios"]]:
                yield Series(f"{name}: {way} rate", (sum(of["bw_bytes"] for of in active),), "B/s")
                # It is 0 if latencies are not measured (disable_lat).
                if total := sum(of["lat_ns"]["mean"] * of["total_ios"] for of in active):
                    yield Series(f"{name}: {way} latency", (total / sum(of["total_ios"] for of in active) / 1e9,))


# Keys of a JSON object, the tool that writes them, and the function that parses it.
_FORMATS = (
    ({"result_columns", "results"}, ASV, _parse_asv),
    ({"results"}, HYPERFINE, _parse_hyperfine),
    ({"machine_info", "benchmarks"}, PYTEST, _parse_pytest),
    ({"context", "benchmarks"}, GOOGLE, _parse_google),
    ({"version", "benchmarks"}, PYPERF, _parse_pyperf),
    ({"fio version", "jobs"}, FIO, _parse_fio),
)


def _parse_csv(path: str, text: str) -> Iterator[Series]:
    """Yield a series of each row; the columns arm, block and benchmark are optional."""
    try:
        header, *rows = csv.reader(io.StringIO(text.lstrip()), strict=True)
    except csv.Error as error:
        raise Problem(f"{path} is not a CSV ({error})") from error
    columns = [name.strip() for name in header]
    place, label = next((place, match[1]) for place, name in enumerate(columns) if (match := _VALUE.fullmatch(name)))
    unit = label or ""
    if unit and unit not in _SECONDS and not unit.endswith("/s"):
        raise Problem(f"{path}: the unit of values must be one of {', '.join(_SECONDS)} or a rate (got {unit})")
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        cells = dict(zip(map(str.lower, columns), map(str.strip, row), strict=False))
        arm, block, benchmark = (cells.get(name, "") for name in ("arm", "block", "benchmark"))
        if len(row) != len(columns) or any(not cells[name] for name in ("arm", "block", "benchmark") if name in cells):
            raise Problem(f"{path}: line {number} must have {len(columns)} fields, none of them empty")
        try:
            value = float(row[place])
        except ValueError:
            raise Problem(f"{path}: the value in line {number} is not a number ({row[place]!r})") from None
        is_time = unit in _SECONDS
        scaled = value * _SECONDS[unit] if is_time else value
        yield Series(benchmark, (scaled,), "s" if is_time else unit, arm, (block,) if block else ())


def _merge_series(parts: Iterator[Series]) -> Iterator[Series]:
    """Join the parts of each series; series without samples are left out."""
    merged: dict[tuple[str, str], list[Series]] = {}
    for part in parts:
        if not isinstance(part.benchmark, str):
            raise TypeError("the name of a benchmark is not a text")
        merged.setdefault((part.benchmark, part.arm), []).append(part)
    for of in merged.values():
        samples = tuple(itertools.chain.from_iterable(part.samples for part in of))
        blocks = itertools.chain.from_iterable(part.blocks for part in of)
        if samples:
            yield replace(of[0], samples=samples, blocks=tuple(blocks), lost=sum(part.lost for part in of))


def _check_series(path: str, series: Series) -> Series:
    for number, value in enumerate(series.samples, 1):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _LEAST < value < _MOST:
            name = f" of {series.benchmark}" if series.benchmark else ""
            raise Problem(f"{path}: value {number}{name} is not a positive number ({value!r}); measure it again")
    return series


def compute_block_medians(series: Series) -> dict[str, float]:
    """Return the median sample of each block of a series."""
    by_block: dict[str, list[float]] = {}
    for block, value in zip(series.blocks, series.samples, strict=True):
        by_block.setdefault(block, []).append(value)
    return {block: median(values) for block, values in by_block.items()}
