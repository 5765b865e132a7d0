"""minimal_particle_read_testing: sums of chunks as futures of Dask are faster than a Dask array."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def judge(runs: "Runs") -> "Judgement":
    """Require that futures are faster than an array, also if chunks are listed again."""
    return runs.judge_verdicts(("faster",), ("rereads",))
