"""Build the tables of cells, combinations not measured, failures, datasets, libraries, machines and nodes."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sbench.measure.tables import list_factors, mark_doubles
from sbench.pages import costs, names, prose, words
from sbench.pages.declaration import Column, Value
from sbench.pages.markup import link
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.run_files import is_true
from sbench.verdicts import HARNESS
from sbench.verdicts.outcomes import ORDERED, Outcome

MIB = 2**20
# The path from reports/<run>/, and the rule references that `design.checks.rule` appends to messages.
_METHOD, _RULE = "../../docs/method.md#{}", re.compile(r"\((rule (\d+))\)")
COLOURED = (Outcome.FASTER, Outcome.SLOWER, Outcome.SAME)
HIGH_AMPLIFICATION = 2.0  # bytes per requested byte; fewer bytes are not always better
WHOLE = "{:.0f}".format
COSTS = (
    Column("USD per 1,000 reads", costs.compute_costs, prose.format_number),
    Column("machine / USD per 1,000 reads", costs.compute_machine_costs, prose.format_number),
)
REQUESTS = (
    Column("requests", "requests", WHOLE),
    Column(
        "spread over repeats",
        "requests_spread",
        WHOLE,
        lambda spread, _: spread.fillna(0) > 0,
        "requests that differ between repeats of one cell",
    ),
    Column("data / MiB", lambda run, cells: get_numbers(cells, "logical_bytes") / MIB, prose.format_number),
    Column("offered / MiB", lambda run, cells: get_numbers(cells, "bytes_offered") / MIB, prose.format_number),
    Column("delivered / MiB", lambda run, cells: get_numbers(cells, "bytes_delivered") / MIB, prose.format_number),
    Column("opens", "opens", WHOLE),
    Column("connections", "connections", WHOLE),
    Column("requests in flight", "in_flight", prose.format_number),
    Column(
        "amplification",
        "amplification",
        prose.format_ratio,
        lambda amplification, _: amplification > HIGH_AMPLIFICATION,
        f"amplification above {HIGH_AMPLIFICATION:g}",
    ),
    *COSTS,
)
CONDITIONS = (
    Column("repeats", "n", WHOLE),
    Column(
        "cache state",
        "cache_state",
        None,
        lambda _, cells: has_odd_cache_state(cells),
        "a cache state other than requested",
    ),
    Column("in memory before / %", lambda run, cells: 100 * get_numbers(cells, "resident_before"), WHOLE),
    Column("in memory after / %", lambda run, cells: 100 * get_numbers(cells, "resident_after"), WHOLE),
    Column(
        "oversubscribed",
        lambda run, cells: is_true(get_column(cells, "oversubscribed")).map({True: "yes", False: ""}),
        meaning="more workers or processes than cores",
    ),
    Column(
        "idle workers",
        "idle_workers",
        over=lambda idle, _: ~idle.astype(str).isin(["0", "0.0", "nan"]),
        meaning="workers without work",
    ),
    Column("outlying repeats", "outlying_repeats", meaning="outlying repeats"),
    Column("disturbed repeats", "disturbed_repeats", meaning="repeats disturbed by others on the machine"),
    Column("CPU of readers / s", "cpu_s", prose.format_number),
    Column("CPU of the server / s", "server_cpu_s", prose.format_number),
)


def get_column(cells: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of a table, or a column of NaN if it is missing."""
    return cells[name] if name in cells else pd.Series(np.nan, index=cells.index)


def get_numbers(cells: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as numbers, with NaN for unknown values.

    Values on which the repeats of a cell disagree ("0 | 1") count as unknown.
    """
    return pd.to_numeric(get_column(cells, name), errors="coerce")


def from_readers(name: str, how: str = "last", of: Callable[[Any], Any] | None = None) -> Callable:
    """Return a function for `Column.of` that aggregates a fact about readers (`Results.readers`) for each cell.

    Args:
        name: column with the fact.
        how: name of the pandas aggregation over a cell's valid records.
        of: function that extracts a value from a record's fact; by default, the fact itself. A fact in an unexpected
            form counts as missing.
    """

    def parse_fact(fact: object) -> object:
        try:
            value = of(fact) if of else fact
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return value if pd.api.types.is_scalar(value) else None

    def compute_values(run: Results, cells: pd.DataFrame) -> pd.Series:
        readers = run.valid_readers
        facts = get_column(readers, name).dropna().map(parse_fact)
        facts = facts if how == "last" else pd.to_numeric(facts, errors="coerce")
        return cells["cell"].map(facts.groupby(readers["cell"]).agg(how))

    return compute_values


def from_readers_in_mib(name: str, how: str = "median") -> Callable:
    """Return a function for `Column.of` that aggregates a fact in bytes for each cell and converts it to MiB."""
    return from_readers(name, how, lambda size: size / MIB)


def build_estimate_column(title: str, value: str) -> Column:
    """Build a column of a value with its confidence interval."""

    def format_estimates(_: Results, cells: pd.DataFrame) -> list[str]:
        ends = cells[[value, f"{value}_low", f"{value}_high"]].itertuples(index=False)
        return [names.format_with_interval(*row, prose.format_number) for row in ends]

    return Column(title, format_estimates)


def build_ratio_table(run: Results, factor: str, base: str, value: Value, called: Callable[[dict], str]) -> Table:
    """Build the table that compares each level of a factor with the level `base` (METHOD 19).

    Args:
        run: results.
        factor: factor whose levels are compared.
        base: level to compare with.
        value: time to compare.
        called: function that names a cell's level.
    """
    cells, others = run.measured, [name for name in run.report.names if name != factor]
    bases = cells[cells[factor] == base].set_index(others)[value.column].rename("base")
    cells = cells.join(bases, on=others)
    varies = run.select_varying_factors(cells, others)
    rows = run.names.sort_rows(cells, [*varies, factor])
    frame = pd.DataFrame(
        {
            run.report.get_factor(name).title: [run.names.format_table_level(name, level) for level in rows[name]]
            for name in varies
        }
    )
    own, other, ratio = f"time / {value.unit}", f"{base} / {value.unit}", f"× as fast as {base}"
    frame[run.report.get_factor(factor).title] = [called(row) for row in rows.to_dict("records")]
    frame[own], frame[other] = rows[value.column].to_numpy(), rows["base"].to_numpy()
    frame[ratio] = frame[other] / frame[own]
    caption = words.fill("table of ratios", value=value.title, base=base)
    return Table(
        f"against-{base}",
        caption,
        frame,
        {own: prose.format_number, other: prose.format_number, ratio: prose.format_ratio},
    )


def has_odd_cache_state(cells: pd.DataFrame) -> pd.Series:
    """Return a mask of the cells whose page cache was in a different state than requested."""
    state = cells["cache_state"]
    return (state != "") & (state != cells["cache"]) & ~cells["cache"].isin(("any", "direct"))


def sort_cells(cells: pd.DataFrame, run: Results) -> pd.DataFrame:
    """Sort cells by the factors in their declared order, with the question's factor last."""
    own = run.report.headline
    arms = cells[own].map({level: place for place, level in enumerate(cells[own].unique())})
    factors = [name for name in run.report.names if name != own and name in cells]
    return run.names.sort_rows(cells.iloc[arms.argsort(kind="stable")], factors).reset_index(drop=True)


def build_level_columns(cells: pd.DataFrame, run: Results) -> pd.DataFrame:
    """Build a column for each factor that distinguishes the run's cells, with empty strings where it does not apply."""
    factors = run.select_telling_factors(run.cells[run.cells["control"] == ""], run.report.names)
    frame, rows = pd.DataFrame(index=cells.index), cells.to_dict("records")
    for factor in factors or [run.report.headline]:
        meant = [row[factor] if run.names.has_meaning(factor, row) else "" for row in rows]
        if any(meant):
            title = run.report.get_factor(factor).title
            frame[title] = [run.names.format_table_level(factor, level) if level else "" for level in meant]
    return frame.reset_index(drop=True)


def build_table(
    run: Results,
    name: str,
    caption: str,
    columns: Iterable[Column],
    cells: pd.DataFrame | None = None,
    about: Iterable[Column] = (),
) -> Table:
    """Build a table of cells, omitting empty columns.

    Args:
        run: results.
        name: name of the table.
        caption: caption of the table.
        columns: columns in addition to the factors' levels.
        cells: rows of the table; the measured cells by default.
        about: columns that the table is about; it has no rows if all of these are empty.
    """
    nothing, cells = Table(name, "", pd.DataFrame()), sort_cells(run.measured if cells is None else cells, run)
    if cells.empty:
        return nothing
    frame, formats, over, meanings = build_level_columns(cells, run), {}, {}, []
    for one in columns:
        values = get_column(cells, one.of) if isinstance(one.of, str) else one.of(run, cells)
        values = pd.Series(list(values), index=frame.index)
        cells[one.title] = values = pd.to_numeric(values, errors="coerce") if one.text else values
        holds = values.notna() & (values.astype(str) != "")
        if not holds.any():
            continue
        frame[one.title] = values
        if one.text:
            formats[one.title] = one.text
        if one.meaning:
            over[one.title] = one.over(values, cells) if one.over else holds
            meanings.append(one.meaning)
    if about and not any(one.title in frame for one in about):
        return nothing
    return Table(name, caption, frame, formats, over, ", ".join(meanings))


def build_glance_table(run: Results) -> Table:
    """Build the table of ratios for the first compared factor, with a column per metric.

    Each row is a combination of levels of the other factors. Ratios are coloured by verdict.
    """
    rows = run.verdicts
    rows = rows[(rows["role"] != "control") & (rows["factor"] == rows["factor"].iloc[0])] if len(rows) else rows
    if rows.empty:
        return Table("at-a-glance", "", pd.DataFrame())
    factor, baseline, contender = rows[["factor", "baseline", "contender"]].iloc[0]
    keys = [*(name for name in run.report.names if name != factor), "baseline", "contender"]
    texts = [
        _format_verdict(*row, run) for row in rows[["metric", "ratio", "verdict"]].itertuples(index=False, name=None)
    ]
    rows = rows.assign(text=texts).set_index([*keys, "metric"])
    shown = run.names.sort_rows(rows["text"].unstack("metric").reset_index(), keys)
    verdicts = rows["verdict"].unstack("metric").reset_index().loc[shown.index]
    frame, over = build_level_columns(shown.assign(**{factor: ""}), run), {}
    if len(shown[["baseline", "contender"]].drop_duplicates()) > 1:
        frame["compared"] = (shown["contender"] + " / " + shown["baseline"]).to_list()
    for metric in run.report.metrics:
        if metric.name in shown:
            frame[metric.title] = shown[metric.name].fillna("").to_list()
            over[metric.title] = [one if one in COLOURED else "unknown" for one in verdicts[metric.name]]
    new, old = (run.names.format_level(factor, level) for level in (contender, baseline))
    caption = words.fill("table at a glance", new=new, old=old, title=run.report.metrics[0].title)
    return Table("at-a-glance", caption, frame, over=over, meaning=words.fill("colours of verdicts"))


def _format_verdict(metric: str, ratio: float, verdict: str, run: Results) -> str:
    """Format a ratio. The verdict follows unless it is faster or slower, which the ratio itself shows."""
    text = names.format_multiple(ratio, np.nan, np.nan, run.report.get_metric(metric).is_time)
    return text if verdict in ORDERED else ", ".join(filter(None, [text, words.get_mark(verdict)]))


def build_request_table(run: Results) -> Table:
    """Build the table of requests, bytes and read amplification per cell; empty if they are unknown."""
    about = (*REQUESTS[:1], *run.report.moved)
    caption = words.fill("table of requests", prices=costs.describe_prices(run))
    return build_table(run, "requests", caption, (*REQUESTS, *run.report.moved), about=about)


def build_condition_table(run: Results) -> Table:
    """Build the table of the conditions that were in effect for each cell, as read back."""
    about = (*CONDITIONS[1:], *run.report.effective)
    return build_table(run, "conditions", words.fill("table of conditions"), (*CONDITIONS[:1], *about), about=about)


def compute_harness_share(cells: pd.DataFrame) -> pd.Series:
    """Return the harness's share of each cell's time, in percent."""
    return 100 * get_numbers(cells, "null_s") / get_numbers(cells, "total_s")


def build_harness_table(run: Results) -> Table:
    """Build the table of the harness's overhead, in seconds and in percent of the primary time."""
    if "null_s" not in run.measured:
        return Table("harness", "", pd.DataFrame())
    decides = run.report.metrics[0].title
    share = Column(
        "within it / %",
        lambda run, cells: compute_harness_share(cells),
        "{:.1f}".format,
        lambda share, _: share > HARNESS,
        words.fill("colours of harness", percent=HARNESS, title=decides),
    )
    total = Column(f"{decides} / s", "total_s", prose.format_number)
    caption = words.fill("table of harness", title=decides)
    return build_table(run, "harness", caption, (total, *run.report.harness, share), about=(*run.report.harness, share))


def build_trouble_table(run: Results) -> Table:
    """Build the table of cells with failed or invalid repeats, including the reasons."""
    cells = sort_cells(run.cells, run)
    cells = cells[(cells["failed"] > 0) | (cells["invalid"] > 0)].reset_index(drop=True)
    frame = build_level_columns(cells, run)
    frame.insert(0, "", [get_trouble_mark(cell) for cell in cells.to_dict("records")])
    for column in ("failed", "invalid", "n", "reasons"):
        frame["valid" if column == "n" else column] = cells[column]
    frame["reasons"] = frame["reasons"].map(link_rules)
    return Table(
        "failed-and-invalid",
        words.fill("table of trouble"),
        frame,
        over={"": cells["invalid"] > 0},
        meaning="invalid",
    )


def link_rules(reasons: str) -> str:
    """Link each rule of docs/method.md that a text mentions.

    A reference to a rule that does not exist remains unchanged, because the text may come from another program.
    """

    def add_link(match: re.Match) -> str:
        anchor = _read_anchors().get(match[2])
        return f"({link(match[1], _METHOD.format(anchor))})" if anchor else match[0]

    return _RULE.sub(add_link, reasons)


@cache
def _read_anchors() -> dict[str, str]:
    headings = re.findall(r"^### ((\d+)\. .+)$", Path("docs/method.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {number: re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text, number in headings}


def get_trouble_mark(cell: dict) -> str:
    """Return the marker for a cell with failed or invalid repeats (METHOD 23)."""
    if not cell["invalid"]:
        return "failed"
    marks = ["[INVALID]"] * (cell["invalid"] > cell["edited"]) + ["[EDITED]"] * (cell["edited"] > 0)
    return " ".join(marks)


def build_omitted_table(matrix: pd.DataFrame, unsaid: Mapping[str, str] | None = None) -> Table:
    """Build the table of combinations that were not measured, with the reasons.

    Args:
        matrix: the configuration's matrix of combinations.
        unsaid: levels to omit, by factor; a factor with only this level does not get a column.
    """
    if matrix.empty or "omitted" not in matrix:
        return Table("omitted", "", pd.DataFrame())
    matrix = mark_doubles(matrix)
    matrix = matrix[matrix["omitted"] != ""].reset_index(drop=True)
    kept = [name for name in list_factors(matrix) if set(matrix[name]) != {(unsaid or {}).get(name)}]
    named = remove_empty_columns(matrix[[name for name in kept if name != "control"]])
    frame = named.rename(columns=prose.format_name).assign(reason=matrix["omitted"])
    return Table("omitted", words.fill("table of omitted"), frame)


def build_attempt_table(facts: dict) -> Table:
    """Build the table of earlier attempts that were moved aside: failed builds and datasets, and unreadable records."""
    rows = []
    for attempt in facts.get("failed_attempts") or []:
        details = attempt if isinstance(attempt, dict) else {"reasons": [attempt]}
        reasons = details.get("reasons") or []
        shown = {key: value for key, value in details.items() if isinstance(value, (str, int, float))}
        rows.append(shown | {"reasons": "; ".join(map(str, reasons if isinstance(reasons, list) else [reasons]))})
    return Table("failed-attempts", words.fill("table of attempts"), pd.DataFrame(rows))


def build_machine_table(facts: dict) -> Table:
    """Build the table of machine properties, with a column per machine if the results come from several."""
    hosts = facts.get("machines") or [facts.get("machine") or {}]
    heads = [f"machine {number}" for number in range(1, len(hosts) + 1)] if len(hosts) > 1 else ["value"]
    keys = dict.fromkeys(key for host in hosts for key in host)
    rows = [
        {"": prose.format_name(key)}
        | {name: format_fact(host.get(key), key) for name, host in zip(heads, hosts, strict=True)}
        for key in keys
    ]
    rows = [row for row in rows if any(row[name] for name in heads)]
    return Table("machine", words.fill("table of machine"), pd.DataFrame(rows))


def build_node_table(facts: dict) -> Table:
    """Build the table of differences between the nodes of a cluster; empty for a single node."""
    frame = pd.DataFrame(facts.get("nodes") or [], columns=["node", "records", "low", "middle", "high"])
    return Table(
        "nodes", words.fill("table of nodes"), frame, dict.fromkeys(("low", "middle", "high"), "{:.2f}".format)
    )


def build_dataset_table(run: Results) -> Table:
    """Build the table of datasets with their properties, as read back from the files."""
    rows = []
    for name, spec in (run.facts.get("data") or {}).items():
        layout = spec.get("layout") or {}
        facts = {prose.format_name(key): str(value) for key, value in layout.items() if not isinstance(value, dict)}
        rows.append({"dataset": name, "MiB": (spec.get("bytes") or 0) / MIB, **facts})
    return Table("data", words.fill("table of data"), pd.DataFrame(rows), {"MiB": "{:.1f}".format})


def build_library_table(run: Results) -> Table:
    """Build the table of the libraries under test."""
    measured = set(run.cells["library"]) if "library" in run.cells else set()
    rows = []
    for name, spec in (run.facts.get("libraries") or {}).items():
        if isinstance(spec, dict) and (name in measured or "hdf5" in spec):
            facts = {key: spec.get(key, "") for key in ("kind", "hdf5", "h5py", "numpy", "dask", "ros3")}
            build = spec.get("build") or {}
            added = [f"{one['name']} {one['version']} ({one['origin']})" for one in build.get("added") or []]
            rows.append(
                {"library": name, **facts, "source": build.get("hdf5_source", ""), "user-supplied": ", ".join(added)}
            )
    frame = remove_empty_columns(pd.DataFrame(rows).fillna("").astype(str))
    return Table("libraries", words.fill("table of libraries"), frame)


def format_fact(value: object, key: str = "") -> str:
    """Format a fact as text for a table."""
    if value is None:
        return ""
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def remove_empty_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Remove the columns that contain no values."""
    return frame.loc[:, [(frame[column].notna() & (frame[column] != "")).any() for column in frame]]
