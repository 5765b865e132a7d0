"""Read a published claim that is tested here: its text, the result that would refute it, and its measurements.

A claim is a file in config/claims, and a module of the same name in `sbench.court.tested` with these functions:

    make_data(folder)   writes the objects of the bucket; optional
    prepare(options)    imports packages and returns the function that is measured, in the library of an arm
    judge(runs)         returns a `sbench.court.judging.Judgement`

If the claim has `cells`, which are measured as a run, the module has only `judge`.
"""

import contextlib
import importlib
import itertools
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import jsonschema
import yaml

from sbench.design import yaml_file
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, find_git, read_json, read_yaml

CLAIMS = Path("config/claims")
_SCHEMA = Path(__file__).with_name("claim_schema.yaml")
_MODULES = Path("scripts/sbench/court/tested")
# What decides a claim, and must not change after its run.
_CRITERION = ("claimed", "refuted_if")


class Wildcards(Protocol):
    """The wildcards of the rules of claims."""

    claim: str
    version: str


@dataclass(frozen=True)
class Arm:
    """An arm of a claim: the name of its library, and the options of its `prepare`."""

    library: str
    options: Mapping[str, object]


@dataclass(frozen=True)
class TestedClaim:
    """A claim; `claim_schema.yaml` describes the other attributes.

    Attributes:
        id: the name of its file.
    """

    id: str
    title: str
    text: str
    by: str
    date: str
    address: str
    conditions: str
    data: str
    made: str
    refuted_if: str
    right: str
    later: str
    reply: str
    decided_by: str
    claimed: str
    unit: str
    cells: Mapping[str, Any]
    table: str
    libraries: Mapping[str, dict]
    made_by: str
    networks: Sequence[Mapping[str, float]]
    blocks: int
    arms: Mapping[str, dict]
    contrast: Sequence[str]

    @property
    def run(self) -> str:
        """The name of the run that measures its cells."""
        return f"claim-{self.id}"

    @property
    def files(self) -> tuple[Path, Path]:
        """The files of the claim and of its module."""
        return CLAIMS / f"{self.id}.yaml", _MODULES / f"{_name_module(self.id)}.py"

    def list_arms(self) -> dict[str, Arm]:
        """Return the arms by name."""
        return {name: read_fields(Arm, {"options": {}} | arm) for name, arm in self.arms.items()}

    def import_module(self) -> ModuleType:
        """Import the module of the claim."""
        return importlib.import_module(f"sbench.court.tested.{_name_module(self.id)}")


def list_claims() -> list[str]:
    """Return the names of all claims."""
    return sorted(path.stem for path in CLAIMS.glob("*.yaml"))


def load_claim(name: str) -> TestedClaim:
    """Read and check a claim.

    Raises:
        Problem: there is no such claim, or its file is wrong.
    """
    path = CLAIMS / f"{name}.yaml"
    if not path.is_file():
        raise Problem(f"{name} is not a claim; choose one of {', '.join(list_claims())}, or use --claims for all")
    values, schema = yaml_file.read_mapping(path), read_yaml(_SCHEMA)
    if error := jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(values)):
        raise Problem(f"{path}: {'.'.join(map(str, error.absolute_path)) or 'the claim'}: {error.message}")
    defaults = {key: part["default"] for key, part in schema["properties"].items() if "default" in part}
    claim = read_fields(TestedClaim, {"id": name} | defaults | values)
    for names, defined, key in (
        (claim.contrast, claim.arms, "contrast"),
        ([arm["library"] for arm in claim.arms.values()], claim.libraries, "arms"),
        ([claim.made_by] if claim.made_by else [], claim.libraries, "made_by"),
    ):
        if unknown := [text for text in names if text not in defined]:
            raise Problem(f"{path}: {key}: {unknown[0]} is not defined; known: {', '.join(defined)}")
    if not claim.files[1].is_file():
        raise Problem(f"{path}: {claim.files[1]} does not exist; write its functions prepare and judge")
    return claim


def read_commit(claim: TestedClaim) -> dict[str, Any]:
    """Return the last commit of a claim, and earlier versions of its criterion; empty outside a Git repository.

    Returns:
        "commit" and "date" of the claim and its module; "earlier", a list of {"commit", "date", "claimed",
        "refuted_if"} from the first version on; "records", the commits that the records of its cells name.

    Raises:
        Problem: the claim, or its module, differs from the commit, or is younger than the commits of its records. What
            would refute a claim is committed before a run.
    """
    names = list(map(str, claim.files))
    if _run_git("rev-parse", "--is-inside-work-tree") != "true":
        return {}
    committed = _run_git("ls-files", "--error-unmatch", "--", *names) is not None
    if not committed or _run_git("status", "--porcelain", "--", *names):
        raise Problem(
            f"{' and '.join(names)} must be committed before the run, since they state what would refute the claim;"
            " git commit them, and run again"
        )
    commit, date = (_run_git("log", "-1", "--format=%H %cs", "--", *names) or " ").split(" ")
    records = sorted({name for facts in read_facts(claim) for name in facts["git"]})
    for record in records:
        if commit and _run_git("merge-base", "--is-ancestor", commit, record) is None:
            raise Problem(
                f"{names[0]}: commit {commit[:10]} is not part of commit {record[:10]}, which the records of"
                f" results/{claim.run} name, so that they must not decide it; move this folder away, and run again"
            )
    return {"commit": commit, "date": date, "earlier": _list_earlier(claim), "records": records}


def read_facts(claim: TestedClaim) -> list[dict]:
    """Return the facts of each study that has measured cells of a claim (docs/results.md)."""
    paths = [Path("results", claim.run, study, "facts.json") for study in claim.cells.get("studies", {})]
    return [read_json(path) for path in paths if path.exists()]


def _list_earlier(claim: TestedClaim) -> list[dict[str, str]]:
    """List the versions of what would refute a claim that differ from the next one, from the first one on."""
    versions: list[dict[str, str]] = []
    for line in (_run_git("log", "--reverse", "--format=%H %cs", "--", str(claim.files[0])) or "").splitlines():
        commit, date = line.split(" ")
        with contextlib.suppress(yaml.YAMLError, AttributeError):
            values = yaml.safe_load(_run_git("show", f"{commit}:./{claim.files[0]}") or "") or {}
            versions.append({"commit": commit, "date": date} | {name: str(values.get(name)) for name in _CRITERION})
    return [
        one
        for one, following in itertools.pairwise([*versions, vars(claim)])
        if any(one[name] != following[name] for name in _CRITERION)
    ]


def get_module(wildcards: Wildcards) -> str:
    """Return the module of a claim."""
    return str(load_claim(wildcards.claim).files[1])


def list_measured(wildcards: Wildcards) -> list[str]:
    """Return the artefacts of a claim's libraries, or the tables of its run."""
    claim = load_claim(wildcards.claim)
    if claim.cells:
        return [f"results/{claim.run}/{study}/{claim.table}.csv" for study in claim.cells["studies"]]
    return [f"results/claims/{claim.id}/environments/{library}.json" for library in claim.libraries]


def format_spec(wildcards: Wildcards) -> str:
    """Return the entry of a claim's library as JSON, for a command line."""
    return json.dumps(load_claim(wildcards.claim).libraries[wildcards.version])


def _name_module(name: str) -> str:
    return name.replace("-", "_")


def _run_git(*arguments: str) -> str | None:
    done = subprocess.run([find_git(), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
