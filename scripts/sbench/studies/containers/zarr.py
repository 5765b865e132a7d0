"""Zarr (format version 3) as a container: an object per chunk, or per shard."""

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sbench.drivers import file_objects
from sbench.drivers.requests import merge_ranges
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.probe.zarr_shards import ShardIndex, list_present
from sbench.studies.containers.base import Container, Target, get_client
from sbench.studies.containers.netcdf import ATTRIBUTES, AXES, COORDINATES, LEVEL, NAME
from sbench.studies.containers.selections import Grid, Index, format_sides
from sbench.studies.containers.settings import SAME, UNSET

if TYPE_CHECKING:
    import numpy as np
    import zarr

_GAP, _MAXIMUM = "array.sharding_coalesce_max_gap_bytes", "array.sharding_coalesce_max_bytes"
# Bytes of values that the conversion writes per call.
_BLOCK = 32 * 2**20
# Zarr's names of the codecs, and the settings that the study writes with.
_CODECS = {"gzip": "deflate", "zlib": "deflate", "numcodecs.zlib": "deflate"}
# The client of each class of stores.
_CLIENTS = {"FsspecStore": "s3fs", "ObjectStore": "obstore", "IcechunkStore": "icechunk", "LocalStore": "local"}


class ZarrContainer(Container):
    """Base class of the containers that zarr reads."""

    needs = ("zarr", "obstore")
    is_zarr = True
    zarr_format = 3

    @abstractmethod
    def open_store(self, target: Target) -> object:
        """Open the store that zarr reads, with the client of the cell."""

    def open_datasets(self, target: Target) -> list[object]:
        """Return the store."""
        return [self.open_store(target)]

    def open(self, target: Target) -> "_Opened":
        """Open the root group."""
        return _Opened(self.open_store(target), self.zarr_format)

    def read_layout(self, target: Target) -> dict:
        """Read back chunks, shards and codec, and the settings of zarr in force."""
        import zarr

        store = self.open_store(target)
        array = zarr.open_group(store, mode="r")[NAME]
        codecs = [_CODECS.get(name, name) for name in map(_get_codec_name, (*array.filters, *array.compressors))]
        held = {"chunks": format_sides(array.chunks), "codec": ", ".join(codecs) or "none"}
        held["client"] = _CLIENTS[type(store).__name__]
        held |= {"shards": format_sides(array.shards)} if array.shards else {}
        return held | {
            "concurrency": zarr.config.get("async.concurrency"),
            "threads": zarr.config.get("threading.max_workers"),
            "coalescing_gap_bytes": zarr.config.get(_GAP, None),
            "coalescing_max_bytes": zarr.config.get(_MAXIMUM, None),
        }


class Store(ZarrContainer):
    """Zarr with an object per chunk, or per shard if the grid has shards."""

    clients = ("s3fs", "obstore")
    converts = True

    def convert(self, target: Target) -> None:
        """Write the array and its coordinates, and consolidate the metadata."""
        import zarr
        from zarr.storage import ObjectStore

        store = ObjectStore(target.open_objects())
        write_group(zarr.create_group(store), target)
        zarr.consolidate_metadata(store)

    def open_store(self, target: Target) -> object:
        """Open the store with fsspec (s3fs) or obstore; a folder with zarr's own store of files."""
        from zarr.storage import FsspecStore, LocalStore, ObjectStore

        if target.is_local:
            return LocalStore(target.place["folder"], read_only=True)
        if get_client(target.cell) == "obstore":
            return ObjectStore(target.open_objects(), read_only=True)
        options = file_objects.build_s3fs_settings(target.build_access("s3fs"))
        return FsspecStore.from_url(target.build_url(), storage_options=options, read_only=True)

    def forecast_requests(self, target: Target, parts: Sequence[Index]) -> int | None:
        """Forecast the requests for the metadata, which are a single object, and for chunks or shards."""
        if target.is_local:
            return None
        whole = _count_object_requests(target)
        if target.grid.shards:
            return whole + sum(_count_shard_requests(target, index, whole) for index in parts)
        return whole + whole * sum(len(target.grid.list_touched(index)) for index in parts)


class _Opened:
    def __init__(self, store: object, zarr_format: int) -> None:
        import zarr

        self._group = zarr.open_group(store, mode="r", zarr_format=zarr_format)
        self._array = self._group[NAME]

    def read(self, index: Index) -> "np.ndarray":
        return self._array[index] if isinstance(index[0], slice) else self._array.oindex[index]

    def walk(self) -> int:
        return len([(array.shape, dict(array.attrs)) for _, array in self._group.arrays()])

    def close(self) -> None:
        self._group.store.close()


def write_group(group: "zarr.Group", target: Target) -> None:
    """Write the array and its coordinates to an empty group."""
    from sbench.studies.containers import values

    grid = target.grid
    for name, axis in values.make_coordinates(grid.shape).items():
        options = {"dtype": axis.dtype, "chunks": axis.shape, "dimension_names": COORDINATES[name]}
        held = group.create_array(name, shape=axis.shape, **options)
        held[...] = axis
        held.attrs.update(ATTRIBUTES[name])
    options = {"chunks": grid.chunks, "shards": grid.shards or None, "dimension_names": AXES}
    array = group.create_array(
        NAME, shape=grid.shape, dtype="float32", compressors=_build_codec(target), filters=None, **options
    )
    array.attrs.update(ATTRIBUTES[NAME])
    step = (grid.shards or grid.chunks)[0]
    # Write several chunks per call, because zarr writes the chunks of a call concurrently.
    step *= max(1, _BLOCK // Grid(grid.shape, (step, *grid.shape[1:])).chunk_bytes)
    for times, block in target.iter_blocks(step):
        array[times] = block


@contextlib.contextmanager
def set_options(target: Target) -> Iterator[None]:
    """Set zarr's options as the cell's levels specify, during a `with` block.

    Raises:
        Problem: this release of zarr lacks an option.
    """
    import zarr

    cell, options = target.cell, {}
    for level, name in ((cell.concurrency, "async.concurrency"), (cell.threads, "threading.max_workers")):
        options |= {} if level == UNSET else {name: int(level)}
    if cell.coalescing != UNSET:
        if zarr.config.get(_GAP, None) is None:
            raise Problem(f"zarr {zarr.__version__} does not merge requests; set coalescing to unset, or use zarr 3.3")
        gap, maximum = map(sizes.parse_size, cell.coalescing.split("-"))
        options |= {_GAP: gap, _MAXIMUM: maximum}
    with zarr.config.set(options):
        yield


def _build_codec(target: Target) -> object:
    from zarr.codecs import BloscCodec, BloscShuffle, GzipCodec, ZstdCodec

    codec = target.cell.compression if target.cell.codec == SAME else target.cell.codec
    return {
        "none": None,
        "deflate": GzipCodec(level=LEVEL),
        "zstd": ZstdCodec(level=3),
        "blosc": BloscCodec(cname="lz4", shuffle=BloscShuffle.shuffle),
    }[codec]


def _get_codec_name(codec: object) -> str:
    # numcodecs provides the codecs of Zarr 2.
    return codec.to_dict()["name"] if hasattr(codec, "to_dict") else codec.get_config()["id"]


def _count_object_requests(target: Target) -> int:
    """Return the number of requests for a whole object: s3fs may ask for its size first, to read it in parts."""
    if get_client(target.cell) != "s3fs":
        return 1
    import s3fs

    return 2 if hasattr(s3fs.S3FileSystem, "_cat_file_concurrent") else 1


def _count_shard_requests(target: Target, part: Index, whole: int) -> int:
    """Count the requests to read a part: `whole` per shard that is read completely; else its index and its chunks.

    zarr 3.3 and later merge requests for neighbouring chunks.
    """
    import zarr

    grid, objects = target.grid, target.open_objects()
    per_shard = [shard // chunk for shard, chunk in zip(grid.shards, grid.chunks, strict=True)]
    of_shards: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for chunk in grid.list_touched(part):
        shard = tuple(number // many for number, many in zip(chunk, per_shard, strict=True))
        of_shards.setdefault(shard, []).append(tuple(n % many for n, many in zip(chunk, per_shard, strict=True)))
    gap, maximum = zarr.config.get(_GAP, None), zarr.config.get(_MAXIMUM, None)
    total = 0
    for shard, chunks in of_shards.items():
        if len(chunks) == math.prod(per_shard):
            total += whole
        else:
            index = _read_shard_index(objects, shard, per_shard)
            ranges = [span for chunk in chunks for span in list_present(index[chunk])]
            total += 1 + len(ranges if gap is None else merge_ranges(ranges, gap, maximum))
    return total


def _read_shard_index(objects: object, shard: tuple[int, ...], per_shard: Sequence[int]) -> "np.ndarray":
    """Return the offset and size of each chunk of a shard in bytes. zarr writes them at the end, with a checksum."""
    import obstore

    index, key = ShardIndex(tuple(per_shard), True, True, "<"), f"{NAME}/c/{'/'.join(map(str, shard))}"
    end = obstore.head(objects, key)["size"]
    return index.parse(bytes(obstore.get_range(objects, key, start=end - index.bytes, end=end)), key)


CONTAINERS = {"zarr": Store(), "zarr-shards": Store()}
