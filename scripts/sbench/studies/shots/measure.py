"""Measure one cell of the shots study once: read shots or signals from HDF5 files with Dask workers.

scripts/step.py starts this program with the Python interpreter of the library under test; see
sbench.probe.conversation.
"""

import argparse
import hashlib
import random
import statistics
import time
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from sbench import drivers
from sbench.probe import dask_workers, host, slowed
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, Unable, read_json, run_main
from sbench.studies.shots import order, selection, tasks
from sbench.studies.shots.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Measure the cell that the parent process describes on standard input, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return run_measurement(measure_cell)


def measure_cell(step: Step) -> dict:
    """Measure a cell (a configuration), and return the part of its record that results from the measurement."""
    dask_workers.start_forkserver()
    settings, manifest = read_fields(Settings, step.job["settings"]), read_json(step.job["manifest"])
    cell = settings.cell
    buffer = drivers.parse_page_buffer(cell.page_buffer)
    nbytes, slots = drivers.parse_chunk_cache(cell.chunk_cache, settings.rdcc_nbytes)
    access = drivers.Access(cell.driver, buffer, nbytes, settings.store, cell.read_cache, rdcc_nslots=slots)
    objects = select_objects(settings, manifest, step.job["repeat"])
    workers = count_workers(cell.workers)
    plan = _Plan(cell.access, objects, manifest, step.job["location"], access, workers, cell.control)
    nodes, files = int(cell.nodes), [Path(file) for file in step.job["local_files"]]
    record: dict = {"read": objects}
    driver = drivers.get_driver(access.driver)
    _expect_followed(driver, access.driver, manifest, step.job["location"])
    if isinstance(driver, drivers.Indexed):
        access = replace(access, index=str(Path(step.job["scratch"], "index")))
        plan = replace(plan, access=access)
        record["index"] = _make_index(step, driver, plan)
    with dask_workers.start_cluster(workers, nodes=nodes, folder=step.job["scratch"]) as (cluster, cluster_start):
        null, library = (
            _measure_empty_tasks(cluster, plan),
            cluster.run_on_each(drivers.get_driver(access.driver).list_versions),
        )
        if nodes > 1:
            record |= cluster.prepare_nodes(cell.cache, files)
        step.open_window(sets_cache=nodes > 1)
        # Whether checksums are computed in the timed pass depends only on the store, so that all cells of a comparison
        # time the same work (METHOD 9).
        record |= _measure_pass(cluster, plan, library, verify=step.job["far"])
        step.close_window()
        if nodes > 1:
            record["cache"]["resident_after"] = cluster.measure_resident(files)
        record["files"] = cluster.list_loaded_libraries()
        if not step.job["far"]:
            untimed = _measure_pass(cluster, replace(plan, control=""), library, verify=True)
            record["work"]["checksum"] = untimed["work"]["checksum"]
            record["seconds"]["verify"] = untimed["seconds"]["verify"]
        replaced = cluster.list_replaced()
    if replaced:
        raise Problem(f"Dask replaced workers {replaced} during the measurement")
    record["seconds"] |= {"cluster_start": cluster_start, "null": null}
    if "index" in record:
        record["seconds"]["index"] = record["index"].pop("seconds")
    return record | {"verified": "within the timed pass" if step.job["far"] else "in a separate pass"}


def count_workers(level: str) -> int:
    """Convert a level of the factor `workers` to a number: "4", or "2x" for twice the number of usable cores."""
    return int(level[:-1]) * host.count_usable_cores() if level.endswith("x") else int(level)


def select_objects(settings: Settings, manifest: dict, repeat: int) -> list[str]:
    """Select the objects to read in a repeat.

    A random selection depends only on the run's seed, the access and the repeat, so that all cells of a block read the
    same objects.
    """
    access = settings.cell.access
    wanted = getattr(settings, f"read_{access}")
    # The key "files" of a manifest describes stored files; "objects" is keyed by file.
    available = list(manifest["objects" if access == "files" else access])
    if isinstance(wanted, list):
        if absent := [name for name in wanted if name not in available]:
            raise Problem(f"read_{access}: the data lack {', '.join(absent)} (available: {', '.join(available)})")
        return wanted
    if wanted == 0 or wanted >= len(available):
        return available
    return random.Random(f"{settings.seed} {access} {repeat}").sample(available, wanted)


@dataclass(frozen=True)
class _Plan:
    """The plan of a measurement: the objects to read, their batches (one per task) and the expected checksums."""

    by: str
    objects: list[str]
    manifest: dict
    location: dict
    access: drivers.Access
    workers: int
    control: str

    def build_batches(self, object_id: str, verify: bool) -> list[tasks.Batch]:
        """Split an object into batches: a shot by its signals, a signal by its shots.

        Each batch opens a file at most once.
        """
        batches = []
        for pairs in dask_workers.split_into_batches(self._list_pairs(object_id), self.workers):
            files: dict[str, list[str]] = {}
            for shot, signal in pairs:
                entry = self.manifest["objects"][shot][signal]
                files.setdefault(entry["file"], []).extend(
                    (path, _parse_place(where)) for path, _, _, *where in entry["datasets"]
                )
            paths = tuple((drivers.build_address(self.location, name), tuple(paths)) for name, paths in files.items())
            units = len({shot for shot, _ in pairs})
            number = len(batches) + 1
            batches.append(tasks.Batch(number, object_id, paths, units, self.access, verify, self.control))
        return batches

    def list_addresses(self) -> list[str]:
        pairs = [pair for object_id in self.objects for pair in self._list_pairs(object_id)]
        names = dict.fromkeys(self.manifest["objects"][shot][signal]["file"] for shot, signal in pairs)
        return [drivers.build_address(self.location, name) for name in names]

    def list_expected(self) -> list[tuple]:
        """Look up all planned reads in the manifest, and return (object, path, bytes, crc32) for each.

        For a read of a part of a dataset, the tuple also contains the part.
        """
        return [
            (object_id, *dataset)
            for object_id in self.objects
            for shot, signal in self._list_pairs(object_id)
            for dataset in self.manifest["objects"][shot][signal]["datasets"]
        ]

    def count_stored_bytes(self) -> int | None:
        """Return the total size in the files of all data that the batches read, or None if it is unknown.

        A dataset counts once per batch, even if several signals share it as a scale. The number is unknown for drivers
        whose index may contain values.
        """
        if getattr(drivers.get_driver(self.access.driver), "inlines", False):
            return None
        total = 0
        for object_id in self.objects:
            for pairs in dask_workers.split_into_batches(self._list_pairs(object_id), self.workers):
                entries = [self.manifest["objects"][shot][signal] for shot, signal in pairs]
                if not all("stored_bytes" in entry for entry in entries):
                    return None
                held = {
                    (entry["file"], path, _parse_place(where)): size
                    for entry in entries
                    for (path, _, _, *where), size in zip(entry["datasets"], entry["stored_bytes"], strict=True)
                }
                total += sum(held.values())
        return total

    def _list_pairs(self, object_id: str) -> list[tuple[str, str]]:
        return order.list_pairs(self.manifest, self.by, object_id)


def _parse_place(where: list) -> selection.Place | str:
    """Parse the selected part in a line of the manifest. () is the whole dataset, and "walk" the whole file tree."""
    return where[0] if where == [selection.WALK] else tuple(tuple(span) for span in (where[0] if where else ()))


def _expect_followed(driver: drivers.Driver, name: str, manifest: dict, location: dict) -> None:
    """Raise Unable if a driver does not support a dataset in the manifest, whether or not this repeat reads it."""
    folder = location.get("folder")
    in_place = folder and all(file.get("path") == str(Path(folder, file["name"])) for file in manifest["files"])
    for file, held in manifest["objects"].items():
        for path, entry in held.items():
            need = entry.get("needs")
            if need and not (
                driver.supports_need(need, drivers.build_address(location, file))
                and (in_place or need != drivers.IN_PLACE)
            ):
                raise Unable(f"driver {name} does not read {need}: {path} of {file}")


def _make_index(step: Step, driver: drivers.Indexed, plan: "_Plan") -> dict:
    """Index the files to read. The requests for it are counted separately.

    Returns:
        {"seconds", "bytes", "requests"}: the time, the size of the index, and the requests by HTTP method.
    """
    folder = Path(plan.access.index)
    folder.mkdir()
    driver.list_versions()
    addresses = plan.list_addresses()
    step.open_window()
    start = time.perf_counter()
    driver.index(addresses, plan.access, folder)
    seconds = time.perf_counter() - start
    requests = step.close_window()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"seconds": seconds, "bytes": size, "requests": requests}


def _measure_empty_tasks(cluster: dask_workers.Workers, plan: _Plan) -> float:
    """Return the seconds that empty tasks take, with as many rounds as there are objects.

    An untimed round comes first, in which the workers import modules.
    """
    empty = [tasks.Batch(number, "", (), 0, plan.access, False) for number in range(plan.workers)]
    cluster.run_batches(tasks.do_nothing, empty)
    start = time.perf_counter()
    for _ in plan.objects:
        cluster.run_batches(tasks.do_nothing, empty)
    return time.perf_counter() - start


def _measure_pass(cluster: dask_workers.Workers, plan: _Plan, library: list[dict], *, verify: bool) -> dict:
    """Read all objects once, one after another as in the published study.

    Args:
        cluster: the Dask workers.
        plan: the objects and their batches.
        library: the versions that each worker reports.
        verify: whether to compute checksums of all values, with the clock stopped.

    Returns:
        A part of the record: samples, seconds, work and effective settings.
    """
    executed = sum(cluster.run_on_each(dask_workers.count_executed))
    rows, planning, counts = [], 0.0, []
    start = time.perf_counter()
    for object_id in plan.objects:
        before = time.perf_counter()
        batches = plan.build_batches(object_id, verify)
        planning += time.perf_counter() - before
        counts.append(len(batches))
        rows += cluster.run_batches(tasks.read_batch, batches)
    elapsed = time.perf_counter() - start
    executed = sum(cluster.run_on_each(dask_workers.count_executed)) - executed
    cores = cluster.count_usable_cores()
    lines = [line for taken in cluster.run_on_each(tasks.fetch_lines) for line in taken]
    # The next object waits for the slowest task, so the elapsed time includes the time for checksums of that task.
    by_object = groupby(rows, key=itemgetter("object_id"))
    slowest = [max(group, key=lambda row: row["seconds"] + row["verify"]) for _, group in by_object]
    stopped = sum(row["verify"] for row in slowest)
    total = elapsed - stopped
    expected = plan.list_expected()
    return {
        "samples": [_build_sample(row, plan, total) for row in rows],
        "seconds": {
            "plan": planning,
            "open": statistics.median(seconds for row in rows for seconds in row["opens"]),
            "first": max(row["first"] for row in rows if row["object_id"] == plan.objects[0]),
            "rest": sum(row["rest"] for row in rows),
            "verify": stopped,
            "gather": total - planning - sum(row["seconds"] for row in slowest),
            "total": total,
        },
        "work": {
            "tasks_asked": sum(counts),
            "tasks_done": executed,
            "datasets_asked": len(expected),
            "datasets": sum(row["datasets"] for row in rows),
            "logical_bytes_asked": sum(nbytes for _, _, nbytes, *_ in expected),
            "logical_bytes": sum(row["bytes"] for row in rows),
            "stored_bytes": plan.count_stored_bytes(),
            "checksum_asked": _compute_checksum([tasks.format_line(*dataset) for dataset in expected]),
            "checksum": _compute_checksum(lines) if lines else None,
            # As with checksums, the total includes the planted waits of the slowest tasks.
            **slowed.report_waited(plan.control, sum(row["waited"] for row in slowest)),
        },
        "effective": {
            **_merge_effective(library, [fact for row in rows for fact in row["effective"]]),
            "rdcc_nbytes_asked": plan.access.rdcc_nbytes,
            "rdcc_nslots_asked": plan.access.rdcc_nslots,
            "workers_asked": plan.workers,
            "workers": len(library),
            "idle_workers": plan.workers - min(counts),
            "ran_on": cluster.nodes,
            "usable_cores": cores,
            "oversubscribed": plan.workers > cores,
        },
    }


def _merge_effective(library: list[dict], facts: list[dict]) -> dict:
    """Merge the versions from all workers and the settings of all files (METHOD 10); raise Problem if they differ."""
    differing = {key for key in facts[0] if any(fact[key] != facts[0][key] for fact in facts)}
    if opened := sorted(differing - {"paged", "page_size"}):
        raise Problem(f"files were opened with different settings: {', '.join(opened)} differ between opens")
    if any(one != library[0] for one in library):
        raise Problem("workers run different libraries")
    # User files may differ in `paged` and `page_size`, which are None then.
    return library[0] | facts[0] | dict.fromkeys(differing)


def _compute_checksum(lines: list[str]) -> str:
    """Return the SHA-256 of the sorted lines, so that it does not depend on the order of reads (METHOD 9)."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _build_sample(row: dict, plan: _Plan, total: float) -> dict:
    """Build a row of samples.csv, with the columns of the published study first, under their original names."""
    return {
        "worker#": row["number"],
        "obj-id": row["object_id"],
        "open+read-data-time": row["seconds"],
        "wrkr-num-objs": row["units"],
        "mean-obj-time": row["seconds"] / row["units"],
        "num-dsets": row["datasets"],
        "mean-dset-time": row["seconds"] / row["datasets"],
        "pb-size": plan.access.page_buffer,
        "num-workers": plan.workers,
        "obj-type": plan.by,
        "tot-num-obj": len(plan.objects),
        "total-runtime": total,
        "open-time": sum(row["opens"]),
        "opens": len(row["opens"]),
        "first-dset-time": row["first"],
        "rest-time": row["rest"],
        "bytes": row["bytes"],
        "cpu-time": row["cpu"],
        "worker-pid": row["pid"],
    }


if __name__ == "__main__":
    run_main(main)
