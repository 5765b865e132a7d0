"""Measures one cell once: reads the file and takes its checksum."""

import hashlib
import time
import zlib
from pathlib import Path

from sbench.probe.conversation import Step, run_measurement
from sbench.probe.program import read_json, run_main

_CHECKSUMS = {
    "crc32": lambda data: f"{zlib.crc32(data):08x}",
    "sha256": lambda data: hashlib.sha256(data).hexdigest(),
}


def main(argv: list[str] | None = None) -> int:
    """Measure what the step says on standard input."""
    return run_measurement(measure)


def measure(step: Step) -> dict:
    """Return the program's part of the record."""
    algorithm = step.job["settings"]["cell"]["algorithm"]
    [entry] = read_json(step.job["manifest"])["files"]
    path = Path(step.job["location"]["folder"], entry["name"])
    step.open_window()
    began = time.perf_counter()
    data = path.read_bytes()
    read = time.perf_counter()
    checksum = _CHECKSUMS[algorithm](data)
    ended = time.perf_counter()
    step.close_window()
    return {
        "seconds": {"total": ended - began, "read": read - began},
        "samples": [{"bytes": len(data), "read_s": read - began, "checksum_s": ended - read}],
        "work": {
            "logical_bytes_asked": entry["bytes"],
            "logical_bytes": len(data),
            "checksum_asked": entry[algorithm],
            "checksum": checksum,
        },
    }


if __name__ == "__main__":
    run_main(main)
