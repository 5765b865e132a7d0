"""A small place to measure single cells of the blobs study in, with the measuring program driven as the step does."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from conftest import ROOT

from scripts.lib import objects
from scripts.make_blobs import make
from scripts.stores import azure, s3
from scripts.studies import blobs

LEVELS = {
    "store": "disk",
    "pattern": "single-file",
    "size": "1MiB",
    "processes": "2",
    "objects": "shared",
    "operation_size": "1GiB",
    "chunk_size": "256KiB",
    "concurrency": "1",
    "cache": "warm",
}
MPI = {"launcher": None, "hostfile": None, "library": None}


class Cell:
    """One cell on a posix store, whose files are made beside its manifest.

    Attributes:
        job: what the step would say to the measuring program.
        env: the measuring program's environment.
        within: a command that runs the measuring program in a place of its own.
    """

    def __init__(self, folder: Path, objects_made: int = 4, iterations: int = 3, **levels: str) -> None:
        """Make the objects of a cell; `levels` replace LEVELS."""
        self.folder, self.levels = folder, LEVELS | levels
        data = {"size": self.levels["size"], "objects": objects_made, "seed": 1}
        self.manifest = {"manifest": 1, "status": "done", "dataset": "blobs-test", **make(data)}
        path = folder / "manifest.json"
        path.write_text(json.dumps(self.manifest), encoding="utf-8")
        self.settings = {
            "study": "blobs",
            "cell": self.levels,
            "seed": 1,
            "iterations": iterations,
            "ceiling_rounds": 2,
            "mpi": dict(MPI),
            "store": {"kind": "posix"},
            "data": data,
        }
        self.job = {
            "settings": self.settings,
            "run": "test",
            "repeat": 1,
            "manifest": str(path),
            "location": {"folder": str(folder / "objects")},
            "local_files": [str(folder / "objects" / entry["name"]) for entry in self.manifest["files"]],
            "time_limit_s": 60,
            "scratch": str(folder),
        }
        self.env, self.within = dict(os.environ), []
        self.events: dict[str, Callable[[], None]] = {}

    def in_s3(self, endpoint: str, credentials: dict[str, str]) -> "Cell":
        """Put the objects into a bucket of a server."""
        store = {"kind": "s3", "bucket": "test", "prefix": "run", "region": "us-east-1", "anonymous": False}
        self.settings["store"] = store | {"endpoint": endpoint}
        self.job["location"] = {"url": f"{endpoint}/test/run/blobs-test", "key": "run/blobs-test"}
        self.job["local_files"] = []
        self.env |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": credentials["access_key"],
            "AWS_SECRET_ACCESS_KEY": credentials["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        client = s3.client(store, endpoint, credentials)
        s3.ensure_bucket(client, store)
        for entry in self.manifest["files"]:
            content = objects.stream(entry).read()
            client.put_object(Bucket="test", Key=f"run/blobs-test/{entry['name']}", Body=content)
        return self

    def in_azure(self, connection: str) -> "Cell":
        """Put the objects into a container of a server."""
        store = {"kind": "azure-blob", "container": "test", "prefix": "run", "server": "embedded"}
        self.settings["store"] = store
        self.job["location"] = {"url": "", "key": "run/blobs-test"}
        self.job["local_files"] = []
        self.env["AZURE_STORAGE_CONNECTION_STRING"] = connection
        with azure.blob_container(store, connection) as client:
            if not client.exists():
                client.create_container()
            for entry in self.manifest["files"]:
                content = objects.stream(entry).read()
                client.upload_blob(f"run/blobs-test/{entry['name']}", content, overwrite=True)
        return self

    def fill(self) -> "Cell":
        """Write the objects as files."""
        for entry, file in zip(self.manifest["files"], self.job["local_files"], strict=True):
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_bytes(objects.stream(entry).read())
        return self

    def measure(self) -> dict:
        """Measure the cell; returns the program's part of the record, with the study's own verdict as `reasons`."""
        status, record, words = self.converse()
        assert status == 0, words
        record["reasons"] = blobs.faults(record, self.settings)
        return record

    def problem(self) -> str:
        """Measure a cell that cannot be measured; returns the line that says why."""
        status, record, words = self.converse()
        assert (status, record) == (2, None), words
        lines = words.splitlines()
        assert lines[-1].startswith("problem: "), words
        return lines[-1].removeprefix("problem: ")

    def converse(self) -> tuple[int, dict | None, str]:
        """Run the program as the step does; returns its status, its record and its words."""
        log = self.folder / "measure.log"
        record = None
        with self.started(log) as process:
            for line in process.stdout:
                message = json.loads(line)
                if message["event"] == "record":
                    record = message["record"]
                    break
                self.events.get(message["event"], lambda: None)()
                self._say(process, {})
            status = process.wait()
        return status, record, log.read_text(encoding="utf-8")

    @contextlib.contextmanager
    def started(self, log: Path) -> Iterator[subprocess.Popen]:
        """Start the program and give it its job."""
        command = [*self.within, sys.executable, "-sE", "-m", "scripts.measure_blobs"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (
            open(log, "w", encoding="utf-8") as words,
            subprocess.Popen(command, cwd=ROOT, env=self.env, stderr=words, **pipes) as process,
        ):
            self._say(process, self.job)
            try:
                yield process
            finally:
                process.kill()

    def _say(self, process: subprocess.Popen, message: dict) -> None:
        print(json.dumps(message), file=process.stdin, flush=True)
