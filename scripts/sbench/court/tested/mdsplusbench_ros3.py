"""MDSplusBench: HDF5 2.0's ROS3 driver does not degrade performance, compared with HDF5 1.14's."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def judge(runs: "Runs") -> "Judgement":
    """Require that no combination of access and workers is slower."""
    return runs.judge_verdicts(("faster", "same"), ("access", "workers"))
