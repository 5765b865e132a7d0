"""Measures one cell of the blobs study once: MPI processes read objects again and again, between barriers.

Started by scripts/step.py with the workflow's interpreter; see sbench.probe.conversation. The processes are
sbench.studies.blobs.read; after the window, when nothing counts any more, they measure the store's own ceiling.
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
from sbench.probe.program import Problem, read_json, run
from sbench.stores import store as stores
from sbench.studies.blobs import ceiling, mpi, verify
from sbench.studies.blobs.patterns import Plan
from sbench.studies.blobs.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Measure what the step says on standard input."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    signal.signal(signal.SIGTERM, _ended)
    return run_measurement(measure)


def measure(step: Step) -> dict:
    """Return the program's part of the record."""
    settings, manifest = read_fields(Settings, step.job["settings"]), read_json(step.job["manifest"])
    plan, nodes = Plan(settings.cell, manifest["layout"]), int(settings.cell.nodes)
    with mpi.ranks(settings.mpi, plan.processes, nodes) as ranks:
        ranks.say(step.job)
        facts = ranks.hear()["facts"]
        started = ranks.seconds()
        ranks.hear()
        step.open_window(sets_cache=True)
        ranks.say({})
        ranks.hear()
        step.close_window()
        ranks.say({})
        outcome = ranks.hear()["outcome"]
        rounds, bare_requests = _ceiling(ranks, plan)
        ranks.end()
    reads, faults = outcome["samples"], _faults(outcome)
    rounds = _plain(outcome["distributed"]) + rounds
    waits = [row.pop("waited_s") for row in reads + rounds]
    return {
        "samples": reads + rounds,
        "seconds": {**_seconds(reads), **outcome["seconds"], "ranks_start": started},
        "work": _work(plan, outcome, settings.iterations, manifest["files"])
        | slowed.waited(settings.cell.control, sum(_later(waits[: len(reads)]))),
        "effective": _effective(settings, step.job["local_files"], plan, facts, outcome, ranks.launcher),
        "memory": {
            "allowed_bytes": plan.operation_bytes + memory.SPARE,
            "ranks": outcome["ranks"],
            "growth_bytes": max(one["peak_bytes"] - one["start_bytes"] for one in outcome["ranks"]),
        },
        **{key: outcome[key] for key in ("retries", "attempts", "verified", "files")},
        "faults": faults,
        "cache": _cache(settings, reads),
        "ceiling": bare_requests,
        **({"host": host.together(_machines(facts))} if nodes > 1 else {}),
        "modules": sorted({*outcome["modules"], *provenance.package("lib", "stores")}),
    }


def _machines(facts: list[dict]) -> list[dict]:
    """Return the facts of each node, in the order of the ranks."""
    return list({one["node"]: one["machine"] for one in reversed(facts) if one["machine"]}.values())[::-1]


def _faults(outcome: dict) -> list[str]:
    """Return what was not as it should be; of the page caches' states one line speaks for all iterations."""
    faults = [*outcome["changed"]]
    states = [line for row in outcome["samples"] for line in row.pop("not_as_asked")]
    if states:
        faults.append(states[0] + (f"; so were {len(states) - 1} other states" if states[1:] else ""))
    if wrong := outcome["blocks_wrong"]:
        faults.append(f"{wrong} blocks were read that do not have the checksum of the manifest")
    return faults


def _seconds(reads: list[dict]) -> dict:
    """Return the seconds of the iterations after the first, which opens connections, and of that; None where unknown.

    Of a single iteration they are the same.
    """
    latencies = [row["latency_s"] for row in reads]
    later = _later(latencies)
    return {
        "total": sum(later),
        "first": latencies[0] if latencies else None,
        "latency": statistics.median(later) if later else None,
    }


def _later(iterations: list) -> list:
    """Return what the total is of: the iterations after the first, or the only one."""
    return iterations[1:] or iterations


def _work(plan: Plan, outcome: dict, iterations: int, files: list[dict]) -> dict:
    """Return what was asked and what was done, counted by the processes that did it (METHOD 9)."""
    everybody = range(plan.processes)
    busy = sum(1 for rank in everybody if plan.delivered(rank))
    passes = iterations if outcome["verified"] == "after every iteration" else 1
    blocks = [block for rank in everybody for block in plan.blocks_of(rank)]
    return {
        "tasks_asked": iterations * busy,
        "tasks_done": outcome["tasks"],
        "logical_bytes_asked": iterations * sum(map(plan.delivered, everybody)),
        "logical_bytes": outcome["bytes"],
        "timed_bytes": sum(row["bytes"] for row in _later(outcome["samples"])),
        "fetched_bytes": len(outcome["samples"]) * sum(one.bytes for rank in everybody for one in plan.fetched(rank)),
        "blocks_asked": passes * len(blocks),
        "blocks_verified": outcome["blocks_verified"],
        "blocks_wrong": outcome["blocks_wrong"],
        "checksum_asked": verify.checksum(verify.expected(files, plan.block, set(blocks))),
        "checksum": outcome["checksum"],
    }


def _effective(
    settings: Settings, files: list[str], plan: Plan, facts: list[dict], outcome: dict, launcher: str
) -> dict:
    """Return the settings that held (METHOD 10, 12)."""
    hosts = Counter(one["host"] for one in facts)
    cores = {one["host"]: one["cores"] for one in facts if one["cores"]}
    machines = {one["host"]: one["machine"] for one in reversed(facts) if one["machine"]}
    return {
        "processes": len(facts),
        "hosts": [{"name": name, "processes": count, **machines[name]} for name, count in hosts.items()],
        # Of each rank, in their order.
        "ran_on": [one["node"] for one in facts],
        "usable_cores": sum(cores.values()),
        "oversubscribed": any(count > cores[name] for name, count in hosts.items()),
        "idle_processes": sum(1 for rank in range(plan.processes) if not plan.delivered(rank)),
        "mpi": facts[0]["mpi"],
        "launcher": launcher,
        "client": facts[0]["client"],
        "object_bytes": plan.size,
        "block_bytes": plan.block,
        "chunk_bytes": plan.largest_request,
        "concurrency": plan.at_once,
        "operation_bytes": plan.operation_bytes,
        "operations": outcome["operations"],
        "verified": outcome["verified"],
        "direct": settings.cell.cache == "direct",
        "stripe": _stripe(settings.store, files),
        "mpi_io_hints": outcome["mpi_io_hints"],
    }


def _stripe(store: dict, files: list[str]) -> dict[str, str] | None:
    """Return how Lustre stripes the first object, None on other file systems."""
    file = next(iter(files), None)
    on_files = file and stores.of(store).files
    return stripe(file) if on_files and host.mount(file)["file_system"] == "lustre" else None


def stripe(file: str) -> dict[str, str]:
    """Return what `lfs getstripe` says of a file: count, size and offset of its stripes, or why it says nothing."""
    command = ["lfs", "getstripe", "-c", "-S", "-i", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return {"unknown": f"lfs getstripe says nothing of {file} ({type(error).__name__}); put lfs on the path"}
    pairs = [line.split(":", 1) for line in done.stdout.splitlines() if ":" in line]
    return {name.strip().removeprefix("lmm_"): value.strip() for name, value in pairs}


def _cache(settings: Settings, reads: list[dict]) -> dict:
    """Return the state of the page cache that was furthest from the one that was asked for, of all iterations.

    After: the mean of the iterations. What one of them lost is there again before the next.
    """
    before, after = (
        [row[key] for row in reads if row[key] is not None] for key in ("resident_before", "resident_after")
    )
    wanted = settings.cell.cache
    worst = page_cache.furthest(wanted, before)
    seen = "elsewhere" if stores.of(settings.store).elsewhere else page_cache.verified_state(worst)
    state = {"asked": wanted, "state": seen, "resident_before": worst}
    return state | {"resident_after": statistics.fmean(after) if after else None}


def _ceiling(ranks: mpi.Ranks, plan: Plan) -> tuple[list[dict], dict]:
    """Return the rounds of the store's ceiling and what one asks for, or why there is none (METHOD 20).

    What was measured before stays, even if the processes end in it.
    """
    try:
        heard = ranks.hear()
    except Problem as problem:
        heard = {"samples": [], "problem": str(problem)}
    rounds = _plain(heard["samples"])
    work = [own for rank in range(plan.processes) if (own := ceiling.shares(plan, rank))]
    amounts = {
        "processes": len(work),
        "threads": sum(map(len, work)),
        "requests": sum(len(share.extents) for own in work for share in own),
    }
    return rounds, {**amounts, "problem": heard["problem"]}


def _plain(rounds: list[dict]) -> list[dict]:
    """Return rounds without what is said of the page caches' states, which is asked of iterations alone."""
    return [{key: row[key] for key in row if key != "not_as_asked"} for row in rounds]


def _ended(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    run(main)
