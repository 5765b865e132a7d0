"""Cells of the blobs study on files: what is read, by whom, from which page cache, and what the record says of it."""

import json
import os
import statistics
from collections import Counter
from pathlib import Path

import pytest
import steady
from blob_cells import Cell
from conftest import ROOT, artefact, program, run_code
from steady import locked

from sbench.probe import provenance, sizes
from sbench.studies.blobs import mpi
from sbench.studies.blobs.patterns import PATTERNS

pytestmark = pytest.mark.thorough

MIB = 2**20
MPI_IO = [pattern for pattern in PATTERNS if pattern.startswith("mpi-io")]


@pytest.fixture
def cell(tmp_path: Path):
    return lambda **levels: Cell(tmp_path, **levels).fill()


@pytest.fixture
def in_memory():
    folder = Path("/dev/shm")
    from sbench.probe import host

    if not folder.is_dir() or host.find_mount(folder)["file_system"] != "tmpfs":
        pytest.skip("a file system in memory is needed at /dev/shm")
    return folder


def reads(record: dict) -> list[dict]:
    return [row for row in record["samples"] if row["phase"] == "read"]


def test_the_manifest_says_what_objects_hold_and_holds_none(tmp_path):
    out = tmp_path / "manifest.json"
    settings = {"size": "1MiB", "objects": 3, "seed": 5}
    done = program(
        "sbench.studies.blobs.make", "--dataset", "blobs-1", "--settings", json.dumps(settings), "--out", out
    )
    assert done.returncode == 0, done.stderr
    manifest = artefact(out)
    assert manifest["layout"] == {"size_bytes": MIB, "objects": 3, "block_bytes": 4096}
    assert len({entry["sha256"] for entry in manifest["files"]}) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    again = program(
        "sbench.studies.blobs.make", "--dataset", "blobs-2", "--settings", json.dumps(settings), "--out", out
    )
    assert again.returncode == 0
    assert artefact(out)["data_sha256"] == manifest["data_sha256"]


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"size": "1MB", "objects": 1, "seed": 1}, "got '1MB'"),
        ({"size": "1MiB", "objects": 0, "seed": 1}, "size and number of objects must be at least 1"),
        ({"size": "1MiB"}, "settings of objects must be objects, seed, size (got size)"),
    ],
)
def test_settings_that_describe_no_objects_are_one_line(tmp_path, settings, reason):
    done = program(
        "sbench.studies.blobs.make", "--dataset", "x", "--settings", json.dumps(settings), "--out", tmp_path / "m.json"
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.rule(9)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("operation_size", ["1GiB", "128KiB"])
def test_every_pattern_reads_what_it_says_and_verifies_it(cell, pattern, operation_size):
    record = cell(pattern=pattern, processes="3", operation_size=operation_size, concurrency="2").measure()
    assert record["reasons"] == []
    everybody = pattern in ("single-file", "multiple-files", "broadcast")
    work, rows = record["work"], reads(record)
    assert len(rows) == 3
    assert work["logical_bytes"] == work["logical_bytes_asked"] == sum(row["bytes"] for row in rows)
    assert work["logical_bytes"] == 3 * MIB * (3 if everybody else 1)
    assert work["checksum"] == work["checksum_asked"]
    assert work["tasks_done"] == work["tasks_asked"] == 9
    several = record["effective"]["operations"] > 1
    assert record["verified"] == ("in a separate pass" if several else "after every iteration")
    assert work["blocks_verified"] == (1 if several else 3) * 256 * (3 if everybody else 1)
    assert record["memory"]["growth_bytes"] <= record["memory"]["allowed_bytes"]
    assert record["retries"] == 0


@pytest.mark.rule(10)
@pytest.mark.parametrize("pattern", MPI_IO)
def test_hints_of_mpi_io_are_read_back_and_a_process_without_work_takes_part(cell, pattern):
    record = cell(pattern=pattern, size="12KiB", processes="4", operation_size="4KiB").measure()
    assert record["reasons"] == []
    assert record["effective"]["idle_processes"] == 1
    assert record["effective"]["mpi_io_hints"]["romio_filesystem_type"]
    assert record["effective"]["client"].startswith("MPI-IO of MPICH ")


@pytest.mark.rule(7)
def test_an_iteration_lasts_from_the_first_begin_to_the_last_end(cell):
    record = cell(processes="2", iterations=4).measure()
    for row in reads(record):
        seconds = [float(word) for word in row["rank_s"].split()]
        assert len(seconds) == 2
        assert row["latency_s"] >= max(seconds) - 1e-6
        assert min(seconds) - 1e-6 <= row["first_done_s"] <= row["latency_s"]
    latencies, seconds = [row["latency_s"] for row in reads(record)], record["seconds"]
    assert seconds["total"] == pytest.approx(sum(latencies[1:]))
    assert seconds["first"] == latencies[0]
    assert record["work"]["timed_bytes"] == 3 / 4 * record["work"]["logical_bytes"]
    assert seconds["latency"] == statistics.median(latencies[1:])
    assert seconds["null"] > 0
    assert seconds["ranks_start"] > 0 < seconds["first_broadcast"]


@pytest.mark.rule(7)
def test_a_process_that_begins_when_others_are_done_does_not_hide_its_wait(cell):
    here = cell(processes="2", iterations=2)
    # As one that gets no core: it leaves the barrier late, and is as quick as ever by its own clock.
    here.pretend(
        "import time\nfrom mpi4py import MPI\nfrom sbench.studies.blobs import process\n"
        "clock, late = time.perf_counter, 1000 * MPI.COMM_WORLD.rank\n"
        "class Late:\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(time, name)\n"
        "    def perf_counter(self):\n"
        "        return clock() + late\n"
        "process.time = Late()"
    )
    record = here.measure()
    for row in reads(record):
        assert max(map(float, row["rank_s"].split())) < 500 < 1000 <= row["latency_s"]
        assert row["first_done_s"] < 500


def test_the_spans_of_machines_are_not_mixed():
    def row(host: str, began: float, ended: float, count: int = 1) -> dict:
        return {"host": host, "times": (began, ended), "bytes": count}

    assert mpi.compute_span([row("a", 10, 11), row("a", 10.5, 12), row("b", 500, 501)]) == (2, 1)
    assert mpi.compute_span([row("a", 1, 2, 0)]) == (1, 0)
    assert mpi.compute_span([row("a", 10, 11), row("a", 10.5, 12), row("a", 10, 10.2, 0)]) == (2, 1), "it read nothing"


@pytest.mark.rule(9)
def test_bytes_that_an_iteration_does_not_bring_are_not_those_of_the_one_before(cell):
    here = cell(processes="2")
    here.pretend(
        "from sbench.stores.posix import reader as posix\nread, calls = posix.Reader.read, []\n"
        "def once(self, *arguments):\n"
        "    calls.append(arguments[2].nbytes)\n"
        "    if len([one for one in calls if one]) == 1 or not calls[-1]:\n"
        "        read(self, *arguments)\n"
        "posix.Reader.read = once"
    )
    # The second and the third iteration of both processes, of 256 blocks each.
    assert here.measure()["reasons"] == ["1024 blocks differ from the checksums of the manifest (rule 9)"]


@pytest.mark.rule(11, 20)
@pytest.mark.parametrize("pattern", ["broadcast", "scatter", "sections"])
def test_reading_is_told_from_distributing_which_mpi_alone_does_once_more(cell, pattern):
    here = cell(pattern=pattern, processes="2", operation_size="256KiB")
    record = here.measure()
    alone = [row for row in record["samples"] if row["phase"] == "distribution"]
    if pattern == "sections":
        assert alone == []
        assert {row["read_s"] for row in reads(record)} == {None}
        return
    assert [row["bytes"] for row in alone] == [row["bytes"] for row in reads(record)[: len(alone)]]
    assert len(alone) == here.settings["ceiling_rounds"]
    assert all(0 < row["read_s"] < row["latency_s"] for row in reads(record))


@pytest.mark.rule(9)
def test_what_a_broadcast_does_not_bring_is_not_what_the_one_before_brought(cell):
    here = cell(pattern="broadcast", processes="2")
    here.pretend(
        "from sbench.studies.blobs import delivery\npass_on, calls = delivery.Broadcast._distribute_operation, []\n"
        "def once(self, number, one):\n"
        "    calls.append(one.bytes)\n"
        "    if len([count for count in calls if count]) <= 1:\n"
        "        pass_on(self, number, one)\n"
        "delivery.Broadcast._distribute_operation = once"
    )
    assert here.measure()["reasons"] == ["512 blocks differ from the checksums of the manifest (rule 9)"]


@pytest.mark.rule(13)
@pytest.mark.parametrize("pattern", ["single-file", "broadcast", "scatter", "mpi-io-collective"])
def test_an_empty_iteration_goes_through_every_operation_and_asks_for_no_byte(cell, pattern):
    here = cell(pattern=pattern, processes="2", operation_size="256KiB")
    here.pretend(
        "import time\nfrom sbench.studies.blobs import delivery\n"
        "for kind in (delivery.Independent, delivery.Broadcast, delivery.Scatter, delivery.MpiIo):\n"
        "    def got(self, one, check, original=delivery.Independent._count_received):\n"
        "        time.sleep(0.005)\n"
        "        return original(self, one, check)\n"
        "    kind._count_received = got"
    )
    record = here.measure()
    assert record["reasons"] == []
    operations = record["effective"]["operations"]
    # Of the two iterations after the first, as the total.
    assert record["seconds"]["null"] >= 2 * operations * 0.005
    assert record["attempts"] == record["effective"]["operations"] * 3 * (
        1 if pattern in ("broadcast", "scatter") else 2
    )


@pytest.mark.rule(8)
def test_the_page_cache_counts_of_the_objects_that_are_read_alone(cell):
    here = cell(cache="cold", objects_made=101)
    with locked(Path(here.job["local_files"][0])):
        record = here.measure()
    assert "expected cold" in record["reasons"][0]
    assert record["cache"]["resident_before"] == 1.0


@pytest.mark.rule(8)
def test_pages_that_are_lost_in_an_iteration_make_a_warm_cell_invalid(cell):
    here = cell(cache="warm")
    here.pretend(
        f"{steady.PRELUDE}from sbench.probe import page_cache\nfrom sbench.stores.posix import reader as posix\n"
        "read = posix.Reader.read\n"
        "def lose(self, *arguments):\n"
        "    read(self, *arguments)\n"
        "    page_cache.evict_files([self.get_path(arguments[0])])\n"
        "posix.Reader.read = lose"
    )
    record = here.measure()
    assert record["reasons"] == [
        "the page cache lost pages while the cell ran (0.0% resident at its end), expected warm (rule 8)"
    ]
    assert record["cache"]["resident_after"] == 0.0


def test_processes_that_are_bound_to_a_core_each_are_not_oversubscribed(cell):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    here = cell(processes="2")
    here.pretend(f"import os\nos.sched_setaffinity(0, {{{cores}[int(os.environ['PMI_RANK'])]}})")
    effective = here.measure()["effective"]
    assert effective["usable_cores"] == 2
    assert not effective["oversubscribed"]


@pytest.mark.rule(14)
def test_the_record_has_the_machine_and_the_mpi_of_the_processes(cell):
    record = cell(processes="2").measure()
    [machine] = record["effective"]["hosts"]
    assert machine["processes"] == 2
    assert "libmpi" in record["software"]["files"], "which the program that starts them has not loaded"
    assert {"cpu", "ram_bytes", "kernel", "file_system", "clock_source"} <= machine.keys()


@pytest.mark.rule(9)
def test_the_same_bytes_have_the_same_checksum_whoever_reads_them(cell):
    found = {
        cell(pattern=pattern, processes=processes).measure()["work"]["checksum"]
        for pattern, processes in [("single-file", "1"), ("sections", "3"), ("scatter", "2"), ("broadcast", "2")]
    }
    assert len(found) == 1


def test_sections_of_objects_of_ones_own_are_read(cell):
    record = cell(pattern="sections-interleaved", processes="4", objects="own").measure()
    assert record["reasons"] == []
    assert record["work"]["logical_bytes"] == 3 * MIB


@pytest.mark.rule(12)
def test_a_process_without_work_is_reported(cell):
    record = cell(pattern="sections", size="8KiB", processes="4").measure()
    assert record["reasons"] == []
    assert record["effective"]["idle_processes"] == 2
    assert record["work"]["tasks_asked"] == record["work"]["tasks_done"] == 3 * 2
    assert record["effective"]["oversubscribed"] == (record["effective"]["usable_cores"] < 4)


@pytest.mark.rule(8)
@pytest.mark.parametrize("state, fraction", [("warm", 1.0), ("cold", 0.0), ("direct", 0.0)])
def test_the_page_cache_is_as_asked_before_every_iteration_and_every_round_of_the_ceiling(cell, state, fraction):
    here = cell(cache=state)
    if state == "warm":
        here.keep_pages()
    record = here.measure()
    assert record["reasons"] == []
    assert [row["resident_before"] for row in record["samples"]] == pytest.approx([fraction] * 5, abs=0.01)
    assert record["effective"]["direct"] == (state == "direct")


@pytest.mark.rule(8)
def test_a_file_that_something_keeps_in_memory_is_not_cold(cell):
    here = cell(cache="cold")
    with locked(Path(here.job["local_files"][0])):
        record = here.measure()
    assert len(record["reasons"]) == 1
    assert "resident) before iteration 1, expected cold; 2 other mismatches" in record["reasons"][0]


def test_direct_input_reads_tails_and_pieces_that_no_page_begins(cell):
    record = cell(cache="direct", size="1100001", chunk_size="100000", concurrency="2").measure()
    assert record["reasons"] == []


def test_direct_input_on_a_file_system_in_memory_is_refused(cell, in_memory, tmp_path):
    import tempfile

    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        problem = Cell(Path(folder), cache="direct").fill().problem()
    assert problem.endswith("tmpfs does not support direct I/O (O_DIRECT); remove direct from cache for this store")


@pytest.mark.rule(8)
def test_files_in_memory_cannot_be_checked_and_are_not_called_warm_or_cold(in_memory):
    import tempfile

    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        record = Cell(Path(folder), cache="cold").fill().measure()
    assert record["reasons"] == []
    assert {row["resident_before"] for row in record["samples"]} == {None}


@pytest.mark.rule(20)
def test_the_ceiling_is_measured_by_the_processes_that_read_each_with_its_requests_in_flight(cell, tmp_path):
    here = cell(pattern="sections", processes="2", concurrency="2", chunk_size="64KiB")
    here.pretend(
        "import os, threading\nfrom sbench.stores import bare\n"
        "real = bare._File.read_range\n"
        "def get(self, *arguments):\n"
        f"    with open({str(tmp_path / 'bare')!r}, 'a') as file:\n"
        "        file.write(f'{os.getpid()} {threading.get_ident()}\\n')\n"
        "    real(self, *arguments)\n"
        "bare._File.read_range = get"
    )
    record = here.measure()
    rounds = [row for row in record["samples"] if row["phase"] == "ceiling"]
    amounts = {"processes": 2, "threads": 4, "requests": 4}
    assert record["ceiling"] == {**amounts, "problem": None}
    assert [row["bytes"] for row in rounds] == [MIB, MIB]
    assert all(row["latency_s"] > 0 and len(row["rank_s"].split()) == 2 for row in rounds)
    requests = [line.split() for line in (tmp_path / "bare").read_text(encoding="utf-8").splitlines()]
    assert sorted(Counter(process for process, _ in requests).values()) == [4, 4], "two in each of two rounds"
    assert len({tuple(request) for request in requests}) == 4


@pytest.mark.rule(20)
def test_a_process_that_ends_in_the_ceiling_leaves_what_was_measured(cell):
    here = cell(processes="2")
    here.pretend(
        "import os\nfrom mpi4py import MPI\nfrom sbench.studies.blobs import ceiling\n"
        "if MPI.COMM_WORLD.rank:\n"
        "    ceiling.BareClient.read_shares = lambda self: os.kill(os.getpid(), 9)"
    )
    record = here.measure()
    assert record["reasons"] == []
    assert [row["phase"] for row in record["samples"]] == ["read"] * 3
    assert record["ceiling"]["problem"] == "MPI process 1 of 2 was ended by a signal (Killed)"


@pytest.mark.rule(7)
@pytest.mark.parametrize("pattern", ["single-file", "mpi-io-collective"])
def test_what_a_file_is_is_not_looked_at_while_an_iteration_is_timed(cell, tmp_path, pattern):
    here = cell(pattern=pattern, processes="2")
    here.pretend(
        "import os\nfrom sbench.studies.blobs import process\nfrom sbench.stores.posix import reader\n"
        "stat, read, looks = os.stat, process.Process._run_iteration, []\n"
        "class Os:\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(os, name)\n"
        "    def stat(self, path):\n"
        "        looks.append('look')\n"
        "        return stat(path)\n"
        "reader.os = Os()\n"
        "def timed(self, *arguments):\n"
        "    looks.append('begin')\n"
        "    count = read(self, *arguments)\n"
        "    looks.append('end' if count else 'nothing')\n"
        f"    open({str(tmp_path)!r} + f'/looks-{{self._comm.rank}}', 'w').write(' '.join(looks))\n"
        "    return count\n"
        "process.Process._run_iteration = timed"
    )
    assert here.measure()["reasons"] == []
    for rank in range(2):
        looks = (tmp_path / f"looks-{rank}").read_text(encoding="utf-8")
        assert looks.endswith("look begin end look begin end look begin end"), "before the first and after each"
        assert looks.count("begin look") == 0


@pytest.mark.rule(10)
def test_the_record_says_what_held(cell):
    effective = cell(processes="2", chunk_size="128KiB", concurrency="3").measure()["effective"]
    assert effective["processes"] == 2
    assert [host["processes"] for host in effective["hosts"]] == [2]
    assert effective["mpi"].startswith("MPICH ")
    assert effective["launcher"] == "mpiexec.gforker"
    assert (effective["chunk_bytes"], effective["concurrency"]) == (128 * 1024, 3)
    few = cell(processes="2", chunk_size="512KiB", concurrency="3").measure()
    assert few["effective"]["concurrency"] == 2
    assert few["ceiling"]["threads"] == 2 * 2
    assert (effective["object_bytes"], effective["block_bytes"], effective["operations"]) == (MIB, 4096, 1)


@pytest.mark.rule(14)
def test_arms_that_load_other_readers_of_the_same_code_have_the_same_hash(cell):
    plain, collective = (cell(pattern=pattern).measure()["modules"] for pattern in ("sections", "mpi-io-collective"))
    assert "sbench.stores.s3.reader" in plain
    assert provenance.compute_code_sha256(plain) == provenance.compute_code_sha256(collective)


@pytest.mark.rule(14)
@pytest.mark.parametrize("program", ["step", "sbench.studies.blobs.read"])
def test_whichever_store_a_process_has_loaded_it_is_the_same_code(program):
    """Stores that are compared are read by modules of their own; what they import counts too."""
    found, everything = set(), set(provenance.list_package_modules("probe", "stores"))
    for folder in ("posix", "s3", "azure"):
        modules = [path.stem for path in (ROOT / "scripts/sbench/stores" / folder).glob("[a-z]*.py")]
        names = ", ".join(f"sbench.stores.{folder}.{module}" for module in modules)
        code = f"import sys, {program}, {names}; print(*sys.modules)"
        done = run_code(code)
        loaded = {name for name in done.stdout.split() if name.startswith("sbench.")}
        assert f"sbench.stores.{folder}.reader" in loaded
        found.add(provenance.compute_code_sha256(loaded | everything))
    assert len(found) == 1


def test_a_launcher_that_is_named_is_used_as_it_is(cell):
    here = cell()
    here.settings["mpi"]["launcher"] = [str(ROOT / ".venv/bin/mpiexec.gforker"), "-maxtime", "60"]
    assert here.measure()["effective"]["launcher"] == "mpiexec.gforker -maxtime 60"


@pytest.mark.rule(10)
def test_processes_that_do_not_find_one_another_are_refused(cell):
    here = cell(processes="2")
    here.settings["mpi"]["launcher"] = ["sh", "-c", 'shift 2; exec "$@"', "launcher"]
    assert here.problem() == (
        "MPI must start 2 processes (got 1); does the launcher belong to the MPI library (library under mpi)?"
    )


def test_a_launcher_that_is_not_there_is_one_line(cell):
    here = cell()
    here.settings["mpi"]["launcher"] = ["no-such-mpiexec"]
    assert here.problem() == "no-such-mpiexec does not start (No such file or directory); correct launcher under mpi"


@pytest.mark.parametrize("pattern", ["single-file", "broadcast", "sections-interleaved", "mpi-io-collective"])
def test_a_process_holds_an_operation_and_not_the_object(cell, pattern):
    here = cell(size="160MiB", pattern=pattern, operation_size="4MiB", iterations=1, objects_made=1)
    memory = here.measure()["memory"]
    assert memory["allowed_bytes"] == (4 + 64) * MIB < 80 * MIB
    assert memory["growth_bytes"] <= memory["allowed_bytes"]


def test_buffers_that_do_not_fit_are_refused_with_the_arithmetic(cell):
    here = cell(processes="4")
    here.manifest["layout"] |= {"size_bytes": 2**50, "block_bytes": sizes.compute_block_bytes(2**50)}
    here.levels["operation_size"] = "64TiB"
    here.write()
    problem = here.problem()
    assert problem.startswith("4 processes × (64 TiB + 64 MiB) = 256 TiB do not fit into the ")
    assert problem.endswith("choose a smaller operation_size, or fewer processes")


def test_how_lustre_stripes_a_file_is_read_from_its_own_tool(tmp_path, monkeypatch):
    from sbench.studies.blobs.measure import read_stripe

    tool = tmp_path / "lfs"
    words = "lmm_stripe_count:  4\\nlmm_stripe_size:   1048576\\nlmm_stripe_offset: 2\\n"
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = 'getstripe -c -S -i /x' ] && printf '{words}'\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_stripe("/x") == {"stripe_count": "4", "stripe_size": "1048576", "stripe_offset": "2"}
