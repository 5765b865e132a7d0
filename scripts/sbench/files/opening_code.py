"""Generate Python code that opens a file with given driver settings, using h5py or xarray."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from sbench import drivers
from sbench.probe import sizes

# Maximum number of groups to open in the code for xarray.
_GROUPS = 3


@dataclass(frozen=True)
class Target:
    """The file to open.

    Attributes:
        path: path of the file, or bucket/key.
        region: region of the bucket.
        groups: groups that contain its datasets, such as "/"; xarray opens each group as a separate dataset.
    """

    path: str
    region: str = "us-east-1"
    groups: Sequence[str] = ("/",)

    @property
    def url(self) -> str:
        """The percent-encoded URL for ROS3."""
        return f"s3://{quote(self.path)}"


def build_h5py_code(arm: Mapping[str, str], target: Target) -> str:
    """Return a line of Python, including imports, that opens the file with h5py as `file`."""
    if arm["driver"] == "ros3" and arm["page_buffer"] == "0":
        return f"import h5py; {_build_unbuffered_code(arm, target)}"
    if arm["driver"] == "s3fs":
        arguments = _join_arguments(_build_cache_arguments(arm))
        return f"import h5py, s3fs; file = h5py.File({_build_s3fs_code(arm, target)}{arguments})"
    address, settings = _build_h5py_arguments(arm, target)
    return f"import h5py; file = h5py.File({address}{_join_arguments(settings)})"


def build_xarray_code(arm: Mapping[str, str], target: Target) -> str:
    """Return a line of Python, including imports, that opens the file with xarray as `data`.

    If there is more than one group, `data` is a dictionary. The result is an empty string if xarray does not support
    the settings.
    """
    if arm["page_buffer"] == "0":
        return ""
    several, path = len(target.groups) > 1, {"engine": '"h5netcdf"'}
    if arm["driver"] == "s3fs":
        chunk_cache = _build_cache_arguments(arm)
        path |= {"driver_kwds": _format_dict(chunk_cache)} if chunk_cache else {}
        # Open the file only once if there is more than one group.
        source = _build_s3fs_code(arm, target)
        before, source = (f"file = {source}; ", "file") if several else ("", source)
        return f"import s3fs, xarray; {before}{_build_dataset_code(source, path, target)}"
    address, settings = _build_h5py_arguments(arm, target)
    if not several:
        return f"import xarray; {_build_dataset_code(address, _build_engine_arguments(settings), target)}"
    before = f'file = h5netcdf.File({address}, "r"{_join_arguments(settings)}, phony_dims="access")'
    opening = "xarray.open_dataset(xarray.backends.H5NetCDFStore(file, group=group))"
    return f"import h5netcdf, xarray; {before}; data = {{group: {opening} for group in {_format_groups(target)}}}"


def _build_dataset_code(source: str, arguments: dict[str, str], target: Target) -> str:
    if len(target.groups) == 1:
        group = {} if target.groups[0] == "/" else {"group": _format_string(target.groups[0])}
        return f"data = xarray.open_dataset({source}{_join_arguments(arguments | group)})"
    opening = f"xarray.open_dataset({source}{_join_arguments(arguments | {'group': 'group'})})"
    return f"data = {{group: {opening} for group in {_format_groups(target)}}}"


def _build_h5py_arguments(arm: Mapping[str, str], target: Target) -> tuple[str, dict[str, str]]:
    ros3 = {"driver": '"ros3"', "aws_region": f'b"{target.region}"'} if arm["driver"] == "ros3" else {}
    buffer = {} if arm["page_buffer"] == "unset" else {"page_buf_size": str(sizes.parse_size(arm["page_buffer"]))}
    return _format_string(target.url if ros3 else target.path), ros3 | buffer | _build_cache_arguments(arm)


def _build_engine_arguments(settings: dict[str, str]) -> dict[str, str]:
    driver = {"driver": settings["driver"]} if "driver" in settings else {}
    rest = {key: value for key, value in settings.items() if key != "driver"}
    return {"engine": '"h5netcdf"'} | driver | ({"driver_kwds": _format_dict(rest)} if rest else {})


def _build_cache_arguments(arm: Mapping[str, str]) -> dict[str, str]:
    nbytes, slots = drivers.parse_chunk_cache(arm.get("chunk_cache", drivers.DEFAULT), 0)
    return {key: str(value) for key, value in (("rdcc_nbytes", nbytes), ("rdcc_nslots", slots)) if value}


def _build_s3fs_code(arm: Mapping[str, str], target: Target) -> str:
    kind, _, block = arm["read_cache"].partition("-")
    cache = {"cache_type": f'"{kind}"', "block_size": str(sizes.parse_size(block))} if block else {}
    return f"s3fs.S3FileSystem().open({_format_string(target.path)}{_join_arguments(cache)})"


def _build_unbuffered_code(arm: Mapping[str, str], target: Target) -> str:
    """Generate code that disables the page buffer with HDF5's low-level API.

    `h5py.File` ignores a page buffer of 0, so ROS3 would use its default.
    """
    cache = _build_cache_arguments(arm)
    chunk_cache = (
        f"elements, slots, _, preemption = plist.get_cache(); "
        f"plist.set_cache(elements, {cache.get('rdcc_nslots', 'slots')}, {cache['rdcc_nbytes']}, preemption); "
        if cache
        else ""
    )
    return (
        f"plist = h5py.h5p.create(h5py.h5p.FILE_ACCESS); plist.set_page_buffer_size(0, 0, 0); {chunk_cache}"
        f'plist.set_fapl_ros3(b"{target.region}", b"", b""); '
        f"file = h5py.File(h5py.h5f.open({_format_string(target.url)}.encode(), h5py.h5f.ACC_RDONLY, plist))"
    )


def _format_groups(target: Target) -> str:
    return "(" + ", ".join(map(_format_string, target.groups[:_GROUPS])) + ")"


def _format_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _format_dict(settings: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{key}": {value}' for key, value in settings.items()) + "}"


def _join_arguments(settings: Mapping[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in settings.items())
