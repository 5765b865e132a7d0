"""Generate and describe Gadget-style snapshots of several HDF5 files, and split them into chunks as yt does."""

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from sbench.probe import formats
from sbench.probe.program import Problem, compute_file_digest
from sbench.studies.particles.snapshot_reading import PLACES, is_in_region

TYPE, FIELD = "PartType0", "Density"
# Maximum number of particles that yt reads at a time, which is also our default: 64³.
AT_MOST = 262_144
# Number of particles, files and chunks of the published snapshots, whose HDF5 headers are not published.
PRESETS = {"A": (1_941_226, 8, 12), "B": (6_381_559, 16, 32)}
# Files alternately have more and fewer particles than the mean by this share, with which the first file of preset A has
# about the published number.
UNEVEN = 0.1543
# The selected region in each dimension, as fractions of the box size.
REGION = (0.25, 0.75)
BOX = 25.0
BINS = 64


def split_particles(particles: int, files: int) -> list[int]:
    """Divide particles among files unevenly, so that some files consist of one chunk and others of two."""
    mean = particles / files
    held = [round(mean * (1 + UNEVEN * (-1) ** number)) for number in range(files)]
    return [*held[:-1], particles - sum(held[:-1])]


def write_file(path: Path, number: int, held: list[int], seed: int) -> None:
    """Write file `number` of a snapshot with random values that depend only on `seed` and `number`, not on the machine.

    As in simulations, few particles have a high density and many a low density. `held` is the number of particles of
    each file.
    """
    count, random = held[number], np.random.default_rng([seed, number])
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        header = file.create_group("Header").attrs
        header["NumPart_ThisFile"] = np.array([count, 0, 0, 0, 0, 0], np.int32)
        high, low = divmod(sum(held), 2**32)
        header["NumPart_Total"] = np.array([low, 0, 0, 0, 0, 0], np.uint32)
        header["NumPart_Total_HighWord"] = np.array([high, 0, 0, 0, 0, 0], np.uint32)
        header["MassTable"] = np.zeros(6)
        header["NumFilesPerSnapshot"] = np.int32(len(held))
        header.update({"Time": 1.0, "Redshift": 0.0, "BoxSize": BOX, "Omega0": 0.238, "OmegaLambda": 0.762})
        header.update({"HubbleParam": 0.73, "Flag_Cooling": 1, "Flag_Sfr": 1, "Flag_Feedback": 1})
        group = file.create_group(TYPE)
        thin = random.random(count, np.float32)
        fields = {
            PLACES: np.float32(BOX) * random.random((count, 3), np.float32),
            "Velocities": random.random((count, 3), np.float32) - np.float32(0.5),
            "Masses": np.full(count, 0.001, np.float32),
            FIELD: np.float32(1e-3) / (thin * thin + np.float32(1e-4)),
            "InternalEnergy": random.random(count, np.float32),
            "SmoothingLength": np.float32(0.1) * (thin + np.float32(0.01)),
            "ParticleIDs": np.arange(
                sum(held[:number]), sum(held[: number + 1]), dtype=np.uint64 if high else np.uint32
            ),
        }
        for name, values in fields.items():
            group.create_dataset(name, data=values, track_times=False)


def describe_snapshot(paths: Iterable[Path], group: str = TYPE, field: str = FIELD) -> dict:
    """Build the entries `files`, `layout` and `expected` of a manifest by reading the files of a snapshot.

    `expected` contains the results for all particles and, if the files have positions and a box size, for particles in
    the region: count, sum, mean, variance, histogram with its edges, and the CRC-32 of the values as float64 in the
    order of the files.

    Raises:
        Problem: a file is missing, truncated or not HDF5, lacks the field, or contradicts its header; or the field
            contains a value that is not finite.
    """
    paths = list(paths)
    files = describe_files(paths, group, field)
    of_all = [(path, file["particles"]) for path, file in zip(paths, files, strict=True)]
    total = sum(file["particles"] for file in files)
    boxes, stored = {file.pop("box") for file in files}, sum(file.pop("stored") for file in files)
    box = boxes.pop() if len(boxes) == 1 else None
    chosen = {"all": None} | ({"region": [edge * box for edge in REGION]} if box else {})
    expected = {name: _compute_expected(of_all, group, field, region) for name, region in chosen.items()}
    for path, file in zip(paths, files, strict=True):
        file["sha256"] = compute_file_digest(path)
    layout = {"files": len(files), "particles": total, "group": group, "field": field, "stored_bytes": stored}
    return {"files": files, "layout": layout, "expected": expected}


def list_chunks(particles: Iterable[int], at_most: int) -> Iterator[tuple[int, int, int]]:
    """Split files into chunks of at most `at_most` particles, as yt does, given each file's number of particles.

    Yields:
        (index of the file, index of the first particle, index after the last particle) of each chunk.
    """
    for file, count in enumerate(particles):
        for start in range(0, count, at_most):
            yield file, start, min(start + at_most, count)


def describe_files(paths: list[Path], group: str, field: str) -> list[dict]:
    """Describe each file of a snapshot: name, size, number of particles, stored bytes of the field, and box size.

    The box size is None if a file contains no box size or no positions.

    Raises:
        Problem: a file is missing, truncated or not HDF5, lacks the field, or contradicts its header; the field is not
            a single number per particle; or the snapshot contains no particles.
    """
    files = [_describe_file(path, group, field) for path in paths]
    if wrong := {file.pop("of") for file in files} - {None, len(files)}:
        raise Problem(
            f"{paths[0].parent} must have {wrong.pop()} files, as in the headers (got {len(files)}); name a"
            " folder with exactly these files"
        )
    if not any(file["particles"] for file in files):
        raise Problem(f"{paths[0].parent} contains no particles of {group}; correct studies.particles.data")
    return files


def _describe_file(path: Path, group: str, field: str) -> dict:
    with _open_file(path) as file:
        if not isinstance(dataset := file.get(f"{group}/{field}"), h5py.Dataset):
            raise Problem(f"{path} lacks {group}/{field}; correct group or field of studies.particles.data")
        if dataset.ndim != 1 or dataset.dtype.kind not in "fiu":
            raise Problem(f"{path}: {group}/{field} must be a single number per particle; choose another field")
        header = dict(file["Header"].attrs) if "Header" in file else {}
        count, stored, counts = len(dataset), dataset.id.get_storage_size(), header.get("NumPart_ThisFile")
        kind = group.removeprefix("PartType")
        if counts is not None and kind.isdigit() and int(counts[int(kind)]) != count:
            raise Problem(
                f"{path}: {field} must have {int(counts[int(kind)])} values, as in the header (got {count}); restore"
                " the file"
            )
        places = f"{group}/{PLACES}" in file
        box = float(np.max(header["BoxSize"])) if places and "BoxSize" in header else None
    return {
        "name": path.name,
        "bytes": path.stat().st_size,
        "particles": count,
        "of": int(header["NumFilesPerSnapshot"]) if "NumFilesPerSnapshot" in header else None,
        "box": box,
        "stored": stored,
    }


def _compute_expected(files: list[tuple[Path, int]], group: str, field: str, region: list[float] | None) -> dict:
    blocks = partial(_read_blocks, files, group, field, region)
    count, total, crc, low, high = 0, 0.0, 0, np.inf, -np.inf
    for values in blocks():
        count, total, crc = count + len(values), total + float(values.sum()), zlib.crc32(values, crc)
        low, high = min(low, values.min(initial=low)), max(high, values.max(initial=high))
    if not count:
        raise Problem(f"{files[0][0].parent} contains no particles in the region; set selection to all")
    if not np.isfinite(total):
        raise Problem(
            f"{files[0][0].parent}: {group}/{field} contains values that are not finite; choose another field"
        )
    edges, mean = np.linspace(low, high, BINS + 1), total / count
    squares, histogram = 0.0, np.zeros(BINS, int)
    for values in blocks():
        squares += float(((values - mean) ** 2).sum())
        histogram += np.histogram(values, edges)[0]
    if not np.isfinite(squares):
        raise Problem(
            f"{files[0][0].parent}: {group}/{field} contains values too large to square; choose another field"
        )
    return {
        **{"count": count, "sum": total, "mean": mean, "variance": squares / count, "crc32": f"{crc:08x}"},
        **{"region": region, "edges": edges.tolist(), "histogram": histogram.tolist()},
    }


def _read_blocks(
    files: list[tuple[Path, int]], group: str, field: str, region: list[float] | None
) -> Iterator[np.ndarray]:
    for number, start, end in list_chunks([count for _, count in files], AT_MOST):
        with _open_file(files[number][0]) as file:
            values = file[f"{group}/{field}"][start:end].astype("float64")
            yield values if region is None else values[is_in_region(file[f"{group}/{PLACES}"][start:end], region)]


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[h5py.File]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise Problem(formats.describe_path_error(path, error)) from error
