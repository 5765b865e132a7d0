"""Build tables of timings from the declarations in audit/columns.yaml, which give columns their roles.

A declaration names a `table` (several joined by ` + ` get a column `source`), perhaps its `rows` (a pandas query), and
roles of columns. Rules compare `arms` at equal levels of `within`; both together name a cell. `columns` (name ->
expression) adds columns, `wide` names the levels in the names of columns, `kinds` has the types of values (text, count,
number), `assuming` an assumption behind the amounts. All other keys are columns or expressions:

`repeat` identifies the repeats of a cell, `averaged` is the number of times in a printed mean. `time` (s) is the
duration of a run, `amount` its moved amount, `unit` the unit of their ratio, by default MiB/s, and `rate` a printed
rate. A rate may stop growing along the factor `over`; `machine` and `machines` are type and number of machines,
`through` (names of config/facts/machines.yaml) is the part of a machine that bounds the rate. A row may be a task of
`items` in a list of `batches_of`, with the time `part` (s); rules compare `sample` between `steps` in order of rows.
`workers`, `input` (name of the data read), `work` (kind of work -> column) and `cpu` (s) mean their names; `readings`
(words -> expression) are possible meanings of a rate, `stated` is the meaning in the study.
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
    """A declared table: its declaration, the printed texts, the same with numbers, and the ceilings of machines."""

    spec: Mapping
    texts: pd.DataFrame
    frame: pd.DataFrame
    machines: Mapping[str, Mapping]

    @property
    def cell_columns(self) -> list[str]:
        """Return the columns that name a cell: the first of `arms`, `over`, and other declared columns that vary."""
        needed = {self.spec["arms"][0], self.spec.get("over")}
        names = dict.fromkeys([*self.spec["within"], *self.spec["arms"]])
        return [name for name in names if name in needed or self.frame[name].nunique() > 1]

    @property
    def series_columns(self) -> list[str]:
        """Return the columns that distinguish series over `over`; [] for a single series."""
        return [name for name in self.cell_columns if name != self.spec["over"]]

    @property
    def unit(self) -> str:
        """Return the unit of rates."""
        return self.spec.get("unit", "MiB/s")

    def get_values(self, role: str) -> pd.Series:
        """Return the values of a role, one per row."""
        return self.compute_column(str(self.spec[role]))

    def compute_column(self, text: str) -> pd.Series:
        """Return a column, or the values of an expression, one per row."""
        values = self.frame[text] if text in self.frame else self.frame.eval(text, **derived.COLUMNS_ALONE)
        return values if isinstance(values, pd.Series) else pd.Series(values, self.frame.index)

    def group_by_cell(self, values: pd.Series | pd.DataFrame, *columns: str, runs: bool = True):
        """Return values grouped by cell, its repeats if declared, and columns, in the order of the rows."""
        repeat = [self.get_values("repeat").rename("repeat")] if runs and "repeat" in self.spec else []
        return values.groupby(
            [*(self.frame[name] for name in self.cell_columns), *repeat, *map(self.compute_column, columns)], sort=False
        )

    def split_by_level(self, of_runs: pd.Series):
        """Return ("levels: ", values of its runs) for each combination of levels of `within`."""
        names = [name for name in self.spec["within"] if name in of_runs.index.names]
        groups = of_runs.groupby(level=names, sort=False) if names else []
        return [(f"{format_levels(level)}: ", values) for level, values in groups] or [("", of_runs)]


def read_declarations(path: Path) -> list[dict]:
    """Return the declarations in a file, [] if it does not exist."""
    return read_yaml(path)["tables"] if path.exists() else []


def build_timings(spec: Mapping, tables: Mapping[str, pd.DataFrame], machines: Mapping) -> Timings:
    """Build a table from its declaration."""
    wide, kinds = spec.get("wide"), spec.get("kinds", {})
    texts = join_tables(spec["table"], tables)
    texts = _convert_to_long(texts, wide) if wide else texts
    # Declared columns are numbers even if they are mostly N/A.
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
    """Return a table with one row per level in the names of columns, such as Blob in "Blob Latency (s)"."""
    parts = []
    for level in wide["levels"]:
        names = {form.format(level): name for name, form in wide["values"].items()}
        if names.keys() <= set(texts):
            parts.append(texts.rename(columns=names).assign(**{wide["column"]: level}))
    return pd.concat(parts, join="inner", ignore_index=True)


def join_tables(names: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of a name, or join the tables that a plus separates, with a column `source`."""
    parts = names.split(" + ")
    if len(parts) == 1:
        return tables[names]
    return pd.concat([tables[name].assign(source=Path(name).stem) for name in parts], ignore_index=True)


def convert_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Convert the columns of a text table to numbers if most of their texts begin with a number."""
    numbered = table.copy()
    for name in table:
        values, _ = derived.parse_numbers(table[name])
        if values.notna().mean() > 0.5:
            numbered[name] = values
    return numbered


def format_levels(levels: object) -> str:
    """Format a level, or a combination of levels."""
    parts = levels if isinstance(levels, tuple | np.ndarray) else (levels,)
    return ", ".join(f"{level:.10g}" if isinstance(level, float) else str(level) for level in parts)
