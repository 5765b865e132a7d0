"""Tables of an `arrays` run that was never measured: records with times of a formula, gathered as those of a run."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.measure import gather
from sbench.pages.results import Results
from sbench.probe import sizes, slowed
from sbench.studies.arrays import pieces
from sbench.studies.arrays.report import results
from sbench.studies.arrays.report.results import FACTORS
from sbench.studies.arrays.study import STUDY
from tests.helpers import arrays_trials
from tests.helpers.records import failed, merge, sealed

USUAL = {
    **{"library": ("arrays",), "store": ("disk",), "backend": ("library", "hsds", "zarr"), "operation": ("write",)},
    **{"shape": ("12000x2200",), "chunks": ("1500x275",), "compression": ("none",), "values": ("formula",)},
    **{"access": ("whole",), "protocol": ("client",), "nodes": ("1",), "request_limit": ("100MiB",)},
    **{"streaming": ("on",), "clients": ("1",), "concurrency": ("unset",), "cache": ("any",)},
}
READ = {"operation": ("read",), "cache": ("cold",)}
SERVICE = {"backend": ("hsds",)}
ELSEWHERE = {"backend": ("hsds", "zarr")}
COMPARE = [
    {"factor": "backend", "baseline": "library"},
    {"factor": "library", "baseline": "hdf5-1.14.6"},
    {"factor": "compression", "baseline": "none"},
    {"factor": "access", "baseline": "whole"},
    {"factor": "nodes", "baseline": "1"},
    {"factor": "streaming", "baseline": "on"},
]
REPEATS, MIB = 6, 2**20
# MiB that each backend writes and reads in a second, of gzip also compresses and decompresses, in one process.
RATES = {"library": (420, 900), "zarr": (310, 800), "hsds": (150, 260)}
GZIP = (60, 240)
# Seconds: to make or open an array, of a request, of a flush of the service; a request's share of the network's delay.
OPEN = {"library": 0.001, "zarr": 0.004, "hsds": 0.05}
REQUEST, FLUSH, LATENCY, NETWORK = 0.003, 1.1, 0.02, 90


def cells(**levels: tuple[str, ...]) -> list[dict]:
    """Return rows of a matrix: all combinations of USUAL with some replaced."""
    chosen = USUAL | levels
    return [_row(dict(zip(FACTORS, one, strict=True))) for one in itertools.product(*(chosen[f] for f in FACTORS))]


def laptop() -> list[dict]:
    """Return a run of backends, stores, nodes and clients, a twin and slowed controls, as it is configured."""
    rows = cells(compression=("none", "gzip"))
    rows += cells(**READ | {"cache": ("cold", "warm"), "compression": ("none", "gzip")})
    rows += cells(shape=("2200x12000",)) + cells(**READ, shape=("2200x12000",))
    rows += cells(**READ, access=("rows", "columns"))
    rows += cells(**SERVICE, protocol=("binary",), streaming=("on", "off"), access=("pieces",))
    rows += cells(**SERVICE, **READ, protocol=("json",), access=("rows",))
    rows += cells(**ELSEWHERE, store=("s3",)) + cells(**ELSEWHERE, **READ, store=("s3",))
    rows += cells(**ELSEWHERE, **READ, store=("s3",), concurrency=("1", "64"))
    released = {"library": ("hdf5-1.14.6", "hdf5-2.0.0"), "backend": ("library",)}
    rows += cells(**released, **READ, store=("s3",)) + cells(**released)
    rows += cells(**SERVICE, compression=("gzip",), nodes=("2", "4"))
    rows += cells(compression=("gzip",), clients=("2", "4"))
    rows += cells(**SERVICE, operation=("limits", "faults"), request_limit=("50MiB",), streaming=("on", "off"))
    controls = ((rows[0], "twin"), *((rows[0], level) for level in slowed.SHARES))
    return rows + [_row({f: cell[f] for f in FACTORS}, cell["cell"], level) for cell, level in controls]


def impossible() -> list[dict]:
    """Return rows of what cannot exist."""
    reason = "the HDF5 library does not write to an object store"
    return [row | {"cell": "", "omitted": reason} for row in cells(store=("s3",), backend=("library",))]


def build(
    folder: Path, rows: list[dict] | None = None, change: Callable[[dict], dict] | None = None, repeats: int = REPEATS
) -> Path:
    """Write records, gather them into tables, and write facts.json; return the folder.

    `change` is called with each record before it is written, to plant a fault; without, one record fails and one is
    invalid.
    """
    rows, random, change = rows or laptop(), np.random.default_rng(1), change or _troubled
    for repeat, block in enumerate(np.exp(random.normal(0, 0.04, repeats)), 1):
        for row in rows:
            path = folder / "records" / row["cell"] / f"repeat={repeat}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            tried = row["operation"] in pieces.TRIALS
            record = _of_trials(row, repeat, block) if tried else _record(row, repeat, block, random)
            path.write_text(sealed(change(record)), encoding="utf-8")
    pd.DataFrame([*rows, *impossible()]).to_csv(folder / "matrix.csv", index=False)
    merge(folder, ".", "arrays", compare=COMPARE)
    (folder / "facts.json").write_text(json.dumps(facts(folder)), encoding="utf-8")
    return folder


def load(folder: Path) -> Results:
    """Return the results of tables that `build` wrote."""
    return results.load_results(folder, folder / "facts.json")


def facts(folder: Path) -> dict:
    """Return what the workflow tells the report beside the tables."""
    return {
        "run": "laptop",
        "study": "arrays",
        "question": "What does it cost to write and read an array through the HDF service, or as Zarr, instead of an "
        "HDF5 file?",
        "equivalence_percent": 5,
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 4, "ram_bytes": 24 * 2**30, "kernel": "6.1.0-18-amd64"},
        "libraries": {
            "arrays": {"kind": "wheel", "hdf5": "2.0.0"},
            **{f"hdf5-{version}": {"kind": "source", "hdf5": version} for version in ("1.14.6", "2.0.0")},
        },
        "stores": {
            "disk": {"kind": "posix"},
            "s3": {"kind": "s3", "server": "embedded", "network": {"latency_ms": 20, "shared_mib_s": NETWORK}},
        },
        "controls": {
            **{"runs": 1, "slow10": [1, 1], "slow5": [0, 1], "alarms": [0, 1]},
            "reached": {"slow10": 0.0968, "slow5": 0.0484},
        },
        **STUDY.build_facts({}, gather.read_study(folder, "synthetic", "arrays")[1], {}, {"studies": {"arrays": {}}}),
        **{"code": ["a" * 64], "git": ["b" * 40], "sessions": ["one"]},
    }


def seconds(row: dict) -> dict[str, float]:
    """Return what a cell takes without noise: until the array is open, acknowledged, and stored or read."""
    shape, writes = pieces.parse_shape(row["shape"], row["chunks"]), row["operation"] == "write"
    backend, mib = row["backend"], shape.bytes / MIB
    # Clients compress for themselves; of a service the data nodes do.
    compressing = int(row["nodes"] if backend == "hsds" else row["clients"])
    gzip = mib / GZIP[not writes] / compressing if row["compression"] == "gzip" else 0
    gzip += 0.1 * mib / RATES[backend][not writes] if row["library"] == "hdf5-2.0.0" else 0
    moved = mib / RATES[backend][not writes] * (0.1 if row["cache"] == "warm" and backend == "hsds" else 1)
    moved *= {"json": 8, "binary": 0.8}.get(row["protocol"], 1)
    number, text = len(_pieces(row)), row["access"]
    moved += number * REQUEST * (backend == "hsds") + (0.2 * moved if text == "columns" else 0)
    opened, acknowledged = OPEN[backend], OPEN[backend] + moved + (gzip if backend != "hsds" or not writes else 0)
    if row["store"] == "s3":
        acknowledged += shape.chunks * LATENCY / _in_flight(row) + mib / NETWORK
    if not writes:
        return {"open": opened, "total": acknowledged}
    stored = FLUSH + gzip if backend == "hsds" else mib / 900 * (row["store"] == "disk")
    return {"open": opened, "acknowledged": acknowledged, "total": acknowledged + stored}


def _pieces(row: dict) -> list[pieces.Piece]:
    shape = pieces.parse_shape(row["shape"], row["chunks"])
    bands = pieces.split_rows(shape, int(row["clients"]))
    return [piece for band in bands for piece in pieces.iter_pieces(shape, band, row["access"], 100 * MIB)]


def _in_flight(row: dict) -> int:
    return int(row["concurrency"].replace("unset", "10")) if row["backend"] != "library" else 1


def _row(levels: dict, twin_of: str = "", control: str = "") -> dict:
    name = "_".join([*(levels[f] for f in FACTORS), *([control] if control else [])])
    return {"cell": name, **levels, "control": control, "omitted": "", "twin_of": twin_of}


def _troubled(record: dict) -> dict:
    """Plant what a page must tell: a node that ended, and a wrong value."""
    cell, repeat = record["cell"], record["repeat"]
    if (cell["backend"], cell["nodes"], repeat) == ("hsds", "4", 3):
        return failed(record, "HSDS did not answer PUT /datasets: ConnectionError")
    if (cell["backend"], cell["access"], repeat) == ("zarr", "columns", 2):
        return record | {
            "valid": False,
            "reasons": ["the checksum of the values read differs from the manifest"],
        }
    return record


def _of_trials(row: dict, repeat: int, block: float) -> dict:
    # With noise of its own, so that the times of others are what they are without it.
    record = _record(row, repeat, block, np.random.default_rng(repeat))
    samples = arrays_trials.samples(row["operation"], row["streaming"] == "on", repeat, block)
    total = sum(sample["trial_s"] for sample in samples)
    return record | {
        "seconds": {"total": total, "null": 0.0},
        "samples": [{"number": number, "total_s": total, **sample} for number, sample in enumerate(samples, 1)],
        "work": {name: record["work"][name] for name in ("checksum_asked", "checksum")},
    }


def _record(row: dict, repeat: int, block: float, random: np.random.Generator) -> dict:
    times = {name: value * block * np.exp(random.normal(0, 0.02)) for name, value in seconds(row).items()}
    # Whatever noise the parts have, they are in this order.
    times = dict(zip(times, np.maximum.accumulate([*times.values()]), strict=True))
    waited = slowed.SHARES.get(row["control"], 0) * times["total"]
    times["total"] += waited
    shape, clients = pieces.parse_shape(row["shape"], row["chunks"]), int(row["clients"])
    parts = _pieces(row)
    shares = [parts[number::clients] for number in range(clients)]
    stored = shape.padded_bytes / (5.3 if row["compression"] == "gzip" else 1)
    service = row["backend"] == "hsds"
    acknowledged = times.get("acknowledged")
    return {
        **{"record": 1, "status": "done", "study": "arrays", "run": "synthetic", "name": row["cell"]},
        "cell": {factor: row[factor] for factor in (*FACTORS, "control")},
        "repeat": repeat,
        "seconds": {
            **{name: float(value) for name, value in times.items()},
            **{"null": 2e-5, **({"cluster_start": 1.2} if clients > 1 else {})},
        },
        "samples": [
            {
                **{"number": number, "total_s": float(times["total"]), "open_s": float(times["open"])},
                "acknowledged_s": acknowledged if acknowledged is None else float(acknowledged),
                **{"first_byte_s": None, "longest_s": float(times["total"]), "client_s": float(times["total"])},
                **{"pieces": len(share), "bytes": sum(piece.bytes for piece in share), "worker-pid": 100 + number},
                "waited_s": waited,
            }
            for number, share in enumerate(shares, 1)
        ],
        "work": {
            **{"tasks_asked": len(parts), "tasks_done": len(parts), "padded_bytes": shape.padded_bytes},
            **{"logical_bytes_asked": shape.bytes, "logical_bytes": shape.bytes, "stored_bytes": int(stored)},
            "stored_objects": {"library": clients, "zarr": shape.chunks + 1, "hsds": shape.chunks + 2}[row["backend"]],
            **{"checksum_asked": "00c0ffee", "checksum": "00c0ffee"},
            **({"waited_s": waited} if waited else {}),
        },
        "cache": {"asked": row["cache"], "state": row["cache"], "resident_before": 0.0, "resident_after": 1.0},
        "requests": _requests(row, shape, stored),
        "resources": {"reader": {"user_s": float(_cpu_s(row)), "system_s": 0.0}},
        "effective": {
            **{"hdf5": "2.0.0" if row["library"] == "arrays" else row["library"].removeprefix("hdf5-")},
            **{"h5py": "3.16.0", "chunks": row["chunks"], "compression": row["compression"], "usable_cores": 4},
            **{"clients": clients, "clients_asked": clients},
            **({"zarr": "3.2.1"} if row["backend"] == "zarr" else {}),
            **(_of_nodes(row, times["total"], shape) if service else {}),
        },
        "host": {"node": "bench", "cpu": "AMD EPYC 7B13"},
        "provenance": {"code_sha256": "a" * 64, "data_sha256": f"{row['shape']} {row['values']}"},
        **{"session": "one", "valid": True, "reasons": []},
    }


def _requests(row: dict, shape: pieces.Shape, stored: float) -> dict:
    if row["store"] == "disk":
        return {}
    method = "PUT" if row["operation"] == "write" else "GET"
    return {method: {"count": shape.chunks + 1, "bytes_offered": int(stored), "bytes_delivered": int(stored)}}


def _cpu_s(row: dict) -> float:
    """Return the CPU seconds of a cell's processes, those of nodes included: clients share what there is to do."""
    alone = {**row, "clients": "1", "nodes": "1"}
    return 0.9 * seconds(alone)["total"] + 0.05 * int(row["clients"])


def _of_nodes(row: dict, total: float, shape: pieces.Shape) -> dict:
    nodes = int(row["nodes"])
    return {
        **{"hsds": "1.0.2", "h5pyd": "1.0.0", "nodes": nodes},
        "request_limit": sizes.parse_size(row["request_limit"]),
        **{"service_node_cpu_s": 0.5 * total, "service_node_peak_bytes": 2.2 * shape.bytes, "ready_s": 1.3},
        **{"data_node_cpu_s": 0.9 * total / nodes, "data_nodes_cpu_s": 0.9 * total},
        "data_node_peak_bytes": 1.4 * shape.bytes / nodes,
    }
