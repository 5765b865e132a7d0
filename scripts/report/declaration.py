"""What a study declares of its factors and metrics, so that one engine can draw, list and say what was found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scripts.statistics.stats import Estimate


@dataclass(frozen=True)
class Factor:
    """How one factor and its levels are called where people read them.

    In templates `{}` is a level, of a factor of sizes with a blank before its unit.

    Attributes:
        name: as matrix.csv has it.
        subject: a level that a sentence is about, "a {} page buffer".
        names: levels with a subject of their own, {"0": "no page buffer"}.
        within: a level as the condition of a sentence, in which `{}` is the subject and `{level}` the level.
        label: a level in rows and legends; the subject where it is empty.
        labels: levels with a label of their own, {"own": "own objects"}.
        unit: what a number counts, "worker": the subject is then "1 worker" or "2 workers".
        known_as: called with a level and the facts, it returns the level's name ("HDF5 2.0.0").
        plural: whether its subjects are several, as "chunks of 4 MiB".
        size: whether levels are sizes, "64MiB".
        place: whether it says where bytes came from: comparisons of different places are told apart.
        given: whether a reader's own work decides it, as what is read; the others can be chosen.
        axis: what an axis along it is called; its title where it is empty.
        apart: whether a page lists the best of each of its levels, side by side.
        order: levels in the order in which pages have them, where that is not by number or name.
    """

    name: str
    subject: str = "{}"
    names: Mapping[str, str] = field(default_factory=dict)
    within: str = "with {}"
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    known_as: Callable[[str, dict], str] | None = None
    plural: bool = False
    size: bool = False
    place: bool = False
    given: bool = False
    apart: bool = False
    axis: str = ""
    order: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The factor's name as people read it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Metric:
    """What verdicts are about.

    Attributes:
        name: as the tables have it.
        title: what it is called.
        spent_to: what a time is spent on ("open a file"), "" where it is spent on everything.
        is_time: whether it is a time that an arm takes; anything else, such as a percentile, is higher or lower.
    """

    name: str
    title: str
    spent_to: str = ""
    is_time: bool = True


@dataclass(frozen=True)
class Value:
    """A number of each record that figures and tables show.

    Attributes:
        column: of the records and, with `_low` and `_high`, of the cells.
        title: what figures call it.
        unit: "s", "MiB/s"; "" of a ratio.
        axis: what an axis calls it; the title with its unit where it is empty.
        means: what it is and which way is better, in a caption.
        ratio: whether 1 is no difference.
        summary: called with a cell's valid records, it returns the cell's estimate; None for the median.
        bound: a column of the cells that it cannot exceed, which is drawn, and `bound_name`, what that is.
        bounded: called with a cell, it returns whether that holds of it.
        applies: called with a cell, it returns whether the value says anything of it.
    """

    column: str
    title: str = ""
    unit: str = ""
    axis: str = ""
    means: str = ""
    ratio: bool = False
    summary: Callable[[pd.DataFrame], Estimate] | None = None
    bound: str = ""
    bound_name: str = ""
    bounded: Callable[[dict], bool] = lambda cell: True
    applies: Callable[[dict], bool] = lambda cell: True

    @property
    def label(self) -> str:
        """What an axis calls it."""
        return self.axis or " / ".join(filter(None, [self.title, self.unit]))


@dataclass(frozen=True)
class Column:
    """A column of a table about cells.

    Attributes:
        title: its head.
        of: the column of the cells, or called with the run and its cells it returns one value per cell.
        text: how a number of it is written.
        over: called with the values and the cells, it returns which are marked.
        meaning: what a mark says.
    """

    title: str
    of: str | Callable[[Any, pd.DataFrame], pd.Series]
    text: Callable[[Any], str] | None = None
    over: Callable[[pd.Series, pd.DataFrame], pd.Series] | None = None
    meaning: str = ""


@dataclass(frozen=True)
class Scaling:
    """Along which factor arms may stop to gain, the column of the records that then falls, and what it is."""

    factor: str
    time: str = "total_s"
    title: str = "total runtime"


@dataclass(frozen=True)
class Contest:
    """Arms of which each is compared with each, level by level of the factor `along` which a study compares.

    Attributes:
        arm: the factors that tell arms apart.
        fastest: what is said of the fastest, "fed the processes fastest".
        group: called with a cell, it returns in words where arms that deliver the same do so.
        name: called with an arm's levels and the run's names, it returns what the arm is called.
    """

    arm: tuple[str, ...]
    fastest: str
    group: Callable[[dict], str]
    name: Callable[[dict, Any], str]


@dataclass(frozen=True)
class Report:
    """What the pages of a study are made of.

    Attributes:
        study: the study's name.
        title: the page's.
        headline: the factor that the question is about.
        factors: all of them, in the order in which rows are sorted and named.
        metrics: the first decides, the others tell where a difference arises.
        values: what figures show; the first is what a cell is judged and named by.
        panels: the factors that have panels of their own in figures; `headline` has the colours, the others the dashes.
        contest: which arms are compared pairwise, so that a page says who is the fastest.
        scaling: along which factor it is said where more stops to help.
        harness: what the harness itself costs, columns beside the median total; `null_s` is its share within it.
        effective: what was in force in each cell, as read back.
        moved: columns about requests and bytes beside those that every study has.
        along: the factor along which comparisons are told from level to level, "" where each stands by itself.
        confirm: the metric in which an order that turns along that factor has to turn too, "" for none.
        unequal: called with a comparison (a row of verdicts.csv), it returns whether its arms deliver different amounts
            by their nature, so that it is not told.
        unit: what is counted of both arms of a comparison: blocks, or what else an interval is made of.
    """

    study: str
    title: str
    headline: str
    factors: tuple[Factor, ...]
    metrics: tuple[Metric, ...]
    values: tuple[Value, ...] = (Value("total_s", "Total runtime", "s"),)
    panels: tuple[str, ...] = ()
    scaling: Scaling | None = None
    contest: Contest | None = None
    harness: tuple[Column, ...] = ()
    effective: tuple[Column, ...] = ()
    moved: tuple[Column, ...] = ()
    along: str = ""
    confirm: str = ""
    unequal: Callable[[dict], bool] = lambda row: False
    unit: str = "block"

    @property
    def names(self) -> tuple[str, ...]:
        """The factors' names."""
        return tuple(factor.name for factor in self.factors)

    def factor(self, name: str) -> Factor:
        """Return a factor by its name; one that is not declared is called as it is."""
        return next((factor for factor in self.factors if factor.name == name), Factor(name, name + " {}"))

    def value(self, column: str) -> Value:
        """Return a value by its column."""
        return next(value for value in self.values if value.column == column)

    def metric(self, name: str) -> Metric:
        """Return a metric by its name."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name, name.replace("_", " ")))

    @property
    def places(self) -> tuple[str, ...]:
        """The factors that say where bytes came from."""
        return tuple(factor.name for factor in self.factors if factor.place)
