"""Claims that are tested here: planted ones get the verdict that is known, bad ones a line, and numbers decide."""

import ast
import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT, copy_project, sbench

from sbench.court import claim_page, judging
from sbench.court.judging import HOLDS, NOT, ONLY_IF, UNKNOWN, Inexact, Judgement, Runs
from sbench.court.tested_claim import list_claims, load_claim
from sbench.probe.program import Problem

CLAIMS, MODULES = Path("config/claims"), Path("scripts/sbench/court/tested")
TEXTS = ["text", "by", "conditions", "data", "made", "refuted_if", "right", "unit"]
PLANTED = {
    **dict.fromkeys(TEXTS, "planted"),
    **{"title": "requests", "date": "2026-01-01", "address": "https://example.org/claim"},
    **{"decided_by": "requests", "claimed": "2", "contrast": ["new", "old"]},
    "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}},
}
TIMES = {"title": "times", "decided_by": "seconds", "blocks": 6}
FAR = TIMES | {"networks": [{"latency_ms": 0}, {"latency_ms": 100}]}


def build_claim(new: Mapping, old: Mapping, **values: object) -> dict:
    """Return a planted claim with two arms, by their options."""
    arms = {"new": {"library": "wheel", "options": dict(new)}, "old": {"library": "wheel", "options": dict(old)}}
    return PLANTED | {"arms": arms} | values


# Claims by name, each with its outcome, which follows from the options of its arms.
TRUE = {
    "true-requests": (build_claim({"gets": 4}, {"gets": 8}), HOLDS),
    "true-bytes": (build_claim({"size": 1000}, {"size": 3000}, title="bytes", decided_by="bytes", claimed="3"), HOLDS),
    "true-repeated": (build_claim({"gets": 3}, {"gets": 3, "step": 0}, title="repeated", claimed="0"), HOLDS),
    "true-values": (build_claim({"gets": 1}, {"gets": 2}, title="equal values", claimed="0"), HOLDS),
    "true-times": (build_claim({"delay_s": 0.3}, {"delay_s": 0.6}, **TIMES), HOLDS),
    # Beside the delay, a request and eight: 0.4 s and 0.8 s over the second network.
    "true-region": (
        build_claim({"gets": 1, "delay_s": 0.3}, {"gets": 8}, **FAR),
        f"{ONLY_IF} the round trip is 100 ms",
    ),
}
FALSE = {
    "false-requests": build_claim({"gets": 8}, {"gets": 8}),
    "false-bytes": build_claim({"size": 1000}, {"size": 1010}, title="bytes", decided_by="bytes", claimed="3"),
    "false-repeated": build_claim({"gets": 3, "step": 0}, {"gets": 3}, title="repeated", claimed="0"),
    "false-values": build_claim({"key": "ones.bin"}, {"key": "zeros.bin"}, title="equal values", claimed="0"),
    "false-times": build_claim({"delay_s": 0.1}, {"delay_s": 0.2}, **TIMES | {"claimed": "10"}),
    "false-region": build_claim({"gets": 8, "delay_s": 0.3}, {"gets": 8}, **FAR),
}


def write_claim(folder: Path, name: str, claim: Mapping) -> None:
    """Write a planted claim and its module."""
    for place in (CLAIMS, MODULES):
        (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / CLAIMS / f"{name}.yaml").write_text(yaml.safe_dump(dict(claim), sort_keys=False), encoding="utf-8")
    shutil.copy(ROOT / "tests/helpers/planted_claim.py", folder / MODULES / f"{name.replace('-', '_')}.py")


def commit(folder: Path) -> str:
    """Commit the claims of a folder, and return the commit."""
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["init", "-q"], ["add", CLAIMS, MODULES], ["commit", "-qm", "claims"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()


@pytest.fixture(scope="module")
def judged(once: Callable) -> Path:
    """Return a folder with the verdicts of all planted claims, and a clone with their pages and no others."""

    def build(folder: Path) -> None:
        clone = copy_project(folder / "clone")
        shutil.rmtree(clone / CLAIMS)
        planted = {name: claim for name, (claim, _) in TRUE.items()} | FALSE
        for name, claim in planted.items():
            write_claim(clone, name, claim)
        committed = commit(clone)
        done = sbench("published", "--claims", "--json", "--cores=2", cwd=clone)
        assert done.returncode == 0, done.stderr
        (folder / "verdicts.json").write_text(done.stdout, encoding="utf-8")
        (folder / "commit").write_text(committed, encoding="utf-8")

    return once("planted-claims", build)


@pytest.mark.late
def test_planted_claims_hold_or_not_as_their_arms_were_made(judged: Path):
    rows = json.loads((judged / "verdicts.json").read_text(encoding="utf-8"))
    outcomes = {row["id"]: row["outcome"] for row in rows}
    assert outcomes == {name: outcome for name, (_, outcome) in TRUE.items()} | dict.fromkeys(FALSE, NOT)
    index = (judged / "clone/reports/claims/index.md").read_text(encoding="utf-8")
    assert "**12 claims: 5 hold, 1 holds under a condition and 6 do not hold.**" in index


@pytest.mark.late
def test_a_page_names_the_commit_of_the_claim_and_arms_that_read_other_values(judged: Path):
    pages = {
        name: (judged / f"clone/reports/claims/{name}-values.md").read_text(encoding="utf-8")
        for name in ("true", "false")
    }
    committed = (judged / "commit").read_text(encoding="utf-8")
    assert all(f"Refuted if (commit `{committed[:10]}`" in text for text in pages.values())
    assert "old reads other values than new." in pages["false"]
    assert "These arms read" not in pages["true"]


@pytest.mark.late
def test_counts_of_planted_requests_are_those_that_were_sent(judged: Path):
    table = pd.read_csv(judged / "clone/results/claims/false-repeated/runs.csv").set_index("arm")
    counts = table.loc[["new", "old"], ["get", "bytes", "distinct", "repeated"]].drop_duplicates()
    assert counts.loc["new"].to_dict() == {"get": 3, "bytes": 3000, "distinct": 1000, "repeated": 2}
    assert counts.loc["old"].to_dict() == {"get": 3, "bytes": 3000, "distinct": 3000, "repeated": 0}


def test_an_arm_that_fails_ends_in_a_line_with_the_reason(clone: Path):
    write_claim(clone, "fails", build_claim({"gets": 1}, {"fails": True}))
    commit(clone)
    done = sbench("published", "fails", cwd=clone)
    assert done.returncode == 1
    problem = "problem: config/claims/fails.yaml: wheel failed with status 1: ValueError: planted failure; see results/"
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / "results/claims/fails/runs.csv").exists()


def test_a_run_refuses_a_claim_that_is_not_committed(clone: Path):
    write_claim(clone, "late", build_claim({"gets": 1}, {"gets": 2}))
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    expected = "config/claims/late.yaml and scripts/sbench/court/tested/late.py must be committed before the run"
    assert_refused(clone, "late", expected)
    commit(clone)
    module = clone / MODULES / "late.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert_refused(clone, "late", expected)
    assert_refused(clone, "later", "later is not a claim; choose one of ")
    assert not (clone / "results/claims").exists()


def assert_refused(clone: Path, name: str, expected: str) -> None:
    """Assert that a call ends in a single line with a text."""
    done = sbench("published", name, cwd=clone)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def copy_verdicts(clone: Path, commit: str) -> None:
    """Write the tables of a run of two cells that was made earlier, at a commit and on another machine."""
    run = clone / "results/claim-azure-broadcast/blobs"
    run.mkdir(parents=True, exist_ok=True)
    row = {"factor": "pattern", "baseline": "single-file", "contender": "broadcast", "store": "s3-each", "size": "4MiB"}
    row |= {"control": None, "metric": "total", "role": "decides"}
    row |= {"verdict": "faster", "ratio": 0.53, "ratio_low": 0.52, "ratio_high": 0.54}
    pd.DataFrame([row]).to_csv(run / "verdicts.csv", index=False)
    facts = {"git": [commit], "sessions": ["2026-01-02T03:04:05"], "machine": {"cpu": "Other CPU", "os": "Other OS"}}
    (run / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def run_program(clone: Path, name: str, **options: object) -> subprocess.CompletedProcess:
    """Run a program of the project in a clone."""
    words = [f"--{key}={value}" for key, value in options.items()]
    command = [sys.executable, "-sE", *f"scripts/{name}".split(), *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)


def change_criterion(clone: Path, text: str) -> str:
    """Change what would refute a claim, and return the commit."""
    path = clone / CLAIMS / "azure-broadcast.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) | {"refuted_if": text}
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return commit(clone)


def test_verdicts_of_an_earlier_run_name_its_commit_and_decide_no_younger_claim(clone: Path):
    first, second = change_criterion(clone, "Planted first."), change_criterion(clone, "Planted second.")
    copy_verdicts(clone, second)
    folder, measure = "results/claims/azure-broadcast", "module.py sbench.court.measure_claim"
    measured = {"measured": "results/claim-azure-broadcast/blobs/verdicts.csv", "out": folder}
    done = run_program(clone, measure, claim="azure-broadcast", **measured)
    assert done.returncode == 0, done.stderr
    made = {"notebook": "notebooks/claim.ipynb", "tables": folder, "facts": f"{folder}/facts.json"}
    page = clone / "reports/claims/azure-broadcast.html"
    done = run_program(clone, "report.py", **made, out=page)
    assert done.returncode == 0, done.stderr
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    assert f"Refuted if (commit `{second[:10]}`" in text
    assert re.search(rf"- Earlier version \(commit `{first[:10]}`, [-\d]+; claimed >1\): Planted first\.", text)
    assert f"Judged from the run claim-azure-broadcast, whose records name the commit `{second[:10]}`." in text
    assert "Measured on 2026-01-02: Other CPU, Other OS." in text
    assert "**Cannot be told here**" in text
    assert "Reply of the authors" not in text
    page.unlink()
    third = change_criterion(clone, "Planted after the run.")
    expected = (
        f"commit {third[:10]} is not part of commit {second[:10]}, which the records of results/claim-azure-broadcast"
    )
    assert_refused(clone, "azure-broadcast", expected)
    # Neither may a page be made again from what was measured before.
    shutil.rmtree(clone / "results/claim-azure-broadcast")
    done = run_program(clone, "report.py", **made, out=page)
    assert f"azure_broadcast.py is younger than {folder}/facts.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert not page.exists()


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"contrast": ["new", "older"]}, "contrast: older is not defined; known: new, old"),
        ({"arms": {"new": {"library": "wheels"}}}, "contrast: old is not defined; known: new"),
        ({"libraries": {"other": {"kind": "wheel"}}}, "arms: wheel is not defined; known: other"),
        ({"made_by": "maker"}, "made_by: maker is not defined; known: wheel"),
        ({"blocks": 0}, "blocks: 0 is less than the minimum of 1"),
        ({"text": ""}, "text: '' should be non-empty"),
        ({"decided_by": "taste"}, "decided_by: 'taste' is not one of"),
        ({"verdict": "holds"}, "the claim: Additional properties are not allowed ('verdict' was unexpected)"),
        ({"networks": [{"latency": 2}]}, "networks.0: Additional properties are not allowed"),
    ],
)
def test_a_wrong_claim_is_refused_with_its_place(changes: dict, expected: str, tmp_path: Path, monkeypatch):
    write_claim(tmp_path, "wrong", build_claim({}, {}) | changes)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem) as problem:
        load_claim("wrong")
    assert str(problem.value).startswith("config/claims/wrong.yaml: ")
    assert expected in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_claim_without_a_field_or_a_module_is_refused(tmp_path: Path, monkeypatch):
    claim = build_claim({}, {})
    write_claim(tmp_path, "wrong", {name: claim[name] for name in claim if name != "refuted_if"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match="the claim: 'refuted_if' is a required property"):
        load_claim("wrong")
    write_claim(tmp_path, "wrong", claim)
    Path(MODULES, "wrong.py").unlink()
    with pytest.raises(Problem, match=r"tested/wrong\.py does not exist; write its functions prepare and judge"):
        load_claim("wrong")


@pytest.mark.late
@pytest.mark.parametrize("name", ["zarr-3199", "h5coro-rechunk", "h5pyd-258"])
def test_a_claim_that_counts_decide_has_the_verdict_of_the_committed_page(clone: Path, name: str):
    done = sbench("published", name, "--json", "--cores=2", cwd=clone)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    committed = (ROOT / f"reports/claims/{name}.md").read_text(encoding="utf-8")
    outcome = row["outcome"]
    assert f"**{outcome[0].upper()}{outcome[1:]}**: {row['reason']}." in committed


@pytest.fixture
def build_runs(tmp_path: Path, monkeypatch) -> Callable[..., Runs]:
    """Return a function that makes the runs of a planted claim from rows of numbers."""

    def build(rows: list[dict], **values: object) -> Runs:
        write_claim(tmp_path, "planted", build_claim({}, {}, **values))
        monkeypatch.chdir(tmp_path)
        return Runs(load_claim("planted"), pd.DataFrame(rows))

    return build


def list_rows(new: list[float], old: list[float], column: str, network: int = 0) -> list[dict]:
    """Return a row per run of both arms."""
    return [
        {"network": network, "block": block, "arm": arm, column: value}
        for arm, values in (("new", new), ("old", old))
        for block, value in enumerate(values)
    ]


@pytest.mark.parametrize("name", list_claims())
def test_a_claim_uses_only_what_runs_and_judgements_have(name: str):
    claim = load_claim(name)
    assert hasattr(claim.import_module(), "prepare") == bool(claim.arms)
    kinds = {"runs": {*dir(Runs), "claim", "frame"}, "judgement": {*dir(Judgement)}}
    used = [
        (node.value.id, node.attr)
        for node in ast.walk(ast.parse(claim.files[1].read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in kinds
    ]
    assert used
    assert [pair for pair in used if pair[1] not in kinds[pair[0]]] == []


@pytest.mark.parametrize("name", [name for name in list_claims() if name.startswith("own-")])
def test_a_claim_of_this_project_is_a_sentence_of_its_documents(name: str):
    claim = load_claim(name)
    assert claim.text in (ROOT / claim.address).read_text(encoding="utf-8")


@pytest.mark.parametrize("study", ["arrays", "blobs", "particles", "shots"])
def test_claims_of_published_studies_that_are_measured_have_the_same_sentence(study: str):
    published = importlib.import_module(f"sbench.studies.{study}.published_claims").claims
    measured = {
        claim.quote: claim.tested_by.removeprefix("the claim ") for claim in published if "claim" in claim.tested_by
    }
    assert measured
    assert {name: load_claim(name).text for name in measured.values()} == {
        name: text for text, name in measured.items()
    }


def test_a_page_draws_the_requests_of_the_contrast_in_the_order_of_their_starts(build_runs: Callable):
    runs = build_runs(list_rows([1], [6331], "requests"))
    traffic = {
        arm: [{"begin": place, "end": place + 1, "method": "GET", "path": "/a"} for place in range(count)]
        for arm, count in (("new", 1), ("old", 2000))
    }
    figure = claim_page.draw_requests(traffic, runs)
    assert [panel.title for panel in figure.panels] == ["new: 1 request", "old: 6,331 requests, the first 400"]
    assert len(figure.numbers) == 401
    assert figure.panels[1].y_tick_texts == ("1", "400")
    assert (figure.panels[1].bars[0].table["y"].diff().dropna() == -1).all()


def test_a_count_that_differs_between_runs_decides_nothing(build_runs: Callable):
    runs = build_runs(list_rows([4, 5], [8, 8], "requests"))
    assert runs.read_count("old") == 8
    with pytest.raises(Inexact, match="requests of new differ between its runs: 4, 5"):
        runs.read_count("new")
    assert runs.read_median("new", "requests") == 4.5


def test_an_outcome_names_its_condition(build_runs: Callable):
    runs = build_runs(list_rows([4], [8], "requests"))
    outcomes = [runs.decide(True, 2, "so"), runs.decide(False, 1, "so"), runs.limit("it is far", 2, "so")]
    assert [judgement.outcome for judgement in outcomes] == ["holds", "does not hold", "holds only if it is far"]
    still_open = runs.leave_open("no such release")
    assert still_open.outcome == "cannot be told here"
    assert pd.isna(still_open.measured)


@pytest.mark.parametrize(
    "claimed, ratio, expected", [("2", 2.4, True), ("2", 2.6, False), ("~10", 10.9, True), (">5", 5, False)]
)
def test_a_number_agrees_with_a_claimed_number_as_printed(
    claimed: str, ratio: float, expected: bool, build_runs: Callable
):
    assert build_runs(list_rows([1], [1], "requests"), claimed=claimed).agrees(ratio) is expected


def test_arms_that_read_other_values_in_any_run_are_listed(build_runs: Callable):
    assert build_runs(list_rows(["a", "a"], ["a", "a"], "checksum")).list_unequal() == []
    assert build_runs(list_rows(["a", "a"], ["a", "b"], "checksum")).list_unequal() == ["old"]
    assert build_runs(list_rows([1], [1], "requests")).list_unequal() == []


NEAR = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0]


@pytest.mark.parametrize(
    "ratios, outcome",
    [
        ((2, 2), HOLDS),
        ((1, 2), f"{ONLY_IF} the round trip is 20 ms"),
        ((1, 1), NOT),
        ((0.5, 0.5), NOT),
        # Faster, but not by as much as claimed.
        ((1.1, 1.1), NOT),
        ((10, 10), NOT),
    ],
)
def test_a_claimed_speedup_is_judged_over_each_network(ratios: tuple, outcome: str, build_runs: Callable):
    rows = itertools.chain.from_iterable(
        list_rows(NEAR, [ratio * value for value in reversed(NEAR)], "seconds", network)
        for network, ratio in enumerate(ratios)
    )
    runs = build_runs(list(rows), **TIMES | {"networks": [{"latency_ms": 2}, {"latency_ms": 20}]})
    assert runs.judge_speedup(2).outcome == outcome


@pytest.mark.parametrize("gain, noise, most", [(8, 0.2, 0.05), (8, 0.02, 0), (15, 0.02, 1)])
def test_noise_does_not_make_a_claimed_speedup_hold(gain: float, noise: float, most: float, build_runs: Callable):
    runs, rng, outcomes = build_runs(list_rows(NEAR, NEAR, "seconds"), **TIMES), np.random.default_rng(1), []
    for _ in range(100):
        old, new = np.exp(rng.normal(0, noise, (2, 6)))
        runs.frame = pd.DataFrame(list_rows(list(new), list(gain * old), "seconds"))
        outcomes.append(runs.judge_speedup(15).outcome)
    assert outcomes.count(HOLDS) <= 100 * most
    # Without much noise, the truth decides.
    assert noise > 0.1 or set(outcomes) == {HOLDS if gain == 15 else NOT}


def test_a_speedup_that_may_be_outside_the_claimed_range_leaves_a_claim_open(build_runs: Callable):
    wide = [1.0, 1.2, 0.9, 1.3, 0.8, 1.0]
    near, far = (
        list_rows(NEAR, [gain * value for value in wide], "seconds", place) for place, gain in enumerate((2, 3))
    )
    runs = build_runs([*near, *far], **TIMES | {"networks": [{"latency_ms": 2}, {"latency_ms": 20}]})
    judgement = runs.judge_speedup(2)
    assert judgement.outcome == UNKNOWN
    assert judgement.reason.endswith(
        "the 95 % CI is neither within 1.33 to 3.00 nor outside if the round trip is 20 ms"
    )
    assert runs.judge_speedup(2, places=[0]).outcome == HOLDS


def test_times_that_decide_nothing_leave_a_claim_open(build_runs: Callable):
    runs = build_runs(list_rows([1, 3, 1, 3, 1, 3], [3, 1, 3, 1, 3, 1], "seconds"), **TIMES)
    assert runs.judge_speedup(2).outcome == UNKNOWN


ZARR = {f"{release}, format {number}": 6 for release in ("3.0.8", "3.0.9") for number in (2, 3)}
H5CORO = {
    **{f"h5coro, {chunk}, {order}": 10 for chunk in ("10k", "100k", "1M") for order in ("in turn", "one by one")},
    **{f"h5coro, {chunk}, slice": 2 for chunk in ("10k", "100k", "1M")},
    **dict.fromkeys(("h5py without cache, 10k", "h5py without cache, 1M"), 800),
}


def judge_counts(name: str, counts: Mapping[str, float], column: str, folder: Path, **others: Mapping) -> str:
    """Judge a claim of the project from counts of its arms; the second run of the first arm may differ."""
    claim = load_claim(name)
    rows = [
        {"network": 0, "block": block, "arm": arm, column: counts.get(arm, 1)}
        | {other: values[arm] for other, values in others.items()}
        for arm in claim.arms
        for block in range(2)
    ]
    if "differs" in counts:
        rows[0][column] += 1
    pd.DataFrame(rows).to_csv(folder / "runs.csv", index=False)
    return judging.judge_runs(claim, folder / "runs.csv")[1].outcome


@pytest.mark.parametrize(
    "changes, outcome",
    [
        ({}, NOT),
        ({"3.0.9, format 3": 12, "3.0.9, format 2": 12}, HOLDS),
        ({"3.0.9, format 3": 12}, NOT),
        ({"differs": 1}, UNKNOWN),
    ],
)
def test_a_claim_about_two_releases_is_judged_by_their_counts(changes: dict, outcome: str, tmp_path: Path):
    assert judge_counts("zarr-3199", ZARR | changes, "get", tmp_path) == outcome


@pytest.mark.parametrize(
    "changes, outcome",
    [
        ({}, HOLDS),
        ({"h5coro, 10k, in turn": 16}, f"{ONLY_IF} the chunks of the variables lie one by one"),
        ({"h5coro, 10k, in turn": 16, "h5coro, 10k, one by one": 16}, NOT),
        ({"h5py without cache, 10k": 19}, NOT),
        ({"h5coro, 10k, slice": 3}, NOT),
        ({"differs": 1}, UNKNOWN),
    ],
)
def test_a_claim_about_chunks_is_judged_in_each_order(changes: dict, outcome: str, tmp_path: Path):
    assert judge_counts("h5coro-rechunk", H5CORO | changes, "requests", tmp_path) == outcome


@pytest.mark.parametrize(
    "costs, outcome",
    [
        ({"0.21.0": (1, 1), "0.24.0": (1, 1), "1.0.0": (1, 1)}, HOLDS),
        ({"0.21.0": (1, 1), "0.24.0": (1, 1), "1.0.0": (1, 0.5)}, f"{ONLY_IF} h5pyd is 0.21.0 or 0.24.0"),
        ({"0.21.0": (1, 0.5), "0.24.0": (1, 1), "1.0.0": (1, 1)}, NOT),
    ],
)
def test_a_claim_about_uploads_is_judged_by_the_cost_of_objects_and_of_attributes(
    costs: dict, outcome: str, tmp_path: Path
):
    trees = {"few": (30, 0), "more objects": (90, 0), "more attributes": (30, 300)}
    counts, stored = {}, {"objects": {}, "attributes": {}}
    for (release, cost), (tree, numbers) in itertools.product(costs.items(), trees.items()):
        arm = f"{release}, {tree}"
        counts[arm] = 7 + cost[0] * numbers[0] + cost[1] * numbers[1]
        stored["objects"][arm], stored["attributes"][arm] = numbers
    assert judge_counts("h5pyd-258", counts, "hsds_requests", tmp_path, **stored) == outcome


@pytest.mark.parametrize(
    "changes, outcome",
    [
        ({}, HOLDS),
        # The article excepts JSON and strings, and a limit without streaming was there before.
        ({("binary write of strings", "on"): "refused (413)"}, HOLDS),
        ({("binary read", "off"): "refused (413)", ("JSON read", "on"): "refused (413)"}, HOLDS),
        ({("h5pyd read", "on"): "refused (413)"}, f"{ONLY_IF} the request is no h5pyd read"),
        ({("binary read", "on"): "refused (413)", ("h5pyd read", "on"): "refused (413)"}, NOT),
    ],
)
def test_a_claim_about_a_limit_is_judged_by_the_requests_above_it(changes: dict, outcome: str, tmp_path: Path):
    phases = ("binary read", "binary write", "h5pyd read", "JSON read", "binary write of strings")
    kinds = itertools.product(phases, ("on", "off"))
    rows = [
        {"phase": phase, "streaming": streaming, "times_limit": times, "outcome": "answered"}
        | ({"outcome": changes[phase, streaming]} if times > 1 and (phase, streaming) in changes else {})
        for phase, streaming in kinds
        for times in (1, 2)
    ]
    table = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(table, index=False)
    runs, judgement = judging.judge_runs(load_claim("hsds-limit"), table)
    assert judgement.outcome == outcome
    excepted = ("binary write of strings", "on") in changes
    assert (
        judgement.reason.endswith("with streaming, binary write of strings are refused, as the article says")
        == excepted
    )
    assert len(runs.claim.import_module().tabulate(runs)) == len(rows)


@pytest.mark.parametrize("name", [name for name in list_claims() if load_claim(name).cells])
def test_a_run_without_results_decides_nothing(name: str, tmp_path: Path):
    columns = ["factor", "control", "metric", "role", "verdict", "phase", "streaming", "times_limit", "outcome"]
    pd.DataFrame(columns=columns).to_csv(tmp_path / "runs.csv", index=False)
    judgement = judging.judge_runs(load_claim(name), tmp_path / "runs.csv")[1]
    assert judgement.outcome == UNKNOWN
    assert judgement.reason == f"the run claim-{name} has no valid result"


def test_a_limit_is_not_judged_by_requests_below_it(tmp_path: Path):
    row = {"phase": "binary read", "streaming": "on", "times_limit": 1, "outcome": "answered"}
    pd.DataFrame([row]).to_csv(tmp_path / "runs.csv", index=False)
    assert judging.judge_runs(load_claim("hsds-limit"), tmp_path / "runs.csv")[1].outcome == UNKNOWN


def judge_numbers(name: str, folder: Path, numbers: Callable[[str, int], Mapping[str, float]]) -> Judgement:
    """Judge a claim of the project from six blocks; `numbers` returns those of an arm over a network."""
    claim = load_claim(name)
    rows = [
        {"network": place, "block": block, "arm": arm, "requests": 10, "bytes": 2**20, "get": 10, "cpu_s": 1}
        | {"seconds": 1.0}
        | dict(numbers(arm, place))
        for place in range(len(claim.networks))
        for arm in claim.arms
        for block in range(6)
    ]
    for row in rows:
        row["seconds"] *= NEAR[row["block"]]
    pd.DataFrame(rows).to_csv(folder / "runs.csv", index=False)
    return judging.judge_runs(claim, folder / "runs.csv")[1]


@pytest.mark.parametrize("gains, outcome", [((15, 11), HOLDS), ((15, 5), HOLDS), ((5, 15), NOT)])
def test_a_claim_with_conditions_is_judged_within_them(gains: tuple, outcome: str, tmp_path: Path):
    seconds = {"2026.2.0": lambda place: gains[min(place, 1)], "2026.2.0, paged file": lambda _: 3}
    judgement = judge_numbers(
        "xarray-11216", tmp_path, lambda arm, place: {"seconds": seconds.get(arm, lambda _: 1)(place)}
    )
    assert judgement.outcome == outcome
    other = f"{gains[1]:.2f}" if gains[1] < 10 else f"{gains[1]:.1f}"
    limits = f"beyond the conditions of the claim, it is {other} and {other} times as fast if the round trip is 20 ms"
    assert limits in judgement.reason
    assert judgement.reason.endswith("3.00 to 3.00 times for the paged file")


def test_clients_that_share_cores_with_the_server_refute_no_throughput(tmp_path: Path):
    def compute(arm: str, _: int) -> dict:
        return {"seconds": 0.5, "cpu_s": 0.2} if arm == "obstore" else {"seconds": 1.4, "cpu_s": 0.8}

    judgement = judge_numbers("obstore-performance", tmp_path, compute)
    assert judgement.outcome == UNKNOWN
    assert "9 times fsspec cannot be told (by seconds, it is 2.80 and 2.80 times as fast)" in judgement.reason
    assert "2.8 times aioboto3 agrees if the round trip is 2 ms or 20 ms" in judgement.reason
    assert "4.00 times (with fsspec)" in judgement.reason
    far = {"fsspec, 250 connections": 4.5, "aioboto3, 250 connections": 1.4, "obstore": 0.5}
    judgement = judge_numbers("obstore-performance", tmp_path, lambda arm, _: {"seconds": far.get(arm, 1)})
    assert judgement.outcome == HOLDS


@pytest.mark.parametrize(
    "size, best, outcome, said",
    [
        (24, 1, NOT, "the direction holds, and the number does not"),
        (1.5, 1, NOT, "for the same samples"),
        (117, 3, HOLDS, "for the same samples"),
        (
            117,
            1,
            f"{ONLY_IF} HDF5 has a chunk for each row, and is read sample by sample with the defaults of s3fs",
            "for",
        ),
    ],
)
def test_a_claimed_number_and_its_direction_are_judged_apart(size, best, outcome, said, tmp_path: Path):
    sizes = {"HDF5 as in the claim": size, "Lance by batch": 1}
    judgement = judge_numbers("stable-worldmodel-214", tmp_path, lambda arm, _: {"bytes": sizes.get(arm, best)})
    assert judgement.outcome == outcome
    assert judgement.reason.startswith(said)


@pytest.mark.parametrize("old, new, outcome", [(180, 10, NOT), (10, 180, HOLDS)])
def test_a_claim_is_judged_with_the_release_of_its_time(old: int, new: int, outcome: str, tmp_path: Path):
    counts = {"ROS3 of HDF5 1.14.6": old, "ROS3 of HDF5 2.2.0": new}
    judgement = judge_numbers("pynwb-1791", tmp_path, lambda arm, _: {"requests": counts.get(arm, 10)})
    assert judgement.outcome == outcome
