"""Open a container as the level of `opening` specifies: with its library, or with xarray."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.studies.containers.base import Opened, Target, get_container
from sbench.studies.containers.netcdf import NAME
from sbench.studies.containers.selections import Index, split_rows
from sbench.studies.containers.settings import UNSET

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

LIBRARY, XARRAY, MANY = "library", "xarray", "open_mfdataset"
# Options of xarray.open_mfdataset by their names in a level, such as "open_mfdataset+minimal+parallel".
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "parallel": {"parallel": True},
    "minimal": {"data_vars": "minimal", "coords": "minimal"},
    "override": {"compat": "override"},
    "nested": {"combine": "nested", "concat_dim": "time"},
    "exact": {"join": "exact"},
    "joined": {"join": "override"},
    # What xarray did until its release 2025.8: variables without the dimension are compared in all files.
    "all": {"data_vars": "all", "coords": "different", "compat": "no_conflicts", "join": "outer"},
}
_WORKERS = re.compile(r"(threads|processes)-(\d+)")


def open_container(target: Target) -> Opened:
    """Open the container of a cell."""
    base, *names = target.cell.opening.split("+")
    container = get_container(target.cell.container)
    if base == LIBRARY:
        return container.open(target)
    import xarray as xr

    sources = container.open_datasets(target)
    if base == MANY:
        options: dict = {}
        for name in names:
            options |= OPTIONS[name]
        return _Datasets([xr.open_mfdataset(sources, engine="h5netcdf", **options)], target)
    # None does without Dask.
    chunks = None if target.cell.workers == UNSET else {}
    return _Datasets([container.open_dataset(source, chunks=chunks) for source in sources], target)


@contextlib.contextmanager
def set_workers(target: Target) -> Iterator[None]:
    """Let Dask compute with the threads or processes of the level of `workers`, during a `with` block."""
    if target.cell.workers == UNSET:
        yield
        return
    import dask

    kind, number = _WORKERS.fullmatch(target.cell.workers).groups()
    with dask.config.set(scheduler=kind, num_workers=int(number)):
        yield


class _Datasets:
    """Datasets of xarray, one after the other in time; a loop over files has one for each file."""

    def __init__(self, datasets: list["xr.Dataset"], target: Target) -> None:
        self._datasets, self._rows = datasets, target.grid.shape[0]

    def read(self, index: Index) -> "np.ndarray":
        import numpy as np

        if len(self._datasets) == 1:
            return self._datasets[0][NAME][index].values
        each = self._rows // len(self._datasets)
        parts = split_rows(index, self._rows, each)
        return np.concatenate([self._datasets[number][NAME][rows, *index[1:]].values for number, rows in parts])

    def walk(self) -> int:
        variables = {
            name: (variable.shape, variable.attrs)
            for dataset in self._datasets
            for name, variable in dataset.variables.items()
        }
        return len(variables)

    def close(self) -> None:
        for dataset in self._datasets:
            dataset.close()
