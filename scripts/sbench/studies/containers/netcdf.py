"""Write netCDF-4 files with h5py, and split the times of an array among them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.studies.containers.selections import parse_sides
from sbench.studies.containers.settings import Data

if TYPE_CHECKING:
    import h5py
    import numpy as np

# The array and its axes, which are also the names of its coordinates.
NAME, AXES = "t2m", ("time", "lat", "lon")
ATTRIBUTES = {
    NAME: {"units": "K", "long_name": "2 metre temperature"},
    "time": {"units": "hours since 2000-01-01", "calendar": "standard"},
    "lat": {"units": "degrees_north"},
    "lon": {"units": "degrees_east"},
}
# The level of deflate in all containers.
LEVEL = 4


def list_files(times: int, files: int) -> Iterator[tuple[str, slice]]:
    """Yield the name and the times of each file. `files` must divide the number of times."""
    each = times // files
    for number in range(files):
        yield f"{NAME}_{number:04}.nc", slice(number * each, (number + 1) * each)


def write_file(file: "h5py.File", array: "np.ndarray", coordinates: Mapping[str, "np.ndarray"], data: Data) -> None:
    """Write an array and its coordinates to an empty HDF5 file, in the layout of the source."""
    chunks = tuple(map(min, array.shape, parse_sides(data.chunks)))
    deflate = {"compression": "gzip", "compression_opts": LEVEL} if data.compression == "deflate" else {}
    write_variables(file, coordinates, {"data": array, "chunks": chunks, **deflate})


def write_variables(
    file: "h5py.File", coordinates: Mapping[str, "np.ndarray"], options: Mapping[str, object]
) -> "h5py.Dataset":
    """Create the array and its coordinates in an empty HDF5 file, as netCDF-4 with dimension scales.

    Args:
        file: the file.
        coordinates: name and values of each coordinate.
        options: arguments of h5py's `create_dataset` for the array.

    Returns:
        The array.
    """
    for name, axis in coordinates.items():
        file[name] = axis
        file[name].make_scale(name)
        file[name].attrs.update(ATTRIBUTES[name])
    dataset = file.create_dataset(NAME, **options)
    dataset.attrs.update(ATTRIBUTES[NAME])
    for number, name in enumerate(AXES):
        dataset.dims[number].attach_scale(file[name])
    return dataset
