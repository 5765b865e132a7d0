"""Tables of timings as audit/columns.yaml declares them: which column is what.

A declaration names a `table` (several are joined by ` + ` and get a column `source`), perhaps `rows` of it (a query of
pandas), and says of columns what they are. Those of `arms` are compared where those of `within` agree; both together
name a cell. `columns` (name -> expression) adds some, `wide` says which level the names of columns hold, `kinds` what
their values are (text, count, number), `assuming` what amounts take for granted. All others are columns or expressions:

`repeat` tells the repeats of a cell apart, `averaged` is how many times a printed one is the mean of. `time` (s) is how
long a run took, `amount` what it moved and `unit` the unit of their ratio, by default MiB/s; `rate` is printed. `over`
is the level along which a rate may stop growing, `machine` and `machines` say where and on how many it was measured,
`through` (names of config/facts/machines.yaml) what of a machine bounds it. A row may be a task of `items`, one of the
`batches_of` something, which took `part` (s); `sample` is what is compared between `steps` in the order of the rows.
`workers`, `input` (the name of what was read), `work` (what was done -> column) and `cpu` (s) are what they are called;
`readings` (words -> expression) are what a rate may mean, `stated` is the one that the study states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.court import derived
from sbench.probe.program import read_yaml

FILE = Path("audit/columns.yaml")


@dataclass(frozen=True)
class Timings:
    """A declared table: its declaration, what is printed, the same with numbers, and the ceilings of machines."""

    spec: Mapping
    texts: pd.DataFrame
    frame: pd.DataFrame
    machines: Mapping[str, Mapping]

    @property
    def cell_columns(self) -> list[str]:
        """The columns that name a cell: the first of `arms`, `over`, and of all declared ones those that differ."""
        needed = {self.spec["arms"][0], self.spec.get("over")}
        names = dict.fromkeys([*self.spec["within"], *self.spec["arms"]])
        return [name for name in names if name in needed or self.frame[name].nunique() > 1]

    @property
    def series_columns(self) -> list[str]:
        """The columns that tell series over `over` apart; none where there is one series."""
        return [name for name in self.cell_columns if name != self.spec["over"]]

    @property
    def unit(self) -> str:
        """The unit of rates."""
        return self.spec.get("unit", "MiB/s")

    def get_values(self, role: str) -> pd.Series:
        """Return the values of a role, one per row."""
        return self.compute_column(str(self.spec[role]))

    def compute_column(self, text: str) -> pd.Series:
        """Return a column, or what an expression gives, one value per row."""
        values = self.frame[text] if text in self.frame else self.frame.eval(text, **derived.COLUMNS_ALONE)
        return values if isinstance(values, pd.Series) else pd.Series(values, self.frame.index)

    def group_by_cell(self, values: pd.Series | pd.DataFrame, *columns: str, runs: bool = True):
        """Return values grouped by cell, its repeats if these are told apart, and columns, in the order of the rows."""
        repeat = [self.get_values("repeat").rename("repeat")] if runs and "repeat" in self.spec else []
        return values.groupby(
            [*(self.frame[name] for name in self.cell_columns), *repeat, *map(self.compute_column, columns)], sort=False
        )

    def split_by_level(self, of_runs: pd.Series):
        """Return ("levels: ", values of its runs) for each combination of levels within which arms are compared."""
        names = [name for name in self.spec["within"] if name in of_runs.index.names]
        groups = of_runs.groupby(level=names, sort=False) if names else []
        return [(f"{format_levels(level)}: ", values) for level, values in groups] or [("", of_runs)]


def read_declarations(path: Path) -> list[dict]:
    """Return the declarations in a file, none where there is no file."""
    return read_yaml(path)["tables"] if path.exists() else []


def build_timings(spec: Mapping, tables: Mapping[str, pd.DataFrame], machines: Mapping) -> Timings:
    """Return a table as it is declared."""
    wide, kinds = spec.get("wide"), spec.get("kinds", {})
    texts = join_tables(spec["table"], tables)
    texts = _convert_to_long(texts, wide) if wide else texts
    # Columns that are mostly N/A are numbers too where that is declared.
    amounts = [name for name, kind in kinds.items() if kind != "text"] + list(wide["values"] if wide else [])
    # Only printed rates are checked digit by digit, so the text of other columns is dropped to save memory.
    of_rate = [spec[role] for role in ("rate", "amount", "time", "readings") if "rate" in spec and role in spec]
    order, printed = [*texts], [name for name in texts if any(name in str(text) for text in of_rate)]
    numbers = {}
    for name in filter(order.__contains__, amounts):
        numbers[name] = derived.parse_numbers(texts[name])[0]
        texts = texts if name in printed else texts.drop(columns=name)
    frame = convert_numbers(texts.drop(columns=numbers.keys() & {*texts})).assign(**numbers)[order]
    frame = frame.assign(
        **{name: frame.eval(text, **derived.COLUMNS_ALONE) for name, text in spec.get("columns", {}).items()}
    )
    frame = frame.query(spec["rows"], **derived.COLUMNS_ALONE) if "rows" in spec else frame
    texts = texts[printed]
    return Timings(spec, texts if len(frame) == len(texts) else texts.loc[frame.index], frame, machines)


def _convert_to_long(texts: pd.DataFrame, wide: Mapping) -> pd.DataFrame:
    """A table with one row per level of what the names of columns hold, such as Blob of "Blob Latency (s)"."""
    parts = []
    for level in wide["levels"]:
        names = {form.format(level): name for name, form in wide["values"].items()}
        if names.keys() <= set(texts):
            parts.append(texts.rename(columns=names).assign(**{wide["column"]: level}))
    return pd.concat(parts, join="inner", ignore_index=True)


def join_tables(names: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of a name, or those that a plus joins as one, with a column `source`."""
    parts = names.split(" + ")
    if len(parts) == 1:
        return tables[names]
    return pd.concat([tables[name].assign(source=Path(name).stem) for name in parts], ignore_index=True)


def convert_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of text with numbers as numbers: in columns where most texts begin with one."""
    numbered = table.copy()
    for name in table:
        values, _ = derived.parse_numbers(table[name])
        if values.notna().mean() > 0.5:
            numbered[name] = values
    return numbered


def format_levels(levels: object) -> str:
    """Return what a level, or a combination of levels, is called."""
    parts = levels if isinstance(levels, tuple | np.ndarray) else (levels,)
    return ", ".join(f"{level:.10g}" if isinstance(level, float) else str(level) for level in parts)
