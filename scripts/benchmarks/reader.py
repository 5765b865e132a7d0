"""Reads over and over what it is told, in the interpreter of a library under test, and says when it began and ended.

A line of JSON on standard input is a pass, a line on standard output its answer: [start, end] by the monotonic clock,
which is one for all processes of a machine. A pass is either a `batch`, read by the study's own loop through HDF5, or
`requests`, sent as they are over one connection that is kept open.
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
        if "batch" in order:
            _through_hdf5(**order["batch"])
        else:
            _bare(**order)
        print(json.dumps([start, time.monotonic()]), flush=True)
    return 0


def _through_hdf5(url: str, paths: list[str], region: str) -> None:
    """Read with the study's loop without a page buffer."""
    access = drivers.Access("ros3", 0, 8 << 20, {"region": region, "anonymous": False})
    reader.read(reader.Batch(1, "all", ((url, tuple(paths)),), 1, access, False))


def _bare(port: int, requests: list[tuple[str, str, dict[str, str]]]) -> None:
    """Send (method, target, headers) to a port of the loopback in this order."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for method, target, headers in requests:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise Problem(f"{method} {target} was answered with status {answer.status}")
    connection.close()


if __name__ == "__main__":
    run(main)
