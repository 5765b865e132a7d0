"""Why a time is what it is: requests, the fewest that would have done, and what requests and bytes explain."""

import gzip
import re
import zlib
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sbench.design import prices
from sbench.measure import tables
from sbench.pages import answer, cell_figures, cell_tables, costs, findings, plot_html
from sbench.pages.results import Results
from sbench.pages.statements import Records
from sbench.studies.shots.report import results
from sbench.verdicts import model
from sbench.verdicts.outcomes import ORDERED
from tests.helpers.records import FEW, MIB, gather, synthetic_cells, write_synthetic_run


@pytest.fixture(scope="module")
def run(synthetic: Callable) -> Results:
    folder = synthetic("shots")
    return results.load_results(folder, folder / "facts.json")


HEAD = "repeat,connection,method,path,range,status,bytes,begin,first,end\n"


def requests(*ranges: tuple[str, int, int]) -> pd.DataFrame:
    """Return rows of `tables.build_exchanges_table` for (object, offset, bytes)."""
    rows = pd.DataFrame(ranges, columns=["object", "offset_bytes", "bytes"])
    return rows.astype({"offset_bytes": "Int64"}).reindex(columns=tables.EXCHANGES)


@pytest.mark.rule(11)
@pytest.mark.parametrize(
    "ranges, fewest",
    [
        ([("a", 0, 10), ("a", 10, 10)], (1, 20)),
        ([("a", 0, 1), ("a", 1, 1)], (1, 2)),
        ([("a", 0, 10), ("a", 11, 10)], (2, 20)),
        ([("a", 0, 10), ("b", 10, 10)], (2, 20)),
        ([("a", 0, 10), ("a", 0, 10)], (1, 10)),
        ([("a", 5, 10), ("a", 0, 30), ("a", 8, 4)], (1, 30)),
        ([("a", 0, 10), ("a", 5, 10), ("a", 40, 0)], (1, 15)),
        ([], (0, 0)),
    ],
)
def test_the_fewest_requests_are_the_stretches_without_a_gap(ranges, fewest):
    assert cell_figures.count_fewest_requests(requests(*ranges)) == fewest


def test_requests_become_a_table_of_the_run(tmp_path):
    run = write_synthetic_run(tmp_path, synthetic_cells(**FEW))
    folder = next(iter(sorted(run.glob("records/*/"))))
    text = HEAD + "1,1,HEAD,/b/f.h5,,200,0,0.1,0.2,0.2\n1,2,GET,/b/f.h5,bytes=100-199,206,100,0.2,0.3,0.4\n"
    (folder / "requests.csv.gz").write_bytes(gzip.compress(text.encode()))
    gather(run)
    table = pd.read_csv(run / "out" / "requests.csv")
    assert tuple(table) == tables.EXCHANGES
    assert set(table["cell"]) == {folder.name}
    assert table.loc[1, ["object", "offset_bytes", "length_bytes", "bytes", "end_s"]].tolist() == [
        "/b/f.h5",
        100,
        100,
        100,
        0.4,
    ]
    assert table.loc[0, ["offset_bytes", "length_bytes"]].isna().all()


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"a,b\n1,2\n"), gzip.compress(HEAD.encode() * 9)[:-9]],
    ids=["empty", "no gzip", "other columns", "cut"],
)
def test_damaged_requests_are_named_and_all_else_is_reported(tmp_path, capsys, content):
    run = write_synthetic_run(tmp_path, synthetic_cells(**FEW))
    file = next(iter(sorted(run.glob("records/*/")))) / "requests.csv.gz"
    file.write_bytes(content)
    _, cells, _ = gather(run)
    assert set(cells["n"]) == {6}
    assert f"left out: {file} is not a table of requests" in capsys.readouterr().err


def cells(rng: np.random.Generator, noise: float = 0.0, **changes: float) -> pd.DataFrame:
    """Return cells whose times are what their requests, bytes, CPU and opens cost."""
    count = 8
    rows = pd.DataFrame(
        {
            "store": "s3",
            "requests": rng.integers(5, 200, count),
            "bytes_delivered": rng.integers(1, 60, count) * MIB,
            "opens": rng.integers(1, 20, count),
            "task_cpu_s": rng.uniform(0.05, 0.5, count),
            "round_trip_s": 0.02,
            "in_flight": rng.choice([1.0, 2.0], count),
            "rate_mib_s": 50.0,
        }
    )
    waits = rows["requests"] * rows["round_trip_s"] / rows["in_flight"]
    total = rows["task_cpu_s"] + waits + rows["bytes_delivered"] / MIB / 50 + 0.03 * rows["opens"]
    return rows.assign(total_s=total * np.exp(noise * rng.standard_normal(count)))


@pytest.mark.rule(11)
def test_times_made_of_requests_bytes_cpu_and_opens_are_explained():
    exact = cells(np.random.default_rng(1))
    assert np.allclose(model.compute_modelled_s(exact), exact["total_s"])
    ratio = exact["total_s"] / exact["total_s"].shift()
    modelled = model.compute_modelled_s(exact)
    assert model.is_explained(modelled / modelled.shift(), ratio)[1:].all()


@pytest.mark.rule(11)
@pytest.mark.parametrize(
    "emulated, measured, rate",
    [
        ({}, {"mib_s": 40.0, "in_flight": 3.0}, 120),
        ({}, {"mib_s": 40.0, "in_flight": 0.5}, 40),
        ({"shared_mib_s": 100}, {"mib_s": 40.0, "in_flight": 3.0}, 100),
        ({}, {"mib_s": 40.0, "in_flight": None}, None),
        ({}, {"problem": "no answer", "in_flight": 2.0}, None),
    ],
)
def test_the_rate_is_what_the_network_lets_through_to_the_requests_in_flight(emulated, measured, rate):
    record = {"network": measured, "settings": {"store": {"network": emulated}}}
    assert tables.compute_usage(record)["rate_mib_s"] == rate


@pytest.mark.rule(11)
@pytest.mark.parametrize("effective, each", [({"workers": 2}, 2), ({}, 4), (None, 4)])
def test_the_cpu_time_of_tasks_is_that_of_the_workers_beside_each_other(effective, each):
    record = {"samples": [{"cpu-time": 1.0}, {"cpu-time": 3.0}, {"cpu-time": None}], "effective": effective}
    assert tables.compute_usage(record)["task_cpu_s"] == each
    assert tables.compute_usage({"samples": [{}]})["task_cpu_s"] is None


@pytest.mark.rule(11)
def test_a_cell_does_not_explain_itself():
    """Only the other cells give the cost of an open: one that waits for something else is not explained."""
    rows = cells(np.random.default_rng(2))
    rows.loc[3, "total_s"] *= 3
    modelled = model.compute_modelled_s(rows)
    assert not model.is_explained(modelled[[3]] / modelled[0], rows["total_s"][[3]] / rows["total_s"][0]).any()
    for number in rows.index:
        longer = rows.assign(total_s=rows["total_s"].mask(rows.index == number, 50 * rows["total_s"]))
        assert model.compute_modelled_s(longer)[number] == pytest.approx(modelled[number])


@pytest.mark.parametrize("lacking", ["round_trip_s", "task_cpu_s", "in_flight"])
def test_what_was_not_measured_is_not_modelled(lacking):
    rows = cells(np.random.default_rng(3))
    assert model.compute_modelled_s(rows.assign(**{lacking: np.nan})).isna().all()
    assert model.compute_modelled_s(rows.drop(columns=lacking)).isna().all()
    assert model.compute_modelled_s(rows[:3]).isna().all(), "three cells are too few"
    assert model.compute_modelled_s(rows[:4]).notna().all(), "four are enough"


@pytest.mark.rule(11)
@pytest.mark.parametrize(
    "modelled, ratio, told",
    [(1.5, 1.45, True), (1.5, 1.3, False), (0.97, 1.03, False), (1.01, 1.03, False), (1.02, 1.03, True), (1, 1, True)],
)
def test_the_model_needs_ten_percent_and_half_of_a_smaller_ratio(modelled, ratio, told):
    assert model.is_explained(pd.Series([modelled]), pd.Series([ratio])).tolist() == [told]


@pytest.mark.rule(11)
def test_a_verdict_on_time_has_its_reason_or_says_that_it_has_none(run: Results):
    decided = findings.list_findings(run)

    def with_model(of: Callable[[pd.Series], pd.Series]) -> list[str]:
        """Let the model give `of` of what was measured."""
        return [
            text
            for text, _ in answer.list_reasons(
                replace(run, cells=run.cells.assign(modelled_s=of(run.cells["total_s"]))), decided
            )
        ]

    lines = with_model(lambda total: total)
    assert lines
    assert all("agrees with the measured" in line for line in lines)
    lines = with_model(lambda total: 1 / total)
    assert lines
    assert all("requests and bytes do not explain it" in line for line in lines), "the sign is wrong"
    whole = replace(run, cells=run.cells.assign(modelled_s=run.cells["total_s"]))
    texts = [one.text for one in findings.list_findings(whole) if one.verdict in ORDERED]
    assert texts
    assert all("explained by requests, bytes and CPU time" in text for text in texts)
    assert not any("explain" in one.text for one in decided)
    assert not any("A model" in line for line, _ in answer.list_reasons(run, decided)), "no model, no word of it"


@pytest.mark.rule(11)
def test_the_requests_of_the_pair_of_which_most_was_decided_are_drawn(run: Results):
    assert cell_figures.draw_waterfall(run).panels == ()
    pairs = run.get_comparisons()
    requests = [
        {
            "cell": cell,
            "repeat": 1,
            "connection": 1,
            "method": "GET",
            "object": "/b/f.h5",
            "bytes": size,
            "status": "206",
        }
        | {"offset_bytes": offset, "length_bytes": size, "begin_s": begin, "first_s": begin + 0.1, "end_s": begin + 0.2}
        for cell in pd.unique(pairs[["baseline_cell", "contender_cell"]].to_numpy().ravel())
        for offset, size, begin in ((0, 4 * MIB, 0.1), (4 * MIB, 4 * MIB, 0.4), (0, 4 * MIB, 0.7))
    ]
    figure = cell_figures.draw_waterfall(replace(run, requests=pd.DataFrame(requests)))
    assert [panel.title.partition(": ")[2] for panel in figure.panels] == [
        "3 requests for 12.0 MiB, 4.00 MiB of it again; 1 would have brought it"
    ] * 2
    drawn = figure.panels[0].marks[0].points
    assert drawn["y"].dropna().tolist() == [0, 4, 4, 8, 0, 4]
    assert drawn["x"].dropna().round(1).tolist() == [0.1, 0.3, 0.4, 0.6, 0.7, 0.9]
    assert len(figure.numbers) == 6
    [packed, _] = re.findall('class="plot">([^<]+)<', plot_html.draw_figure(figure))
    page = zlib.decompress(b64decode(packed)).decode()
    # Lines of requests do not run into each other.
    assert '0.3,{"type":"number","value":"nan"},0.4' in page


def test_what_reads_cost_is_the_product_of_counts_and_prices(run: Results):
    usd = costs.compute_costs(run, run.measured)
    over = run.measured["store"] == "s3"
    each = prices.get_emulated_rates().usd["gets"]
    assert usd[over].tolist() == pytest.approx((1000 * each * run.measured.loc[over, "requests"]).tolist())
    assert usd[~over].isna().all()
    table = cell_tables.build_request_table(run)
    assert table.frame["USD per 1,000 reads"].notna().sum() == over.sum() > 0
    assert "as requests to S3 standard in us-east-1" in table.caption
    assert not any("machine" in column for column in table.frame)


def test_bytes_that_leave_the_region_and_the_machine_cost_what_their_prices_say(run: Results):
    machine = {"type": "mine", "region": prices.OUTSIDE, "usd_per_hour": 3.6}
    outside = replace(run, facts=run.facts | {"billed_machine": machine})
    cells = run.measured[run.measured["store"] == "s3"]
    more = costs.compute_costs(outside, cells) - costs.compute_costs(run, cells)
    per_byte = prices.get_emulated_rates(machine).usd["bytes"]
    assert more.tolist() == pytest.approx((1000 * per_byte * cells["bytes_delivered"]).tolist())
    assert costs.compute_machine_costs(outside, cells).tolist() == pytest.approx(cells["total_s"].tolist())
    assert "machine / USD per 1,000 reads" in cell_tables.build_request_table(outside).frame


def test_a_reason_states_what_each_side_costs_where_they_differ(run: Results):
    [(text, (statement,))] = answer.describe_costs(run, explained(run, "page_buffer"))
    each = 1000 * prices.get_emulated_rates().usd["gets"]
    assert f"{22 * each:.5f} USD with a 64 MiB page buffer and {223 * each:.4f} USD with no page buffer" in text
    assert text.endswith("(as requests to S3 standard in us-east-1, list prices of 2026-11).")
    raw = pd.DataFrame(
        [
            {
                "cell": cell,
                "repeat": repeat,
                "valid": True,
                "gets": 22 if "pb64MiB" in cell else 223,
                "puts": 0,
                "lists": 0,
            }
            for cell, *_ in statement.cells
            for repeat in range(1, 7)
        ]
    )
    assert statement.is_supported_by(Records(raw))
    assert not statement.is_supported_by(Records(raw.assign(gets=raw["gets"] + 1)))
    assert not statement.is_supported_by(Records(raw.drop(columns="gets")))


def test_nothing_is_said_of_costs_that_are_equal_or_unknown(run: Results):
    assert answer.describe_costs(run, explained(run, "layout")) == []
    uncounted = replace(run, cells=run.cells.drop(columns=["gets", "puts", "lists"]))
    assert answer.describe_costs(uncounted, explained(uncounted, "page_buffer")) == []
    assert costs.describe_prices(uncounted) == ""


def explained(run: Results, factor: str) -> list[findings.Finding]:
    """Return the findings of an order on a factor in S3, largest first."""
    chosen = [one for one in findings.list_findings(run) if one.factor == factor and one.verdict in ORDERED]
    return sorted((one for one in chosen if "S3" in one.where), key=lambda one: -one.size)
