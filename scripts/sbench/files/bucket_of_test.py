"""A bucket for a test, and the limits of its requests."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sbench.design.yaml_file import read_mapping
from sbench.files import buckets, budget
from sbench.files.buckets import Buckets, Requests
from sbench.probe.program import Problem, write_text

# A bucket that every server needs; each test has its own.
_FIRST = "data"


class Expected:
    """The requests of a `with s3.expect()` block.

    Attributes:
        requests: the requests; None until the block has ended.
    """

    requests: Requests | None = None


class S3:
    """A bucket for a test.

    Attributes:
        bucket: name of the bucket, which is empty at the start of the test.
        endpoint: URL of the server.
        region: its region.
        access_key: access key of the account.
        secret_key: secret key of the account.
    """

    def __init__(self, served: Buckets, bucket: str, node: str, file: Path, updates: bool) -> None:
        """Create an empty bucket.

        Args:
            served: the running server.
            bucket: name of the bucket.
            node: name of the test in the file of budgets.
            file: path of the file of budgets.
            updates: whether to write budgets instead of checking them.
        """
        variables = served.variables
        self.bucket, self.endpoint, self.region = bucket, variables["AWS_ENDPOINT_URL"], variables["AWS_REGION"]
        self.access_key, self.secret_key = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        self._served, self._node, self._file, self._updates = served, node, file, updates
        self._folder = served.folder / bucket
        self._folder.mkdir()
        self._blocks = 0

    def get_url(self, key: str) -> str:
        """Return the address of an object: s3://bucket/key."""
        return f"s3://{self.bucket}/{key}"

    def add_object(self, key: str, data: bytes) -> None:
        """Add an object to the bucket without a request."""
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def add_folder(self, folder: Path | str, prefix: str = "") -> None:
        """Add the files of a folder to the bucket without requests, below a prefix."""
        shutil.copytree(folder, self._folder / prefix, dirs_exist_ok=True)

    @contextlib.contextmanager
    def expect(self, **limits: object) -> Iterator[Expected]:
        """Fail the test if the requests of this block do not meet the limits.

        Without limits, the budget of the test in `s3_budgets.yaml` applies, which `--s3-update-budgets` writes. A block
        without any request fails, too.

        Args:
            limits: a number (exactly as many), or text such as "<= 4" or "< 20 MiB", for get, head, put, post, delete,
                list, requests, failed, bytes, distinct, repeated, connections, or objects={key: limits}.
        """
        __tracebackhide__ = True
        with _convert_problems():
            budget.check_budget(limits, "expect()")
            self._served.reset_requests()
        expected = Expected()
        yield expected
        with _convert_problems():
            expected.requests = requests = self._served.read_requests()
            if not requests.methods:
                pytest.fail(
                    f"no request reached {self.endpoint}: the client may not read AWS_ENDPOINT_URL", pytrace=False
                )
            if not limits:
                self._blocks += 1
                name = f"{self._node} #{self._blocks}" if self._blocks > 1 else self._node
                if self._updates:
                    self._write_budget(name, requests)
                limits = self._read_budget(name)
            if excesses := budget.find_excesses(self._name_objects(limits), requests):
                pytest.fail("\n".join(["requests exceed the budget", *budget.format_excesses(excesses)]), pytrace=False)

    def _name_objects(self, limits: budget.Budget) -> dict:
        """Prefix the keys of objects with the name of the bucket."""
        named = {f"{self.bucket}/{key}": of for key, of in (limits.get(budget.OBJECTS) or {}).items()}
        return {**limits, budget.OBJECTS: named}

    def _read_budget(self, name: str) -> dict:
        budgets = self._read_budgets()
        if name not in budgets:
            raise Problem(f"{self._file} lacks a budget of {name}; write it with pytest --s3-update-budgets")
        budget.check_budget(budgets[name], f"{self._file}: {name}")
        return budgets[name]

    def _write_budget(self, name: str, requests: Requests) -> None:
        # Parallel workers write the same file.
        holder = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            budgets = self._read_budgets() | {name: budget.build_budget(requests)}
            write_text(self._file, yaml.safe_dump(dict(sorted(budgets.items())), sort_keys=False, allow_unicode=True))
        finally:
            os.close(holder)

    def _read_budgets(self) -> dict:
        return read_mapping(self._file) if self._file.exists() else {}


@contextlib.contextmanager
def serve_tests(latency_ms: int, rate: float) -> Iterator[Buckets]:
    """Start a server for tests; a network with latency or a limited rate (MiB/s per connection) is emulated."""
    network = {key: value for key, value in (("latency_ms", latency_ms), ("per_connection_mib_s", rate)) if value}
    with contextlib.ExitStack() as stack:
        with _convert_problems():
            served = stack.enter_context(buckets.serve_buckets({_FIRST: None}, network))
        yield served


@contextlib.contextmanager
def _convert_problems() -> Iterator[None]:
    """Fail the test with a single line instead of a traceback."""
    __tracebackhide__ = True
    try:
        yield
    except Problem as problem:
        raise pytest.fail.Exception(str(problem), pytrace=False) from None
