"""HSDS Streaming: the HDF5 library reads more than 3 times as fast as the service."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def judge(runs: "Runs") -> "Judgement":
    """Compare the 95 % CI of the ratio of times with 3."""
    row = runs.select_totals().iloc[0]
    interval = f"[{row['ratio_low']:.3g}, {row['ratio_high']:.3g}]"
    reason = f"the service takes {row['ratio']:.3g} times as long as the library {interval}"
    if row["ratio_low"] <= 3 <= row["ratio_high"]:
        return runs.leave_open(reason)
    return runs.decide(runs.agrees(row["ratio"]), row["ratio"], reason)
