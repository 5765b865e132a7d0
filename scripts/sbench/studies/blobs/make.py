"""Generate a manifest of synthetic objects, with sizes and checksums. Their bytes are generated during the upload.

The bytes are incompressible. `sbench.probe.content` can regenerate any block of them, so this program stores no copy.
"""

import hashlib

import numpy as np

from sbench.probe import content, sizes
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, parse_dataset_options, run_main, write_json
from sbench.studies.blobs.settings import Data

GENERATOR = "make_blobs"
VERSION = 1
_SETTINGS = {"size", "objects", "seed"}


def main(argv: list[str] | None = None) -> int:
    """Write the manifest and return the exit status."""
    options = parse_dataset_options(
        argv,
        __doc__.splitlines()[0],
        'JSON as {"size": "16MiB", "objects": 4, "seed": 1}; "part_size" is optional: the part size of uploads',
    )
    settings = options.settings
    parts = {"part_size": settings.pop("part_size")} if "part_size" in settings else {}
    manifest = build_manifest(settings)
    write_json(options.out, {"manifest": 1, "status": "done", "dataset": options.dataset, **parts, **manifest})
    layout = manifest["layout"]
    print(f"{options.out}: {layout['objects']} objects of {sizes.format_size(layout['size_bytes'])}")
    return 0


def build_manifest(settings: dict) -> dict:
    """Build the part of the manifest that describes the objects. It contains a checksum for each block.

    Args:
        settings: "size", "objects" (their number) and "seed".

    Raises:
        Problem: a setting is unknown, missing or invalid.
    """
    if settings.keys() != _SETTINGS:
        raise Problem(f"settings of objects must be {', '.join(sorted(_SETTINGS))} (got {', '.join(sorted(settings))})")
    given = read_fields(Data, settings)
    size, count, seed = sizes.parse_size(given.size), given.objects, given.seed
    if size < 1 or not isinstance(count, int) or count < 1 or not isinstance(seed, int) or seed < 0:
        raise Problem(f"size and number of objects must be at least 1, the seed at least 0 (got {settings})")
    files = [content.build_entry(f"{number:04d}.bin", size, seed, number) for number in range(count)]
    lines = "\n".join(f"{file['name']} {file['bytes']} {file['sha256']}" for file in files)
    return {
        "generator": {"name": GENERATOR, "version": VERSION, "numpy": np.__version__},
        "settings": settings,
        "data_sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "layout": {"size_bytes": size, "objects": count, "block_bytes": sizes.compute_block_bytes(size)},
        "files": files,
    }


if __name__ == "__main__":
    run_main(main)
