"""Whether advice holds: files of shapes that people argue about are advised on, and others of that shape are read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from sbench.files import advise_page, copies
from sbench.probe import sizes
from sbench.probe.program import read_json, write_json
from sbench.studies.shots import accesses
from sbench.studies.shots.arms import FACTORS
from sbench.studies.shots.report import results
from tests.bench.common import Row, Say, copy_tree, program, snakemake, used

_FILES = 3
_SHOTS = {"layout": "single-shot", "shots": 2 * _FILES, "signals": 12, "page_size": 8_000_000, "paged": True}


class Shape(NamedTuple):
    """How files are written, by their seed; what is read of those that are advised on, and of the others."""

    write: Callable[[h5py.File, int], None] | None
    access: str
    unseen: str


def _granule(file: h5py.File, seed: int) -> None:
    """Write a granule as of ICESat-2: hundreds of small chunked datasets, with metadata among them."""
    values = np.random.default_rng(seed)
    for beam in range(6):
        for number in range(50):
            data = np.cumsum(values.normal(size=20_000)).astype("f4")
            place = f"gt{beam}/land_ice_segments/v{number:02}"
            file.create_dataset(place, data=data, chunks=(2_500,), compression="gzip", shuffle=True)


def _weather(file: h5py.File, seed: int) -> None:
    """Write a variable as of ERA5 in netCDF4: a chunk for each part of each hour's map."""
    values = np.random.default_rng(seed)
    data = values.normal(size=(480, 90, 180)).astype("f4").round(1)
    file.create_dataset("t2m", data=data, chunks=(1, 45, 45), compression="gzip", shuffle=True)


def _neurons(file: h5py.File, seed: int) -> None:
    """Write a session as of NWB: many groups with attributes, few values in each, and a recording between them."""
    values = np.random.default_rng(seed)
    for number in range(400):
        group = file.create_group(f"processing/units/unit-{number:04}")
        group.attrs.update({"id": number, "quality": "good", "depth": float(number)})
        group["times"] = np.sort(values.random(200))
        if number % 40 == 0:
            file[f"acquisition/part-{number}"] = values.integers(0, 2**15, 2**21, dtype=np.int16)


def _plain(file: h5py.File, seed: int) -> None:
    """Write one large dataset without chunks."""
    file["data"] = np.random.default_rng(seed).random((4_000, 1_000))


SHAPES = {
    "ICESat-2-like": Shape(_granule, "files [0:100, ...]", "files [9000:9100, ...]"),
    "ERA5-like": Shape(_weather, "files [:, 20:21, 30:31]", "files [:, 60:61, 100:101]"),
    "NWB-like": Shape(_neurons, "files metadata", "files metadata"),
    "contiguous": Shape(_plain, "files [0:100, ...]", "files [3000:3100, ...]"),
    "shots": Shape(None, "files all", "files all"),
}


def rows(folder: Path, say: Say, shapes: tuple[str, ...] = tuple(SHAPES), repeats: int = 6) -> Iterator[Row]:
    """Hold the gain that advice promises against that on other files and places, over 20 ms and 50 MiB/s."""
    tree = copy_tree(folder)
    for name in shapes:
        shape = SHAPES[name]
        say(f"{name}: advice on {shape.access}")
        seen, unseen = _written(folder / name, shape, tree)
        run = "".join(filter(str.isalnum, name))
        words = {"access": shape.access, "latency": 20, "rate": 50}
        words |= {"name": run, "repeats": repeats}
        options = (f"--{key}={value}" for key, value in words.items())
        used(program("sbench.cli", "advise", f"{seen}/*.h5", *options), cwd=tree)
        promised = advise_page.outcome(_loaded(tree, run))
        say(f"{name}: the same on {shape.unseen} of other files")
        config = _config_of_others(tree, run, promised, unseen, shape)
        used(snakemake(config, "--quiet", "all"), cwd=tree)
        yield _row(name, promised, advise_page.outcome(_loaded(tree, f"{run}-others")))


def _row(name: str, promised: dict, measured: dict) -> Row:
    """Return the row of a shape: whether what was promised to be faster is, and what was not is not."""
    figures = f"{promised['layout']}, {promised['opened']}: {promised['gain']:.2f} times as fast"
    same = (promised["verdict"] == "faster") == (measured["verdict"] == "faster")
    against = f"on others {measured['gain']:.2f} times, {measured['verdict']}"
    return Row(f"advice on {name} files", figures, against, promised["verdict"], "the same sign", same)


def _written(folder: Path, shape: Shape, tree: Path) -> tuple[Path, Path]:
    """Write files that are advised on and others; returns their folders."""
    seen, unseen = folder / "seen", folder / "unseen"
    for place in (seen, unseen):
        place.mkdir(parents=True)
    if shape.write is None:
        settings = json.dumps(_SHOTS | {"deflate": 4, "seed": 1})
        make = ("--dataset", "shots", "--settings", settings, "--out", folder / "all/manifest.json")
        used(program("sbench.studies.shots.make", *make), cwd=tree)
        for number, path in enumerate(sorted((folder / "all").glob("*.h5"))):
            path.rename((seen if number < _FILES else unseen) / path.name)
        return seen, unseen
    for seed in range(2 * _FILES):
        with h5py.File((seen if seed < _FILES else unseen) / f"file-{seed}.h5", "w") as file:
            shape.write(file, seed)
    return seen, unseen


def _config_of_others(tree: Path, run: str, promised: dict, unseen: Path, shape: Shape) -> Path:
    """Write the configuration that reads other files as they are, and as was advised; returns its file."""
    config = read_json(tree / "results" / run / "scratch/advise.json")
    shots, originals = config["studies"]["shots"], sorted(unseen.glob("*.h5"))
    sets = {"original": list(map(str, originals))}
    if (layout := promised["layout"]) != "original":
        kind, _, page = layout.partition("-")
        options = tree / "results" / run / "scratch/chunks.txt" if kind == "chunks" else None
        layout_of = copies.Layout(layout, sizes.in_bytes(page) if page else 0, options)
        made = copies.make(layout_of, originals, unseen / layout, ["/**"], accesses.parse("all"))
        sets[layout] = list(map(str, made.files))
    shots["data"] = {"files": sets, "datasets": ["/**"]}
    chosen = [shots["advice"]["arms"][0], promised["arm"]]
    (before,), level = shots["advice"]["accesses"], shape.unseen.partition(" ")[2]
    forecasts = ("requests", "bytes", "seconds")
    arms = [arm | {what: {level: arm[what][before]} for what in forecasts} for arm in chosen]
    shots["advice"] |= {"arms": arms, "considered": arms, "accesses": {level: 1.0}}
    wanted = [{key: [arm[key]] for key in FACTORS} for arm in chosen]
    matrix = [mapping for mapping in shots["matrix"] if {key: mapping[key] for key in FACTORS} in wanted]
    shots["matrix"] = [mapping | {"selection": [level]} for mapping in matrix]
    shots["control_cells"] = 0
    path = tree / f"{run}-others.json"
    write_json(path, config | {"run": f"{run}-others"})
    return path


def _loaded(tree: Path, run: str) -> results.results.Results:
    return results.load(tree / "results" / run / "shots", tree / "results" / run / "shots/facts.json")
