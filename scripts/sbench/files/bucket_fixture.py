"""A bucket for a test, and the limits of its requests."""

import contextlib
import fcntl
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from sbench.design.yaml_file import read_mapping
from sbench.files import buckets, budget
from sbench.files.buckets import Buckets, Requests
from sbench.probe.program import Problem, write_text

# A bucket that every server needs; each test has its own.
_FIRST = "data"
# The number of a block in the name of a budget.
_BLOCK = re.compile(r" #\d+$")


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
        self._blocks, self._is_open = 0, False
        self._unused: list[str] = []

    def get_url(self, key: str, scheme: str = "s3") -> str:
        """Return the address of an object: s3://bucket/key, or a URL of the server with the scheme "http"."""
        if scheme not in ("s3", "http"):
            pytest.fail(f"the scheme must be s3 or http (got {scheme})", pytrace=False)
        if scheme == "s3":
            return f"s3://{self.bucket}/{key}"
        return f"{self.endpoint}/{self.bucket}/{urllib.parse.quote(key)}"

    def allow_anonymous_reads(self) -> None:
        """Let requests without credentials read the bucket."""
        self._served.allow_anonymous_reads(self.bucket)

    def add_object(self, key: str, data: bytes) -> None:
        """Add an object to the bucket without a request."""
        path = self._locate(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            message = f"the object {key} cannot be added: the server cannot hold both a key such as a and the key a/b"
            raise pytest.fail.Exception(message, pytrace=False) from None

    def add_folder(self, folder: Path | str, prefix: str = "") -> None:
        """Add the files of a folder to the bucket without requests, below a prefix. Broken links are left out."""
        if not Path(folder).is_dir():
            pytest.fail(f"add_folder() needs a folder (got {folder})", pytrace=False)
        shutil.copytree(folder, self._locate(prefix), dirs_exist_ok=True, ignore_dangling_symlinks=True)

    def _locate(self, key: str) -> Path:
        path = (self._folder / key).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            pytest.fail(f"a key must be a relative path without .. (got {key})", pytrace=False)
        return path

    def expect(self, **limits: object) -> contextlib.AbstractContextManager[Expected]:
        """Return a context manager that fails the test if the requests of its block do not meet the limits.

        Without limits, the budget of the test in `s3_budgets.yaml` applies, which `--s3-update-budgets` writes. A block
        without any request fails, too, except with `requests=0`. Blocks must not be nested.

        Args:
            limits: a number (exactly as many), or text such as "<= 4" or "< 20 MiB", for get, head, put, post, delete,
                list, requests, failed, bytes, distinct, repeated, connections, or objects={key: limits}.
        """
        __tracebackhide__ = True
        caller = sys._getframe(1)
        place = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
        with _convert_problems():
            budget.check_budget(limits, f"{place}: expect()")
        self._unused.append(place)
        return self._check_block(place, limits)

    @contextlib.contextmanager
    def _check_block(self, place: str, limits: dict) -> Iterator[Expected]:
        __tracebackhide__ = True
        self._unused.remove(place)
        if self._is_open:
            pytest.fail(f"{place}: expect() must not be within another expect()", pytrace=False)
        with _convert_problems():
            self._served.reset_requests()
        expected = Expected()
        self._is_open = True
        try:
            yield expected
        finally:
            self._is_open = False
        with _convert_problems():
            expected.requests = requests = self._served.read_requests()
            if not requests.methods and "requests" not in limits:
                pytest.fail(
                    f"{place}: no request reached {self.endpoint}: the client may not read AWS_ENDPOINT_URL, or it was"
                    " created before the fixture s3",
                    pytrace=False,
                )
            hint = ""
            if not limits:
                self._blocks += 1
                name = f"{self._node} #{self._blocks}" if self._blocks > 1 else self._node
                hint = f" {name} of {self._file.name}; if this is intended, run pytest --s3-update-budgets"
                if self._updates:
                    self._update_budget(name, requests)
                limits = self._read_budget(name)
            if excesses := budget.find_excesses(self._name_objects(limits), requests):
                lines = [f"{place}: the requests do not meet the budget{hint}", *budget.format_excesses(excesses)]
                pytest.fail("\n".join(lines), pytrace=False)

    def close(self) -> None:
        """Remove the bucket, and fail the test if a result of `expect` was not used."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._unused:
            pytest.fail(f"{self._unused[0]}: write: with s3.expect(...):", pytrace=False)

    def _name_objects(self, limits: budget.Budget) -> dict:
        """Prefix the keys of objects with the name of the bucket."""
        prefix = f"{self.bucket}/"
        named = {f"{prefix}{key.removeprefix(prefix)}": of for key, of in (limits.get(budget.OBJECTS) or {}).items()}
        return {**limits, budget.OBJECTS: named}

    def _read_budget(self, name: str) -> dict:
        budgets = self._read_budgets()
        if name not in budgets:
            raise Problem(f"{self._file} lacks a budget of {name}; write it with pytest --s3-update-budgets")
        limits = budgets[name]
        if not isinstance(limits, dict) or not limits:
            raise Problem(f"{self._file}: {name} must be a mapping of limits (got {limits})")
        budget.check_budget(limits, f"{self._file}: {name}")
        return limits

    def _update_budget(self, name: str, requests: Requests) -> None:
        """Write the budget of a block, unless the requests meet an existing one."""
        # Parallel workers write the same file.
        holder = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            budgets = self._read_budgets()
            if name in budgets and not budget.find_excesses(self._name_objects(self._read_budget(name)), requests):
                return
            budgets[name] = budget.build_budget(requests)
            write_text(self._file, yaml.safe_dump(dict(sorted(budgets.items())), sort_keys=False, allow_unicode=True))
        finally:
            os.close(holder)

    def _read_budgets(self) -> dict:
        return read_mapping(self._file) if self._file.exists() else {}


def list_obsolete_budgets(file: Path, nodes: Iterable[str]) -> Iterator[str]:
    """Yield the names of a file's budgets whose test does not exist.

    Args:
        file: path of the file of budgets.
        nodes: the collected tests of its folder, as "test_file.py::name". Budgets of other existing files are left out.
    """
    tests = set(nodes)
    collected = {node.partition("::")[0] for node in tests}
    for name in read_mapping(file):
        module = name.partition("::")[0]
        if _BLOCK.sub("", name) not in tests and (module in collected or not file.with_name(module).exists()):
            yield name


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
