"""Run an arm of a claim in the interpreter of its library; `sbench.court.measure_claim` starts this program.

When the arm is prepared, it writes a line to a pipe, waits for a line of standard input, and measures. Its numbers go
to a file, since packages print to standard output.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

from sbench.probe.program import run_main


def main() -> int:
    """Make the data of a claim, or measure an arm, as the arguments specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="module of the claim")
    parser.add_argument("task", type=json.loads, help="a folder for data, or the options of an arm, JSON")
    parser.add_argument("out", type=Path, help="file of the numbers")
    parser.add_argument("ready", type=int, help="descriptor of the pipe")
    given = parser.parse_args()
    module, task = importlib.import_module(given.module), given.task
    if "folder" in task:
        module.make_data(Path(task["folder"]))
        return 0
    read = module.prepare(task["options"])
    os.write(given.ready, b"ready\n")
    sys.stdin.readline()
    cpu, began = _read_cpu_seconds(), time.perf_counter()
    numbers = read() or {}
    seconds, cpu_s = time.perf_counter() - began, _read_cpu_seconds() - cpu
    given.out.write_text(json.dumps({"seconds": seconds, "cpu_s": cpu_s} | numbers), encoding="utf-8")
    # Threads of some packages abort an interpreter that is ending.
    sys.stdout.flush()
    os._exit(0)


def _read_cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    run_main(main)
