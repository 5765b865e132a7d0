"""Compare the ways to read files as a run measured them, and choose the best."""

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

# Minimum files for a sign test: with fewer, all gain by chance in more than 5 % of cases.
LEAST_FILES = 6
# Without a faster way, advise to leave the files only if the run could detect a gain above this.
DETECTED = 1.25


@dataclass(frozen=True)
class Way:
    """A way to read that was forecast and measured.

    Attributes:
        arm: levels and forecast.
        cells: measured cells by level of `selection`.
        rows: comparisons by level of `selection`; the baseline is the files as they are.
        gains: speed-up by file; empty if files are read together.
    """

    arm: dict
    cells: Mapping[str, dict] = field(default_factory=dict)
    rows: Mapping[str, dict] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def layout(self) -> str:
        """The set of files to read."""
        return self.arm["layout"]

    @property
    def name(self) -> str:
        """The driver and its settings, as "s3fs (blockcache of 4 MiB)"."""
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
    """All ways of a run.

    Attributes:
        facts: section `advice` of the configuration.
        ways: all ways, measured or failed; all but the base have comparisons.
        base: the first measured way to read the files as they are.
        files: number of files that a record reads.
    """

    facts: dict
    ways: Sequence[Way]
    base: Way
    files: int = 1

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of each access."""
        return self.facts["accesses"]

    @property
    def detectable_gain(self) -> float:
        """The smallest gain that an undecided comparison could have detected; 1 if all are decided."""
        rows = [row for way in self.ways for row in way.rows.values() if row["verdict"] == Outcome.NO_EVIDENCE]
        return min((max(row["detectable_ratio"], 1 / row["detectable_ratio"]) for row in rows), default=1.0)

    @property
    def unjudged(self) -> list[Way]:
        """The other ways without a verdict against the base for each access."""
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
        """Whether no way was shown to be faster, but the run may have missed a faster way."""
        return self.best is self.base and (self.detectable_gain > DETECTED or bool(self.unjudged or self.uneven))

    @property
    def uneven(self) -> list[Way]:
        """The ways that are faster overall but not on each of enough files: others may gain nothing (a sign test).

        Fewer files than `LEAST_FILES` decide nothing about others; advice then covers only these files.
        """
        ways = filter(self._is_faster_over_all, self.ways)
        return [way for way in ways if len(way.gains) >= LEAST_FILES and min(way.gains.values()) <= 1]

    @functools.cached_property
    def best(self) -> Way:
        """The fastest way that is shown to be faster, without a copy if a copy gains too little; else the base.

        If files are enough, half of them choose among several ways.
        """
        faster = sorted(self.faster, key=self._compute_cost)
        without = next((way for way in faster if way.layout == ORIGINAL), self.base)
        return faster[0] if faster and self._compute_cost(faster[0]) <= WORTH * self._compute_cost(without) else without

    @property
    def rejected_copy(self) -> Way | None:
        """The fastest way that is shown to be faster, if its copy gains too little over the base."""
        return min(self.faster, key=self._compute_cost, default=None) if self.best is self.base else None

    @functools.cached_property
    def faster(self) -> list[Way]:
        """The ways that are shown to be faster, without uneven ways."""
        uneven = self.uneven
        return [way for way in self.ways if self._is_faster_over_all(way) and way not in uneven]

    @property
    def is_of_others(self) -> bool:
        """Whether the advice covers further files, too, and not only the files that were read."""
        return self.best is not self.base and len(self.best.gains) >= LEAST_FILES

    @property
    def quoted_gains(self) -> list[float]:
        """The gains of the best way on the files that did not choose it among several, or on all."""
        chosen = self._list_choosing_files(self.best) if len(self.faster) > 1 else ()
        return [gain for name, gain in self.best.gains.items() if name not in chosen]

    def _list_choosing_files(self, way: Way) -> list[str]:
        """List the files that choose among ways: half of the files if they are enough, else []."""
        return sorted(way.gains)[::2] if len(way.gains) >= LEAST_FILES else []

    def _compute_cost(self, way: Way) -> float:
        """Return the time of a way relative to the base, on the files that choose it, or on all."""
        if chosen := self._list_choosing_files(way):
            return math.exp(-sum(math.log(way.gains[name]) for name in chosen) / len(chosen))
        return self.compute_seconds(way) / self.compute_seconds(self.base)

    def compute_seconds(self, way: Way) -> float:
        """Return the measured seconds per object, as the mean over all accesses by their shares."""
        return sum(share * way.cells[level]["total_s"] for level, share in self.shares.items()) / self.files

    def compute_ratio(self, way: Way, which: str) -> float:
        """Return a ratio of the comparisons with the base, weighted by the base's time for each access."""
        weights = {level: self.shares[level] * self.base.cells[level]["total_s"] for level in way.rows}
        return sum(weights[level] * way.rows[level][which] for level in weights) / sum(weights.values())

    def find_best_of(self, driver: str, layout: str) -> Way | None:
        """Return the best way of a driver to read a set of files: the fastest measured way, else by forecast."""
        measured = [way for way in self.ways if (way.layout, way.arm["driver"]) == (layout, driver)]
        if measured := [way for way in measured if way.cells.keys() == self.shares.keys()]:
            return min(measured, key=self.compute_seconds)
        arms = [arm for arm in self.facts["considered"] if (arm["layout"], arm["driver"]) == (layout, driver)]
        best = min(arms, key=lambda arm: compute_mean(arm, "seconds", self.facts), default=None)
        return Way(best) if best else None

    def _is_faster_over_all(self, way: Way) -> bool:
        """Return whether a way is faster for an access, and overall even at the upper ends of the intervals."""
        is_faster_once = any(row["verdict"] == Outcome.FASTER for row in way.rows.values())
        return way.rows.keys() == self.shares.keys() and is_faster_once and self.compute_ratio(way, "ratio_high") < 1


def read_advice(run: Results) -> Advice | None:
    """Read the advice of a run; return None without advice, or if the files as they are were not measured."""
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
    """Return the section `advice` of a run's configuration; {} for other runs."""
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
    """Return the speed-up of a way on each file, the median over blocks with both ways.

    Several accesses count by their shares. Return {} if an access is missing, or if files are read together.
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
