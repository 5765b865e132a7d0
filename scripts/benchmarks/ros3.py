"""Reading through ROS3 against bare ranged GETs of the same ranges, by as many processes on the same server.

What ROS3 asks for is recorded once, outside the timed passes, by a relay between each reader and the server; the bare
requests repeat it in the same order, range by range and with the same signatures, which the server checks both times.
ROS3 signs each request anew, inflates what it has read and looks for its metadata; that is what the ratio is about.
"""

import http.client
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

from scripts.benchmarks.common import LIBRARIES, S3, Row, Say, compared, in_turn
from scripts.benchmarks.prepared import cells, interpreter
from scripts.frame.measuring import last_words
from scripts.lib.dask_workers import batches_of
from scripts.lib.processes import owned
from scripts.lib.program import Problem
from scripts.stores.servers import Served

ROUNDS = 16
SHOTS = 4
PROCESSES = (1, 2)
_MATRIX = {
    **{"library": ["hdf5-2.0.0"], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]},
    **{"access": ["shots"], "workers": [1], "page_buffer": ["0"], "cache": ["any"]},
}


@dataclass(frozen=True)
class _Place:
    """What is read: `paths` in the object `key` of a server; readers get `env` and speak to `log`."""

    served: Served
    key: str
    paths: list[str]
    env: dict[str, str]
    log: IO[str]

    @property
    def port(self) -> int:
        """The server's port on the loopback."""
        return int(self.served.endpoint.rpartition(":")[2])


def rows(folder: Path, say: Say, shots: int = SHOTS, rounds: int = ROUNDS) -> Iterator[Row]:
    """Read a file through ROS3, and with bare ranged GETs of the same ranges, by one and by two processes."""
    data = {"shots": shots, "page_size": 8_000_000}
    (cell,) = cells(folder, say, "shots", {"s3": S3}, data=data, control_cells=0, matrix=_MATRIX)
    (entry,) = cell.manifest["files"]
    signals = [held for of_shot in cell.manifest["objects"].values() for held in of_shot.values()]
    paths = dict.fromkeys(path for held in signals for path, _, _ in held["datasets"])
    with cell.served() as (served, location, env, log):
        place = _Place(served, f"{S3['bucket']}/{location['key']}/{entry['name']}", list(paths), env, log)
        for library in LIBRARIES:
            python = interpreter(folder, library, say)
            for processes in PROCESSES:
                label = f"{library}, {processes} process{'es' if processes > 1 else ''}"
                with ExitStack() as started:
                    yield _compare(started, place, python, processes, label, rounds, say)


def _compare(stack: ExitStack, place: _Place, python: str, processes: int, label: str, rounds: int, say: Say) -> Row:
    """Return the row of a library and a number of processes, each with its share of the datasets."""
    say(f"{label}: recording what ROS3 asks for")
    shares = batches_of(place.paths, processes)
    bare = [{"port": place.port, "requests": _recorded(place, python, share)} for share in shares]
    ros3 = [_batch(place, place.port, share) for share in shares]
    readers = [stack.enter_context(_reader(place, python, place.port)) for _ in shares]
    sent = []
    for parts in (ros3, bare):
        place.served.open_window()
        _pass(place, readers, parts)
        requests = place.served.close_window().items()
        sent.append({method: (counted["count"], counted["bytes_offered"]) for method, counted in requests})
    if sent[0] != sent[1]:
        raise Problem(f"{label}: ROS3 and the bare reader did not ask for the same: {sent[0]} and {sent[1]}")
    ways = [lambda parts=parts: _pass(place, readers, parts) for parts in (ros3, bare)]
    taken = in_turn(rounds, *ways, lambda words: say(f"{label}: {words}"))
    count, size = sent[0]["GET"]
    note = f"{count} GETs, {size / 2**20:.0f} MiB"
    return compared(f"ROS3 of {label}", taken[0], "bare ranged GETs", taken[1], note=note)


def _reader(place: _Place, python: str, port: int) -> AbstractContextManager[subprocess.Popen]:
    """Start a reader (see scripts.benchmarks.reader) that finds S3 at a port of the loopback."""
    env = place.env | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    command = [python, "-sE", "-m", "scripts.benchmarks.reader"]
    return owned(command, place.log, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _batch(place: _Place, port: int, share: Sequence[str]) -> dict:
    """Return a pass through ROS3."""
    url = f"http://127.0.0.1:{port}/{place.key}"
    return {"batch": {"url": url, "paths": list(share), "region": place.env["AWS_REGION"]}}


def _pass(place: _Place, readers: list[subprocess.Popen], parts: list[dict]) -> float:
    """Tell each reader its part; return the seconds from the first one's start to the last one's end."""
    for reader, part in zip(readers, parts, strict=True):
        with suppress(BrokenPipeError):
            print(json.dumps(part), file=reader.stdin, flush=True)
    answers = []
    for reader in readers:
        line = reader.stdout.readline()
        if not line:
            raise Problem(f"a reader ended with status {reader.wait()}: {last_words(Path(place.log.name))}")
        answers.append(json.loads(line))
    return max(end for _, end in answers) - min(start for start, _ in answers)


def _recorded(place: _Place, python: str, share: Sequence[str]) -> list[tuple[str, str, dict[str, str]]]:
    """Return the (method, target, headers) that ROS3 sends for a share, in order."""
    with _relay(place.port) as relay, _reader(place, python, relay.server_port) as reader:
        _pass(place, [reader], [_batch(place, relay.server_port, share)])
        return relay.requests


@contextmanager
def _relay(upstream: int) -> Iterator[ThreadingHTTPServer]:
    """Pass requests on to a port of the loopback as they are, and note them in `requests`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Relay) as relay:
        relay.upstream, relay.requests = upstream, []
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield relay
        finally:
            relay.shutdown()


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        headers = dict(self.headers)
        self.server.requests.append((self.command, self.path, headers))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        upstream.request(self.command, self.path, headers=headers)
        answer = upstream.getresponse()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.read())
        upstream.close()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""
