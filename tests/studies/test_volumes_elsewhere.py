"""Volumes of other hosts are cells like any other: measured through a shell, described by what it says there."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from batteries import ENDLESS, TINY, Place, emptied, until
from conftest import processes_of, sbench
from volume_cells import Cell

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.pages.names import Names
from sbench.probe import host
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.studies.volumes.report import REPORT


@pytest.fixture
def elsewhere(tmp_path: Path) -> list[str]:
    """Return a shell on a host of another name: this one, with a namespace of its own for names."""
    alone = shutil.which("unshare")
    if not alone or subprocess.run([alone, "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace of its own for a host's name may not be made here")
    script = tmp_path / "elsewhere"
    script.write_text(
        '#!/bin/sh\nexec unshare --uts sh -c \'hostname elsewhere && exec "$@"\' sh "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return [str(script)]


def measured(place: Place, shell: list[str], text: str = TINY, **options: object) -> dict:
    return Cell(place, text, store={"path": str(place.volume), "shell": shell}, jobs=2, **options).measure()


def is_whole(place: Place, record: dict) -> None:
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    assert record["work"]["jobs_done"] == len(record["samples"]) == len(record["histograms"]) == 2
    assert emptied(place)
    assert not any(path.name.endswith(".scratch") for path in place.folder.iterdir())


def test_a_battery_through_a_shell_is_a_record_with_that_hosts_facts(place: Place, elsewhere: list[str]):
    record = measured(place, elsewhere, background="same")
    is_whole(place, record)
    assert record["background"]["write_bytes"] > 0
    assert {row["node_name"] for row in record["samples"]} == {record["host"]["node"]} == {"elsewhere"}
    mount = host.find_mount(place.volume)
    assert {name: record["host"][name] for name in ("mount_point", "file_system")} == {
        name: mount[name] for name in ("mount_point", "file_system")
    }
    assert record["host"]["kernel"] == os.uname().release
    # What nobody has read over there is not taken from here.
    assert "boot" not in record["host"]


def test_a_battery_over_ssh_is_a_record(place: Place, ssh: list[str]):
    is_whole(place, measured(place, ssh))


def test_a_battery_with_an_open_loop_comes_back_with_its_log(place: Place):
    text = TINY.replace("fdatasync=1", "sync=dsync\nrate_iops=400")
    record = measured(place, ["env"], text)
    is_whole(place, record)
    assert record["loop"] == "open"


def test_a_shell_that_leads_nowhere_fails_the_cell_in_one_line(place: Place):
    record = measured(place, ["false"])
    assert record["status"] == "failed"
    assert "'false' must open a shell" in record["reasons"][0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_a_step_is_ended_nothing_goes_on_over_there(place: Place, number: int):
    cell = Cell(place, ENDLESS, store={"path": str(place.volume), "shell": ["env"]})
    process = cell.start()
    until(lambda: cell.said("[a1] 1 of 3"))
    os.kill(process.pid, number)
    process.wait()
    until(lambda: emptied(place))
    until(lambda: not processes_of(str(place.volume)))


def planned(tmp_path: Path, **store: object) -> Path:
    spec = {"kind": "posix", "path": str(tmp_path), "shell": ["env"], **store}
    mapping = {"store": ["far", "near"], "job": ["etcd-short"], "background": ["none", "other"]}
    section = {"matrix": mapping, "other": "near", "compare": []}
    file = tmp_path / "shell.yaml"
    stores = {"far": spec, "near": {"kind": "posix", "path": str(tmp_path)}}
    file.write_text(json.dumps({"run": "shell", "stores": stores, "studies": {"volumes": section}}), encoding="utf-8")
    return file


def test_cells_of_both_hosts_take_turns_and_a_load_beside_is_on_the_same(tmp_path: Path):
    cells, left_out = matrix.expand_matrix(configuration.load_config(planned(tmp_path)), "volumes")
    assert [cell.levels["store"] for cell in cells] == ["far", "near"]
    assert left_out[0].reason == "the background load on near would run on another host"


def test_the_look_before_a_run_goes_through_the_shell(tmp_path: Path):
    lines = sbench("check", planned(tmp_path)).stdout.splitlines()
    assert f"ok     volume far: {os.uname().nodename}" in lines
    done = sbench("check", planned(tmp_path, path="/nowhere"))
    assert done.returncode == 1
    assert "'env' did not reach the volume: host" in " ".join(done.stdout.split())


def test_mistakes_about_a_shell_are_one_line(tmp_path: Path):
    with pytest.raises(Problem, match=r"stores\.far\.volume: instance describes volumes of this machine only"):
        configuration.load_config(planned(tmp_path, volume="instance"))
    store = stores.get_store({"kind": "posix", "shell": ["env"], "path": str(tmp_path)})
    with pytest.raises(Problem, match="a store with a shell cannot hold data"):
        store.provide_dataset("data", [], tmp_path, None, print)


def test_a_volume_of_another_host_is_called_by_its_own_name():
    facts = {"stores": {"gp2x1": {"kind": "posix", "path": "/var/lib/etcd", "shell": ["ssh", "host"]}}}
    assert Names(REPORT, facts).format_store("gp2x1") == "gp2x1"
