"""Reads files through drivers in a library under test and prints what came out; tests/test_drivers.py starts it."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np

from scripts import drivers
from scripts.drivers import Access, described
from scripts.studies.shots.reader import fingerprint

# One more than a chunk, across chunks, and nothing but the last element.
PARTS = {"all": (), "rows": slice(3, 20), "corner": (slice(5, 18), Ellipsis, slice(1, 11)), "last": (Ellipsis, -1)}


def parts_of(path: str, shapes: dict) -> list[str]:
    """Return which of PARTS a dataset has."""
    shape = shapes[path]
    return [*PARTS] if len(shape) == 2 and 0 not in shape else ["all", "last"] if shape and 0 not in shape else ["all"]


def numbers(where: object) -> object:
    """Return a part without numbers, which take a dimension away: not every library takes them."""
    last = lambda part: slice(-1, None) if part == -1 else part  # noqa: E731
    return tuple(map(last, where)) if isinstance(where, tuple) else where


def answer(call, *arguments: object) -> object:
    """Return what a call gives, or how it fails."""
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def read(case: dict) -> dict:
    """Return what a driver says of a file: values, tree and settings, each perhaps a line that it is unable to."""
    driver = drivers.of(case["driver"])
    levels = {"read_cache": case.get("read_cache", "default"), "store": case.get("store", {})}
    access = Access(case["driver"], drivers.page_buffer_bytes(case.get("page_buffer", "unset")), 2**20, **levels)
    if isinstance(driver, drivers.Indexed):
        folder = Path(case["folder"])
        folder.mkdir(exist_ok=True)
        if "first" not in case or case["first"]:
            driver.index([case["address"]], access, folder)
        access = Access(access.driver, access.page_buffer, access.rdcc_nbytes, **levels, index=str(folder))
    said: dict = {"versions": driver.versions()}
    with contextlib.closing(driver.open(case["address"], access)) as file:
        said["effective"] = file.effective()
        for path in case["paths"]:
            for part in parts_of(path, case["shapes"]):
                said[f"{path} {part}"] = answer(lambda p=path, w=part: fingerprint(file.read(p, numbers(PARTS[w]))))
        said["walk"] = answer(lambda: sorted(described(*item).decode("latin-1") for item in file.walk()))
    return said


if __name__ == "__main__":
    np.seterr(all="raise")
    print(json.dumps([answer(read, case) for case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]))
