"""Each rule of the method, and the fault that it is there for, planted in a real cell and seen caught."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from batteries import until
from cells import ROS3, Place
from conftest import artefact, processes_of
from steady import locked

from scripts.lib import provenance
from scripts.lib.dask_workers import batches_of
from scripts.studies.shots import study


@pytest.fixture
def place(tmp_path: Path, environments: Path, once: Callable):
    def build(make: bool = True, within: str = "", **options: object) -> Place:
        (tmp_path / within).mkdir(exist_ok=True)
        planned = Place(tmp_path / within, environments, once, **options)
        return planned.make() if make else planned

    return build


@pytest.fixture(scope="module")
def good_record(once: Callable, environments: Path) -> dict:
    folder = once("good-record", lambda folder: Place(folder, environments, once).make().measure())
    return artefact(folder / "repeat=1.json")


@pytest.mark.rule(7, 13, 14)
def test_a_good_cell_is_done_and_valid_and_says_what_it_did(place):
    here = place(access="signals", workers=2)
    record = here.measure()
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    work = record["work"]
    assert work["checksum"] == work["checksum_asked"]
    assert work["tasks_done"] == len(record["samples"])
    assert work["logical_bytes"] == sum(row["bytes"] for row in record["samples"]) > 0
    assert record["effective"]["hdf5"] == "2.0.0"
    seconds = record["seconds"]
    assert seconds["total"] >= max(row["open+read-data-time"] for row in record["samples"])
    assert seconds["null"] > 0
    assert 0 <= seconds["gather"] < seconds["total"]
    assert record["verified"] in ("within the timed pass", "in a pass of its own")
    assert record["host"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert record["provenance"]["data_sha256"] == artefact(here.provision)["data_sha256"]


@pytest.mark.rule(9)
def test_the_same_work_is_done_at_every_number_of_workers_and_by_both_libraries(place):
    checksums = set()
    for number, (library, workers) in enumerate([("hdf5-2.0.0", 1), ("hdf5-2.0.0", 3), ("hdf5-1.14.6", 2)]):
        record = place(within=str(number), library=library, workers=workers, access="signals").measure()
        assert record["valid"], record["reasons"]
        checksums.add(record["work"]["checksum"])
    assert len(checksums) == 1


@pytest.mark.rule(3)
def test_repeats_read_different_shots_and_all_arms_of_a_block_the_same(place):
    here = place(data={"shots": 12, "signals": 8}, make=False)
    from scripts.studies.shots.measure import sampled

    manifest = {"shots": [str(n) for n in range(12)], "signals": []}
    settings = here.cell.settings
    other = {**settings, "cell": {**settings["cell"], "library": "hdf5-1.14.6", "workers": "2"}}
    blocks = [sampled(settings, manifest, repeat) for repeat in range(1, 7)]
    assert blocks == [sampled(other, manifest, repeat) for repeat in range(1, 7)]
    assert len({tuple(block) for block in blocks}) > 1


@pytest.mark.rule(11)
@pytest.mark.parametrize("library", ["hdf5-1.14.6", "hdf5-2.0.0"])
def test_requests_of_an_embedded_store_are_counted_and_repeat_exactly(place, library):
    here = place(**ROS3, library=library, layout="shot-major", access="signals", page_buffer="0", s3={"network": {}})
    first, second = (here.measure(repeat)["requests"]["GET"] for repeat in (1, 1))
    assert first["count"] > 0
    assert first["failed"] == 0
    assert first["bytes_delivered"] >= first["bytes_offered"] > 0
    assert (first["count"], first["bytes_offered"]) == (second["count"], second["bytes_offered"])


def test_a_record_has_the_parts_of_its_data_as_asked_and_as_the_store_tells_them(place):
    record = place(**ROS3, data={"part_size": "6MiB"}, layout="shot-major").measure()
    assert record["valid"], record["reasons"]
    assert (record["settings"]["data"]["part_size"], record["provenance"]["part_bytes"]) == ("6MiB", 6 * 2**20)


@pytest.mark.rule(10)
def test_no_page_buffer_and_the_default_are_two_things(place):
    effective = {}
    for level in ("0", "unset", "16MiB"):
        record = place(within=level, **ROS3, layout="shot-major", access="signals", page_buffer=level).measure()
        assert record["valid"], record["reasons"]
        effective[level] = record["effective"]["page_buffer_bytes"]
    assert effective["0"] == 0
    assert effective["unset"] > 0
    assert effective["16MiB"] == 16 * 2**20


@pytest.mark.rule(10)
def test_a_buffer_that_the_library_ignores_makes_the_record_invalid(place):
    record = place(data={"paged": False}, page_buffer="64MiB").measure()
    assert not record["valid"]
    assert "ignored the page buffer of 67108864 bytes" in record["reasons"][0]


@pytest.mark.rule(10)
def test_a_buffer_below_a_page_is_raised_and_the_record_invalid(place):
    record = place(page_buffer="1MiB").measure()
    assert not record["valid"]
    assert "raised the page buffer of 1048576 bytes to 8000000" in record["reasons"][0]


@pytest.mark.rule(10)
def test_a_library_of_another_version_fails_the_cell(place, environments):
    here = place()
    label, other = (artefact(environments / f"hdf5-{version}.json") for version in ("2.0.0", "1.14.6"))
    here.environment = here.folder / "environment.json"
    here.environment.write_text(json.dumps(label | {"python": other["python"]}), encoding="utf-8")
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == ["the library under test is HDF5 1.14.6, not 2.0.0"]


@pytest.mark.rule(3)
def test_a_file_that_is_not_what_its_label_says_fails_the_cell(place):
    here = place(layout="shot-major", access="signals")
    other = place(within="other", data={"page_size": 4096}, layout="shot-major")
    (here.data / "shots.h5").write_bytes((other.data / "shots.h5").read_bytes())
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == ["the files that were read have page_size 4096, the manifest says 16777216"]


@pytest.mark.rule(9)
def test_corrupted_values_make_the_record_invalid(place):
    import h5py

    here = place(access="shots")
    for name in artefact(here.manifest)["shots"]:
        with h5py.File(here.data / f"{name}.h5") as file:
            offset = next(
                signal.id.get_offset()
                for signal in file[f"shots/{name}/signals"].values()
                if signal.chunks is None and signal.nbytes
            )
        with open(here.data / f"{name}.h5", "r+b") as raw:
            raw.seek(offset)
            byte = raw.read(1)
            raw.seek(offset)
            raw.write(bytes([byte[0] ^ 1]))
    record = here.measure()
    assert not record["valid"]
    assert record["reasons"] == ["the values that were read do not have the checksum of the manifest"]


@pytest.mark.rule(9)
def test_checksums_that_would_weigh_on_the_time_move_into_a_pass_of_their_own(place):
    here = place(data={"deflate": 0, "shots": 2}, read_shots=2)
    # They take as long as all the rest.
    here.pretend(
        "import time\nfrom scripts.lib import dask_workers\nfrom scripts.studies.shots import reader\n"
        "real = dask_workers.Workers.map\n"
        "def slow(self, function, batches):\n"
        "    began = time.perf_counter()\n"
        "    rows = real(self, function, batches)\n"
        "    if function is reader.read:\n"
        "        seconds = time.perf_counter() - began\n"
        "        time.sleep(seconds)\n"
        "        rows[0]['verify'] += seconds\n"
        "    return rows\n"
        "dask_workers.Workers.map = slow"
    )
    raw = here.measure()
    assert raw["verified"] == "in a pass of its own"
    assert raw["valid"]
    assert raw["work"]["tasks_done"] == raw["work"]["tasks_asked"] == 2
    assert raw["work"]["checksum"] == raw["work"]["checksum_asked"]


def test_checksums_that_do_not_weigh_on_the_time_stay_in_the_timed_pass(place):
    here = place()
    here.pretend(
        "from scripts.lib import dask_workers\nfrom scripts.studies.shots import reader\n"
        "real = dask_workers.Workers.map\n"
        "def quick(self, function, batches):\n"
        "    rows = real(self, function, batches)\n"
        "    if function is reader.read:\n"
        "        rows = [{**row, 'verify': row['verify'] / 1e6} for row in rows]\n"
        "    return rows\n"
        "dask_workers.Workers.map = quick"
    )
    record = here.measure()
    assert record["verified"] == "within the timed pass"
    assert 0 < record["seconds"]["verify"] <= 0.03 * record["seconds"]["total"]


def test_a_truncated_file_fails_the_cell_in_one_line(place):
    here = place()
    for file in here.data.glob("*.h5"):
        os.truncate(file, 1000)
    record = here.measure()
    assert record["status"] == "failed"
    assert len(record["reasons"]) == 1
    assert "truncated" in record["reasons"][0] or "file signature" in record["reasons"][0]


@pytest.mark.rule(8)
def test_a_file_that_something_keeps_in_memory_is_not_cold(place):
    here = place(cache="cold")
    with locked(*here.data.glob("*.h5")):
        record = here.measure()
    assert not record["valid"]
    assert "cold was asked" in record["reasons"][0]


@pytest.mark.rule(8)
def test_a_cold_cell_is_cold(place):
    record = place(cache="cold").measure()
    assert record["valid"], record["reasons"]
    assert record["cache"]["resident_before"] <= 0.01
    assert record["cache"]["resident_after"] is not None


def test_a_warm_cell_is_warm_until_its_window_closes(place):
    here = place(cache="warm")
    with locked(*here.data.glob("*.h5")):
        record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["cache"] == {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 1.0}


@pytest.mark.rule(8)
def test_pages_that_are_lost_while_a_cell_runs_make_it_invalid(place):
    here = place(cache="warm")
    here.pretend(
        "from pathlib import Path\nfrom scripts.lib import cache, window\n"
        "real = window.Step.close_window\n"
        "def lose(self):\n"
        "    cache.evict(Path(self.job['manifest']).parent.glob('*.h5'))\n"
        "    real(self)\n"
        "window.Step.close_window = lose"
    )
    record = here.measure()
    assert not record["valid"]
    assert any("the page cache lost pages while the cell ran (0.0% resident" in reason for reason in record["reasons"])


@pytest.mark.rule(4, 12)
def test_batches_are_cut_by_division_rounded_up_and_an_idle_worker_is_reported(place):
    # Rounded up, and not one more than rounded down: where the sizes divide, every worker has work.
    assert [len(batch) for batch in batches_of(range(8), 4)] == [2, 2, 2, 2]
    assert [len(batch) for batch in batches_of(range(7), 4)] == [2, 2, 2, 1]
    record = place(data={"signals": 6}, workers=4, read_shots=1).measure()
    assert record["effective"]["workers"] == 4
    assert record["effective"]["idle_workers"] == 4 - len(record["samples"]) == 1
    assert record["effective"]["oversubscribed"] == (record["effective"]["usable_cores"] < 4)


@pytest.mark.rule(9)
def test_identical_tasks_that_run_once_are_caught(place):
    here = place(access="shots", read_shots=3)
    here.pretend(
        "from scripts.lib import dask_workers\n"
        "real, answers = dask_workers.Workers.map, {}\n"
        "def once(self, function, batches):\n"
        "    key = function.__name__\n"
        "    if key != 'read' or key not in answers:\n"
        "        answers[key] = real(self, function, batches)\n"
        "    return answers[key]\n"
        "dask_workers.Workers.map = once"
    )
    record = here.measure()
    assert not record["valid"]
    assert any("tasks were done, 3 asked" in reason for reason in record["reasons"])


@pytest.mark.rule(15)
def test_a_worker_killed_in_mid_task_fails_the_cell(place):
    here = place(workers=2)
    here.pretend(
        "import os, signal\nfrom scripts.lib import dask_workers\nfrom scripts.studies.shots import reader\n"
        "real = dask_workers.Workers.map\n"
        "def kill(self, function, batches):\n"
        "    if function is reader.read:\n"
        "        os.kill(next(iter(self.pids.values())), signal.SIGKILL)\n"
        "    return real(self, function, batches)\n"
        "dask_workers.Workers.map = kill"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert "worker" in record["reasons"][0]
    assert len(record["reasons"][0].splitlines()) == 1


@pytest.mark.rule(15)
def test_a_server_that_dies_in_mid_cell_fails_the_cell_and_leaves_nothing_behind(place):
    here = place(**ROS3, layout="shot-major", access="signals")
    here.pretend(
        "import os, signal\nfrom pathlib import Path\nfrom scripts.lib import window\n"
        "real = window.Step.open_window\n"
        "def kill(self):\n"
        "    real(self)\n"
        "    for child in Path(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read_text().split():\n"
        "        if 'versitygw' in Path(f'/proc/{child}/comm').read_text():\n"
        "            os.kill(int(child), signal.SIGKILL)\n"
        "window.Step.open_window = kill"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == ["versitygw ended while the cell was measured"]
    until(lambda: processes_of(str(here.folder)) == [])


def test_nothing_is_written_under_a_name_that_somebody_else_could_have_taken(place, tmp_path):
    shared, trap, victim, seen = (tmp_path / name for name in ("shared", "trap", "victim", "seen"))
    for folder in (shared, trap):
        folder.mkdir()
    victim.write_text("somebody's", encoding="utf-8")
    for name in ("global.lock", "purge.lock"):
        (trap / name).symlink_to(victim)
    (shared / "dask-scratch-space").symlink_to(trap)
    here = place(workers=2)
    here.pretend(
        "import os\nfrom pathlib import Path\nfrom scripts.lib import window\n"
        "real = window.Step.open_window\n"
        "def look(self):\n"
        f"    Path({str(seen)!r}).write_text(' '.join(os.listdir({str(shared)!r})))\n"
        "    real(self)\n"
        "window.Step.open_window = look"
    )
    record = here.measure(env=os.environ | {"TMPDIR": str(shared)})
    assert record["valid"], record["reasons"]
    assert victim.read_text(encoding="utf-8") == "somebody's"
    assert sorted(os.listdir(trap)) == ["global.lock", "purge.lock"]
    assert os.listdir(shared) == ["dask-scratch-space"]
    others = set(seen.read_text(encoding="utf-8").split()) - {"dask-scratch-space"}
    assert len(others) == 1
    assert re.fullmatch(r"step\.\w{8}", others.pop())


def pretended(here: Place, words: str) -> None:
    """Let the S3 server say `words`, as a shell does, before it begins."""
    found = artefact(here.environments / "servers.json")
    wrapper = here.folder / "versitygw"
    wrapper.write_text(f'#!/bin/sh\n{words}\nexec {found["versitygw"]} "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    here.environments = here.folder
    (here.folder / "servers.json").write_text(json.dumps(found | {"versitygw": str(wrapper)}), encoding="utf-8")


FROM_OUTSIDE = "was ended by a signal from outside (SIGKILL): by somebody, or by the kernel for lack of memory"


@pytest.mark.parametrize(
    "fault, reason",
    [
        ("os.kill(os.getpid(), 9)", f"studies.shots.measure {FROM_OUTSIDE}"),
        ("sys.exit(3)", "studies.shots.measure ended with status 3: it said nothing"),
        ("sys.exit('by itself')", "studies.shots.measure ended with status 1: by itself"),
    ],
    ids=["killed", "silent", "by itself"],
)
def test_a_program_that_ends_early_is_not_explained_by_the_words_of_its_server(place, fault, reason):
    here = place(**ROS3, layout="shot-major", access="signals")
    pretended(here, "echo words of the server >&2")
    here.pretend(f"import os, sys\n{fault}")
    assert here.measure()["reasons"] == [reason]
    own, _, servers = (here.folder / "step.log").read_text(encoding="utf-8").partition("## standard output")
    assert own.endswith(f"{reason}\n")
    assert "\nwords of the server\n" in servers


@pytest.mark.parametrize(
    "words, reason",
    [
        ("kill -9 $PPID", f"provision {FROM_OUTSIDE}"),
        ("exit 1", "versitygw ended with status 1 as it started; its words are at the end of the step's log"),
    ],
    ids=["killed", "no server"],
)
def test_a_provision_that_ends_early_is_not_explained_by_the_words_of_its_server(place, words, reason):
    here = place(**ROS3, layout="shot-major", access="signals", make=False)
    pretended(here, f"echo words of the server >&2; {words}")
    here.make(expect="failed")
    assert here.provided["reasons"][0].endswith(reason)
    own, _, servers = (here.folder / "provision.log").read_text(encoding="utf-8").partition("## standard output")
    assert "words of the server" not in own
    assert servers.endswith("words of the server\n")


@pytest.mark.rule(15)
def test_a_hanging_cell_is_ended_at_its_time_limit_and_leaves_nothing_behind(place):
    here = place(time_limit_s=3)
    here.pretend(
        "import time\nfrom scripts.lib import dask_workers\n"
        "dask_workers.Workers.replaced = lambda self: time.sleep(600)"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert "time limit of 3 s" in record["reasons"][0]
    until(lambda: processes_of(str(here.folder)) == [])


@pytest.mark.rule(14)
def test_changed_code_changes_the_hash_of_what_measured_and_other_code_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    for name in ("reader", "report"):
        (tmp_path / "scripts" / f"{name}.py").write_text("pass\n", encoding="utf-8")
    before = provenance.code_sha256(["scripts.reader"])
    (tmp_path / "scripts/report.py").write_text("changed\n", encoding="utf-8")
    assert provenance.code_sha256(["scripts.reader"]) == before
    (tmp_path / "scripts/reader.py").write_text("changed\n", encoding="utf-8")
    assert provenance.code_sha256(["scripts.reader"]) != before


def test_a_shell_script_that_measured_is_hashed_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/battery.sh").write_text("fio", encoding="utf-8")
    before = provenance.code_sha256(["scripts/battery.sh"])
    assert before != provenance.code_sha256([])
    (tmp_path / "scripts/battery.sh").write_text("fio --direct=1", encoding="utf-8")
    assert provenance.code_sha256(["scripts/battery.sh"]) != before


@pytest.mark.rule(14)
def test_a_record_names_the_code_that_measured_it(good_record, place):
    assert place().measure()["provenance"]["code_sha256"] == good_record["provenance"]["code_sha256"]
    assert "modules" not in good_record


def test_arms_are_measured_by_the_same_code_whichever_driver_they_have(good_record, place):
    record = place(**ROS3).measure()
    assert (good_record["effective"]["driver"], record["effective"]["driver"]) == ("sec2", "ros3")
    assert record["provenance"]["code_sha256"] == good_record["provenance"]["code_sha256"]


def test_something_that_failed_before_fails_the_cell_with_its_reason(place):
    here = place()
    here.environment = here.folder / "environment.json"
    here.environment.write_text('{"status": "failed", "reasons": ["no compiler"]}', encoding="utf-8")
    record = here.measure()
    assert record["status"] == "failed"
    assert "no compiler" in record["reasons"][0]


@pytest.mark.rule(8, 9, 10)
@pytest.mark.parametrize(
    "block, key, value, reason",
    [
        ("effective", "rdcc_nbytes", 1, "the library made a chunk cache of 1 bytes out of 8388608"),
        ("effective", "workers", 0, "0 workers were alive, 1 asked"),
        ("work", "datasets", 0, "0 datasets were done"),
        ("work", "logical_bytes", 1, "1 logical bytes were done"),
        ("cache", "state", "mixed", "the page cache was mixed (100.0% resident), warm was asked"),
        ("cache", "resident_after", 0.5, "the page cache lost pages while the cell ran (50.0% resident after)"),
    ],
)
def test_whatever_was_not_as_asked_makes_a_record_invalid(good_record, block, key, value, reason):
    kept = {"asked": "warm", "state": "warm", "resident_before": 1.0, "resident_after": 1.0}
    good = {**good_record, "cache": kept}
    changed = {**good, block: {**good[block], key: value}}
    settings = {"cell": {"page_buffer": "unset"}}
    assert [line for line in study.STUDY.faults(changed, settings) if line.startswith(reason)]
    assert study.STUDY.faults(good, settings) == []


def test_a_driver_without_a_page_buffer_is_valid_only_where_none_is_asked_for(good_record):
    told = ("page_buffer_bytes", "page_size", "rdcc_nbytes")
    effective = {key: value for key, value in good_record["effective"].items() if key not in told}
    plain = {**good_record, "effective": effective}
    for level, reasons in (("unset", 0), ("0", 0), ("64MiB", 1)):
        found = study.STUDY.faults(plain, {"cell": {"page_buffer": level}})
        assert len([line for line in found if "ignored the page buffer" in line]) == len(found) == reasons


def test_a_cell_that_asked_its_server_for_nothing_has_failed(place, good_record):
    here = place(**ROS3, layout="shot-major", make=False)
    manifest = {"dataset": "d", "layout": {"paged": False}}
    for requests, many in (({}, 1), ({"GET": {"count": 3}}, 0)):
        reasons = study.STUDY.failures({**good_record, "requests": requests}, here.cell.settings, manifest)
        assert len([reason for reason in reasons if "no request reached the embedded server" in reason]) == many


def test_workers_may_be_a_multiple_of_the_cores(place):
    record = place(data={"signals": 8}, workers="2x").measure()
    assert record["valid"], record["reasons"]
    assert record["effective"]["workers"] == 2 * record["effective"]["usable_cores"]
    assert record["effective"]["oversubscribed"]


def test_a_record_that_cannot_be_written_is_one_line_and_no_half_file(place, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(full)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a full file system needs the right to mount one")
    try:
        (full / "filler").write_bytes(b"x" * 8192)
        here = place()
        done = here.step(full / "repeat=1.json")
        assert done.returncode == 2
        assert "repeat=1.json cannot be written: No space left on device; free the disk" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in full.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", str(full)], check=True)
