"""Generate the signals of synthetic shots, and their dimension scales, in memory.

The properties of the signals come from `signal_table`. Values are computed only from raw random bits with
+ - * /, whose results IEEE 754 defines exactly, so that the same seed, shot and signal give the same bytes on every
machine and with every version of numpy.
"""

import zlib
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from sbench.studies.shots.signal_table import Signal, load_signals, select_signals

RING = 500  # number of files in the published study, to which the counts in the table refer
RUNS_A_DAY = 30
SECONDS = 2.0
# Start of each time base in seconds. All other axes are indices.
TIME_BASES = {
    "efit": 0.06,
    "bolometer": -0.05,
    "thomson": 0.1,
    "interferometer": -0.1,
    "engineering": -0.5,
    "control": -0.2,
    "lower_hybrid": 0.0,
    "magnetics": -0.1,
    "flux": -0.1,
    "ion_cyclotron": 0.0,
    "diode": -0.1,
    "xtomo": -0.05,
}


@dataclass(frozen=True)
class Settings:
    """The settings of the generator, which are validated by the study's schema."""

    layout: str
    shots: int
    signals: int
    page_size: int
    paged: bool
    deflate: int
    seed: int


def format_shot_number(seed: int, index: int) -> str:
    """Format a shot number as 1yymmddrrr, where `rrr` is the run on that day. The first day depends on `seed`."""
    day = date(2016, 6, 25) + timedelta(days=seed * 61 % 300 + index // RUNS_A_DAY)
    return f"1{day:%y%m%d}{index % RUNS_A_DAY + 1:03}"


def plan_shots(settings: Settings) -> dict[str, dict[str, tuple[str, ...]]]:
    """Decide which signals and dimension scales each shot has, as a sorted dict {shot: {signal: names of its axes}}.

    The shots are placed at equal distances, in an order that depends on the seed, on a ring of 500 positions. A signal
    is absent from an arc that starts at `absent_from` and whose length is the number of files without the signal; it
    lacks scales on the following arc. So 500 shots have exactly the counts in the table, and any other number of shots
    has the same proportions.
    """
    ranks = np.argsort(
        np.argsort(_create_bit_source(settings.seed, 0, "plan").random_raw(settings.shots), kind="stable")
    )
    places = (ranks + 0.5) * (RING / settings.shots)
    signals = [load_signals()[name] for name in select_signals(settings.signals)]
    shots = {}
    for index, place in enumerate(places):
        held = {}
        for signal in signals:
            behind = signal.absent_from + RING - signal.files
            if signal.absent_from <= place < behind:
                continue
            scaled = not behind <= place < behind + signal.files - signal.scaled_files
            held[signal.name] = signal.axes if scaled else ()
        shots[format_shot_number(settings.seed, index)] = held
    return shots


def sort_pairs(layout: str, shots: dict[str, dict[str, object]]) -> list[tuple[str, str]]:
    """Return all (shot, signal) pairs in the order in which a layout stores them."""
    pairs = [(shot, signal) for shot in sorted(shots) for signal in sorted(shots[shot])]
    return sorted(pairs, key=lambda pair: pair[::-1]) if layout == "signal-major" else pairs


def compute_axis_values(seed: int, shot: str, axis: str, length: int) -> np.ndarray:
    """Return the values of a dimension scale.

    A time base contains seconds as float32, with a trigger time that differs between shots. All other scales contain
    0 to length - 1 as int32.
    """
    if axis not in TIME_BASES:
        return np.arange(length, dtype=np.int32)
    trigger = float(_create_bit_source(seed, int(shot), axis).random_raw() % 1000) * 1e-6
    return ((TIME_BASES[axis] + trigger) + np.arange(length) * (SECONDS / length)).astype(np.float32)


def compute_signal_values(seed: int, shot: str, signal: Signal) -> np.ndarray:
    """Return the values of a signal with its shape and dtype. The same arguments always give the same values."""
    bits = _create_bit_source(seed, int(shot), signal.name)
    count = int(np.prod(signal.shape))
    if signal.kind == "time":
        values = compute_axis_values(seed, shot, signal.axes[0], count)
    elif signal.kind == "text":
        values = np.array([f"{signal.name}_{index:02}" for index in range(count)])
    elif signal.kind == "flag":
        values = bits.random_raw(count) % 10 > 0
    elif signal.kind == "setting":
        values = ((bits.random_raw(count) % 201).astype(np.float64) - 100) * (signal.amplitude / 100)
    else:
        values = _compute_counts(bits, signal) * (signal.amplitude / 2048)
    return np.ascontiguousarray(values.reshape(signal.shape).astype(signal.dtype))


def _compute_counts(bits: np.random.PCG64, signal: Signal) -> np.ndarray:
    """Simulate a plasma discharge as counts of a 12-bit digitiser.

    The longest dimension is time. A second dimension is a spatial profile.
    """
    samples = max(signal.shape)
    rise, fall, crashes, depth = (bits.random_raw(4) % 1000 / 1000).tolist()
    time = (np.arange(samples) + 0.5) / samples
    ramp = np.minimum(np.minimum(time / (0.1 + rise / 10), (1 - time) / (0.1 + fall / 10)), 1)
    counts = 1500 * ramp * (1 + (0.1 + depth / 10) * (0.5 - time * (20 + 40 * crashes) % 1))
    if len(signal.shape) == 2:
        channels = min(signal.shape)
        profile = 1 - ((np.arange(channels) + 0.5) / channels - 0.5) ** 2
        counts = np.multiply.outer(counts, profile)
        counts = counts if signal.shape[0] == samples else counts.T
    if signal.kind == "adc":
        return np.rint(counts) + _compute_noise(bits, signal.shape, signal.noise_bits)
    return counts + _compute_noise(bits, signal.shape, 8) / 64


def _compute_noise(bits: np.random.PCG64, shape: tuple[int, ...], width: int) -> np.ndarray:
    """Draw integers with a triangular distribution around 0, between -2**width and 2**width (exclusive)."""
    count = int(np.prod(shape))
    raw = bits.random_raw(-(-2 * count // 8)).astype("<u8").view(np.uint8) & (2**width - 1)
    return (raw[:count].astype(np.int16) - raw[count : 2 * count]).reshape(shape)


def _create_bit_source(seed: int, shot: int, name: str) -> np.random.PCG64:
    """Create a random bit generator whose stream differs for each combination of seed, shot and name."""
    return np.random.PCG64(np.random.SeedSequence([seed, shot, zlib.crc32(name.encode())]))
