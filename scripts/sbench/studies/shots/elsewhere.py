"""Find other files that contain a dataset's values: the sources of a virtual dataset, or external storage."""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py

from sbench.probe import hdf5_tree
from sbench.probe.formats import format_error

VIRTUAL, EXTERNAL = "virtual", "external storage"
# HDF5's source name for the virtual dataset's file itself, and h5py's driver name for Python file objects.
_SAME, _FILE_OBJECT = ".", "fileobj"


@dataclass(frozen=True)
class Holders:
    """The other files that contain values of a dataset.

    Attributes:
        files: absolute paths of these files.
        amiss: a message about the first file that is missing or unusable, or an empty string if there is none.
        fixed: whether a path is absolute or leads to another directory, so that HDF5 would not read a copy of the file
            next to a copy of the dataset's file.
    """

    files: frozenset[Path] = frozenset()
    amiss: str = ""
    fixed: bool = False


def get_storage_kind(created: h5py.h5p.PropDCID) -> str:
    """Read from a dataset's creation property list whether its values are stored in other files.

    Returns:
        "virtual", "external storage", or an empty string if the values are in the dataset's file.
    """
    if created.get_layout() == h5py.h5d.VIRTUAL:
        return VIRTUAL
    return EXTERNAL if created.get_external_count() else ""


def find_holders(dataset: h5py.Dataset) -> Holders:
    """Find the other files that contain a dataset's values. Sources that are themselves virtual are followed.

    HDF5 does not report missing sources but returns fill values for them.
    """
    return _find_holders(dataset, set())


def list_sources(file: h5py.File) -> list[str]:
    """Return the names of all files that a file's virtual datasets refer to, except the file itself.

    Names of numbered source files contain `%b`.
    """
    names = set()
    for dataset in (link.object for link in hdf5_tree.walk_links(file) if isinstance(link.object, h5py.h5d.DatasetID)):
        # Ignore errors: `choose_datasets` reports datasets that cannot be read.
        with contextlib.suppress(Exception):
            if get_storage_kind(created := dataset.get_create_plist()) == VIRTUAL:
                names |= {created.get_virtual_filename(number) for number in range(created.get_virtual_count())}
    return sorted(names - {_SAME})


def _find_holders(dataset: h5py.Dataset, seen: set[tuple]) -> Holders:
    created = dataset.id.get_create_plist()
    if get_storage_kind(created) == EXTERNAL:
        return _merge_holders(
            _find_external_file(created.get_external(number)[0]) for number in range(created.get_external_count())
        )
    if get_storage_kind(created) == VIRTUAL:
        origin = dataset.file.filename
        numbers = range(created.get_virtual_count())
        names = {(created.get_virtual_filename(number), created.get_virtual_dsetname(number)) for number in numbers}
        new = sorted(one for one in names if (origin, *one) not in seen)
        seen |= {(origin, *one) for one in new}
        return _merge_holders(held for one in new for held in _iter_block_holders(dataset.file, *one, seen))
    return Holders()


def _merge_holders(parts: Iterable[Holders]) -> Holders:
    """Merge results into one. Stop after the first result with a missing or unusable file."""
    files, fixed = set(), False
    for part in parts:
        files |= part.files
        fixed |= part.fixed
        if part.amiss:
            return Holders(frozenset(files), part.amiss, fixed)
    return Holders(frozenset(files), "", fixed)


def _find_external_file(name: bytes) -> Holders:
    # HDF5 resolves the name relative to the working directory.
    path = Path(os.fsdecode(name))
    return Holders(frozenset({path.absolute()}), "" if path.is_file() else f"its file {path} does not exist", True)


def _iter_block_holders(file: h5py.File, name: str, path: str, seen: set[tuple]) -> Iterator[Holders]:
    """Yield the files that contain each block of a virtual dataset's source.

    If source names contain a block number (`%b`), stop before the first missing or unusable file.
    """
    for number in itertools.count() if "%b" in name + path else range(1):
        held = _find_block_holders(file, expand_block_name(name, number), expand_block_name(path, number), seen)
        if not (number and held.amiss):
            yield held
        if held.amiss:
            return


def _find_block_holders(file: h5py.File, name: str, path: str, seen: set[tuple]) -> Holders:
    if name == _SAME:
        return _find_source_holders(file, path, seen)
    if file.driver == _FILE_OBJECT:
        return Holders(amiss=f"its source {name} is not a dataset")
    there = _resolve_source(name, file.filename)
    if not there:
        return Holders(amiss=f"its source {name} does not exist")
    try:
        with h5py.File(there) as source:
            held = _find_source_holders(source, path, seen)
    except OSError as error:
        return Holders(amiss=f"its source {name} cannot be read: {format_error(error)}")
    fixed = held.fixed or os.path.isabs(name) or there != Path(os.path.abspath(file.filename)).parent / name
    return Holders(held.files | {there}, held.amiss and f"{held.amiss} in {name}", fixed)


def _find_source_holders(file: h5py.File, path: str, seen: set[tuple]) -> Holders:
    source = file.get(path)
    if not isinstance(source, h5py.Dataset):
        return Holders(amiss=f"its source {path} does not exist")
    held = _find_holders(source, seen)
    if source.file.filename == file.filename:
        return held
    # The source's path leads through an external link to another file.
    return Holders(held.files | {Path(os.path.abspath(source.file.filename))}, held.amiss, True)


def expand_block_name(name: str, number: int) -> str:
    """Expand a printf-style source name as H5Pset_virtual does: `%b` to a block number, and `%%` to `%`."""
    return "%".join(part.replace("%b", str(number)) for part in name.split("%%"))


def _resolve_source(name: str, origin: str) -> Path | None:
    """Search for a source file as documented for H5Pset_virtual. Return its path, or None if it does not exist."""
    folder = os.path.dirname(os.path.abspath(origin))
    folders = [part.replace("${ORIGIN}", folder) for part in os.environ.get("HDF5_VDS_PREFIX", "").split(":") if part]
    folders += [folder, os.getcwd(), os.path.dirname(os.path.realpath(origin))]
    there = [name] if os.path.isabs(name) else []
    there += [os.path.join(one, os.path.basename(name) if os.path.isabs(name) else name) for one in folders]
    return next((Path(os.path.abspath(path)) for path in there if os.path.isfile(path)), None)
