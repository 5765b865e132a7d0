"""The page cache: set, verified file by file, and left to a program that sets it itself."""

import os
import tempfile
from pathlib import Path

import pytest
from steady import locked

from sbench.measure import launches
from sbench.probe import host, page_cache


@pytest.mark.rule(8)
def test_the_page_cache_is_set_and_verified_file_by_file(tmp_path):
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        file.write_bytes(os.urandom(3_000_000))
    assert page_cache.set_cache_state("cold", files) == {"asked": "cold", "state": "cold", "resident_before": 0.0}
    assert page_cache.load_files(files) == 6_000_000
    with locked(files[1]):
        page_cache.evict_files(files)
        assert page_cache.measure_resident(files[1:]) == 1.0
        assert page_cache.get_verified_state(page_cache.measure_resident(files)) == "mixed"
    with locked(*files):
        assert page_cache.set_cache_state("warm", files) == {"asked": "warm", "state": "warm", "resident_before": 1.0}
    (tmp_path / "empty").touch()
    assert page_cache.measure_resident([tmp_path / "empty"]) is None


@pytest.mark.rule(8)
@pytest.mark.parametrize(
    "asked, found, calls, state",
    [
        ("cold", [1.0, 0.3, 0.2, 0.0], ["evict"] * 3, "cold"),
        ("direct", [1.0, 0.0], ["evict"], "cold"),
        ("cold", [1.0, None], ["evict"], "unverified"),
        ("warm", [0.0, 1.0], ["load"], "warm"),
        ("warm", [1.0], [], "warm"),
        ("warm", [0.5, 0.6], ["load"], "mixed"),
        ("any", [0.5], [], "mixed"),
    ],
)
def test_a_state_is_set_until_it_is_seen_and_nothing_is_read_twice(monkeypatch, asked, found, calls, state):
    """The kernel's answers are given, one after the other."""
    answers, done = iter(found), []
    monkeypatch.setattr(page_cache, "measure_resident", lambda paths: next(answers))
    monkeypatch.setattr(page_cache, "evict_files", lambda paths: done.append("evict"))
    monkeypatch.setattr(page_cache, "load_files", lambda paths: done.append("load"))
    monkeypatch.setattr(page_cache, "_PAUSE_S", 0)
    assert page_cache.set_cache_state(asked, []) == {"asked": asked, "state": state, "resident_before": found[-1]}
    assert (done, next(answers, "none left")) == (calls, "none left")


@pytest.mark.rule(8)
@pytest.mark.parametrize(
    "fraction, state",
    [(0, "cold"), (0.01, "cold"), (0.0101, "mixed"), (0.3, "mixed"), (0.6, "mixed"), (0.9899, "mixed"), (0.99, "warm")],
)
def test_a_state_holds_for_99_percent_of_the_pages(fraction, state):
    assert page_cache.get_verified_state(fraction) == state


@pytest.mark.parametrize(
    "fraction, text", [(0.5, "50.0%"), (0.9896, "98.96%"), (0.98996, "98.996%"), (0.01004, "1.004%"), (0.995, "99.5%")]
)
def test_a_fraction_has_the_decimals_that_tell_it_from_the_rule(fraction, text):
    assert page_cache.format_percent(fraction) == text


def test_the_page_cache_is_left_to_a_program_that_sets_it_itself(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3_000_000))
    window = launches.Window("cold", [file], None)
    with locked(file):
        window.open(sets_cache=True)
        window.close()
    assert window.cache == {"resident_after": 1.0}
    window.open(sets_cache=False)
    assert window.cache["state"] == "cold"


@pytest.mark.rule(8)
def test_no_state_is_verified_where_the_kernel_does_not_see_what_is_read(tmp_path, monkeypatch):
    """A stand-in for a file system that passes the page cache by: mincore finds nothing, whatever was read."""
    monkeypatch.setattr(page_cache, "_list_page_states", lambda path, start, length: bytes(-(-length // 4096)))
    monkeypatch.setattr(page_cache, "_sees", {})
    file = tmp_path / "file"
    file.write_bytes(os.urandom(300_000))
    for state in ("cold", "warm", "any"):
        assert page_cache.set_cache_state(state, [file]) == {
            "asked": state,
            "state": "unverified",
            "resident_before": None,
        }
        assert page_cache.measure_resident([file]) is None, "warm pages are not taken for lost afterwards"


@pytest.mark.rule(8)
def test_of_files_of_others_nothing_is_known_unless_they_can_be_written():
    if os.geteuid():
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory() as folder:
        if host.find_mount(folder)["file_system"] in host.MEMORY_FILE_SYSTEMS:
            pytest.skip("temporary files lie in memory here")
        os.chmod(folder, 0o755)
        files = [Path(folder, name) for name in ("own", "below", "above", "writable")]
        for file, owner, mode in zip(files, (1000, 0, 1001, 0), (0o444, 0o644, 0o644, 0o666), strict=True):
            file.write_bytes(os.urandom(10_000))
            os.chown(file, owner, -1)
            file.chmod(mode)
        child = os.fork()
        if not child:
            try:
                os.setgroups([])
                os.setuid(1000)
                os._exit(
                    sum((page_cache.measure_resident([file]) is not None) << place for place, file in enumerate(files))
                )
            finally:
                os._exit(255)
        answered = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert answered == 0b1001


@pytest.mark.rule(8)
def test_the_state_of_files_in_memory_cannot_be_verified():
    folder = Path("/dev/shm")
    if host.find_mount(folder)["file_system"] != "tmpfs":
        pytest.skip("/dev/shm is not a tmpfs here")
    file = folder / f"cache-test-{os.getpid()}"
    file.write_bytes(b"x" * 10_000)
    try:
        assert page_cache.set_cache_state("cold", [file]) == {
            "asked": "cold",
            "state": "unverified",
            "resident_before": None,
        }
    finally:
        file.unlink()
