"""Reads files through drivers in a library under test and writes down what came out, for drivers/test_drivers.py."""

import contextlib
import json
import os
import sys
from pathlib import Path

from sbench import drivers
from sbench.drivers import Access, encode_object
from sbench.studies.shots.checksums import compute_checksum

# Parts of a dataset: across chunks, in the middle of them, and its last elements alone.
PARTS = {
    "all": (),
    "rows": slice(3, 20),
    "corner": (slice(5, 18), Ellipsis, slice(1, 11)),
    "last": (Ellipsis, slice(-1, None)),
}


def parts_of(shape: list[int]) -> list[str]:
    """Return which of PARTS a dataset of some shape has."""
    if not shape or 0 in shape:
        return ["all"]
    return [*PARTS] if len(shape) == 2 else ["all", "last"]


def answer(call, *arguments: object) -> object:
    """Return what a call gives, or how it fails."""
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def read(case: dict) -> dict:
    """Return what a driver says of a file: settings, values of parts of all datasets, tree."""
    driver, buffer = drivers.get_driver(case["driver"]), drivers.parse_page_buffer("unset")
    levels = {"store": case["store"], "read_cache": case["read_cache"], "index": case["index"]}
    access = Access(case["driver"], buffer, 2**20, **levels, rdcc_nslots=case["slots"])
    if case["make_index"]:
        Path(case["index"]).mkdir()
        driver.index([case["address"]], access, Path(case["index"]))
    said: dict = {"versions": driver.list_versions()}
    with contextlib.closing(driver.open(case["address"], access)) as file:
        said["effective"] = file.read_settings()
        said["values"] = {
            f"{path} {part}": answer(lambda path=path, part=part: compute_checksum(file.read(path, PARTS[part])))
            for path, shape in case["shapes"].items()
            for part in parts_of(shape)
        }
        said["tree"] = answer(lambda: sorted(encode_object(*item).decode("latin-1") for item in file.walk()))
    return said


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps([answer(read, case) for case in cases]), encoding="utf-8")
    # Threads of icechunk and obstore that are still alive while Python ends abort the process in 1 of 250 cases.
    os._exit(0)
