"""Makes a file of random bytes and its manifest, which has its checksums."""

import argparse
import hashlib
import random
import zlib
from pathlib import Path

from sbench.probe.program import parse_json_object, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Write the file beside its manifest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, help="the dataset's name")
    parser.add_argument("--settings", required=True, type=parse_json_object, help='JSON: {"bytes", "seed"}')
    parser.add_argument("--out", required=True, type=Path, help="the manifest")
    arguments = parser.parse_args(argv)
    size, seed = arguments.settings["bytes"], arguments.settings["seed"]
    data = random.Random(seed).randbytes(size)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_name("random.bin").write_bytes(data)
    sha256, crc32 = hashlib.sha256(data).hexdigest(), f"{zlib.crc32(data):08x}"
    manifest = {
        "manifest": 1,
        "status": "done",
        "dataset": arguments.dataset,
        "data_sha256": sha256,
        "layout": {"bytes": size},
        "files": [{"name": "random.bin", "bytes": size, "sha256": sha256, "crc32": crc32}],
    }
    write_json(arguments.out, manifest)
    return 0


if __name__ == "__main__":
    run_main(main)
