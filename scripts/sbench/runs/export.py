"""Write all observations of a run as a long table, Parquet and CSV, for others to read (docs/results.md)."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from sbench.design import DEFAULT_CONFIG, records, schema, validity
from sbench.design import config as configuration
from sbench.measure import gather
from sbench.pages import exported
from sbench.pages.page import write_csv
from sbench.probe import sizes
from sbench.probe.program import Problem, read_json, replace_file

# Parts of a record whose numbers are observations, and parts with their circumstances.
_OBSERVED = ("seconds", "work", "requests", "cache", "memory", "ceiling", "network", "resources")
_CIRCUMSTANCES = ("effective", "host", "provenance")
# A name carries its unit (METHOD 16); names of a published study have "time".
_UNITS = {
    **{r"mib_s$": "MiB/s", r"_ms$": "ms", r"(_s|time)$": "s", r"bytes": "bytes", r"gib": "GiB"},
    **{r"iops$": "IOPS", r"percent$": "%"},
}


def export_run(name: str) -> int:
    """Write results/<run>/export/<run>.parquet and .csv, and the tables of the run's pages; print their paths.

    An empty `name` is the run of config/config.yaml.
    """
    results = Path("results", name or configuration.load_config(DEFAULT_CONFIG)["run"])
    write_observations(results)
    print(f"{results}/export/tables: {write_page_tables(results)}")
    return 0


def write_observations(results: Path) -> str:
    """Write the table of all observations of a run as Parquet and CSV, and return the path of the Parquet file.

    Raises:
        Problem: the run has no records.
    """
    table = build_observations(results)
    if table.empty:
        raise Problem(f"{results} lacks records; measure first (sbench run), or name another run: sbench export RUN")
    file = results / "export" / results.name
    with replace_file(f"{file}.parquet") as parquet:
        table.to_parquet(parquet, index=False)
        write_csv(Path(f"{file}.csv"), table)
    summary = f"{table['value'].count():,} observations of {', '.join(table['study'].unique())}"
    print(f"{file}.parquet and .csv: {summary}; docs/results.md describes them")
    return f"{file}.parquet"


def build_observations(results: Path) -> pd.DataFrame:
    """Return the long table of a run folder: one row per observation, or one row without a value for an empty record.

    Returns:
        run, study, cell, factors…, repeat; part (of the record; `samples` are of a task, iteration or job each),
        metric, value, unit; sample (from 1, within its record) and other columns that identify samples; valid, reasons;
        then the circumstances of the record: `<factor>_bytes` of levels that are sizes, and settings, settings in
        effect, machine, versions and commit: `settings_…`, `effective_…`, `host_…`, `provenance_…`. Texts are
        categories, because each row of a record repeats them; an empty text is missing.
    """
    kept = [(study, one) for study in schema.list_studies() for one in _read_records(results, study)]
    if not kept:
        return pd.DataFrame()
    levels = list(dict.fromkeys(factor for _, one in kept for factor in one.levels))
    about = pd.DataFrame([{"run": results.name, "study": study, **_describe_record(study, one)} for study, one in kept])
    about = about.replace("", None).assign(**_convert_sizes(about[levels])).convert_dtypes()
    observed = _build_metrics_table([one.record or {} for _, one in kept])
    table = about.join(observed).reset_index(drop=True)
    table = table.assign(**table.select_dtypes(["object", "string"]).astype("string").astype("category"))
    first = ["run", "study", "cell", *levels, "repeat", *observed.columns, "valid", "reasons"]
    return table[[*first, *table.columns.difference(first, sort=False)]]


def write_page_tables(results: Path) -> str:
    """Write the tables of each study's page into the run's `export/tables`, and return their number by study."""
    out = results / "export/tables"
    shutil.rmtree(out, ignore_errors=True)
    gathered = [study for study in schema.list_studies() if (results / study / "facts.json").is_file()]
    counts = {study: exported.write_tables(study, results / study, out) for study in gathered}
    return ", ".join(f"{count} of {study}" for study, count in counts.items()) or "none: no study has a page yet"


@cache
def get_unit(part: str, metric: str) -> str:
    """Return the unit of a metric by its part of the record, or by its name; "1" for counts and shares."""
    units = (unit for pattern, unit in _UNITS.items() if re.search(pattern, metric))
    return "s" if part == "seconds" else next(units, "1")


def _read_records(results: Path, study: str) -> Iterator[records.Kept]:
    folder = results / study
    if (folder / "matrix.csv").is_file():
        yield from gather.read_study(folder, results.name, study)[1]
    if (path := folder / "imported.json").is_file():
        for record in read_json(path).get("records", []):
            if records.is_sound(record):
                yield records.Kept(record["name"], record["cell"], record["repeat"], path, record)


def _describe_record(study: str, kept: records.Kept) -> dict[str, Any]:
    """Return the values that all observations of a record share: its place, its validity, and the circumstances."""
    record = kept.record or {"status": "failed"}
    reasons = validity.list_faults(record) if kept.record else [kept.problem]
    texts = {key: value for key, value in record.items() if isinstance(value, str) and key not in ("name", "digest")}
    settings = {key: value for key, value in (record.get("settings") or {}).items() if key not in ("study", "cell")}
    flat = {part: record.get(part) or {} for part in _CIRCUMSTANCES}
    flat = {part: {k: v for k, v in values.items() if not isinstance(v, dict)} for part, values in flat.items()}
    place = {"cell": kept.cell, **_convert_levels(study, kept), "repeat": kept.repeat}
    verdict = {"valid": not reasons, "reasons": "; ".join(map(str, reasons))}
    return texts | place | verdict | dict(_walk_leaves({"settings": settings, **flat}, "_"))


def _convert_levels(study: str, kept: records.Kept) -> dict[str, str | int | None]:
    """Return the levels of a record, counts as numbers; a level such as "2x" becomes the count on that machine."""
    in_force = (kept.record or {}).get("effective") or {}
    items = {name: factor["items"] for name, factor in schema.get_factors(study).items()}
    counts = {
        name
        for name, item in items.items()
        if any(one.get("type") == "integer" for one in (item, *item.get("oneOf", ())))
    }
    return {
        name: level if name not in counts else int(level) if level.isdecimal() else in_force.get(name)
        for name, level in kept.levels.items()
    }


def _convert_sizes(levels: pd.DataFrame) -> dict[str, pd.Series]:
    """Convert factors with levels such as "64MiB" to bytes; a level such as "unset" is missing."""

    def parse_size(level: Any) -> int | None:
        with contextlib.suppress(Problem, TypeError):
            return sizes.parse_size(level)

    texts = {name: column.astype("string") for name, column in levels.items()}
    sized = [name for name, column in texts.items() if column.str.fullmatch(r"\d+[KMGT]iB").any()]
    return {f"{name}_bytes": levels[name].map(parse_size) for name in sized}


def _build_metrics_table(of: list[dict]) -> pd.DataFrame:
    """Return the observations of records, indexed by the position of the record in the list."""
    named = records.read_sample_columns()
    telling = [name for name, what in named.items() if what.get("x-tells-apart")]
    totals = [
        (place, part, metric, float(value))
        for place, record in enumerate(of)
        for part in _OBSERVED
        for metric, value in _walk_leaves(record.get(part) or {}, ".")
        if not isinstance(value, str | bool)
    ]
    samples = [
        {**dict.fromkeys(telling), **sample, "place": place, "sample": number}
        for place, record in enumerate(of)
        for number, sample in enumerate(record.get("samples") or [], 1)
    ]
    wide = pd.DataFrame(samples, columns=None if samples else ["place", "sample", *telling])
    metrics = [name for name in wide if name not in {"place", "sample", *named}]
    long = wide.melt(["place", "sample", *telling], metrics, var_name="metric").assign(part="samples")
    long = pd.concat([pd.DataFrame(totals, columns=["place", "part", "metric", "value"]), long])
    long = long.dropna(subset="value").sort_values("place", kind="stable")
    long["unit"] = [get_unit(part, metric) for part, metric in zip(long["part"], long["metric"], strict=True)]
    long[["sample", *telling]] = long[["sample", *telling]].convert_dtypes()
    return long.set_index("place")[["part", "metric", "value", "unit", "sample", *telling]]


def _walk_leaves(part: dict, between: str, path: str = "") -> Iterator[tuple[str, str | float]]:
    """Yield the texts and numbers of a part of a record by path, as "GET.count"; skip texts of several lines."""
    for key, value in part.items():
        if isinstance(value, dict):
            yield from _walk_leaves(value, between, f"{path}{key}{between}")
        elif isinstance(value, int | float) or (isinstance(value, str) and "\n" not in value):
            yield f"{path}{key}", value
