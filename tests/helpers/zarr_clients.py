"""Write Zarr stores, or read parts of them over S3, with a request for a marker before each part."""

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path

import icechunk
import numpy as np
import zarr
from obstore.store import S3Store
from zarr.abc.store import Store
from zarr.storage import FsspecStore, ObjectStore

# The shape is no multiple of most chunks, so that the last chunks are cut.
SHAPE = (50, 41, 30)
STORES = {
    "v3": {"zarr_format": 3, "chunks": (12, 10, 30)},
    "v2": {"zarr_format": 2, "chunks": (7, 41, 8)},
    "shards": {"zarr_format": 3, "chunks": (5, 10, 5), "shards": (20, 20, 15)},
    # Chunks of 960 KB without compression, so that gaps and merged requests reach the limits of zarr 3.3.
    "large": {"zarr_format": 3, "chunks": (20, 2, 3000), "shards": (40, 42, 3000), "compressors": None},
}
LARGE = (50, 41, 3000)
REFERENCES, ICECHUNK = "references.json", "icechunk"
# The arrays of the Icechunk repository: some chunks not written; shards; virtual chunks; chunks inlined in a manifest;
# chunks that icechunk requests in parts.
ARRAYS = ("own", "shards", "virtual", "inlined", "huge")
_PART = (10, 41, 30)
_RAW = "raw.bin"


def write_stores(folder: Path, bucket: str) -> None:
    """Write the stores of `STORES`, each with an array `x` in a group `g`; references; and Icechunk repositories."""
    values = np.random.default_rng(1).normal(size=SHAPE)
    for name, options in STORES.items():
        root = zarr.open_group(str(folder / name), mode="w", zarr_format=options["zarr_format"])
        chunks = {key: value for key, value in options.items() if key != "zarr_format"}
        shape = LARGE if name == "large" else SHAPE
        data = np.random.default_rng(2).normal(size=shape) if name == "large" else values
        root.create_group("g").create_array("x", shape=shape, dtype="f8", **chunks)[:] = data
    (folder / _RAW).write_bytes(values.tobytes())
    url, size = f"s3://{bucket}/{_RAW}", values[:10].nbytes
    node = {"zarr_format": 2, "shape": SHAPE, "chunks": _PART, "dtype": "<f8", "compressor": None, "filters": None}
    references = {".zgroup": '{"zarr_format": 2}', "g/.zgroup": '{"zarr_format": 2}'}
    references["g/x/.zarray"] = json.dumps(node | {"fill_value": 0, "order": "C"})
    # The third chunk is not there, and the fourth is inlined.
    references |= {f"g/x/{part}.0.0": [url, part * size, size] for part in (0, 1, 4)}
    references["g/x/3.0.0"] = "\0" * size
    (folder / REFERENCES).write_text(json.dumps({"version": 1, "refs": references}), encoding="utf-8")
    # icechunk 2 saves the limits of a disk in the configuration, if it is given.
    _write_icechunk(folder / ICECHUNK, bucket, values, None)
    _write_icechunk(folder / f"{ICECHUNK}-of-disk", bucket, values, _configure(bucket))


def _configure(bucket: str) -> icechunk.RepositoryConfig:
    config = icechunk.RepositoryConfig.default()
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    service = icechunk.s3_store(region="us-east-1", endpoint_url=endpoint, allow_http=True, force_path_style=True)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"s3://{bucket}/", service))
    return config


def _write_icechunk(folder: Path, bucket: str, values: np.ndarray, config: icechunk.RepositoryConfig | None) -> None:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), config)
    session = repository.writable_session("main")
    group = zarr.group(store=session.store).create_group("g")
    group.create_array("own", shape=SHAPE, dtype="f8", chunks=(12, 10, 30))[:45] = values[:45]
    group.create_array("shards", shape=SHAPE, dtype="f8", chunks=(5, 10, 5), shards=(20, 20, 15))[:] = values
    group.create_array("inlined", shape=SHAPE, dtype="f8", chunks=(50, 1, 1))[:] = np.ones(SHAPE)
    huge = group.create_array("huge", shape=LARGE, dtype="f8", chunks=(50, 41, 1500), compressors=None)
    huge[:] = np.random.default_rng(3).normal(size=LARGE)
    group.create_array("virtual", shape=SHAPE, dtype="f8", chunks=_PART, compressors=None, filters=None)
    url, size = f"s3://{bucket}/{_RAW}", values[:10].nbytes
    for part in range(5):
        place = {"offset": part * size, "length": size, "validate_container": False}
        session.store.set_virtual_ref(f"g/virtual/c/{part}/0/0", url, **place)
    session.commit("write")


def read_parts(bucket: str, client: str, levels: list[str]) -> None:
    """Read the parts of each array of a client's stores."""
    markers = S3Store(bucket)
    for name, (store, path) in _open_stores(bucket, client).items():
        array = zarr.open_array(store, path=path, mode="r")
        for level in levels:
            _request(markers, f"marker {client} {name} {level}")
            array[eval(f"np.s_{level}")]
        # What follows opens the next store.
        _request(markers, "marker")


def _request(store: S3Store, key: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        store.get(key)


def _open_stores(bucket: str, client: str) -> dict[str, tuple[Store, str]]:
    if client.startswith(ICECHUNK):
        place = {"bucket": bucket, "prefix": client, "region": "us-east-1", "from_env": True}
        place |= {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "allow_http": True, "force_path_style": True}
        access = icechunk.containers_credentials({f"s3://{bucket}/": icechunk.s3_credentials(from_env=True)})
        repository = icechunk.Repository.open(icechunk.s3_storage(**place), _configure(bucket), access)
        store = repository.readonly_session("main").store
        return {name: (store, f"g/{name}") for name in ARRAYS}
    if client == "references":
        options = {"fo": f"s3://{bucket}/{REFERENCES}", "remote_protocol": "s3"}
        options |= {"remote_options": {"asynchronous": True}, "target_options": {"asynchronous": False}}
        return {REFERENCES: (FsspecStore.from_url("reference://", storage_options=options, read_only=True), "g/x")}
    if client == "s3fs":
        return {name: (FsspecStore.from_url(f"s3://{bucket}/{name}", read_only=True), "g/x") for name in STORES}
    return {name: (ObjectStore(S3Store(bucket, prefix=name), read_only=True), "g/x") for name in STORES}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    icechunk.set_logs_filter("error")
    if sys.argv[1] == "write":
        write_stores(Path(sys.argv[2]), sys.argv[3])
    else:
        for name in ("obstore", "s3fs", "references", ICECHUNK, f"{ICECHUNK}-of-disk"):
            read_parts(os.environ["SBENCH_BUCKET"], name, json.loads(sys.argv[2]))
