"""Export all observations of a run for other tools, as a long-format table in Parquet and CSV (docs/results.md)."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from sbench.design import DEFAULT_CONFIG, prices, records, schema, validity
from sbench.design import config as configuration
from sbench.measure import gather
from sbench.pages import exported
from sbench.pages.page import write_csv
from sbench.pages.run_files import clean_value
from sbench.probe import sizes
from sbench.probe.program import Problem, read_json, replace_file

# Parts of a record whose numbers are exported as observations, and parts that describe the measurement's conditions.
_OBSERVED = ("seconds", "work", "requests", "cost", "cache", "memory", "ceiling", "network", "resources")
_CIRCUMSTANCES = ("effective", "host", "provenance")
# Names of metrics include the unit (METHOD 16); published studies use "time" for seconds.
_UNITS = {
    **{r"mib_s$": "MiB/s", r"_ms$": "ms", r"(_s|time)$": "s", r"bytes": "bytes", r"gib": "GiB"},
    **{r"iops$": "IOPS", r"percent$": "%", r"usd$": "USD"},
}


def export_run(name: str) -> int:
    """Export a run's observations to results/<run>/export, and the tables of its pages; print the paths.

    Args:
        name: name of the run; an empty string for the run configured in config/config.yaml.

    Returns:
        Exit status 0.
    """
    results = Path("results", name or configuration.load_config(DEFAULT_CONFIG)["run"])
    write_observations(results)
    print(f"{results}/export/tables: {write_page_tables(results)}")
    return 0


def write_observations(results: Path) -> str:
    """Write the table of all observations of a run to Parquet and CSV, and return the path of the Parquet file.

    Raises:
        Problem: the run lacks records.
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
    if (table["part"] == "cost").any() and (old := prices.describe_age(prices.list_dates(), date.today())):
        print(old)
    return f"{file}.parquet"


def build_observations(results: Path) -> pd.DataFrame:
    """Build the long-format table of a run, with one row per observation.

    A record without observations gets a single row.

    Returns:
        A DataFrame with these columns, in order:
            run, study, cell, factors…, repeat.
            part: part of the record; each observation in the part `samples` belongs to a single task, iteration or job.
            metric, value, unit.
            sample and other columns that identify samples; `sample` is numbered from 1 in each record.
            valid, reasons: whether the record is valid, and why not.
            The conditions of the measurement: `<factor>_bytes` for levels that are sizes; and the requested settings,
            the settings in effect, the machine, and the versions and commit of the software as `settings_…`,
            `effective_…`, `host_…` and `provenance_…`.
        Strings have a categorical dtype, because all rows of a record repeat them; empty strings become missing values.
        Control characters in them are escaped, as on pages.
    """
    kept = [(study, one) for study in schema.list_studies() for one in _read_records(results, study)]
    if not kept:
        return pd.DataFrame()
    levels = list(dict.fromkeys(factor for _, one in kept for factor in one.levels))
    about = [clean_value({"run": results.name, "study": study, **_describe_record(study, one)}) for study, one in kept]
    about = pd.DataFrame(about).replace("", None)
    about = about.assign(**_convert_sizes(about[levels])).convert_dtypes()
    machines = {study: _read_machine(results / study) for study in dict.fromkeys(study for study, _ in kept)}
    observed = _build_metrics_table([clean_value(_add_cost(one.record or {}, machines[study])) for study, one in kept])
    table = about.join(observed).reset_index(drop=True)
    table = table.assign(**table.select_dtypes(["object", "string"]).astype("string").astype("category"))
    first = ["run", "study", "cell", *levels, "repeat", *observed.columns, "valid", "reasons"]
    return table[[*first, *table.columns.difference(first, sort=False)]]


def write_page_tables(results: Path) -> str:
    """Write the tables of each study's page to the run's folder export/tables, and describe how many were written."""
    out = results / "export/tables"
    shutil.rmtree(out, ignore_errors=True)
    gathered = [study for study in schema.list_studies() if (results / study / "facts.json").is_file()]
    counts = {study: exported.write_tables(study, results / study, out) for study in gathered}
    return ", ".join(f"{count} of {study}" for study, count in counts.items()) or "none: no study has a page yet"


@cache
def get_unit(part: str, metric: str) -> str:
    """Return the unit of a metric based on its part of the record and its name; "1" for counts and fractions."""
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


def _read_machine(folder: Path) -> dict | None:
    """Return the configuration entry of a run's machine, which determines its price, from a study's facts."""
    facts = folder / "facts.json"
    return read_json(facts).get("billed_machine") if facts.is_file() else None


def _add_cost(record: dict, machine: dict | None) -> dict:
    return record | {"cost": prices.compute_record_usd(record, machine)}


def _describe_record(study: str, kept: records.Kept) -> dict[str, Any]:
    """Return the values that all observations of a record share: cell, levels, repeat, validity and conditions."""
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
    """Return the factor levels of a record, with counts as integers.

    A relative count such as "2x" (twice the available cores) is replaced by the count that was in effect.
    """
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
    """Return a column in bytes for each factor with levels such as "64MiB"; other levels become missing values."""

    def parse_size(level: Any) -> int | None:
        with contextlib.suppress(Problem, TypeError):
            return sizes.parse_size(level)

    texts = {name: column.astype("string") for name, column in levels.items()}
    sized = [name for name, column in texts.items() if column.str.fullmatch(r"\d+[KMGT]iB").any()]
    return {f"{name}_bytes": levels[name].map(parse_size) for name in sized}


def _build_metrics_table(of: list[dict]) -> pd.DataFrame:
    """Build the long-format table of all observations, indexed by the position of each record in the list."""
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
    """Yield (path, value) for the numbers and strings in nested dicts, such as ("GET.count", 3).

    Multi-line strings are skipped.

    Args:
        part: nested dict.
        between: separator of the keys in a path.
        path: prefix of all paths.
    """
    for key, value in part.items():
        if isinstance(value, dict):
            yield from _walk_leaves(value, between, f"{path}{key}{between}")
        elif isinstance(value, int | float) or (isinstance(value, str) and "\n" not in value):
            yield f"{path}{key}", value
