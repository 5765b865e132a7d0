"""Convert files, and open and read containers with the code that the advice prints, in the reading library.

The program reads a JSON object per line from standard input, and answers each with a line. A failure is answered with
{"problem": reason}.
"""

import argparse
import ast
import contextlib
import json
import os
import sys
import time
import warnings
import zlib
from collections.abc import Sequence

import numpy as np

from sbench.probe.program import run_main

# Maximum number of bytes of a block of values to compare.
_BLOCK = 2**26


def main(argv: list[str] | None = None) -> int:
    """Answer requests until the input ends, and return 0."""
    parser = argparse.ArgumentParser(prog="module.py sbench.files.read_containers", description=__doc__)
    parser.add_argument("folder", help="working directory, for files that a conversion writes")
    os.chdir(parser.parse_args(argv).folder)
    warnings.simplefilter("ignore")
    answers = sys.stdout
    actions = {"describe": _describe_names, "convert": _convert, "compare": _compare, "read": _read}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            # Libraries print to standard output, too.
            with contextlib.redirect_stdout(sys.stderr):
                answer = actions[request.pop("action")](**request)
        # Code of other projects raises any exception, and each is a reason to leave a container out.
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            answer = {"problem": f"{type(error).__name__}: {reason}".removesuffix(": ")}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def _describe_names(code: str, expression: str, name: str) -> dict:
    """Return the first dimension of a dataset as a library names it, and the versions of libraries."""
    names = _run(code)
    part = eval(expression, names)
    return {"dimension": str(part[name].dims[0])}


def _convert(code: str) -> dict:
    _import_modules(code)
    _forget_clients()
    began = time.perf_counter()
    _run(code)
    return {"seconds": time.perf_counter() - began}


def _compare(code: str, original: str, files: Sequence[str], names: Sequence[str]) -> dict:
    """Compare all values of datasets and their coordinates with the files on this machine.

    Returns:
        {"difference": reason}, which is empty if all values are equal.
    """
    import xarray

    _forget_clients()
    opened = _run(code)["data"]
    with eval(original, {"xarray": xarray, "files": files}) as expected:
        of_names = [str(axis) for name in names for axis in expected[name].coords if axis in expected[name].dims]
        for name in dict.fromkeys([*names, *of_names]):
            if name not in opened:
                return {"difference": f"{name} is missing"}
            one, other = expected[name], opened[name]
            if one.shape != other.shape:
                return {"difference": f"{name} has the shape {other.shape} instead of {one.shape}"}
            step = max(1, _BLOCK // max(1, one.nbytes // max(1, len(one))))
            for begin in range(0, len(one), step):
                both = one[begin : begin + step].values, other[begin : begin + step].values
                if not np.array_equal(*both, equal_nan=both[0].dtype.kind in "fcmM"):
                    return {"difference": f"{name} has other values"}
    return {"difference": ""}


def _read(code: str, parts: dict[str, list]) -> dict:
    """Open a container with new clients, and read a part of each dataset.

    Returns:
        {"seconds", "bytes", "checksum"} of the read.
    """
    _import_modules(code)
    _forget_clients()
    began = time.perf_counter()
    data = _run(code)["data"]
    values = [data[name][tuple(slice(*span) for span in spans)].values for name, spans in parts.items()]
    seconds = time.perf_counter() - began
    checksum = 0
    for array in values:
        checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    data.close()
    return {"seconds": seconds, "bytes": sum(array.nbytes for array in values), "checksum": checksum}


def _run(code: str) -> dict:
    names: dict = {}
    exec(code, names)
    return names


def _import_modules(code: str) -> None:
    """Import the modules of a piece of code before it is timed."""
    body = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(body, []), "imports", "exec"), {})


def _forget_clients() -> None:
    """Let fsspec create clients again, so that no read uses connections, listings or references of an earlier one."""
    for name, of_kind in (("s3fs", "S3FileSystem"), ("fsspec.implementations.reference", "ReferenceFileSystem")):
        if module := sys.modules.get(name):
            getattr(module, of_kind).clear_instance_cache()


if __name__ == "__main__":
    run_main(main)
