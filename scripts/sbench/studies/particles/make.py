"""Generate a Gadget-style snapshot and its manifest, or write the manifest of existing HDF5 files with particles."""

import hashlib
from pathlib import Path

import h5py
import numpy as np

from sbench.probe.fields import read_fields
from sbench.probe.formats import is_named_hdf5
from sbench.probe.program import Problem, describe_cause, parse_dataset_options, run_main, sync_path, write_json
from sbench.studies.particles import snapshots
from sbench.studies.particles.settings import Data

GENERATOR = {"name": "make_particles", "version": 1}


def main(argv: list[str] | None = None) -> int:
    """Run the program and return its exit status."""
    options = parse_dataset_options(
        argv,
        __doc__,
        'JSON as {"particles": "A", "per_file": 400000, "seed": 1}: A, B or a number; or {"files": "folder", '
        '"group": "PartType0", "field": "Density"}: describe existing files; "part_size" is optional: the part '
        "size of uploads",
    )
    data = read_fields(Data, options.settings)
    paths = list_source_files(Path(data.files)) if data.files else make_snapshot(data, options.out)
    facts = snapshots.describe_snapshot(paths, *((data.group, data.field) if data.files else ()))
    for entry, path in zip(facts["files"], paths, strict=True):
        entry |= {"path": str(path.absolute())} if data.files else {}
    digests = "\n".join(entry["sha256"] for entry in facts["files"])
    head = {"manifest": 1, "status": "done", "dataset": options.dataset, "settings": options.settings}
    head |= {"part_size": data.part_size} if data.part_size else {}
    versions = {"h5py": h5py.version.version, "numpy": np.__version__}
    head["generator"] = None if data.files else GENERATOR | versions
    head["data_sha256"] = hashlib.sha256(digests.encode()).hexdigest()
    write_json(options.out, head | facts)
    print(f"{options.out}: {facts['layout']['particles']} particles in {facts['layout']['files']} files")
    return 0


def plan_snapshot(data: Data) -> tuple[int, int]:
    """Return the number of particles and the number of files of a snapshot to generate."""
    if data.particles in snapshots.PRESETS:
        return snapshots.PRESETS[data.particles][:2]
    particles = int(data.particles)
    return particles, -(-particles // data.per_file)


def list_source_files(source: Path) -> list[Path]:
    """List user-supplied files: a single file, or a directory's HDF5 files in the order of the numbers in their names.

    Raises:
        Problem: there is no such file.
    """
    paths = [path for path in source.glob("*") if is_named_hdf5(path.name)] if source.is_dir() else [source]
    if not paths or not all(path.exists() for path in paths):
        raise Problem(f"{source} contains no HDF5 file; correct studies.particles.data.files")
    return sorted(paths, key=lambda path: [int(part) if part.isdigit() else 0 for part in path.name.split(".")])


def make_snapshot(data: Data, out: Path) -> list[Path]:
    """Write the files of a snapshot next to its manifest `out`, and return their paths.

    Raises:
        Problem: the directory cannot be written.
    """
    held = snapshots.split_particles(*plan_snapshot(data))
    paths = [out.parent / f"snapshot.{number}.hdf5" for number in range(len(held))]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
        for number, path in enumerate(paths):
            part = path.with_suffix(".part")
            snapshots.write_file(part, number, held, data.seed)
            sync_path(part)
            part.replace(path)
        sync_path(out.parent)
    except (OSError, RuntimeError) as error:
        for path in paths:
            path.unlink(missing_ok=True)
            path.with_suffix(".part").unlink(missing_ok=True)
        raise Problem(
            f"{out.parent} cannot be written: {describe_cause(error, '; free disk space, or make it writable')}"
        ) from error
    return paths


if __name__ == "__main__":
    run_main(main)
