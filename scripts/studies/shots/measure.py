"""Measures one cell of the shots study once: reads shots or signals of HDF5 files with Dask workers.

Started by scripts.step with the interpreter of the library under test; see scripts.lib.window for the conversation.
"""

import argparse
import hashlib
import random
import statistics
import time

from scripts.lib import dask_workers, host, provenance
from scripts.lib.program import Problem, read_json, run
from scripts.lib.window import Step, run_measurement
from scripts.studies.shots import drivers, page_buffer, reader

# Where checksums take more of the total than this, they move into a pass of their own (METHOD 9).
VERIFY_AT_MOST = 0.03


def main(argv: list[str] | None = None) -> int:
    """Measure what the step says on standard input."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return run_measurement(measure)


def measure(step: Step) -> dict:
    """Return the program's part of the record."""
    settings, manifest = step.job["settings"], read_json(step.job["manifest"])
    cell = settings["cell"]
    workers = workers_of(cell["workers"])
    buffer = page_buffer.in_bytes(cell["page_buffer"])
    access = drivers.Access(cell["driver"], buffer, settings["rdcc_nbytes"], settings["store"])
    objects = sampled(settings, manifest, step.job["repeat"])
    # The same code for all arms, whichever driver an arm has: they are compared.
    record = {"read": objects, "modules": provenance.package("studies/shots/drivers")}
    for verify in (True, False):
        plan = _Plan(settings["cell"]["access"], objects, manifest, step.job["location"], access, workers, verify)
        record |= _pass(step, plan, workers, timed=True)
        if record["seconds"]["verify"] <= VERIFY_AT_MOST * record["seconds"]["total"]:
            break
    if not verify:
        plan = _Plan(settings["cell"]["access"], objects, manifest, step.job["location"], access, workers, True)
        untimed = _pass(step, plan, workers, timed=False)
        record["work"]["checksum"] = untimed["work"]["checksum"]
        record["seconds"]["verify"] = untimed["seconds"]["verify"]
    record["verified"] = "within the timed pass" if verify else "in a pass of its own"
    return record


def workers_of(level: str) -> int:
    """Return the number of workers of a level: "4", or "2x", twice the cores that this process may use."""
    return int(level[:-1]) * host.usable_cores() if level.endswith("x") else int(level)


def sampled(settings: dict, manifest: dict, repeat: int) -> list[str]:
    """Return what a repeat reads: shots or signals, drawn with the run's seed, the same for all arms of the block."""
    access = settings["cell"]["access"]
    wanted, available = settings[f"read_{access}"], manifest[access]
    if isinstance(wanted, list):
        if absent := [name for name in wanted if name not in available]:
            raise Problem(f"read_{access}: {', '.join(absent)} is not in the data, which have {', '.join(available)}")
        return wanted
    if wanted == 0 or wanted >= len(available):
        return list(available)
    return random.Random(f"{settings['seed']} {access} {repeat}").sample(available, wanted)


class _Plan:
    """The batches of each object, and what the manifest says that they must give."""

    def __init__(
        self,
        by: str,
        objects: list[str],
        manifest: dict,
        location: dict,
        access: drivers.Access,
        workers: int,
        verify: bool,
    ) -> None:
        self.by, self.objects, self.access = by, objects, access
        self._manifest, self._location, self._workers, self._verify = manifest, location, workers, verify

    def batches(self, object_id: str) -> list[reader.Batch]:
        """Cut an object into batches: a shot into groups of signals, a signal into groups of shots."""
        pairs = self._pairs(object_id)
        return [
            reader.Batch(number, object_id, self._files(batch), self._units(batch), self.access, self._verify)
            for number, batch in enumerate(dask_workers.batches_of(pairs, self._workers), start=1)
        ]

    def expected(self) -> tuple[int, int, list[str]]:
        """Return the datasets, logical bytes and checksum lines of the manifest for all objects."""
        entries = [
            (object_id, *dataset)
            for object_id in self.objects
            for pair in self._pairs(object_id)
            for dataset in self._entry(pair)["datasets"]
        ]
        return len(entries), sum(entry[2] for entry in entries), [reader.line(*entry) for entry in entries]

    def _pairs(self, object_id: str) -> list[tuple[str, str]]:
        signals = self._manifest["objects"]
        if self.by == "shots":
            return [(object_id, signal) for signal in signals[object_id]]
        return [(shot, object_id) for shot in self._manifest["shots"] if object_id in signals[shot]]

    def _entry(self, pair: tuple[str, str]) -> dict:
        return self._manifest["objects"][pair[0]][pair[1]]

    def _files(self, batch: list[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Group the datasets of a batch by file, each file opened once, in the order of the batch."""
        files: dict[str, list[str]] = {}
        for pair in batch:
            entry = self._entry(pair)
            files.setdefault(entry["file"], []).extend(path for path, _, _ in entry["datasets"])
        return tuple((drivers.address_of(self._location, name), tuple(paths)) for name, paths in files.items())

    def _units(self, batch: list[tuple[str, str]]) -> int:
        return len({shot for shot, _ in batch})


def _pass(step: Step, plan: _Plan, workers: int, *, timed: bool) -> dict:
    """Start the workers, read all objects once, and return seconds, samples, work and effective settings."""
    with dask_workers.cluster(workers) as (cluster, cluster_start):
        empty = [reader.Batch(number, "", (), 0, plan.access, False) for number in range(workers)]
        # The first empty tasks import what the workers need, the second are the harness's own cost.
        cluster.map(reader.nothing, empty)
        null = _null_cost(cluster, plan, empty)
        library = cluster.each(drivers.of(plan.access.driver).versions)
        cluster.each(reader.lines)
        cluster.each(dask_workers.forget_executed)
        if timed:
            step.open_window()
        rows, planning, elapsed = _read_all(cluster, plan)
        executed = cluster.each(dask_workers.executed)
        lines = [line for taken in cluster.each(reader.lines) for line in taken]
        replaced = cluster.replaced()
    if timed:
        step.close_window()
    if replaced:
        raise Problem(f"Dask workers {replaced} were replaced while the cell was measured")
    slowest = _slowest(rows)
    # The clock stops for checksums: those of the slowest task of each object are what the elapsed time has of them.
    stopped = sum(row["verify"] for row in slowest)
    total = elapsed - stopped
    return _accounts(plan, rows, library, sum(executed), lines, workers) | {
        "samples": [_sample(row, plan, rows, workers, total) for row in rows],
        "seconds": {
            "cluster_start": cluster_start,
            "plan": planning,
            "null": null,
            "open": statistics.median(seconds for row in rows for seconds in row["opens"]),
            "first": max(row["first"] for row in rows if row["object_id"] == plan.objects[0]),
            "rest": sum(row["rest"] for row in rows),
            "verify": stopped,
            "gather": total - planning - sum(row["seconds"] for row in slowest),
            "total": total,
        },
    }


def _read_all(cluster: dask_workers.Workers, plan: _Plan) -> tuple[list[dict], float, float]:
    """Read the objects one after the other, as the published study does; returns rows, planning and total seconds."""
    rows: list[dict] = []
    planning = 0.0
    start = time.perf_counter()
    for object_id in plan.objects:
        before = time.perf_counter()
        batches = plan.batches(object_id)
        planning += time.perf_counter() - before
        rows += cluster.map(reader.read, batches)
    return rows, planning, time.perf_counter() - start


def _slowest(rows: list[dict]) -> list[dict]:
    """Return the row of the slowest task of each object, which is what the next object waits for."""
    slowest: dict[str, dict] = {}
    for row in rows:
        slowest_row = slowest.get(row["object_id"])
        if slowest_row is None or row["seconds"] + row["verify"] > slowest_row["seconds"] + slowest_row["verify"]:
            slowest[row["object_id"]] = row
    return list(slowest.values())


def _null_cost(cluster: dask_workers.Workers, plan: _Plan, empty: list[reader.Batch]) -> float:
    """Return the seconds of as many rounds of empty tasks as there are objects (METHOD 13)."""
    start = time.perf_counter()
    for _ in plan.objects:
        cluster.map(reader.nothing, empty)
    return time.perf_counter() - start


def _accounts(
    plan: _Plan, rows: list[dict], library: list[dict], executed: int, lines: list[str], workers: int
) -> dict:
    """Return what was done beside what was asked, and the settings that held (METHOD 9, 10, 12)."""
    datasets, logical, expected = plan.expected()
    facts = [fact for row in rows for fact in row["effective"]]
    differing = [key for key in facts[0] if any(fact[key] != facts[0][key] for fact in facts)]
    if differing:
        raise Problem(f"files were not opened alike: {', '.join(differing)} differ between opens")
    if any(one != library[0] for one in library):
        raise Problem("workers run different libraries")
    tasks = sum(len(plan.batches(object_id)) for object_id in plan.objects)
    busy = min(len(plan.batches(object_id)) for object_id in plan.objects)
    return {
        "work": {
            "tasks_asked": tasks,
            "tasks_done": executed,
            "datasets_asked": datasets,
            "datasets": sum(row["datasets"] for row in rows),
            "logical_bytes_asked": logical,
            "logical_bytes": sum(row["bytes"] for row in rows),
            "checksum_asked": _checksum(expected),
            "checksum": _checksum(lines) if lines else None,
        },
        "effective": {
            **library[0],
            **facts[0],
            "rdcc_nbytes_asked": plan.access.rdcc_nbytes,
            "workers_asked": workers,
            "workers": len(library),
            "idle_workers": workers - busy,
            "usable_cores": host.usable_cores(),
            "oversubscribed": workers > host.usable_cores(),
        },
    }


def _checksum(lines: list[str]) -> str:
    """Return the sha256 over the sorted lines: neither order nor workers matter (METHOD 9)."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _sample(row: dict, plan: _Plan, rows: list[dict], workers: int, total: float) -> dict:
    """Return a row of samples.csv: the published columns first, in their spelling."""
    return {
        "worker#": row["number"],
        "obj-id": row["object_id"],
        "open+read-data-time": row["seconds"],
        "wrkr-num-objs": row["units"],
        "mean-obj-time": row["seconds"] / row["units"],
        "num-dsets": row["datasets"],
        "mean-dset-time": row["seconds"] / row["datasets"],
        "pb-size": plan.access.page_buffer,
        "num-workers": workers,
        "obj-type": plan.by,
        "tot-num-obj": len(plan.objects),
        "total-runtime": total,
        "open-time": sum(row["opens"]),
        "opens": len(row["opens"]),
        "first-dset-time": row["first"],
        "rest-time": row["rest"],
        "bytes": row["bytes"],
        "worker-pid": row["pid"],
    }


if __name__ == "__main__":
    run(main)
