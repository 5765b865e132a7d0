"""What sbench plan says that a run takes and costs: what each figure comes from, and that none is made up."""

import re
import subprocess
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ROOT, sbench
from small_runs import TWO_CELLS, write

from sbench.design import blocks, cost, matrix, prices
from sbench.design import config as configuration
from sbench.design.records import write_record as write_record
from sbench.probe import host
from sbench.probe.program import Problem, read_yaml

AWS = {"kind": "s3", "bucket": "mine", "region": "us-east-1"}
ELSEWHERE = {"kind": "s3", "bucket": "mine", "endpoint": "http://127.0.0.1:9"}
TOTALS = {"requests": 2e6, "bytes": 2**40, ("gets", "s3"): 2e6, ("puts", "s3"): 2000, ("bytes", "s3"): 2**40}


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are read from the project's folder, in which every program runs."""
    monkeypatch.chdir(ROOT)


def billed(store: dict, **machine: object) -> prices.Bill | None:
    """Return the bill of two hours and two million requests to a store."""
    matrix = TWO_CELLS["studies"]["shots"]["matrix"]
    values = TWO_CELLS | {"stores": {"disk": {"kind": "posix"}, "s3": store}, "studies": {"shots": {"matrix": matrix}}}
    config = configuration.resolve_config(values | ({"machine": machine} if machine else {}), [])
    return prices.compute_bill(config, cost.Totals(TOTALS), 7200)


def test_a_bill_is_one_line_with_each_part_its_price_and_the_dates():
    bill = billed(AWS, type="c5.18xlarge")
    assert bill.usd == pytest.approx(2 * 3.06 + 2000 * 0.0004 + 0.01)
    assert bill.line == (
        "about 2.0 h, 2,000,000 requests, 1,024 GiB; about 6.93 USD: 6.12 machine (2.0 h of c5.18xlarge at 3.06),"
        " 0.80 GET (2,000,000 to s3 at 0.0004 per 1,000), 0.01 PUT (2,000 to s3 at 0.005 per 1,000);"
        " prices of 2026-11 (config/facts/prices.yaml)"
    )


@pytest.mark.parametrize(
    "store, machine, usd, words",
    [
        (AWS, {}, 0.81, "not counted: the machine (write machine: {type: c5.18xlarge, region: us-east-1})"),
        (AWS, {"type": "mine"}, 0.81, "lacks mine in us-east-1; add usd_per_hour"),
        (AWS, {"type": "mine", "usd_per_hour": 1.5}, 3.81, "3.00 machine (2.0 h of mine at 1.5)"),
        (
            AWS,
            {"type": "mine", "usd_per_hour": 0, "region": "eu-west-1"},
            0.81 + 1024 * 0.02,
            "20.48 transfer out of us-east-1 (1,024 GiB at 0.02); prices of 2026-03 and 2026-11",
        ),
        (AWS, {"type": "mine", "usd_per_hour": 0, "region": "none"}, 0.81 + 1024 * 0.09, "(1,024 GiB at 0.09)"),
        (AWS | {"region": "eu-west-1"}, {}, 0, "requests to s3 (config/facts/prices.yaml lacks their price)"),
        (ELSEWHERE, {"type": "c5.18xlarge"}, 6.12, "; not counted: requests to s3 ("),
    ],
    ids=["unnamed", "unlisted", "own price", "another region", "outside", "another list", "another service"],
)  # fmt: skip
def test_what_has_no_price_is_named_and_what_leaves_the_region_is_counted(store, machine, usd, words):
    bill = billed(store, **machine)
    assert bill.usd == pytest.approx(usd)
    assert words in bill.line


def test_a_run_that_asks_nobody_for_money_has_no_bill():
    assert billed(AWS | {"server": "embedded"}) is None


def test_every_price_has_a_date_and_a_source():
    def of(values: dict) -> list[dict]:
        if any(key.startswith("usd_") for key in values):
            return [values]
        return [one for value in values.values() if isinstance(value, dict) for one in of(value)]

    listed = of(read_yaml(prices.PRICES))
    assert len(listed) >= 7
    assert all(re.fullmatch(r"\d{4}(-\d\d)?", entry["as_of"]) and "http" in entry["source"] for entry in listed)


# A small list: 1 USD per 1,000 GET, 10 per 1,000 PUT, 20 per 1,000 LIST, 0.5 per GiB to the internet, 36 an hour.
LIST = """
machines: {here: {small: {usd_per_hour: 36, as_of: "2026-01", source: "A, http://a"}}}
stores:
  s3:
    here:
      title: Buckets
      requests: {usd_per_1000_gets: 1, usd_per_1000_puts: 10, usd_per_1000_lists: 20, as_of: "2026-02", source: "B, http://b"}
      transfer: {usd_per_gib_internet: 0.5, as_of: "2026-03", source: "C, http://c"}
emulated: {service: s3, region: here}
"""
REQUESTS = {
    "GET": {"count": 12, "listings": 2, "bytes_offered": 2**30, "bytes_delivered": 2**31},
    "HEAD": {"count": 5, "bytes_delivered": None},
    "PUT": {"count": 3},
    "DELETE": {"count": 7},
}


@pytest.fixture
def small_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(LIST, encoding="utf-8")
    monkeypatch.setattr(prices, "PRICES", path)
    return path


@pytest.mark.parametrize(
    "store, machine, usd",
    [
        # 15 GET and HEAD, 3 PUT, 2 LIST: 0.015 + 0.03 + 0.04; 2 GiB; 10 s.
        ({"server": "embedded"}, None, {"requests_usd": 0.085, "transfer_usd": 0}),
        ({"region": "here"}, None, {"requests_usd": 0.085, "transfer_usd": 0}),
        (
            {"server": "embedded"},
            {"type": "small", "region": "here"},
            {"requests_usd": 0.085, "transfer_usd": 0, "machine_usd": 0.1},
        ),
        (
            {"region": "here"},
            {"type": "mine", "region": "none", "usd_per_hour": 72},
            {"requests_usd": 0.085, "transfer_usd": 1, "machine_usd": 0.2},
        ),
        ({"region": "elsewhere"}, {"type": "small", "region": "there"}, {}),
    ],
)
def test_a_record_costs_its_requests_its_bytes_and_its_seconds(small_list, store, machine, usd):
    settings = {"store": {"kind": "s3", "bucket": "mine"} | store}
    record = {"requests": REQUESTS, "seconds": {"total": 10}, "settings": settings}
    assert prices.compute_record_usd(record, machine) == pytest.approx(usd)


def test_files_and_uncounted_requests_cost_nothing_that_is_known(small_list):
    on_disk = {"requests": {}, "seconds": {"total": 10}, "settings": {"store": {"kind": "posix"}}}
    assert prices.compute_record_usd(on_disk, None) == {}
    assert prices.find_rates({"kind": "posix"}) is None


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("usd_per_1000_puts: 10", "usd_per_1000_puts: -1", "requests: usd_per_1000_puts must be a price"),
        ("usd_per_1000_lists: 20, ", "", "requests: usd_per_1000_lists must be a price in US dollars (got None)"),
        ("usd_per_gib_internet: 0.5", "usd_per_gib_internet: dear", "transfer: usd_per_gib_internet must be a price"),
        ('as_of: "2026-02"', "as_of: spring", "as_of must be a date"),
        ('source: "C, http://c"', "source: C", "transfer: source must be a name and an address"),
        ("region: here}", "region: there}", "emulated must have a service and a region of stores"),
        ("title: Buckets", "title: []", "title must be a name"),
        ("stores:", "shops:", "stores must be a mapping"),
        ("machines: {", "machines: [", "is not valid YAML"),
    ],
)
def test_a_wrong_list_is_one_line(small_list, old, new, line):
    assert old in LIST
    small_list.write_text(LIST.replace(old, new), encoding="utf-8")
    with pytest.raises(Problem) as raised:
        prices.read_prices()
    assert str(raised.value).startswith(str(small_list))
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_prices_that_are_older_than_a_year_are_named(small_list):
    dates = prices.list_dates()
    assert dates == ["2026-01", "2026-02", "2026-03"]
    assert prices.describe_age(dates, date(2027, 1, 31)) == ""
    assert prices.describe_age(dates, date(2027, 3, 1)) == (
        f"prices of 2026-01 and 2026-02 are older than 12 months; update {small_list}"
    )
    assert prices.describe_age(["2025"], date(2026, 2, 1)).startswith("prices of 2025 are older")


def test_a_run_that_costs_more_than_its_limit_is_asked_about(clone):
    config = yaml.safe_load((ROOT / "config/ec2-published.yaml").read_text(encoding="utf-8"))
    write(clone, config | {"ask_above": {"hours": 1000, "gib": 1e6, "requests": 1e9, "usd": 5}})
    done = sbench("run", "--cores", "1", cwd=clone, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert re.search(r"exceeds the limits of ask_above: usd 7\.\d+ > 5; add --yes", done.stderr)


def test_the_time_of_a_run_is_that_of_its_records_its_data_and_its_pages(tmp_path, monkeypatch):
    for folder in ("config", "envs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    far = {"kind": "s3", "bucket": "mine", "server": "embedded", "network": {"latency_ms": 20, "shared_mib_s": 50}}
    matrix_of = {"library": ["l"], "store": ["far"], "driver": ["ros3"], "layout": ["mine"], "access": ["files"]}
    matrix_of |= {"workers": [1], "page_buffer": ["unset"], "cache": ["cold"], "selection": ["all", "metadata"]}
    (tmp_path / "one.h5").write_bytes(bytes(5 * 2**20))
    arm = {"layout": "mine", "driver": "ros3", "page_buffer": "unset", "seconds": {"all": 438.0, "metadata": 2.0}}
    kept = {key: [] for key in ("considered", "left_out", "unsuited")} | {"copies": {}, "where": {}, "place": "there"}
    advice = kept | {"accesses": {"all": 0.1, "metadata": 0.9}, "arms": [arm]}
    section = {"data": {"files": {"mine": "one.h5"}}, "read_files": 2, "control_cells": 0, "matrix": matrix_of}
    values = {
        "run": "r1",
        "repeats": 6,
        "stores": {"far": far},
        "libraries": {"l": {"kind": "source", "hdf5": "2.0.0"}},
    }

    def totals(**more: object) -> cost.Totals:
        config = configuration.resolve_config(values | {"studies": {"shots": section | more}}, [])
        cells, omitted = matrix.expand_matrix(config, "shots")
        return cost.estimate_cost(config, "shots", cells, omitted, blocks.choose_blocks(config, cells, {})).totals

    # Requests at the latency, by the forecast of each access, and not what 5 MiB take.
    known = totals(advice=advice)
    assert known["seconds"] == pytest.approx(6 * (2 * 438 + 2 * 2 + 2 * 1.6))
    assert known["seconds_beside"] == pytest.approx(20 + 4), "a page; two jobs for each access, with nothing to make"
    assert cost.describe_time(known, known["seconds_beside"]) == "at least 89 min"
    unknown = totals()
    assert unknown["seconds"] < 30
    assert cost.describe_time(unknown).startswith("at least ")
    generated = totals(
        data={"shots": 8, "signals": 34},
        matrix=matrix_of | {"layout": ["single-shot"], "access": ["shots"], "selection": ["all"]},
    )
    assert generated["seconds_beside"] == pytest.approx(20 + 2 + 128e6 / 2**20 * (1 / 20 + 1 / 100))
    assert cost.describe_time(generated).startswith("about ")
    assert cost.describe_time(cost.Totals()) == "about 0 s"


def test_published_runtimes_are_those_of_the_published_data(published):
    rows = read_yaml("config/facts/shots_runtimes.yaml")["runtimes"]
    for row in rows:
        table = pd.read_csv(published / "ros3-shots" / row["file"])
        size = 0 if row["page_buffer"] == "0" else 2**28
        own = table[(table["obj-type"] == row["access"]) & (table["pb-size"] == size)]
        runtimes = own.groupby("num-workers")["total-runtime"].agg(["first", "nunique"])
        assert set(runtimes["nunique"]) == {1}
        given = {int(workers): seconds for workers, seconds in row["seconds"].items()}
        assert given == pytest.approx(runtimes["first"].to_dict(), rel=0.005, abs=0.0006)
    assert len(rows) == 8


def estimated(name: str) -> cost.Cost:
    """Return what a shipped configuration costs where nothing of it was measured."""
    config = configuration.load_config(ROOT / f"config/{name}.yaml")
    cells, omitted = matrix.expand_matrix(config, "shots")
    return cost.estimate_cost(
        config, "shots", cells, omitted, blocks.choose_blocks(config, cells, blocks.read_measured_blocks(config, cells))
    )


@pytest.mark.parametrize("name", ["ec2", "ec2-published"])
def test_the_head_of_a_configuration_says_what_the_plan_does(name, tmp_path, monkeypatch):
    for folder in ("config", "envs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    config = configuration.load_config(f"config/{name}.yaml")
    totals = estimated(name).totals
    line = prices.compute_bill(config, totals, totals["seconds"]).line
    assert f"sbench plan, without builds: {line.partition(':')[0]};" in Path(f"config/{name}.yaml").read_text("utf-8")


def test_a_cell_takes_what_it_took_here_else_what_was_published_else_what_its_study_estimates(tmp_path, monkeypatch):
    for folder in ("config", "envs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)

    def bases() -> dict[str, tuple[float, str]]:
        return {cell.name: (seconds, basis) for cell, _, seconds, basis in estimated("ec2").cells}

    first = bases()
    cached = {name for name in first if "_rc" in name}
    assert {first[name][1] for name in cached} == {"estimated"}
    assert {basis for name, (_, basis) in first.items() if name not in cached} == {
        "as published, page buffer 0",
        "as published, page buffer 256MiB",
    }
    # Six of 61 signals of the 1,117 s that all took.
    seconds = {name.rpartition("-")[0]: took for name, (took, _) in first.items()}
    assert seconds["hdf5-1.14.6_s3_ros3_single-shot_signals_w8_pb256MiB_any"] == pytest.approx(1117.4 * 6 / 61 + 1.6)
    # Read twice, the second time for checksums.
    assert seconds["hdf5-2.2.0_local_sec2_single-shot_signals_w8_pb0_warm"] == pytest.approx(28.8 * 2 * 6 / 61 + 1.6)
    name = next(name for name in first if "_w8_pb256MiB_any" in name)
    path = tmp_path / f"results/before/shots/records/{name}/repeat=1.json"
    record = {"record": 1, "status": "done", "valid": True, "run": "before", "study": "shots", "name": name, "cell": {}}
    figures = {"repeat": 1, "step_seconds": 5.0, "seconds": {"total": 1.0}, "work": {}, "samples": []}
    write_record(
        path, record | figures | {"host": {"node": host.get_node_name()}, "provenance": {"code_sha256": "c0de"}}
    )
    assert bases()[name] == (5.0, "as before")
