"""Tables of a `particles` run that was never measured: records with times of a formula, gathered as those of a run."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.pages.results import Results
from sbench.studies.particles.methods import METHODS
from sbench.studies.particles.report import results
from sbench.studies.particles.report.results import FACTORS
from sbench.studies.particles.snapshots import AT_MOST, PRESETS
from tests.helpers.records import merge, sealed

USUAL = {
    **{"library": ("h5py",), "store": ("disk",), "driver": ("sec2",), "page_buffer": ("unset",)},
    **{"particles": ("200000", "A", "B"), "chunk": (str(AT_MOST),), "rereads": ("1",), "operation": ("load", "sum")},
    **{
        "selection": ("all",),
        "method": ("serial", "futures", "array"),
        "workers": ("4",),
        "nodes": ("1",),
        "threads": ("2",),
    },
    **{"pool": ("processes",), "memory": ("none",), "cache": ("warm",)},
}
COMPARE = [{"factor": "method", "baseline": "serial"}, {"factor": "driver", "baseline": "sec2"}]
REPEATS = 6
OWN = 300_000  # particles of the user's own files
# Seconds of a chunk in a loop, of a task, and of what else Dask does; a load brings its bytes to the client.
CHUNK, TASK, START, BRING = 0.0024, 0.0004, 0.006, 0.0009


def cells(**levels: tuple[str, ...]) -> list[dict]:
    """Return rows of a matrix: all combinations of USUAL with some replaced."""
    chosen = USUAL | levels
    return [_row(dict(zip(FACTORS, one, strict=True))) for one in itertools.product(*(chosen[f] for f in FACTORS))]


def laptop() -> list[dict]:
    """Return a run of sizes, methods, workers and re-reads, a twin, and what cannot exist."""
    found = cells()
    found += cells(particles=("B",), operation=("sum",), method=("futures",), workers=("1", "2"), threads=("1", "2"))
    found += cells(particles=("B",), rereads=("10",), operation=("sum",), method=("serial", "futures", "futures-pure"))
    found += cells(particles=("B",), operation=("sum",), method=("serial", "futures"), driver=("parquet",))
    found += cells(particles=("A",), operation=("sum",), method=("delayed", "yt-delayed"))
    found += cells(particles=("B",), rereads=("10",), operation=("sum",), method=("array",), memory=("1GiB",))
    return [*found, _row({f: found[0][f] for f in FACTORS}, found[0]["cell"])]


def build(folder: Path, rows: list[dict] | None = None, iterations: int = 4, broken: bool = False) -> Path:
    """Write records, all failed if `broken`, gather them into tables, and write facts.json; return the folder."""
    rows, random, readers = rows or laptop(), np.random.default_rng(1), []
    for repeat, block in enumerate(np.exp(random.normal(0, 0.04, REPEATS)), 1):
        for row in rows:
            path = folder / "records" / row["cell"] / f"repeat={repeat}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            record = _record(row, repeat, iterations, block, random)
            if broken:
                record |= {"status": "failed", "valid": False, "reasons": ["no room"]}
                del record["samples"], record["seconds"], record["effective"]
            path.write_text(sealed(record), encoding="utf-8")
            readers.append({"cell": row["cell"], "repeat": repeat, "effective": record.get("effective", {})})
    left_out = _row({f: USUAL[f][0] for f in FACTORS} | {"method": "chunkwise"})
    left_out |= {"cell": "", "omitted": "chunkwise does not load; use operation sum, moments or histogram"}
    pd.DataFrame([*rows, left_out]).to_csv(folder / "matrix.csv", index=False)
    merge(folder, ".", "particles", compare=COMPARE)
    (folder / "facts.json").write_text(json.dumps(facts() | {"readers": readers}), encoding="utf-8")
    return folder


def load(folder: Path) -> Results:
    """Return the results of tables that `build` wrote."""
    return results.load_results(folder, folder / "facts.json")


def facts() -> dict:
    """Return what the workflow tells the report beside the tables."""
    return {
        "run": "laptop",
        "study": "particles",
        "question": "Which way of loading and reducing chunks of particles is fastest, and from which size on does "
        "Dask win?",
        "equivalence_percent": 5,
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 4, "ram_bytes": 24 * 2**30, "kernel": "6.1.0-18-amd64"},
        "libraries": {"h5py": {"kind": "wheel", "hdf5": "2.0.0"}},
        "stores": {"disk": {"kind": "posix"}},
        "code": ["a" * 64],
        "git": ["b" * 40],
        "sessions": ["one"],
    }


def particles_of(row: dict) -> int:
    """Return the particles of a cell's snapshot."""
    if row["particles"] == "own":
        return OWN
    return PRESETS[row["particles"]][0] if row["particles"] in PRESETS else int(row["particles"])


def seconds(row: dict) -> float:
    """Return what an iteration of a cell takes without noise."""
    listed = _listed(row)
    read = _distinct(row) if row["method"] == "futures-pure" else listed
    read *= 0.7 if row["driver"] == "parquet" else 1
    listed *= 5 if row["method"] == "yt-delayed" else 1
    bring = BRING * listed if row["operation"] == "load" else 0
    if not METHODS[row["method"]].dask:
        return CHUNK * read + 0.3 * bring
    workers = int(row["workers"]) * (1.5 if row["method"] == "futures" else 1)
    return START * (3 if row["method"] == "array" else 1) + TASK * listed + CHUNK * read / workers + bring


def _distinct(row: dict) -> int:
    return -(-particles_of(row) // AT_MOST)


def _listed(row: dict) -> int:
    return _distinct(row) * int(row["rereads"])


def _row(levels: dict, twin_of: str = "") -> dict:
    control = "twin" if twin_of else ""
    name = "_".join([*(levels[f] for f in FACTORS), *([control] if control else [])])
    return {"cell": name, **levels, "control": control, "omitted": "", "twin_of": twin_of}


def _record(row: dict, repeat: int, iterations: int, block: float, random: np.random.Generator) -> dict:
    times = seconds(row) * block * np.exp(random.normal(0, 0.02, iterations)) * ([1.3] + [1.0] * (iterations - 1))
    dask, listed = METHODS[row["method"]].dask, _listed(row)
    read = _distinct(row) if row["method"] == "futures-pure" else listed
    workers = int(row["workers"]) if dask else 1
    # The first worker gets what does not divide.
    shares = [len(range(number, read, workers)) for number in range(workers)]
    samples = [
        {
            **{"iteration": iteration, "number": number, "iteration_s": float(time), "chunks": share},
            **{"read_s": CHUNK * share * block, "longest_s": 1.2 * CHUNK, "bytes": 8 * AT_MOST * share},
            **{
                "worker-pid": 100 + number,
                "listed": listed,
                "particles_listed": particles_of(row) * int(row["rereads"]),
                "empty_s": START * dask + TASK * listed * dask + 1e-5,
            },
        }
        for iteration, time in enumerate(times, 1)
        for number, share in enumerate(filter(None, shares), 1)
    ]
    return {
        **{"record": 1, "status": "done", "study": "particles", "run": "synthetic", "name": row["cell"]},
        "cell": {factor: row[factor] for factor in (*FACTORS, "control")},
        "repeat": repeat,
        "seconds": {
            **{"total": float(times[1:].sum()), "first": float(times[0]), "chunk": CHUNK * block},
            **{"null": 1e-6 * listed, "cluster_start": 1.1},
            **({"prepare": 0.02 * _distinct(row) * block} if row["driver"] == "parquet" else {}),
        },
        "samples": samples,
        "work": {
            **{"tasks_asked": iterations * read, "tasks_done": iterations * read, "chunks_listed": iterations * listed},
            **{"logical_bytes": 8 * AT_MOST * read, "timed_bytes": 8 * AT_MOST * read},
        },
        "cache": {"asked": row["cache"], "state": row["cache"], "resident_before": 1.0, "resident_after": 1.0},
        "requests": {},
        "effective": {
            **{"hdf5": "2.0.0", "driver": row["driver"], "workers": int(row["workers"]), "readers": len(shares)},
            **{
                "usable_cores": 4,
                "oversubscribed": True,
                "idle_workers": shares.count(0),
                "task_bytes": (1200 if row["method"] == "yt-delayed" else 400) * dask,
            },
            **{"moved_bytes": 8 * AT_MOST * read * dask, "client_peak_bytes": 2**27, "worker_peak_bytes": 2**26},
            "read_bytes": 4 * particles_of(row) * (0.8 if row["driver"] == "parquet" else 1),
        },
        "host": {"node": "bench", "cpu": "AMD EPYC 7B13"},
        "provenance": {"code_sha256": "a" * 64, "data_sha256": row["particles"], "lock_sha256": "c" * 64},
        **{"session": "one", "valid": True, "reasons": []},
    }
