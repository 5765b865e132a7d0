"""Azure: the embedded Blob server, datasets in containers and shares, and what is said when something is amiss."""

import contextlib
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import azure_files
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from bad_store import PAGES, portal
from batteries import until
from conftest import ROOT, artefact, processes_of, program, sbench

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.design.plan import build_plan
from sbench.measure import cell
from sbench.probe import content
from sbench.probe.program import build_command
from sbench.stores import store as stores
from sbench.stores.azure import client as azure
from sbench.stores.azure import store as azurite_server
from sbench.stores.embedded import Served

pytestmark = pytest.mark.late

MIB = 2**20
EMBEDDED = {"kind": "azure-blob", "container": "bench", "prefix": "some/folder", "server": "embedded"}
FILES = {"kind": "azure-files", "share": "bench", "prefix": "some/folder"}
_SAS = "sv=2024-01-01&sig=of-the-tests"
BUCKET = {"bucket": "bench", "prefix": "some/folder", "region": "us-east-1", "anonymous": False}


def service(served: Served, **options: object) -> BlobServiceClient:
    """Return a client of Azure's own SDK for an embedded server."""
    url = f"{served.endpoint}/{served.credentials['account']}"
    return BlobServiceClient(url, credential=served.credentials["key"], **options)


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the manifest of two objects of two parts each, which lie on no disk."""
    out = tmp_path_factory.mktemp("objects") / "manifest.json"
    settings = json.dumps({"size": "20MiB", "objects": 2, "seed": 1})
    done = program("sbench.studies.blobs.make", "--dataset", "blobs-test", "--settings", settings, "--out", out)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["manifest.json"]
    return out


@pytest.fixture
def files_account(monkeypatch: pytest.MonkeyPatch):
    """Return the stand-in of Azure Files with a share in it, named by this process's environment."""
    with azure_files.serving() as server:
        monkeypatch.setenv(azure.CONNECTION, server.connection_string)
        with azure.build_client(FILES) as share:
            share.create_share()
        yield server


def provide(store: dict, manifest: Path, folder: Path, environments: Path, **env: str) -> subprocess.CompletedProcess:
    """Bring a dataset into a store as the workflow does; the artefact is provision.json in `folder`."""
    clean = {name: value for name, value in os.environ.items() if name not in (azure.CONNECTION, azure.SAS)}
    return program(
        *("provision", "--store", json.dumps(store), "--manifest", manifest, "--folder", folder / "store"),
        *("--servers", environments / "servers.json", "--out", folder / "provision.json"),
        env=clean | env,
    )


def provided(store: dict, manifest: Path, folder: Path, environments: Path, **env: str) -> dict:
    """Return the artefact of a dataset that was brought into a store."""
    done = provide(store, manifest, folder, environments, **env)
    assert done.returncode == 0, done.stderr
    return artefact(folder / "provision.json")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory, environments: Path):
    """Return an account that is not the workflow's own, with a container in it: Azurite as its owner would start it."""
    folder = tmp_path_factory.mktemp("account")
    binaries = artefact(environments / "servers.json")
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        stores.get_store(EMBEDDED).serve_folder(binaries, folder / "azurite", None, log) as served,
    ):
        with service(served) as client:
            client.create_container("bench")
        yield served


@pytest.fixture
def azurite(tmp_path: Path, environments: Path):
    """Return how to start the embedded server on this test's folder, with a network or without."""

    def start(network: dict | None = None):
        binaries = artefact(environments / "servers.json")
        return stores.get_store(EMBEDDED).serve_folder(
            binaries, tmp_path / "azurite", network, log, azurite_server.Blob.saves_s
        )

    with open(tmp_path / "azurite.log", "w", encoding="utf-8") as log:
        yield start


def test_blobs_are_still_there_when_the_server_is_started_again_with_another_key(azurite, tmp_path):
    contents = {"small": os.urandom(1000), "large": os.urandom(64 * MIB), "blocks": os.urandom(9 * MIB)}
    with azurite() as first:
        container = service(first, max_single_put_size=65 * MIB).create_container("kept")
        for name in ("small", "large"):
            container.upload_blob(name, contents[name])
        blocks = service(first, max_single_put_size=MIB, max_block_size=2 * MIB).get_container_client("kept")
        blocks.upload_blob("blocks", contents["blocks"])
    assert first.processes["azurite"].returncode == 0
    with azurite() as second:
        container = service(second).get_container_client("kept")
        for name, content in contents.items():
            assert container.download_blob(name).readall() == content
        second.credentials["key"], key = first.credentials["key"], second.credentials["key"]
        with pytest.raises(HttpResponseError, match="AuthorizationFailure"):
            service(second).get_container_client("kept").download_blob("small")
    held = sum(path.stat().st_size for path in azurite_server.list_extent_files(tmp_path / "azurite"))
    assert held == sum(map(len, contents.values()))
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path not in azurite_server.list_extent_files(path.parents[1])
    ]
    assert len(written) >= 3
    assert [path for path in written if key.encode() in path.read_bytes()] == []


@pytest.mark.rule(11)
def test_requests_to_azurite_within_the_window_are_counted_exactly(azurite, tmp_path):
    with azurite({}) as served:
        with service(served) as client:
            client.create_container("counted").upload_blob("object", os.urandom(MIB))
        served.open_window()
        with service(served) as client:
            container = client.get_container_client("counted")
            for number in range(50):
                assert len(container.download_blob("object", offset=number, length=1000).readall()) == 1000
            assert container.get_blob_client("object").exists()
            assert not container.get_blob_client("absent").exists()
            assert [blob.name for blob in container.list_blobs()] == ["object"]
        requests, _ = served.close_window()
    assert {method: requests[method]["count"] for method in requests} == {"GET": 51, "HEAD": 2}
    assert requests["GET"]["listings"] == 1
    assert (requests["GET"]["failed"], requests["HEAD"]["failed"]) == (0, 1)
    assert requests["GET"]["bytes_offered"] == 50_000
    assert 50_000 < requests["GET"]["bytes_delivered"] < 100_000
    assert requests["HEAD"]["bytes_offered"] == 0
    # An address may carry a signature, so none stands in a log.
    assert "/counted" not in (tmp_path / "azurite.log").read_text(encoding="utf-8")


def test_generated_objects_reach_an_embedded_container_and_are_found_there(tmp_path, environments, manifest, azurite):
    first = provided(EMBEDDED, manifest, tmp_path, environments)
    assert first["upload"] == {"uploaded": 2, "found": 0}
    assert first["data_sha256"] == artefact(manifest)["data_sha256"]
    assert sum(Path(name).stat().st_size for name in first["local_files"]) == 40 * MIB
    second = provided(EMBEDDED, manifest, tmp_path, environments)
    assert second == first | {"upload": {"uploaded": 0, "found": 2}}
    entry = artefact(manifest)["files"][1]
    with open(tmp_path / "log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
        served, location, env = stores.serve_dataset(
            stack, EMBEDDED, first, cell.filter_environment(), environments / "servers.json", log
        )
        assert location["key"] == "some/folder/blobs-test"
        assert location["url"] == f"{served.endpoint}/benchmark/bench/some/folder/blobs-test"
        with azure.build_client(EMBEDDED, env) as container:
            blob = container.get_blob_client(f"{location['key']}/{entry['name']}")
            assert blob.download_blob().readall() == content.open_stream(entry).read()
            blob.upload_blob(b"another", overwrite=True)
    # What was replaced is uploaded again, and nothing of the old bytes counts as files that are read.
    third = provided(EMBEDDED, manifest, tmp_path, environments)
    assert third["upload"]["uploaded"] == 2
    assert sum(Path(name).stat().st_size for name in third["local_files"]) == 40 * MIB


def test_blocks_are_as_large_as_asked_and_what_lies_there_in_others_is_uploaded_anew(tmp_path, environments, manifest):
    asked = tmp_path / "manifest.json"
    for part_size, uploaded, part_bytes in (("4MiB", 2, 4 * MIB), ("4MiB", 0, 4 * MIB), ("64MiB", 2, 20 * MIB)):
        asked.write_text(json.dumps(artefact(manifest) | {"part_size": part_size}), encoding="utf-8")
        put = provided(EMBEDDED, asked, tmp_path, environments)
        assert (put["upload"]["uploaded"], put["part_bytes"]) == (uploaded, part_bytes)


def test_generated_objects_reach_a_share_of_the_stand_in(tmp_path, environments, manifest, files_account):
    connection = {azure.CONNECTION: files_account.connection_string}
    first = provided(FILES, manifest, tmp_path, environments, **connection)
    assert (first["upload"], first["local_files"]) == ({"uploaded": 2, "found": 0}, [])
    held = files_account.shares["bench"].files
    for entry in artefact(manifest)["files"]:
        assert bytes(held[f"some/folder/blobs-test/{entry['name']}"][0]) == content.open_stream(entry).read()
    files_account.replace("bench", "some/folder/blobs-test/0000.bin", b"another")
    files_account.faults += ["busy"]
    second = provided(FILES, manifest, tmp_path, environments, **connection)
    assert second["upload"] == {"uploaded": 1, "found": 1}
    # An answer that was cut is asked for again.
    files_account.faults += ["cut"]
    third = provided(FILES, manifest, tmp_path, environments, **connection)
    assert third["upload"] == {"uploaded": 0, "found": 2}
    assert files_account.faults == []
    _, location, env = stores.serve_dataset(
        contextlib.ExitStack(), FILES, second, cell.filter_environment(), None, None
    )
    assert location["url"] == f"{files_account.account_url}/bench/some/folder/blobs-test"
    assert env[azure.CONNECTION] == files_account.connection_string


@pytest.mark.parametrize("kind", ["s3", "posix", "posix elsewhere"])
def test_generated_objects_reach_buckets_and_disks(tmp_path, environments, manifest, kind):
    store = {
        "s3": {"kind": "s3", **BUCKET, "server": "embedded"},
        "posix": {"kind": "posix"},
        "posix elsewhere": {"kind": "posix", "path": str(tmp_path / "elsewhere")},
    }[kind]
    for _ in range(2):
        done = provided(store, manifest, tmp_path, environments)
        for entry, name in zip(artefact(manifest)["files"], done["local_files"], strict=True):
            assert Path(name).read_bytes() == content.open_stream(entry).read()
    if kind == "s3":
        assert done["upload"] == {"uploaded": 0, "found": 2}


@pytest.mark.parametrize(
    "change, credentials, line",
    [
        ({}, "wrong key", "failed with 403 AuthorizationFailure; check the key in AZURE_STORAGE_CONNECTION_STRING"),
        ({}, "no key", "the account key is malformed; correct it in AZURE_STORAGE_CONNECTION_STRING"),
        ({}, "none", "account_url must be https for azure-identity's tokens (got http"),
        ({}, "garbage", "AZURE_STORAGE_CONNECTION_STRING must be a connection string of Azure Storage"),
        ({}, "malformed", "AZURE_STORAGE_CONNECTION_STRING must be a connection string of Azure Storage; copy"),
        ({"account_url": "https://[no-account"}, "sas", "account_url must be the URL of an account of Azure Storage"),
        ({"account_url": f"https://a.b.c?{_SAS}"}, "sas", "account_url must be the URL of an account of Azure Storage"),
        ({}, "expired", "the SAS token in AZURE_STORAGE_SAS_TOKEN expired at"),
        ({}, "reads only", "failed with 403 AuthorizationPermissionMismatch; the credentials lack permission"),
        ({"container": "absent"}, "key", "container absent of http"),
        ({"account_url": "http://127.0.0.1:9/benchmark"}, "sas", "cannot be reached (ServiceRequestError); check"),
        ({"account_url": "http://127.0.0.1:9/benchmark"}, "key", "/benchmark name different accounts; correct one"),
        ({"account_url": None}, "none", "no Azure account; set AZURE_STORAGE_CONNECTION_STRING, or account_url of"),
    ],
)
def test_an_account_that_cannot_be_used_is_one_line(
    tmp_path, environments, manifest, account, change, credentials, line
):
    url = f"{account.endpoint}/{azurite_server.ACCOUNT}"
    store = {"kind": "azure-blob", "container": "bench", "prefix": credentials, "account_url": url} | change
    env = account_environment(account, credentials)
    store = {key: value for key, value in store.items() if value is not None}
    done = provide(store, manifest, tmp_path, environments, **env)
    assert done.returncode == 2, done.stderr
    told = [text for text in done.stderr.splitlines() if not text.startswith("uploading ")]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("problem: ")
    assert line in told[0]
    assert not any(value and value in done.stderr for value in (*env.values(), _SAS, "U0VDUkVU"))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("kind", ["azure-blob", "azure-files"])
def test_an_account_that_answers_html_is_one_line_at_the_look_and_in_every_step(
    tmp_path, environments, manifest, kind, page
):
    with portal(page) as url:
        name = {"azure-blob": "container", "azure-files": "share"}[kind]
        store = {"kind": kind, name: "bench", "account_url": f"{url}/account"}
        line = f"{name} bench of {url}/account does not respond like Azure Storage; check account_url or AZURE_"
        study = {"matrix": MATRIX | {"store": ["there"]}}
        config = {"run": "look", "repeats": 2, "stores": {"there": store}, "studies": {"blobs": study}}
        (tmp_path / "look.yaml").write_text(json.dumps(config), encoding="utf-8")
        done = sbench("check", tmp_path / "look.yaml", env=os.environ | {azure.SAS: _SAS})
        assert done.returncode == 1, done.stderr
        assert f"FAILED store there {name}: {line}" in done.stdout
        done = provide(store | {"prefix": "some/folder"}, manifest, tmp_path, environments, **{azure.SAS: _SAS})
        assert done.returncode == 2
        assert done.stderr.startswith(f"problem: {line}")


def account_environment(served: Served, credentials: str) -> dict[str, str]:
    """Return the variables in which a user gives credentials, right or wrong."""
    whole = azurite_server.build_connection_string(served.endpoint, served.credentials)
    if credentials in ("key", "wrong key", "no key"):
        key = {"wrong key": "d3Jvbmc=", "no key": "no key"}.get(credentials, served.credentials["key"])
        return {azure.CONNECTION: whole.replace(served.credentials["key"], key)}
    if credentials in ("sas", "expired", "reads only"):
        hours = -1 if credentials == "expired" else 1
        return {azure.SAS: signature(served, hours=hours, write=credentials == "sas")}
    texts = {"garbage": "garbage", "malformed": "BlobEndpoint=https://[;AccountName=a;AccountKey=U0VDUkVU"}
    return {azure.CONNECTION: texts[credentials]} if credentials in texts else {}


def signature(served: Served, hours: int, *, write: bool) -> str:
    """Return a SAS token of the container, for hours from now."""
    return generate_container_sas(
        azurite_server.ACCOUNT,
        "bench",
        account_key=served.credentials["key"],
        permission=ContainerSasPermissions(read=True, list=True, write=write, create=write),
        start=datetime.now(UTC) - timedelta(days=1),
        expiry=datetime.now(UTC) + timedelta(hours=hours),
    )


def test_a_container_of_ones_own_is_filled_and_found_with_a_sas_token(tmp_path, environments, manifest, account):
    url = f"{account.endpoint}/{azurite_server.ACCOUNT}"
    store = {"kind": "azure-blob", "container": "bench", "prefix": "", "account_url": url}
    env = {azure.SAS: signature(account, hours=1, write=True)}
    assert provided(store, manifest, tmp_path, environments, **env)["upload"]["uploaded"] == 2
    env = {azure.SAS: "?" + signature(account, hours=1, write=False)}
    found = provided(store, manifest, tmp_path, environments, **env)
    assert found["upload"] == {"uploaded": 0, "found": 2}
    assert found["local_files"] == []
    assert "sig=" not in (tmp_path / "provision.json").read_text(encoding="utf-8")


MATRIX = {
    **{"pattern": ["single-file"], "size": ["1MiB"], "processes": [1], "objects": ["shared"], "cache": ["any"]},
    **{"operation_size": ["1GiB"], "chunk_size": ["4MiB"], "concurrency": [1]},
}


def test_a_cell_reads_the_account_that_its_data_were_put_into_and_its_record_says_which(
    tmp_path, environments, account, azurite
):
    values = {
        "run": "accounts",
        "repeats": 2,
        "stores": {"blob": {"kind": "azure-blob", "container": "bench", "prefix": "accounts"}},
        "studies": {"blobs": {"matrix": MATRIX | {"store": ["blob"]}, "control_cells": 0}},
    }
    config = configuration.resolve_config(values, [])
    (cell,), _ = matrix.expand_matrix(config, "blobs")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/plan.json").write_text(json.dumps(build_plan(config, "blobs", [cell])), encoding="utf-8")
    made, settings = tmp_path / "manifest.json", json.dumps(cell.settings["data"])
    done = program("sbench.studies.blobs.make", "--dataset", cell.dataset, "--settings", settings, "--out", made)
    assert done.returncode == 0, done.stderr

    def measure(repeat: int, connection: str) -> dict:
        out = tmp_path / f"repeat={repeat}.json"
        done = program(
            *("step", "measure", "--plan", tmp_path / "blobs/plan.json", "--cell", cell.name, "--repeat", repeat),
            *("--provision", tmp_path / "provision.json", "--out", out, "--log", tmp_path / "step.log"),
            env=os.environ | {azure.CONNECTION: connection},
        )
        assert done.returncode == 0, done.stderr
        return artefact(out)

    url = f"{account.endpoint}/{azurite_server.ACCOUNT}"
    key = azurite_server.build_connection_string(account.endpoint, account.credentials)
    assert (
        provided(cell.settings["store"], made, tmp_path, environments, **{azure.CONNECTION: key})["account_url"] == url
    )
    signed = f"BlobEndpoint={url};SharedAccessSignature={signature(account, hours=1, write=False)}"
    record = measure(1, signed)
    assert (record["status"], record["provenance"]["account_url"]) == ("done", url), record["reasons"]
    assert "sig=" not in json.dumps(record)
    with azurite() as other:
        failed = measure(2, azurite_server.build_connection_string(other.endpoint, other.credentials))
    assert failed["status"] == "failed"
    assert f"the data are in {url}, but the environment names {other.endpoint}" in failed["reasons"][0]


def test_the_look_before_a_run_asks_for_containers_and_shares(tmp_path, account, files_account):
    config = {
        "run": "look",
        "repeats": 2,
        "stores": {
            "blob": {"kind": "azure-blob", "container": "bench"},
            "files": {"kind": "azure-files", "share": "absent"},
        },
        "studies": {"blobs": {"matrix": MATRIX | {"store": ["blob", "files"]}, "mpi": {"launcher": ["no-launcher"]}}},
    }
    (tmp_path / "look.yaml").write_text(json.dumps(config), encoding="utf-8")
    # One account has both services.
    files_account.key = account.credentials["key"]
    blobs = azurite_server.build_connection_string(account.endpoint, account.credentials)
    both = {azure.CONNECTION: f"{blobs};FileEndpoint={files_account.account_url}"}
    done = sbench("check", tmp_path / "look.yaml", env=os.environ | both)
    assert done.returncode == 1, done.stderr
    assert "ok     store blob container: container bench of the account of AZURE_STORAGE_CONNECTION_" in done.stdout
    assert "FAILED store files share: share absent of the account of AZURE_STORAGE_CONNECTION_STRING" in done.stdout
    assert "failed with 404 ShareNotFound; create the share, or correct its name in the configuration" in done.stdout
    assert "FAILED tool no-launcher: no-launcher is missing: load its module" in done.stdout


def test_an_upload_that_was_killed_is_begun_again(tmp_path, environments, manifest):
    command = [
        *build_command("provision", "--store", json.dumps(EMBEDDED), "--manifest", manifest),
        *("--folder", tmp_path / "store", "--servers", environments / "servers.json", "--out", tmp_path / "never.json"),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, **pipes)
    told = ""
    while "0001.bin" not in told:
        told = process.stderr.readline()
        assert told, "it ended before it was killed"
    process.kill()
    # The server holds the pipe's other end: this returns when it is gone too.
    process.communicate()
    assert provided(EMBEDDED, manifest, tmp_path, environments)["upload"]["uploaded"] == 2
    until(lambda: processes_of(str(tmp_path)) == [])
