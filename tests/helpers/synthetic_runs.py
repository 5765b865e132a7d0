"""Synthetic runs at the level of statements: effects, interactions, ties and gaps are drawn, everything else is real.

A run goes from its records through `build_runs_and_samples`, `build_verdicts_table` and `build_cells_table`, as a
measured one does.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design.records import Kept
from sbench.measure import session_records, tables
from sbench.measure.judging import build_verdicts_table
from sbench.pages.declaration import Report
from sbench.pages.results import Results, complete_cells
from sbench.pages.run_files import TEXTS
from sbench.probe.slowed import SHARES
from sbench.studies.arrays.report import REPORT as ARRAYS
from sbench.studies.blobs.report import REPORT as BLOBS
from sbench.studies.particles.report import REPORT as PARTICLES
from sbench.studies.shots.report import REPORT as SHOTS

REPORTS = {report.study: report for report in (SHOTS, BLOBS, PARTICLES, ARRAYS)}
# Levels of the factors that are drawn; the first is the level of those that are not.
LEVELS = {
    "shots": {
        "library": ["hdf5-1.14.6", "hdf5-2.0.0"],
        "store": ["s3", "disk"],
        "driver": ["ros3", "s3fs", "pyfive", "h5coro", "kerchunk"],
        "layout": ["shot-major", "signal-major", "single-shot"],
        "access": ["shots", "signals"],
        "page_buffer": ["0", "64MiB", "256MiB"],
        "workers": ["1", "2"],
        "cache": ["cold"],
    },
    "blobs": {
        "store": ["s3", "disk", "azurite"],
        "pattern": ["single-file", "multiple-files", "broadcast", "sections"],
        "size": ["1MiB", "16MiB", "256KiB"],
        "chunk_size": ["4MiB", "16MiB"],
        "processes": ["2"],
        "objects": ["shared"],
        "cache": ["warm"],
    },
    "particles": {
        "library": ["hdf5-2.0.0"],
        "store": ["disk"],
        "driver": ["sec2"],
        "particles": ["1938784", "6378496"],
        "operation": ["load", "sum"],
        "rereads": ["1", "4"],
        "method": ["serial", "futures", "delayed"],
        "workers": ["2"],
        "memory": ["none"],
        "cache": ["warm"],
    },
    "arrays": {
        "store": ["disk"],
        "backend": ["library", "hsds", "zarr"],
        "operation": ["write", "read"],
        "compression": ["none", "gzip"],
        "clients": ["1"],
        "cache": ["cold"],
    },
}
STORES = {
    "s3": {"kind": "s3", "server": "embedded", "network": {"latency_ms": 20, "bandwidth_mib_s": 50}},
    "disk": {"kind": "posix"},
    "azurite": {"kind": "azure-blob", "server": "embedded"},
}


@dataclass(frozen=True)
class Synthetic:
    """A drawn run: what pages read, and the records as they were drawn.

    `times` has a row per valid record: cell, repeat, total.
    """

    run: Results
    times: pd.DataFrame
    asked: str


def draw(study: str, seed: int) -> Synthetic:
    """Return a run of a study in which everything but the format is drawn: see `_totals` and `_records`."""
    random, report = np.random.default_rng([seed, len(study)]), REPORTS[study]
    cells = _cells(study, random)
    factors = [name for name in report.names if name in LEVELS[study]]
    compare = _compare(cells, factors, report, random)
    originals = [cell for cell in cells if not cell["twin_of"]]
    cells += _controls(originals, random)
    matrix = pd.DataFrame(cells)[["cell", *factors, "control", "twin_of"]]
    kept = list(_records(matrix, factors, study, random))
    runs, _ = tables.build_runs_and_samples(matrix, kept)
    contest = report.contest

    def in_contest(cell: dict) -> tuple | None:
        return contest and (contest.group(cell), *(cell[name] for name in factors if name not in contest.arm))

    verdicts = build_verdicts_table(matrix, runs, compare, 5, 1, in_contest)
    facts = {
        **{"run": "synthetic", "study": study, "stores": STORES, "repeats": 6, "equivalence_percent": 5},
        "settings": {"compare": compare, "matrix": [{name: LEVELS[study][name] for name in factors}]},
    }
    return Synthetic(_results(matrix, runs, verdicts, facts, report), _times(kept), compare[0]["factor"])


def _cells(study: str, random: np.random.Generator) -> list[dict]:
    """The cells of a drawn matrix: one to three levels of each factor, at most 8 cells, some left out."""
    levels = {}
    for name, of in LEVELS[study].items():
        many = int(random.integers(1, len(of) + 1)) if random.random() < 0.7 else 1
        levels[name] = of[:many]
    while np.prod([len(of) for of in levels.values()]) > 8:
        longest = max(levels, key=lambda name: len(levels[name]))
        levels[longest] = levels[longest][:-1]
    made = [dict(zip(levels, some, strict=True)) for some in itertools.product(*levels.values())]
    made = [cell for cell in made if random.random() < 0.95 or len(made) < 4]
    return [{"cell": f"cell{number}", **cell, "control": "", "twin_of": ""} for number, cell in enumerate(made)]


def _compare(cells: list[dict], factors: list[str], report: Report, random: np.random.Generator) -> list[dict]:
    varied = [name for name in factors if len({cell[name] for cell in cells}) > 1]
    choosable = [name for name in varied if not report.get_factor(name).given and name != report.along]
    chosen = list(random.permutation(choosable))[: int(random.integers(1, 4))] or [report.headline]
    return [{"factor": str(name), "baseline": cells[0][str(name)]} for name in chosen]


def _controls(originals: list[dict], random: np.random.Generator) -> list[dict]:
    if not originals or random.random() < 0.3:
        return []
    of = originals[int(random.integers(len(originals)))]
    return [
        {**of, "cell": f"{of['cell']}-{kind}", "control": kind, "twin_of": of["cell"]} for kind in ("twin", *SHARES)
    ]


def _totals(matrix: pd.DataFrame, factors: list[str], random: np.random.Generator) -> dict[str, float]:
    """Ln of each cell's time: effects of levels (none in a third of runs), interactions of two factors, and ties."""
    size = 0.0 if random.random() < 0.33 else float(random.choice([0.02, 0.2, 1.0]))
    effects = {(name, level): random.normal(0, size) for name in factors for level in matrix[name].unique()}
    both: dict[tuple, float] = {}
    logs = {}
    for cell in matrix.to_dict("records"):
        log = sum(effects[name, cell[name]] for name in factors)
        for one, other in itertools.combinations(factors, 2):
            key = (one, cell[one], other, cell[other])
            log += both.setdefault(key, random.normal(0, size) if random.random() < 0.3 else 0.0)
        logs[cell["cell"]] = log + np.log1p(SHARES.get(cell["control"], 0))
    for cell in matrix.to_dict("records"):
        if cell["twin_of"]:
            logs[cell["cell"]] = logs[cell["twin_of"]] + np.log1p(SHARES.get(cell["control"], 0))
    return logs


def _records(matrix: pd.DataFrame, factors: list[str], study: str, random: np.random.Generator):
    """Yield the records: 3 to 10 blocks, some records failed, some cells never, some mostly harness, all drawn."""
    blocks, noise = int(random.choice([3, 6, 8, 10])), float(random.choice([0.005, 0.02, 0.15]))
    logs = _totals(matrix, factors, random)
    failing = {cell for cell in matrix["cell"] if random.random() < 0.05}
    mostly_harness = {cell: float(random.uniform(0.12, 0.5)) for cell in matrix["cell"] if random.random() < 0.15}
    requests = {cell: int(random.integers(1, 200)) for cell in matrix["cell"]}
    drift = random.normal(0, 0.05, blocks)
    has_parts = random.random() < 0.25

    def parts(total: float) -> dict[str, float]:
        return {"first": 0.3 * total} if has_parts else {}

    for cell in matrix.to_dict("records"):
        name, levels = cell["cell"], {key: cell[key] for key in (*factors, "control")}
        for block in range(1, blocks + 1):
            total = float(np.exp(logs[name] + drift[block - 1] + random.normal(0, noise)))
            record = {
                **{"record": 1, "status": "done", "run": "synthetic", "study": study, "name": name, "cell": levels},
                **{"repeat": block, "valid": True, "reasons": [], "session": "1", "host": {"node": "a"}},
                "seconds": {"total": total, "null": total * mostly_harness.get(name, 0.01), **parts(total)},
                "work": {"logical_bytes": 2**20, "waited_s": 0.1},
                "requests": {"GET": {"count": requests[name], "bytes_offered": 2**20, "bytes_delivered": 2**20}},
                **{"samples": [], "provenance": {}},
            }
            if name in failing or random.random() < 0.03:
                record |= {"status": "failed", "valid": False, "reasons": ["drawn"]}
            yield Kept(name, levels, block, Path(name), record)


def _times(kept: list[Kept]) -> pd.DataFrame:
    rows = [
        {"cell": one.cell, "repeat": one.repeat, "total": one.record["seconds"]["total"]}
        for one in kept
        if one.record["status"] == "done"
    ]
    return pd.DataFrame(rows, columns=["cell", "repeat", "total"])


def _results(matrix: pd.DataFrame, runs: pd.DataFrame, verdicts: pd.DataFrame, facts: dict, report: Report) -> Results:
    """The tables as a page reads them: absent factors and empty texts are ""."""
    cells, raw = tables.build_cells_table(matrix, runs), session_records.build_records_table(matrix, runs)
    value = report.values[0].column
    if value != "total_s":
        cells[value] = 1 / cells["total_s"].astype(float)
        cells[f"{value}_low"] = cells[f"{value}_high"] = np.nan
    missing = {name: "" for name in report.names if name not in matrix}
    texts = [name for name in (*TEXTS, *report.names)]
    frames = []
    for table in (cells, verdicts, raw, matrix.assign(omitted="")):
        table = table.assign(**{name: level for name, level in missing.items() if name not in table})
        own = [name for name in texts if name in table]
        frames.append(table.assign(**{name: table[name].fillna("").astype(str) for name in own}))
    cells, verdicts, raw, matrix = frames
    records = pd.DataFrame(columns=["cell", "repeat", "valid", "control", *report.names, "total_s"])
    return Results(
        samples=pd.DataFrame(),
        cells=complete_cells(cells, records.astype({"valid": bool}), report),
        verdicts=verdicts,
        matrix=matrix,
        facts=facts,
        report=report,
        records=records,
        raw=raw,
    )


# Ways to read that advice compares: layout, driver and settings, and what a run for advice reads.
WAYS = (
    {"layout": "original", "driver": "ros3"},
    {"layout": "original", "driver": "s3fs", "read_cache": "blockcache-4MiB"},
    {"layout": "paged-4MiB", "driver": "ros3", "page_buffer": "64MiB"},
    {"layout": "paged-4MiB", "driver": "s3fs"},
)
USUAL = {"page_buffer": "unset", "read_cache": "default", "chunk_cache": "default"}
SHARES_OF_ACCESSES = ({"all": 1.0}, {"[:, 0]": 0.75, "all": 0.25})


def draw_advice(seed: int) -> Synthetic:
    """Return a run of two to four ways to read one to eight files, by one access or two."""
    random, report = np.random.default_rng([seed, 7]), REPORTS["shots"]
    ways = [USUAL | way for way in WAYS[: int(random.integers(2, len(WAYS) + 1))]]
    shares, files = SHARES_OF_ACCESSES[int(random.integers(2))], int(random.choice([1, 3, 6, 8]))
    together = {"library": "hdf5-2.0.0", "store": "s3", "access": "files", "cache": "cold", "workers": "1"}
    levels = [together | way | {"selection": level} for way in ways for level in shares]
    cells = [{"cell": f"cell{number}", **own, "control": "", "twin_of": ""} for number, own in enumerate(levels)]
    factors = [name for name in report.names if name in cells[0]]
    matrix = pd.DataFrame(cells)[["cell", *factors, "control", "twin_of"]]
    kept = list(_records(matrix, factors, "shots", random))
    runs, _ = tables.build_runs_and_samples(matrix, kept)
    verdicts = build_verdicts_table(matrix, runs, [], 5, 1, lambda cell: (cell["access"], cell["selection"]))
    arms = [way | {what: dict.fromkeys(shares, 1.0) for what in ("requests", "bytes", "seconds")} for way in ways]
    copy = {"typed": "h5repack -S PAGE", "original_bytes": 2**30, "copy_bytes": 2**30, "seconds": 3.0}
    where = {"files": {"original": "bucket/a.h5", "paged-4MiB": "bucket/b.h5"}, "region": "eu-west-1", "groups": ["/"]}
    advice = {"accesses": shares, "arms": arms, "considered": arms, "copies": {"paged-4MiB": copy}, "where": where}
    advice |= {"place": "loopback", "left_out": [], "unsuited": []}
    facts = {
        **{"run": "synthetic", "study": "shots", "stores": STORES, "repeats": 6, "equivalence_percent": 5},
        "settings": {"compare": [], "matrix": [], "advice": advice, "read_files": files},
    }
    run = _results(matrix, runs, verdicts, facts, report)
    object.__setattr__(run, "samples", _samples(kept, files, random))
    return Synthetic(run, _times(kept), "driver")


def _samples(kept: list[Kept], files: int, random: np.random.Generator) -> pd.DataFrame:
    """Each file's part of the time of a record; ways differ in how fast they read which file."""
    spread = float(random.choice([0.02, 0.4]))
    weights = {name: random.lognormal(0, spread, files) for name in {one.cell for one in kept}}
    rows = []
    for one in kept:
        total, of = one.record["seconds"]["total"], weights[one.cell]
        rows += [
            {"cell": one.cell, "repeat": one.repeat, "obj-id": f"{name}.h5", "valid": one.record["valid"]}
            | {"open+read-data-time": total * part / of.sum(), "cpu-time": 0.0}
            for name, part in enumerate(of)
        ]
    return pd.DataFrame(rows)
