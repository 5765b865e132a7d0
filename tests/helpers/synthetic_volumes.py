"""Synthetic runs of `volumes`: latencies around a limit, with changes, short and lost batteries, all drawn."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbench.design.records import Kept
from sbench.measure import tables as written
from sbench.studies.volumes import series, tables
from sbench.studies.volumes.report import batteries
from tests.helpers import volumes_records as records

LIMIT_MS = 10.0
OPERATIONS = 1_200
# Of a median of lognormal latencies: their p99.
P99 = float(np.exp(0.5 * 2.3263))
STORES = ("gp2", "gp3", "disk", "io2")


@dataclass(frozen=True)
class Synthetic:
    """A drawn run: what the page reads, and the latencies (ms) of the valid jobs, by volume and battery, in order."""

    run: batteries.Results
    latencies: dict[str, dict[int, list[np.ndarray]]]


def draw(seed: int, folder: Path) -> Synthetic:
    """Return a run of one to four volumes in 1 to 7 batteries each, and leave its tables in a folder."""
    random = np.random.default_rng([seed, 5])
    stores = STORES[: int(random.integers(1, len(STORES) + 1))]
    many, jobs = int(random.choice([1, 2, 3, 6, 7])), int(random.choice([5, 12, 22]))
    kept, latencies, cells = [], {}, {}
    for store in stores:
        # A third of the volumes lie close to the limit.
        near = random.random() < 0.33
        level = LIMIT_MS * float(np.exp(random.normal(0, 0.08 if near else 0.8)))
        falls = int(random.integers(3, jobs)) if random.random() < 0.3 else jobs
        rise, between = float(random.choice([1.3, 4.0])), float(random.choice([0.01, 0.1]))
        for repeat in range(1, many + 1):
            own = level * float(np.exp(random.normal(0, between))) / P99
            medians = own * np.where(np.arange(jobs) < falls, 1, rise) * random.lognormal(0, 0.03, jobs)
            drawn = [median * random.lognormal(0, 0.5, OPERATIONS) for median in medians]
            is_valid = random.random() > 0.07
            record = _record(store, drawn, repeat, is_valid, int(random.integers(100)))
            cells[store] = record["cell"]
            name = records.name_of(record["cell"])
            kept.append(Kept(name, record["cell"], repeat, folder / name, record))
            if is_valid:
                latencies.setdefault(store, {})[repeat] = drawn
    compare = [{"factor": "store", "baseline": stores[0]}]
    _write(folder, cells, kept, {"limits": ["etcd"], "compare": compare, "equivalence_percent": 5, "seed": 1})
    facts = {"run": "synthetic", "study": "volumes", "settings": {"compare": compare}, "batteries": [{"position": 1}]}
    run = batteries.load_results(folder)
    run.facts.update(facts)
    return Synthetic(run, latencies)


def _record(store: str, drawn: list[np.ndarray], repeat: int, is_valid: bool, position: int) -> dict:
    samples, bins, started = [], {}, 0.0
    for number, ms in enumerate(drawn, 1):
        nanoseconds = np.round(1e6 * ms)
        samples.append(records.sample(nanoseconds, number, started, device_write_ios=len(ms)))
        bins[records.job_id(number)] = {"sync": records.fio_bins(nanoseconds).tolist()}
        started += samples[-1]["runtime_s"] + 10
    wrong = {} if is_valid else {"valid": False, "reasons": ["drawn"]}
    return records.record(store, samples, bins, repeat=repeat, session="one", position=position, **wrong)


def _write(folder: Path, cells: dict[str, dict], kept: list[Kept], settings: dict) -> None:
    matrix = series.pd.DataFrame(
        [{"cell": records.name_of(cell), **cell, "twin_of": "", "omitted": ""} for cell in cells.values()]
    )
    for name, table in tables.build_tables(series.build_series(matrix, kept, {}, {}), settings).items():
        written.write_table(table, folder / f"{name}.csv", digits=12)
