"""Read snapshots through yt, and count yt's reads in the same way as in other methods.

Each process opens the snapshot before the timed part. yt is imported by `open_snapshot` only, because it is installed
only in environments whose lock file lists it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbench.probe.program import Problem
from sbench.studies.particles.snapshot_reading import Chunk, Source, record_effective, record_reads

if TYPE_CHECKING:
    import numpy as np

# yt's dataset by the path of the first file of its snapshot; an unpickled task finds its dataset again.
_datasets: dict[str, Any] = {}
# Number of a chunk by (file name, index of the first particle).
_numbers: dict[tuple[str, int], int] = {}


def open_snapshot(address: str, index: Path | str, control: str = "") -> None:
    """Open a snapshot with yt, creating yt's index if it does not exist yet.

    Args:
        address: first file of the snapshot.
        index: path of yt's index file, which all processes share.
        control: the cell's level of the factor `control`; a deliberate slowdown waits after each read.

    Raises:
        Problem: yt does not recognise the file as a snapshot.
    """
    if address in _datasets:
        return
    import h5py
    import yt
    from yt.utilities.exceptions import YTUnidentifiedDataType

    yt.set_log_level("error")
    yt.config.ytcfg["yt", "suppress_stream_logging"] = True
    try:
        dataset = yt.load(address)
    except YTUnidentifiedDataType as error:
        raise Problem(f"{address}: yt does not recognise the file; remove methods yt-serial and yt-delayed") from error
    dataset.index_filename = str(index)
    _numbers.update({_get_place(piece): number for number, piece in enumerate(list_pieces(dataset))})
    _add_accounting(type(dataset.index.io), control)
    _datasets[address] = dataset
    # yt opens files with h5py's defaults, regardless of the file access properties used by other methods.
    with h5py.File(address, "r") as file:
        record_effective({"driver": file.driver})


def get_dataset(address: str) -> Any:
    """Return yt's dataset of an open snapshot; `address` is the snapshot's first file."""
    return _datasets[address]


def list_pieces(dataset: Any) -> list:
    """Return yt's chunk objects of a dataset; each has `filename`, `start` and `end`."""
    return dataset.index.data_files


def expect_same_chunks(dataset: Any, chunks: Sequence[Chunk]) -> None:
    """Raise a Problem if yt splits the files into different chunks than those read by other methods."""
    own = [(*_get_place(piece), int(piece.end)) for piece in list_pieces(dataset)]
    if own != [(Path(chunk.address).name, chunk.start, chunk.end) for chunk in chunks]:
        raise Problem(
            f"{chunks[0].address}: yt's chunks ({len(own)}) differ from the listed chunks ({len(chunks)}); remove"
            " methods yt-serial and yt-delayed"
        )


def read_all_data(dataset: Any, source: Source) -> Any:
    """Read the values of all particles as float64 with yt's all_data(), which reads one chunk after another."""
    return dataset.all_data()[source.group, source.field].d


def sort_by_file(values: "np.ndarray", chunks: Sequence[Chunk]) -> "np.ndarray":
    """Sort values from `read_all_data` in the order of the chunks. yt returns files by name, 10 before 2."""
    import numpy as np

    order = sorted(range(len(chunks)), key=lambda at: (chunks[at].address, chunks[at].start))
    ends = np.cumsum([chunks[at].end - chunks[at].start for at in order])
    parts = dict(zip(order, np.split(values, ends[:-1]), strict=True))
    return np.concatenate([parts[at] for at in range(len(chunks))])


def read_piece(piece: Any, source: Source) -> Any:
    """Read the values of one of yt's chunks as float64, with yt's own reader."""
    field = source.group, source.field
    return piece.io._read_particle_data_file(piece, {field[0]: [field[1]]})[field].astype("float64")


def get_chunk_number(piece: Any) -> int:
    """Return the index of one of yt's chunk objects within its snapshot."""
    return _numbers[_get_place(piece)]


def _get_place(piece: Any) -> tuple[str, int]:
    return Path(piece.filename).name, piece.start


def _add_accounting(reader: type, control: str) -> None:
    """Patch the class of yt's reader to count its reads.

    The class is patched instead of the instance, because Dask sends pickled readers to workers.
    """
    read = reader._read_particle_data_file

    def read_and_record(self: Any, piece: Any, *arguments: Any) -> dict:
        began = time.perf_counter()
        values = read(self, piece, *arguments)
        count = 8 * sum(part.size for part in values.values())
        record_reads([get_chunk_number(piece)], time.perf_counter() - began, count, control)
        return values

    reader._read_particle_data_file = read_and_record
