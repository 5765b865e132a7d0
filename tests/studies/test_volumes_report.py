import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sbench.pages import cell_tables, comparisons, judgement, run_files
from sbench.pages import page as pages
from sbench.pages.markup import render_markdown, render_markdown_line
from sbench.pages.plot import COLOURS, Look, Marks, Panel, Rule
from sbench.probe.program import Problem
from sbench.studies.volumes.report import answers, batteries, figures, phrases, tabulated, words
from tests.helpers import volumes_records as records
from tests.helpers.pages import write, write_words
from tests.helpers.volumes_tables import BATTERIES, GP2, Battery, build, many

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/volumes.ipynb"


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("volumes")


@pytest.fixture(scope="module")
def run(tables: Path) -> batteries.Results:
    return batteries.load_results(tables, tables / "facts.json")


@pytest.fixture(scope="module")
def page(report_of: Callable[[str], Path]) -> Path:
    return report_of("volumes")


def changed(folder: Path, source: Path, table: str, change) -> batteries.Results:
    """Return the results of a copy of the tables in which one was changed."""
    copy = shutil.copytree(source, folder / "changed")
    frame = pd.read_csv(copy / table, dtype=str, keep_default_na=False)
    change(frame).to_csv(copy / table, index=False)
    return batteries.load_results(copy, copy / "facts.json")


def told(run: batteries.Results, factor: str, where: str = "") -> list[str]:
    decided, _, _ = answers.list_findings(run)
    return [render_markdown_line(one.text) for one in decided if one.factor == factor and where in one.where]


def limits_of(run: batteries.Results) -> list[str]:
    return judgement.list_limits(run, answers.list_limitations(run))


# What people read first


def test_a_collapse_is_told_with_time_jobs_size_and_job(run: batteries.Results):
    first, second = told(run, "limit", "gp2 (128 GiB gp2)")
    assert first == (
        "p99 of fdatasync **meets** etcd's 10 ms in the first 32 jobs (55 min): 2.40 [2.38, 2.42] ms; then **misses** "
        "it from job 33 (g3) on: p99 was 7.7× as high [7.5, 7.9], 18.5 [18.3, 18.7] ms."
    )
    assert second.startswith(
        "p99 of fdatasync **meets** OpenShift's 20 ms in all 50 jobs (4 h 31 min): 18.5 [18.3, 18.7] ms"
    )


def test_hosts_on_which_it_came_out_alike_share_a_sentence(run: batteries.Results):
    decided, _, _ = answers.list_findings(run)
    assert {one.where for one in decided if "gp3 (" in one.where} == {"on gp3 (128 GiB gp3), on each of 2 hosts"}
    assert "in all 50 jobs (2 h 21 min–2 h 26 min): 4.10–4.30 ms" in told(run, "limit", "gp3 (")[0]


def test_a_limit_within_the_interval_is_undecided_and_the_reason_told(run: batteries.Results):
    [one] = [one for one in answers.list_findings(run)[2] if one.factor == "limit"]
    assert one.where == "on disk, with a second job on the same volume"
    assert render_markdown_line(one.text) == (
        "it is **undecided** whether p99 of fdatasync meets etcd's 10 ms in all 20 jobs (2 h 11 min): 10.1 [9.70, "
        "10.4] ms; 8 jobs at or above it individually; the limit lies within the interval."
    )


def test_a_volume_that_never_keeps_a_limit_says_so(run: batteries.Results):
    assert told(run, "limit", "on old")[0] == (
        "p99 of fdatasync **misses** etcd's 10 ms in all 20 jobs (2 h 38 min): 12.0 [11.5, 13.0] ms; 20 jobs at or "
        "above it individually."
    )


def test_the_model_of_credits_stands_against_what_was_seen(run: batteries.Results):
    [one] = told(run, "burst credits", "on gp2 (128 GiB gp2)")
    assert one.startswith(
        "the model predicts that the burst credits of a 128 GiB gp2 volume run out in job 33; latency rose at job 33 "
    )
    assert answers.list_reasons(run) == [f"On gp2 (128 GiB gp2): {one}"]


def test_differences_are_told_as_those_of_other_studies_are(run: batteries.Results):
    before, after = told(run, "store")
    assert before == "p99 on gp3 **was 1.8× as high** [1.7, 1.8] as on gp2, before the first change (32 jobs)."
    assert after == "p99 on gp3 **was 77 % lower** [74, 80] than on gp2, after the last change (32 jobs)."
    [background] = told(run, "background", "on disk")
    assert (
        "p99 with a second job on the same volume **was 1.9× as high** [1.9, 2.0] as without a second job" in background
    )
    _, others, _ = answers.list_findings(run)
    assert {one.metric for one in others} == {"p50", "iops"}
    faster = next(one for one in others if "after the last change" in one.text and one.metric == "iops")
    assert faster.verdict == "faster"
    assert faster.text.startswith("throughput in IOPS on gp3 was 4.3× as high [4.3, 4.3] as on gp2")


def test_what_is_undecided_is_in_no_decided_answer(run: batteries.Results):
    decided, _, undecided = answers.list_findings(run)
    assert {one.verdict for one in decided} <= {"meets", "misses", "modelled", "faster", "slower", "same"}
    assert {one.verdict for one in undecided} == {"undecided", "no evidence"}


def test_what_to_do_next_names_the_volume_to_take_and_what_would_decide(run: batteries.Results):
    best, larger, more = map(render_markdown_line, answers.list_advice(run))
    assert best == (
        "Use any of gp3 · ip-10-0-0-2, gp3 · ip-10-0-0-3 and disk · alone: all stayed below etcd's 10 ms, and none was "
        "shown to be the lowest."
    )
    assert (
        "a baseline of at least 2,600 IOPS, which these jobs request; its baseline without burst credits is 384"
        in larger
    )
    assert (
        more == "Raise `jobs` and run again to decide on disk · load on the same volume: more jobs narrow the interval."
    )


def test_nobody_is_told_to_take_what_runs_beside_the_application(tmp_path: Path):
    loaded = records.battery("disk", 0.5 * np.ones(20), 2, cell={"background": "same"})
    records.gather(records.write_run(tmp_path, [records.battery("disk", np.ones(20)), loaded]), limits=["etcd"])
    run = batteries.load_results(tmp_path / "out")
    assert not [line for line in map(render_markdown_line, answers.list_advice(run)) if line.startswith("Use ")]


def test_a_battery_too_short_for_its_limit_is_not_said_to_be_near_it(tmp_path: Path):
    records.gather(records.write_run(tmp_path, [records.battery("disk", np.ones(8))]), limits=["etcd"])
    run = batteries.load_results(tmp_path / "out")
    headline, [advice] = answers.write_headline(run), answers.list_advice(run)
    assert "of the sync after a write could not be judged against etcd's 10 ms on the disk" in render_markdown_line(
        headline
    )
    assert advice.startswith("Measure disk again: the battery is too short to meet a limit: 8 jobs in ")


def test_many_volumes_that_came_out_alike_share_a_sentence(tmp_path: Path):
    run = batteries.load_results(build(tmp_path, many(20, 12)), tmp_path / "facts.json")
    groups = answers.list_course_groups(run)
    assert sum(map(len, groups)) == 40
    assert len(groups) < 6
    assert any("volume06 and 11 more" in one.where for one in answers.list_findings(run)[0])


def test_times_that_were_derived_are_called_so(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "samples.csv", lambda rows: rows.assign(started_s=""))
    assert "in the first 32 jobs (about 55 min): 2.40 [2.38, 2.42] ms" in told(run, "limit")[0]
    assert any("times of some jobs are unknown" in line for line in limits_of(run))
    assert figures.draw_latency(run).panels[0].x_label == "Number of the job"


LOADED = [Battery("disk", 0.276, jobs=20), Battery("disk", 0.473, background="same", jobs=20)]


@pytest.mark.parametrize(
    "series, headline",
    [
        (LOADED, "on the disk: 0.28 ms alone and 0.47 ms with a second job on the same volume."),
        # p99 of all jobs of both series, not of the slower half of the first.
        (
            [Battery("disk", 0.3, jobs=20, falls=11, later=4.6, whole=1.9), LOADED[1]],
            "on the disk: 1.9 ms alone and 0.47 ms with a second job on the same volume.",
        ),
        ([GP2], "did not stay below etcd's 10 ms on gp2: 18 ms after 55 min."),
        ([GP2, Battery("gp3", 4.1)], "on gp3 (4.1 ms), but not on gp2 (18 ms after 55 min)."),
        (
            [Battery("gp3", 9.96, bins=False), Battery("disk", 10.1, jobs=20, verdict="undecided")],
            "on gp3 (9.96 ms); undecided on the disk (10.1 [9.70, 10.4] ms).",
        ),
        (
            BATTERIES,
            "in 3 of 6 series of jobs (at most 5.2 ms); 2 missed it (slowest: gp2, 18 ms after 55 min), 1 undecided.",
        ),
        (many(20, 12), "on 16 of 20 volumes (at most 3.9 ms); 4 missed it (slowest: volume00, 17 ms after 7 min)."),
    ],
    ids=["loaded", "two levels", "collapsed", "two volumes", "near", "three outcomes", "many"],
)
def test_the_headline_answers_with_sizes_and_places_in_two_clauses(tmp_path: Path, series, headline):
    run = batteries.load_results(build(tmp_path, series), tmp_path / "facts.json")
    text = answers._write_unchecked_headline(run)[0]
    assert text.startswith("p99 of fdatasync ")
    assert text.endswith(headline)
    assert len(text.split()) <= 35


def test_a_headline_too_long_for_all_values_has_their_span(published: Path, tmp_path: Path):
    folder = records.write_run(tmp_path, imported=records.published_records(published))
    records.gather(folder)
    headline = render_markdown_line(answers.write_headline(batteries.load_results(folder / "out")))
    assert (
        "on gp3x1 and gp3x2 (3.9–4.0 ms), but not on gp2x1 and gp2x2 (18 ms, after 58 min at the earliest)" in headline
    )
    assert len(headline.split()) <= 35


def test_a_page_without_burst_credits_does_not_mention_them(tmp_path: Path):
    page = write_words("volumes", build(tmp_path, LOADED), tmp_path / "reports" / "volumes.html")
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    assert "credit" not in text


def test_limits_of_the_data_are_told(run: batteries.Results):
    lines = " ".join(limits_of(run))
    for part in (
        "a single battery",
        "0.8 % wide",
        "1 of 6 batteries came without histograms",
        "different hosts",
        "power-loss protection",
    ):
        assert part in lines
    assert "1 repeat of 1 cell broke a rule of measuring and is in no verdict" in lines
    assert "1 repeat of 1 cell failed" in lines
    assert "1 file of the import" in lines


def test_a_whole_import_says_that_nothing_is_known_of_the_machines(tmp_path: Path):
    run = batteries.load_results(build(tmp_path, [GP2]), tmp_path / "facts.json")
    assert any("All results are imported" in line for line in limits_of(run))


# Tables


def test_cells_are_coloured_by_the_published_limits(run: batteries.Results):
    found = {table.name: table for table in tabulated.build_job_tables(run)}
    assert set(found) == {f"{metric}-by-job" for metric in ("p99", "p99.9", "mean", "max", "stddev")}
    for metric, yellow, red in (("p99", 5, 10), ("p99.9", 5, 10), ("mean", 2, 5), ("max", 50, 100), ("stddev", 1e9, 1)):
        table = found[f"{metric}-by-job"]
        for column, colours in table.over.items():
            values = table.frame[column]
            expected = ["red" if v >= red else "yellow" if v >= yellow else "" for v in values]
            assert list(colours) == expected
    assert "yellow (△) at 5 ms or more, red (▲) at 10 ms or more" in found["p99-by-job"].meaning
    assert found["stddev-by-job"].meaning == "red (▲) at 1 ms or more"


def test_latencies_of_jobs_have_three_digits_and_a_unit_by_table(tmp_path: Path):
    run = batteries.load_results(build(tmp_path, LOADED), tmp_path / "facts.json")
    found = {table.name: table for table in tabulated.build_job_tables(run)}
    for table in found.values():
        texts = pages.format_table(table).drop(columns="job").to_numpy().ravel()
        assert all(len(text.replace(".", "").lstrip("0")) <= 3 for text in texts)
    assert found["p99-by-job"].caption == "p99 of fdatasync in µs, by job and volume."
    assert found["max-by-job"].caption == "Maximum of fdatasync in ms, by job and volume."
    assert found["p99-by-job"].frame["disk · alone"].median() == pytest.approx(0.276, rel=0.1), "the CSV has ms"
    unit, text = phrases.choose_unit(np.array([1234.5, 20123.0]))
    assert (unit, text(1234.5), text(20123.0)) == ("s", "1.23", "20.1")
    unit, text = phrases.choose_unit(np.array([2.0, np.nan, 1234.5]))
    assert (unit, text(1234.5)) == ("ms", "1230")


def test_long_tables_are_folded(page: Path, run: batteries.Results):
    text = page.read_text(encoding="utf-8")
    assert "<summary>p99 of fdatasync (50 rows)</summary>" in text
    assert "<summary>ip-10-0-0-1, gp2 (50 rows)</summary>" in text
    assert "<summary>Segments" not in text
    assert len(tabulated.build_segments_table(run).frame) <= tabulated.MOST_ROWS


def test_the_red_of_p99_is_the_first_limit_of_the_run(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows[rows["limit"] == "openshift"])
    [p99, p999, *_] = tabulated.build_job_tables(run)
    assert p99.meaning == "yellow (△) at 10 ms or more, red (▲) at 20 ms or more"
    assert p999.meaning == "yellow (△) at 5 ms or more, red (▲) at 10 ms or more"


def test_jobs_are_rows_in_time_order_and_a_missing_one_is_empty(tables: Path, tmp_path: Path):
    run = changed(
        tmp_path, tables, "samples.csv", lambda rows: rows[(rows["store"] != "gp2") | (rows["job_Id"] != "b2")]
    )
    frame = next(iter(tabulated.build_job_tables(run))).frame
    assert list(frame["job"]) == list(range(1, 51))
    assert len(frame) == 50
    assert np.isnan(frame["gp2"][6])
    assert frame["old"].notna().sum() == 20


def test_every_node_has_a_table_of_all_metrics(run: batteries.Results):
    found = list(tabulated.build_node_tables(run))
    assert len(found) == 7
    assert {"battery_id", "job_Id", "max / ms", "p99.99 / ms", "N", "IOPS", "load before"} <= {*found[0].frame}
    assert found[-1].caption.startswith("[INVALID] bench, worn:")


def test_verdicts_at_a_glance_say_how_long_a_limit_was_kept(run: batteries.Results):
    table = tabulated.build_glance_table(run)
    row = table.frame[table.frame["store"] == "gp2"].iloc[0]
    assert row["etcd: p99 below 10 ms"] == "misses 18.5 [18.3, 18.7] ms"
    assert row["etcd: stayed below 10 ms for"] == "55 min, 32 jobs"
    assert table.over["etcd: p99 below 10 ms"] == ["misses", "meets", "meets", "meets", "unknown", "misses"]


def test_summary_leaves_refused_percentiles_empty(run: batteries.Results):
    frame = tabulated.build_series_table(run).frame
    assert frame["p99 / ms"][0].startswith("8.20 [")
    assert list(frame.loc[frame["store"] == "old", "p99 / ms"]) == [""]
    assert "all together" in set(frame["host"])
    assert set(frame["operation"]) == {"fdatasync"}
    assert list(frame.loc[frame["store"] == "old", "note"]) == ["without histograms"]


def test_batteries_are_listed_in_their_order_with_the_rest_between_them(run: batteries.Results):
    frame = tabulated.build_batteries_table(run).frame
    assert list(frame["store"]) == [battery.store for battery in BATTERIES]
    assert frame["pause before"][1] == "1 h 20 min"
    assert frame["reasons"][6] == "fio: No space left on device"
    assert render_markdown(tabulated.render_job_files(run)[0]).startswith(
        "Job `etcd-published`:\n\n    ; etcd's write-ahead log"
    )


def test_colours_have_marks_for_print_and_markdown(page: Path):
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    assert re.search(r"\| 1 \| a1 \| 2\.\d+ \| 4\.\d+ \| 3\.\d+ \| 5\.\d+ △ \| 10\.\d+ ▲ \|", text)
    assert set(pages.MARKS) == {"over", "yellow", "red"}
    style = page.read_text(encoding="utf-8")
    assert '.red::before { content: "\\25B2' in style


# Figures


def test_latency_has_limits_changes_and_credits_on_one_axis_of_time(run: batteries.Results):
    panel, credits = figures.draw_latency(run).panels
    assert [(rule.label, rule.at) for rule, _ in panel.list_limits()] == [("etcd 10", 10.0), ("openshift 20", 20.0)]
    [change] = panel.list_events()
    assert change.rule.label == "job 33 (g3)"
    assert change.rule.colour == panel.marks[0].look.colour
    assert panel.y_log
    assert panel.compute_x_range() == credits.compute_x_range()
    assert [event.rule.label for event in credits.list_events()] == ["gone in job 33 (g3)"]
    assert change.rule.at == pytest.approx(credits.list_events()[0].rule.at)
    assert credits.marks[0].points["y"].iloc[0] == 5.4
    assert panel.marks[-1].label == "[INVALID]"


def test_each_series_is_drawn_by_itself_on_one_scale(run: batteries.Results):
    figure = figures.draw_details(run)
    assert [panel.title for panel in figure.panels][:4] == [
        "gp2",
        "gp3 · ip-10-0-0-2",
        "gp3 · ip-10-0-0-3",
        "disk · alone",
    ]
    assert len({panel.compute_y_range() for panel in figure.panels}) == 1
    assert [event.rule.label for event in figure.panels[0].list_events()] == ["job 33 (g3) ×7.71"]
    assert {mark.label for mark in figure.panels[0].marks} == {"p99", "p99.9", "maximum", ""}


def test_volumes_look_alike_in_all_figures_and_unlike_each_other(run: batteries.Results):
    looks = {}
    for figure in (
        figures.draw_latency(run),
        figures.draw_percentiles(run),
        figures.draw_load(run),
        figures.draw_rates(run),
    ):
        for panel in figure.panels:
            for mark in panel.marks:
                if mark.look.marker not in ("", "x"):
                    looks.setdefault(mark.label, set()).add(mark.look)
    assert all(len(found) == 1 for found in looks.values())
    assert len({next(iter(found)).colour for found in looks.values()}) == len(looks) == 6
    assert (
        len({(Look.from_arm(arm).colour, Look.from_arm(arm).marker) for arm in range(figures.TOGETHER)})
        == figures.TOGETHER
    )


def test_percentiles_lie_on_an_axis_of_one_in_n(run: batteries.Results):
    [panel] = figures.draw_percentiles(run).panels
    assert panel.x_log
    assert panel.x_tick_texts == ("50", "90", "99", "99.9", "99.99")
    assert np.allclose(panel.x_ticks, [2, 10, 100, 1000, 10000])
    assert {int(mark.points["y_low"].notna().sum()) for mark in panel.marks} == {5}
    assert "old" not in {mark.label for mark in panel.marks}


def test_without_histograms_a_sentence_stands_for_the_curves(tmp_path: Path):
    folder = build(tmp_path, [Battery("old", 12.0, host="node-7", jobs=20, bins=False)])
    figure = figures.draw_percentiles(batteries.load_results(folder, folder / "facts.json"))
    assert figure.panels == ()
    assert figure.caption == words.fill("no bins")


@pytest.mark.rule(20)
def test_rates_lie_under_their_ceilings(run: batteries.Results):
    operations, throughput = figures.draw_rates(run).panels
    labels = [rule.label for rule, _ in operations.list_limits()]
    assert labels == ["gp2 384", "gp2, gp3 3,000"]
    assert [rule.label for rule, _ in throughput.list_limits()] == ["gp3 125", "gp2 128"]
    low, high = throughput.compute_y_range()
    names = [height for _, height in throughput.list_limits()]
    assert names[1] / names[0] > (high / low) ** 0.05
    assert "disk · alone: device" in {mark.label for mark in operations.marks}


def test_comparisons_are_drawn_as_those_of_other_studies_are(run: batteries.Results):
    figure = comparisons.draw_comparisons(run)
    assert [panel.title for panel in figure.panels] == [
        "Gp3 vs gp2: store",
        "Load on the same volume vs alone: on disk",
        "Disk vs gp2: store",
    ]
    panel = figure.panels[0]
    assert panel.x_label == "p99: first named / second"
    assert panel.rows[0] == "1.75× as high [1.72, 1.78]: before the first change"
    assert "the first is lower" in figure.caption
    drawn = [comparisons.draw_comparisons(run, metric=metric.name) for metric in run.report.metrics]
    assert sum(len(panel.rows) for figure in drawn for panel in figure.panels) == len(run.verdicts)


def test_many_pairs_share_a_panel(run: batteries.Results, monkeypatch):
    monkeypatch.setattr(comparisons, "PANELS", 2)
    [panel] = comparisons.draw_comparisons(run).panels
    assert panel.rows[0] == "1.75× as high [1.72, 1.78]: gp3 vs gp2, alone · before the first change"
    assert panel.x_label == "p99: first named / second"
    monkeypatch.setattr(comparisons, "REST", 2)
    assert "The first 2 of 4 are drawn; the numbers have all." in comparisons.draw_comparisons(run).caption


def test_names_of_limits_and_of_events_keep_apart():
    rules = [Rule(10, "a"), Rule(10.1, "b"), Rule(30, "first", "x"), Rule(31, "second", "x"), Rule(99, "the last", "x")]
    points = pd.DataFrame({"x": [1.0, 100.0], "y": [1.0, 10.0]})
    panel = Panel("", "", marks=(Marks("", Look("#000000", "circle"), points),), rules=tuple(rules), y_log=True)
    low, high = panel.compute_y_range()
    (_, first), (_, second) = panel.list_limits()
    assert np.log(second / first) > 0.06 * np.log(high / low)
    assert second <= high
    events = panel.list_events()
    assert [(event.tier, event.before) for event in events] == [(0, False), (1, False), (0, True)]
    assert panel.compute_name_height(0) > panel.compute_name_height(1) > 10


# What may be missing


@pytest.mark.parametrize(
    "absent", ["cells", "verdicts", "segments", "percentiles", "comparisons", "credits", "collapses"]
)
def test_an_absent_table_leaves_a_sentence_and_the_rest(absent: str, tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    (copy / f"{absent}.csv").unlink()
    run = batteries.load_results(copy, copy / "facts.json")
    assert absent == "collapses" or any(line.startswith(f"{absent}.csv has no rows") for line in limits_of(run))
    found = [show(run) for show in (figures.draw_latency, figures.draw_details, figures.draw_rates, figures.draw_load)]
    assert all(figure.panels for figure in found)
    assert all(
        figure.panels or figure.numbers.empty
        for figure in (figures.draw_percentiles(run), comparisons.draw_comparisons(run))
    )
    assert len(list(tabulated.build_job_tables(run))) == 5
    assert answers.list_findings(run)[0]


def test_facts_may_lack_everything(tables: Path):
    run = batteries.load_results(tables)
    assert told(run, "limit")[0].startswith("p99 of the sync after a write **meets**")
    assert tabulated.build_batteries_table(run).frame.empty
    assert cell_tables.build_machine_table(run.facts).frame.empty
    assert tabulated.render_job_files(run) == []


def test_the_published_table_alone_makes_a_page(published: Path, tmp_path: Path):
    shutil.copy(published / "fio-ebs" / "all_metrics_long.csv", tmp_path / "samples.csv")
    text = write("volumes", tmp_path, tmp_path / "volumes.html").with_suffix(".md").read_text(encoding="utf-8")
    assert run_files.ABSENT["verdicts"] in text
    assert "| a1 | 1.93 | 2.70 | 3.65 | 4.69 |" in text
    assert "| a1 | 21.4 | 42.9 | 68.0 △ | 82.2 △ |" in text
    assert "volumes_files/details.svg" in text


def test_tables_made_of_records_are_understood(tmp_path: Path):
    fast, slow = np.full(32, 1.0), np.full(18, 8.0)
    folder = records.write_run(
        tmp_path,
        [
            records.battery("gp2", np.concatenate([fast, slow]), volume={"type": "gp2", "size_gib": 128}),
            records.battery("gp3", np.full(50, 1.5), seed=2, volume={"type": "gp3", "size_gib": 128}),
        ],
    )
    records.gather(folder, compare=[{"factor": "store", "baseline": "gp2"}])
    run = batteries.load_results(folder / "out")
    assert "in the first 32 jobs (" in told(run, "limit", "gp2")[0]
    assert "from job 33 (g3) on" in told(run, "limit", "gp2")[0]
    assert told(run, "limit", "gp3")[0].startswith(
        "p99 of the sync after a write **meets** etcd's 10 ms in all 50 jobs"
    )
    # One battery each: the comparison is drawn, and no finding.
    assert told(run, "store") == []
    assert set(comparisons.draw_comparisons(run).numbers["verdict"]) == {"too few repeats"}
    assert "Raise `batteries` to 6 or more" in render_markdown_line(answers.list_advice(run)[-1])
    assert len(figures.draw_percentiles(run).panels) == 1
    assert "a 128 GiB gp3 volume has no burst credits" in " ".join(told(run, "burst credits"))
    assert len(figures.draw_latency(run).panels) == 2


def test_the_published_batteries_come_to_the_published_conclusions(published: Path, tmp_path: Path):
    folder = records.write_run(tmp_path, imported=records.published_records(published))
    records.gather(folder, compare=[{"factor": "store", "baseline": "gp2x1"}])
    run = batteries.load_results(folder / "out")
    first, second, *steady = [one for one in told(run, "limit") if "etcd" in one]
    assert "in the first 32 jobs" in first
    assert "p99 was 7.8× as high" in first
    assert "in the first 37 jobs" in second
    assert len(steady) == 2
    assert all("**meets** etcd's 10 ms" in one for one in steady)
    assert told(run, "store") == []
    drawn = comparisons.draw_comparisons(run).numbers.set_index(["contender", "phase"]).loc["gp3x1"]
    assert drawn["ratio"].round(2).to_dict() == {"before the first change": 1.65, "after the last change": 0.22}
    assert drawn["note"].str.contains("medians of the jobs").all()
    assert figures.draw_percentiles(run).caption == words.fill("no bins")


def test_jobs_without_a_p99_of_their_own_are_judged_all_the_same(tables: Path, tmp_path: Path):
    """Processes of a job that fio reported apart: only their histograms can be merged."""
    run = changed(tmp_path, tables, "samples.csv", lambda rows: rows.assign(sync_lat_p99_ms=""))
    assert told(run, "limit")[0].startswith("p99 of fdatasync **meets** etcd's 10 ms")
    assert figures.draw_details(run).panels == ()


def test_a_second_battery_on_a_volume_is_a_line_of_its_own(tables: Path, tmp_path: Path):
    def again(rows: pd.DataFrame) -> pd.DataFrame:
        more = rows[rows["store"] == "old"].assign(repeat="2")
        return pd.concat([rows, more])

    run = changed(tmp_path, tables, "samples.csv", again)
    assert [mark.label for mark in figures.draw_latency(run).panels[0].marks][-3:] == [
        "old · battery 1",
        "old · battery 2",
        "[INVALID]",
    ]


def test_samples_without_latencies_are_named(tmp_path: Path):
    (tmp_path / "samples.csv").write_text("job_Id,store\na1,gp2\n")
    with pytest.raises(Problem, match=r"samples.csv lacks the column sync_lat_p99_ms$"):
        batteries.load_results(tmp_path)


# The page


@pytest.mark.rule(23)
def test_what_failed_and_what_does_not_apply_is_told(page: Path):
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    for part in (
        *("fio: No space left on device", "19 of 20 jobs done", "it is &lt;no> output of fio"),
        *("fio cannot write to a store of kind s3", "### Rules that do not apply", "fio ended with status 1"),
    ):
        assert part in text
    assert "Rule 17" in text


def test_names_from_elsewhere_are_shown_as_they_are(tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    for path in copy.glob("*.csv"):
        path.write_text(path.read_text().replace("ip-10-0-0-", "<img src=x onerror=alert(1)>_*_"))
    page = write_words("volumes", copy, tmp_path / "reports" / "volumes.html")
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<img src=x", re.sub(r"(?s)<script.*?</script>", "", text))
    assert "&lt;img src=x onerror=alert(1)&gt;_*_2" in text


def test_a_page_of_forty_series_of_fifty_jobs_is_small(tmp_path: Path):
    tables = build(tmp_path / "tables", many(40, 50))
    page = write("volumes", tables, tmp_path / "reports" / "volumes.html")
    assert page.stat().st_size < 3 * 10**6
    run = batteries.load_results(tables, tables / "facts.json")
    assert len(figures.draw_details(run).panels) == figures.SINGLE
    assert len(figures.draw_details(run).numbers) == 2000
    drawn = [mark for panel in figures.draw_latency(run).panels for mark in panel.marks if "credits" not in mark.label]
    assert len(drawn) == 40
    assert max(len(panel.marks) for panel in figures.draw_load(run).panels) <= 2 * len(COLOURS)
