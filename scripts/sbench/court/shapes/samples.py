"""Samples of a world model: frames of a camera, with small columns beside them, in episodes; in HDF5 and as columns."""

import io
from pathlib import Path

import h5py
import numpy as np

COLUMNS = ("pixels", "action", "proprio")


def make_rows(episodes: int, steps: int, side: int, seed: int = 1) -> tuple[dict[str, np.ndarray], list[bytes]]:
    """Return the rows of all episodes by column, and their frames as JPEG, which decode to the same pixels.

    Args:
        episodes: number of episodes.
        steps: number of rows of an episode.
        side: width and height of a frame in pixels.
        seed: seed of the values.
    """
    from PIL import Image

    numbers, count = np.random.default_rng(seed), episodes * steps
    ramp = np.linspace(0, 2 * np.pi, side, dtype="f4")
    waves = (np.sin(3 * ramp)[:, None, None] + np.cos(2 * ramp)[None, :, None]) * 40 + 128
    encoded = []
    for number in range(count):
        noise = numbers.standard_normal((side, side, 3), dtype="f4") * 40
        frame = np.roll(waves, number, axis=0) + noise
        buffer = io.BytesIO()
        Image.fromarray(frame.clip(0, 255).astype("u1")).save(buffer, format="JPEG", quality=95)
        encoded.append(buffer.getvalue())
    rows = {
        "pixels": np.stack([decode_frame(raw) for raw in encoded]),
        "action": numbers.random((count, 2), dtype="f4"),
        "proprio": numbers.random((count, 4), dtype="f4"),
    }
    return rows, encoded


def decode_frame(raw: bytes | memoryview) -> np.ndarray:
    """Return the pixels of a JPEG."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(raw)))


def write_episodes(path: Path, rows: dict[str, np.ndarray], steps: int) -> None:
    """Write rows as HDF5, episode by episode, with a chunk for each row of each column."""
    with h5py.File(path, "w", libver="latest") as file:
        for name, values in rows.items():
            shape = values.shape[1:]
            file.create_dataset(name, (0, *shape), values.dtype, maxshape=(None, *shape), chunks=(1, *shape))
        for start in range(0, len(rows["pixels"]), steps):
            for name, values in rows.items():
                file[name].resize(start + steps, axis=0)
                file[name][start : start + steps] = values[start : start + steps]


def write_contiguous(path: Path, rows: dict[str, np.ndarray], encoded: list[bytes]) -> None:
    """Write rows as HDF5 with contiguous columns; the frames are JPEGs one after another, with their offsets."""
    with h5py.File(path, "w") as file:
        for name in ("action", "proprio"):
            file[name] = rows[name]
        file["offsets"] = np.cumsum([0, *map(len, encoded)])
        file["jpeg"] = np.frombuffer(b"".join(encoded), "u1")


def write_lance(path: Path, rows: dict[str, np.ndarray], encoded: list[bytes]) -> None:
    """Write rows as a Lance dataset, with frames as JPEG."""
    import lance
    import pyarrow as pa

    small = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(rows[name].ravel()), rows[name].shape[1])
        for name in ("action", "proprio")
    }
    lance.write_dataset(pa.table({"pixels": pa.array(encoded, pa.binary()), **small}), str(path))
