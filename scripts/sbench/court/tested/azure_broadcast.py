"""azure-hpc-io: a single reader that broadcasts is not suited to clouds, compared with reading in each process."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def judge(runs: "Runs") -> "Judgement":
    """Require that the broadcast is slower at each size over each network."""
    judgement = runs.judge_verdicts(("slower",), ("store", "size"))
    return judgement._replace(reason=f"on one machine, where a broadcast goes through memory, {judgement.reason}")
