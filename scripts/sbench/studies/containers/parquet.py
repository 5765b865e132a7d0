"""Parquet as a container: a row per time, whose values are a list of fixed size."""

import math
from typing import TYPE_CHECKING

from sbench.studies.containers.base import Container, Target
from sbench.studies.containers.netcdf import NAME
from sbench.studies.containers.selections import Index, format_sides
from sbench.studies.containers.settings import SAME

if TYPE_CHECKING:
    import numpy as np

_FILE = "table.parquet"
_CODECS = {"none": "none", "deflate": "gzip", "zstd": "zstd", "blosc": "lz4"}


class Table(Container):
    """A table with a row group per chunk of times. A reader fetches whole row groups."""

    needs = ("pyarrow", "obstore")
    converts = True
    openings = ("library",)

    def convert(self, target: Target) -> None:
        """Write the table on this machine, and put it into the store."""
        import pyarrow as pa
        from pyarrow import parquet

        shape, path = target.grid.shape, target.scratch / _FILE
        codec = _CODECS[target.cell.compression if target.cell.codec == SAME else target.cell.codec]
        cells = pa.list_(pa.float32(), math.prod(shape[1:]))
        schema = pa.schema([("time", pa.int64()), (NAME, cells)])
        with parquet.ParquetWriter(path, schema, compression=codec, use_dictionary=False) as writer:
            for times, block in target.iter_blocks(target.grid.chunks[0]):
                column = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), type=cells)
                rows = pa.table({"time": pa.array(range(times.start, times.stop)), NAME: column}, schema=schema)
                writer.write_table(rows, row_group_size=len(block))
        target.put_file(_FILE, path)

    def open(self, target: Target) -> "_Opened":
        """Open the table, from an object store with s3fs."""
        return _Opened(target)

    def read_layout(self, target: Target) -> dict:
        """Read back the rows of a group, and the codec."""
        opened = _Opened(target)
        group = opened.file.metadata.row_group(0)
        codecs = {one.lower(): name for name, one in _CODECS.items()} | {"uncompressed": "none", "lz4_raw": "blosc"}
        opened.close()
        held = {"codec": codecs[group.column(1).compression.lower()], "client": opened.client}
        return held | {"chunks": format_sides((group.num_rows, *target.grid.shape[1:]))}


class _Opened:
    def __init__(self, target: Target) -> None:
        from pyarrow import parquet

        from sbench.drivers.file_objects import build_filesystem

        self._shape, self._step = target.grid.shape, target.grid.chunks[0]
        access, url = target.build_access("s3fs"), target.build_url(_FILE)
        self._source = None if target.is_local else build_filesystem(access).open(url.removeprefix("s3://"), "rb")
        self.file = parquet.ParquetFile(self._source or url, pre_buffer=True)

    @property
    def client(self) -> str:
        return type(self._source).__module__.partition(".")[0] if self._source else "local"

    def read(self, index: Index) -> "np.ndarray":
        import numpy as np

        rows = np.arange(self._shape[0])[index[0]]
        groups = sorted({int(row) // self._step for row in rows})
        column = self.file.read_row_groups(groups, columns=[f"{NAME}.list.element"])[NAME].combine_chunks()
        held = column.flatten().to_numpy().reshape(-1, *self._shape[1:])
        places = {group: number * self._step for number, group in enumerate(groups)}
        return held[[places[int(row) // self._step] + int(row) % self._step for row in rows]][:, *index[1:]]

    def walk(self) -> int:
        return len(self.file.schema_arrow.names)

    def close(self) -> None:
        self.file.close()
        if self._source:
            self._source.close()


CONTAINERS = {"parquet": Table()}
