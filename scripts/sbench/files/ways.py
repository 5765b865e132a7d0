"""Compare the measured ways to read files (combinations of layout, driver and driver settings), and choose the best."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from sbench.files.probes import compute_mean
from sbench.files.trial import ORIGINAL, WORTH
from sbench.pages import names
from sbench.pages.results import Results
from sbench.studies.shots.arms import get_arm_key
from sbench.verdicts.outcomes import JUDGED, Outcome

# Minimum number of files for a sign test; with fewer files, the probability that all gain by chance exceeds 5 %.
LEAST_FILES = 6
# If no way is faster, the advice is to leave the files unchanged only if the run could have detected this gain.
DETECTED = 1.25


@dataclass(frozen=True)
class Way:
    """A way to read files, with its forecast and measurements.

    Attributes:
        arm: factor levels and forecast.
        cells: measured cells by level of `selection`.
        rows: comparisons with the original files by level of `selection`.
        gains: speed-up by file; empty if files are not read individually.
    """

    arm: dict
    cells: Mapping[str, dict] = field(default_factory=dict)
    rows: Mapping[str, dict] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def layout(self) -> str:
        """The name of the set of files to read: the original files, or a set of copies."""
        return self.arm["layout"]

    @property
    def name(self) -> str:
        """The driver and its settings, such as "s3fs (blockcache of 4 MiB)"."""
        settings = []
        if self.arm["read_cache"] != "default":
            kind, _, block = self.arm["read_cache"].partition("-")
            settings.append(f"{kind} of {names.format_size(block)}")
        if (buffer := self.arm["page_buffer"]) != "unset":
            settings.append(f"page buffer of {names.format_size(buffer)}" if buffer != "0" else "no page buffer")
        if self.arm["chunk_cache"] != "default":
            settings.append(f"chunk cache of {names.format_size(self.arm['chunk_cache'])}")
        return f"{self.arm['driver']} ({', '.join(settings) or 'defaults'})"


@dataclass(frozen=True)
class Advice:
    """All ways to read that a run measured, from which the advice follows.

    Attributes:
        facts: section `advice` of the configuration.
        ways: all ways, including those whose measurements failed.
        base: the first measured way to read the original files, with which all others are compared.
        files: number of files that a record reads.
    """

    facts: dict
    ways: Sequence[Way]
    base: Way
    files: int = 1

    @property
    def shares(self) -> Mapping[str, float]:
        """The weight of each access (level of `selection`); the weights add up to 1."""
        return self.facts["accesses"]

    @property
    def detectable_gain(self) -> float:
        """The smallest speed-up that any of the undecided comparisons could have detected; 1 if all are decided."""
        rows = [row for way in self.ways for row in way.rows.values() if row["verdict"] == Outcome.NO_EVIDENCE]
        return min((max(row["detectable_ratio"], 1 / row["detectable_ratio"]) for row in rows), default=1.0)

    @property
    def unjudged(self) -> list[Way]:
        """The ways, other than the base, that lack a verdict for one or more accesses."""
        return [
            way
            for way in self.ways
            if way is not self.base
            and not (
                way.rows.keys() == self.shares.keys() and all(row["verdict"] in JUDGED for row in way.rows.values())
            )
        ]

    @property
    def is_undecided(self) -> bool:
        """Whether the base is recommended although the run may have missed a faster way."""
        return self.best is self.base and (self.detectable_gain > DETECTED or bool(self.unjudged or self.uneven))

    @property
    def uneven(self) -> list[Way]:
        """The ways that are faster overall, but not on every file.

        A sign test then cannot exclude that further files are not read faster. With fewer than `LEAST_FILES` files the
        test is not possible, and the advice applies to the measured files only.
        """
        ways = filter(self._is_faster_over_all, self.ways)
        return [way for way in ways if len(way.gains) >= LEAST_FILES and min(way.gains.values()) <= 1]

    @functools.cached_property
    def best(self) -> Way:
        """The recommended way: the fastest of the ways in `faster`, or the base if there are none.

        A way that needs a copy must be sufficiently faster than the best way without a copy. If there are enough files,
        only half of them are used for this choice.
        """
        faster = sorted(self.faster, key=self._compute_cost)
        without = next((way for way in faster if way.layout == ORIGINAL), self.base)
        return faster[0] if faster and self._compute_cost(faster[0]) <= WORTH * self._compute_cost(without) else without

    @property
    def rejected_copy(self) -> Way | None:
        """The fastest way that needs a copy and is faster, but not by enough to justify the copy; None if none is."""
        return min(self.faster, key=self._compute_cost, default=None) if self.best is self.base else None

    @functools.cached_property
    def faster(self) -> list[Way]:
        """The ways that were shown to be faster, excluding uneven ones."""
        uneven = self.uneven
        return [way for way in self.ways if self._is_faster_over_all(way) and way not in uneven]

    @property
    def is_of_others(self) -> bool:
        """Whether enough files were measured for the advice to apply to further files too."""
        return self.best is not self.base and len(self.best.gains) >= LEAST_FILES

    @property
    def quoted_gains(self) -> list[float]:
        """The speed-up of the recommended way on each file.

        If it was chosen among several faster ways, files used for the choice are excluded, because their speed-ups
        would be biased.
        """
        chosen = self._list_choosing_files(self.best) if len(self.faster) > 1 else ()
        return [gain for name, gain in self.best.gains.items() if name not in chosen]

    def _list_choosing_files(self, way: Way) -> list[str]:
        """List the files used to choose among the ways: every second file, or none if there are too few files."""
        return sorted(way.gains)[::2] if len(way.gains) >= LEAST_FILES else []

    def _compute_cost(self, way: Way) -> float:
        """Return a way's time divided by the base's time.

        Use only the files that `_list_choosing_files` lists; if it lists none, use all measurements.
        """
        if chosen := self._list_choosing_files(way):
            return math.exp(-sum(math.log(way.gains[name]) for name in chosen) / len(chosen))
        return self.compute_seconds(way) / self.compute_seconds(self.base)

    def compute_seconds(self, way: Way) -> float:
        """Return the measured time per object in seconds: the weighted mean over all accesses."""
        return sum(share * way.cells[level]["total_s"] for level, share in self.shares.items()) / self.files

    def compute_ratio(self, way: Way, which: str) -> float:
        """Return the ratio of a way's time to the base's time over all accesses, or a confidence limit of the ratio.

        Args:
            way: the way to compare.
            which: column of the comparisons: "ratio", "ratio_low" or "ratio_high".
        """
        weights = {level: self.shares[level] * self.base.cells[level]["total_s"] for level in way.rows}
        return sum(weights[level] * way.rows[level][which] for level in weights) / sum(weights.values())

    def find_best_of(self, driver: str, layout: str) -> Way | None:
        """Return the fastest way to read a set of files with a given driver.

        Forecasts are used only if no way was measured. The result is None if there are no forecasts either.
        """
        measured = [way for way in self.ways if (way.layout, way.arm["driver"]) == (layout, driver)]
        if measured := [way for way in measured if way.cells.keys() == self.shares.keys()]:
            return min(measured, key=self.compute_seconds)
        arms = [arm for arm in self.facts["considered"] if (arm["layout"], arm["driver"]) == (layout, driver)]
        best = min(arms, key=lambda arm: compute_mean(arm, "seconds", self.facts), default=None)
        return Way(best) if best else None

    def _is_faster_over_all(self, way: Way) -> bool:
        """Return whether a way is faster for some access, and for all together even at the upper confidence limits."""
        is_faster_once = any(row["verdict"] == Outcome.FASTER for row in way.rows.values())
        return way.rows.keys() == self.shares.keys() and is_faster_once and self.compute_ratio(way, "ratio_high") < 1


def read_advice(run: Results) -> Advice | None:
    """Read the measured ways from the results of an advice run.

    Return None for other runs, and for runs that did not measure the original files.
    """
    if not (facts := get_advice_facts(run)):
        return None
    ways = _list_ways(run, facts)
    base = next((way for way in ways if way.layout == ORIGINAL and way.cells.keys() == facts["accesses"].keys()), None)
    if not base:
        return None
    rows = pd.concat([run.contest, run.get_comparisons()]).to_dict("records")
    table = {(row["baseline_cell"], row["contender_cell"]): row for row in rows}
    compared = [way if way is base else _compare_way(table, way, base, facts["accesses"], run.samples) for way in ways]
    return Advice(facts, compared, base, run.facts["settings"].get("read_files", 1))


def get_advice_facts(run: Results) -> dict:
    """Return the section `advice` of a run's configuration; {} if it lacks this section."""
    return (run.facts.get("settings") or {}).get("advice") or {}


def _list_ways(run: Results, facts: dict) -> list[Way]:
    cells = {key: {} for key in map(get_arm_key, facts["arms"])}
    for cell in run.measured.to_dict("records"):
        if (key := get_arm_key(cell)) in cells:
            cells[key].setdefault(cell.get("selection", "all"), cell)
    return [Way(arm, cells[get_arm_key(arm)]) for arm in facts["arms"]]


def _compare_way(
    table: Mapping[tuple[str, str], dict], way: Way, base: Way, shares: Mapping[str, float], samples: pd.DataFrame
) -> Way:
    rows = {}
    for level, cell in way.cells.items():
        pair = base.cells[level]["cell"], cell["cell"]
        if row := table.get(pair) or (pair[::-1] in table and _swap_sides(table[pair[::-1]])):
            rows[level] = row
    return Way(way.arm, way.cells, rows, _compute_gains(way, base, shares, samples))


def _compute_gains(way: Way, base: Way, shares: Mapping[str, float], samples: pd.DataFrame) -> dict[str, float]:
    """Return the speed-up of a way on each file, as the median over blocks that include both ways.

    Times of different accesses are weighted by their shares. The result is {} if measurements of an access are missing,
    or if files are not read individually.
    """
    if way.cells.keys() != shares.keys() or any(cell.get("access") != "files" for cell in way.cells.values()):
        return {}
    samples = samples[samples["valid"]]
    both = []
    for one in (base, way):
        weights = {cell["cell"]: shares[level] for level, cell in one.cells.items()}
        own = samples[samples["cell"].isin(weights)]
        times = own["open+read-data-time"] * own["cell"].astype(str).map(weights)
        of_blocks = times.groupby([own["obj-id"].astype(str), own["repeat"]]).agg(["sum", "size"])
        both.append(of_blocks.loc[of_blocks["size"] == len(weights), "sum"])
    return (both[0] / both[1]).dropna().groupby(level=0).median().to_dict()


def _swap_sides(row: dict) -> dict:
    ratios = {"ratio": 1 / row["ratio"], "ratio_low": 1 / row["ratio_high"], "ratio_high": 1 / row["ratio_low"]}
    sides = {"baseline_cell": row["contender_cell"], "contender_cell": row["baseline_cell"]}
    return row | ratios | sides | {"verdict": Outcome(row["verdict"]).mirrored}
