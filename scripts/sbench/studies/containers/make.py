"""Generate the source files, which are netCDF-4 with the same grid and consecutive times, and their manifest."""

import hashlib

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
from sbench.studies.containers import netcdf, selections, values
from sbench.studies.containers.settings import Data

GENERATOR = {"name": "make_containers", "version": 2}


def main(argv: list[str] | None = None) -> int:
    """Generate the files and the manifest, and return the exit status."""
    options = parse_dataset_options(
        argv,
        __doc__,
        'JSON as {"shape": "64x32x32", "chunks": "8x16x16", "compression": "none", "files": "4", "seed": 1};'
        ' "part_size" is optional: the part size of uploads',
    )
    data, out = read_fields(Data, options.settings), options.out
    shape, digest = selections.parse_sides(data.shape), hashlib.sha256()
    coordinates, entries = values.make_coordinates(shape), []
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
        for name, times in netcdf.list_files(shape[0], int(data.files)):
            array = values.make_values(shape, (times, slice(None), slice(None)), data.seed)
            digest.update(array)
            path = out.parent / name
            with h5py.File(path, "w", libver="v108") as file:
                layout = {"chunks": tuple(map(min, array.shape, selections.parse_sides(data.chunks)))}
                if data.compression == "deflate":
                    layout |= {"compression": "gzip", "compression_opts": netcdf.LEVEL}
                times_of_file = {"time": coordinates["time"][times]}
                netcdf.write_variables(file, coordinates | times_of_file, layout | {"data": array})
            sync_path(path)
            entries.append({"name": name, "bytes": path.stat().st_size, "sha256": compute_file_digest(path)})
    except (OSError, RuntimeError) as error:
        raise Problem(
            f"{out.parent} cannot be written: {describe_cause(error, '; free disk space, or make it writable')}"
        ) from error
    manifest = {"manifest": 1, "status": "done", "dataset": options.dataset, "settings": options.settings}
    manifest |= {"part_size": data.part_size} if data.part_size else {}
    manifest |= {"generator": GENERATOR | {"h5py": h5py.version.version}, "data_sha256": digest.hexdigest()}
    with h5py.File(out.parent / entries[0]["name"]) as file:
        layout = {"chunks": selections.format_sides(file[netcdf.NAME].chunks)}
        layout["compression"] = layout["codec"] = "deflate" if file[netcdf.NAME].compression else "none"
    manifest |= {"files": entries, "layout": layout | {"files": str(len(entries))}}
    write_json(out, manifest)
    print(f"{out}: {data.shape} values in {len(entries)} files")
    return 0


if __name__ == "__main__":
    run_main(main)
