"""Judge a claim from the numbers of its arms."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sbench.court.claims import parse_printed
from sbench.court.tested_claim import TestedClaim
from sbench.pages import prose
from sbench.verdicts import judge

HOLDS, ONLY_IF, NOT, UNKNOWN = "holds", "holds only if", "does not hold", "cannot be told here"
# A ratio of times agrees with a claimed one within this factor, since machines and networks differ.
AGREES = 1.5


class Judgement(NamedTuple):
    """The outcome of a claim.

    Attributes:
        verdict: `HOLDS`, `ONLY_IF`, `NOT` or `UNKNOWN`.
        measured: the number measured, in the unit of the claim; NaN if there is none.
        reason: the reason without a full stop, such as "zarr 3.0.8 and 3.0.9 both send 4 GETs".
        region: for `ONLY_IF`, the condition under which the claim holds, such as "the Zarr format is 2".
    """

    verdict: str
    measured: float
    reason: str
    region: str = ""

    @property
    def outcome(self) -> str:
        """The verdict with its condition."""
        return f"{self.verdict} {self.region}".strip()


class Inexact(Exception):
    """Raised if a count differs between runs of the same arm, so that it decides nothing."""


class Runs:
    """The runs of a claim.

    Attributes:
        claim: the claim.
        frame: a row per run: network (its number in the claim), latency_ms, per_connection_mib_s, block, arm, library,
            the counts of `sbench.files.budget.count_totals`, in_flight, seconds, cpu_s, and the numbers that the arm
            returned. For a claim with cells, the verdicts of its run (docs/results.md).
    """

    def __init__(self, claim: TestedClaim, frame: pd.DataFrame) -> None:
        """Keep the runs of a claim."""
        self.claim, self.frame = claim, frame

    def read_count(self, arm: str, column: str = "requests", network: int = 0) -> float:
        """Return a count of an arm.

        Raises:
            Inexact: it differs between the runs of the arm.
        """
        values = self._select(arm, network)[column].unique()
        if len(values) != 1:
            raise Inexact(f"{column} of {arm} differ between its runs: {', '.join(map(str, sorted(values)))}")
        return float(values[0])

    def read_median(self, arm: str, column: str, network: int = 0) -> float:
        """Return the median of a number over the runs of an arm."""
        return float(self._select(arm, network)[column].median())

    def agrees(self, measured: float) -> bool:
        """Return whether a number agrees with the claimed one."""
        return bool(parse_printed(self.claim.claimed, self.claim.id).match_values(pd.Series([measured])).iloc[0])

    def decide(self, holds: bool, measured: float, reason: str) -> Judgement:
        """Return the judgement of a claim that holds, or does not."""
        return Judgement(HOLDS if holds else NOT, measured, reason)

    def limit(self, region: str, measured: float, reason: str) -> Judgement:
        """Return the judgement of a claim that holds only under a condition."""
        return Judgement(ONLY_IF, measured, reason, region)

    def leave_open(self, reason: str) -> Judgement:
        """Return the judgement of a claim that cannot be decided here."""
        return Judgement(UNKNOWN, math.nan, reason)

    def compare_times(self, column: str = "seconds", contrast: Sequence[str] = ()) -> pd.DataFrame:
        """Compare an arm with another over each network; the networks are a family.

        Args:
            column: "seconds" or "cpu_s".
            contrast: the two arms; by default the contrast of the claim.

        Returns:
            A row per network: network, the columns of `sbench.verdicts.judge`, latency_ms and per_connection_mib_s.
        """
        arm, base = contrast or self.claim.contrast
        times = self.frame.pivot(index="block", columns=["network", "arm"], values=column)
        ratios = {place: times[place, arm] / times[place, base] for place in range(len(self.claim.networks))}
        table = judge(pd.DataFrame({"equal": 1.0, **ratios}), baseline="equal")
        networks = pd.DataFrame(list(self.claim.networks), index=table.index)
        return table.rename_axis("network").join(networks).reset_index()

    def judge_speedup(
        self, claimed: float, column: str = "seconds", contrast: Sequence[str] = (), places: Sequence[int] = ()
    ) -> Judgement:
        """Judge a claimed ratio of times over networks of the claim, which needs at least six blocks.

        The claimed range is within a factor of 1.5 of the claimed ratio, and above 1. Over a network, the claim holds
        if the 95 % CI of the ratio lies within the range, does not hold if it lies outside, and is left open otherwise.

        Args:
            claimed: how many times as fast the first arm is as the second.
            column: "seconds" or "cpu_s".
            contrast: the two arms; by default the contrast of the claim.
            places: numbers of the networks that decide; by default all.
        """
        arm, base = contrast or self.claim.contrast
        table = self.compare_times(column, (arm, base))
        table = table[table["network"].isin(places or table["network"])]
        gains, low, high = (1 / table[name] for name in ("ratio", "high", "low"))
        least, most = max(1, claimed / AGREES), claimed * AGREES
        fits, refuted = (low >= least) & (high <= most), (high < least) | (low > most)
        measured = float((gains[fits] if fits.any() else gains).median())
        span = " to ".join(dict.fromkeys(prose.format_ratio(value) for value in (gains.min(), gains.max())))
        reason = f"{arm} is {span} times as fast as {base}"
        if unclear := table.loc[~fits & ~refuted, "network"].tolist():
            limits = f"{prose.format_ratio(least)} to {prose.format_ratio(most)}"
            where = describe_networks(self.claim, unclear)
            return self.leave_open(f"{reason}, and the 95 % CI is neither within {limits} nor outside if {where}")
        if fits.any() and not fits.all():
            return self.limit(describe_networks(self.claim, table.loc[fits, "network"]), measured, reason)
        return self.decide(bool(fits.all()), measured, reason)

    def judge_verdicts(self, allowed: Sequence[str], factors: Sequence[str]) -> Judgement:
        """Judge a claim by the verdicts on the total times of its cells.

        It does not hold where a verdict contradicts it. If none does, it holds if all comparisons agree with it.

        Args:
            allowed: the verdicts that agree with the claim; "no evidence" neither agrees nor contradicts.
            factors: the factors that describe a comparison, such as "access".
        """
        rows = self.select_totals()
        fits = rows["verdict"].isin(allowed)
        against = rows["verdict"].isin(("faster", "slower", "same")) & ~fits
        names = [
            " and ".join(f"{factor} is {level}" for factor, level in zip(factors, levels, strict=True))
            for levels in rows[list(factors)].to_numpy()
        ]
        results = zip(names, rows["verdict"], rows["ratio"], strict=True)
        reason = "; ".join(f"{name}: {verdict} ({prose.format_ratio(ratio)})" for name, verdict, ratio in results)
        if not against.any() and not fits.all():
            return self.leave_open(reason)
        if against.any() and fits.any():
            held = prose.format_list((name for name, fit in zip(names, fits, strict=True) if fit), "or")
            return self.limit(held, float(rows["ratio"].median()), reason)
        return self.decide(bool(fits.all()), float(rows["ratio"].median()), reason)

    def select_totals(self) -> pd.DataFrame:
        """Return the verdicts on total times of the factors that the claim compares, without controls."""
        frame, studies = self.frame, self.claim.cells["studies"].values()
        factors = {entry["factor"] for study in studies for entry in study["compare"]}
        of_factors = frame["factor"].isin(factors) & frame["control"].isna()
        return frame[of_factors & (frame["metric"] == "total") & (frame["role"] == "decides")]

    def list_unequal(self) -> list[str]:
        """List the arms of the contrast that read other values than its first arm, in any run.

        Other arms may read other objects. Arms without a checksum are not compared.
        """
        if "checksum" not in self.frame:
            return []
        read = self.frame.dropna(subset=["checksum"])
        sums = read.groupby("arm")["checksum"].agg(lambda values: frozenset(values.astype(str)))
        first, *others = self.claim.contrast
        return [arm for arm in others if arm in sums and sums[arm] != sums.get(first)]

    def _select(self, arm: str, network: int) -> pd.DataFrame:
        return self.frame[(self.frame["network"] == network) & (self.frame["arm"] == arm)]


def judge_runs(claim: TestedClaim, table: Path) -> tuple[Runs, Judgement]:
    """Read the runs of a claim, and judge it."""
    runs = Runs(claim, pd.read_csv(table))
    if claim.cells and (runs.frame if claim.table == "samples" else runs.select_totals()).empty:
        return runs, runs.leave_open(f"the run {claim.run} has no valid result")
    try:
        return runs, claim.import_module().judge(runs)
    except Inexact as error:
        return runs, runs.leave_open(str(error))


def describe_networks(claim: TestedClaim, places: Sequence[int]) -> str:
    """Describe some networks of a claim, such as "the round trip is 20 ms or 60 ms"."""
    names = [f"{claim.networks[place].get('latency_ms', 0):g} ms" for place in places]
    return f"the round trip is {prose.format_list(names, 'or')}"


def estimate_seconds(row: Mapping[str, float], latency_ms: float, rate_mib_s: float) -> float:
    """Estimate the time of an arm's requests: round trips, divided by the requests in flight, and transfer.

    Args:
        row: requests, in_flight and bytes of the arm.
        latency_ms: round-trip time in ms.
        rate_mib_s: rate of the network in MiB/s.
    """
    in_flight = row["in_flight"] if row["in_flight"] > 1 else 1
    return row["requests"] / in_flight * latency_ms / 1000 + row["bytes"] / 2**20 / rate_mib_s
