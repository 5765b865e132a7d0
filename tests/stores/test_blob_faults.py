"""What goes wrong while a cell of the blobs study is measured: one line or an invalid record, and never a hang."""

import contextlib
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bad_store import PAGES, BadStore, in_front_of, portal
from batteries import until
from blob_cells import Cell, Store, serving
from conftest import ROOT, processes_of

from sbench.probe.program import Problem
from sbench.studies.blobs import mpi
from sbench.studies.blobs.settings import Mpi

KINDS = {"s3": "bucket test at ", "azure-blob": "container test of "}


@pytest.fixture(scope="module", params=list(KINDS))
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, environments: Path
) -> Iterator[Store]:
    with serving(request.param, tmp_path_factory.mktemp(request.param), environments) as served:
        yield served


@pytest.fixture
def bad(store: Store) -> Iterator[BadStore]:
    with in_front_of(store.served.endpoint) as proxy:
        yield proxy


@pytest.fixture
def cell(store: Store, bad: BadStore, tmp_path: Path) -> Callable[..., Cell]:
    """Return what makes a cell of one process, whose chunks are whole objects, behind the bad store."""

    def build(**levels: object) -> Cell:
        here = store.cell(tmp_path, **{"processes": "1", "chunk_size": "1MiB", **levels})
        store.reach(here, bad.endpoint)
        return here

    return build


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[..., Cell]:
    return lambda **levels: Cell(tmp_path, **levels).fill()


def reads(record: dict) -> list[dict]:
    return [row for row in record["samples"] if row["phase"] == "read"]


def test_a_wrong_key_is_one_line_with_the_object_and_the_place(store, cell):
    here = cell()
    wrong = "d3JvbmcgYXMgY2FuIGJlIGFuZCBsb25nIGVub3VnaCA="
    if store.kind == "s3":
        here.env["AWS_SECRET_ACCESS_KEY"] = wrong
    else:
        parts = here.env["AZURE_STORAGE_CONNECTION_STRING"].split(";")
        parts[2] = f"AccountKey={wrong}"
        here.env["AZURE_STORAGE_CONNECTION_STRING"] = ";".join(parts)
    problem = here.problem()
    assert problem.startswith(f"run/blobs-test/0000.bin in {KINDS[store.kind]}")
    remedy = {"s3": "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "azure-blob": "check the key in AZURE_"}
    assert remedy[store.kind] in problem


def test_a_bucket_or_container_that_is_not_there_is_one_line(store, cell):
    here = cell()
    here.settings["store"]["bucket" if store.kind == "s3" else "container"] = "not-there"
    problem = here.problem()
    assert "not-there" in problem
    assert {"s3": "create the bucket", "azure-blob": "create the container"}[store.kind] in problem


def test_an_object_that_is_not_there_is_one_line_whichever_process_finds_out(store, cell):
    here = cell(pattern="multiple-files", processes="3")
    here.manifest["files"][2]["name"] = "gone.bin"
    here.write()
    problem = here.problem()
    assert problem.startswith(f"run/blobs-test/gone.bin in {KINDS[store.kind]}")
    assert "the object no longer exists" in problem


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_an_endpoint_that_answers_html_is_one_line(store, cell, page):
    here = cell()
    with portal(page) as url:
        store.reach(here, url)
        problem = here.problem()
    assert KINDS[store.kind] in problem
    assert " does not respond like " in problem


def test_a_signature_that_has_expired_is_one_line(store, cell):
    if store.kind != "azure-blob":
        pytest.skip("signatures that expire are given to clients of Azure")
    from azure.storage.blob import generate_container_sas

    here, account = cell(), store.served.credentials
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    token = generate_container_sas(
        account["account"], "test", account_key=account["key"], permission="rl", expiry=hour_ago
    )
    del here.env["AZURE_STORAGE_CONNECTION_STRING"]
    here.env["AZURE_STORAGE_SAS_TOKEN"] = token
    here.settings["store"]["account_url"] = f"{store.served.endpoint}/{account['account']}"
    problem = here.problem()
    assert "the SAS token in AZURE_STORAGE_SAS_TOKEN expired at " in problem


@pytest.mark.rule(15)
def test_a_service_that_is_busy_once_is_asked_again_and_that_is_counted(cell, bad):
    here = cell(iterations=3)
    bad.faults = ["ok", "busy", "ok"]
    record = here.measure()
    assert record["reasons"] == []
    assert [row["retries"] for row in reads(record)] == [0, 1, 0]
    assert (record["retries"], record["attempts"]) == (1, 4)


@pytest.mark.rule(20)
def test_each_process_has_a_connection_per_bare_request_in_flight_and_none_of_them_counts(cell, bad):
    here = cell(processes="2", concurrency="2", chunk_size="512KiB", iterations=2)
    counted = []

    def close() -> None:
        counted.append(bad.asked)
        bad.ports.clear()

    here.events["close"] = close
    record = here.measure()
    assert counted == [record["attempts"]] == [2 * 2 * 2]
    assert bad.asked - record["attempts"] == 2 * record["ceiling"]["requests"] == 2 * 4
    assert len(bad.ports) == 4


def test_a_ceiling_that_is_refused_leaves_what_was_measured(cell, bad):
    here = cell(iterations=2)
    here.events["close"] = lambda: setattr(bad, "always", "busy")
    record = here.measure()
    assert record["reasons"] == []
    assert len(reads(record)) == 2
    assert [row for row in record["samples"] if row["phase"] == "ceiling"] == []
    assert "failed with 503" in record["ceiling"]["problem"]


def test_a_service_that_stays_busy_is_one_line(store, cell, bad):
    here = cell()
    bad.always = "busy"
    problem = here.problem()
    assert problem.startswith(f"run/blobs-test/0000.bin in {KINDS[store.kind]}")
    assert " throttles requests: lower the concurrency" in problem


@pytest.mark.rule(15)
def test_an_answer_that_is_cut_is_asked_for_again_and_that_is_counted(cell, bad):
    here = cell(iterations=2)
    bad.faults = ["ok", "cut"]
    record = here.measure()
    assert record["reasons"] == []
    assert [row["retries"] for row in reads(record)] == [0, 1]
    assert (record["retries"], record["attempts"]) == (1, 3)


def test_answers_that_are_always_cut_are_one_line(cell, bad):
    here = cell()
    bad.always = "cut"
    assert re.search(r"responses? (was|were) cut", here.problem())


@pytest.mark.rule(9)
@pytest.mark.parametrize("pattern", ["single-file", "broadcast", "scatter"])
def test_an_object_that_is_replaced_between_iterations_is_an_invalid_record_of_those_before(store, cell, bad, pattern):
    here = cell(pattern=pattern, processes="2", iterations=4)
    each = 1 if pattern != "single-file" else 2
    bad.hooks[2 * each + 1] = lambda: store.put("0000.bin", os.urandom(2**20))
    record = here.measure()
    assert len(record["reasons"]) == 1
    assert "run/blobs-test/0000.bin" in record["reasons"][0]
    assert "was replaced or truncated during the measurement" in record["reasons"][0]
    assert len(reads(record)) == 2
    assert record["work"]["tasks_done"] == 4
    assert record["work"]["tasks_asked"] == 8
    assert [row for row in record["samples"] if row["phase"] == "ceiling"] == []


def test_an_object_of_another_size_is_an_invalid_record_without_iterations(store, cell):
    here = cell()
    store.put("0000.bin", b"x" * 4096)
    record = here.measure()
    assert record["reasons"] == ["0000.bin must have 1048576 bytes, as in the manifest (got 4096) (rule 9)"]
    assert record["samples"] == []
    assert record["seconds"]["total"] == 0
    assert record["seconds"]["latency"] is None


@pytest.mark.rule(9)
def test_other_bytes_of_the_same_size_are_found_by_their_checksums(store, cell):
    here = cell(iterations=2, pattern="broadcast", processes="2")
    store.put("0000.bin", bytes(2**20))
    record = here.measure()
    assert record["reasons"] == ["1024 blocks differ from the checksums of the manifest (rule 9)"]


@pytest.mark.parametrize("operation_size", ["1GiB", "64KiB"])
def test_a_changed_byte_in_a_file_with_its_old_time_is_found_by_its_checksum(on_disk, operation_size):
    here = on_disk(operation_size=operation_size, iterations=2, processes="2", pattern="sections")
    path = Path(here.job["local_files"][0])
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(300_000)
        byte = file.read(1)
        file.seek(300_000)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    record = here.measure()
    wrong = record["work"]["blocks_wrong"]
    assert wrong >= 1
    assert record["reasons"] == [f"{wrong} blocks differ from the checksums of the manifest (rule 9)"]
    assert record["work"]["checksum"] != record["work"]["checksum_asked"]


@pytest.mark.parametrize("pattern", ["single-file", "scatter", "mpi-io", "mpi-io-collective-interleaved"])
@pytest.mark.parametrize("change", ["replaced", "truncated"])
def test_a_file_that_is_changed_after_it_was_identified_is_an_invalid_record(on_disk, pattern, change):
    here = on_disk(pattern=pattern, processes="2")
    path = Path(here.job["local_files"][0])

    def replace() -> None:
        if change == "truncated":
            os.truncate(path, 500_000)
        else:
            part = path.with_suffix(".part")
            part.write_bytes(path.read_bytes())
            part.replace(path)

    here.events["open"] = replace
    record = here.measure()
    assert record["reasons"] == [f"{path} was replaced or changed during the measurement (rule 9)"]
    assert reads(record) == []


@pytest.mark.rule(9)
@pytest.mark.parametrize("pattern", ["sections", "mpi-io"])
def test_a_file_that_is_replaced_while_it_is_read_makes_that_iteration_count_for_nothing(on_disk, pattern):
    here = on_disk(pattern=pattern, processes="2", iterations=4)
    path = Path(here.job["local_files"][0])
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    here.pretend(
        "import os\nfrom mpi4py import MPI\nfrom sbench.studies.blobs import process\n"
        "read, done = process.Process._run_iteration, []\n"
        "def replaced(self, *arguments):\n"
        "    count = read(self, *arguments)\n"
        "    done.extend([count] if count else [])\n"
        "    if len(done) == 3 and MPI.COMM_WORLD.rank == 0:\n"
        f"        os.replace({str(copy)!r}, {str(path)!r})\n"
        "    return count\n"
        "process.Process._run_iteration = replaced"
    )
    record = here.measure()
    assert record["reasons"] == [f"{path} was replaced or changed during the measurement (rule 9)"]
    assert [row["phase"] for row in record["samples"]] == ["read", "read"]


def test_a_file_that_is_not_there_is_one_line(on_disk):
    here = on_disk(pattern="multiple-files", processes="2")
    path = Path(here.job["local_files"][1])
    path.unlink()
    here.job["local_files"] = []
    assert here.problem() == f"{path} cannot be opened: No such file or directory"


def test_a_hostfile_with_fewer_slots_than_processes_is_refused(on_disk, tmp_path):
    here = on_disk(processes="4")
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\nnode-1:2\nnode-2\n", encoding="utf-8")
    here.settings["mpi"]["hostfile"] = str(hostfile)
    assert here.problem() == (
        f"{hostfile} has 3 slots, too few for 4 processes; add hosts (name:slots, one per line), or reduce the number"
        " of processes"
    )
    hostfile.write_text("node-1 slots=4\nnode-2:many\n", encoding="utf-8")
    assert here.problem() == f"{hostfile}: a line must be host:slots (got 'node-2:many')"


def ranks_of_this_test() -> list[int]:
    """Return the process numbers of the MPI processes, in the order of their ranks."""
    mark = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}"
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"sbench.studies.blobs.read" in (entry / "cmdline").read_bytes():
                words = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                ranks = [int(word.removeprefix("PMI_RANK=")) for word in words if word.startswith("PMI_RANK=")]
                found |= {rank: int(entry.name) for rank in ranks if mark in words}
    return [found[rank] for rank in sorted(found)]


def test_a_process_that_is_killed_is_one_line(on_disk):
    here = on_disk(processes="3")
    here.events["open"] = lambda: os.kill(ranks_of_this_test()[1], signal.SIGKILL)
    assert here.problem() == "MPI process 1 of 3 was ended by a signal (Killed)"
    until(lambda: processes_of(str(here.folder)) == [])


def test_a_process_that_cannot_import_what_it_needs_ends_them_all(on_disk, tmp_path):
    here, launcher, one = on_disk(processes="3"), tmp_path / "launcher", tmp_path / "one"
    gforker = ROOT / ".venv/bin/mpiexec.gforker"
    launcher.write_text(f'#!/bin/sh\nshift 2\nexec {gforker} -n 3 {one} "$@"\n', encoding="utf-8")
    code = "from mpi4py import MPI; import no_such_module"
    other = f'if [ "$PMI_RANK" = 1 ]; then exec "$1" -sE -m mpi4py -c "{code}"; fi'
    one.write_text(f'#!/bin/sh\n{other}\nexec "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    one.chmod(0o755)
    here.settings["mpi"]["launcher"] = [str(launcher)]
    assert "No module named 'no_such_module'" in here.problem()
    until(lambda: processes_of(str(here.folder)) == [])


def test_words_that_break_off_do_not_hide_the_reason(on_disk, tmp_path):
    here, launcher = on_disk(), tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\nprintf 'no such host\n^^\nAbort(1) on node: x' >&2\nexit 3\n", encoding="utf-8")
    launcher.chmod(0o755)
    here.settings["mpi"]["launcher"] = [str(launcher)]
    assert here.problem() == "launcher ended with status 3 before the end of the reads: no such host"


@pytest.mark.parametrize("delay_s", [0.05, 0.2, 0.35, 0.5])
def test_a_program_that_is_killed_while_its_processes_start_leaves_none_of_them(on_disk, delay_s):
    here = on_disk(processes="4")
    with here.started(here.folder / "log") as process:
        while not ranks_of_this_test():
            time.sleep(0.01)
        time.sleep(delay_s)
        process.kill()
    until(lambda: ranks_of_this_test() == [])


def test_a_launcher_that_labels_lines_is_named(on_disk):
    here = on_disk()
    here.settings["mpi"]["launcher"] = [str(ROOT / ".venv/bin/mpiexec.gforker"), "-l"]
    here.env |= mpi.WITHIN_A_MACHINE
    assert here.problem() == ("the MPI launcher adds text to the output of rank 0; remove its option for labels")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cell_that_hangs_leaves_nothing_behind_when_its_step_ends_it(cell, bad, number):
    reached, released = threading.Event(), threading.Event()

    def hang() -> None:
        reached.set()
        released.wait()

    here = cell(processes="2", iterations=5)
    bad.hooks[3] = hang
    try:
        with here.started(here.folder / "measure.log") as process:
            process.stdout.readline()
            here.say(process, {})
            reached.wait()
            watched = [os.pidfd_open(pid) for pid in ranks_of_this_test()]
            assert len(watched) == 2
            process.send_signal(number)
            process.wait()
            for one in watched:
                select.select([one], [], [])
                os.close(one)
    finally:
        released.set()
    until(lambda: processes_of(str(here.folder)) == [])


@pytest.mark.rule(14)
@pytest.mark.parametrize(
    "other, difference",
    [
        ({"mpi": "MPICH 5.0", "boto3": "1.1"}, "mpi MPICH 5.0, not MPICH 4.3"),
        ({"mpi": "MPICH 4.3", "boto3": "1.2"}, "boto3 1.2, not 1.1"),
        ({"mpi": "MPICH 4.3", "boto3": "1.1", "mpi4py": "4"}, "mpi4py 4, not none"),
    ],
)
def test_ranks_with_other_software_than_rank_0_are_told(other, difference):
    first = {"mpi": "MPICH 4.3", "boto3": "1.1"}
    mpi.expect_same_software(["n1", "n1"], [first, dict(first)])
    with pytest.raises(
        Problem, match=f"rank 1 on n2 runs different software than rank 0: {difference}; install the same"
    ):
        mpi.expect_same_software(["n1", "n2"], [first, other])


def test_half_an_answer_of_ranks_that_were_ended_is_followed_by_why(tmp_path):
    launcher = tmp_path / "launcher"
    words = f'{mpi.PROBLEM}"rank 1 had no room"'
    launcher.write_text(f"#!/bin/sh\nprintf '%s' '{{\"event\": \"sta'\necho '{words}' >&2\nexit 1\n", encoding="utf-8")
    launcher.chmod(0o755)
    with mpi.start_ranks(Mpi([str(launcher)]), 2) as ranks, pytest.raises(Problem, match="rank 1 had no room"):
        ranks.receive_message()
