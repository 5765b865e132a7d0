"""What a study declares of its factors and metrics, so that one engine can draw, list and say what was found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


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
        apart: whether the best of each of its levels is told, for comparison side by side.
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
    order: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The factor's name as people read it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Metric:
    """A time that verdicts are about, and what it is spent on ("open a file"), "" where it is spent on everything."""

    name: str
    title: str
    spent_to: str = ""


@dataclass(frozen=True)
class Report:
    """What the pages of a study of blocks are made of.

    Attributes:
        study: the study's name.
        title: the page's.
        headline: the factor that the question is about.
        factors: all of them, in the order in which rows are sorted and named.
        metrics: the first decides, the others tell where a difference arises.
        along: the factor along which comparisons are told from level to level, "" where each stands by itself.
        confirm: the metric in which an order that turns along that factor has to turn too, "" for none.
        unequal: called with a comparison (a row of verdicts.csv), it returns whether its arms deliver different amounts
            by their nature, so that it is not told.
    """

    study: str
    title: str
    headline: str
    factors: tuple[Factor, ...]
    metrics: tuple[Metric, ...]
    along: str = ""
    confirm: str = ""
    unequal: Callable[[dict], bool] = lambda row: False

    @property
    def names(self) -> tuple[str, ...]:
        """The factors' names."""
        return tuple(factor.name for factor in self.factors)

    def factor(self, name: str) -> Factor:
        """Return a factor by its name; one that is not declared is called as it is."""
        return next((factor for factor in self.factors if factor.name == name), Factor(name, name + " {}"))

    def metric(self, name: str) -> Metric:
        """Return a metric by its name."""
        return next((metric for metric in self.metrics if metric.name == name), Metric(name, name.replace("_", " ")))

    @property
    def places(self) -> tuple[str, ...]:
        """The factors that say where bytes came from."""
        return tuple(factor.name for factor in self.factors if factor.place)
