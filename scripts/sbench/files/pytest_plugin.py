"""A pytest plugin: the fixture `s3` is a bucket of a real server, whose requests tests can limit (docs/count.md).

Without a test that uses the fixture, this module imports nothing of the project.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sbench.files.bucket_fixture import S3
    from sbench.files.buckets import Buckets

# The budgets of the tests in a folder, by test.
BUDGETS = "s3_budgets.yaml"
_NUMBERS = itertools.count(1)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("s3", "requests to S3 (fixture s3)")
    group.addoption("--s3-latency", type=int, default=0, metavar="MS", help="emulated round-trip time in ms")
    group.addoption("--s3-rate", type=float, default=0, metavar="MIB_S", help="emulated rate of a connection in MiB/s")
    group.addoption("--s3-update-budgets", action="store_true", help=f"write the budgets of tests to {BUDGETS}")


@pytest.fixture(scope="session")
def _s3_server(pytestconfig: pytest.Config) -> "Iterator[Buckets]":
    from sbench.files.bucket_fixture import serve_tests

    with serve_tests(pytestconfig.getoption("--s3-latency"), pytestconfig.getoption("--s3-rate")) as served:
        yield served


@pytest.fixture
def s3(_s3_server: "Buckets", request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> "Iterator[S3]":
    """Return an empty bucket, to which S3 clients of this test connect by their environment variables."""
    from sbench.files.bucket_fixture import S3

    name = _NOT_IN_NAMES.sub("-", request.node.name.lower()).strip("-")[:40].strip("-")
    # Clients such as s3fs keep listings, so that no name may come twice.
    bucket = f"{name}-{next(_NUMBERS)}-s3"
    for variable, value in _s3_server.variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("SBENCH_BUCKET", bucket)
    monkeypatch.setenv("SBENCH_URL", f"{_s3_server.variables['AWS_ENDPOINT_URL']}/{bucket}")
    path = Path(request.node.path)
    node = f"{path.name}::{request.node.nodeid.partition('::')[2]}"
    made = S3(_s3_server, bucket, node, path.with_name(BUDGETS), request.config.getoption("--s3-update-budgets"))
    yield made
    made.close()
