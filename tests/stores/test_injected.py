"""Faults that the proxy injects, and connections that it encrypts, as the libraries under test take them."""

import contextlib
import http.client
import os
import ssl
import urllib.request
from dataclasses import replace

import pytest
from conftest import artefact

from sbench.design import blocks, matrix, records
from sbench.design import config as configuration
from sbench.probe.program import Problem
from sbench.stores import faults, trust
from sbench.stores import store as stores
from sbench.stores.s3 import client as s3
from sbench.studies.shots import injected
from sbench.studies.shots.report import recovery, results

# Many small requests: what ROS3 keeps of a file holds no data.
READ = {"store": "s3", "layout": "shot-major", "access": "signals", "read_signals": 2}
S3 = {"kind": "s3", "bucket": "injected", "server": "embedded", "region": "us-east-1", "prefix": "", "anonymous": False}


@contextlib.contextmanager
def served(tmp_path, environments, fault=None, **store):
    """Serve one object behind the proxy; yield what serves it, and its signed address."""
    kept = stores.get_store(S3 | store)
    binaries = artefact(environments / "servers.json")
    network = {"latency_ms": 0} | ({"fault": fault} if fault else {})
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        kept.serve_folder(binaries, tmp_path / "s", network, log) as one,
    ):
        env = kept.resolve_holder_url(one, {})[1]
        if store:
            trust.install_certificate(one.proxy.fetch_authority())
        client = s3.build_client(kept.spec, env)
        client.create_bucket(Bucket="injected")
        client.put_object(Bucket="injected", Key="o", Body=b"x" * 100_000)
        client.close()
        yield one, kept.sign_addresses({"key": ""}, ["o"], env)["o"][0]


def outcome(address, context=None):
    """Ask for an object once; return what came: its bytes, a status with the code, or the name of an error."""
    try:
        with urllib.request.urlopen(address, context=context) as answer:
            return len(answer.read())
    except urllib.error.HTTPError as error:
        return f"{error.code} {'SlowDown' if b'<Code>SlowDown</Code>' in error.read() else ''}"
    except http.client.IncompleteRead as error:
        return f"{len(error.partial)} of {len(error.partial) + error.expected}"
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__


@pytest.mark.parametrize(
    "kind, came",
    [("reset", "ConnectionResetError"), ("503", "503 SlowDown"), ("cut", "50000 of 100000")],
)
def test_every_nth_get_of_the_window_meets_the_fault_and_no_other(tmp_path, environments, kind, came):
    with served(tmp_path, environments, {"fault": kind, "every": 3, "first": 2}) as (one, address):
        before = [outcome(address) for _ in range(4)]
        one.open_window()
        within = [outcome(address) for _ in range(6)]
        _, passed = one.close_window()
        after = [outcome(address) for _ in range(4)]
    assert before == after == [100_000] * 4
    assert within == [100_000, came, 100_000, 100_000, came, 100_000]
    assert passed["injected"] == 2
    assert len(passed["exchanges"]) == 6


def test_the_arms_of_a_block_meet_the_same_faults_and_blocks_others():
    drawn = [faults.plan_fault("cut-every-20", 1, repeat) for repeat in range(1, 30)]
    assert drawn == [faults.plan_fault("cut-every-20", 1, repeat) for repeat in range(1, 30)]
    assert {fault["first"] for fault in drawn} <= set(range(1, 21))
    assert len({fault["first"] for fault in drawn}) > 5
    assert faults.plan_fault("none", 1, 1) is None


@pytest.mark.rule(15)
def test_ros3_of_1_14_fails_at_a_503_and_that_of_2_0_recovers_and_both_are_results(shots_cell):
    kept, places = [], {}
    for version in ("1.14.6", "2.0.0"):
        levels = READ | {"library": f"hdf5-{version}", "driver": "ros3", "fault": ["none", "503-every-4"]}
        here = places[version] = shots_cell(within=version, s3={"network": {}}, **levels)
        for cell in here.cells:
            out = here.folder / "shots" / "records" / cell.name / "repeat=1.json"
            done = here.step(out, 1, cell=cell)
            assert (done.returncode, done.stderr) == (0, ""), "a result is no failure of the run"
            assert records.list_failure_reasons(out, here.folder, "test") == []
            kept.append(records.Kept(cell.name, cell.levels, 1, out, artefact(out)))
    assert [one.record["status"] for one in kept] == ["done", "failed", "done", "done"]
    old, new = injected.list_outcomes(kept)
    assert (old["attempts"], old["failed"], old["injected"]) == (1, 1, 0)
    assert (new["attempts"], new["failed"], new["missed"], new["extra_gets"]) == (1, 0, 0, 1.0)
    assert new["injected"] == kept[3].record["injected"]["count"] >= 2
    assert new["extra_s"] > 0
    # No block is appended for a read that failed at a fault.
    session = kept[1].record["session"]
    sessions = {one.cell: {1: session} for one in kept[:2]}
    assert records.is_injected_failure(kept[1].record)
    assert blocks.count_lacking_blocks(places["1.14.6"].cells, [], sessions, 1) == 0


def test_a_fault_that_met_no_request_is_no_recovery(shots_cell):
    # All of the file comes in one GET.
    here = shots_cell(library="hdf5-1.14.6", store="s3", driver="ros3", fault="cut-every-50", s3={"network": {}})
    record = here.measure()
    first = record["injected"]["first"]
    assert (record["status"], record["valid"]) == ("done", False)
    assert f"no fault was injected: the first was due at GET {first}, the cell sent 1;" in record["reasons"][0]
    (row,) = injected.list_outcomes([records.Kept("c", here.cell.levels, 1, here.folder, record)])
    assert (row["attempts"], row["missed"]) == (0, 1)


@pytest.mark.parametrize("library", ["hdf5-1.14.6", "hdf5-2.0.0"])
def test_ros3_reads_over_tls_and_trusts_the_authority_of_its_own_step_alone(shots_cell, library):
    if why := trust.describe_mount_obstacle():
        pytest.skip(f"no mounts of one's own: {why}")
    here = shots_cell(library=library, store="s3", driver="ros3", s3={"network": {}, "tls": True})
    record = here.measure()
    assert record["valid"], record["reasons"]
    assert record["network"]["handshakes"] == record["network"]["connections"] >= 1
    assert record["network"]["round_trip_s"] > 0


def test_who_does_not_trust_the_authority_is_refused_and_it_lives_as_long_as_its_proxy(
    tmp_path, environments, monkeypatch
):
    for name in trust.VARIABLES:
        monkeypatch.setenv(name, os.devnull)
    authorities = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        with served(tmp_path / str(number), environments, network={}, tls=True) as (one, address):
            authorities.append(one.proxy.fetch_authority())
            one.open_window()
            assert address.startswith("https://127.0.0.1:")
            assert outcome(address, ssl.create_default_context(cadata=authorities[0])) == (
                "SSLCertVerificationError" if number else 100_000
            )
            _, passed = one.close_window()
        assert (passed["handshakes"], passed["refused"]) == (1, number)
    assert authorities[0] != authorities[1]


@pytest.mark.rule(15)
def test_the_page_says_who_recovers_with_figures(synthetic):
    run = results.load_results(synthetic("shots"))
    old, new = run.cells["cell"].iloc[:2]
    cells = run.cells.assign(fault="none")
    cells.loc[:1, "fault"] = "cut-every-4"
    counts = {"attempts": 6, "missed": 0}
    outcomes = [
        counts | {"cell": old, "failed": 6, "injected": 0, "extra_gets": None, "extra_s": None},
        counts | {"cell": new, "failed": 0, "injected": 32, "extra_gets": 1.0, "extra_s": 0.25},
    ]
    run = replace(run, cells=cells, facts=run.facts | {"injected": outcomes})
    said = " ".join(recovery.describe_recovery(run))
    assert "does not recover from" in said
    assert "a response cut at half its length in every 4th GET (6 of 6 reads failed [54, 100 %])" in said
    assert "(0 of 6 reads failed [0, 46 %]; 32 faults survived, each at a cost of 1 additional GET and 0.25 s)" in said
    assert list(recovery.build_recovery_table(run).frame["failed"]) == [6, 0]
    first = recovery.render_headline(run)
    assert "recovered in all 6 reads with a fault; of the reads by " in first
    assert "6 of 6 failed with a response cut at half its length in every 4th GET" in first
    run = replace(run, facts={})
    assert (recovery.describe_recovery(run), recovery.render_headline(run)) == ([], "")


def config(**levels):
    values = {
        "run": "x",
        "libraries": {"old": {"kind": "source", "hdf5": "1.14.6"}, "new": {"kind": "source", "hdf5": "2.0.0"}},
        "stores": {
            "disk": {"kind": "posix"},
            "bare": {"kind": "s3", "bucket": "bbb", "server": "embedded"},
            "aws": {"kind": "s3", "bucket": "bbb"},
            "s3": {"kind": "s3", "bucket": "bbb", "server": "embedded", "network": {}},
            "s3-tls": {"kind": "s3", "bucket": "bbb", "server": "embedded", "network": {}, "tls": True},
        },
        "studies": {
            "shots": {
                "control_cells": 0,
                "matrix": {
                    **{"library": ["new"], "store": ["s3"], "driver": ["ros3"], "layout": ["single-shot"]},
                    **{"access": ["shots"], "workers": [1], "page_buffer": ["unset"], "cache": ["cold"]},
                    **levels,
                },
            }
        },
    }
    return configuration.resolve_config(values, [])


@pytest.mark.parametrize("store, driver", [("disk", "sec2"), ("bare", "ros3"), ("aws", "ros3")])
def test_faults_need_a_proxy(store, driver):
    with pytest.raises(Problem, match=f"fault injection requires .* to store {store}") as problem:
        matrix.expand_matrix(config(store=[store], driver=[driver], fault=["503-every-9"]), "shots")
    assert len(str(problem.value).splitlines()) == 1


def test_tls_where_nobody_can_be_made_to_trust_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(trust, "describe_mount_obstacle", lambda: "unshare: Operation not permitted")
    cells, omitted = matrix.expand_matrix(config(library=["old", "new"], store=["s3", "s3-tls"]), "shots")
    assert [(cell.levels["library"], cell.levels["store"]) for cell in cells] == [
        ("old", "s3"),
        ("new", "s3"),
        ("new", "s3-tls"),
    ]
    refused = "old cannot trust the certificate of store s3-tls here (unshare: Operation not permitted); run as root"
    assert [one.reason for one in omitted] == [refused]


def test_what_the_schema_refuses():
    for bad in ("503", "503-every-0", "hang-every-3"):
        with pytest.raises(Problem, match="fault"):
            config(fault=[bad])


def test_cells_without_faults_are_those_that_they_were():
    plain, faulty = matrix.expand_matrix(config(fault=["none", "reset-every-4"]), "shots")[0]
    assert "fault" not in plain.settings["cell"]
    assert "none" not in plain.name
    assert "reset-every-4" in faulty.name
