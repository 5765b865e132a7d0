"""Ways to read files that advice compares, as a run measured them, and the best of them."""

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

# A sign test needs so many files: that each of fewer gains happens by chance in more than 5 % of cases.
LEAST_FILES = 6
# Without any faster way, "leave the files" is advice only if a gain above this could have been detected.
DETECTED = 1.25


@dataclass(frozen=True)
class Way:
    """A way to read that was forecast and measured.

    Attributes:
        arm: its levels and forecast.
        cells: its cells by level of `selection`, as far as they were measured.
        rows: their comparisons with those of the files as they are, these being the baseline.
        gains: how many times as fast each file is read, by file; empty where files are not told apart.
    """

    arm: dict
    cells: Mapping[str, dict] = field(default_factory=dict)
    rows: Mapping[str, dict] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def layout(self) -> str:
        """The set of files that it reads."""
        return self.arm["layout"]

    @property
    def name(self) -> str:
        """Driver and settings: "s3fs (blockcache of 4 MiB)"."""
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
        facts: what the configuration keeps of the advice.
        ways: the measured ones and those that could not be; with comparisons, but for the base.
        base: the first measured way to read the files as they are.
        files: how many files a record reads.
    """

    facts: dict
    ways: Sequence[Way]
    base: Way
    files: int = 1

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each access."""
        return self.facts["accesses"]

    @property
    def detectable_gain(self) -> float:
        """The smallest gain that an undecided comparison could have detected; 1 if none is undecided."""
        rows = [row for way in self.ways for row in way.rows.values() if row["verdict"] == Outcome.NO_EVIDENCE]
        return min((max(row["detectable_ratio"], 1 / row["detectable_ratio"]) for row in rows), default=1.0)

    @property
    def unjudged(self) -> list[Way]:
        """The other ways that were not compared with the base for all accesses."""
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
        """Whether no way was shown to be faster, and one that is may have been missed."""
        return self.best is self.base and (self.detectable_gain > DETECTED or bool(self.unjudged or self.uneven))

    @property
    def uneven(self) -> list[Way]:
        """The ways that are faster over all of enough files and not for each: others may gain nothing (a sign test).

        Fewer files than `LEAST_FILES` decide nothing about others; advice is then on these alone.
        """
        ways = filter(self._is_faster_over_all, self.ways)
        return [way for way in ways if len(way.gains) >= LEAST_FILES and min(way.gains.values()) <= 1]

    @functools.cached_property
    def best(self) -> Way:
        """The fastest way that is shown to be faster, without a copy if one gains too little; else the base.

        Of several it is the fastest on half of the files where these are enough.
        """
        faster = sorted(self.faster, key=self._compute_cost)
        without = next((way for way in faster if way.layout == ORIGINAL), self.base)
        return faster[0] if faster and self._compute_cost(faster[0]) <= WORTH * self._compute_cost(without) else without

    @property
    def rejected_copy(self) -> Way | None:
        """The fastest way that is shown to be faster, where the files as they are take too little more for a copy."""
        return min(self.faster, key=self._compute_cost, default=None) if self.best is self.base else None

    @functools.cached_property
    def faster(self) -> list[Way]:
        """The ways that are shown to be faster."""
        uneven = self.uneven
        return [way for way in self.ways if self._is_faster_over_all(way) and way not in uneven]

    @property
    def is_of_others(self) -> bool:
        """Whether the advice is on further files, too, and not on those alone that were read."""
        return self.best is not self.base and len(self.best.gains) >= LEAST_FILES

    @property
    def quoted_gains(self) -> list[float]:
        """The gains of the best way: of the files by which it was not chosen among several, or of all."""
        chosen = self._list_choosing_files(self.best) if len(self.faster) > 1 else ()
        return [gain for name, gain in self.best.gains.items() if name not in chosen]

    def _list_choosing_files(self, way: Way) -> list[str]:
        """Return the files by which a way is chosen among others: half of them where they are enough, else none."""
        return sorted(way.gains)[::2] if len(way.gains) >= LEAST_FILES else []

    def _compute_cost(self, way: Way) -> float:
        """Return the time of a way in times of the base's: of the files by which it is chosen, or of all."""
        if chosen := self._list_choosing_files(way):
            return math.exp(-sum(math.log(way.gains[name]) for name in chosen) / len(chosen))
        return self.compute_seconds(way) / self.compute_seconds(self.base)

    def compute_seconds(self, way: Way) -> float:
        """Return the seconds of an object as measured, the mean over all accesses."""
        return sum(share * way.cells[level]["total_s"] for level, share in self.shares.items()) / self.files

    def compute_ratio(self, way: Way, which: str) -> float:
        """Return a ratio of the comparisons with the base, weighted by the base's time for each access."""
        weights = {level: self.shares[level] * self.base.cells[level]["total_s"] for level in way.rows}
        return sum(weights[level] * way.rows[level][which] for level in weights) / sum(weights.values())

    def find_best_of(self, driver: str, layout: str) -> Way | None:
        """Return the best way of a driver to read a set of files: the fastest measured one, else by forecast."""
        measured = [way for way in self.ways if (way.layout, way.arm["driver"]) == (layout, driver)]
        if measured := [way for way in measured if way.cells.keys() == self.shares.keys()]:
            return min(measured, key=self.compute_seconds)
        arms = [arm for arm in self.facts["considered"] if (arm["layout"], arm["driver"]) == (layout, driver)]
        best = min(arms, key=lambda arm: compute_mean(arm, "seconds", self.facts), default=None)
        return Way(best) if best else None

    def _is_faster_over_all(self, way: Way) -> bool:
        """Return whether a way is faster for an access, and over all even at the upper ends of the intervals."""
        is_faster_once = any(row["verdict"] == Outcome.FASTER for row in way.rows.values())
        return way.rows.keys() == self.shares.keys() and is_faster_once and self.compute_ratio(way, "ratio_high") < 1


def read_advice(run: Results) -> Advice | None:
    """Return the advice of a run; None if there is none, or the files as they are were not measured."""
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
    """Return what a run's configuration keeps of the advice; {} of other runs."""
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
    """Return how many times as fast a way reads each file: medians over the blocks in which both read it.

    Of several accesses it is the mean time by their shares. {} where an access is missing, or files are read together.
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
