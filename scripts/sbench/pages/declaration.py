"""Classes with which a study declares its factors, metrics and values for the code that writes its pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sbench.pages.prose import format_name
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.stats import Estimate, estimate_total_ratio


@dataclass(frozen=True)
class Factor:
    """A factor, and the display names of its levels.

    In templates, `{}` is replaced by a level. For sizes, a space is inserted before the unit.
    """

    name: str  # as in matrix.csv
    subject: str = "{}"  # template of a level as the subject of a sentence, "a {} page buffer"
    names: Mapping[str, str] = field(default_factory=dict)  # subjects of particular levels, {"0": "no page buffer"}
    within: str = "with {}"  # template of a level as a condition; `{}` is the subject and `{level}` the level
    label: str = ""  # template of a level in row labels and legends; the subject if empty
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of particular levels, {"direct": "direct I/O"}
    unit: str = ""  # unit of numeric levels; with "worker", subjects are "1 worker" and "2 workers"
    known_as: Callable[[str, dict], str] | None = None  # name of a level, given the run's facts: "HDF5 2.0.0"
    plural: bool = False  # whether subjects are plural, as in "chunks of 4 MiB"
    size: bool = False  # whether levels are sizes, such as "64MiB"
    place: bool = False  # whether it is part of the storage location; pages separate locations
    given: bool = False  # whether it describes the reader's work, such as the data to read, and is not a choice
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # levels of other factors at which it applies
    apart: bool = False  # whether a page lists the best configuration of each level, side by side
    axis: str = ""  # axis label; the title if empty
    added: str = ""  # level of all cells that were measured before the factor was introduced
    order: tuple[str, ...] = ()  # levels in the order used on pages, if not sorted by number or name

    @property
    def title(self) -> str:
        """Return the factor's display name."""
        return format_name(self.name)


# The nodes of a cluster, among which a cell's workers or processes are distributed.
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
    """A quantity that verdicts compare."""

    name: str  # as in the tables
    title: str
    is_time: bool = True  # false if values are described as higher or lower instead of longer or shorter


@dataclass(frozen=True)
class Value:
    """A number in each record that figures and tables show."""

    column: str  # column of the records and cells; cells also have its confidence limits, `_low` and `_high`
    title: str = ""  # name in figures
    unit: str = ""  # "s", "MiB/s"; empty for a ratio
    axis: str = ""  # axis label; the title with the unit if empty
    means: str = ""  # explanation for captions, including which direction is better
    ratio: bool = False  # whether 1 means no difference
    summary: Callable[[pd.DataFrame], Estimate] | None = None  # estimate from a cell's valid records; median if None
    bound: str = ""  # column of the cells with an upper bound to draw, where it is known
    bound_name: str = ""  # noun for the source of the bound

    @property
    def label(self) -> str:
        """Return the axis label."""
        return self.axis or " / ".join(filter(None, [self.title, self.unit]))


def build_rate_summary(amount: str, unit: float, time: str = "total_s") -> Callable[[pd.DataFrame], Estimate]:
    """Return a function that estimates a rate as total amount divided by total time (METHOD 16).

    With fewer than `MIN_BLOCKS` records, the rate has no confidence interval.

    Args:
        amount: column of the records.
        unit: number by which amounts are divided.
        time: column of the records, in seconds.
    """

    def compute_rate(records: pd.DataFrame) -> Estimate:
        total = estimate_total_ratio(records[amount] / unit, records[time])
        return total if total.n >= MIN_BLOCKS else total._replace(low=float("nan"), high=float("nan"))

    return compute_rate


@dataclass(frozen=True)
class Column:
    """A column of a table with a row per cell.

    Attributes:
        title: heading of the column.
        of: name of a column of the cells, or a function that returns a value per cell, given the run and its cells.
        text: function that formats a number.
        over: function that returns a mask of the values to highlight, given the values and the cells; by default, all
            values that are not empty.
        meaning: meaning of the highlighting; without it, nothing is highlighted.
    """

    title: str
    of: str | Callable[[Any, pd.DataFrame], pd.Series]
    text: Callable[[Any], str] | None = None
    over: Callable[[pd.Series, pd.DataFrame], pd.Series] | None = None
    meaning: str = ""


@dataclass(frozen=True)
class Scaling:
    """A factor, such as the number of processes, at whose higher levels performance may no longer improve.

    Attributes:
        factor: name of the factor.
        time: column of the records that decides this: it decreases while performance improves.
        title: name of this column on pages.
    """

    factor: str
    time: str = "total_s"
    title: str = "total runtime"


@dataclass(frozen=True)
class Contest:
    """Arms that are all compared with each other, at each level of the factor `Report.along`."""

    arm: tuple[str, ...]  # factors that distinguish the arms
    fastest: str  # predicate for the fastest arm, "fed the processes fastest"
    group: Callable[[dict], str]  # returns the name of a cell's group; arms of a group deliver the same result
    # Returns an arm's display name, given its levels and the run's `Names`.
    name: Callable[[dict, Any], str] = lambda levels, _: ", ".join(levels.values())


@dataclass(frozen=True)
class Report:
    """The contents of a study's pages, as declared by the study."""

    study: str
    title: str  # title of the page
    headline: str  # factor that the study's question is about, which determines colours in figures
    factors: tuple[Factor, ...]  # factors in the order in which pages sort and label rows
    metrics: tuple[Metric, ...]  # the first is the primary metric; the others help to locate a difference
    values: tuple[Value, ...] = (Value("total_s", "Total runtime", "s"),)  # the first is the primary value
    panels: tuple[str, ...] = ()  # factors that split figures into panels; others change the line style
    scaling: Scaling | None = None
    contest: Contest | None = None  # arms to compare pairwise, so that a page can name the fastest
    harness: tuple[Column, ...] = ()  # overhead of the harness; `null_s` is the part within the median total
    effective: tuple[Column, ...] = ()  # conditions that were in effect for each cell, as read back
    moved: tuple[Column, ...] = ()  # study-specific columns of requests and bytes
    along: str = ""  # factor along which findings describe a series of levels; empty for separate comparisons
    # Returns whether the arms of a row of verdicts.csv inherently process different amounts; pages omit such rows.
    unequal: Callable[[dict], bool] = lambda row: False
    # Returns a description of how much data some levels read or write, "writing 50 MiB"; empty if sizes are levels.
    amount: Callable[[Mapping], str] = lambda levels: ""
    # Returns names for phrases of questions, added in brackets: {"the application's limit": "etcd: 10 ms"}.
    named: Callable[[Any], Mapping[str, str]] = lambda results: {}
    unit: str = "block"  # noun for the unit that comparisons count, and resample for confidence intervals

    @property
    def added(self) -> dict[str, str]:
        """Map each factor that was added to the study later to the level that all older cells have.

        Pages do not print these levels.
        """
        return {factor.name: factor.added for factor in self.factors if factor.added}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the factors' names."""
        return tuple(factor.name for factor in self.factors)

    @property
    def places(self) -> tuple[str, ...]:
        """Return the names of the factors that define the storage location."""
        return tuple(factor.name for factor in self.factors if factor.place)

    @property
    def time_column(self) -> str:
        """Return the name of the column with the time that pages show for a cell.

        This is the time per iteration if records contain several iterations.
        """
        times = [value.column for value in self.values if value.unit == "s" and value.column.endswith("_s")]
        return times[0] if times else "total_s"

    def get_factor(self, name: str) -> Factor:
        """Return a factor by name; an undeclared factor is displayed under its own name."""
        return next((factor for factor in self.factors if factor.name == name), Factor(name, name + " {}"))

    def get_value(self, column: str) -> Value:
        """Return a value by its column."""
        return next(value for value in self.values if value.column == column)

    def get_metric(self, name: str) -> Metric:
        """Return a metric by name; an undeclared metric is displayed under its own name."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name, format_name(name)))
