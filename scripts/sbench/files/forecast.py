"""Forecast requests, bytes and network time for different ways to read files."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sbench.probe.program import Problem, build_command
from sbench.stores import network as networks
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.arms import RDCC_NBYTES, Arm


@dataclass(frozen=True)
class Question:
    """The input of a forecast for one layout.

    Attributes:
        arms: ways to read the files.
        paths: files that together are read as a single object.
        datasets: patterns of the datasets to read.
    """

    arms: Sequence[Arm]
    paths: Sequence[Path]
    datasets: Sequence[str]


def compute_forecasts(
    questions: Sequence[Question], python: str, accesses: Accesses, network: Mapping[str, float]
) -> list[list[Arm] | str]:
    """Compute forecasts, assuming that requests are sequential.

    Args:
        questions: one entry per layout.
        python: Python interpreter of the environment that will read the files.
        accesses: accesses to the files.
        network: network settings, as in a store's configuration entry.

    Returns:
        For each layout, its arms with their forecasts, or the reason why its files cannot be read.

    Raises:
        Problem: the subprocess fails.
    """
    posed = [
        {
            "path": str(path),
            "datasets": list(one.datasets),
            "selections": list(accesses.shares),
            "rdcc_nbytes": RDCC_NBYTES,
            "arms": [arm.levels for arm in one.arms],
        }
        for one in questions
        for path in one.paths
    ]
    command = build_command("sbench.files.forecast_requests", python=[python])
    done = subprocess.run(command, input=json.dumps(posed), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise Problem(f"requests cannot be forecast: {last.removeprefix('problem: ')}")
    answers = iter(json.loads(done.stdout))
    return [_sum_files(one, [next(answers) for _ in one.paths], network) for one in questions]


def _sum_files(question: Question, answers: Sequence[dict], network: Mapping[str, float]) -> list[Arm] | str:
    """Return the arms with forecasts summed over all files, or the error message of a file that cannot be read."""
    if problems := [answer["problem"] for answer in answers if "problem" in answer]:
        return problems[0]
    forecasts = []
    for number, arm in enumerate(question.arms):
        of_files = [answer["arms"][number] for answer in answers]
        requests, size = (
            {level: sum(of[level][key] for of in of_files) for level in of_files[0]} for key in ("requests", "bytes")
        )
        seconds = {level: networks.estimate_seconds(requests[level], size[level], network) for level in requests}
        forecasts.append(replace(arm, requests=requests, bytes=size, seconds=seconds))
    return forecasts
