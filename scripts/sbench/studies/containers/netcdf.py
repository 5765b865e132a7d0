"""Write netCDF-4 files with h5py, and split the times of an array among them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py
    import numpy as np

# The array and its axes, and the axes of each coordinate. xarray may compare the last one between files.
NAME, AXES = "t2m", ("time", "lat", "lon")
COORDINATES = {"time": ("time",), "lat": ("lat",), "lon": ("lon",), "cell_area": ("lat", "lon")}
ATTRIBUTES = {
    NAME: {"units": "K", "long_name": "2 metre temperature", "coordinates": "cell_area"},
    "time": {"units": "hours since 2000-01-01", "calendar": "standard"},
    "lat": {"units": "degrees_north"},
    "lon": {"units": "degrees_east"},
    "cell_area": {"units": "m2"},
}
# The level of deflate in all containers.
LEVEL = 4


def list_files(times: int, files: int) -> Iterator[tuple[str, slice]]:
    """Yield the name and the times of each file. `files` must divide the number of times."""
    each = times // files
    for number in range(files):
        yield f"{NAME}_{number:04}.nc", slice(number * each, (number + 1) * each)


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
    for name in AXES:
        file[name] = coordinates[name]
        file[name].make_scale(name)
    others = [name for name in COORDINATES if name not in AXES]
    for name in others:
        file[name] = coordinates[name]
    file.create_dataset(NAME, **options)
    for name in (*others, NAME):
        for number, axis in enumerate(COORDINATES.get(name, AXES)):
            file[name].dims[number].attach_scale(file[axis])
    for name in (*COORDINATES, NAME):
        file[name].attrs.update(ATTRIBUTES[name])
    return file[NAME]
