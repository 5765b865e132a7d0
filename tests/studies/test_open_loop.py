"""Latencies that count from when operations were due: a stall is what all those that came meanwhile had to wait."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from batteries import Place, needed
from volume_cells import Cell

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.studies.volumes import fio, fio_output
from tests.helpers.volumes_records import OPTIONS, chosen, fio_bins, gather, record, sample, write_run

RATE = "[fio_io]\nrw=write\nioengine=sync\nsync=dsync\nsize=230k\nbs=2300\nrate_iops=200\n"
# The 20th write takes half a second: for whoever asks fio to write, the volume stalls.
STALL = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t write(int file, const void *bytes, size_t size) {
    static int count;
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (size == 2300 && ++count == 20) usleep(500000);
    return real(file, bytes, size);
}
"""


@pytest.mark.rule(18)
def test_a_stall_is_counted_for_each_operation_that_was_due_meanwhile():
    counted = fio_output.compute_due_latencies([10**6] * 50 + [10**9] + [10**6] * 950, 100)
    late = sum(ns > 100 * 10**6 for ns in counted)
    # While it stalls 100 are due; each 10 ms the queue loses 9 ms.
    assert counted[:50] == [10**6] * 50
    assert counted[50:53] == [10**9, 991 * 10**6, 982 * 10**6]
    assert late == 100
    assert counted[-1] == 10**6


@pytest.mark.rule(18)
def test_fio_itself_counts_a_stall_once_and_the_study_what_it_cost(place: Place, monkeypatch):
    (place.folder / "stall.c").write_text(STALL, encoding="utf-8")
    library = place.folder / "stall.so"
    subprocess.run([needed("gcc"), "-shared", "-fPIC", "-o", library, place.folder / "stall.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    done = place.run(RATE, jobs=1, out=place.out)
    assert done.returncode == 0, done.stderr
    battery = fio.read_battery(place.results)
    assert (battery["loop"], battery["faults"], battery["left_out"]) == ("open", [], [])
    (own,) = json.loads((place.results / "fio_results_write_a1.json").read_text())["jobs"]
    bins = {"fio": own["write"]["clat_ns"]["bins"].items(), "study": battery["histograms"]["a1"]["write"]}
    late = {name: sum(count for ns, count in pairs if int(ns) > 250e6) for name, pairs in bins.items()}
    assert late["fio"] == 1
    assert late["study"] >= 40
    row = battery["samples"][0]
    assert (row["write_N"], row["write_ios"]) == (102, 102)
    assert row["write_lat_max_ms"] >= 500


def test_a_cell_with_a_rate_is_an_open_loop_of_the_study(place: Place):
    measured = Cell(place, RATE, jobs=2).measure()
    assert (measured["status"], measured["valid"], measured["reasons"], measured["loop"]) == ("done", True, [], "open")


def test_a_job_without_each_latency_in_its_log_is_no_open_loop(place: Place):
    assert place.run(RATE, jobs=1).returncode == 0
    log = place.results / "latencies_a1.txt"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]), encoding="utf-8")
    assert fio.read_battery(place.results)["loop"] == "closed"
    log.unlink()
    assert fio.read_battery(place.results)["loop"] == "closed"


def test_a_rate_that_is_not_even_is_left_out_with_the_reason(monkeypatch, tmp_path: Path):
    monkeypatch.setattr("sbench.studies.volumes.config_files.JOB_FILE", str(tmp_path / "{}.fio"))
    (tmp_path / "etcd-rate.fio").write_text(RATE + "rate_process=poisson\n", encoding="utf-8")
    (tmp_path / "etcd.fio").write_text(RATE.replace("rate_iops=200\n", ""), encoding="utf-8")
    mapping = {"store": ["disk"], "job": ["etcd", "etcd-rate"], "background": ["none"]}
    section = {"matrix": mapping, "compare": []}
    config = {"run": "test", "stores": {"disk": {"kind": "posix"}}, "studies": {"volumes": section}}
    cells, (left_out,) = matrix.expand_matrix(configuration.resolve_config(config, []), "volumes")
    assert [cell.levels["job"] for cell in cells] == ["etcd"]
    assert (
        left_out.reason == "etcd-rate has rate_iops: an open loop needs an even rate and a single operation in flight"
    )


def test_open_and_closed_loops_are_never_compared(tmp_path: Path):
    def batteries(job: str, loop: str) -> list[dict]:
        latencies = np.full(2_000, 2e7)
        row = sample(latencies) | {"sync_N": 0, "sync_lat_mean_ms": None, "write_lat_mean_ms": 20.0, "write_N": 2_000}
        samples = [row | {"number": number, "job_Id": f"a{number}"} for number in range(1, 7)]
        bins = {f"a{number}": {"write": fio_bins(latencies).tolist()} for number in range(1, 7)}
        return [record("disk", samples, bins, cell={"job": job}, job_options=OPTIONS, loop=loop)]

    run = write_run(tmp_path, [*batteries("a", "closed"), *batteries("b", "open"), *batteries("c", "closed")])
    mine = {"name": "mine", "p99_ms": 10, "source": "me"}
    tables = gather(run, compare=[{"factor": "job", "baseline": "a"}], limits=[mine])
    assert set(tables["comparisons"]["contender"]) == {"c"}
    # Its share of operations is that of time.
    shares = chosen(tables["verdicts"], segment="all").set_index("job")[
        ["operations_over_percent", "time_over_percent"]
    ]
    assert shares.notna().to_numpy().tolist() == [[True, True], [True, False], [True, True]]
