"""A running HDF service as a store: what is written and read through it, and what is said where it cannot be."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cells import CONFIG, Place
from conftest import ROOT, artefact

from sbench.probe.program import Problem
from sbench.stores import store as stores

# In a library's interpreter: a service that somebody else might run, with a folder of the user's.
SERVICE = """
import requests, sys
from pathlib import Path
from sbench.studies.arrays import service
folder, settings = Path(sys.argv[1]), service.Settings(2, 100 << 20, True)
with service.run_service(settings, {"ROOT_DIR": str(folder), "BUCKET_NAME": "all"}, folder) as one:
    user, mine = (service.USER, one.password), {"domain": "/mine"}
    answer = requests.put(f"{one.endpoint}/", json={"folder": True}, params=mine, auth=user)
    print(one.endpoint, *user, answer.status_code, flush=True)
    input()
"""


@pytest.fixture
def running(tmp_path: Path, with_hsds: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """Run a service, name its user in the environment, and return the store that it is."""
    python, folder = artefact(with_hsds / "arrays.json")["python"], tmp_path / "service"
    folder.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with open(tmp_path / "service.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [python, "-sE", "-c", f"import sys; sys.path[0] = 'scripts'\n{SERVICE}", folder], stderr=log, **pipes
        )
        try:
            endpoint, user, password, status = process.stdout.readline().split()
            assert status == "201"
            monkeypatch.setenv("HS_USERNAME", user)
            monkeypatch.setenv("HS_PASSWORD", password)
            yield {"kind": "hsds", "endpoint": endpoint, "folder": "/mine", "deployment": "two processes"}
        finally:
            process.communicate("\n")


def objects(tmp_path: Path) -> set[str]:
    return {str(path) for path in (tmp_path / "service" / "all").rglob("*") if path.is_file()}


@pytest.mark.parametrize("operation", ["write", "read"])
def test_arrays_are_written_and_read_through_it_and_removed(
    running, tmp_path, with_hsds, once: Callable, monkeypatch, operation
):
    monkeypatch.setitem(CONFIG["stores"], "service", running)
    before = objects(tmp_path)
    cache = "any" if operation == "write" else "cold"
    levels = {"store": "service", "operation": operation, "cache": cache, "protocol": "binary"}
    record = Place(tmp_path, with_hsds, once, study="arrays", **levels).make().measure()
    assert (record["status"], record["reasons"]) == ("done", [])
    assert record["effective"]["nodes"] == 2
    assert record["work"]["stored_objects"] == 9
    # Nothing here is the service's page cache.
    assert record["cache"]["state"] == ("any" if operation == "write" else "elsewhere")
    assert os.environ["HS_PASSWORD"] not in str(record)
    assert {path for path in objects(tmp_path) - before if ".domain.json" in path} == set()


def test_it_is_looked_at_before_and_each_fault_is_one_line(running, monkeypatch, tmp_path):
    store = stores.get_store(running)
    assert [re.sub(r"[0-9.]+", "N", look()) for _, look in store.list_requirements()] == [
        "user benchmark",
        "HSDS N, N data nodes",
    ]
    assert store.describe_limits(set()).startswith("a remote service (two processes);")
    faults = {
        "does not find the folder": running | {"folder": "/nobody"},
        "does not respond as an HDF service": running | {"endpoint": "http://127.0.0.1:9"},
    }
    for line, spec in faults.items():
        with pytest.raises(Problem, match=line):
            [look() for _, look in stores.get_store(spec).list_requirements()]
    monkeypatch.setenv("HS_PASSWORD", "wrong")
    with pytest.raises(Problem, match="refuses the credentials"):
        [look() for _, look in store.list_requirements()]
    monkeypatch.delenv("HS_PASSWORD")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Problem, match=r"set HS_PASSWORD, or write it to ~/\.hscfg"):
        [look() for _, look in store.list_requirements()]
    (tmp_path / ".hscfg").write_text("# mine\nhs_username = somebody\nhs_password = else\n", encoding="utf-8")
    assert next(iter(store.list_requirements()))[1]() == "user benchmark"
