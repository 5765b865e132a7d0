"""Audits: rules of how we measure, on published tables and on a user's own; labels, machines, conclusions."""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from conftest import ROOT

from sbench.court import audit, audit_page, ceilings, claims, label_audit, raw_data, rules, timings
from sbench.design.claim import Claims
from sbench.probe.program import Problem

PRINTED, SOURCES = ROOT / "results/published", ROOT / "config/published.yaml"
STUDIES = sorted(raw_data.read_sources(SOURCES))
CARD = {"node": {"network_in": {"value": 1000, "unit": "Mbit/s"}}}


def judge(rule: str, spec: dict, columns: dict, machines: dict | None = None) -> tuple[str, str]:
    """Return what one rule says of a table with the column `arm`, whose columns a declaration gives roles."""
    table = pd.DataFrame(columns).astype(str)
    rows = rules.judge_rules([{"table": "t", "within": [], "arms": ["arm"]} | spec], {"t": table}, machines or {})
    row = rows[rows["rule"].str.contains(rule)].iloc[0]
    return row["outcome"], row["data"]


def repeated(number: int) -> dict:
    return {"arm": ["a"] * number + ["b"] * number, "run": [*range(number), *range(number)]}


BATCHES = {"workers": "w", "batches_of": "list", "items": "n"}
RATES = {"within": ["size"], "over": "size", "amount": "size", "time": "s"}
MACHINE = {"machine": "'node'", "through": ["network_in"]}
SIZES = [1, 100, 200, 300]
READINGS = {"rate": "r", "stated": "whole", "readings": {"whole": "`mib` / `s`", "all": "4 * `mib` / `s`"}}


@pytest.mark.parametrize(
    "rule, spec, columns, outcome, words",
    [
        ("repeats", {"repeat": "run"}, repeated(6), "kept", "2 cells with 6 repeats each"),
        (
            "repeats",
            {"repeat": "run"},
            repeated(5),
            "broken",
            "2 cells with 5 repeats each; all have too few repeats for a verdict",
        ),
        (
            "repeats",
            {"repeat": "index", "averaged": 7},
            {"arm": ["a", "b"]},
            "broken",
            "each (only the mean of 7 runs)",
        ),
        (
            "read the same",
            {"input": "f"},
            {"arm": list("aabb"), "f": list("xyyx")},
            "kept",
            "2 runs read the same 2 values of f",
        ),
        ("read the same", {"input": "f"}, {"arm": list("aabb"), "f": list("xyxz")}, "broken", "2 different sets of f"),
        ("read the same", {}, {"arm": list("ab")}, "not testable", "missing: names of the data"),
        (
            "the work",
            {"work": {"files": "n"}},
            {"arm": list("aab"), "n": [1, 2, 3]},
            "kept",
            "3 files per run in 2 runs",
        ),
        (
            "the work",
            {"work": {"files": "n"}},
            {"arm": list("ab"), "n": [1, 3]},
            "broken",
            "1–3 files per run in 2 runs",
        ),
        (
            "the work",
            RATES,
            {"arm": list("aabb"), "size": [1, 10, 1, 10], "s": [1, 9, 1, 1.5]},
            "broken",
            "b took 1.50× as long for 10.0× the work (from size 1 to 10; all others: 9.00×); missing: work per run",
        ),
        (
            "the work",
            RATES,
            {"arm": list("aabb"), "size": [1, 10, 1, 10], "s": [1, 9, 1, 5]},
            "not testable",
            "; b took 5.00× as long for 10.0× the work (from size 1 to 10; all others: 9.00×)",
        ),
        (
            "worker has",
            BATCHES,
            {"arm": list("aa"), "w": [2, 2], "list": ["x", "x"], "n": [3, 2]},
            "kept",
            "in 0 of 1 task lists some workers had nothing to do; all lists are ceil-divided",
        ),
        (
            "worker has",
            BATCHES | {"part": "part", "time": "s"},
            {"arm": list("aab"), "w": [2, 2, 2], "list": list("xyx"), "n": 1, "part": [3, 4, 9], "s": [5, 5, 9]},
            "broken",
            "in 1 of 1 task lists some workers had nothing to do (at worst 1 of 2); 2 more ran in parallel",
        ),
        (
            "worker has",
            BATCHES,
            {"arm": list("aab"), "w": [2, 2, 3], "list": ["x", "x", "x"], "n": [3, 2, 5]},
            "broken",
            "in 1 of 2 task lists some workers had nothing to do (at worst 2 of 3); 1 lists differ from a ceil",
        ),
        (
            "first access",
            {"sample": "s", "steps": "step"},
            {"arm": list("aaaa"), "step": list("wxyz"), "s": [2.1, 2, 2, 2]},
            "kept",
            "in 1 series the first step took 1.05× the median of the others",
        ),
        (
            "first access",
            {"sample": "s", "steps": "step"},
            {"arm": list("aaaa"), "step": list("wxyz"), "s": [9, 2, 2, 2]},
            "broken",
            "in 1 it was the slowest (at least 1.5× the median) and is averaged: a (4.50×)",
        ),
        (
            "first access",
            {"sample": "s", "steps": "step"},
            {"arm": list("aaaa"), "step": list("wxyz"), "s": [9, 2, 2, 10]},
            "kept",
            "4.50×",
        ),
        # 1000 Mbit/s are 119.2 MiB/s.
        (
            "plateau",
            RATES | MACHINE,
            {"arm": ["a"] * 4, "size": SIZES, "s": [1, 1, 2, 3]},
            "broken",
            "a: 100 MiB/s (0.8 Gbit/s) at size 100–300; node network in: up to 100 MiB/s (0.8 Gbit/s), ceiling",
        ),
        (
            "plateau",
            RATES | MACHINE,
            {"arm": ["a"] * 4, "size": SIZES, "s": [1, 2, 4, 6]},
            "kept",
            "a: 50 MiB/s (0.4 Gbit/s) at size 100–300",
        ),
        (
            "plateau",
            RATES,
            {"arm": ["a"] * 4, "size": SIZES, "s": [1, 2, 4, 6]},
            "not testable",
            "at size 100–300; ceiling unknown: machine not named",
        ),
        ("plateau", RATES, {"arm": ["a"] * 4, "size": SIZES, "s": [1, 2, 3, 4]}, "kept", "no series has a plateau"),
        (
            "plateau",
            RATES,
            {"arm": ["a"] * 2, "size": [1, 2], "s": [1, 2]},
            "not testable",
            "each series has fewer than 3 levels",
        ),
        ("no rate above", MACHINE | {"rate": "r"}, {"arm": list("ab"), "r": [118, 119]}, "kept", "0 of 2 rates exceed"),
        (
            "no rate above",
            MACHINE | {"rate": "r"},
            {"arm": list("ab"), "r": [118, 120]},
            "broken",
            "1 of 2 rates exceed the ceiling; node network in: up to 120 MiB/s (1.0 Gbit/s), ceiling 119 MiB/s",
        ),
        (
            "no rate above",
            MACHINE | {"rate": "r", "machines": 2},
            {"arm": list("ab"), "r": [118, 120]},
            "kept",
            "2 × node network in: up to 120 MiB/s (1.0 Gbit/s), ceiling 238 MiB/s",
        ),
        (
            "no rate above",
            MACHINE | {"rate": "r", "machine": "'c5.4xlarge'"},
            {"arm": list("ab"), "r": [118, 120]},
            "not testable",
            "ceiling unknown: c5.4xlarge network in",
        ),
        (
            "rates are totals",
            {"rate": "r", "amount": "`mib`", "time": "`s`"},
            {"arm": list("ab"), "mib": [100, 100], "s": ["2.0", "4.0"], "r": ["50.0", "25.0"]},
            "kept",
            "all 2 printed rates agree",
        ),
        (
            "rates are totals",
            {"rate": "r", "amount": "`mib`", "time": "`s`"},
            {"arm": list("ab"), "mib": [100, 100], "s": ["2.000", "4.000"], "r": ["55.0", "25.0"]},
            "broken",
            "1 of 2 printed rates differ from amount / time: 1 higher (as means of rates are, by up to 10.0 %), 0",
        ),
        (
            "rates are totals",
            {"items": "n", "part": "s"},
            {"arm": list("aa"), "n": [1, 1], "s": [1, 3]},
            "kept",
            # (1 + 1/3) / 2 against 2 / 4.
            "means of rates would be 1.33×",
        ),
        (
            "first access",
            {"sample": "s", "steps": "step"},
            {"arm": list("aa"), "step": list("wx"), "s": [9, 2]},
            "not testable",
            "each series has fewer than three steps",
        ),
        (
            "CPU",
            {"cpu": "c", "time": "s"},
            {"arm": list("ab"), "c": [1, 3], "s": [2, 2]},
            "kept",
            "a 50 %; b 150 %",
        ),
        ("CPU", {"time": "s"}, {"arm": list("ab"), "s": [2, 2]}, "not testable", "missing: CPU seconds"),
        (
            "sizes have",
            READINGS,
            {"arm": list("ab"), "mib": [10, 20], "s": ["1.0", "1.0"], "r": ["10.1", "20.0"]},
            "kept",
            "of 2 rates, 2 fit “whole” best (2 within rounding), 0 fit “all” best (0 within",
        ),
        (
            "sizes have",
            READINGS,
            {"arm": list("ab"), "mib": [10, 20], "s": ["1.000", "1.000"], "r": ["40.0", "79.0"]},
            "broken",
            "0 fit “whole” best (0 within rounding), 2 fit “all” best (1 within rounding)",
        ),
    ],
)
def test_a_rule_is_kept_broken_or_says_what_it_lacks(rule: str, spec: dict, columns: dict, outcome: str, words: str):
    said = judge(rule, spec, columns, CARD)
    assert said[0] == outcome, said
    assert words in said[1]


def test_repeats_are_runs_of_their_own():
    columns = {"arm": ["a"] * 4, "run": [1, 1, 2, 2], "n": [1, 2, 2, 1], "size": [7] * 4, "s": [3] * 4}
    spec = MACHINE | {"repeat": "run", "work": {"files": "n"}, "amount": "n", "time": "s"}
    assert judge("the work", spec, columns) == ("kept", "3 files per run in 2 runs")
    table = timings.build_timings(
        spec | {"table": "t", "within": [], "arms": ["arm"]},
        {"t": pd.DataFrame(columns).astype(str)},
        CARD,
    )
    rates = ceilings.compute_rates(table)
    assert list(rates["rate"]) == [1.0]
    assert list(rates["ceiling"]) == [pytest.approx(1e9 / 8 / 2**20)]


def test_a_column_that_is_mostly_not_available_is_one_of_numbers():
    wide = {"column": "store", "levels": ["A", "B"], "values": {"rate": "{} Rate"}}
    spec = {"table": "t", "wide": wide, "within": ["size"], "arms": ["store"], "rate": "rate", "repeat": "index"}
    texts = pd.DataFrame({"size": ["1", "2"], "A Rate": ["5", "N/A"], "B Rate": ["N/A", "N/A"]})
    rates = ceilings.compute_rates(timings.build_timings(spec, {"t": texts}, {}))
    assert list(rates["store"]) == ["A", "A", "B", "B"]
    assert list(rates["rate"].dropna()) == [5.0]


def test_a_table_that_is_not_there_is_named():
    rows = rules.judge_rules([{"table": "a.csv + b.csv", "within": [], "arms": ["x"], "repeat": "x"}], {}, {})
    assert rows.loc[0, ["outcome", "data"]].to_list() == ["not testable", "a.csv is missing"]
    none = judge("repeats", {"repeat": "index", "rows": "arm == 'c'"}, {"arm": ["a", "b"]})
    assert none == ("not testable", "no rows with arm == 'c'")


# Machines


def test_what_machines_carry_has_a_unit_and_a_source():
    machines = yaml.safe_load((ROOT / "config/facts/machines.yaml").read_text(encoding="utf-8"))["machines"]
    facts = [fact for ceilings_of in machines.values() for fact in ceilings_of.values()]
    assert len(facts) >= 8
    for fact in facts:
        assert {"value", "unit", "source"} <= fact.keys()
        assert fact["unit"] == "Mbit/s"
        assert fact["value"] == "unknown" or ("as_of" in fact and len(fact["source"]) > 20)
    setups = "".join((PRINTED / study / "audit/setup.csv").read_text(encoding="utf-8") for study in STUDIES)
    assert "m5.2xlarge" in setups
    assert {"m5.2xlarge", "Standard_A4_v2"} <= machines.keys()


def test_what_volumes_carry_follows_from_the_facts_about_their_types():
    types = yaml.safe_load((ROOT / "config/facts/volume_types.yaml").read_text(encoding="utf-8"))["types"]
    carried = ceilings.read_machines("volumes")
    assert carried["gp2x1"]["IOPS"]["value"] == types["gp2"]["iops"]["burst"]
    assert carried["gp3x2"]["IOPS"]["value"] == types["gp3"]["iops"]["included"]


# The published studies


def said(audited: Callable[[str], Path], study: str, rule: str, table: str = "") -> tuple[str, str]:
    rows = pd.read_csv(audited(study) / "audit/rules.csv").fillna("")
    rows = rows[rows["rule"].str.contains(rule) & rows["table"].str.contains(table, regex=False)]
    return tuple(rows.iloc[0][["outcome", "data"]])


@pytest.mark.parametrize(
    "study, cells", [("arrays", 30), ("blobs", 66), ("particles", 27), ("shots", 30), ("volumes", 4)]
)
def test_no_published_study_has_repeats_for_a_verdict(audited, study: str, cells: int):
    outcome, data = said(audited, study, "repeats")
    assert outcome == "broken"
    assert data.startswith(f"{cells} cells with 1 repeat each")
    assert data.endswith("; all have too few repeats for a verdict")


def printed(path: Path) -> list[dict]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tasks(published: Path) -> Iterator[tuple[tuple, dict]]:
    """Yield the tasks of both S3 files, each with its run: file, access, workers."""
    for name in ("ec2-s3", "ec2-s3-libaws"):
        for row in printed(next(published.rglob(f"{name}.csv"))):
            yield (name, row["obj-type"], int(row["num-workers"])), row


def test_what_was_read_by_how_many_workers(audited, published: Path):
    read, datasets, batches = defaultdict(set), defaultdict(int), defaultdict(int)
    for run, row in tasks(published):
        read[run].add(row["obj-id"])
        datasets[run] += int(row["num-dsets"])
        batches[(*run, row["obj-id"])] += 1
    shots = [frozenset(names) for run, names in read.items() if run[1] == "shots"]
    signals = {frozenset(names) for run, names in read.items() if run[1] == "signals"}
    assert (len(shots), len(set(shots)), len(signals), len(*signals)) == (18, 18, 1, 61)
    inputs = said(audited, "shots", "read the same", "libaws")
    assert inputs == (
        "broken",
        "shots: 18 runs read 18 different sets of obj-id; signals: 12 runs read the same 61 values of obj-id",
    )
    of_shots = [count for run, count in datasets.items() if run[1] == "shots"]
    work = said(audited, "shots", "the work", "libaws")
    assert f"shots: {min(of_shots)}–{max(of_shots)} datasets per run in 18 runs" in work[1]
    assert {count for run, count in datasets.items() if run[1] == "signals"} == {61475}
    assert "signals: 61,475 datasets per run in 12 runs" in work[1]
    # Signals were read side by side, a shot's file alone.
    alone = {of: count for of, count in batches.items() if of[1] == "shots"}
    idle = [(count, run[2]) for run, count in alone.items() if count < run[2]]
    worst = min(idle, key=lambda list_of: list_of[0] / list_of[1])
    assert said(audited, "shots", "worker has", "libaws") == (
        "broken",
        f"in {len(idle)} of {len(alone)} task lists some workers had nothing to do (at worst {worst[1] - worst[0]} of"
        f" {worst[1]}); {len(batches) - len(alone)} more ran in parallel, so their workers may have had tasks of other"
        " lists; all lists are ceil-divided",
    )
    assert (len(idle), len(alone), len(batches)) == (10, 18, 750)


def test_the_first_signal_of_the_first_run_has_the_cold_reads(audited, published: Path):
    times = defaultdict(lambda: defaultdict(list))
    for run, row in tasks(published):
        if run[1] == "signals":
            times[run][row["obj-id"]].append(float(row["mean-obj-time"]))

    def middle(values: list) -> float:
        ordered, half = sorted(values), len(values) // 2
        return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2

    ratios = {}
    for run, of_signals in times.items():
        first, *others = (middle(values) for values in of_signals.values())
        ratios[run] = (first / middle(others), first > max(others))
    slower = {run for run, (ratio, longest) in ratios.items() if longest and ratio >= 1.5}
    assert slower == {("ec2-s3", "signals", 8), ("ec2-s3-libaws", "signals", 8)}
    outcome, data = said(audited, "shots", "first access", "libaws")
    assert outcome == "broken"
    assert data.endswith("; ".join(f"signals, {run[0]}, 8 ({ratios[run][0]:.2f}×)" for run in sorted(slower)))


def test_the_new_driver_is_at_what_may_be_a_card_of_10_gbit(audited, published: Path):
    totals = {run: float(row["total-runtime"]) for run, row in tasks(published)}
    gbit = {run: 30024 * 16e6 * 8 / 1e9 / seconds for run, seconds in totals.items() if run[1] == "signals"}
    flat = [rate for run, rate in gbit.items() if run[0] == "ec2-s3-libaws" and run[2] >= 24]
    assert 9.3 < min(flat) <= max(flat) < 9.6
    outcome, data = said(audited, "shots", "plateau", "libaws")
    assert outcome == "not testable"
    assert f"MiB/s ({max(flat):.1f} Gbit/s) at num-workers 24–64; ceiling unknown: machine not named" in data


def test_futures_take_hardly_longer_for_ten_times_the_chunks(audited):
    rows = printed(PRINTED / "particles/timings_from_notebook.csv")
    times = {(row["stage"].partition(" ")[0], row["method"]): float(row["mean_s"]) for row in rows}
    longer = {
        method: times["x10", method] / seconds
        for (stage, method), seconds in times.items()
        if stage.startswith("snapshot_028")
    }
    least = longer.pop("in_mem_from_dask_futures")
    assert least < min(longer.values()) / 4
    outcome, data = said(audited, "particles", "the work")
    assert outcome == "broken"
    assert f"in_mem_from_dask_futures took {least:.2f}× as long for 10.0× the work" in data
    shares = [149 / 144, 169 / 180, 73 / 88]
    data = said(audited, "particles", "CPU")[1]
    assert [float(part.split()[-2]) for part in data.split("; ")] == [round(100 * share) for share in shares]


def test_forced_writes_are_below_what_the_volumes_carry(audited, published: Path):
    rows = printed(next(published.rglob("all_metrics_long.csv")))
    rates = [1000 / float(row["sync_lat_mean_ms"]) for row in rows if row["layout"] == "gp2x1"]
    outcome, data = said(audited, "volumes", "no rate above")
    assert outcome == "kept"
    assert f"0 of 200 rates exceed the ceiling; gp2x1 IOPS: up to {max(rates):,.0f} IOPS, ceiling 3,000 IOPS" in data
    assert said(audited, "volumes", "first access")[0] == "kept"


def test_the_library_wrote_faster_than_a_block_store_takes(audited):
    # 4,750 Mbit/s in MiB/s.
    block = 4750e6 / 8 / 2**20
    assert block < 1308.1
    rows = pd.read_csv(audited("arrays") / "audit/rules.csv")
    data = rows[rows["rule"].str.contains("no rate above")].set_index("outcome")["data"]
    assert data["broken"].startswith(
        "2 of 2 rates exceed the ceiling; m5.2xlarge block store: up to 1,417 MiB/s (11.9 Gbit/s),"
        f" ceiling {block:.0f} MiB/s"
    )
    assert "ceiling unknown: macpro disk, devone disk" in data["not testable"]
    assert math.isclose(211200000 / 2**20 / 2.66, 75.77, rel_tol=2e-3)
    outcome, data = said(audited, "arrays", "sizes have")
    assert outcome == "broken"
    assert "2 fit “MiB” best (2 within rounding)" in data


def test_bandwidths_are_those_of_twenty_files_and_not_of_one_divided(audited):
    nearest = {"one": 0, "twenty": 0}
    for row in printed(PRINTED / "blobs/INPUT_Multiple_Files_Multiple_Readers.csv"):
        for store in ("Blob", "File", "Cirrus"):
            size, rate = float(row["File Size(MiB)"]), float(row[f"{store} Bandwidth (MiB/s)"])
            files = rate * float(row[f"{store} Latency (s)"]) / size
            nearest["one" if abs(math.log(files)) < abs(math.log(files / 20)) else "twenty"] += 1
    assert nearest == {"one": 0, "twenty": 33}
    outcome, data = said(audited, "blobs", "sizes have", "Multiple_Files")
    assert outcome == "broken"
    assert "0 fit “one file, divided among 20 processes” best (0 within rounding), 33 fit “20 files of that" in data
    assert said(audited, "blobs", "sizes have", "Single_File")[0] == "kept"
    outcome, data = said(audited, "blobs", "rates are totals", "Single_File")
    assert outcome == "broken"
    assert data.startswith("40 of 66 printed rates differ from amount / time: 39 higher")
    assert "inbound traffic is not limited" in said(audited, "blobs", "no rate above", "Single_File")[1]


@pytest.mark.parametrize("study", STUDIES)
def test_declared_columns_are_there(study: str, published: Path):
    files, _ = raw_data.fetch_files(raw_data.read_sources(SOURCES)[study], PRINTED / study, published, Path("nowhere"))
    declared = timings.read_declarations(PRINTED / study / timings.FILE)
    assert [spec for spec in declared if "repeat" in spec]
    for spec in declared:
        for name in spec["table"].split(" + "):
            header = set(pd.read_csv(files[name], nrows=0).columns)
            assert spec.get("kinds", {}).keys() <= header | {"Cirrus Latency (s)", "Cirrus Bandwidth (MiB/s)"}


# Labels


LABELLED = SimpleNamespace(
    __name__="labelled",
    claims=Claims(t="t"),
    stores=lambda t: t["store"],
    sizes=lambda t: t["size"],
    megabytes=lambda t: t["pb-size"] / 1e6,
    large=lambda t: t["pb-size"][t["pb-size"] > 3e8],
)
SIZES_AND_STORES = pd.DataFrame({"store": ["s3", "s3"], "pb-size": ["268435456", "268435456"]})


def labels_file(folder: Path, says: str, function: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(f"label,where,correct,why,data,says,function\nx,y,z,w,t,{says},{function}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "says, function, judged",
    [
        ("local", "stores", ("s3", claims.NOT)),
        ("s3", "stores", ("s3", claims.HOLDS)),
        ("264", "megabytes", ("268.435", claims.NOT)),
        ("268", "megabytes", ("268.435", claims.HOLDS)),
        ("", "", ("", label_audit.BY_READING)),
        ("268", "large", ("", "not testable: the table lacks the rows of this label")),
    ],
)
def test_a_label_is_computed_where_it_can_be(says: str, function: str, judged: tuple, tmp_path: Path):
    rows = label_audit.judge_labels(labels_file(tmp_path, says, function), LABELLED, {"t": SIZES_AND_STORES})
    assert tuple(rows.loc[0, ["computed", "outcome"]]) == judged


@pytest.mark.parametrize(
    "function, line", [("sizes", " from t: size is missing"), ("length", ": labelled lacks the function length")]
)
def test_a_label_that_cannot_be_computed_is_one_line(function: str, line: str, tmp_path: Path):
    path = labels_file(tmp_path, "5", function)
    with pytest.raises(Problem, match=f"^the label 'x' cannot be computed{line}$"):
        label_audit.judge_labels(path, LABELLED, {"t": SIZES_AND_STORES})


def test_a_label_of_a_table_that_is_not_there_cannot_be_told(tmp_path: Path):
    rows = label_audit.judge_labels(labels_file(tmp_path, "5", "sizes"), LABELLED, {})
    assert rows.loc[0, "outcome"] == "not testable: t is missing"


@pytest.mark.parametrize(
    "study, computed", [("arrays", 6), ("blobs", 8), ("particles", 3), ("shots", 7), ("volumes", 3)]
)
def test_what_a_listed_label_says_is_not_in_the_data(audited, study: str, computed: int):
    rows = pd.read_csv(audited(study) / "audit/labels.csv").fillna("")
    assert set(rows["outcome"]) - {label_audit.BY_READING} <= {claims.NOT, claims.HOLDS}
    assert (rows["computed"] != "").sum() == computed
    assert set(rows.loc[rows["outcome"] == claims.HOLDS, "label"]) == set()


# Conclusions


@pytest.mark.parametrize("study", STUDIES)
def test_an_audit_opens_with_the_conclusion_of_the_study_and_what_its_data_support(audited, study: str):
    source = raw_data.read_sources(SOURCES)[study]
    parts = {"claims": pd.read_csv(audited(study) / "audit/claims.csv", dtype=str).fillna("")}
    parts["rules"] = pd.read_csv(audited(study) / "audit/rules.csv").fillna("")
    lines = audit_page.list_conclusions(source, parts)
    rows = parts["claims"].set_index("id")
    assert len(lines) == len(source["conclusion"]) >= 2
    for name, line in zip(source["conclusion"], lines, strict=True):
        assert line.startswith(f"“{rows.loc[name, 'quote']}”")
        assert rows.loc[name, "outcome"] in line
    broken = audit_page.list_broken_rules(parts["rules"])
    assert "too few repeats" in broken[-1]
    text = (ROOT / f"reports/published/{study}-audit.md").read_text(encoding="utf-8")
    opening = ["testable with the published data", "Conclusions of the study", "too few repeats", "## Rules"]
    assert [text.index(words) for words in opening] == sorted(text.index(words) for words in opening)
    index = (ROOT / "reports/published/index.md").read_text(encoding="utf-8")
    assert broken[0][:60] in index, "what was not kept is on the first page too"


# A user's own tables


def runs(seconds: str = "1.5", **columns: object) -> str:
    """Return rows of the columns of a published table: two tasks of one signal, on 2 workers."""
    rows = [
        {
            **{"worker#": task, "obj-id": "ip", "open+read-data-time": seconds, "wrkr-num-objs": 2, "num-dsets": 4},
            **{"mean-obj-time": 0.75, "mean-dset-time": 0.375, "pb-size": 0, "num-workers": 2, "obj-type": "signals"},
            **{"total-runtime": 2.0, **columns},
        }
        for task in (1, 2)
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def audited(capsys: pytest.CaptureFixture, *arguments: object) -> list[str]:
    assert audit.print_audit(list(map(str, arguments))) == 0
    return capsys.readouterr().out.replace("\n" + " " * 15, " ").splitlines()


def test_files_with_the_columns_of_a_study_are_compared_as_its_arms(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "old.csv").write_text(runs(), encoding="utf-8")
    (tmp_path / "new.csv").write_text(runs(**{"obj-id": "te", "mean-obj-time": 0.9}), encoding="utf-8")
    lines = audited(capsys, f"{tmp_path}/old.csv", f"{tmp_path}/new.csv")
    assert lines[0].endswith("(shots)")
    assert "broken         all arms read the same data (METHOD 3): 2 runs read 2 different sets of obj-id" in lines
    assert f"{tmp_path}/old.csv: 4 of 4 derived figures can be reproduced" in lines
    assert "  row 2, column mean-obj-time: printed 0.9, `open+read-data-time` / `wrkr-num-objs` = 0.75" in lines


@pytest.mark.parametrize("study", ["arrays", "blobs", "particles", "volumes"])
def test_the_printed_tables_of_a_study_are_known_by_their_columns(study: str, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    for path in sorted((PRINTED / study).glob("*.csv")):
        lines = audited(capsys, path)
        assert path.name in lines[0]
        assert lines[0].endswith(f"({study})")
        assert len(lines) >= len(rules.RULES)


@pytest.mark.parametrize(
    "change, line",
    [
        (lambda text: text.replace("total-runtime", "runtime"), "lacks the column total-runtime (found"),
        (lambda text: text.replace(",", ";"), "lacks the column worker#; separate columns by commas, not semicolons"),
        (lambda text: text.partition("\n")[0], "contains no rows"),
        (lambda text: text + text.splitlines()[1], "row 4 repeats another row"),
        (lambda text: text + 40 * "1,", "cannot be read as a table: Error tokenizing data."),
        (lambda text: text.replace(",1.5,", ",nan,", 1), "row 2, column open+read-data-time: must be a number above 0"),
        (lambda text: text.replace(",1.5,", ",0,", 1), "row 2, column open+read-data-time: must be a number above 0"),
        (lambda text: text.replace(",1.5,", ",-1,", 1), "row 2, column open+read-data-time: must be a number above 0"),
        (lambda text: text.replace(",1.5,", ",1500 ms,", 1), "column open+read-data-time: must be a number above 0"),
        (lambda text: text.replace(",1.5,", ",1500,", 1), "the part must be at most total-runtime, 2 (got 1500);"),
        (
            lambda text: text.replace(",2,signals", ",2.5,signals", 1),
            "column num-workers: must be a whole number (got '2.5')",
        ),
        (lambda text: text.replace("pb-size", "obj-id", 1), "row 1, column obj-id: the column name must be unique"),
        (lambda text: "", "is empty"),
    ],
)
def test_a_table_of_ones_own_that_is_wrong_is_one_line(change, line: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "own.csv"
    path.write_text(change(runs()), encoding="utf-8")
    with pytest.raises(Problem) as raised:
        audit.print_audit([str(path)])
    assert str(raised.value).startswith(str(path))
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_audited_is_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for (file, *study), line in (
        ([f"{tmp_path}/other.csv"], "the columns a, b match no published table; name the study with --study"),
        ([f"{tmp_path}/other.csv", "shots"], r"lacks the column worker# \(found: a, b\); .*/columns.yaml defines the"),
        (["x.csv", "shot"], r"--study must be a published study \(got shot\); use shots, "),
        ([f"{tmp_path}/none.csv"], "cannot be read as a table"),
    ):
        with pytest.raises(Problem, match=line):
            audit.print_audit([file], *study)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.csv").write_text(runs(), encoding="utf-8")
    with pytest.raises(Problem, match="two files are named same, but the name identifies an arm; rename a file"):
        audit.print_audit([f"{tmp_path}/a/same.csv", f"{tmp_path}/b/same.csv"])
