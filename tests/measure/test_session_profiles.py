"""The examples of sessions on many machines: what they submit is valid, and what they start is a session."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator
from conftest import ROOT, copy_project, make_ready, need_slurm
from kubernetes.client import ApiClient
from small_runs import SINGLE, write

from sbench.cli import options
from sbench.cli import run as run_command
from sbench.runs import archive

SESSIONS = ROOT / "profiles/sessions"
EXAMPLES = [SESSIONS / name for name in ("container.sh", "slurm.sbatch", "kubernetes.yaml", "aws-batch.sh", "ssh.sh")]
TO = "s3://bucket/prefix"


def parse_run(words: list[str]) -> dict:
    """Parse a call of `sbench run` as the command does, and return its configuration, session and destination."""
    assert words[:2] == ["./sbench", "run"]
    parser = options.Parser("run", "", str(ROOT))
    run_command.add_options(parser)
    given = parser.parse_arguments(words[2:])
    assert given.yes, "a session must not ask for confirmation"
    return {"config": given.config, "session": given.session, "to": given.to}


def parse_shell(command: list[str], env: dict[str, str]) -> dict:
    """Let a shell expand a call of `sbench run` as in a container, and parse it."""
    assert command[:2] == ["sh", "-c"]
    text = command[2].removeprefix("exec ")
    done = subprocess.run(
        ["sh", "-euc", f"printf '%s\\n' {text}"], env=os.environ | env, capture_output=True, text=True, check=True
    )
    return parse_run(done.stdout.splitlines())


def stand_in(folder: Path, name: str, text: str) -> dict[str, str]:
    """Write a program that stands in for another one, and return variables with which it is found first."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(folder / "calls")}


# Writes each argument of each call on a line, as JSON has it, and an empty line after each call.
RECORDING = """python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@" >>"$CALLS\""""


def list_calls(env: dict[str, str]) -> list[list[str]]:
    return [json.loads(line) for line in Path(env["CALLS"]).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_the_table_describes_it(path: Path):
    assert 20 <= len(path.read_text(encoding="utf-8").splitlines()) <= 40
    readme = (SESSIONS / "README.md").read_text(encoding="utf-8")
    tested = readme.partition("## Not tested")[2]
    assert f"]({path.name})" in readme
    assert f"`{path.name}`" in tested
    assert {file.name for file in SESSIONS.iterdir()} == {example.name for example in EXAMPLES} | {
        *("README.md", "Containerfile")
    }


def read_job() -> dict:
    return yaml.safe_load((SESSIONS / "kubernetes.yaml").read_text(encoding="utf-8"))


def build_job(manifest: dict) -> dict:
    """Build the client's model of a Job from a manifest, and return the manifest that the client would send."""
    client = ApiClient()
    return client.sanitize_for_serialization(client._ApiClient__deserialize(manifest, "V1Job"))


def test_the_manifest_of_kubernetes_is_a_job_of_its_client():
    assert build_job(read_job()) == read_job()


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(completionsMode=spec.pop("completionMode")),
        lambda spec: spec["template"]["spec"].update(restartpolicy="OnFailure"),
        lambda spec: spec.update(parallelism="six"),
        lambda spec: spec.pop("template"),
        lambda spec: spec["template"]["spec"]["containers"][0].pop("name"),
    ],
)
def test_a_wrong_manifest_of_kubernetes_is_noticed(change):
    manifest = read_job()
    change(manifest["spec"])
    try:
        sent = build_job(manifest)
    except ValueError:
        return
    assert sent != manifest


def test_each_pod_of_kubernetes_measures_its_index_on_its_own_node():
    spec = read_job()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    run = parse_shell([*container["command"], *container["args"]], {"JOB_COMPLETION_INDEX": "5"})
    assert run == {"config": "config/config.yaml", "session": "5", "to": TO}
    assert spec["completionMode"] == "Indexed"
    # Kubernetes accepts these two policies for jobs; containers that are restarted keep the results.
    assert pod["restartPolicy"] in ("OnFailure", "Never")
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/bench/results")
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def submit_to_batch(tmp_path: Path) -> dict[str, dict]:
    """Run the example of AWS Batch with a stand-in for `aws`, and return the parameters of each call."""
    env = stand_in(tmp_path / "bin", "aws", RECORDING)
    env |= {"QUEUE": "spot", "IMAGE": "bench:1", "ROLE": "arn:aws:iam::123456789012:role/bench"}
    subprocess.run([SESSIONS / "aws-batch.sh", "config/ec2.yaml", "6", TO], env=env, check=True)
    calls = {}
    for service, operation, *arguments in list_calls(env):
        assert service == "batch"
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        if "--cli-input-json" in given:
            calls[operation] = json.loads(given["--cli-input-json"])
            continue
        size = given.pop("--array-properties").removeprefix("size=")
        names = {re.sub("-(.)", lambda match: match[1].upper(), key[2:]): value for key, value in given.items()}
        calls[operation] = names | {"arrayProperties": {"size": int(size)}}
    return calls


def list_mistakes(operation: str, parameters: dict) -> str:
    """Return what botocore's model of AWS Batch reports about the parameters of an operation."""
    service = botocore.session.get_session().get_service_model("batch")
    name = "".join(word.capitalize() for word in operation.split("-"))
    return ParamValidator().validate(parameters, service.operation_model(name).input_shape).generate_report()


def test_the_calls_of_aws_batch_are_those_of_its_model(tmp_path):
    calls = submit_to_batch(tmp_path)
    assert {name: list_mistakes(name, parameters) for name, parameters in calls.items()} == {
        "register-job-definition": "",
        "submit-job": "",
    }
    job, array = calls.values()
    assert (array["jobDefinition"], array["jobQueue"]) == (job["jobDefinitionName"], "spot")
    assert array["arrayProperties"] == {"size": 6}
    run = parse_shell(job["containerProperties"]["command"], {"AWS_BATCH_JOB_ARRAY_INDEX": "2"})
    assert run == {"config": "config/ec2.yaml", "session": "2", "to": TO}
    # The model notices what it does not know, lacks, or has another type.
    assert "Unknown parameter" in list_mistakes("submit-job", array | {"arraySize": 6})
    assert "Missing required" in list_mistakes("submit-job", {"jobName": "a"})
    assert "Invalid type" in list_mistakes("submit-job", array | {"arrayProperties": {"size": "6"}})


@pytest.mark.parametrize("to, inside", [(TO, TO), ("archives", "/archives")])
def test_a_container_measures_a_session_of_the_configuration(to, inside, tmp_path):
    """A stand-in takes the place of docker."""
    env = stand_in(tmp_path / "bin", "docker", RECORDING)
    (tmp_path / "mine.yaml").touch()
    subprocess.run([SESSIONS / "container.sh", "mine.yaml", "3", to], cwd=tmp_path, env=env, check=True)
    ((run, *words),) = list_calls(env)
    image = words.index("storage-benchmarks", words.index("--name") + 2)
    assert run == "run"
    assert parse_run(words[image + 1 :]) == {"config": "/config.yaml", "session": "3", "to": inside}
    volumes = dict(
        words[at + 1].removesuffix(":ro").split(":")[::-1]
        for at, word in enumerate(words[:image])
        if word == "--volume"
    )
    assert volumes["/config.yaml"] == str(tmp_path / "mine.yaml")
    assert volumes["/bench/results"] == "storage-benchmarks-session-3"
    assert volumes.get("/archives", "") == ("" if to == TO else str(tmp_path / "archives"))
    passed = {words[at + 1] for at, word in enumerate(words[:image]) if word == "--env"}
    assert passed >= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"}


# Runs the command on this machine, in the folder of the "host".
SSH = """[ "$1" = -n ] || exit 9
host=$2
shift 2
cd "hosts/$host" && exec sh -c "$*\""""


def test_a_loop_over_ssh_starts_a_session_on_each_host_and_names_those_that_fail(tmp_path):
    """A stand-in takes the place of ssh, and of sbench on each host."""
    env = stand_in(tmp_path / "bin", "ssh", SSH)
    for host in ("one", "me@two", "three"):
        (tmp_path / "hosts" / host).mkdir(parents=True)
        status = 7 if host == "me@two" else 0
        stand_in(tmp_path / "hosts" / host / "storage-benchmarks", "sbench", f'echo "./sbench $*"; exit {status}')
    command = [SESSIONS / "ssh.sh", "config/my runs.yaml", TO, "one", "me@two", "three"]
    done = subprocess.run(command, cwd=tmp_path, env=env | {"FIRST": "3"}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "session 4 on me@two has failed: see storage-benchmarks-session-4.log\n"
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        f"storage-benchmarks-session-{index}.log" for index in (3, 4, 5)
    ]
    for index in (3, 4, 5):
        line = (tmp_path / f"storage-benchmarks-session-{index}.log").read_text(encoding="utf-8")
        assert line == f"./sbench run config/my runs.yaml --session {index} --to {TO} --yes\n"


def test_scripts_list_their_arguments_if_some_are_missing():
    for name in ("container.sh", "aws-batch.sh", "ssh.sh"):
        done = subprocess.run([SESSIONS / name, "config/quick.yaml"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(rf"usage: .*{name} CONFIG .*\n", done.stderr)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a clone with a tiny configuration, as a git repository."""
    clone = make_ready(copy_project(tmp_path / "clone"))
    write(clone, SINGLE)
    for words in ("init --quiet", "add .", "-c user.name=a -c user.email=a@b commit --quiet --message a"):
        subprocess.run(["git", *shlex.split(words)], cwd=clone, check=True)
    return clone


@pytest.mark.late
def test_an_array_of_slurm_measures_a_session_in_each_job(repository: Path, environments: Path, tmp_path: Path):
    """The two nodes are of this machine, in a cluster without a network."""
    need_slurm()
    submit = ["sbatch", "--wait", "--array=0-1", "profiles/sessions/slurm.sbatch", "config/config.yaml", "../archives"]
    done = subprocess.run(
        [ROOT / "tests/helpers/slurm.sh", tmp_path / "slurm", *submit],
        cwd=repository,
        env=os.environ | {"NODES": "2", "CLONES": str(tmp_path / "clones")},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    logs = [path.read_text(encoding="utf-8") for path in sorted(repository.glob("storage-benchmarks-session-*.log"))]
    assert done.returncode == 0, done.stdout + done.stderr + "".join(logs)
    nodes = set()
    for index in range(2):
        (path,) = (tmp_path / "archives").glob(f"tiny-session-{index}-*{archive.SUFFIX}")
        assert re.search(f"^sent: .*/archives/{path.name}$", logs[index], re.MULTILINE)
        with archive.open_archive(path) as (results, _):
            (record,) = (json.loads(file.read_text("utf-8")) for file in results.glob("shots/records/*/repeat=*.json"))
        assert record["valid"], record["reasons"]
        nodes.add(record["host"]["node"])
    assert nodes == {"node1", "node2"}
    # What has arrived needs no clone on the node, and nothing was measured in the shared folder.
    assert list((tmp_path / "clones").iterdir()) == []
    assert not (repository / "results").exists()
    shutil.rmtree(tmp_path / "archives")
