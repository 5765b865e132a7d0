"""Run one step of the workflow and write its artefact, whether the step succeeds or fails.

`step run` wraps a program that writes an artefact. If the program or one of its inputs fails, the artefact contains
`"status": "failed"` and the reason, and the exit status is 0, so that later steps run and `check` reports the failure.
A step with a failed input is skipped, and `cause` in its artefact names the first failure.
`step measure` measures one cell once: it starts the embedded server and the measuring program, enforces the time limit,
sets the state of the page cache, counts requests, compares the work done with the work requested, and writes the
record.

A step that is killed writes no artefact. Its second attempt only records this in its artefact, so that nothing is
silently measured twice (METHOD 15). If a queue's job contains several steps, the second attempt runs the steps that the
first did not reach.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO

from sbench.design import session
from sbench.measure import cell as cells
from sbench.measure import launches
from sbench.probe.processes import die_with_parent, open_separate_log, stop_group
from sbench.probe.program import (
    Escaped,
    Problem,
    build_command,
    describe_refusal,
    expect_room,
    read_json,
    run_main,
    write_json,
)

_ENDED = "the step ended before it wrote its artefact: it was killed, ran out of memory, or found the disk full"


def main(argv: list[str] | None = None) -> int:
    """Run a step of the workflow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(session=os.environ.get(session.SESSION) or session.format_session_name())
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    both.add_argument("--log", required=True, type=Path, help="log file of the step")
    both.add_argument("--attempt", type=int, default=1, help="number of the attempt at this step, from 1")
    modes = parser.add_subparsers(required=True)
    wrapped = modes.add_parser("run", help="run a program of the workflow", parents=[both])
    wrapped.add_argument("--needs", nargs="*", default=[], help="artefacts that must not have failed")
    wrapped.add_argument("program", help="name of a program in scripts/, or of a module")
    wrapped.add_argument("arguments", nargs="*", help="its arguments, after --")
    wrapped.set_defaults(step=_run_program)
    cell = modes.add_parser("measure", help="measure one cell once", parents=[both])
    cell.add_argument("--plan", required=True, type=Path, help="the study's plan.json")
    cell.add_argument("--cell", required=True, help="name of the cell")
    cell.add_argument("--repeat", required=True, type=int, help="number of the repeat, from 1")
    cell.add_argument("--environment", nargs="?", type=Path, help="artefact of the library under test, if any")
    cell.add_argument("--provision", nargs="?", type=Path, help="artefact of the data in their store, if any")
    cell.add_argument("--blocks", type=Path, help="blocks.json, with the blocks that this call measures")
    cell.add_argument("--servers", type=Path, help="artefact of the servers' build, for an embedded store")
    cell.set_defaults(step=cells.measure_cell)
    arguments = parser.parse_args(argv)
    expect_room(arguments.out)
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handle it like an interrupt
    # This file remains if the step is killed; Snakemake deletes logs before a second attempt.
    begun = arguments.log.with_suffix(".begun")
    again = arguments.attempt > 1 and begun.exists()
    with contextlib.ExitStack() as stack:
        try:
            arguments.log.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(arguments.log, "a" if again else "w", encoding="utf-8"))
            begun.touch()
            servers_log = stack.enter_context(open_separate_log(file, "standard output, and output of servers"))
        except OSError as error:
            _write_failure(arguments, f"the step did not start, as its log is not writable: {describe_refusal(error)}")
            return 0
        log = Escaped(file)
        try:
            if again:
                shutil.rmtree(cells.get_scratch_folder(arguments.out), ignore_errors=True)
                raise Problem(_ENDED)
            # Use a temporary directory per step, because libraries and tools create temporary files with predictable
            # names. It is in the system's temporary directory, whose path is short, because it may contain sockets,
            # whose paths are limited to 107 bytes.
            with tempfile.TemporaryDirectory(prefix="step.", ignore_cleanup_errors=True) as folder:
                # Set all variables that Python reads, because Snakemake has set some of them to the system's temporary
                # directory.
                os.environ |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)
                arguments.step(arguments, log, servers_log)
        except Problem as problem:
            print(problem, file=log)
            _write_failure(arguments, str(problem), problem.also if isinstance(problem, launches.Ended) else {})
        except Exception as error:
            # After any error, the artefact contains the reason and later steps run; the log contains the details.
            traceback.print_exc(file=log)
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            _write_failure(arguments, describe_refusal(error) if isinstance(error, OSError) and error.errno else words)
        except KeyboardInterrupt:
            print("interrupted without an artefact", file=log)
            return 130
        begun.unlink(missing_ok=True)
    return 0


def _run_program(arguments: argparse.Namespace, log: IO[str], servers_log: IO[str]) -> None:
    """Run a program of the workflow.

    Its standard error is written to the step's log; its standard output, which passes on its servers' output, to a
    separate log.
    """
    for needed in arguments.needs:
        cells.require_artefact(Path(needed))
    command = build_command(arguments.program, *arguments.arguments)
    own_group = {"start_new_session": True, "preexec_fn": die_with_parent}
    process = subprocess.Popen([*command, "--out", str(arguments.out)], stdout=servers_log, stderr=log, **own_group)
    try:
        status = process.wait()
    finally:
        stop_group(process)
    if status:
        raise Problem(launches.describe_ending(arguments.program, status, arguments.log))
    read_json(arguments.out)


def _write_failure(arguments: argparse.Namespace, reason: str, also: dict | None = None) -> None:
    """Write the artefact of a failed step, including the entries of `also`; print a message unless it was skipped."""
    base = cells.build_base_record(arguments) if "plan" in arguments else {"step": arguments.program}
    base |= also or {}
    write_json(arguments.out, {**base, "status": "failed", "reasons": [reason], "log": str(arguments.log)})
    if not {"cause", "unable", "injected"} & base.keys():
        print(f"failed: {reason} (log: {arguments.log})", file=sys.stderr)


if __name__ == "__main__":
    run_main(main)
