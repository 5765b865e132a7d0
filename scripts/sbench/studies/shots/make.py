"""Generate HDF5 files of synthetic tokamak shots and their manifest, or only write the manifest of existing files."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path

import h5py
import numpy as np

from sbench.probe.formats import format_error
from sbench.probe.program import Problem, parse_dataset_options, run_main, sync_path, write_json
from sbench.studies.shots import manifest
from sbench.studies.shots.checksums import compute_checksum
from sbench.studies.shots.files import list_extents
from sbench.studies.shots.inputs import find_sources
from sbench.studies.shots.shot_files import SMALL, describe_files
from sbench.studies.shots.signal_table import load_signals
from sbench.studies.shots.signals import (
    Settings,
    compute_axis_values,
    compute_signal_values,
    plan_shots,
    sort_pairs,
)

GENERATOR = "make_shots"
VERSION = 1
MARK = f"synthetic, by {GENERATOR}"
CHUNK_BYTES = 2**18
HEAP_BYTES = 4096  # size of the heaps of references to dimension scales, which HDF5 allocates among the raw data


def main(argv: list[str] | None = None) -> int:
    """Run the program and return its exit status."""
    options = parse_dataset_options(
        argv,
        __doc__,
        'make files: JSON as {"layout": "single-shot", "shots": 12, "signals": 61, "page_size": 8000000, '
        '"paged": true, "deflate": 4, "seed": 1}; the other layouts are shot-major and signal-major, one file each; '
        'or {"files": "folder"}: describe existing files, for any tree with "datasets": ["/**"] and "layout"; '
        '"part_size" is optional: the part size of uploads',
    )
    settings = options.settings
    parts = {"part_size": settings.pop("part_size")} if "part_size" in settings else {}
    head = {"manifest": 1, "status": "done", "dataset": options.dataset}
    if "datasets" in settings:
        contents = manifest.describe_set(settings)
        head["data_sha256"] = manifest.compute_data_sha256(contents["objects"])
    else:
        contents = (
            describe_existing_files(settings["files"])
            if "files" in settings
            else make_files(Settings(**settings), options.out)
        )
        head["data_sha256"] = compute_data_sha256(contents["objects"])
    write_json(options.out, head | parts | contents)
    layout = contents["layout"]
    print(f"{options.out}: {layout['layout']}, {layout['files']} files, {layout['dataset_reads']} dataset reads")
    for kind in contents.get("left_out", ()):
        more = f" and {kind['count'] - 1:,} more" if kind["count"] > 1 else ""
        print(f"left out: {kind['first']}{more}")
    return 0


def compute_data_sha256(shots: dict) -> str:
    """Return a hash of all values of a set of shots, regardless of the file layout (METHOD 17, not comparable)."""
    lines = [
        json.dumps([shot, signal, entry["datasets"]])
        for shot, signals in sorted(shots.items())
        for signal, entry in sorted(signals.items())
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def describe_existing_files(source: str) -> dict:
    """Build the manifest of a user file, or of the HDF5 files in a directory, with their absolute paths."""
    of_user = find_sources(source)
    facts = describe_files(of_user)
    for file, one in zip(facts["files"], of_user, strict=True):
        file["path"] = one.where
    return {"generator": None, "settings": {}, **facts}


def make_files(settings: Settings, out: Path) -> dict:
    """Write the files of a dataset, and build their manifest from what is read back.

    Args:
        settings: the settings of the generator.
        out: path of the manifest; the files are written to its directory.

    Raises:
        Problem: the directory contains HDF5 files of other programs or cannot be written, or the files do not match
            the settings.
    """
    shots = plan_shots(settings)
    pairs = sort_pairs(settings.layout, shots)
    single = settings.layout == "single-shot"
    contents = {f"{key}.h5": list(group) for key, group in groupby(pairs, lambda pair: pair[0] if single else "shots")}
    folder, written = out.parent, {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
        remove_earlier_files(folder)
        for name, chosen in contents.items():
            part = folder / f".{name}.part"
            written |= write_shots(part, [(shot, signal, shots[shot][signal]) for shot, signal in chosen], settings)
            part.replace(folder / name)
        sync_path(folder)
    except (OSError, RuntimeError) as error:
        discard_parts(folder)
        raise Problem(
            f"{folder} cannot be written: {format_error(error)}; free disk space, or make it writable"
        ) from error
    facts = describe_files(find_sources([str(folder / name) for name in contents]))
    validate_files(settings, shots, written, facts)
    versions = {"h5py": h5py.version.version, "hdf5": h5py.version.hdf5_version}
    return {"generator": {"name": GENERATOR, "version": VERSION, **versions}, "settings": asdict(settings), **facts}


def remove_earlier_files(folder: Path) -> None:
    """Remove the files of an earlier run; raise Problem if the directory contains HDF5 files of other programs."""
    discard_parts(folder)
    for path in sorted(folder.glob("*.h5")):
        try:
            with h5py.File(path, "r") as file:
                ours = file.attrs.get("source") == MARK
        except OSError:
            ours = False
        if not ours:
            raise Problem(f"{path} was not made by {GENERATOR} and stays as it is; choose another folder, or move it")
        path.unlink()


def discard_parts(folder: Path) -> None:
    """Remove incomplete files of an interrupted run."""
    for part in folder.glob(".*.h5.part"):
        part.unlink()


def write_shots(path: Path, contents: Iterable[tuple[str, str, tuple[str, ...]]], settings: Settings) -> dict:
    """Write signals with their dimension scales to an HDF5 file, and sync the file to disk.

    Args:
        path: path of the file.
        contents: (shot, signal, names of the axes) in the order of writing.
        settings: the settings of the generator.

    Returns:
        (bytes, crc32) of each dataset, keyed by its path in the file.
    """
    # In files without pages, the strategy "none" allocates space in order. With HDF5's default, small datasets would
    # fill earlier gaps.
    space = {"fs_strategy": "page", "fs_page_size": settings.page_size} if settings.paged else {"fs_strategy": "none"}
    file = h5py.File(path, "w", libver=("earliest", "v110"), **space)
    try:
        file.attrs["source"] = MARK
        store, written = Store(file, settings), {}
        for shot, name, axes in contents:
            values = compute_signal_values(settings.seed, shot, load_signals()[name])
            signal = store.write_dataset(f"/shots/{shot}/signals/{name}", values)
            signal.attrs["shot"] = np.int64(shot)
            written[signal.name] = compute_checksum(values)
            for dimension, axis in enumerate(axes):
                values = compute_axis_values(settings.seed, shot, axis, signal.shape[dimension])
                place = f"/shots/{shot}/scale_{hashlib.md5(values, usedforsecurity=False).hexdigest()}"
                if place not in written:
                    store.write_dataset(place, values).make_scale()
                    written[place] = compute_checksum(values)
                signal.dims[dimension].attach_scale(file[place])
        # HDF5 does not store the free space in the file when it closes the file.
        if "padding" in file:
            del file["padding"]
        file.close()
    except BaseException:
        # HDF5 crashes at exit if it cannot close a file because the disk is full.
        os.truncate(path, 0)
        file.close()
        raise
    sync_path(path)
    return written


class Store:
    """Writes datasets one after another, and in paged files fills the gaps in which HDF5 would put later datasets.

    HDF5 fills the rest of an earlier page with any dataset that fits, so that a tenth of the datasets would be stored
    apart from their shot or signal. Padding datasets take up the rest of each page and are unlinked at the end.
    """

    def __init__(self, file: h5py.File, settings: Settings) -> None:
        """Initialize the writer for an empty file."""
        self.file, self.deflate = file, settings.deflate
        self.page_size = settings.page_size if settings.paged else None
        self.end = 0

    def write_dataset(self, path: str, values: np.ndarray) -> h5py.Dataset:
        """Write a dataset; datasets larger than 8 kB are chunked and compressed."""
        options = {}
        if values.nbytes > SMALL:
            rows = min(len(values), 2 ** ((CHUNK_BYTES * len(values) // values.nbytes).bit_length() - 1))
            options = {"chunks": (rows, *values.shape[1:]), "compression": self.deflate or None}
        dataset = self.file.create_dataset(path, data=values, track_times=False, **options)
        dataset.flush()  # HDF5 allocates chunks only when they leave the chunk cache
        if self.page_size:
            pieces = list_extents(dataset)
            for (_, end), (start, _) in pairwise([(0, self.end), *pieces]):
                if end and start // self.page_size > end // self.page_size:
                    self._add_padding(end, self.page_size - end % self.page_size)
            self.end = max(self.end, pieces[-1][1])
        return dataset

    def _add_padding(self, start: int, length: int) -> None:
        """Allocate the rest of a page. A heap with references to scales may already occupy its first bytes."""
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        name = f"{start}".encode()
        group = self.file.require_group("padding").id
        for size in (length, length - HEAP_BYTES):
            if size > 0:
                space = h5py.h5s.create_simple((size,))
                padding = h5py.h5d.create(group, name, h5py.h5t.NATIVE_UINT8, space, creation)
                if start <= padding.get_offset() < start + length:
                    return
                group.unlink(name)


def validate_files(settings: Settings, shots: dict, written: dict, facts: dict) -> None:
    """Check that the layout and checksums read back from the files match the settings and the written values.

    Raises:
        Problem: they differ.
    """
    held = [axes for signals in shots.values() for axes in signals.values()]
    counts = {"pairs": len(held), "dataset_reads": len(held) + sum(map(len, held))}
    expected = asdict(settings) | counts | ({} if settings.paged else {"page_size": None})
    for key in ("layout", "paged", "page_size", "deflate", "shots", *counts):
        if facts["layout"][key] != expected[key]:
            raise Problem(f"{key} must be {expected[key]!r} in the files (got {facts['layout'][key]!r}); report this")
    for signals in facts["objects"].values():
        for parts_of in signals.values():
            for name, *read in parts_of["datasets"]:
                if tuple(read) != written[name]:
                    raise Problem(
                        f"{parts_of['file']}: {name} differs from the written values when read back; check the disk"
                    )


if __name__ == "__main__":
    run_main(main)
