"""Frames of an ultrasound scan: echoes of many transmits, which decay with depth."""

from pathlib import Path

import h5py
import numpy as np


def make_frame(transmits: int, samples: int, elements: int, seed: int = 1) -> np.ndarray:
    """Return a frame of int16 echoes with the shape (1, transmits, samples, elements).

    Neighbouring samples are correlated, and the noise fades with depth, so that codecs can compress it.
    """
    numbers = np.random.default_rng(seed)
    depth = np.exp(-3 * np.arange(samples, dtype="f4") / samples)[:, np.newaxis]
    frame = np.empty((1, transmits, samples, elements), "i2")
    for number in range(transmits):
        noise = numbers.standard_normal((samples, elements), dtype="f4")
        frame[0, number] = (noise + np.roll(noise, 1, axis=0)) * 500 * depth
    return frame


def write_frame(path: Path, frame: np.ndarray, transmits: int, **options: object) -> None:
    """Write a frame as the dataset `raw_data`.

    Args:
        path: path of the file.
        frame: result of `make_frame`.
        transmits: number of transmits in a chunk.
        options: further options of `create_dataset`, such as a compression.
    """
    with h5py.File(path, "w") as file:
        file.create_dataset("raw_data", data=frame, chunks=(1, transmits, *frame.shape[2:]), **options)
