"""Compare counted requests with those that clients know that they made, and with the statistics of the server."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from sbench.build.cache import Recipe, provide_piece
from sbench.build.shell import Workshop, make_environment
from sbench.build.sources import ENVS
from sbench.files import buckets
from sbench.files.buckets import Requests
from sbench.probe.program import Problem, compute_file_digest

# Average number of requests of each client in a round.
ROUND_REQUESTS = {
    **{"boto3": 10, "s3fs": 12, "obstore": 10, "pyarrow": 10, "h5coro": 4, "remfile": 8, "ros3": 10, "zarr": 18},
    **{"zarr_obstore": 9, "curl": 13, "go": 11, "aborting": 5},
}
# Clients that run at the same time, and settings of the network between them and the server.
WINDOWS = {
    "plain": (tuple(client for client in ROUND_REQUESTS if client != "aborting"), {}),
    "retried": (("boto3", "s3fs"), {"fault": {"fault": "503", "every": 10, "first": 1}}),
    "aborted": (("aborting",), {}),
}
_PROGRAM = str(Path(__file__).with_name("request_clients.py"))
_GO_CLIENT = Path(__file__).with_name("go_client") / "main.go"
_CLIENTS_AT_ONCE = 8


class Comparison(NamedTuple):
    """The numbers of requests, clients and injected faults that were compared, and a line about each difference."""

    requests: int
    clients: int
    injected: int
    differences: list[str]


def build_go_client() -> Path:
    """Return the path of the client in Go, which is built once."""

    def build(folder: Path, workshop: Workshop) -> dict:
        work = workshop.work
        make_environment(workshop, work / "go", ENVS / "go.lock")
        variables = {"GOENV": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}
        variables |= {"GOPATH": str(work / "modules"), "GOCACHE": str(work / "objects")}
        variables |= {"XDG_CONFIG_HOME": str(work / "config"), "GOTMPDIR": str(work)}
        command = (work / "go/bin/go", "build", "-trimpath", "-o", folder / "client", _GO_CLIENT)
        workshop.run_step("compile the client in Go", *command, **variables)
        return {}

    digests = [compute_file_digest(file) for file in (_GO_CLIENT, ENVS / "go.lock")]
    return provide_piece(Recipe("go-client", {"files": digests}, build, ("client",))).folder / "client"


def write_objects(folder: Path, python: str) -> dict[str, int]:
    """Write the objects that clients read, with the Python that has h5py and zarr; return {key: bytes}."""
    for key, size in {"plain.bin": 1 << 18, "large.bin": 1 << 23, "d e/#ü+%2F.bin": 5000, "zero.bin": 0}.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    code = (
        "import h5py, numpy, sys, zarr\n"
        "with h5py.File(sys.argv[1] + '/a.h5', 'w') as file:\n"
        "    file.create_dataset('x', data=numpy.arange(20_000), chunks=(5000,))\n"
        "    file.create_dataset('y', data=numpy.arange(100))\n"
        "array = zarr.create_array(sys.argv[1] + '/z.zarr', shape=(64,), chunks=(8,), dtype='i4')\n"
        "array[:] = numpy.repeat(numpy.arange(8), 8)\n"
    )
    subprocess.run([python, "-c", code, folder], check=True)
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def compare_clients(folder: Path, python: str, rounds: Mapping[str, int], network: Mapping[str, object]) -> Comparison:
    """Run clients, up to 8 of them at the same time, each with a bucket, and compare their requests.

    Args:
        folder: an empty folder for the objects.
        python: interpreter of the environment with the clients.
        rounds: number of rounds of each client.
        network: settings of the emulated network.
    """
    sizes = write_objects(folder / "objects", python)
    go = str(build_go_client()) if "go" in rounds else ""

    def run(client: str) -> dict:
        own = {"SBENCH_BUCKET": name_bucket(client), "SBENCH_URL": f"{endpoint}/{name_bucket(client)}"}
        own |= {"OBJECT_SIZES": json.dumps(sizes), "GO_CLIENT": go}
        command = [python, _PROGRAM, client, str(rounds[client])]
        env = buckets.build_environment(os.environ, served.variables) | own
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Problem(f"the client {client} failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}")
        return json.loads(done.stdout)

    folders = {name_bucket(client): folder / "objects" for client in rounds}
    with (
        buckets.serve_buckets(folders, network, anonymous=True) as served,
        ThreadPoolExecutor(_CLIENTS_AT_ONCE) as pool,
    ):
        endpoint = served.variables["AWS_ENDPOINT_URL"]
        truths = dict(zip(rounds, pool.map(run, rounds), strict=True))
        return _compare_requests(served.read_requests(), truths)


def name_bucket(client: str) -> str:
    return f"of-{client.replace('_', '-')}"


def _compare_requests(requests: Requests, truths: Mapping[str, dict]) -> Comparison:
    differences: list[str] = []

    def expect(what: str, counted: object, true: object) -> None:
        if counted != true:
            differences.append(f"{what}: counted {counted} instead of {true}")

    rows = requests.passed["exchanges"]
    for client, truth in truths.items():
        bucket = name_bucket(client)
        of_client = [row for row in rows if row["path"].split("/")[1] == bucket]
        expect(f"methods of {client}", Counter(map(buckets.get_method, of_client)), Counter(truth["methods"]))
        counted = {
            name.partition("/")[2]: (totals.requests, totals.sent, totals.distinct)
            for name, totals in requests.objects.items()
            if name.startswith(f"{bucket}/") and totals.requests
        }
        if truth["reads"]:
            expect(f"reads of {client}", counted, {key: _sum_spans(spans) for key, spans in truth["reads"].items()})
    by_server = Counter({method: numbers["count"] for method, numbers in requests.counted.items()})
    # Faults are injected between the network, which records, and the server.
    by_server["GET"] += requests.passed["injected"]
    expect("methods of the server", Counter(row["method"] for row in rows), by_server)
    if all(truth["reads"] for truth in truths.values()):
        sent = sum(totals.sent for totals in requests.objects.values())
        expect("bytes of the server", sent, sum(numbers["bytes_offered"] for numbers in requests.counted.values()))
    return Comparison(len(rows), len(truths), requests.passed["injected"], differences)


def _sum_spans(spans: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Return the number of reads, their bytes, and their distinct bytes as the size of a set."""
    sent = sum(end - begin for begin, end in spans)
    return len(spans), sent, len(set().union(*(range(*span) for span in spans)))
