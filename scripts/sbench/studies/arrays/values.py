"""Generate the values of an array. They depend only on row, column and seed, and are the same on every machine."""

import numpy as np

# Rows per block. Each block has a separate seed, so that it can be generated independently.
_BLOCK = 256
_MEAN, _WAVE, _NOISE = 280.0, 15.0, 0.5


def make_values(kind: str, columns: int, rows: slice, seed: int) -> np.ndarray:
    """Generate rows of an array of 8-byte values.

    Args:
        kind: "formula": unsigned integers, by the published formula of row and column; "floats": temperatures with
            two decimals, similar to their neighbours; "random": unsigned integers that cannot be compressed.
        columns: number of columns of the array.
        rows: the rows to generate, with both `start` and `stop` set.
        seed: seed of the random number generator.

    Returns:
        An array of shape (rows, columns).
    """
    blocks = range(rows.start // _BLOCK, -(-rows.stop // _BLOCK))
    made = np.concatenate([_make_block(kind, columns, number, seed) for number in blocks])
    first = rows.start - blocks.start * _BLOCK
    return made[first : first + rows.stop - rows.start]


def get_dtype(kind: str) -> np.dtype:
    """Return the dtype of values of this kind."""
    return np.dtype("f8" if kind == "floats" else "u8")


def _make_block(kind: str, columns: int, number: int, seed: int) -> np.ndarray:
    row = np.arange(number * _BLOCK, (number + 1) * _BLOCK, dtype="u8")[:, None]
    column = np.arange(columns, dtype="u8")
    if kind == "formula":
        # With this formula, gzip compresses the published array to the printed 38.59 MiB.
        return row * np.uint64(100_000) + column
    random = np.random.default_rng([seed, number])
    if kind == "random":
        return random.integers(0, 2**64, (_BLOCK, columns), dtype="u8")
    wave = np.sin(row / 300) * np.cos(column / 200)
    return np.round(_MEAN + _WAVE * wave + _NOISE * random.standard_normal((_BLOCK, columns)), 2)
