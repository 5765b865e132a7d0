"""Tables of a `blobs` run that was never measured: records with times of a formula, gathered as those of a run."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design.records import Kept
from sbench.pages.results import Results
from sbench.probe import sizes
from sbench.studies.blobs.patterns import FROM_ONE, WHOLE
from sbench.studies.blobs.report import results
from sbench.studies.blobs.report.results import FACTORS
from sbench.studies.blobs.study import STUDY
from tests.helpers.records import merge, sealed

MIB = 2**20
SIZES = ("1MiB", "4MiB", "16MiB", "64MiB")
USUAL = {
    "store": ("disk", "s3", "azure"),
    "pattern": ("single-file",),
    "size": SIZES,
    "processes": ("4",),
    "nodes": ("1",),
    "objects": ("shared",),
    "operation_size": ("1GiB",),
    "chunk_size": ("4MiB",),
    "concurrency": ("1",),
    "cache": ("cold",),
}
# A store's seconds: what an iteration takes whatever its size, and MiB/s of all processes together. The disk is faster
# up to 4 MiB a process and S3 from 16 MiB on; Azure is slower than both.
OVERHEAD = {"disk": 0.001, "s3": 0.060, "azure": 0.120}
RATE = {"disk": 400.0, "s3": 1500.0, "azure": 300.0}
CEILING = {"disk": 450.0, "s3": 2400.0, "azure": 310.0}
COMPARE = (
    ("store", "disk"),
    *(("pattern", baseline) for baseline in ("single-file", "sections")),
    ("chunk_size", "4MiB"),
    ("concurrency", "1"),
)


def cells(**levels: tuple[str, ...]) -> list[dict]:
    """Return rows of a matrix: all combinations of USUAL with some replaced."""
    chosen = USUAL | levels
    return [_row(dict(zip(FACTORS, one, strict=True))) for one in itertools.product(*(chosen[f] for f in FACTORS))]


def laptop() -> list[dict]:
    """Return a run like the default one: patterns, processes, chunks and MPI-IO, two twins, what cannot exist."""
    found = cells(pattern=("single-file", "multiple-files", "broadcast"))
    found += cells(pattern=("sections", "scatter"), size=("64MiB",))
    found += cells(pattern=("multiple-files",), size=("16MiB",), processes=("1", "2"))
    found += cells(pattern=("multiple-files",), size=("16MiB",), chunk_size=("1MiB", "16MiB"))
    found += cells(store=("s3", "azure"), pattern=("multiple-files",), size=("16MiB",), concurrency=("4",))
    found += cells(store=("disk",), pattern=("single-file",), cache=("warm",))
    found += cells(store=("disk",), pattern=("mpi-io", "mpi-io-collective"), size=("64MiB",))
    found += cells(store=("s3",), pattern=("sections",), size=("64MiB",), objects=("own",))
    return [*found, _row({f: found[0][f] for f in FACTORS}, found[0]["cell"])]


def build(
    folder: Path,
    rows: list[dict] | None = None,
    repeats: int = 6,
    iterations: int = 5,
    seed: int = 1,
    compare: tuple[tuple[str, str], ...] = COMPARE,
    change: Callable[[dict], dict] = lambda record: record,
) -> Path:
    """Write records, gather them into tables, and write facts.json; return the folder of the tables.

    Args:
        folder: where to write.
        rows: of the matrix (default: those of `laptop`).
        repeats: blocks, each slower or faster as a whole.
        iterations: of a record.
        seed: of the noise.
        compare: (factor, baseline) of the comparisons.
        change: what to do to a record before it is written, to plant a fault; None leaves it out.
    """
    rows = rows or laptop()
    random = np.random.default_rng(seed)
    named, kept = folder / "records", []
    for repeat, block in enumerate(np.exp(random.normal(0, 0.04, repeats)), 1):
        for row in rows:
            record = change(_record(row, repeat, iterations, block, random))
            if record is None:
                continue
            path = named / row["cell"] / f"repeat={repeat}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sealed(record), encoding="utf-8")
            kept.append(Kept(row["cell"], row, repeat, path, record))
    left_out = _row({f: USUAL[f][0] for f in FACTORS} | {"store": "s3", "pattern": "mpi-io"})
    left_out |= {"cell": "", "omitted": "MPI-IO reads files, not stores of kind s3"}
    pd.DataFrame([*rows, left_out]).to_csv(folder / "matrix.csv", index=False)
    levels = {factor: {row[factor] for row in rows} for factor in FACTORS}
    gather(folder, [{"factor": factor, "baseline": base} for factor, base in compare if base in levels[factor]])
    told = facts() | STUDY.build_facts({}, kept, {}, {"studies": {"blobs": {}}})
    (folder / "facts.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def gather(folder: Path, compare: Sequence[dict] = ()) -> None:
    """Run the program on a run."""
    merge(folder, ".", "blobs", compare=compare)


def load(folder: Path) -> Results:
    """Return the results of tables that `build` wrote."""
    return results.load_results(folder, folder / "facts.json")


def spoiled(store: str, **parts: object) -> Callable[[dict], dict]:
    """Return a change of all records of a store, to plant a fault."""
    return lambda record: record | parts if record["cell"]["store"] == store else record


def facts() -> dict:
    """Return what the workflow tells the report beside the tables."""
    return {
        "run": "laptop",
        "study": "blobs",
        "question": "Which input pattern and which store feed a parallel program fastest, and from which size on?",
        "equivalence_percent": 5,
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 2, "ram_bytes": 24 * 2**30, "kernel": "6.1.0-18-amd64"},
        "stores": {
            "disk": {"kind": "posix"},
            "s3": {"kind": "s3", "server": "embedded"},
            "azure": {"kind": "azure-blob", "server": "embedded"},
        },
        "limits": ["s3: an S3 server on the loopback of the same machine; no TLS; not a verdict on AWS"],
        "code": ["a" * 64],
        "git": ["b" * 40],
        "sessions": ["one"],
        "failed_attempts": [{"attempt": "1", "what": "blobs/x.json", "reasons": ["process 1 was <killed> (signal 9)"]}],
    }


def delivered(row: dict) -> int:
    """Return the bytes that all processes of a cell get in one iteration."""
    size = sizes.parse_size(row["size"])
    return size * int(row["processes"]) if row["pattern"] in WHOLE else size


def seconds(row: dict) -> float:
    """Return what an iteration of a cell takes without noise."""
    processes = int(row["processes"])
    # Two processes deliver nearly twice what one does, four no more than two.
    rate = RATE[row["store"]] * {1: 0.5, 2: 0.95}.get(processes, 1.0)
    rate *= {"1MiB": 0.6, "16MiB": 1.15}.get(row["chunk_size"], 1.0) * (1.5 if row["concurrency"] == "4" else 1.0)
    rate *= 8.0 if row["cache"] == "warm" else 1.0
    rate *= {"multiple-files": 1.01, "broadcast": 1.9, "scatter": 0.7, "mpi-io-collective": 0.8}.get(row["pattern"], 1)
    return OVERHEAD[row["store"]] + delivered(row) / MIB / rate


def _row(levels: dict, twin_of: str = "") -> dict:
    control = "twin" if twin_of else ""
    name = "_".join([*(levels[f] for f in FACTORS if f != "nodes"), *([control] if control else [])])
    return {"cell": name, **levels, "control": control, "omitted": "", "twin_of": twin_of}


def _round(phase: str, number: int, latency: float, bytes_: int) -> dict:
    return {
        **{"iteration": number, "phase": phase, "latency_s": latency, "first_done_s": None, "bytes": bytes_},
        **{"rank_s": "", "resident_before": 0.0, "retries": None},
    }


def _record(row: dict, repeat: int, iterations: int, block: float, random: np.random.Generator) -> dict:
    processes, size, bytes_ = int(row["processes"]), sizes.parse_size(row["size"]), delivered(row)
    latencies = seconds(row) * block * np.exp(random.normal(0, 0.02, iterations))
    # The first iteration of an object store opens its connections.
    latencies[0] *= 1.0 if row["store"] == "disk" else 1.8
    samples = [_read(number, latency, row, random) for number, latency in enumerate(latencies, 1)]
    rounds = bytes_ / MIB / CEILING[row["store"]] / (8 if row["cache"] == "warm" else 1) * block
    samples += [_round("ceiling", number, float(rounds * np.exp(random.normal(0, 0.02))), bytes_) for number in (1, 2)]
    if row["pattern"] in FROM_ONE:
        # Rank 0 reads for four fifths of the time; MPI alone takes half of the rest.
        samples = [one | ({"read_s": 0.8 * one["latency_s"]} if one["phase"] == "read" else {}) for one in samples]
        samples += [_round("distribution", number, float(0.1 * np.median(latencies)), bytes_) for number in (1, 2)]
    s3 = row["store"] != "disk"
    count = iterations * max(1, bytes_ // sizes.parse_size(row["chunk_size"]))
    asked = {"count": count, "bytes_offered": bytes_ * iterations, "bytes_delivered": None}
    later = latencies[1:] if iterations > 1 else latencies
    return {
        "record": 1,
        "status": "done",
        "study": "blobs",
        "run": "synthetic",
        "name": row["cell"],
        "cell": {factor: row[factor] for factor in (*FACTORS, "control")},
        "repeat": repeat,
        "seconds": {
            "total": float(later.sum()),
            "first": float(latencies[0]),
            "latency": float(np.median(later)),
            "ranks_start": 0.4,
            "first_broadcast": 0.002,
            "null": 0.0004 * iterations,
            "verify": 0.05,
        },
        "samples": samples,
        "work": {
            "tasks_asked": iterations * processes,
            "tasks_done": iterations * processes,
            "logical_bytes_asked": iterations * bytes_,
            "logical_bytes": iterations * bytes_,
            "timed_bytes": len(later) * bytes_,
        },
        "cache": {"asked": row["cache"], "state": row["cache"], "resident_before": 0.0, "resident_after": 1.0},
        "requests": {"GET": asked} if s3 else {},
        "effective": {
            "processes": processes,
            "hosts": [{"name": "bench", "processes": processes}],
            "usable_cores": 2,
            "oversubscribed": processes > 2,
            "idle_processes": 0,
            "mpi": "MPICH 5.0.2",
            "launcher": "mpiexec.gforker",
            "client": {"disk": "pread", "s3": "boto3 1.44.5", "azure": "azure-storage-blob 12.31.1"}[row["store"]],
            "object_bytes": size,
            "block_bytes": 4096,
            "chunk_bytes": sizes.parse_size(row["chunk_size"]),
            "concurrency": int(row["concurrency"]),
            "operation_bytes": sizes.parse_size(row["operation_size"]),
            "operations": 1,
            "verified": "after every iteration",
            "direct": False,
            "stripe": None,
            "mpi_io_hints": {"romio_cb_read": "automatic"} if row["pattern"].startswith("mpi-io") else None,
        },
        "memory": {
            "allowed_bytes": 2**30 + 64 * MIB,
            "ranks": [{"start_bytes": 90 * MIB, "peak_bytes": 90 * MIB + size + 3 * MIB}] * processes,
            "growth_bytes": size + 3 * MIB,
        },
        "retries": int(row["store"] == "azure" and repeat == 2),
        "attempts": count,
        "verified": "after every iteration",
        "faults": [],
        "ceiling": {"processes": processes, "threads": processes, "requests": processes} | {"problem": None},
        "host": {"cpu": "AMD EPYC 7B13", "affinity": [0, 1], "kernel": "6.1.0-18-amd64"},
        "provenance": {"code_sha256": "a" * 64, "data_sha256": row["size"], "lock_sha256": "c" * 64},
        "valid": True,
        "reasons": [],
    }


def _read(number: int, latency: float, row: dict, random: np.random.Generator) -> dict:
    ranks = np.sort(latency * (1 - 0.15 * random.random(int(row["processes"]))))
    ranks[-1] = latency
    return {
        "iteration": number,
        "phase": "read",
        "latency_s": float(latency),
        "first_done_s": float(ranks[0]),
        "bytes": delivered(row),
        "rank_s": " ".join(f"{value:.6f}" for value in ranks),
        "resident_before": 0.0 if row["cache"] == "cold" else 1.0,
        "retries": 0,
    }
