"""Classes in which a study declares its factors, metrics and values, so that shared code writes its pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sbench.pages.prose import format_name
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.stats import Estimate, estimate_total_ratio


@dataclass(frozen=True)
class Factor:
    """A factor, and the names of its levels for readers.

    In templates `{}` is a level, for a factor of sizes with a space before its unit.
    """

    name: str  # as in matrix.csv
    subject: str = "{}"  # a level as the subject of a sentence, "a {} page buffer"
    names: Mapping[str, str] = field(default_factory=dict)  # subjects of single levels, {"0": "no page buffer"}
    within: str = "with {}"  # a level as a condition; `{}` is the subject and `{level}` the level
    label: str = ""  # a level in rows and legends; default: the subject
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of single levels, {"direct": "direct I/O"}
    unit: str = ""  # unit of a number, "worker": the subject is then "1 worker" or "2 workers"
    known_as: Callable[[str, dict], str] | None = None  # returns a level's name, given the facts: "HDF5 2.0.0"
    plural: bool = False  # whether its subjects are plural, as "chunks of 4 MiB"
    size: bool = False  # whether levels are sizes, "64MiB"
    place: bool = False  # whether it states where bytes came from: pages separate places
    given: bool = False  # whether a reader's work decides it, such as which data to read; others are choices
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # levels of other factors at which it applies
    apart: bool = False  # whether a page lists the best of each level, side by side
    axis: str = ""  # label of an axis; default: the title
    added: str = ""  # level of all cells from before the factor existed
    order: tuple[str, ...] = ()  # levels in the order of pages, if not by number or name

    @property
    def title(self) -> str:
        """Return the factor's name for readers."""
        return format_name(self.name)


# The nodes of a cluster, which share the workers or processes of a cell.
NODES = Factor("nodes", unit="node", axis="Nodes", added="1")
PAGE_BUFFER = Factor(
    "page_buffer",
    subject="a {} page buffer",
    names={"0": "no page buffer", "unset": "the default page buffer"},
    label="{} page buffer",
    size=True,
)


@dataclass(frozen=True)
class Metric:
    """A figure that verdicts compare."""

    name: str  # as in the tables
    title: str
    is_time: bool = True  # false for a figure that is higher or lower, such as a percentile


@dataclass(frozen=True)
class Value:
    """A number of each record that figures and tables show."""

    column: str  # of the records and, with `_low` and `_high`, of the cells
    title: str = ""  # in figures
    unit: str = ""  # "s", "MiB/s"; "" for a ratio
    axis: str = ""  # label of an axis; default: the title with its unit
    means: str = ""  # meaning and better direction, for captions
    ratio: bool = False  # whether 1 means no difference
    summary: Callable[[pd.DataFrame], Estimate] | None = None  # of a cell's valid records; default: the median
    bound: str = ""  # column of the cells to draw above it, if known
    bound_name: str = ""  # noun for the source of the bound

    @property
    def label(self) -> str:
        """Return the label of an axis."""
        return self.axis or " / ".join(filter(None, [self.title, self.unit]))


def build_rate_summary(amount: str, unit: float) -> Callable[[pd.DataFrame], Estimate]:
    """Return a function that summarises a rate: total `amount` in `unit` / total time (METHOD 16).

    The rate has an interval from six records on.
    """

    def compute_rate(records: pd.DataFrame) -> Estimate:
        total = estimate_total_ratio(records[amount] / unit, records["total_s"])
        return total if total.n >= MIN_BLOCKS else total._replace(low=float("nan"), high=float("nan"))

    return compute_rate


@dataclass(frozen=True)
class Column:
    """A column of a table about cells.

    `of` names a column of the cells, or returns a value per cell, given the run and its cells. If a mark has a
    `meaning`, `over` returns the values to mark (default: all), given the values and the cells.
    """

    title: str
    of: str | Callable[[Any, pd.DataFrame], pd.Series]
    text: Callable[[Any], str] | None = None  # formats a number
    over: Callable[[pd.Series, pd.DataFrame], pd.Series] | None = None
    meaning: str = ""  # meaning of a mark


@dataclass(frozen=True)
class Scaling:
    """A factor along which arms may stop gaining, the column of the records that falls until then, and its title."""

    factor: str
    time: str = "total_s"
    title: str = "total runtime"


@dataclass(frozen=True)
class Contest:
    """Arms to compare pairwise at each level of the factor `along` of the report."""

    arm: tuple[str, ...]  # factors that distinguish arms
    fastest: str  # predicate of the fastest arm, "fed the processes fastest"
    group: Callable[[dict], str]  # names a cell's group of arms that deliver the same
    # Returns the name of an arm, given its levels and the run's names.
    name: Callable[[dict, Any], str] = lambda levels, _: ", ".join(levels.values())


@dataclass(frozen=True)
class Report:
    """The declaration of a study's pages."""

    study: str
    title: str  # of the page
    headline: str  # factor of the question, which decides colours in figures
    factors: tuple[Factor, ...]  # in the order in which pages sort and name rows
    metrics: tuple[Metric, ...]  # the first decides, the others locate a difference
    values: tuple[Value, ...] = (Value("total_s", "Total runtime", "s"),)  # the first judges and names a cell
    panels: tuple[str, ...] = ()  # factors that split figures into panels; the others vary the dash
    scaling: Scaling | None = None
    contest: Contest | None = None  # arms to compare pairwise, so that a page names the fastest
    harness: tuple[Column, ...] = ()  # cost of the harness; `null_s` is its share within the median total
    effective: tuple[Column, ...] = ()  # conditions in force in each cell, as read back
    moved: tuple[Column, ...] = ()  # requests and bytes, in addition to the columns of all studies
    along: str = ""  # factor along which findings go from level to level; "" for separate comparisons
    # Returns whether arms (a row of verdicts.csv) differ in amount by nature; pages leave out such comparisons.
    unequal: Callable[[dict], bool] = lambda row: False
    # Returns in words how much some levels read or write, "writing 50 MiB"; "" if sizes are levels.
    amount: Callable[[Mapping], str] = lambda levels: ""
    unit: str = "block"  # noun for the unit that a comparison counts, and resamples for its interval

    @property
    def added(self) -> dict[str, str]:
        """Return the factors added later, with the level of all older cells, which pages do not print."""
        return {factor.name: factor.added for factor in self.factors if factor.added}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the factors."""
        return tuple(factor.name for factor in self.factors)

    @property
    def places(self) -> tuple[str, ...]:
        """Return the factors that state where bytes came from."""
        return tuple(factor.name for factor in self.factors if factor.place)

    @property
    def time_column(self) -> str:
        """Return the column of a cell's time for readers: per iteration if records have several."""
        times = [value.column for value in self.values if value.unit == "s" and value.column.endswith("_s")]
        return times[0] if times else "total_s"

    def get_factor(self, name: str) -> Factor:
        """Return a factor by its name; an undeclared factor keeps its name."""
        return next((factor for factor in self.factors if factor.name == name), Factor(name, name + " {}"))

    def get_value(self, column: str) -> Value:
        """Return a value by its column."""
        return next(value for value in self.values if value.column == column)

    def get_metric(self, name: str) -> Metric:
        """Return a metric by its name."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name, format_name(name)))
