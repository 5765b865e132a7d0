"""Build tables of timings from the declarations in audit/columns.yaml, which assign roles to columns.

These keys of a declaration describe the table:

* `table`: name of the table. Tables joined by ` + ` are concatenated, with a column `source`.
* `rows`: pandas query that selects rows.
* `columns`: {name: expression} of additional columns.
* `wide`: how names of columns contain the levels of a factor.
* `kinds`: type of each column: text, count or number.
* `arms`, `within`: rules compare arms at equal levels of `within`. Both together identify a cell.
* `unit`: unit of rates, MiB/s by default.
* `machines`, `through`: number of machines, and the parts of a machine that may limit the rate (keys of
  config/facts/machines.yaml).
* `assuming`: assumption on which the amounts are based.
* `batches_of`, `steps`: columns that identify a list of tasks, and the steps whose `sample` is compared, in the order
  of the rows.
* `work`: {kind of work: column}.
* `readings`, `stated`: {description: expression} of possible meanings of a rate, and the meaning stated by the study.

The other keys are roles, whose values are columns or expressions:

* `repeat`: identifies the repeats of a cell.
* `averaged`: number of runs in a printed mean.
* `time`, `cpu`: duration and CPU time of a run in seconds.
* `amount`: amount of data that a run moved.
* `rate`: printed rate.
* `over`: factor along which a rate may stop growing.
* `machine`: machine type.
* `items`, `part`: number of items and duration in seconds, if a row is a task of a list.
* `sample`: time of a single step.
* `workers`, `input`: number of workers, and name of the data read.
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
    """A table with its declaration.

    Attributes:
        spec: the declaration.
        texts: the columns needed to check printed rates, as printed.
        frame: the table with numbers as numeric dtypes.
        machines: {machine: {ceiling: {value, unit, note}}}.
    """

    spec: Mapping
    texts: pd.DataFrame
    frame: pd.DataFrame
    machines: Mapping[str, Mapping]

    @property
    def cell_columns(self) -> list[str]:
        """Columns that identify a cell.

        These are the first column of `arms`, the column `over`, and all columns of `arms` and `within` that vary.
        """
        needed = {self.spec["arms"][0], self.spec.get("over")}
        names = dict.fromkeys([*self.spec["within"], *self.spec["arms"]])
        return [name for name in names if name in needed or self.frame[name].nunique() > 1]

    @property
    def series_columns(self) -> list[str]:
        """Columns that identify a series along the factor `over`; an empty list if there is only one series."""
        return [name for name in self.cell_columns if name != self.spec["over"]]

    @property
    def unit(self) -> str:
        """The unit of rates."""
        return self.spec.get("unit", "MiB/s")

    def get_values(self, role: str) -> pd.Series:
        """Return the values of a role's column or expression, one per row."""
        return self.compute_column(str(self.spec[role]))

    def compute_column(self, text: str) -> pd.Series:
        """Return the values of a column or expression, one per row."""
        values = self.frame[text] if text in self.frame else self.frame.eval(text, **derived.COLUMNS_ALONE)
        return values if isinstance(values, pd.Series) else pd.Series(values, self.frame.index)

    def group_by_cell(self, values: pd.Series | pd.DataFrame, *columns: str, runs: bool = True):
        """Group values by cell, in the order of the rows.

        Args:
            values: values with one row per row of the table.
            columns: columns or expressions to group by in addition.
            runs: whether to also group by `repeat`, if declared.
        """
        repeat = [self.get_values("repeat").rename("repeat")] if runs and "repeat" in self.spec else []
        return values.groupby(
            [*(self.frame[name] for name in self.cell_columns), *repeat, *map(self.compute_column, columns)], sort=False
        )

    def split_by_level(self, of_runs: pd.Series):
        """Split values of runs by the levels of `within`, and return a list of ("levels: ", values) pairs."""
        names = [name for name in self.spec["within"] if name in of_runs.index.names]
        groups = of_runs.groupby(level=names, sort=False) if names else []
        return [(f"{format_levels(level)}: ", values) for level, values in groups] or [("", of_runs)]


def read_declarations(path: Path) -> list[dict]:
    """Return the declarations in a YAML file; [] if it does not exist."""
    return read_yaml(path)["tables"] if path.exists() else []


def build_timings(spec: Mapping, tables: Mapping[str, pd.DataFrame], machines: Mapping) -> Timings:
    """Build a table from its declaration.

    Args:
        spec: the declaration.
        tables: printed tables by name; all values are strings.
        machines: {machine: {ceiling: {value, unit, note}}}.
    """
    wide, kinds = spec.get("wide"), spec.get("kinds", {})
    texts = join_tables(spec["table"], tables)
    texts = _convert_to_long(texts, wide) if wide else texts
    # Columns declared as numeric are converted even if most values are N/A.
    amounts = [name for name, kind in kinds.items() if kind != "text"] + list(wide["values"] if wide else [])
    # The printed digits are needed only to check rates; the strings of other columns are dropped to save memory.
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
    """Convert a table whose column names contain levels, such as Blob in "Blob Latency (s)", to long format."""
    parts = []
    for level in wide["levels"]:
        names = {form.format(level): name for name, form in wide["values"].items()}
        if names.keys() <= set(texts):
            parts.append(texts.rename(columns=names).assign(**{wide["column"]: level}))
    return pd.concat(parts, join="inner", ignore_index=True)


def join_tables(names: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table with a given name. Tables joined by ` + ` are concatenated, with a column `source`."""
    parts = names.split(" + ")
    if len(parts) == 1:
        return tables[names]
    return pd.concat([tables[name].assign(source=Path(name).stem) for name in parts], ignore_index=True)


def convert_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Convert the columns in which more than half of the strings begin with a number."""
    numbered = table.copy()
    for name in table:
        values, _ = derived.parse_numbers(table[name])
        if values.notna().mean() > 0.5:
            numbered[name] = values
    return numbered


def format_levels(levels: object) -> str:
    """Format a level; a combination of levels is separated by commas."""
    parts = levels if isinstance(levels, tuple | np.ndarray) else (levels,)
    return ", ".join(f"{level:.10g}" if isinstance(level, float) else str(level) for level in parts)
