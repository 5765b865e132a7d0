"""Examine an HDF5 file: its datasets and groups, how its space is used, and the reads needed to find all objects."""

import contextlib
import functools
import math
import mmap
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import h5py

from sbench.drivers import ROS3_FIRST_BYTES
from sbench.drivers.requests import Reads, Watched
from sbench.probe import hdf5_tree
from sbench.probe.formats import format_error
from sbench.studies.shots import elsewhere
from sbench.studies.shots.datasets import Entry, build_entry
from sbench.studies.shots.files import get_creation_facts, list_filters
from sbench.studies.shots.inputs import Source

# Number of the header message that only groups in the format before HDF5 1.8 have (file format specification,
# IV.A.2.r).
_SYMBOL_TABLE = 0x11
# Header of a collection in the global heap: signature, version 1, and size (III.E).
_HEAP = re.compile(rb"GCOL\x01\0\0\0(.{8})", re.DOTALL)
# Larger files are not searched for their global heap, because reading 2 GiB from a disk takes some seconds.
_SEARCHED = 2 * 2**30
# Minimum savings that justify a copy, in bytes and as a fraction of the file; 1 MiB takes about a round trip.
UNUSED, UNUSED_SHARE = 2**20, 0.1


@dataclass(slots=True)
class Stored:
    """The storage of a dataset; all sizes are in bytes.

    Attributes:
        path: path from the root group.
        bytes: size in the file.
        chunk: size of a chunk in memory; 0 for a dataset without chunks.
        chunks: number of chunks in the file.
        pieces: number of reads to read all chunks if chunks are too large for the chunk cache.
        filters: names of the filters, in order.
    """

    path: str
    bytes: int
    chunk: int = 0
    chunks: int = 0
    pieces: int = 0
    filters: tuple[str, ...] = ()


@dataclass
class Group:
    """The group with the most members.

    Attributes:
        path: path from the root group.
        members: number of links.
        is_old: whether its index has the format used before HDF5 1.8.
        reads: reads needed to find a member by name.
    """

    path: str
    members: int
    is_old: bool
    reads: Reads


@dataclass
class Contents:
    """The contents of a file; all sizes are in bytes.

    Attributes:
        where: path or URL of the file.
        bytes: size of the file.
        page_size: size of its pages; None for a file without pages.
        datasets: datasets whose values are in the file.
        elsewhere: number of datasets whose values are in other files.
        left_out: datasets and links that cannot be read here.
        objects: number of groups, datasets and named datatypes.
        metadata: size of the headers and indexes of all objects, excluding values of compact datasets.
        heap: size of the global heap, which contains variable-length values; None if not counted.
        user_block: size of the user block at the beginning of the file.
        reads: reads that open the file and find all objects.
        largest: the group with the most members; None if there are no links.
    """

    where: str
    bytes: int
    page_size: int | None
    datasets: list[Stored] = field(default_factory=list)
    elsewhere: int = 0
    left_out: list[Entry] = field(default_factory=list)
    objects: int = 0
    metadata: int = 0
    heap: int | None = None
    user_block: int = 0
    reads: Reads = field(default_factory=Reads)
    largest: Group | None = None

    @property
    def number_of_datasets(self) -> int:
        """The number of datasets whose values are in this file or in other files."""
        return len(self.datasets) + self.elsewhere

    @property
    def raw(self) -> int:
        """The total size of all datasets in the file."""
        return sum(dataset.bytes for dataset in self.datasets)

    @functools.cached_property
    def requests(self) -> int:
        """The number of requests that ROS3 sends for `reads`: one for each that ends beyond the cached first bytes."""
        return sum(offset + length > ROS3_FIRST_BYTES for offset, length in self.reads)

    @functools.cached_property
    def page_requests(self) -> int:
        """The number of requests of ROS3 with a page buffer: one per page, plus one per read of at least a page.

        The result is 0 for a file without pages.
        """
        if not (page := self.page_size):
            return 0
        beyond = [(offset, length) for offset, length in self.reads if offset + length > ROS3_FIRST_BYTES]
        short = {offset // page for offset, length in beyond if length < page}
        return len(short) + sum(length >= page for _, length in beyond)

    @property
    def unused(self) -> int:
        """The number of bytes that are neither values nor metadata.

        Variable-length values are included if `heap` is None.
        """
        return max(0, self.bytes - self.raw - self.metadata - (self.heap or 0) - self.user_block)


def read_contents(source: Source, native: h5py.File, progress: Callable[[int], None]) -> Contents:
    """Examine a file.

    Args:
        source: the file.
        native: the same file, opened with h5py.
        progress: function to call with the number of objects so far.
    """
    collector = _Collector(source, native)
    with source.open_raw() as raw, h5py.File(watched := Watched(raw), "r") as file:
        for link in hdf5_tree.walk_links(file):
            # To find all objects, the indexes of groups are read, but not the chunk indexes of datasets.
            watched.noting = isinstance(link.object, h5py.h5g.GroupID)
            collector.add_link(link)
            progress(collector.contents.objects)
            watched.noting = True
    contents = collector.contents
    contents.reads = watched.reads
    contents.largest = collector.find_largest_group()
    searched = source.bytes <= (_SEARCHED if is_of_note(contents.unused, contents.bytes) else ROS3_FIRST_BYTES)
    if source.reader is None and searched and contents.unused:
        contents.heap = count_heap_bytes(source.where)
    return contents


class _Collector:
    def __init__(self, source: Source, native: h5py.File) -> None:
        block = native.id.get_create_plist().get_userblock()
        self.contents = Contents(source.where, source.bytes, get_creation_facts(native)["page_size"], user_block=block)
        self._source, self._native = source, native
        self._members: Counter[bytes] = Counter()
        self._a_member: dict[bytes, bytes] = {}
        # Combinations of datatype and filters that are known to be readable.
        self._readable: set[tuple] = set()

    def add_link(self, link: hdf5_tree.Link) -> None:
        """Add a link to the contents; an object that cannot be opened is listed in `left_out`.

        Errors of the root group are raised.
        """
        try:
            self._add_intact_link(link)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            if link.path == b"/":
                raise
            self.contents.left_out.append(Entry(link.name, reason="cannot be opened", detail=format_error(error)))

    def _add_intact_link(self, link: hdf5_tree.Link) -> None:
        if link.path != b"/":
            group = link.path.rpartition(b"/")[0] or b"/"
            self._members[group] += 1
            self._a_member[group] = link.path
        if link.first:
            self.contents.objects += 1
            self.contents.metadata += _count_metadata(link)
        if link.object is None:
            self._add_left_out(build_entry(link))
        elif link.first and isinstance(link.object, h5py.h5d.DatasetID):
            self._add_dataset(link)

    def _add_dataset(self, link: hdf5_tree.Link) -> None:
        identifier = link.object
        kind = identifier.get_type().encode()
        # A dataset with an offset is contiguous and in this file. Its creation properties are slow to read and not
        # needed.
        created = None if identifier.get_offset() is not None else identifier.get_create_plist()
        filters = list_filters(created) if created else []
        if created and elsewhere.get_storage_kind(created):
            self.contents.elsewhere += 1
            self._record_obstacle(link)
            return
        # If a dataset is readable, so are all others with the same datatype and filters.
        is_known = (kind, *filters) in self._readable and hdf5_tree.is_utf8(link.path)
        if not is_known and not self._record_obstacle(link) and all(h5py.h5z.filter_avail(code) for code, _ in filters):
            self._readable.add((kind, *filters))
        self.contents.datasets.append(stored := Stored(link.name, identifier.get_storage_size()))
        if created and created.get_layout() == h5py.h5d.CHUNKED:
            chunk, stored.chunks = created.get_chunk(), identifier.get_num_chunks()
            stored.chunk = math.prod(chunk) * identifier.get_type().get_size()
            stored.pieces = _count_pieces(identifier.shape, chunk, stored.chunks)
            stored.filters = tuple(name for _, name in filters)
        elif created and created.get_layout() == h5py.h5d.COMPACT:
            self.contents.metadata -= stored.bytes

    def _record_obstacle(self, link: hdf5_tree.Link) -> bool:
        entry = build_entry(link)
        if entry.reason in (elsewhere.VIRTUAL, elsewhere.EXTERNAL) and self._source.reader is None:
            # HDF5 locates source files relative to the name of this file, and a file object lacks a name.
            entry = build_entry(replace(link, object=h5py.h5o.open(self._native.id, link.path)))
        if entry.reason:
            self._add_left_out(entry)
        return bool(entry.reason)

    def _add_left_out(self, entry: Entry) -> None:
        # Drop the dataset, because each open dataset takes 15 kB of memory.
        self.contents.left_out.append(replace(entry, dataset=None))

    def find_largest_group(self) -> Group | None:
        if not self._members:
            return None
        group, members = self._members.most_common(1)[0]
        return _read_group(self._source, group, members, self._a_member[group])


def _count_metadata(link: hdf5_tree.Link) -> int:
    """Return the size in bytes of an object's headers and indexes, as h5stat counts them."""
    info = h5py.h5o.get_info(link.object)
    of_object, of_attributes = info.meta_size.obj, info.meta_size.attr
    indexes = of_object.index_size + of_object.heap_size + of_attributes.index_size + of_attributes.heap_size
    return info.hdr.space.total + indexes


def _count_pieces(shape: tuple[int, ...], chunk: tuple[int, ...], chunks: int) -> int:
    """Count the runs of elements that are contiguous both in a chunk and in the dataset.

    HDF5 reads each run separately from unfiltered chunks that are too large for the chunk cache.
    """
    grid = [-(-length // size) for length, size in zip(shape, chunk, strict=True)]
    axis = len(shape) - 1
    while axis > 0 and chunk[axis] == shape[axis]:
        axis -= 1
    return math.prod(shape[:axis]) * math.prod(grid[axis:]) * chunks // max(1, math.prod(grid))


def _read_group(source: Source, group: bytes, members: int, member: bytes) -> Group:
    """Examine a group, and record the reads that finding `member` takes once the file is open."""
    with source.open_raw() as raw, h5py.File(watched := Watched(raw), "r") as file:
        watched.reads.clear()
        # A dangling link is looked up like any other before the error.
        with contextlib.suppress(KeyError, RuntimeError, OSError):
            h5py.h5o.open(file.id, member)
        reads = list(watched.reads)
        messages = h5py.h5o.get_info(h5py.h5g.open(file.id, group)).hdr.mesg.present
    return Group(hdf5_tree.to_text(group), members, bool(messages >> _SYMBOL_TABLE & 1), reads)


def is_of_note(saved: int, whole: int) -> bool:
    """Return whether saving `saved` of a file's `whole` bytes justifies a copy."""
    return saved >= max(UNUSED, UNUSED_SHARE * whole)


def count_heap_bytes(path: str) -> int:
    """Return the size in bytes of a file's global heap, which contains variable-length values.

    HDF5 does not report this size, so the file is searched for the heap's collections.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        sizes = ((at.start(), int.from_bytes(at[1], "little")) for at in _HEAP.finditer(content))
        return sum(min(size, len(content) - start) for start, size in sizes)
