"""Tests of advice: files of well-known shapes are advised on, and the advised way is tried on other files."""

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from sbench.files import advise_page, ways
from sbench.probe.program import build_command
from sbench.studies.shots.report import results
from tests.bench.common import Row, Say, copy_tree, run_command

_FILES = 3
# What is read of files as of ICESat-2, ERA5 and NWB, and of a contiguous dataset; and what of other files.
SHAPES = {
    "ICESat-2-like": ("files [0:100, ...]", "files [9000:9100, ...]"),
    "ERA5-like": ("files [:, 20:21, 30:31]", "files [:, 60:61, 100:101]"),
    "NWB-like": ("files metadata", "files metadata"),
    "contiguous": ("files [0:100, ...]", "files [3000:3100, ...]"),
}


def try_advice(folder: Path, say: Say, shapes: tuple[str, ...] = tuple(SHAPES), repeats: int = 6) -> Iterator[Row]:
    """Compare the gain that advice promises with that on other files and places, over 20 ms and 50 MiB/s."""
    tree = copy_tree(folder)
    for name in shapes:
        runs = []
        for number, access in enumerate(SHAPES[name]):
            say(f"{name}: advice on {access}")
            place, run = folder / f"{name}-{number}", f"{''.join(filter(str.isalnum, name))}-files{number}"
            place.mkdir()
            for seed in range(number * _FILES, (number + 1) * _FILES):
                with h5py.File(place / f"file-{seed}.h5", "w") as file:
                    _write(file, name, np.random.default_rng(seed))
            options = (f"--access={access}", "--latency=20", "--rate=50", f"--name={run}", f"--repeats={repeats}")
            run_command(build_command("sbench.cli", "advise", place, *options), tree)
            study = tree / "results" / run / "shots"
            runs.append(results.load_results(study, study / "facts.json"))
        yield _compare(f"advice on {name} files", advise_page.describe_outcome(runs[0]), ways.read_advice(runs[1]))


def _write(file: h5py.File, shape: str, values: np.random.Generator) -> None:
    """Write small chunked datasets, hourly maps, groups with attributes between recordings, or one dataset."""
    options = {"compression": "gzip", "shuffle": True}
    if shape == "ICESat-2-like":
        for number in range(300):
            data = np.cumsum(values.normal(size=20_000)).astype("f4")
            file.create_dataset(f"gt{number % 6}/segments/v{number}", data=data, chunks=(2_500,), **options)
    elif shape == "ERA5-like":
        data = values.normal(size=(480, 90, 180)).astype("f4").round(1)
        file.create_dataset("t2m", data=data, chunks=(1, 45, 45), **options)
    elif shape == "NWB-like":
        for number in range(400):
            group = file.create_group(f"processing/units/unit-{number:04}")
            group.attrs.update({"id": number, "quality": "good", "depth": float(number)})
            group["times"] = np.sort(values.random(200))
            if number % 40 == 0:
                file[f"acquisition/part-{number}"] = values.integers(0, 2**15, 2**21, dtype=np.int16)
    else:
        file["data"] = values.random((4_000, 1_000))


def _compare(what: str, promised: dict, others: ways.Advice) -> Row:
    """Return the row of a shape: whether the way that was promised to be faster is faster, and no other."""
    advised = f"{promised['layout']}, {promised['opened']}: {promised['gain']:.2f} times as fast"
    same = [way for way in others.ways if (way.layout, way.name) == (promised["layout"], promised["opened"])]
    row = next((row for way in same for row in way.rows.values()), None)
    if not row:
        return Row(what, advised, "not tried on others", promised["verdict"])
    is_same = (promised["verdict"] == "faster") == (row["verdict"] == "faster")
    against = f"on others {1 / row['ratio']:.2f} times, {row['verdict']}"
    return Row(what, advised, against, promised["verdict"], "the same sign", is_same)
