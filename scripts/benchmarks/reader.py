"""Reads over and over what it is told, in the interpreter of a library under test, and says when it began and ended.

A line of JSON on standard input is a pass, a line on standard output its answer: {"start", "end"} by the monotonic
clock, which is one for all processes of a machine, and {"bytes"}. A pass is either `batch`, read by the study's own
loop through HDF5, or `requests`, sent as they are over one connection that is kept open.
"""

import argparse
import http.client
import json
import sys
import time

from scripts.lib.program import Problem, run
from scripts.studies.shots import drivers, reader


def main(argv: list[str] | None = None) -> int:
    """Answer passes until standard input ends."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(argv)
    for line in sys.stdin:
        order = json.loads(line)
        start = time.monotonic()
        size = _through_hdf5(**order["batch"]) if "batch" in order else _bare(order["host"], order["requests"])
        print(json.dumps({"start": start, "end": time.monotonic(), "bytes": size}), flush=True)
    return 0


def _through_hdf5(url: str, paths: list[str], region: str) -> int:
    """Return the logical bytes that the study's loop read without a page buffer."""
    access = drivers.Access("ros3", 0, 8 << 20, {"region": region, "anonymous": False})
    return reader.read(reader.Batch(1, "all", ((url, tuple(paths)),), 1, access, False))["bytes"]


def _bare(host: str, requests: list[list[str]]) -> int:
    """Return the bytes of the answers to (method, target, Range header or "") in this order."""
    connection = http.client.HTTPConnection(host, timeout=60)
    size = 0
    for method, target, byte_range in requests:
        connection.request(method, target, headers={"Range": byte_range} if byte_range else {})
        answer = connection.getresponse()
        size += len(answer.read())
        if answer.status >= 300:
            raise Problem(f"{method} {byte_range} was answered with status {answer.status}")
    connection.close()
    return size


if __name__ == "__main__":
    run(main)
