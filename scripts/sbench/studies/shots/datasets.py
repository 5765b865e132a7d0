"""Datasets of an HDF5 file, and the reasons why a dataset cannot be read."""

import math
from dataclasses import dataclass

import h5py
import numpy as np

from sbench.probe import hdf5_tree, memory, sizes
from sbench.probe.formats import format_error
from sbench.probe.program import shorten_name
from sbench.studies.shots import elsewhere, selection
from sbench.studies.shots.files import list_lacking_filters

LACKS_FILTER = "a filter is missing"


class Dataset(h5py.Dataset):
    """An h5py dataset that remembers its path, because HDF5 would have to search the file for it."""

    def __init__(self, identifier: h5py.h5d.DatasetID, path: str) -> None:
        """Wrap an open low-level dataset as read-only."""
        super().__init__(identifier, readonly=True)
        self._path = path

    @property
    def name(self) -> str:
        """The path with which the dataset was opened."""
        return self._path

    @property
    def elsewhere(self) -> str:
        """Either "virtual" or "external storage" if the values are in other files, otherwise an empty string."""
        return elsewhere.get_storage_kind(self.id.get_create_plist())


@dataclass(frozen=True)
class Entry:
    """A dataset in a file, or a link that does not lead to an accessible dataset.

    Attributes:
        path: path from the root group, in which bytes that are not valid UTF-8 are escaped.
        dataset: the dataset, or None if it cannot be opened or the link refers to another file.
        reason: why the entry is left out, as a message that similar entries share; an empty string if it can be read.
        detail: details about this entry.
    """

    path: str
    dataset: Dataset | None = None
    reason: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Return the path, the reason and the detail."""
        return f"{shorten_name(self.path)} ({self.reason}{self.detail and f'; {self.detail}'})"


def build_entry(link: hdf5_tree.Link) -> Entry:
    """Build the entry for a link to a dataset, or for a broken link.

    Raises:
        Exception: the error of opening the root group, if the link is the root.
    """
    if link.object is not None:
        dataset = Dataset(link.object, link.name)
        return Entry(link.name, dataset, *_find_obstacle(dataset, link.path))
    if link.error and link.path == b"/":
        raise link.error
    detail = f"to {link.target}" if link.target else ""
    if link.error:
        detail = f"{link.target} does not exist" if link.kind == hdf5_tree.SOFT else format_error(link.error)
    return Entry(link.name, reason=link.kind or "cannot be opened", detail=detail)


def describe_excess(dataset: h5py.Dataset, level: str) -> str:
    """Return a message if reading a dataset with this level of `selection` needs more memory than is free.

    The result is an empty string if there is enough memory.
    """
    shape = dataset.shape or ()
    if level == selection.METADATA:
        return ""
    if (place := next(selection.iter_places(level, shape, dataset.chunks), None)) is None:
        return ""
    # A read needs memory for its result and for a decompressed chunk.
    size = (selection.count_elements(place, shape) + math.prod(dataset.chunks or (0,))) * dataset.dtype.itemsize
    if size < memory.SPARE or size <= (free := memory.compute_free_bytes()):
        return ""
    return f"it needs {sizes.format_size(size)} of memory (free: {sizes.format_size(free)})"


def _find_obstacle(dataset: Dataset, path: bytes) -> tuple[str, str]:
    """Return the reason why a dataset cannot be read, and a detail. Both are empty strings if it can be read."""
    if not hdf5_tree.is_utf8(path):
        return "its name is not UTF-8", ""
    try:
        kind = dataset.dtype
        _expect_conversion(dataset.id.get_type(), kind)
    except Exception as error:
        return "h5py does not support the type", _describe_type(dataset.id.get_type(), error)
    try:
        created = dataset.id.get_create_plist()
        if _has_references(kind):
            return "references", ""
        if created.get_nfilters() and (lacking := ", ".join(list_lacking_filters(dataset))):
            return LACKS_FILTER, lacking
        if (where := elsewhere.get_storage_kind(created)) and (amiss := elsewhere.find_holders(dataset).amiss):
            return where, amiss
    except Exception as error:
        return "cannot be opened", format_error(error)
    return "", ""


def _expect_conversion(kind: h5py.h5t.TypeID, values: np.dtype) -> None:
    """Raise TypeError if HDF5 cannot convert a file's datatype to a dtype; numbers and strings always convert."""
    plain = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
    if kind.get_class() not in plain and h5py.h5t.find(kind, h5py.h5t.py_create(values)) is None:
        raise TypeError("HDF5 does not convert the type")


def _describe_type(kind: h5py.h5t.TypeID, error: Exception) -> str:
    classes = {h5py.h5t.INTEGER: "integer", h5py.h5t.FLOAT: "float", h5py.h5t.TIME: "time"}
    classes |= {h5py.h5t.REFERENCE: "reference", h5py.h5t.COMPOUND: "structure", h5py.h5t.OPAQUE: "opaque value"}
    classes |= {h5py.h5t.BITFIELD: "bit field"}
    words = f"{classes.get(kind.get_class(), 'type')} of {kind.get_size()} bytes"
    # The message of some errors is only a number.
    return f"{words}: {format_error(error)}" if " " in format_error(error) else words


def _has_references(kind: np.dtype) -> bool:
    """Return whether a dtype is or contains a reference, which other libraries cannot interpret."""
    if kind.subdtype:
        return _has_references(kind.subdtype[0])
    if kind.names:
        return any(_has_references(kind[name]) for name in kind.names)
    if within := h5py.check_vlen_dtype(kind):
        return isinstance(within, np.dtype) and _has_references(within)
    return h5py.check_ref_dtype(kind) is not None
