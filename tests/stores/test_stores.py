"""Stores: an S3 service that is not the workflow's own, signed and anonymous, and what is said when it fails."""

import contextlib
import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
import yaml
from bad_store import PAGES, portal
from cells import ROS3, Place
from conftest import ROOT, artefact, sbench
from granules import granule, run_of
from outside import KEYS, client, serving, with_keys
from small_runs import TINY, records, snakemake, write
from steady import keep_pages
from virtual_files import frames, nested, virtual

from sbench.measure import cell, preflight
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.stores.azure import CONNECTION
from sbench.stores.s3 import client as s3
from sbench.studies.shots import manifest
from sbench.studies.shots.inputs import find_sources

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def outside(tmp_path: Path, environments: Path):
    """Start an S3 server as its owner would, with a bucket in it, and return its URL."""
    with serving(tmp_path, environments) as url:
        yield url


def elsewhere(url: str, **more: object) -> dict:
    store = {"endpoint": url, "bucket": "elsewhere", "prefix": "some/folder", **more}
    return {**ROS3, "layout": "shot-major", "access": "signals", "s3": {"server": None, **store}}


def at(folder: Path, environments: Path, url: str, **more: object) -> Place:
    levels = elsewhere(url, **more)
    levels["s3"] = {key: value for key, value in levels["s3"].items() if value is not None}
    folder.mkdir(exist_ok=True)
    return Place(folder, environments, without=("server",), **levels)


def test_a_bucket_elsewhere_is_filled_verified_and_read_signed_and_then_anonymously(tmp_path, environments, outside):
    here = at(tmp_path / "signed", environments, outside).make(**KEYS)
    assert here.provided["upload"]["uploaded"] == 1
    record = here.measure(env=with_keys())
    assert record["valid"], record["reasons"]
    assert record["requests"] == {}
    assert record["cache"]["state"] == "elsewhere"
    assert record["verified"] == "within the timed pass", "the network weighs more than checksums"
    assert here.provide(**KEYS).provided["upload"] == {"uploaded": 0, "found": 1}
    told = [path for path in (tmp_path / "signed").rglob("*") if path.suffix in (".json", ".log")]
    assert len(told) > 3
    assert [path for path in told if KEYS["AWS_SECRET_ACCESS_KEY"] in path.read_text(encoding="utf-8")] == []

    everybody = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
    statement = {**everybody, "Resource": ["arn:aws:s3:::elsewhere", "arn:aws:s3:::elsewhere/*"]}
    client(outside).put_bucket_policy(
        Bucket="elsewhere", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    )
    there = at(tmp_path / "anonymous", environments, outside, anonymous=True).make()
    assert there.provided["upload"] == {"uploaded": 0, "found": 1}
    record = there.measure(env={key: value for key, value in with_keys().items() if key not in KEYS})
    assert record["valid"], record["reasons"]


@pytest.mark.parametrize(
    "change, keys, line",
    [
        ({}, {"AWS_SECRET_ACCESS_KEY": "wrong"}, "GetObject failed with SignatureDoesNotMatch; check AWS_ACCESS_KEY_"),
        ({}, {"AWS_ACCESS_KEY_ID": "nobody"}, "; check AWS_ACCESS_KEY_ID"),
        ({"bucket": "no-such-bucket"}, {}, "GetObject failed with NoSuchBucket; create the bucket, or correct its"),
        ({"endpoint": NOBODY}, {}, "127.0.0.1:9 cannot be reached"),
        ({"anonymous": True}, {}, "failed with AccessDenied"),
    ],
    ids=["wrong secret", "unknown key", "missing bucket", "unreachable", "not public"],
)  # fmt: skip
def test_a_store_that_cannot_be_used_is_one_line(tmp_path, environments, outside, change, keys, line):
    here = at(tmp_path / "here", environments, change.pop("endpoint", outside), **change)
    here.make(expect="failed", **{**KEYS, **keys})
    assert line in here.provided["reasons"][0]
    assert "\n" not in here.provided["reasons"][0]


FRAMES = ("frames0", "frames1", "middle")
IN_BUCKET = {"original": ["s3://elsewhere/granules/*.h5"]}


@pytest.fixture
def granules(tmp_path: Path, outside: str):
    """Put two files of another tree into the bucket and return what puts a file there."""

    def put(name: str, seed: int, rows: int = 70) -> None:
        path = granule(tmp_path / "granule.h5", seed, rows=rows)
        client(outside).upload_file(path, "elsewhere", f"granules/{name}")

    put("a.h5", 1)
    put("b.h5", 2)
    return put


def test_files_in_a_bucket_are_read_in_place_and_one_that_is_replaced_fails_its_cell(clone, outside, granules):
    config = run_of(IN_BUCKET, store=["far"], driver=["ros3"], selection=["all", "metadata"], library=["ours"])
    config["libraries"] = {"ours": {"kind": "source", "hdf5": "2.0.0"}}
    config["stores"] = {"far": {"kind": "s3", "bucket": "elsewhere", "endpoint": outside}}
    config["studies"]["shots"]["read_files"] = 0
    write(clone, config)
    done = snakemake(clone, "--until", "measure", env=with_keys())
    assert done.returncode == 0, done.stderr
    measured = list(records(clone).values())
    assert [record["valid"] for record in measured] == [True, True]
    assert {record["cache"]["state"] for record in measured} == {"elsewhere"}
    assert {path["Key"] for path in client(outside).list_objects_v2(Bucket="elsewhere")["Contents"]} == {
        "granules/a.h5",
        "granules/b.h5",
    }
    granules("b.h5", 3)
    write(clone, config | {"repeats": 2})
    assert snakemake(clone, "--until", "measure", env=with_keys()).returncode == 0
    failed = [record for record in records(clone).values() if record["status"] == "failed"]
    assert len(failed) == 2
    for record in failed:
        assert "granules/b.h5 was replaced or changed after its examination" in record["reasons"][0]


def test_a_virtual_dataset_of_objects_in_a_bucket_is_read_in_place_until_one_of_them_is_replaced(
    clone, outside, tmp_path
):
    own = tmp_path / "own"
    (own / "frames").mkdir(parents=True)
    frames(own / "frames")
    virtual(own / "frames/middle.h5", [("frames0.h5", "x"), ("frames1.h5", "x")])
    virtual(own / "a.h5", [("frames/frames0.h5", "x"), ("frames/frames1.h5", "x")])
    nested(own / "a.h5", "frames/middle.h5")
    virtual(own / "a.h5", [("frames/none.h5", "x")], "lacking")
    virtual(own / "a.h5", [("../../../../../outside.h5", "x")], "outside")
    for path in own.rglob("*.h5"):
        client(outside).upload_file(path, "elsewhere", f"virtual/{path.relative_to(own)}")
    config = run_of({"original": ["s3://elsewhere/virtual/a.h5"]}, store=["far"], driver=["ros3"], library=["ours"])
    config["libraries"] = {"ours": {"kind": "source", "hdf5": "2.0.0"}}
    config["stores"] = {"far": {"kind": "s3", "bucket": "elsewhere", "endpoint": outside}}
    write(clone, config)
    done = snakemake(clone, "--until", "measure", env=with_keys())
    assert done.returncode == 0, done.stderr
    (record,) = records(clone).values()
    assert record["valid"], record["reasons"]
    (made,) = map(artefact, (clone / "results/tiny/data").rglob("manifest.json"))
    assert [file["name"] for file in made["files"]] == [f"frames/{name}.h5" for name in FRAMES] + ["a.h5"]
    assert list(made["objects"]["a.h5"]) == ["/nested", "/virtual"]
    assert [one["first"] for one in made["left_out"]] == [
        "/lacking (virtual; its source frames/none.h5 does not exist)"
    ]
    client(outside).upload_file(own / "frames/frames0.h5", "elsewhere", "virtual/frames/frames1.h5")
    write(clone, config | {"repeats": 2})
    assert snakemake(clone, "--until", "measure", env=with_keys()).returncode == 0
    (failed,) = (record for record in records(clone).values() if record["status"] == "failed")
    assert "virtual/frames/frames1.h5 was replaced or changed after its examination" in failed["reasons"][0]


def test_a_bucket_that_may_not_be_listed_is_read_by_names_and_a_web_page_is_called_one(outside, granules):
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::elsewhere/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    client(outside).put_bucket_policy(Bucket="elsewhere", Policy=policy)
    client(outside).put_object(Bucket="elsewhere", Key="granules/page.h5", Body=b"<html>sign in</html>")
    spec = {"kind": "s3", "bucket": "elsewhere", "region": "us-east-1", "prefix": "", "endpoint": outside}
    spec["anonymous"] = True
    with pytest.raises(Problem, match=r"no permission to list .*; name each object instead of a folder or pattern"):
        find_sources(IN_BUCKET["original"], spec)
    named = [f"s3://elsewhere/granules/{name}" for name in ("a.h5", "b.h5")]
    assert [source.name for source in find_sources(named, spec)] == ["a.h5", "b.h5"]
    facts = manifest.describe_set({"files": named, "datasets": ["/name"], "layout": "original", "at": spec})
    assert (facts["in_place"], facts["layout"]["dataset_reads"]) == ("granules", 2)
    (page,) = find_sources("s3://elsewhere/granules/page.h5", spec)
    with pytest.raises(Problem, match="is not an HDF5 file but a page of HTML"), page.open_hdf5():
        pass
    with pytest.raises(Problem, match=r"no object matches .*nothing\.h5"):
        find_sources("s3://elsewhere/granules/nothing.h5", spec)


@pytest.mark.late
@pytest.mark.skipif(not shutil.which("h5repack"), reason="there is no h5repack: apt install hdf5-tools")
def test_advice_on_files_of_a_bucket_is_tried_in_the_users_own(clone, outside, granules):
    for seed, name in enumerate(("a.h5", "b.h5")):
        granules(name, seed, rows=4000)
    words = {"datasets": "/gt*/**", "store": "s3://elsewhere/tried", "repeats": 1, "name": "asked"}
    words = [f"--{name}={value}" for name, value in words.items()]
    done = sbench(
        "advise", "s3://elsewhere/granules/*.h5", *words, cwd=clone, env=with_keys() | {"AWS_ENDPOINT_URL": outside}
    )
    assert done.returncode == 0, done.stderr
    assert "\nrepack: undecided, leave the files as they are for now\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("remove: aws s3 rm --recursive s3://elsewhere/tried/shots-original-")
    measured = list(records(clone, "asked").values())
    assert {record["cache"]["state"] for record in measured if record["valid"]} == {"elsewhere"}
    assert {record["cell"]["driver"] for record in measured} >= {"ros3", "s3fs"}
    keys = {path["Key"] for path in client(outside).list_objects_v2(Bucket="elsewhere")["Contents"]}
    assert {key.split("/")[0] for key in keys} == {"granules", "tried"}
    assert len(keys) == 2 + 2


def complaints(done: subprocess.CompletedProcess) -> list[str]:
    """Return the lines on standard error, without those on an environment that is made by whoever needs it first."""
    return [line for line in done.stderr.splitlines() if not line.startswith("wheel-2.0.0: ")]


@pytest.mark.late
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_an_endpoint_that_answers_html_is_one_line_at_the_look_and_in_every_step(tmp_path, environments, outside, page):
    with portal(page) as url:
        line = f"bucket elsewhere at {url} does not respond like S3; check the endpoint"
        config = with_store(tmp_path / "here.yaml", {"endpoint": url, "bucket": "elsewhere"})
        done = sbench("check", config, env=with_keys())
        assert (done.returncode, complaints(done)) == (1, [])
        assert f"FAILED store s3 bucket: {line}" in done.stdout
        here = at(tmp_path / "here", environments, url).make(expect="failed", **KEYS)
        assert here.provided["reasons"][0].endswith(line)


def test_a_wrong_region_is_one_line_at_the_look_and_in_every_step(tmp_path, environments, outside):
    """boto3 would follow the bucket to its region unseen, and HDF5 would fail there."""
    line = "bucket elsewhere is in region us-east-1, not in eu-west-1; correct region in the configuration"
    line += ", or AWS_REGION"
    store = {"endpoint": outside, "bucket": "elsewhere", "region": "eu-west-1"}
    done = sbench("check", with_store(tmp_path / "here.yaml", store), env=with_keys())
    assert (done.returncode, complaints(done)) == (1, [])
    assert f"FAILED store s3 bucket: {line}" in done.stdout
    here = at(tmp_path / "here", environments, outside, region="eu-west-1").make(expect="failed", **KEYS)
    assert here.provided["reasons"][0].endswith(line)


NOTHING = {
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def test_no_credentials_at_all_are_one_line_which_the_cells_say_too(tmp_path, environments, outside):
    here = at(tmp_path / "here", environments, outside)
    here.make(expect="failed", **NOTHING)
    assert "no S3 credentials; set AWS_ACCESS_KEY_ID" in here.provided["reasons"][0]
    record = here.measure(env=with_keys())
    assert record["status"] == "failed"
    assert "no S3 credentials; set AWS_ACCESS_KEY_ID" in record["reasons"][0]


def with_store(path: Path, store: dict) -> Path:
    """Write the smoke configuration with another store in place of its S3 server; returns the file."""
    base = (ROOT / "config/smoke.yaml").read_text(encoding="utf-8").splitlines()
    lines = [f"  s3: {json.dumps({'kind': 's3', **store})}" if line.startswith("  s3:") else line for line in base]
    # No cell asks for a state of the page cache, which the host can take away.
    path.write_text("\n".join(lines).replace("cache: [cold]", "cache: [any]"), encoding="utf-8")
    return path


@pytest.mark.late
@pytest.mark.parametrize(
    "variables, store, line",
    [
        ({"AWS_ACCESS_KEY_ID": "key"}, {}, "missing: AWS_SECRET_ACCESS_KEY; check AWS_ACCESS_KEY_ID and AWS_SECRET_"),
        (KEYS | {"AWS_PROFILE": "nope"}, {}, "The config profile (nope) could not be found; correct AWS_PROFILE"),
        (KEYS | {"AWS_CONFIG_FILE": "README.md"}, {}, "Unable to parse config file: README.md; correct the AWS_*"),
        (KEYS, {"region": "eu west"}, "region_name 'eu west' doesn't match a supported format; correct region in the"),
        ({}, {}, "FAILED store s3 bucket: no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (KEYS | {"AWS_ENDPOINT_URL": NOBODY}, {}, "AWS_ENDPOINT_URL is set, but the store lacks an endpoint"),
        (KEYS | {"AWS_ENDPOINT_URL_S3": NOBODY}, {}, "AWS_ENDPOINT_URL_S3 is set, but the store lacks"),
    ],
    ids=["half a key", "no such profile", "broken file", "no region", "nothing", "endpoint", "endpoint of S3"],
)  # fmt: skip
def test_settings_of_aws_that_are_amiss_are_one_line_before_a_run(tmp_path, variables, store, line):
    asked = {"bucket": "elsewhere"} | (store or ({} if "AWS_ENDPOINT" in str(variables) else {"endpoint": NOBODY}))
    config = with_store(tmp_path / "here.yaml", asked)
    env = {key: value for key, value in with_keys().items() if key not in KEYS}
    done = sbench("check", config, env=env | NOTHING | variables)
    assert done.returncode == 1
    assert complaints(done) == []
    assert line in done.stdout
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stdout


def test_an_endpoint_of_the_environment_is_refused_or_has_no_effect_in_every_step(tmp_path, environments, outside):
    other = {"AWS_ENDPOINT_URL": NOBODY}
    here = at(tmp_path / "named", environments, outside).make(**KEYS, **other)
    assert here.measure(env=with_keys(**other))["valid"]
    line = "AWS_ENDPOINT_URL is set, but the store lacks an endpoint; add endpoint: to the store or unset AWS_ENDPOINT_"
    at_aws = at(tmp_path / "aws", environments, None).make(expect="failed", **KEYS, **other)
    assert line in at_aws.provided["reasons"][0]
    at_aws.provision.write_text(json.dumps(here.provided), encoding="utf-8")
    assert line in at_aws.measure(env=with_keys(**other))["reasons"][0]


def test_a_profile_gives_a_cell_its_credentials_and_no_other_setting(tmp_path, environments, outside, monkeypatch):
    file = tmp_path / "config"
    lines = [
        *("[profile mine]", f"aws_access_key_id = {KEYS['AWS_ACCESS_KEY_ID']}", "retry_mode = adaptive"),
        *(f"aws_secret_access_key = {KEYS['AWS_SECRET_ACCESS_KEY']}", "s3 =", "  addressing_style = virtual"),
        "  payload_signing_enabled = true",
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    variables = NOTHING | {"AWS_CONFIG_FILE": str(file), "AWS_PROFILE": "mine"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    here = at(tmp_path / "here", environments, outside).make(**variables)
    record = here.measure(env=os.environ | variables)
    assert record["valid"], record["reasons"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    store = here.cell.settings["store"]
    uploading = s3.build_client(store, {"AWS_ENDPOINT_URL": outside}).meta.config
    assert (uploading.retries["mode"], uploading.s3["addressing_style"]) == ("legacy", "path")
    with contextlib.ExitStack() as stack:
        _, _, env = stores.serve_dataset(stack, store, here.provided, cell.filter_environment(), None, None)
    monkeypatch.setattr(os, "environ", env)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    reading = s3.build_client(store, env).meta
    assert (reading.config.retries["mode"], reading.config.s3) == ("legacy", {"addressing_style": "path"})
    assert reading.endpoint_url == outside


def test_variables_of_azure_reach_the_cells_of_its_accounts_alone(tmp_path, monkeypatch):
    secret = {"AZURE_CLIENT_SECRET": "of-somebody", CONNECTION: "AccountName=a;AccountKey=a2V5"}
    for name, value in secret.items():
        monkeypatch.setenv(name, value)
    entries = {
        "posix": {"kind": "posix"},
        "s3": {"kind": "s3", "bucket": "b", "prefix": "", "region": "r", "anonymous": True, "endpoint": NOBODY},
        "azure-blob": {"kind": "azure-blob", "container": "c", "prefix": ""},
    }
    found = {}
    for kind, store in entries.items():
        provided = {"location": {"dataset": "d"}}
        _, _, env = stores.serve_dataset(contextlib.ExitStack(), store, provided, cell.filter_environment(), None, None)
        found[kind] = {name: env[name] for name in env if name.startswith("AZURE_")}
    assert found == {"posix": {}, "s3": {}, "azure-blob": secret}


def test_an_object_that_was_replaced_is_uploaded_again_and_wrong_values_are_caught(tmp_path, environments, outside):
    here = at(tmp_path / "here", environments, outside).make(**KEYS)
    key = f"some/folder/{here.cell.dataset}/shots.h5"
    original = client(outside).get_object(Bucket="elsewhere", Key=key)["Body"].read()
    client(outside).put_object(Bucket="elsewhere", Key=key, Body=original[:5000])
    record = here.measure(env=with_keys())
    assert record["status"] == "failed"
    assert here.provide(**KEYS).provided["upload"]["uploaded"] == 1
    assert here.measure(env=with_keys())["valid"]


@pytest.mark.late
def test_the_look_before_a_run_names_each_thing_and_its_remedy(tmp_path, outside):
    good = with_store(tmp_path / "good.yaml", {"endpoint": outside, "bucket": "elsewhere"})
    done = sbench("check", good, env=with_keys())
    assert "bucket elsewhere at" in done.stdout
    assert done.returncode == 0, done.stdout
    bad = tmp_path / "bad.yaml"
    bad.write_text(good.read_text(encoding="utf-8").replace('"elsewhere"', '"no-such-bucket"'), encoding="utf-8")
    done = sbench("check", bad, env=with_keys())
    assert done.returncode == 1
    assert "FAILED store s3 bucket: bucket no-such-bucket" in done.stdout


@pytest.mark.late
def test_the_look_before_a_run_asks_of_a_folder_only_what_the_run_does_there(tmp_path, monkeypatch, capsys):
    keep_pages(monkeypatch.setattr)
    smoke = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    disk = copy.deepcopy(TINY)
    disk["studies"]["shots"]["matrix"]["cache"] = ["warm"]
    for name, values in (("disk", disk), ("smoke", smoke)):
        values["stores"]["disk"]["path"] = str(tmp_path / "data")
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert preflight.run_checks(str(tmp_path / "disk.yaml")) == 0
    told = capsys.readouterr().out
    assert f"{tmp_path}/data page cache: " in told
    assert "results writable" in told
    assert "results page cache" not in told
    assert "attributes" not in told
    assert preflight.run_checks(str(tmp_path / "smoke.yaml")) == 0
    told = capsys.readouterr().out
    assert "results page cache" in told
    assert "results attributes" in told
    values["stores"]["disk"]["path"] = str(tmp_path / "lustre" / "data")
    (tmp_path / "unmounted.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert preflight.run_checks(str(tmp_path / "unmounted.yaml")) == 1
    assert f"{tmp_path}/lustre does not exist; mount it, or correct the store's path" in capsys.readouterr().out
    assert preflight.run_checks("config/volumes.yaml") == 1
    assert "FAILED folder /mnt/gp2: no such folder; mount the volume there" in capsys.readouterr().out
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    assert preflight.run_checks(str(tmp_path / "disk.yaml")) == 1
    assert (
        "FAILED results free: 0.0 GiB, 2.0 needed; free disk space or make the data smaller" in capsys.readouterr().out
    )
