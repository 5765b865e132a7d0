"""The action for GitHub: its shell steps run as the runner would run them, with a command of another project."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, copy_project

from sbench.cli import count as command
from sbench.cli import options
from sbench.files import budget

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ ([^}]*) \}\}")
GET = "import boto3; boto3.client('s3').get_object(Bucket='my-data', Key='a b', Range='bytes=0-9')['Body'].read()"
READ = f'"{sys.executable}" -c "{GET}"'


class Runner:
    """A job with its folders and files, as a runner provides them."""

    def __init__(self, folder: Path, action: Path) -> None:
        """Make the folders of a job below a folder; `action` is the folder of the action."""
        self.workspace, self.temp, self.action = folder / "work space", folder / "temp", action
        self.summary, self.output = folder / "summary.md", folder / "output"
        for path in (self.workspace, self.temp):
            path.mkdir()

    def run_step(self, name: str, **given: str) -> subprocess.CompletedProcess:
        """Run a shell step with inputs (`working_directory` is working-directory); the others have their defaults."""
        inputs = {key: of.get("default", "") for key, of in ACTION["inputs"].items()}
        inputs |= {key.replace("_", "-"): value for key, value in given.items()}
        step = STEPS[name]
        values = {f"inputs.{key}": value for key, value in inputs.items()}
        env = {key: EXPRESSION.sub(lambda match: values[match[1]], text) for key, text in step["env"].items()}
        env |= {"RUNNER_TEMP": self.temp, "GITHUB_ACTION_PATH": self.action, "GITHUB_OUTPUT": self.output}
        env |= {"GITHUB_STEP_SUMMARY": self.summary}
        place = EXPRESSION.sub(lambda match: values[match[1]], step.get("working-directory", "."))
        script = self.temp / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        assert step["shell"] == "bash"
        self.output.write_text("", encoding="utf-8")
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            **{"cwd": self.workspace / place, "env": os.environ | env, "capture_output": True, "text": True},
            check=False,
        )

    def read_outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a runner on which sbench is installed: the command of this clone."""
    made = Runner(tmp_path, ROOT)
    (made.temp / "sbench/bin").mkdir(parents=True)
    (made.temp / "sbench/bin/sbench").symlink_to(ROOT / "sbench")
    add_data(made.workspace)
    return made


def add_data(folder: Path) -> None:
    (folder / "my data").mkdir()
    (folder / "my data/a b").write_bytes(bytes(1000))
    (folder / "budget.yaml").write_text("get: 1\nbytes: '<= 10 B'\n", encoding="utf-8")


def test_inputs_reach_the_shell_only_by_the_environment():
    scripts = [step["run"] for step in STEPS.values() if "run" in step]
    assert len(scripts) == 2
    assert [script for script in scripts if "${{" in script] == []
    used = [
        name for step in STEPS.values() for text in str(step).split("${{ inputs.")[1:] for name in [text.split()[0]]
    ]
    assert sorted(used) == sorted(ACTION["inputs"])
    # Actions of others are pinned to a commit.
    assert [
        step["uses"] for step in STEPS.values() if "uses" in step and not re.search("@[0-9a-f]{40}$", step["uses"])
    ] == []


def test_a_met_budget_has_a_summary_and_metrics(runner: Runner):
    runner.summary.write_text("# Of an earlier action\n\n", encoding="utf-8")
    done = runner.run_step("Count requests", command=f"echo $PWD\n{READ}", folders="my data\n", budget="budget.yaml")
    assert (done.returncode, done.stdout) == (0, f"{runner.workspace}\n"), done.stderr
    summary = runner.summary.read_text(encoding="utf-8")
    assert summary.startswith("# Of an earlier action\n\n## Requests to S3\n")
    assert "The budget is met: 2 limits." in summary
    assert "| get | 1 | 1 | met |" in summary
    assert "| bytes | &lt;= 10 B | 10 B | met |" in summary
    outputs = runner.read_outputs()
    metrics = json.loads(Path(outputs["metrics"]).read_text(encoding="utf-8"))
    assert sorted(metric["name"] for metric in metrics) == sorted(budget.NAMES)
    assert [metric for metric in metrics if metric["value"]] == [
        {"name": "get", "unit": "requests", "value": 1},
        {"name": "bytes", "unit": "B", "value": 10},
        {"name": "distinct", "unit": "B", "value": 10},
        {"name": "requests", "unit": "requests", "value": 1},
        {"name": "connections", "unit": "connections", "value": 1},
    ]
    assert {path.name for path in Path(outputs["results"]).iterdir()} == {"metrics.json", "counts.json", "page.html"}


def test_a_broken_budget_fails_with_its_requests(runner: Runner):
    done = runner.run_step(
        "Count requests", command=f"{READ}\n{READ}", folders="my data", budget="budget.yaml", title="A | B"
    )
    assert done.returncode == 3
    summary = runner.summary.read_text(encoding="utf-8")
    assert summary.startswith("## A | B\n")
    assert "**2 of 2 limits not met.**" in summary
    assert "| get | 1 | 2 | **not met** |" in summary
    assert "Requests of get, bytes:\n\n" + 2 * "    GET /my-data/a b bytes=0-9 206 10 B\n" in summary
    metrics = json.loads(Path(runner.read_outputs()["metrics"]).read_text(encoding="utf-8"))
    assert {"name": "get", "unit": "requests", "value": 2} in metrics


def test_the_status_of_a_failing_command_is_passed_on(runner: Runner):
    done = runner.run_step(
        "Count requests", command=f"{READ}\nexit 9 | cat\necho on", folders="my data", budget="budget.yaml"
    )
    assert (done.returncode, done.stdout) == (9, "")
    summary = runner.summary.read_text(encoding="utf-8")
    assert "**The program ended with status 9.**" in summary
    outputs = runner.read_outputs()
    assert not Path(outputs["metrics"]).exists()
    assert f"{outputs['metrics']} not written: the program failed" in done.stderr
    assert json.loads(Path(outputs["results"], "counts.json").read_text(encoding="utf-8"))["status"] == 9


@pytest.mark.parametrize("name, status", [("", 0), ("budget.yaml", 3)])
def test_a_command_without_requests_meets_no_budget(runner: Runner, name: str, status: int):
    done = runner.run_step("Count requests", command="true", budget=name)
    assert done.returncode == status, done.stderr
    summary = runner.summary.read_text(encoding="utf-8")
    assert "    no request reached the server; the client may not read AWS_ENDPOINT_URL" in summary
    assert ("**The budget is not met: no request reached the server.**" in summary) == bool(name)
    assert not Path(runner.read_outputs()["metrics"]).exists()


def test_options_are_not_split_or_expanded_by_the_shell(runner: Runner):
    (runner.workspace / "sub $(touch expanded)").mkdir()
    folder = f"  --bucket=other=../{runner.workspace.name}/my data  \n\n--latency=2\n"
    code = f"echo '$HOME'; {READ.replace('my-data', 'other')}"
    done = runner.run_step("Count requests", command=code, options=folder, working_directory="sub $(touch expanded)")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    done = runner.run_step(
        "Count requests",
        command=code,
        options=folder.replace("../", "../../"),
        working_directory="sub $(touch expanded)",
    )
    assert (done.returncode, done.stdout) == (0, "$HOME\n"), done.stderr
    assert list(runner.workspace.rglob("expanded")) == []
    mistake = runner.run_step("Count requests", command="true", options="--latncy=2")
    assert mistake.returncode == 2
    assert "did you mean --latency" in mistake.stderr


def test_documents_use_the_inputs_and_outputs_that_there_are():
    text = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    workflows = [yaml.safe_load(body) for body in re.findall(r"^```yml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    (steps,) = [
        workflow["jobs"]["requests"]["steps"]
        for workflow in workflows
        if "jobs" in workflow and "requests" in workflow["jobs"]
    ]
    (given,) = [step["with"] for step in steps if step.get("id") == "requests"]
    table = re.findall(r"^\| `([\w-]+)` \|", text.partition("| Input |")[2].partition("\n\n")[0], re.MULTILINE)
    assert table == list(ACTION["inputs"])
    assert set(given) <= set(ACTION["inputs"])
    assert set(re.findall(r"steps\.requests\.outputs\.(\w+)", text)) == set(ACTION["outputs"])


def test_the_job_for_gitlab_calls_what_there_is():
    text = (ROOT / "docs/ci.md").read_text(encoding="utf-8").partition("### GitLab")[2]
    job = yaml.safe_load(text.partition("```yml\n")[2].partition("```")[0])["requests"]
    (words,) = [shlex.split(line)[1:] for line in job["script"] if line.startswith("/opt/sbench/bin/sbench ")]
    parser = options.Parser("count", "", "")
    command.add_options(parser)
    given = parser.parse_arguments(words[1:])
    assert (words[0], given.metrics) == ("count", job["artifacts"]["reports"]["metrics"])
    assert {given.metrics, given.html} == set(job["artifacts"]["paths"])


@pytest.mark.late
def test_the_action_installs_its_own_commit_and_counts(tmp_path: Path):
    made = Runner(tmp_path, copy_project(tmp_path / "action", published=True))
    add_data(made.workspace)
    done = made.run_step("Install sbench", python=sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch("[0-9a-f]{16}", made.read_outputs()["servers"])
    assert (made.temp / "sbench/bin/uv").exists(), "the servers are built by uv"
    code = f"{READ}\ncurl --silent --fail --output /dev/null $SBENCH_URL/a%20b"
    done = made.run_step("Count requests", command=code, folders="my data", options="--anonymous")
    assert done.returncode == 0, done.stderr
    assert "2 requests: 2 GET" in made.summary.read_text(encoding="utf-8")
