"""Read Parquet copies of HDF5 files with pyarrow; each column is named after the path of the copied dataset."""

from typing import TYPE_CHECKING

from sbench.drivers import Access, Driver, Where

if TYPE_CHECKING:
    import numpy as np


class _Parquet(Driver):
    """pyarrow, which reads whole row groups of a column and has neither a page buffer nor a chunk cache."""

    files = True
    needs = ("pyarrow",)
    libraries = ("pyarrow.parquet",)
    reads_copy = True

    def open(self, address: str, access: Access) -> "_File":
        return _File(address)


class _File:
    def __init__(self, address: str) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(address)

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        """Return the values of the column `path`, or only of the rows `where`. Whole row groups are read."""
        metadata = self._file.metadata
        start, stop, _ = (where or slice(None)).indices(metadata.num_rows)
        groups, first, end = [], 0, 0
        for number in range(metadata.num_row_groups):
            begin, end = end, end + metadata.row_group(number).num_rows
            if begin < stop and end > start:
                groups.append(number)
            elif not groups:
                first = end
        return self._file.read_row_groups(groups, columns=[path])[path].to_numpy()[start - first : stop - first]

    def read_settings(self) -> dict:
        return {"driver": "parquet"}

    def close(self) -> None:
        self._file.close()


DRIVERS = {"parquet": _Parquet()}
