"""Copy an S3 object with virtual datasets and their source objects to a directory, so that HDF5 can read the values."""

import contextlib
import itertools
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py

from sbench.studies.shots.addresses import IN_BUCKET
from sbench.studies.shots.elsewhere import expand_block_name, list_sources
from sbench.studies.shots.inputs import Source, find_object

# Maximum number of bytes to copy for one object and its sources.
_MOST = 2 * 2**30


@contextlib.contextmanager
def open_gathered(source: Source, store: dict | None) -> Iterator[tuple[Source, h5py.File]]:
    """Open a file. If it is an S3 object with virtual datasets, first copy it and its sources, and open the copy.

    If all copies together exceed 2 GiB or the free space for temporary files, nothing is copied and the object itself
    is opened.

    Args:
        source: the file or object to open.
        store: the store's entry in the configuration, for an S3 object.

    Yields:
        The opened `Source` and its open HDF5 file. For a copy, `gathered` of the `Source` describes all copied objects.

    Raises:
        Problem: the file cannot be opened, or an object changes during the copy.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(source.open_hdf5())
        if source.reader and list_sources(file):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if copy := _copy_objects(source, store, folder):
                source, file = copy, stack.enter_context(copy.open_hdf5())
        yield source, file


def _copy_objects(source: Source, store: dict, folder: Path) -> Source | None:
    """Copy an object and all its direct and indirect sources to a directory. Their keys become the paths.

    Returns:
        The copied object, or None if the copies need too much space or a key leads outside the directory.
    """
    key = source.where.removeprefix(f"{IN_BUCKET}{store['bucket']}/")
    root, waiting, seen, facts = key.removesuffix(source.name), [key], set(), {}
    room = min(_MOST, shutil.disk_usage(folder).free)
    while waiting:
        key = waiting.pop()
        if _is_outside(posixpath.normpath(key)):
            return None
        if key in seen or not (one := find_object(key, store)):
            continue
        seen.add(key)
        if (room := room - one.bytes) < 0:
            return None
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with one.open_raw() as content, open(path, "wb") as copy:
            shutil.copyfileobj(content, copy, 2**22)
        facts[posixpath.relpath(key, root or ".")] = {"bytes": one.bytes, **one.version}
        with contextlib.suppress(OSError), h5py.File(path) as file:
            waiting += [
                near for name in list_sources(file) for near in _iter_source_keys(posixpath.dirname(key), name, store)
            ]
    return replace(source, copy=str(folder / root / source.name), gathered=facts)


def _is_outside(key: str) -> bool:
    return key.startswith(("/", "../"))


def _iter_source_keys(folder: str, name: str, store: dict) -> Iterator[str]:
    """Yield the keys of existing objects that a source name refers to; numbered sources end before the first gap."""
    key = posixpath.normpath(posixpath.join(folder, name))
    if _is_outside(key):
        return
    numbers = itertools.count() if "%b" in key else range(1)
    keys = (expand_block_name(key, number) for number in numbers)
    yield from itertools.takewhile(lambda near: find_object(near, store), keys)
