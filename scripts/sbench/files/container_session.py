"""Run the program that converts files and reads containers, and count its requests."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sbench.files import buckets
from sbench.files.buckets import Buckets
from sbench.probe.program import Problem, build_command


class Read(NamedTuple):
    """A read of a container.

    Attributes:
        seconds: time to open the container and to read the values.
        requests: number of requests.
        bytes: bytes that were received.
        checksum: checksum of the values.
    """

    seconds: float
    requests: int
    bytes: int
    checksum: int


class Session:
    """A process of the reading library, with a bucket of its own."""

    def __init__(self, process: subprocess.Popen, served: Buckets, log: Path) -> None:
        """Use a running process and server; `log` has the standard error of the process."""
        self._process, self._served, self._log = process, served, log

    @property
    def folder(self) -> Path:
        """The folder of all buckets."""
        return self._served.folder

    def describe_dimension(self, code: str, expression: str, name: str) -> str:
        """Return the name of the first dimension of a dataset, after `code`, in what an expression opens."""
        return self._ask("describe", code=code, expression=expression, name=name)["dimension"]

    def convert(self, code: str) -> float:
        """Make a container, and return how long it took, in seconds."""
        return self._ask("convert", code=code)["seconds"]

    def compare(self, code: str, original: str, files: Sequence[Path], names: Sequence[str]) -> None:
        """Compare the values of a container with the values of files.

        Raises:
            Problem: values differ, or cannot be read.
        """
        answer = self._ask("compare", code=code, original=original, files=list(map(str, files)), names=list(names))
        if answer["difference"]:
            raise Problem(answer["difference"])

    def read(self, code: str, parts: Mapping[str, Sequence]) -> Read:
        """Open a container with new clients, and read a part of each array, given as (begin, end, step) per axis."""
        self._served.reset_requests()
        answer = self._ask("read", code=code, parts=dict(parts))
        requests = self._served.read_requests()
        counts = requests.methods.values()
        count, size = sum(row["count"] for row in counts), sum(row["bytes"] for row in counts)
        return Read(answer["seconds"], count, size, answer["checksum"])

    def _ask(self, action: str, **request: object) -> dict:
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"action": action, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            text = self._log.read_text(encoding="utf-8", errors="replace").strip()
            reason = text.splitlines()[-1] if text else f"exit status {self._process.wait()}"
            raise Problem(f"the program that reads containers ended: {reason}")
        answer = json.loads(line)
        if "problem" in answer:
            raise Problem(answer["problem"])
        return answer


@contextlib.contextmanager
def start_session(python: str, folder: Path, network: Mapping[str, float]) -> Iterator[Session]:
    """Serve a folder as a bucket of the same name, and start the program, during a `with` block.

    Args:
        python: Python interpreter of the reading library.
        folder: the folder.
        network: settings of the emulated network.
    """
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(buckets.serve_buckets({folder.name: folder}, network))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sbench-containers-")))
        log = stack.enter_context((scratch / "log").open("w", encoding="utf-8"))
        process = subprocess.Popen(
            build_command("sbench.files.read_containers", scratch, python=[python]),
            env=buckets.build_environment(os.environ, served.variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield Session(process, served, scratch / "log")
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
