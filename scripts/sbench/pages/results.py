"""Convert the tables of a study to the form that pages use, with a sentence about each missing table.

A measured run has samples, cells, verdicts and a matrix. Published data have only samples, or a number per cell.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sbench.measure.families import NOT_USED, OTHER_CODE
from sbench.measure.judging import CONTEST
from sbench.measure.tables import select_blocks
from sbench.pages.declaration import Report
from sbench.pages.names import Names
from sbench.pages.run_files import build_absence_problem
from sbench.pages.statements import DECIDES, Comparison, Records, Stated, Statement
from sbench.verdicts import stats
from sbench.verdicts.outcomes import Outcome

RECORD = ["cell", "repeat"]
LAUNCH = [*RECORD, "launch"]
COUNTS = ("n", "failed", "invalid", "edited")


def group_by_record(rows: pd.DataFrame, report: Report, alike: Iterable[str] = ()) -> tuple[pd.DataFrame, Any, Any]:
    """Group rows of iterations by record.

    The first iteration opens connections and files, so that its time is excluded if a launch has several iterations.

    Args:
        rows: one row per iteration.
        report: declaration of the study.
        alike: further columns that are equal in all iterations of a record.

    Returns:
        one row per record, with the factors, the columns `alike` and the numbers of `iterations` and `launches`; all
            iterations grouped by record; and the iterations whose time counts, grouped by record.
    """
    rows = rows.assign(control=rows.get("control", ""), launch=get_launches(rows))
    rows = rows.sort_values([*LAUNCH, "iteration"], kind="stable")
    groups, of_launch = rows.groupby(RECORD, sort=False), rows.groupby(LAUNCH, sort=False)
    records = groups[["valid", "control", *report.names, *alike]].first()
    records["iterations"] = groups.size()
    records["launches"] = groups["launch"].nunique()
    counts = (of_launch.cumcount() > 0) | (of_launch["iteration"].transform("size") == 1)
    return records, groups, rows[counts].groupby(RECORD, sort=False)


def get_launches(rows: pd.DataFrame) -> pd.Series:
    """Return the launch of each row of samples; 1 if records have a single launch."""
    return rows["launch"].fillna(1) if "launch" in rows else pd.Series(1, rows.index)


def build_results(
    tables: dict, of_samples: Callable[[pd.DataFrame], pd.DataFrame], facts: dict, report: Report, folder: Path
) -> "Results":
    """Build the results of a run from the tables of `read_tables`.

    Args:
        tables: tables by name.
        of_samples: function that converts samples to the `records` of `Results`; infinite values become NaN.
        facts: facts of the run.
        report: declaration of the study.
        folder: directory of the tables, for messages.

    Raises:
        Problem: there are neither samples nor cells.
    """
    if tables["samples"].empty and tables["cells"].empty:
        raise build_absence_problem(folder)
    samples, full = tables["samples"], (facts.get("order") or {}).get("full") or ()
    if full and len(samples):
        samples = select_blocks(samples, full, samples["valid"].astype(bool))
    records = pd.DataFrame(columns=[*RECORD, "valid", "control", *report.names, "total_s"]).astype({"valid": bool})
    if len(samples):
        records = of_samples(samples).replace([np.inf, -np.inf], np.nan).reset_index()
    if "session" in samples and len(records):
        sessions = samples.drop_duplicates(["cell", "repeat"]).set_index(["cell", "repeat"])["session"].fillna("")
        records = records.join(sessions, on=["cell", "repeat"])
    cells, matrix = complete_cells(tables["cells"], records, report), tables["matrix"]
    if "omitted" in matrix and (unable := facts.get("unable")):
        # Combinations that turned out to be impossible when they were tried.
        matrix = matrix.assign(
            omitted=matrix["omitted"].where(~matrix["cell"].isin(unable), matrix["cell"].map(unable))
        )
    return Results(
        **(tables | {"samples": samples, "cells": cells, "matrix": matrix}), facts=facts, report=report, records=records
    )


def complete_cells(cells: pd.DataFrame, records: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Add the columns that pages need to the table of cells, computed from the records if they are missing.

    Each of the report's values gets an estimate over a cell's valid records, with confidence limits `_low` and `_high`;
    they are NaN if unknown.
    """
    if cells.empty:
        groups = records.groupby("cell", sort=False)
        cells = groups[[name for name in (*report.names, "control") if name in records]].first()
        cells["n"], cells["invalid"] = groups["valid"].sum(), groups["valid"].agg(lambda valid: (~valid).sum())
        cells = cells.reset_index()
    for column in (*report.names, "cache", "control", "reasons", "cache_state"):
        cells[column] = cells[column].fillna("").astype(str) if column in cells else ""
    for column in COUNTS:
        cells[column] = cells[column].fillna(0).astype(int) if column in cells else 0
    valid = records[records["valid"]].groupby("cell", sort=False)
    for value in report.values:
        ends = [value.column, f"{value.column}_low", f"{value.column}_high"]
        for column in ends:
            cells[column] = pd.to_numeric(cells[column], errors="coerce") if column in cells else np.nan
        if value.column in records and cells[ends[1]].isna().all():
            summary = value.summary or (lambda own, name=value.column: stats.estimate_median(own[name].dropna()))
            estimates = {cell: summary(own)[:3] for cell, own in valid if own[value.column].notna().any()}
            table = pd.DataFrame.from_dict(estimates, orient="index", columns=ends, dtype=float)
            for column in ends:
                cells[column] = cells["cell"].map(table[column]).fillna(cells[column])
    return cells


@dataclass(frozen=True, eq=False)
class Results:
    """The tables of a study, with levels as strings. A missing table is empty and has a sentence in `absent`.

    Attributes:
        samples: samples.csv, in the blocks that cells.csv summarizes (`tables.select_blocks`).
        cells: cells.csv, completed by `complete_cells`.
        verdicts: verdicts.csv.
        matrix: matrix.csv.
        facts: facts of the run.
        absent: sentences about missing tables.
        report: declaration of the study.
        records: one row per completed record, with the cell, the repeat, `valid`, the factors and the report's values.
        requests: rows of `tables.build_exchanges_table`.
        raw: records.csv, with which statements are checked.
        withheld: sentences that failed the check.
        references: published data to draw in figures (`references`).
        looks: rows of `judging.build_looks_table`.
    """

    samples: pd.DataFrame
    cells: pd.DataFrame
    verdicts: pd.DataFrame
    matrix: pd.DataFrame
    facts: dict = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    report: Report | None = None
    records: pd.DataFrame = field(default_factory=pd.DataFrame)
    requests: pd.DataFrame = field(default_factory=pd.DataFrame)
    raw: pd.DataFrame = field(default_factory=pd.DataFrame)
    withheld: list[str] = field(default_factory=list, init=False)
    _stated: Stated = field(default_factory=Stated, init=False)
    _compared: dict[str, pd.DataFrame] = field(default_factory=dict, init=False)
    references: tuple["Results", ...] = ()
    looks: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def names(self) -> Names:
        """Return the display names of this run's levels, stores and storage locations."""
        return Names(self.report, self.facts)

    @cached_property
    def readers(self) -> pd.DataFrame:
        """Return a table of facts about the reader of each record; it is empty if the study has none.

        The columns are cell, repeat and each value that was read back, such as `effective.hosts` and
        `memory.growth_bytes`.
        """
        readers = [one for one in self.facts.get("readers") or [] if isinstance(one, dict)]
        return pd.json_normalize(readers, max_level=1) if readers else pd.DataFrame(columns=["cell", "repeat"])

    @cached_property
    def valid_readers(self) -> pd.DataFrame:
        """Return the rows of `readers` for valid records."""
        if self.readers.empty or self.records.empty:
            return self.readers
        return self.readers.merge(self.records.loc[self.records["valid"], ["cell", "repeat"]], on=["cell", "repeat"])

    @cached_property
    def measured(self) -> pd.DataFrame:
        """Return the cells that figures show: cells with a valid repeat and a value to draw, except controls."""
        cells, values = self.cells, [value.column for value in self.report.values]
        valued = cells[values].notna().any(axis=1) | (not values)
        cells = cells.assign(n=cells["n_used"].fillna(cells["n"]).astype(int)) if "n_used" in cells else cells
        return cells[(cells["control"] == "") & (cells["n"] > 0) & valued].reset_index(drop=True)

    @cached_property
    def invalid(self) -> pd.DataFrame:
        """Return the cells that have no valid repeat, but at least one that broke a measurement rule.

        Figures show them, but no summary includes them.
        """
        cells = self.cells
        return cells[(cells["control"] == "") & (cells["n"] == 0) & (cells["invalid"] > 0)].reset_index(drop=True)

    def select_sentences(self, sentences: Iterable[tuple[str, tuple[Statement, ...]]]) -> list[str]:
        """Return the sentences whose statements the data support and no earlier statement contradicts.

        Other sentences are added to `withheld`. Older tables, whose verdicts do not name their blocks, cannot be
        checked (`is_checked`).
        """
        kept = []
        for text, statements in sentences:
            is_true = not self.is_checked or all(statement.is_supported_by(self.checks) for statement in statements)
            (kept if is_true and self._stated.add_statements(statements) else self.withheld).append(text)
        return kept

    @cached_property
    def checks(self) -> Records:
        """Return the raw records that statements are checked against."""
        return Records(self.raw)

    @property
    def is_checked(self) -> bool:
        """Return whether the tables contain the data needed to check statements."""
        return bool(self.checks) and "used_blocks" in self.verdicts

    def select_drawn(self, column: str) -> pd.DataFrame:
        """Return the records that figures of `column` draw, with a tooltip text in the column `note`.

        These are the valid records, and all records of `invalid` cells.
        """
        records = self.records
        if records.empty or column not in records:
            return pd.DataFrame(columns=["cell", *self.report.names, column, "note"])
        chosen = records[column].notna() & (records["valid"] | records["cell"].isin(self.invalid["cell"]))
        return records[chosen].assign(note="repeat " + records["repeat"].astype(str))

    def list_levels(self, factor: str) -> list[str]:
        """List the measured levels of a factor: those of the question's factor in the matrix's order, others sorted."""
        levels = [level for level in self.measured[factor].unique() if level]
        if factor == self.report.headline:
            return levels
        return sorted(levels, key=lambda level: self.names.get_sort_key(factor, level))

    def select_telling_factors(self, cells: pd.DataFrame, factors: Iterable[str]) -> list[str]:
        """Return the factors that are needed to distinguish cells.

        A factor that is determined by the factors before it is omitted.
        """
        kept: list[str] = []
        many = 1
        for factor in factors:
            combinations = len(cells[[*kept, factor]].drop_duplicates())
            if combinations > many:
                kept, many = [*kept, factor], combinations
        return kept

    @cached_property
    def usual_levels(self) -> dict[str, str]:
        """Return the level that most cells share, for each factor that has one. Pages state these levels only once."""
        shares = {factor: self.measured[factor].value_counts(normalize=True) for factor in self.report.names}
        return {factor: str(share.index[0]) for factor, share in shares.items() if share.max() > 0.5}

    @property
    def arms(self) -> list[str]:
        """Return the levels of the question's factor, in the order in which figures assign colours and markers."""
        return self.list_levels(self.report.headline) or [""]

    def describe_place(self, levels: dict) -> str:
        """Describe where cells with the given levels read their bytes from, including the measured cache state."""
        named = {name: level for name, level in levels.items() if name in self.report.places}
        if not named:
            return ""
        cells = self.measured[(self.measured[list(named)] == list(named.values())).all(axis=1)]
        return self.names.format_place(named | {"state": " | ".join(dict.fromkeys(self.get_cache_states(cells)))})

    @property
    def situation_factors(self) -> list[str]:
        """Return the factors that users cannot choose: the work to be done, and the storage location.

        A factor of the storage location counts as a choice if the configuration compares it, except the cache state.
        """
        compare = (self.facts.get("settings") or {}).get("compare") or []
        choices = {entry["factor"] for entry in compare} - {"cache"}
        return [one.name for one in self.report.factors if one.given or (one.place and one.name not in choices)]

    @staticmethod
    def select_varying_factors(table: pd.DataFrame, factors: Iterable[str]) -> list[str]:
        """Return the factors that have several levels in a table."""
        return [factor for factor in factors if table[factor].nunique() > 1]

    @property
    def pair_keys(self) -> list[str]:
        """Return the columns of `get_comparisons` that identify a pair of levels in a storage location."""
        return ["factor", "baseline", "contender", *self.report.places, "state"]

    def get_comparisons(self, metric: str = "") -> pd.DataFrame:
        """Return the verdicts on configured comparisons for a metric (by default, the primary metric).

        Rows have the columns of verdicts.csv, the names of both cells (`baseline_cell`, `contender_cell`), and the page
        cache state of both (`state`). Comparisons of arms that deliver different amounts, or of cells that were never
        tried, are omitted.
        """
        metric = metric or self.report.metrics[0].name
        if metric not in self._compared:
            rows = self._pairs[self._pairs["tried"] & (self._pairs["metric"] == metric) & ~self._unequal]
            self._compared[metric] = rows[rows["factor"] != CONTEST].reset_index(drop=True)
        return self._compared[metric]

    @property
    def same_percent(self) -> float:
        """Return the maximum difference, in percent, at which two times count as the same."""
        settings = self.facts.get("settings") or {}
        return float(self.facts.get("equivalence_percent") or settings.get("equivalence_percent") or 5)

    def to_comparisons(self, rows: pd.DataFrame) -> tuple[Comparison, ...]:
        """Convert rows of `get_comparisons` to `Comparison` objects, which statements contain."""
        decides = self.report.metrics[0].name
        return tuple(
            Comparison(
                baseline=row["baseline_cell"],
                contender=row["contender_cell"],
                column=DECIDES if row["metric"] == decides else f"{row['metric']}_s",
                outcome=row["verdict"],
                blocks=tuple(map(int, str(row.get("used_blocks") or "").split())),
                ratio=float(row["ratio"]),
                low=float(row["ratio_low"]),
                high=float(row["ratio_high"]),
                same_within=self.same_percent / 100,
                is_bound=pd.notna(row.get("harness_percent")),
            )
            for row in rows.to_dict("records")
        )

    @cached_property
    def contest(self) -> pd.DataFrame:
        """Return the pairwise comparisons that are not in the configuration, in the form of `get_comparisons`.

        If two cells differ in a single factor, `factor`, `baseline` and `contender` are that factor and its levels.
        """
        pairs = self._pairs[(self._pairs["factor"] == CONTEST) & self._pairs["tried"]]
        levels = self.cells.set_index("cell")[list(self.report.names)].to_dict("index")
        rows = []
        for row in pairs.to_dict("records"):
            old, new = (levels.get(row[side], {}) for side in ("baseline", "contender"))
            differ = [name for name in self.report.names if old.get(name) != new.get(name)]
            if len(differ) == 1:
                row |= {"factor": differ[0], "baseline": old[differ[0]], "contender": new[differ[0]]}
            rows.append(row)
        return pd.DataFrame(rows, columns=pairs.columns)

    @property
    def unequal_count(self) -> int:
        """Count the comparisons that pages omit because their arms deliver different amounts."""
        rows = self._pairs
        return int((self._unequal & (rows["metric"] == self.report.metrics[0].name)).sum())

    @property
    def untried_count(self) -> int:
        """Count the configured comparisons that pages omit because one of their cells was never tried."""
        rows = self._pairs
        return int(
            (~rows["tried"] & (rows["metric"] == self.report.metrics[0].name) & (rows["factor"] != CONTEST)).sum()
        )

    @staticmethod
    def find_unmade(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        """Find comparisons that could not be made, or lack blocks, because their arms were not measured together.

        A comparison is not made if the arms were measured by different code, or never in the same session on the same
        machine. Pages state this only once.

        Returns:
            a mask of the comparisons that were not made, and a mask of other comparisons that lack blocks for this
                reason.
        """
        notes = rows["note"].fillna("")
        lacking = notes.str.contains(NOT_USED)
        unmade = notes.str.startswith(OTHER_CODE) | (lacking & (rows["verdict"] == Outcome.NOT_COMPARABLE))
        return unmade, lacking & ~unmade

    @cached_property
    def _unequal(self) -> pd.Series:
        unequal = [self.report.unequal(row) for row in self._pairs.to_dict("records")]
        return pd.Series(unequal, self._pairs.index, dtype=bool)

    @cached_property
    def _pairs(self) -> pd.DataFrame:
        """Return all verdicts except those on controls, with the cells and cache states of both sides."""
        factors = [name for name in self.report.names if name in self.cells]
        if self.verdicts.empty:
            columns = ["factor", "metric", "baseline", "contender", "verdict", "note", *factors]
            return pd.DataFrame(columns=columns).assign(tried=pd.Series(dtype=bool))
        rows = self.verdicts[self.verdicts["role"] != "control"].reset_index(drop=True)
        cells = self.cells.loc[self.cells["control"] == "", [*factors, "cell"]].drop_duplicates(factors, keep="last")
        states = dict(zip(self.cells["cell"], self.get_cache_states(self.cells), strict=True))
        compared = rows["factor"].to_numpy()[:, None] == np.array(factors)
        for side in ("baseline", "contender"):
            levels = rows[factors].mask(compared, rows[side], axis=0)
            named = levels.merge(cells, how="left", on=factors)["cell"].fillna("")
            rows[f"{side}_cell"] = rows[side].where(rows["factor"] == CONTEST, named)
        both = zip(*(rows[f"{side}_cell"].map(states).fillna("") for side in ("baseline", "contender")), strict=True)
        never = self.cells.loc[self.cells[["n", "failed", "invalid"]].sum(axis=1) == 0, "cell"]
        tried = ~(rows["baseline_cell"].isin(never) | rows["contender_cell"].isin(never))
        return rows.assign(state=[" | ".join(dict.fromkeys(filter(None, states))) for states in both], tried=tried)

    @staticmethod
    def get_cache_states(cells: pd.DataFrame) -> pd.Series:
        """Return the measured page cache state of each cell, or the requested state if it was not measured."""
        requested = cells.get("cache", pd.Series("", index=cells.index))
        if "cache_state" not in cells:
            return requested
        return cells["cache_state"].where(cells["cache_state"].fillna("") != "", requested)
