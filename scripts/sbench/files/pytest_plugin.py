"""A pytest plugin: the fixture `s3` is a bucket of a real server, whose requests tests can limit (docs/count.md).

Without a test that uses the fixture, this module imports nothing of the project.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sbench.files.bucket_fixture import S3
    from sbench.files.buckets import Buckets

# The budgets of the tests in a folder, by test.
BUDGETS = "s3_budgets.yaml"
_NUMBERS = itertools.count(1)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
# Sentences about budgets without a test.
_OBSOLETE = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("s3", "requests to S3 (fixture s3)")
    group.addoption("--s3-latency", type=int, default=0, metavar="MS", help="emulated round-trip time in ms")
    group.addoption("--s3-rate", type=float, default=0, metavar="MIB_S", help="emulated rate of a connection in MiB/s")
    group.addoption("--s3-update-budgets", action="store_true", help=f"write the budgets of tests to {BUDGETS}")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options of the network before any test runs."""
    latency_ms, rate = _get_network(config)
    if latency_ms or rate:
        from sbench.files.buckets import check_network
        from sbench.probe.program import Problem

        try:
            check_network(latency_ms, rate, "--s3-")
        except Problem as problem:
            raise pytest.UsageError(str(problem)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find budgets whose test does not exist, if whole files were collected."""
    config.stash[_OBSOLETE] = sentences = []
    if any("::" in word for word in config.args) or config.getoption("lf", False):
        return
    paths = {path for item in items if (path := item.path.with_name(BUDGETS)).is_file()}
    for path in sorted(paths):
        from sbench.files.bucket_fixture import list_obsolete_budgets
        from sbench.probe.program import Problem

        nodes = [_name_node(item) for item in items if item.path.parent == path.parent]
        # Tests that read an invalid file fail with its line.
        with contextlib.suppress(Problem):
            names = list_obsolete_budgets(path, nodes)
            sentences += [f"{path}: the test of {name} does not exist; remove the budget" for name in names]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List budgets whose test does not exist."""
    if sentences := config.stash.get(_OBSOLETE, []):
        terminalreporter.section("budgets without a test")
        terminalreporter.write_line("\n".join(sentences))


def _get_network(config: pytest.Config) -> tuple[int, float]:
    return config.getoption("--s3-latency"), config.getoption("--s3-rate")


def _name_node(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.nodeid.partition('::')[2]}"


@pytest.fixture(scope="session")
def _s3_server(pytestconfig: pytest.Config) -> "Iterator[Buckets]":
    from sbench.files.bucket_fixture import serve_tests

    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with contextlib.ExitStack() as stack:
        # The first start may build the servers, and announces this on standard error.
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            served = stack.enter_context(serve_tests(*_get_network(pytestconfig)))
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
    file = request.node.path.with_name(BUDGETS)
    made = S3(_s3_server, bucket, _name_node(request.node), file, request.config.getoption("--s3-update-budgets"))
    yield made
    made.close()
