"""What a study declares of its factors and metrics, so that one engine can draw, list and say what was found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sbench.pages.prose import format_name
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.stats import Estimate, estimate_total_ratio


@dataclass(frozen=True)
class Factor:
    """How one factor and its levels are called where people read them.

    In templates `{}` is a level, of a factor of sizes with a blank before its unit.
    """

    name: str  # as matrix.csv has it
    subject: str = "{}"  # a level that a sentence is about, "a {} page buffer"
    names: Mapping[str, str] = field(default_factory=dict)  # levels with their own subject, {"0": "no page buffer"}
    within: str = "with {}"  # a level as a condition; `{}` is the subject and `{level}` the level
    label: str = ""  # a level in rows and legends; the subject where it is empty
    labels: Mapping[str, str] = field(default_factory=dict)  # levels with their own label, {"own": "own objects"}
    unit: str = ""  # what a number counts, "worker": the subject is then "1 worker" or "2 workers"
    known_as: Callable[[str, dict], str] | None = None  # makes of a level and the facts its name, "HDF5 2.0.0"
    plural: bool = False  # whether its subjects are several, as "chunks of 4 MiB"
    size: bool = False  # whether levels are sizes, "64MiB"
    place: bool = False  # whether it says where bytes came from: different places are told apart
    given: bool = False  # whether a reader's own work decides it, as what is read; the others can be chosen
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # levels of others to which it means something
    apart: bool = False  # whether a page lists the best of each of its levels, side by side
    axis: str = ""  # what an axis along it is called; its title where it is empty
    added: str = ""  # the level of all cells of before there was the factor
    order: tuple[str, ...] = ()  # levels in the order of pages, where that is not by number or name

    @property
    def title(self) -> str:
        """The factor's name as people read it."""
        return format_name(self.name)


# Of a cluster, among which the workers or processes of a cell are divided.
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
    """What verdicts are about."""

    name: str  # as the tables have it
    title: str
    spent_to: str = ""  # what a time is spent on ("open a file"), "" where it is spent on everything
    is_time: bool = True  # whether an arm takes it; anything else, such as a percentile, is higher or lower


@dataclass(frozen=True)
class Value:
    """A number of each record that figures and tables show."""

    column: str  # of the records and, with `_low` and `_high`, of the cells
    title: str = ""  # what figures call it
    unit: str = ""  # "s", "MiB/s"; "" of a ratio
    axis: str = ""  # what an axis calls it; the title with its unit where it is empty
    means: str = ""  # what it is and which way is better, in a caption
    ratio: bool = False  # whether 1 is no difference
    summary: Callable[[pd.DataFrame], Estimate] | None = None  # of a cell's valid records; None for the median
    bound: str = ""  # a column of the cells that is drawn above it, where it is known
    bound_name: str = ""  # what got that much

    @property
    def label(self) -> str:
        """What an axis calls it."""
        return self.axis or " / ".join(filter(None, [self.title, self.unit]))


def build_rate_summary(amount: str, unit: float) -> Callable[[pd.DataFrame], Estimate]:
    """Return the summary of a rate: the total of `amount` in `unit` divided by that of total_s (METHOD 16).

    Below six records it has no interval.
    """

    def compute_rate(records: pd.DataFrame) -> Estimate:
        total = estimate_total_ratio(records[amount] / unit, records["total_s"])
        return total if total.n >= MIN_BLOCKS else total._replace(low=float("nan"), high=float("nan"))

    return compute_rate


@dataclass(frozen=True)
class Column:
    """A column of a table about cells.

    `of` is a column of the cells, or called with the run and its cells it returns one value per cell. Where a mark
    has a `meaning`, `over` returns which values are marked (default: all that are there); it is called with the values
    and the cells.
    """

    title: str
    of: str | Callable[[Any, pd.DataFrame], pd.Series]
    text: Callable[[Any], str] | None = None  # how a number of it is written
    over: Callable[[pd.Series, pd.DataFrame], pd.Series] | None = None
    meaning: str = ""  # what a mark says


@dataclass(frozen=True)
class Scaling:
    """Along which factor arms may stop to gain, the column of the records that then falls, and what it is."""

    factor: str
    time: str = "total_s"
    title: str = "total runtime"


@dataclass(frozen=True)
class Contest:
    """Arms of which each is compared with each, level by level of the factor `along` which a study compares."""

    arm: tuple[str, ...]  # the factors that tell arms apart
    fastest: str  # what is said of the fastest, "fed the processes fastest"
    group: Callable[[dict], str]  # of a cell: in words where arms that deliver the same do so
    # What an arm is called, by its levels and the run's names.
    name: Callable[[dict, Any], str] = lambda levels, _: ", ".join(levels.values())


@dataclass(frozen=True)
class Report:
    """What the pages of a study are made of."""

    study: str
    title: str  # the page's
    headline: str  # the factor that the question is about; it has the colours in figures
    factors: tuple[Factor, ...]  # all of them, in the order in which rows are sorted and named
    metrics: tuple[Metric, ...]  # the first decides, the others tell where a difference arises
    values: tuple[Value, ...] = (Value("total_s", "Total runtime", "s"),)  # a cell is judged and named by the first
    panels: tuple[str, ...] = ()  # the factors that have panels of their own in figures; the others have the dashes
    scaling: Scaling | None = None
    contest: Contest | None = None  # which arms are compared pairwise, so that a page says who is the fastest
    harness: tuple[Column, ...] = ()  # what the harness costs; `null_s` is its share within the median total
    effective: tuple[Column, ...] = ()  # what was in force in each cell, as read back
    moved: tuple[Column, ...] = ()  # about requests and bytes, beside those that every study has
    along: str = ""  # the factor along which comparisons are told from level to level; "": each stands by itself
    # Whether the arms of a comparison (a row of verdicts.csv) deliver different amounts by nature, so it is not told.
    unequal: Callable[[dict], bool] = lambda row: False
    # What is read or written at some levels with its size, in words: "writing 50 MiB"; "" where sizes are levels.
    amount: Callable[[Mapping], str] = lambda levels: ""
    unit: str = "block"  # what is counted of both arms of a comparison, and resampled for its interval

    @property
    def added(self) -> dict[str, str]:
        """The factors that were added, with the level of all cells of before; it goes without saying."""
        return {factor.name: factor.added for factor in self.factors if factor.added}

    @property
    def names(self) -> tuple[str, ...]:
        """The factors' names."""
        return tuple(factor.name for factor in self.factors)

    @property
    def places(self) -> tuple[str, ...]:
        """The factors that say where bytes came from."""
        return tuple(factor.name for factor in self.factors if factor.place)

    @property
    def time_column(self) -> str:
        """The column of a cell's time as people read it: that of one iteration, where a record has several."""
        times = [value.column for value in self.values if value.unit == "s" and value.column.endswith("_s")]
        return times[0] if times else "total_s"

    def get_factor(self, name: str) -> Factor:
        """Return a factor by its name; one that is not declared is called as it is."""
        return next((factor for factor in self.factors if factor.name == name), Factor(name, name + " {}"))

    def get_value(self, column: str) -> Value:
        """Return a value by its column."""
        return next(value for value in self.values if value.column == column)

    def get_metric(self, name: str) -> Metric:
        """Return a metric by its name."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name, format_name(name)))
