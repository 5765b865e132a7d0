"""Convert a field of a snapshot to Parquet, as users may do before they read it many times."""

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from sbench import drivers
from sbench.probe.program import Problem, sync_path
from sbench.studies.particles.snapshot_reading import Chunk

# pyarrow's maximum number of rows per row group.
_MOST_ROWS = 64 * 2**20


def write_copies(chunks: Sequence[Chunk], field: str, access: drivers.Access, folder: Path) -> list[Path]:
    """Copy a field of each HDF5 file to a Parquet file, with a row group per chunk and pyarrow's default settings.

    Returns:
        Paths of the copies in the order of the files; the copies are synced to disk (METHOD 7).

    Raises:
        Problem: a file cannot be read, or its copy cannot be written.
    """
    copies = []
    for address, pieces in itertools.groupby(chunks, lambda chunk: chunk.address):
        copy = folder / f"{Path(address).name}.parquet"
        try:
            _write_copy(address, pieces, field, access, copy)
            sync_path(copy)
        except OSError as error:
            words = " ".join(str(error).split())
            raise Problem(
                f"{address} cannot be copied to {folder}: {words}; free disk space, or remove driver parquet"
            ) from error
        copies.append(copy)
    return copies


def _write_copy(address: str, pieces: Iterable[Chunk], field: str, access: drivers.Access, copy: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    file, writer = drivers.get_driver(access.driver).open(address, access), None
    with contextlib.closing(file), contextlib.ExitStack() as stack:
        for chunk in pieces:
            values = file.read(field, slice(chunk.start, chunk.end))
            # Parquet is always little-endian, so convert values to the native byte order first.
            table = pyarrow.table({field: values.astype(values.dtype.newbyteorder("="), copy=False)})
            writer = writer or stack.enter_context(parquet.ParquetWriter(copy, table.schema))
            writer.write_table(table, row_group_size=min(len(table), _MOST_ROWS))
