"""Claims that are tested here: planted ones get the verdict that is known, bad ones a line, and numbers decide."""

import ast
import importlib
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

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
    "true-times": (build_claim({"delay_s": 0.1}, {"delay_s": 0.2}, **TIMES), HOLDS),
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
        ({("binary write of strings", "on"): "refused (413)"}, "the request is no binary write of strings"),
        (
            {("binary read", "off"): "refused (413)", ("JSON read", "on"): "refused (413)"},
            "the request is no JSON read",
        ),
        ({("binary read", "on"): "refused (413)"}, NOT),
    ],
)
def test_a_claim_about_a_limit_is_judged_by_the_requests_above_it(changes: dict, outcome: str, tmp_path: Path):
    kinds = itertools.product(("binary read", "binary write", "JSON read", "binary write of strings"), ("on", "off"))
    rows = [
        {"phase": phase, "streaming": streaming, "times_limit": times, "outcome": "answered"}
        | ({"outcome": changes[phase, streaming]} if times > 1 and (phase, streaming) in changes else {})
        for phase, streaming in kinds
        for times in (1, 2)
    ]
    table = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(table, index=False)
    runs, judgement = judging.judge_runs(load_claim("hsds-limit"), table)
    region = f"{ONLY_IF} streaming is on, and {outcome}" if outcome.startswith("the") else outcome
    assert judgement.outcome == region
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
