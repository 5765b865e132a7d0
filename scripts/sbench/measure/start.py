"""Start a planned run: ask for consent if it is expensive, and run Snakemake."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

from sbench.design import blocks, matrix, prices
from sbench.design import study as studies
from sbench.measure import one_run, preflight
from sbench.measure.forecast import add_forecasts
from sbench.measure.run_plan import Plan, print_costs
from sbench.probe import host
from sbench.probe.processes import die_with_parent
from sbench.probe.program import Problem, expect_folders

# Snakemake options that select a cluster, on which each call of Snakemake measures only one round.
_CLUSTER = {"--workflow-profile", "--profile", "--executor", "-e"}


def start_run(plan: Plan, cores: str | None, yes: bool, options: Sequence[str], waits: bool = False) -> int:
    """Print the cost of a plan, ask for confirmation if it exceeds a limit, and run Snakemake.

    Snakemake replaces this process. On a cluster, and if `waits`, it runs as a subprocess instead, once for each round
    on a cluster.

    Args:
        plan: the plan of the run.
        cores: the number of cores for Snakemake; None for all usable cores.
        yes: do not ask for confirmation.
        options: additional options for Snakemake.
        waits: whether to return after the run.

    Returns:
        The exit status of Snakemake.

    Raises:
        Problem: the user did not confirm, there is not enough disk space, or another run is in progress.
    """
    used_cores = _parse_cores(cores) if cores else host.count_usable_cores()
    for note in preflight.check_begun_libraries(plan.config):
        print(note, file=sys.stderr)
    seconds, config = print_costs(plan, listed=False), plan.config
    expect_folders(config["run"])
    _require_consent(plan, yes)
    sys.stdout.flush()
    command = [
        *(
            get_snakemake(),
            f"--cores={used_cores}",
            f"--configfile={plan.file}",
            *build_progress_options(config["run"]),
        ),
        f"--logger-benchmark-planned={seconds:.0f}",
    ]
    hold_folder()
    for study in plan.cells:
        studies.get_study(study).list_sources(config)
    if plan.changes:
        command += ["--config", *(f"{key}={json.dumps(value)}" for key, value in plan.changes.items())]
    command += options
    on_cluster = bool(_CLUSTER.intersection(word.partition("=")[0] for word in options))
    if not (on_cluster or waits):
        os.execv(command[0], command)
    while True:
        status = call_snakemake(command)
        if status or not on_cluster or not _has_further_round(plan):
            return status


def hold_folder() -> None:
    """Lock the folder for this run (`one_run.hold_folder`), and remove Snakemake's lock if a killed run left it."""
    one_run.hold_folder()
    shutil.rmtree(one_run.LOCKS, ignore_errors=True)


def call_snakemake(command: list[str], output: IO[str] | None = None) -> int:
    """Run Snakemake, with the lock of the folder, and return its status. It alone handles Ctrl-C."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        die_with_parent(signal.SIGTERM)

    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.call(command, stdout=output, close_fds=False, preexec_fn=prepare)
    finally:
        signal.signal(signal.SIGINT, heard)


def _has_further_round(plan: Plan) -> bool:
    """Return whether another call of Snakemake is needed, because the last look ordered a further round."""
    every = matrix.expand_all(plan.config, [plan.file])
    opened = [blocks.open_blocks(plan.config, cells, every[study][0]) for study, cells in plan.cells.items()]
    return any(of_study.blocks and of_study.cells for of_study in opened)


def make_published(raw: str, partial: bool, cores: str) -> NoReturn:
    """Replace this process by Snakemake, which builds the pages of the published studies.

    Args:
        raw: the folder with their raw data; an empty string to download the data.
        partial: build only the pages whose data exists.
        cores: the number of cores for Snakemake.
    """
    settings = [f"published_partial={partial}", *([f"published_data={raw}"] if raw else [])]
    display = build_progress_options("published-partial" if partial else "published")
    command = [get_snakemake(), "published", f"--cores={cores}", *display, "--config", *settings]
    hold_folder()
    os.execv(command[0], command)


def build_progress_options(reports: str) -> list[str]:
    """Return the Snakemake options that display running jobs and their expected times (see plugins/)."""
    return ["--logger=benchmark", f"--logger-benchmark-reports=reports/{reports}"]


def get_snakemake() -> str:
    """Return the path of Snakemake in this environment."""
    return str(Path(sys.executable).with_name("snakemake"))


def _parse_cores(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise Problem(f"--cores must be a number of cores, such as --cores 2 (got {text!r})")
    return int(text)


def _require_consent(plan: Plan, yes: bool) -> None:
    """Ask for confirmation if the cost of a run may exceed a limit of `ask_above`.

    For studies that are measured until they are decided, the cost includes the maximum number of rounds.

    Raises:
        Problem: the user did not confirm, standard input is not a terminal, or there is not enough disk space.
    """
    config = plan.config
    whole, totals = add_forecasts(plan.costs, plan.forecasts, 0)
    # `made_bytes` excludes data that is written directly to a remote store and needs no space here.
    if (needed := totals["made_bytes"]) > (free := shutil.disk_usage(".").free):
        raise Problem(
            f"results/ has {free / 2**30:.1f} GiB free, but the run generates {needed / 2**30:.1f} GiB of data; free"
            " disk space or make the data smaller"
        )
    sums = {"hours": whole.most / 3600, "gib": totals["bytes"] / 2**30}
    sums |= {"requests": totals["requests"], "disk_gib": totals["disk_bytes"] / 2**30}
    bill = prices.compute_bill(config, totals, whole.most)
    sums["usd"] = bill.usd if bill else 0
    above = [f"{key} {sums[key]:.3g} > {limit:g}" for key, limit in config["ask_above"].items() if sums[key] > limit]
    if not above or yes:
        return
    line = f"this run exceeds the limits of ask_above: {', '.join(above)}"
    if not sys.stdin.isatty():
        raise Problem(f"{line}; add --yes, or raise the limits in the configuration")
    if input(f"{line}. Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Problem("nothing was started")
