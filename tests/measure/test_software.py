"""Software that differs between the arms of a comparison is seen: what is kept of it, compared, and shown."""

import importlib.metadata
import json
import math
import platform
import re
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import artefact

from sbench.design import fingerprint
from sbench.measure import gather as gather_program
from sbench.probe.program import Problem
from sbench.probe.software import get_identity, list_distributions
from tests.helpers.records import (
    COMPARE,
    FEW,
    at,
    chosen,
    failed,
    gather,
    newer_is,
    sealed,
    synthetic_cells,
    write_synthetic_run,
)

# What the libraries' specs and locks say.
PROMISED = {
    "hdf5-1.14.6": {"h5py": "3.15.1", "libhdf5": "1.14.6 (wheel)", "numpy": "2.4.6"},
    "hdf5-2.0.0": {"h5py": "3.16.0", "libhdf5": "2.0.0 (wheel)", "numpy": "2.4.6"},
}


def fingerprinted(tmp_path: Path, changed=lambda record: False, files=None, **versions: str) -> Path:
    """Write a run whose records have fingerprints, `changed` ones with other versions and contents of files."""

    def keep(record: dict) -> dict:
        library, other = record["cell"]["library"], changed(record)
        contents = {"libhdf5 (h5py)": library, "libhdf5_hl (h5py)": library, "libcurl": "curl", "versitygw": "server"}
        contents |= files if files and other else {}
        versions_now = {name: PROMISED[library][name] for name in ("h5py", "numpy")} | {"boto3": "1.40.1"}
        versions_now |= versions if other else {}
        seen = {"distributions": versions_now, "files": {}}
        for name, content in contents.items():
            if content is not None:
                (path := tmp_path / f"{name} {content}").write_text(content, encoding="utf-8")
                seen["files"][name] = get_identity(path)
        environment = {"promised": PROMISED[library]}
        record["provenance"]["software"] = fingerprint.save_fingerprint(
            tmp_path / "run/software", seen, {}, environment
        )
        return record

    cells = synthetic_cells(twins=0, **FEW)
    return write_synthetic_run(tmp_path / "run", cells, ratio=newer_is(1.3), change=keep)


def short(content: str) -> str:
    return sha256(content.encode()).hexdigest()[:8]


@pytest.mark.rule(6, 14)
def test_of_another_build_no_library_that_was_loaded_is_the_same_and_a_server_is():
    def seen_by(build: str, server: str, **promised: str) -> str:
        files = {"libhdf5": build, "libaws-c-s3": build, "versitygw": server}
        return json.dumps({"distributions": {"h5py": "1"}, "files": files, "promised": {"h5py": "1"} | promised})

    one = seen_by("first", "server")
    assert fingerprint.describe_differences(one, seen_by("second", "server", copy="rebuilt"), environments=True) == ()
    assert len(fingerprint.describe_differences(one, seen_by("second", "server"), environments=True)) == 2
    other = fingerprint.describe_differences(one, seen_by("second", "another", copy="rebuilt"), environments=True)
    assert other == ("versitygw server and another",)


def newer_without_buffer(record: dict) -> bool:
    return at(record, 4, library="hdf5-2.0.0", page_buffer="0")


@pytest.mark.rule(14)
def test_what_libraries_vary_on_purpose_is_compared(tmp_path):
    judged = gather(fingerprinted(tmp_path))[2]
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}
    assert "not comparable" not in set(judged["verdict"])


@pytest.mark.rule(14, 17)
@pytest.mark.parametrize(
    "versions, files, told",
    [
        ({"boto3": "1.41.0"}, {}, "boto3 1.40.1 and 1.41.0"),
        ({"numpy": "2.5.5", "s3fs": "1.0"}, {}, "numpy 2.4.6 and 2.5.5, s3fs absent and 1.0"),
        ({"a": "1", "b": "2", "c": "3", "d": "4"}, {}, "a absent and 1, b absent and 2, c absent and 3, 1 more"),
        ({}, {"libcurl": "another"}, f"libcurl {short('curl')} and {short('another')}"),
        ({}, {"versitygw": "another"}, f"versitygw {short('server')} and {short('another')}"),
    ],
)
def test_arms_of_other_software_are_not_comparable(tmp_path, versions, files, told):
    judged = gather(fingerprinted(tmp_path, newer_without_buffer, files, **versions))[2]
    rows = chosen(judged, factor="library", metric="total").set_index("page_buffer")
    assert rows.loc["0", "verdict"] == "not comparable"
    assert rows.loc["0", "note"] == f"the software differs between the arms in block 4: {told}"
    assert math.isnan(rows.loc["0", "ratio"])
    assert rows.loc["64MiB", "verdict"] == "slower"


@pytest.mark.rule(14, 17)
@pytest.mark.parametrize(
    "versions, files, told",
    [
        ({"h5py": "3.15.1"}, {}, "h5py 3.15.1 and 3.16.0"),
        ({}, {"libhdf5 (h5py)": "rebuilt"}, "libhdf5 (h5py) "),
    ],
)
def test_what_libraries_vary_may_not_differ_where_another_factor_is_compared(tmp_path, versions, files, told):
    judged = gather(fingerprinted(tmp_path, newer_without_buffer, files, **versions))[2]
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}
    rows = chosen(judged, factor="page_buffer", metric="total").set_index("library")
    assert rows.loc["hdf5-2.0.0", "verdict"] == "not comparable"
    assert f"the software differs between the arms in block 4: {told}" in rows.loc["hdf5-2.0.0", "note"]
    assert rows.loc["hdf5-1.14.6", "verdict"] != "not comparable"


@pytest.mark.rule(14)
def test_what_only_one_arm_loads_is_no_other_version_of_it(tmp_path):
    judged = gather(fingerprinted(tmp_path, newer_without_buffer, {"libcurl": None, "azurite node": "node"}))[2]
    assert "not comparable" not in set(judged["verdict"])


def said(run: Path) -> tuple[list[str], list[str]]:
    """Return what the report says of a run's software: what is varied on purpose, and what is not known."""
    kept = gather_program.read_study(run, "synthetic", "shots")[1]
    return fingerprint.describe_environments(kept, COMPARE), fingerprint.describe_unseen_records(kept)


@pytest.mark.rule(14, 22)
def test_what_is_varied_on_purpose_is_listed(tmp_path):
    varied = "h5py 3.15.1 and 3.16.0; libhdf5 1.14.6 (wheel) and 2.0.0 (wheel)"
    line = f"Libraries hdf5-1.14.6 and hdf5-2.0.0 differ on purpose in {varied}"
    assert said(fingerprinted(tmp_path)) == ([line], [])


@pytest.mark.rule(14)
@pytest.mark.parametrize("lost", ["removed", "edited"])
def test_records_without_a_fingerprint_are_compared_by_their_lock_and_counted_once(tmp_path, lost):
    run = fingerprinted(tmp_path, newer_without_buffer, boto3="1.41.0")
    (other,) = (path for path in (run / "software").glob("*.json") if "1.41.0" in path.read_text(encoding="utf-8"))
    if lost == "edited":
        other.write_text(other.read_text(encoding="utf-8").replace("1.41.0", "1.40.1"), encoding="utf-8")
    else:
        other.unlink()
    assert "not comparable" not in set(gather(run)[2]["verdict"])
    line = "1 of 24 records lack a fingerprint of the measuring software"
    assert said(run)[1] == [f"{line}: checks of their arms cover only measuring code, data and lock"]


def test_a_record_that_failed_lacks_no_fingerprint(tmp_path):
    run = fingerprinted(tmp_path)
    path = next(run.glob("records/*/repeat=1.json"))
    path.write_text(sealed(failed(artefact(path), "killed")), encoding="utf-8")
    assert said(run)[1] == []


def test_a_file_is_hashed_once_for_as_long_as_it_stays_what_it_is(tmp_path):
    (library := tmp_path / "libhdf5.so").write_bytes(b"first")

    def kept() -> str:
        seen = {"distributions": {}, "files": {"libhdf5": get_identity(library)}}
        return artefact(tmp_path / f"{fingerprint.save_fingerprint(tmp_path, seen, {}, {'promised': {}})}.json")[
            "files"
        ]["libhdf5"]

    first = kept()
    assert first == sha256(b"first").hexdigest()
    memo = artefact(tmp_path / "hashes.json")
    (tmp_path / "hashes.json").write_text(json.dumps(dict.fromkeys(memo, "remembered")), encoding="utf-8")
    assert kept() == "remembered"
    library.write_bytes(b"second")
    assert kept() == sha256(b"second").hexdigest()


def test_a_library_that_was_built_before_it_said_what_it_promises_has_no_fingerprint(tmp_path):
    assert fingerprint.save_fingerprint(tmp_path, {"distributions": {}, "files": {}}, {}, {"kind": "wheel"}) is None
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_was_replaced_while_it_was_loaded_is_unknown(tmp_path):
    (library := tmp_path / "libcurl.so.4").write_bytes(b"loaded")
    seen = {"distributions": {}, "files": {"libcurl": get_identity(library)}}
    library.write_bytes(b"another version")
    kept = artefact(tmp_path / f"{fingerprint.save_fingerprint(tmp_path, seen, {}, {'promised': {}})}.json")
    assert kept["files"] == {"libcurl": "unknown"}


def test_versions_are_those_that_importlib_reads():
    read = {re.sub("[-_.]+", "-", one.name).lower(): one.version for one in importlib.metadata.distributions()}
    assert list_distributions() == read | {"python": platform.python_version()}


def test_what_a_library_loads_has_to_be_what_it_was(tmp_path: Path):
    file = tmp_path / "extension.so"
    file.write_text("first")
    environment = {"library": "own", "imported": [get_identity(file)]}
    fingerprint.expect_unchanged(environment)
    file.write_text("another")
    with pytest.raises(Problem, match=r"^library own: .*extension\.so has changed since this run began; give"):
        fingerprint.expect_unchanged(environment)
