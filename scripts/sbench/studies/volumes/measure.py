"""Measure one cell of the volumes study once: run a battery of fio jobs on a volume with fio_battery.sh.

scripts/step.py starts this program with the workflow's interpreter; see sbench.probe.conversation.
"""

import argparse
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sbench.probe import host, software
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, run_main
from sbench.studies.volumes import battery_work, fio, fio_facts, fio_options, instance_volume
from sbench.studies.volumes.settings import Job, Settings

_BATTERY = "scripts/sbench/studies/volumes/fio_battery.sh"
# Share of the cell's time limit that is reserved for the end of the last job and for reading the results, and its
# maximum in seconds.
_MARGIN, _MARGIN_S = 0.1, 30.0
# Tolerance for sizes, which are rounded to GiB in configurations.
_ROUNDING = 1.01
# Minimum share of the computed I/Os that must be done to spend a volume's credits. Its burst rate differs slightly from
# the documented rate.
_SPENT = 0.95


def main(argv: list[str] | None = None) -> int:
    """Read a step from standard input, measure its cell, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return run_measurement(measure_cell)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure_cell(step: Step) -> dict:
    """Run the battery of a cell, and return the part of its record that results from the measurement."""
    job, settings = step.job, read_fields(Settings, step.job["settings"])
    place = get_place(settings.store, job["run"])
    volume = find_volume_facts(settings.store, place)
    validate_volume(settings, job["run"], volume)
    start = set_start_credits(job, settings)
    command = build_battery_command(job, settings)
    step.open_window()
    began = time.monotonic()
    run_battery(command)
    seconds = time.monotonic() - began
    step.close_window()
    results = fio.read_battery(*Path(job["scratch"]).iterdir())
    samples = [row | {"layout": settings.cell.store} for row in results["samples"]]
    # Add deviations from the settings to the faults found while reading the results (METHOD 10).
    faults = [*results["faults"], *(f"{one['file']} {one['reason']}" for one in results["left_out"])]
    options, canonical = fio_options.parse_job_file(settings.job.text), fio_options.resolve_options
    if samples and canonical(options) != canonical(results["job_options"]):
        faults.append("the options in fio's output differ from the job file")
    if settings.background and not results["background"]:
        faults.append("the background load left no results")
    if canonical(options).get("rate_iops") and results["loop"] != "open":
        faults.append("fio's latency log lacks operations, so latencies cannot count from due times")
    memory, host_facts = host.find_memory_backing(place), {}
    if "shell" in settings.store:
        memory, host_facts = (
            fio_facts.find_memory_kind(results["facts"]),
            {"host": fio_facts.get_host_facts(results["facts"])},
        )
        if (results["facts"].get("file_system_bytes") or 0) / 2**30 > volume.get("size_gib", math.inf) * _ROUNDING:
            faults.append(f"{place}: its file system is larger than the volume of {volume['size_gib']:g} GiB")
    if "jobs_done" not in results["facts"]:
        unread = [f"{entry['file']} {entry['reason']}" for entry in results["left_out"]]
        raise Problem(
            f"the battery's results are incomplete: {'; '.join(unread) or 'battery.txt is cut off'}; run again"
        )
    return {
        **host_facts,
        **{key: results[key] for key in ("histograms", "fio", "job_options", "background", "loop")},
        "samples": samples,
        "battery": results["facts"] | {"memory": memory},
        "volume": volume,
        "start": start,
        "work": battery_work.count_work(settings.jobs, results["facts"]["jobs_done"], samples),
        "seconds": {"total": seconds},
        "faults": faults,
        "modules": [_BATTERY],
        "files": software.find_program("fio"),
    }


def get_place(store: dict, run_name: str) -> Path:
    """Return the directory or raw device of a store. If it has neither, return the run's results directory."""
    return Path(store.get("device") or store.get("path") or Path("results", run_name))


def find_volume_facts(store: dict, place: Path) -> dict:
    """Return the known type, size and performance of a store's volume, with their source, or an empty dict."""
    volume = store.get("volume", {})
    if volume == "instance":
        return instance_volume.fetch_volume_facts(place)
    return {**volume, "source": "the configuration"} if volume else {}


def validate_volume(settings: Settings, run_name: str, volume: dict) -> None:
    """Check that a volume matches its description (METHOD 3), before the long measurement starts.

    Raises:
        Problem: the file system is larger than the configured volume, or the background load that should run on another
            volume would run on the same volume.
    """
    if "shell" in settings.store:
        return
    place = get_place(settings.store, run_name)
    if "device" not in settings.store and place.is_dir() and volume.get("size_gib"):
        size = shutil.disk_usage(place).total / 2**30
        if size > volume["size_gib"] * _ROUNDING:
            raise Problem(
                f"{place}: its file system has {size:.1f} GiB, more than the volume of {volume['size_gib']:g} GiB;"
                " correct the store's path or its volume"
            )
    if settings.cell.background == "other" and "device" not in settings.store:
        other = get_place(settings.load.store, run_name)
        if host.find_mount(other)["device"] == host.find_mount(place)["device"]:
            raise Problem(f"other: {other} must be on another volume than {place}; name another store")


def set_start_credits(job: dict, settings: Settings) -> dict | None:
    """Wait until a volume's burst credits are full, or spend them, as the settings require.

    The time is deducted from the time limit in `job`.

    Returns:
        The "state" of the credits, and the "seconds" and "ios" that it took; None if no state is required.

    Raises:
        Problem: the volume performed too few I/Os to spend the credits.
    """
    start = settings.start
    if not start.state:
        return None
    began, done = time.monotonic(), 0
    _print_line(f"preparing {start.state} credits: {start.seconds:g} s")
    if start.state == "full":
        time.sleep(start.seconds)
    else:
        writes = Job(start.state, f"{start.text}\ntime_based=1\nruntime={start.seconds:g}\n")
        spending = replace(settings, job=writes, jobs=1, at_least_s=0, background=None)
        scratch = Path(job["scratch"], "before")
        scratch.mkdir()
        run_battery(build_battery_command(job | {"scratch": str(scratch)}, spending))
        done = sum(row["write_ios"] for row in fio.read_battery(*scratch.iterdir())["samples"])
        shutil.rmtree(scratch)
        if done < _SPENT * start.ios:
            raise Problem(
                f"{done:,} I/Os in {start.seconds:g} s did not spend the credits, which takes {start.ios:,.0f} I/Os"
            )
    seconds = time.monotonic() - began
    job["time_limit_s"] -= seconds
    return {"state": start.state, "seconds": seconds, "ios": done}


def build_battery_command(job: dict, settings: Settings) -> list[str]:
    """Build the command line of fio_battery.sh for a battery. `job` describes the step of the workflow."""
    store, load, limit = settings.store, settings.load, job["time_limit_s"]
    options = {
        "battery": f"b{job['repeat']}",
        "cluster": settings.cell.store,
        "device" if "device" in store else "directory": get_place(store, job["run"]),
        "job-name": settings.job.name,
        "job-text": settings.job.text,
        "jobs": settings.jobs,
        "at-least": math.ceil(settings.at_least_s),
        "pause": settings.pause_s,
        "time-limit": max(1, int(limit - min(_MARGIN_S, _MARGIN * limit))),
        "out": job["scratch"],
    }
    if load:
        options |= {
            "background-name": load.job.name,
            "background-text": load.job.text,
            "background-directory": get_place(load.store, job["run"]),
        }
    flags = [f"--{flag}" for flag, holds in (("elsewhere", "shell" in store), ("erase", store.get("erase"))) if holds]
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    shell = ["--", *store["shell"]] if "shell" in store else []
    return ["sh", _BATTERY, "--watch-input", *flags, *words, *shell]


def run_battery(command: list[str], say: Callable[[str], bool | None] = _print_line) -> None:
    """Run a battery until it ends.

    The battery runs in a separate session and ends when its standard input is closed, so that it removes its files even
    if this program is killed.

    Args:
        command: command line from `build_battery_command`.
        say: receives each line of the battery's standard error; if it returns True, the battery ends early.

    Raises:
        Problem: the battery could not start; the message is the last line that it printed.
    """
    words, pipe = "", subprocess.PIPE
    streams = {"stdin": pipe, "stdout": subprocess.DEVNULL, "stderr": pipe, "text": True, "errors": "replace"}
    process = subprocess.Popen(command, start_new_session=True, **streams)
    try:
        for words in process.stderr:
            if say(words.rstrip()):
                process.stdin.write("enough\n")
                process.stdin.flush()
    finally:
        process.stdin.close()
        status = process.wait()
    if status not in (0, 1):
        raise Problem(words.strip().removeprefix("problem: ") or f"the battery ended with status {status}")


if __name__ == "__main__":
    run_main(main)
