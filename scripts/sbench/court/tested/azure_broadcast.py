"""azure-hpc-io: a single reader that broadcasts is not suited to clouds, compared with reading in each process."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def judge(runs: "Runs") -> "Judgement":
    """Describe the ratios of times; the claim is about nodes, which two processes on one machine do not decide."""
    reason = runs.judge_verdicts(("slower",), ("store", "size")).reason
    return runs.leave_open(
        "the claim is about nodes that share an interconnect, and here two processes of one machine share its memory;"
        f" the broadcast compared with reading in each process: {reason}"
    )
