"""Generate an array as an HDF5 file, and a manifest with the checksums that all backends' values must match."""

import hashlib
import zlib

import h5py

from sbench.probe.fields import read_fields
from sbench.probe.program import (
    Problem,
    compute_file_digest,
    describe_cause,
    parse_dataset_options,
    run_main,
    sync_path,
    write_json,
)
from sbench.studies.arrays import library, pieces, values
from sbench.studies.arrays.settings import Data

GENERATOR = {"name": "make_arrays", "version": 1}
NAME = "array.h5"


def main(argv: list[str] | None = None) -> int:
    """Generate the file and its manifest, and return the exit status."""
    options = parse_dataset_options(
        argv,
        __doc__,
        'JSON as {"shape": "12000x2200", "chunks": "1500x275", "compression": "none", "values": "formula", "seed": 1};'
        ' "part_size" is optional: the part size of uploads',
    )
    data, out = read_fields(Data, options.settings), options.out
    shape = pieces.parse_shape(data.shape, data.chunks)
    array = values.make_values(data.values, shape.columns, slice(0, shape.rows), data.seed)
    path = out.parent / NAME
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            dataset = library.create_dataset(file, shape, array.dtype, data.compression)
            dataset[...] = array
        sync_path(path)
    except (OSError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        raise Problem(
            f"{out.parent} cannot be written: {describe_cause(error, '; free disk space, or make it writable')}"
        ) from error
    crc = zlib.crc32(array)
    manifest = {"manifest": 1, "status": "done", "dataset": options.dataset, "settings": options.settings}
    manifest |= {"part_size": data.part_size} if data.part_size else {}
    manifest["generator"] = GENERATOR | {"h5py": h5py.version.version}
    manifest["data_sha256"] = hashlib.sha256(array).hexdigest()
    manifest["files"] = [{"name": NAME, "bytes": path.stat().st_size, "sha256": compute_file_digest(path)}]
    manifest |= {"layout": library.read_layout(path), "crc32": f"{crc:08x}"}
    write_json(out, manifest)
    print(f"{out}: {data.shape} values in {manifest['layout']['stored_bytes']} bytes")
    return 0


if __name__ == "__main__":
    run_main(main)
