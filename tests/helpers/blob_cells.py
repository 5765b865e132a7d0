"""A small place to measure single cells of the blobs study in, with the measuring program driven as the step does."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import steady
from conftest import ROOT, artefact

from sbench.probe import content
from sbench.probe.program import build_command
from sbench.stores import store as stores
from sbench.stores.azure import CONNECTION
from sbench.stores.azure import client as azure
from sbench.stores.azure import store as azurite
from sbench.stores.embedded import Served
from sbench.stores.s3 import client as s3
from sbench.studies.blobs import mpi, study
from sbench.studies.blobs.make import build_manifest

LEVELS = {
    "store": "disk",
    "pattern": "single-file",
    "size": "1MiB",
    "processes": "2",
    "objects": "shared",
    "operation_size": "1GiB",
    "chunk_size": "256KiB",
    "concurrency": "1",
    # A machine short of memory takes pages away at any time; only tests of the cache ask for a state.
    "cache": "any",
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
        self.manifest = {"manifest": 1, "status": "done", "dataset": "blobs-test", **build_manifest(data)}
        self.write()
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
            "manifest": str(folder / "manifest.json"),
            "location": {"folder": str(folder / "objects")},
            "local_files": [str(folder / "objects" / entry["name"]) for entry in self.manifest["files"]],
            "time_limit_s": 600,
            "scratch": str(folder),
            "is_last_launch": True,
        }
        self.env, self.within = dict(os.environ), []
        self.events: dict[str, Callable[[], None]] = {}

    def write(self) -> None:
        """Write the manifest as it stands."""
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest), encoding="utf-8")

    def fill(self) -> "Cell":
        """Write the objects as files."""
        for entry, file in zip(self.manifest["files"], self.job["local_files"], strict=True):
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_bytes(content.open_stream(entry).read())
        return self

    def pretend(self, prelude: str) -> None:
        """Let each MPI process run `prelude` before the program: a fault planted where it counts."""
        launcher, rank = self.folder / "launcher", self.folder / "rank.py"
        rank.write_text(
            f"import sys\nsys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
            f"{prelude}\nfrom mpi4py import run\nrun.main()\n",
            encoding="utf-8",
        )
        gforker = Path(sys.executable).with_name("mpiexec.gforker")
        command = f"{sys.executable} -sE {rank} -m {mpi.PROGRAM}"
        launcher.write_text(f'#!/bin/sh\nexec {gforker} "$1" "$2" {command}\n', encoding="utf-8")
        launcher.chmod(0o755)
        self.settings["mpi"]["launcher"] = [str(launcher)]
        self.env |= mpi.WITHIN_A_MACHINE

    def keep_pages(self) -> None:
        """Let the kernel keep in the page cache what the program and its processes ask for (see `steady`)."""
        program = self.folder / "program.py"
        run = (
            "import runpy\nsys.argv = ['measure_blobs']\n"
            "runpy.run_module('sbench.studies.blobs.measure', run_name='__main__')"
        )
        program.write_text(
            f"import sys\nsys.path[:0] = [{str(ROOT / 'scripts')!r}]\n{steady.PRELUDE}{run}\n", encoding="utf-8"
        )
        self.within = [sys.executable, str(program)]
        self.pretend(steady.PRELUDE)

    def measure(self) -> dict:
        """Measure the cell; returns the program's part of the record, with the study's own verdict as `reasons`."""
        status, record, words = self.converse()
        assert status == 0, words
        record["reasons"] = study.STUDY.check_record(record, self.settings)
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
                self.say(process, {})
            status = process.wait()
        return status, record, log.read_text(encoding="utf-8")

    @contextlib.contextmanager
    def started(self, log: Path) -> Iterator[subprocess.Popen]:
        """Start the program and give it its job."""
        command = [*self.within, *build_command("sbench.studies.blobs.measure")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (
            open(log, "w", encoding="utf-8") as words,
            subprocess.Popen(command, cwd=ROOT, env=self.env, stderr=words, **pipes) as process,
        ):
            self.say(process, self.job)
            try:
                yield process
            finally:
                process.kill()

    def say(self, process: subprocess.Popen, message: dict) -> None:
        """Answer the program."""
        print(json.dumps(message), file=process.stdin, flush=True)


@dataclass
class Store:
    """A real server with cells whose objects are in it."""

    kind: str
    served: Served

    def cell(self, folder: Path, **levels: object) -> Cell:
        """Make a cell and put its objects into the server, with the server's files as the step tells them."""
        here = Cell(folder, **levels)
        here.settings["store"] = dict(_ENTRIES[self.kind])
        here.job["location"] = {"url": "", "key": "run/blobs-test"}
        self.reach(here, self.served.endpoint)
        if self.kind == "s3":
            with contextlib.suppress(self._s3().exceptions.BucketAlreadyOwnedByYou):
                self._s3().create_bucket(Bucket="test")
        else:
            with self._container() as client:
                if not client.exists():
                    client.create_container()
        for entry in here.manifest["files"]:
            self.put(entry["name"], content.open_stream(entry).read())
        folder = self.served.folder
        files = folder.glob("test/run/blobs-test/*.bin") if self.kind == "s3" else azurite.list_extent_files(folder)
        here.job["local_files"] = sorted(map(str, files))
        return here

    def count(self, here: Cell) -> dict:
        """Count a cell's requests as the step does; returns where they are once it is measured."""
        counted: dict = {}
        here.events |= {
            "open": self.served.open_window,
            "close": lambda: counted.update(self.served.close_window()[0]),
        }
        return counted

    def reach(self, here: Cell, endpoint: str) -> None:
        """Let a cell find the server at an endpoint."""
        if self.kind == "s3":
            here.settings["store"]["endpoint"] = endpoint
            here.env |= self._aws(endpoint)
        else:
            here.env[CONNECTION] = azurite.build_connection_string(endpoint, self.served.credentials)

    def put(self, name: str, content: bytes) -> None:
        """Put an object into the server, where it may replace another."""
        if self.kind == "s3":
            self._s3().put_object(Bucket="test", Key=f"run/blobs-test/{name}", Body=content)
        else:
            with self._container() as client:
                client.upload_blob(f"run/blobs-test/{name}", content, overwrite=True)

    def _s3(self):
        return s3.build_client(_ENTRIES["s3"] | {"server": "embedded"}, self._aws(self.served.endpoint))

    def _aws(self, endpoint: str) -> dict[str, str]:
        keys = self.served.credentials
        variables = {"AWS_ACCESS_KEY_ID": keys["access_key"], "AWS_SECRET_ACCESS_KEY": keys["secret_key"]}
        return variables | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}

    def _container(self):
        connection = azurite.build_connection_string(self.served.endpoint, self.served.credentials)
        return azure.build_client(_ENTRIES["azure-blob"], {CONNECTION: connection})


_ENTRIES = {
    "s3": {"kind": "s3", "bucket": "test", "prefix": "run", "region": "us-east-1", "anonymous": False},
    "azure-blob": {"kind": "azure-blob", "container": "test", "prefix": "run", "server": "embedded"},
}


@contextlib.contextmanager
def serving(kind: str, folder: Path, environments: Path) -> Iterator[Store]:
    """Serve a kind of store for the length of a `with` block."""
    binaries = artefact(environments / "servers.json")
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        stores.get_store(_ENTRIES[kind]).serve_folder(binaries, folder / "store", None, log) as served,
    ):
        yield Store(kind, served)
