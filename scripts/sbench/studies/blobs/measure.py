"""Run one measurement of one cell of the blobs study: MPI processes read objects repeatedly, between barriers.

scripts/step.py starts this program with the workflow's Python interpreter; see sbench.probe.conversation for the
protocol between the two. The MPI processes run sbench.studies.blobs.read. After the measured iterations, they measure
the highest rate of the store with minimal client code.
"""

import argparse
import signal
import statistics
import subprocess
from collections import Counter
from types import FrameType

from sbench.probe import host, memory, page_cache, provenance, slowed
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, read_json, run_main
from sbench.stores import store as stores
from sbench.studies.blobs import ceiling, mpi, verify
from sbench.studies.blobs.patterns import Plan
from sbench.studies.blobs.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Measure the cell of the step that is read from standard input, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    signal.signal(signal.SIGTERM, _stop_on_signal)
    return run_measurement(measure_cell)


def measure_cell(step: Step) -> dict:
    """Measure a cell and return the measured part of its record."""
    settings, manifest = read_fields(Settings, step.job["settings"]), read_json(step.job["manifest"])
    plan, nodes = Plan(settings.cell, manifest["layout"]), int(settings.cell.nodes)
    with mpi.start_ranks(settings.mpi, plan.processes, nodes) as ranks:
        ranks.send_message(_leave_ceiling_to_last(step.job))
        facts = ranks.receive_message()["facts"]
        started = ranks.measure_elapsed()
        ranks.receive_message()
        step.open_window(sets_cache=True)
        ranks.send_message({})
        ranks.receive_message()
        step.close_window()
        ranks.send_message({})
        outcome = ranks.receive_message()["outcome"]
        rounds, bare_requests = _receive_ceiling(ranks, plan)
        ranks.stop_processes()
    reads, faults = outcome["samples"], _list_faults(outcome)
    rounds = _remove_states(outcome["distributed"]) + rounds
    waits = [row.pop("waited_s") for row in reads + rounds]
    return {
        "samples": reads + rounds,
        "seconds": {**_compute_seconds(reads), **outcome["seconds"], "ranks_start": started},
        "work": _count_work(plan, outcome, settings.iterations, manifest["files"])
        | slowed.report_waited(settings.cell.control, sum(_select_later(waits[: len(reads)]))),
        "effective": _describe_effective(settings, step.job["local_files"], plan, facts, outcome, ranks.launcher),
        "memory": {
            "allowed_bytes": plan.operation_bytes + memory.SPARE,
            "ranks": outcome["ranks"],
            "growth_bytes": max(one["peak_bytes"] - one["start_bytes"] for one in outcome["ranks"]),
        },
        **{key: outcome[key] for key in ("retries", "attempts", "verified", "files")},
        "faults": faults,
        "cache": _compute_cache_state(settings, reads),
        "ceiling": bare_requests,
        **({"host": host.merge_facts(_list_machines(facts))} if nodes > 1 else {}),
        "modules": sorted({*outcome["modules"], *provenance.list_package_modules("probe", "stores")}),
    }


def _leave_ceiling_to_last(job: dict) -> dict:
    """Disable the measurement of the store's highest rate in a job, unless it is the last launch of its record."""
    return job if job["is_last_launch"] else job | {"settings": job["settings"] | {"ceiling_rounds": 0}}


def _list_machines(facts: list[dict]) -> list[dict]:
    """Return the description of each node's machine, in the order of the ranks."""
    return list({one["node"]: one["machine"] for one in reversed(facts) if one["machine"]}.values())[::-1]


def _list_faults(outcome: dict) -> list[str]:
    """Return messages about changed objects, wrong blocks and, in a single message, wrong cache states."""
    faults = [*outcome["changed"]]
    states = [line for row in outcome["samples"] for line in row.pop("not_as_asked")]
    if states:
        faults.append(states[0] + (f"; {len(states) - 1} other mismatches" if states[1:] else ""))
    if wrong := outcome["blocks_wrong"]:
        faults.append(f"{wrong} blocks differ from the checksums of the manifest")
    return faults


def _compute_seconds(reads: list[dict]) -> dict:
    """Compute the times of the iterations, in seconds.

    Returns:
        "first": the time of the first iteration, which includes opening connections. "total" and "latency": the sum
        and the median of the later iterations. A single iteration counts as both first and later. Without iterations,
        "first" and "latency" are None.
    """
    latencies = [row["latency_s"] for row in reads]
    later = _select_later(latencies)
    return {
        "total": sum(later),
        "first": latencies[0] if latencies else None,
        "latency": statistics.median(later) if later else None,
    }


def _select_later(iterations: list) -> list:
    """Return all iterations but the first. If there is only one iteration, return it."""
    return iterations[1:] or iterations


def _count_work(plan: Plan, outcome: dict, iterations: int, files: list[dict]) -> dict:
    """Return the requested work, and the completed work as counted by the processes (METHOD 9)."""
    everybody = range(plan.processes)
    busy = sum(1 for rank in everybody if plan.count_delivered_bytes(rank))
    passes = iterations if outcome["verified"] == "after every iteration" else 1
    blocks = [block for rank in everybody for block in plan.iter_blocks(rank)]
    return {
        "tasks_asked": iterations * busy,
        "tasks_done": outcome["tasks"],
        "logical_bytes_asked": iterations * sum(map(plan.count_delivered_bytes, everybody)),
        "logical_bytes": outcome["bytes"],
        "timed_bytes": sum(row["bytes"] for row in _select_later(outcome["samples"])),
        "fetched_bytes": len(outcome["samples"])
        * sum(one.bytes for rank in everybody for one in plan.list_fetches(rank)),
        "blocks_asked": passes * len(blocks),
        "blocks_verified": outcome["blocks_verified"],
        "blocks_wrong": outcome["blocks_wrong"],
        "checksum_asked": verify.compute_checksum(verify.get_manifest_lines(files, plan.block, set(blocks))),
        "checksum": outcome["checksum"],
    }


def _describe_effective(
    settings: Settings, files: list[str], plan: Plan, facts: list[dict], outcome: dict, launcher: str
) -> dict:
    """Return the settings in force (METHOD 10, 12)."""
    hosts = Counter(one["host"] for one in facts)
    cores = {one["host"]: one["cores"] for one in facts if one["cores"]}
    machines = {one["host"]: one["machine"] for one in reversed(facts) if one["machine"]}
    return {
        "processes": len(facts),
        "hosts": [{"name": name, "processes": count, **machines[name]} for name, count in hosts.items()],
        # By rank.
        "ran_on": [one["node"] for one in facts],
        "usable_cores": sum(cores.values()),
        "oversubscribed": any(count > cores[name] for name, count in hosts.items()),
        "idle_processes": sum(1 for rank in range(plan.processes) if not plan.count_delivered_bytes(rank)),
        "mpi": facts[0]["mpi"],
        "launcher": launcher,
        "client": facts[0]["client"],
        "object_bytes": plan.size,
        "block_bytes": plan.block,
        "chunk_bytes": plan.largest_request,
        "concurrency": plan.chunks_in_flight,
        "operation_bytes": plan.operation_bytes,
        "operations": outcome["operations"],
        "verified": outcome["verified"],
        "direct": settings.cell.cache == "direct",
        "stripe": _find_stripe(settings.store, files),
        "mpi_io_hints": outcome["mpi_io_hints"],
    }


def _find_stripe(store: dict, files: list[str]) -> dict[str, str] | None:
    """Return the Lustre striping of the first object, or None if it is not on a Lustre file system."""
    file = next(iter(files), None)
    on_files = file and stores.get_store(store).files
    return read_stripe(file) if on_files and host.find_mount(file)["file_system"] == "lustre" else None


def read_stripe(file: str) -> dict[str, str]:
    """Run `lfs getstripe` and return a file's stripe count, size and offset, or the error under "unknown"."""
    command = ["lfs", "getstripe", "-c", "-S", "-i", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return {"unknown": f"lfs getstripe {file} failed ({type(error).__name__}); add lfs to the path"}
    pairs = [line.split(":", 1) for line in done.stdout.splitlines() if ":" in line]
    return {name.strip().removeprefix("lmm_"): value.strip() for name, value in pairs}


def _compute_cache_state(settings: Settings, reads: list[dict]) -> dict:
    """Return the page cache state of the iteration that deviated most from the requested state.

    `resident_after` is the mean over the iterations, because evicted pages are restored before each iteration.
    """
    before, after = (
        [row[key] for row in reads if row[key] is not None] for key in ("resident_before", "resident_after")
    )
    wanted = settings.cell.cache
    worst = page_cache.find_furthest(wanted, before)
    seen = "elsewhere" if stores.get_store(settings.store).elsewhere else page_cache.get_verified_state(worst)
    state = {"asked": wanted, "state": seen, "resident_before": worst}
    return state | {"resident_after": statistics.fmean(after) if after else None}


def _receive_ceiling(ranks: mpi.Ranks, plan: Plan) -> tuple[list[dict], dict]:
    """Receive the measurements of the store's highest rate (METHOD 20).

    If the processes fail at this stage, the earlier measurements remain in the record.

    Returns:
        The samples of the rounds, and the numbers of processes, threads and requests per round. "problem" is the reason
        if the measurement failed, and else None.
    """
    try:
        heard = ranks.receive_message()
    except Problem as problem:
        heard = {"samples": [], "problem": str(problem)}
    rounds = _remove_states(heard["samples"])
    work = [own for rank in range(plan.processes) if (own := ceiling.list_shares(plan, rank))]
    amounts = {
        "processes": len(work),
        "threads": sum(map(len, work)),
        "requests": sum(len(share.extents) for own in work for share in own),
    }
    return rounds, {**amounts, "problem": heard["problem"]}


def _remove_states(rounds: list[dict]) -> list[dict]:
    """Remove messages about wrong cache states from rounds with the bare client, in which they do not matter."""
    return [{key: row[key] for key in row if key != "not_as_asked"} for row in rounds]


def _stop_on_signal(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    run_main(main)
