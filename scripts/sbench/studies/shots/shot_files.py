"""Describe HDF5 files with shots, written by any program, for the manifest of a dataset.

A signal is a dataset `/shots/<shot>/signals/<signal>`. The group `/shots/<shot>` contains its dimension scales.
"""

from collections.abc import Iterable
from pathlib import Path

import h5py

from sbench.probe.program import Problem, compute_file_digest
from sbench.studies.shots.checksums import compute_checksum
from sbench.studies.shots.files import get_common_value, get_creation_facts, list_extents
from sbench.studies.shots.inputs import Source
from sbench.studies.shots.signals import sort_pairs

SMALL = 8000  # bytes; larger datasets are compressed


def list_parts(signal: h5py.Dataset) -> list[h5py.Dataset]:
    """Return the datasets to read for a signal: the signal itself, and the dimension scales of each dimension."""
    return [signal, *(scale for dimension in signal.dims for scale in dimension.values())]


def describe_files(of_set: Iterable[Source], values: bool = True) -> dict:
    """Read files with shots, and build the part of their manifest that describes them.

    Only one dataset at a time is loaded into memory. In `layout`, `paged`, `page_size` and `deflate` are None if files
    or datasets differ. `page_size` is also None for files without paged allocation.

    Args:
        of_set: the files.
        values: whether to read the values and compute checksums.

    Raises:
        Problem: a file is truncated, is not HDF5 or lacks shots, or two files contain the same signal of a shot.
    """
    files, objects, page_sizes, orders, levels = [], {}, set(), [], set()
    for source in of_set:
        held, order, page_size, deflate = _read_source(source, values)
        for shot, signals in held.items():
            if twice := objects.setdefault(shot, {}).keys() & signals.keys():
                raise Problem(
                    f"{source.where} contains shot {shot}, signal {min(twice)} again; name a single file for each"
                )
            objects[shot].update(signals)
        digest = {"sha256": compute_file_digest(Path(source.where))} if values else {}
        files.append({"name": source.name, "bytes": source.bytes, **digest})
        page_sizes.add(page_size)
        orders.append((len(held), order))
        levels |= deflate
    if not objects:
        raise Problem("no HDF5 file with shots found; name files, or a folder with such files")
    pairs = [entry["datasets"] for signals in objects.values() for entry in signals.values()]
    names = sorted({signal for signals in objects.values() for signal in signals})
    return {
        "files": files,
        "layout": {
            "layout": _get_layout(orders),
            "paged": get_common_value({size is not None for size in page_sizes}),
            "page_size": get_common_value(page_sizes),
            "deflate": get_common_value(levels),
            "files": len(files),
            "shots": len(objects),
            "signals": len(names),
            "pairs": len(pairs),
            "dataset_reads": sum(map(len, pairs)),
        },
        "shots": sorted(objects),
        "signals": names,
        "objects": {shot: objects[shot] for shot in sorted(objects)},
    }


def _read_source(source: Source, values: bool) -> tuple[dict, str, int | None, set[int]]:
    """Read the shots in a file.

    Returns:
        {shot: {signal: manifest entry}}, the order of the data ("shot-major", "signal-major" or "mixed"), the page size
        in bytes (None if the file is not paged), and the set of deflate levels (empty unless `values` are read).
    """
    objects, places, levels, scales = {}, {}, set(), {}
    with source.open_hdf5() as file:
        page_size = get_creation_facts(file)["page_size"]
        for shot, signal, dataset in _iter_signals(source.where, file):
            lines, stored = [], []
            for member in list_parts(dataset):
                # Identify scales by address: to get the name of a scale, HDF5 would search the file.
                address = h5py.h5o.get_info(member.id).addr
                if address not in scales:
                    scales[address] = [member.name, *(compute_checksum(member[()]) if values else ())]
                    places[member.name] = list_extents(member)
                    if values and scales[address][1] > SMALL:
                        levels.add((member.compression == "gzip" and member.compression_opts) or 0)
                lines.append(scales[address])
                stored.append(sum(end - start for start, end in places[lines[-1][0]]))
            entry = {"file": source.name, "datasets": lines, "stored_bytes": stored}
            objects.setdefault(shot, {})[signal] = entry
    return objects, _find_order(objects, places), page_size, levels


def _iter_signals(path: str, file: h5py.File) -> Iterable[tuple[str, str, h5py.Dataset]]:
    if not isinstance(file.get("shots"), h5py.Group) or not len(file["shots"]):
        raise Problem(f"{path} must contain a group /shots with shots; is it another kind of HDF5 file?")
    for shot, group in file["shots"].items():
        if not isinstance(group, h5py.Group) or not isinstance(group.get("signals"), h5py.Group):
            raise Problem(f"{path} must contain a group /shots/{shot}/signals; is it another kind of HDF5 file?")
        for signal, dataset in group["signals"].items():
            if isinstance(dataset, h5py.Dataset):
                yield shot, signal, dataset


def _find_order(objects: dict, places: dict[str, list[tuple[int, int]]]) -> str:
    """Determine from file offsets whether data are grouped by shot or by signal.

    A scale that several signals share counts as part of the first of them.

    Returns:
        "shot-major", "signal-major" or "mixed".
    """
    for layout, leader in (("shot-major", 0), ("signal-major", 1)):
        spans: dict[str, list[int]] = {}
        seen = set()
        for pair in sort_pairs(layout, objects):
            for name, *_ in objects[pair[0]][pair[1]]["datasets"]:
                if name not in seen:
                    seen.add(name)
                    spans.setdefault(pair[leader], []).extend(byte for piece in places[name] for byte in piece)
        bounds = [edge for span in spans.values() if span for edge in (min(span), max(span))]
        if bounds == sorted(bounds):
            return layout
    return "mixed"


def _get_layout(orders: list[tuple[int, str]]) -> str:
    """Return the layout that all files share, from each file's number of shots and order of data."""
    if all(shots == 1 for shots, _ in orders):
        return "single-shot"
    names = {order for _, order in orders}
    return names.pop() if len(names) == 1 else "mixed"
