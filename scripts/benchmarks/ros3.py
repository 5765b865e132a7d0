"""Reading through ROS3 against bare ranged GETs of the same ranges, by as many processes on the same server.

What ROS3 asks for is recorded once, outside the timed passes, by a relay between each reader and the server; the bare
requests repeat it in the same order, range by range. Their URLs are signed once, beforehand: the server checks every
signature, the bare reader makes none. ROS3 signs each request anew, inflates what it has read and looks for its
metadata; that is what the ratio is about.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import boto3
from botocore.client import BaseClient
from botocore.config import Config

from scripts.benchmarks.common import LIBRARIES, Row, Say, compared, environments, in_turn, make_data
from scripts.benchmarks.recorder import recorder
from scripts.frame.measuring import last_words
from scripts.lib.dask_workers import batches_of
from scripts.lib.processes import owned
from scripts.lib.program import Problem
from scripts.stores.s3 import server
from scripts.stores.servers import Served

ROUNDS = 16
SHOTS = 4
PROCESSES = (1, 2)
_BUCKET, _REGION = "bench", "us-east-1"


@dataclass(frozen=True)
class _Place:
    """What is read: `paths` in the object `key` of a server, for which `client` signs; readers speak to `log`."""

    served: Served
    client: BaseClient
    key: str
    paths: list[str]
    log: IO[str]

    @property
    def port(self) -> int:
        """The server's port on the loopback."""
        return int(self.served.endpoint.rpartition(":")[2])


def rows(folder: Path, say: Say, shots: int = SHOTS, rounds: int = ROUNDS) -> Iterator[Row]:
    """Read all of a file of some shots dataset by dataset, with no page buffer, by one and by two processes."""
    artefacts = environments(folder, say)
    say("making data")
    manifest = make_data(folder / "data", layout="shot-major", shots=shots)
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / "server.log", "w", encoding="utf-8"))
        served = stack.enter_context(server.serve(artefacts["servers"], folder / "store", None, log))
        place = _upload(served, folder / "data", manifest, log)
        for library in LIBRARIES:
            for processes in PROCESSES:
                label = f"{library}, {processes} process{'es' if processes > 1 else ''}"
                with ExitStack() as started:
                    yield _compare(started, place, artefacts[library]["python"], processes, label, rounds, say)


def _upload(served: Served, data: Path, manifest: dict, log: IO[str]) -> _Place:
    keys = {
        "aws_access_key_id": served.credentials["access_key"],
        "aws_secret_access_key": served.credentials["secret_key"],
    }
    options = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=served.endpoint, region_name=_REGION, config=options, **keys)
    client.create_bucket(Bucket=_BUCKET)
    (entry,) = manifest["files"]
    client.upload_file(str(data / entry["name"]), _BUCKET, entry["name"])
    pairs = [held for signals in manifest["objects"].values() for held in signals.values()]
    paths = dict.fromkeys(path for held in pairs for path, _, _ in held["datasets"])
    return _Place(served, client, entry["name"], list(paths), log)


def _compare(stack: ExitStack, place: _Place, python: str, processes: int, label: str, rounds: int, say: Say) -> Row:
    """Return the row of a library and a number of processes, each with its share of the datasets."""
    say(f"{label}: recording what ROS3 asks for")
    shares = batches_of(place.paths, processes)
    recorded = [_recorded(place, python, share) for share in shares]
    readers = [stack.enter_context(_reader(place, python, place.port)) for _ in shares]
    ros3 = [_batch(place, place.port, share) for share in shares]
    bare = [_requests(place, requests) for requests in recorded]
    sent = []
    for parts in (ros3, bare):
        place.served.open_window()
        _pass(place, readers, parts)
        sent.append(
            {method: (one["count"], one["bytes_offered"]) for method, one in place.served.close_window().items()}
        )
    if sent[0] != sent[1]:
        raise Problem(f"{label}: ROS3 and the bare reader did not ask for the same: {sent[0]} and {sent[1]}")
    ways = [lambda parts=parts: _pass(place, readers, parts) for parts in (ros3, bare)]
    taken = in_turn(rounds, *ways, lambda words: say(f"{label}: {words}"))
    count, size = sent[0]["GET"]
    note = f"{count} GETs, {size / 2**20:.0f} MiB"
    return compared(f"ROS3 of {label}", taken[0], "bare ranged GETs", taken[1], None, note)


def _reader(place: _Place, python: str, port: int) -> AbstractContextManager[subprocess.Popen]:
    """Start a reader (see scripts.benchmarks.reader) that finds S3 at a port of the loopback."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))} | {
        "AWS_ACCESS_KEY_ID": place.served.credentials["access_key"],
        "AWS_SECRET_ACCESS_KEY": place.served.credentials["secret_key"],
        "AWS_REGION": _REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    command = [python, "-sE", "-m", "scripts.benchmarks.reader"]
    return owned(command, place.log, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _recorded(place: _Place, python: str, share: Sequence[str]) -> list[tuple[str, str]]:
    """Return the (method, Range header) that ROS3 sends for a share, in order."""
    with recorder(place.port) as relay, _reader(place, python, relay.port) as reader:
        _pass(place, [reader], [_batch(place, relay.port, share)])
        return list(relay.requests)


def _batch(place: _Place, port: int, share: Sequence[str]) -> dict:
    """Return a pass through ROS3."""
    url = f"http://127.0.0.1:{port}/{_BUCKET}/{place.key}"
    return {"batch": {"url": url, "paths": list(share), "region": _REGION}}


def _requests(place: _Place, recorded: list[tuple[str, str]]) -> dict:
    """Return a pass of bare requests, signed."""
    operations = {"GET": "get_object", "HEAD": "head_object"}
    targets = {}
    for method in {method for method, _ in recorded}:
        url = place.client.generate_presigned_url(operations[method], {"Bucket": _BUCKET, "Key": place.key})
        targets[method] = url.removeprefix(place.served.endpoint)
    address = place.served.endpoint.removeprefix("http://")
    return {"host": address, "requests": [[method, targets[method], asked_for] for method, asked_for in recorded]}


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
    return max(answer["end"] for answer in answers) - min(answer["start"] for answer in answers)
