"""One study's tables as a report reads them, with the names of its declaration."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from scripts.report.declaration import Report
from scripts.report.names import Names
from scripts.statistics.verdicts import OF_CELLS


@dataclass(frozen=True)
class Results:
    """One study's tables, factors as text; an absent table is empty and has a sentence in `absent`."""

    samples: pd.DataFrame
    cells: pd.DataFrame
    verdicts: pd.DataFrame
    matrix: pd.DataFrame
    facts: dict = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    report: Report | None = None

    @cached_property
    def names(self) -> Names:
        """What levels, stores and places of this run are called."""
        return Names(self.report, self.facts)

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The cells that figures show: those with a valid repeat, without the A/A control's twins."""
        cells = self.cells
        return cells[(cells["control"] == "") & (cells["n"] > 0)].reset_index(drop=True)

    @cached_property
    def invalid(self) -> pd.DataFrame:
        """The cells without a valid repeat that broke a rule of measuring: drawn, in no summary."""
        cells = self.cells
        return cells[(cells["control"] == "") & (cells["n"] == 0) & (cells["invalid"] > 0)].reset_index(drop=True)

    @staticmethod
    def varying(table: pd.DataFrame, factors: Iterable[str]) -> list[str]:
        """Return the factors that have more than one level in `table`."""
        return [factor for factor in factors if table[factor].nunique() > 1]

    def comparisons(self, metric: str) -> pd.DataFrame:
        """Return what verdicts.csv says of a metric, without the control and what delivers different amounts.

        Beside its own columns each row has `baseline_cell` and `contender_cell`, the names of both cells, and `state`,
        the state of the page cache that both were measured in.
        """
        rows = self._placed
        return rows[rows["metric"] == metric].reset_index(drop=True) if len(rows) else rows

    @property
    def left_out(self) -> int:
        """How many comparisons that the configuration asks for are not told, as their arms deliver other amounts."""
        rows = self._asked
        rows = rows[rows["metric"] == self.report.metrics[0].name] if len(rows) else rows
        return sum(self.report.unequal(row) for row in rows.to_dict("records"))

    @property
    def _asked(self) -> pd.DataFrame:
        rows = self.verdicts
        return rows[~rows["factor"].isin(OF_CELLS) & (rows["role"] != "control")] if len(rows) else rows

    @cached_property
    def _placed(self) -> pd.DataFrame:
        rows = self._asked.reset_index(drop=True)
        if rows.empty:
            return rows
        rows = rows[[not self.report.unequal(row) for row in rows.to_dict("records")]].reset_index(drop=True)
        known = [name for name in self.report.names if name in self.cells]
        cells = self.cells[self.cells["control"] == ""]
        named = dict(zip(cells[known].itertuples(index=False, name=None), cells["cell"], strict=True))
        states = dict(zip(self.cells["cell"], self.states(self.cells), strict=True))
        for side in ("baseline", "contender"):
            levels = [{**row, row["factor"]: row[side]} for row in rows.to_dict("records")]
            rows[f"{side}_cell"] = [named.get(tuple(row[name] for name in known), "") for row in levels]
        rows["state"] = [
            " | ".join(dict.fromkeys(filter(None, (states.get(a, ""), states.get(b, "")))))
            for a, b in zip(rows["baseline_cell"], rows["contender_cell"], strict=True)
        ]
        return rows

    @staticmethod
    def states(cells: pd.DataFrame) -> pd.Series:
        """Return the state of each cell's page cache as it was found, or what was asked where that is not known."""
        asked = cells.get("cache", pd.Series("", index=cells.index))
        if "cache_state" not in cells:
            return asked
        return cells["cache_state"].where(cells["cache_state"].fillna("") != "", asked)
