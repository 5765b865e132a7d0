"""VirtualiZarr#1085: the size of references in manifests of Icechunk 2 and in Parquet files of Kerchunk."""

import os
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from sbench.court.tested import build_url

if TYPE_CHECKING:
    import icechunk
    import xarray as xr

    from sbench.court.judging import Judgement, Runs

_FILES, _CHUNKS = 1_000, 100
# Ratios of bytes, Icechunk to Kerchunk, that count as about 3.
_LEAST, _MOST = 2, 4


def prepare(options: dict) -> Callable[[], dict]:
    """Write references with VirtualiZarr to the bucket, and return a function that downloads all of them."""
    import s3fs

    is_icechunk = options["format"] == "icechunk"
    folder = f"{options['order'].replace(' ', '-')}-{uuid.uuid4().hex}"
    dataset = _build_dataset(options["order"])
    if is_icechunk:
        session = _create_repository(folder).writable_session("main")
        dataset.vz.to_icechunk(session.store)
        session.commit("references")
    else:
        dataset.vz.to_kerchunk(build_url(folder), format="parquet")
    pattern = "manifests/*" if is_icechunk else "**/*.parq"
    s3 = s3fs.S3FileSystem(use_listings_cache=False)
    names = sorted(s3.glob(build_url(f"{folder}/{pattern}")))

    def download() -> dict:
        size = sum(len(s3.cat_file(name)) for name in names)
        return {"bytes_per_reference": size / (_FILES * _CHUNKS)}

    return download


def _build_dataset(order: str) -> "xr.Dataset":
    import numpy as np
    import xarray as xr
    from virtualizarr.manifests import ChunkManifest, ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    from sbench.court.shapes.grid import list_references

    references = list_references(order, _FILES, _CHUNKS)
    metadata = create_v3_array_metadata((_FILES, _CHUNKS), np.dtype("f4"), (1, 1))
    manifest = ChunkManifest.from_arrays(**references._asdict())
    return xr.Dataset({"temperature": (("day", "part"), ManifestArray(metadata, manifest))})


def _create_repository(folder: str) -> "icechunk.Repository":
    import icechunk

    endpoint, bucket = os.environ["AWS_ENDPOINT_URL"], os.environ["SBENCH_BUCKET"]
    storage = icechunk.s3_storage(
        bucket=bucket, prefix=folder, endpoint_url=endpoint, allow_http=True, force_path_style=True, from_env=True
    )
    config = icechunk.RepositoryConfig.default()
    archive = icechunk.VirtualChunkContainer("s3://archive/", icechunk.s3_store(region=os.environ["AWS_REGION"]))
    config.set_virtual_chunk_container(archive)
    return icechunk.Repository.create(storage, config)


def judge(runs: "Runs") -> "Judgement":
    """Compare the bytes of both formats for each order of offsets, from medians, since identifiers are random."""
    from sbench.pages import prose

    orders = list(dict.fromkeys(arm["options"]["order"] for arm in runs.claim.arms.values()))
    ratios = {
        order: runs.read_median(f"Icechunk, {order}", "bytes") / runs.read_median(f"Kerchunk, {order}", "bytes")
        for order in orders
    }
    fits = [order for order in orders if _LEAST <= ratios[order] <= _MOST]
    ratio = ratios[(fits or orders)[0]]
    shown = prose.format_list([f"{ratios[order]:.3g} ({order})" for order in orders])
    reason = f"the ratio of bytes, manifests to Parquet files, is {shown}"
    if fits and len(fits) < len(orders):
        return runs.limit(f"chunks are {prose.format_list(fits, 'or')}", ratio, reason)
    return runs.decide(bool(fits), ratio, reason)
