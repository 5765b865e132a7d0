"""Generate the values of the array. They depend only on position and seed, and are the same on every machine."""

import numpy as np

from sbench.studies.containers.selections import Index

# Mean, amplitude and noise of the values, which are temperatures in kelvin in steps of 1/64, so that they compress.
_MEAN, _WAVE, _STEP = 280.0, 20.0, 64
_NOISE = 32


def make_values(shape: tuple[int, int, int], index: Index, seed: int) -> np.ndarray:
    """Return a part of the array as float32, with the shape of the part."""
    rows = [np.arange(size)[part] for part, size in zip(index, shape, strict=True)]
    time, row, column = (
        axis.astype("u8").reshape([-1 if n == number else 1 for n in range(3)]) for number, axis in enumerate(rows)
    )
    wave = np.sin(time / 58.0) * np.cos(row / 29.0) + np.sin(column / 57.0)
    # The multipliers of splitmix64 spread the bits of a position over a word (Steele, Lea and Flood, 2014).
    mixed = time * np.uint64(0x9E3779B97F4A7C15) + row * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed + column * np.uint64(0x94D049BB133111EB) + np.uint64(seed)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    noise = (mixed >> np.uint64(40)) % np.uint64(_NOISE)
    return (np.round((_MEAN + _WAVE / 2 * wave) * _STEP) / _STEP + noise / _STEP).astype("f4")


def make_coordinates(shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Return hours since 2000, degrees of latitude and longitude, and the area in m² of each cell of their grid."""
    lat, lon = np.linspace(-90, 90, shape[1]), np.linspace(0, 360, shape[2], endpoint=False)
    area = np.broadcast_to(1e10 * np.cos(np.radians(lat))[:, None] / shape[2], shape[1:]).astype("f4")
    return {"time": np.arange(shape[0], dtype="i8"), "lat": lat, "lon": lon, "cell_area": area}
