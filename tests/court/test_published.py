"""Published studies: pages from what is committed, raw files, claims that are computed, figures that are recomputed."""

import hashlib
import http.server
import importlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT, copy_project, sbench
from small_runs import snakemake

from sbench.court import claims, derived, raw_data, tables
from sbench.design import csv_file
from sbench.design.claim import Claims
from sbench.pages import notebook
from sbench.probe.program import Problem, read_json
from sbench.studies.shots.published import COLUMNS as OF_SHOTS

PRINTED, SOURCES = ROOT / "results/published", ROOT / "config/published.yaml"
STUDIES = sorted(raw_data.read_sources(SOURCES))
# Nothing listens there: whoever asks for an address of the network is refused.
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")


def made(study: str, folder: Path, raw: Path | None, of: Path = SOURCES) -> Path:
    """Make the tables of a study, and return their folder."""
    raw_files = [f"--raw={raw}"] if raw else []
    arguments = ["--study", study, "--sources", str(of), "--printed", str(PRINTED / study), "--out", str(folder)]
    assert tables.main([*arguments, *raw_files]) == 0
    return folder


@pytest.fixture(scope="module")
def offline(once: Callable) -> Path:
    """Return a copy of the project with the pages of all studies, made of what is committed."""

    def build(folder: Path) -> None:
        clone = copy_project(folder / "clone", published=True)
        stopped = snakemake(clone, "published", env=os.environ | OFFLINE)
        (folder / "stopped.txt").write_text(f"{stopped.returncode}\n{stopped.stdout}{stopped.stderr}")
        result = sbench("published", "--partial", cwd=clone, env=os.environ | OFFLINE)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "report: reports/published-partial/index.html" in result.stderr

    return once("published", build) / "clone/reports/published-partial"


def test_a_call_without_the_raw_data_stops_before_the_first_page_and_writes_over_none(offline: Path):
    status, _, text = (offline.parents[2] / "stopped.txt").read_text().partition("\n")
    assert status == "1"
    assert "raw file ec2-" in text
    assert "name a folder of the raw data (--raw), or make pages from the available files" in text
    for page in (ROOT / "reports/published").glob("*.md"):
        assert (offline.parent / "published" / page.name).read_bytes() == page.read_bytes()


def test_all_pages_are_made_of_what_is_committed_without_a_network(offline: Path):
    assert {path.stem for path in offline.glob("*.html")} == {"index", *STUDIES, *(f"{name}-audit" for name in STUDIES)}
    index = (offline / "index.md").read_text(encoding="utf-8")
    assert [f"({study}-audit.md)" in index for study in STUDIES] == [True] * len(STUDIES)
    # Who reads the Markdown in a repository, where no HTML is, gets on.
    for page in offline.glob("*.md"):
        links = re.findall(r"\]\(([^():#]+\.(?:md|html|svg))\)", page.read_text(encoding="utf-8"))
        assert links
        assert [link for link in links if link.endswith("html") or not (offline / link).exists()] == []
    for page in offline.glob("*.html"):
        links = [link for link in re.findall(r'href="([^"]*)"', page.read_text(encoding="utf-8")) if "#" not in link]
        assert [link for link in links if not link.startswith("https:") and not (offline / link).exists()] == []
    said = (offline / "shots-audit.md").read_text(encoding="utf-8")
    assert "- Raw file ec2-s3.csv: <urlopen error" in said.replace("&lt;", "<")
    assert "**0 of 27 claims are testable with the available data." in said
    assert "the page omits it" in said


def test_pages_of_published_data_do_not_say_that_they_were_measured_as_here(offline: Path):
    for study in STUDIES:
        page = (offline / f"{study}.md").read_text(encoding="utf-8")
        assert "are valid." not in page
        assert "| 0.00 |" not in page
        # The batteries of `volumes` are read as this project reads any.
        method = importlib.import_module(f"sbench.studies.{study}.report").METHOD
        assert study == "volumes" or not any(line in page for line in method)
    arrays, blobs, particles = ((offline / f"{study}.md").read_text(encoding="utf-8") for study in STUDIES[:3])
    assert "until stored" not in arrays
    assert "macpro" not in arrays
    assert "| 1 MiB | 28.0 ms | 714 | 31.0 ms | 645 |" in blobs
    assert "Azure Files latency" in blobs
    assert "The times of single iterations are not known." in blobs
    assert "iterations after the first" not in blobs + particles
    # The futures of what was listed again read a tenth of it, or less.
    assert "**futures-pure**" not in particles
    assert "Dask futures-pure vs the serial loop: **not comparable** (the amount of data differs" in particles
    assert "Cost of a task" not in particles


@pytest.mark.parametrize("study", [name for name in STUDIES if not raw_data.read_sources(SOURCES)[name].get("raw")])
def test_the_pages_that_are_committed_are_those_of_the_data(study: str, offline: Path):
    for page in (f"{study}.md", f"{study}-audit.md"):
        assert (offline / page).read_text(encoding="utf-8") == (ROOT / "reports/published" / page).read_text(
            encoding="utf-8"
        )


def test_what_is_said_of_all_rows_cannot_be_told_of_the_part_that_is_printed(offline: Path):
    tables = offline.parents[1] / "results/published/volumes/tables"
    assert len(pd.read_csv(PRINTED / "volumes/all_metrics_long.csv")) == 40
    rows = pd.read_csv(tables / "audit/claims.csv")
    assert set(rows.loc[rows["table"] == "all_metrics_long.csv", "outcome"]) == {"not testable"}
    assert set(pd.read_csv(tables / "audit/rules.csv")["outcome"]) == {"not testable"}


def test_an_audit_is_the_same_however_often_it_is_made(offline: Path, tmp_path: Path):
    folder = made("arrays", tmp_path, None)
    for name in ("claims", "derived", "labels", "setup"):
        there = offline.parents[1] / f"results/published/arrays/tables/audit/{name}.csv"
        assert (folder / f"audit/{name}.csv").read_bytes() == there.read_bytes()


# Raw files


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder on the loopback; yield it and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def shots_csv(seconds: float = 2.0, **columns: object) -> str:
    """Return rows of the published columns: four tasks of one shot, on 2 and on 4 workers."""
    rows = [
        {
            **{"worker#": task, "obj-id": "1160923014", "open+read-data-time": 1.0, "wrkr-num-objs": 1},
            **{"mean-obj-time": 1.0, "num-dsets": 10, "mean-dset-time": 0.1, "pb-size": 2**28, "num-workers": workers},
            **{"obj-type": "shots", "tot-num-obj": 500, "total-runtime": seconds / workers},
            **columns,
        }
        for workers in (2, 4)
        for task in range(1, workers + 1)
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def sources_of(tmp_path: Path, address: str, files: dict[str, str]) -> Path:
    """Write sources whose raw files of `shots` are at an address, with the sha256 of these texts."""
    spec = yaml.safe_load(SOURCES.read_text(encoding="utf-8"))
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    spec["shots"]["raw"] = {name: {"url": f"{address}/{name}", "sha256": digest} for name, digest in digests.items()}
    path = tmp_path / "published.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return path


def test_raw_files_are_downloaded_once_and_compared(served, tmp_path: Path):
    folder, address = served
    files = {"ec2-s3.csv": shots_csv(2.0), "ec2-s3-libaws.csv": shots_csv(3.0)}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    of = sources_of(tmp_path, address, files)
    out = made("shots", tmp_path / "out", None, of)
    cells = pd.read_csv(out / "cells.csv")
    assert dict(zip(zip(cells["library"], cells["workers"], strict=True), cells["total_s"], strict=True)) == {
        **{("hdf5-1.14.6", 2): 1.0, ("hdf5-1.14.6", 4): 0.5, ("hdf5-2.0.0", 2): 1.5, ("hdf5-2.0.0", 4): 0.75}
    }
    verdicts = pd.read_csv(out / "verdicts.csv")
    assert set(verdicts["verdict"]) == {"too few repeats"}
    assert set(verdicts["ratio"]) == {1.5}
    # As the study corrects it: one file of a shot was read.
    assert set(pd.read_csv(out / "samples.csv")["tot-num-obj"]) == {1}
    (folder / "ec2-s3.csv").unlink()
    made("shots", tmp_path / "out", None, of)
    assert "ec2-s3.csv" not in str(read_json(out / "facts.json")["limits"])


def test_a_raw_file_that_is_another_is_left_out_and_named(served, tmp_path: Path):
    folder, address = served
    of = sources_of(tmp_path, address, {"ec2-s3.csv": shots_csv(), "ec2-local.csv": shots_csv()})
    (folder / "ec2-s3.csv").write_text(shots_csv(4.0), encoding="utf-8")
    limits = read_json(made("shots", tmp_path / "out", None, of) / "facts.json")["limits"]
    assert [line.partition(": ")[0] for line in limits] == ["raw file ec2-s3.csv", "raw file ec2-local.csv"]
    assert "its sha256 must be" in limits[0]
    assert "404" in limits[1]
    local = read_json(made("shots", tmp_path / "out", tmp_path, of) / "facts.json")["limits"]
    assert "ec2-local.csv: not found in" in local[1]


@pytest.mark.parametrize(
    "change, line",
    [
        (lambda text: text.replace("total-runtime", "runtime"), r"lacks the column total-runtime \(found"),
        (
            lambda text: text.replace(",", ";"),
            "lacks the column worker#; separate columns by commas, not semicolons",
        ),
        (lambda text: text.partition("\n")[0], "contains no rows"),
        (lambda text: text + text.splitlines()[1], "row 8 repeats another row"),
        (
            lambda text: text.replace(",1.0,1,", ",nan,1,", 1),
            "row 2, column open.read-data-time: must be a number above 0",
        ),
        (
            lambda text: text.replace(",1.0,1,", ",0,1,", 1),
            "row 2, column open.read-data-time: must be a number above 0",
        ),
        (lambda text: text.replace(",1.0,1,", ",-1,1,", 1), "must be a number above 0"),
        (lambda text: text.replace(",1.0,1,", ",1000 ms,1,", 1), "must be a number above 0"),
        (
            lambda text: text.replace(",2,shots", ",2.5,shots", 1),
            "row 2, column num-workers: must be a whole num",
        ),
        (lambda text: text.replace(",1160923014,", ",,", 1), "row 2, column obj-id: must be a non-empty text"),
    ],
)
def test_a_table_that_is_not_as_published_is_one_line(change: Callable[[str], str], line: str, tmp_path: Path):
    (tmp_path / "ec2-s3.csv").write_text(change(shots_csv()), encoding="utf-8")
    with pytest.raises(Problem, match=rf"^{tmp_path}/ec2-s3.csv[ :].*{line}") as raised:
        csv_file.read_table(tmp_path / "ec2-s3.csv", OF_SHOTS)
    assert "\n" not in str(raised.value)


# Claims


@pytest.mark.parametrize(
    "printed, values, outcome",
    [
        ("4.23..6.91", [4.23, 5, 6.91], "holds"),
        ("4.23..6.91", [3.73, 4.95, 5.76], "does not hold"),
        ("4.23..6.91", [4.5, 5], "does not hold"),
        ("~5..6", [5.35, 6.49], "holds"),
        ("~5..6", [5.35, 7.7], "holds in part"),
        ("~5..6", [7.7], "does not hold"),
        ("~30", [26, 34], "holds"),
        ("~30", [15, 31], "holds in part"),
        ("~14", [13.4], "holds"),
        ("14", [13.4], "does not hold"),
        (">5", [5.08, 6.9], "holds"),
        ("<=1", [0.4, 1.0], "holds"),
        ("<1", [1.0], "does not hold"),
        ("4.194e6", [4194304], "holds"),
        ("75.77", [75.774], "holds"),
    ],
)
def test_a_printed_value_stands_for_all_that_it_can_be_rounded_from(printed: str, values: list, outcome: str):
    table = pd.DataFrame({"name": [f"n{number}" for number in range(len(values))], "value": list(map(str, values))})
    assert judge_claim(printed, lambda t: t.set_index("name")["value"], t=table)["outcome"] == outcome


def judge_claim(printed: str, compute: Callable, **tables: pd.DataFrame) -> dict:
    """Return what is said of a claim whose function gets the tables that its parameters name."""

    def claim(t):
        """Words of a study."""
        return compute(t)

    claims_of_study = Claims(t="t")
    claims_of_study.compares("page 1", printed)(claim)
    return claims.judge_claims(claims_of_study, tables).iloc[0].to_dict()


def test_a_claim_that_holds_in_part_names_the_rows():
    table = pd.DataFrame({"arm": list("aabb"), "workers": list("1212"), "seconds": ["2", "4", "1", "8"]})

    def ratio(t: pd.DataFrame) -> pd.Series:
        arms = t.pivot(index="workers", columns="arm", values="seconds")
        return arms["b"] / arms["a"]

    claim = judge_claim("<1", ratio, t=table)
    assert claim["quote"] == "Words of a study."
    assert (claim["outcome"], claim["computed"], claim["why"]) == (
        "holds in part",
        "0.500 to 2.00",
        "only for workers = 1",
    )
    assert judge_claim("<1", ratio)["why"] == "t is missing or incomplete"
    many = pd.DataFrame({"name": [f"n{number}" for number in range(15)], "seconds": ["2", *["1"] * 14]})
    assert judge_claim("<2", lambda t: t.set_index("name")["seconds"], t=many)["why"] == "except for name = n0"
    assert judge_claim("<2", lambda t: t["seconds"], t=many)["why"] == "for 14 of 15 values"
    none = judge_claim("<2", lambda t: t["seconds"][t["seconds"] > 2], t=many)
    assert (none["outcome"], none["why"]) == ("not testable", "t lacks the rows of this claim")
    assert judge_claim("", lambda t: None, t=many)["why"] == "no published data"


def test_a_claim_that_cannot_be_judged_is_one_line():
    table = pd.DataFrame({"seconds": ["2"]})
    with pytest.raises(Problem, match=r"^claim cannot be computed from t: second is missing$"):
        judge_claim("<1", lambda t: t["second"], t=table)
    with pytest.raises(
        Problem, match=r"^claim: the printed value must be a number such as 386, ~30, >5 or 4.*'much'\)$"
    ):
        judge_claim("much", lambda t: t["seconds"], t=table)


def test_levels_in_a_list_make_a_claim_of_each():
    of_study = Claims(t="t")

    @of_study.explains("page 1", operation=["write", "read"], share="p99.9", name="faster")
    @of_study.compares("page 2", ">1", "factor", operation="write", share=["p99.9"])
    def much_faster(t, operation, share):
        """Much faster."""
        return f"{len(t)} {operation} {share}"

    assert [claim.id for claim in of_study] == ["faster-write", "faster-read", "much-faster-p99-9"]
    assert [claim.compute(t=[]) for claim in of_study] == ["0 write p99.9", "0 read p99.9", "0 write p99.9"]
    assert {(claim.quote, *claim.tables.items()) for claim in of_study} == {("Much faster.", ("t", "t"))}


# Recomputed


@pytest.mark.parametrize(
    "latency, bandwidth, agrees",
    [("0.028", "714.286", True), ("0.028", "727.27", True), ("0.028", "728", False), ("0.028", "71.4286", False)],
)
def test_rounding_is_allowed_for(latency: str, bandwidth: str, agrees: bool):
    table = pd.DataFrame([{"Size(MiB)": "1", "Latency (s)": latency, "Rate": bandwidth}])
    assert derived.select_disagreeing(table, "Rate", "20 * `Size(MiB)` / `Latency (s)`").empty == agrees


def test_printed_bandwidths_that_do_not_follow_from_their_latency_are_listed(tmp_path: Path):
    rows = pd.read_csv(made("blobs", tmp_path, None) / "audit/derived.csv").dropna(subset="row")
    listed = set(zip(rows["table"], rows["column"], rows["row"], strict=True))
    count = 0
    for path in sorted((PRINTED / "blobs").glob("*.csv")):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        size = table.columns[0]
        for column in (name for name in table if "Bandwidth" in name):
            for row in table.to_dict("records"):
                latency = row[column.replace("Bandwidth (MiB/s)", "Latency (s)")]
                if latency == "N/A":
                    continue
                mib = float(re.match(r"\d+", row[size])[0]) * (20 if "MiB" in size else 1024)
                digits = {name: len(text.partition(".")[2]) for name, text in (("s", latency), ("rate", row[column]))}
                rates = mib / (float(latency) + np.linspace(-0.5, 0.5, 2001) * 10.0 ** -digits["s"])
                off = np.abs(rates - float(row[column])).min()
                # No latency that rounds to the printed one gives the printed bandwidth.
                steps = np.abs(np.diff(rates)).max() + 0.5 * 10.0 ** -digits["rate"]
                assert ((path.name, column, f"{size} {row[size]}") in listed) == (off > steps)
                count += 1
    assert (count, len(listed)) == (72, 46)
    assert ("INPUT_Single_File_Multiple_Readers.csv", "Blob Bandwidth (MiB/s)", "File Size(MiB) 1024") in listed


# The published data


def claims_of(study: str) -> Claims:
    return importlib.import_module(f"sbench.studies.{study}.published_claims").claims


@pytest.fixture
def tables_of(audited: Callable[[str], Path], published: Path) -> Callable[[str], dict[str, pd.DataFrame]]:
    """Return a function study -> its published tables by name, all of them text."""

    def read(study: str) -> dict[str, pd.DataFrame]:
        files, _ = raw_data.fetch_files(
            raw_data.read_sources(SOURCES)[study], PRINTED / study, published, Path("nowhere")
        )
        files |= {"cells": audited(study) / "cells.csv"}
        return {name: pd.read_csv(path, dtype=str, keep_default_na=False) for name, path in files.items()}

    return read


@pytest.mark.parametrize("study", STUDIES)
def test_every_claim_that_has_a_value_is_computed_from_the_raw_data(study: str, audited: Callable[[str], Path]):
    folder = audited(study)
    assert read_json(folder / "facts.json")["limits"] == []
    judged = pd.read_csv(folder / "audit/claims.csv", dtype=str, keep_default_na=False)
    assert list(judged["id"]) == [claim.id for claim in claims_of(study)]
    assert judged["id"].is_unique
    # What gets no table is a constant of the study, or words that nothing computes.
    computed = {claim.id for claim in claims_of(study) if claim.tables or claim.compute() is not None}
    assert set(judged.loc[judged["outcome"] != claims.UNKNOWN, "id"]) == computed
    assert len(computed) >= 5


@pytest.mark.parametrize(
    "study, table, column, claim",
    [
        ("arrays", "article_tables.csv", "write_MBps", "stream-write-devone"),
        ("blobs", "INPUT_Extended_to_Larger_File_Sizes.csv", "Blob Latency (s)", "sections-divided"),
        ("particles", "timings_from_notebook.csv", "mean_s", "time-x2000-array"),
        ("shots", "ec2-s3-libaws.csv", "total-runtime", "comparable-or-better-signals"),
        ("volumes", "all_metrics_long.csv", "sync_lat_p99_ms", "gp3-below-max"),
    ],
)
def test_a_claim_does_not_hold_of_other_data(study: str, table: str, column: str, claim: str, tables_of: Callable):
    def outcome() -> str:
        return claims.judge_claims(claims_of(study), tables).set_index("id").loc[claim, "outcome"]

    tables = tables_of(study)
    assert outcome() == claims.HOLDS
    tables[table][column] = (4 * tables[table][column].astype(float)).astype(str)
    assert outcome() == claims.NOT
    tables = {name: frame.drop(columns=column, errors="ignore") for name, frame in tables.items()}
    with pytest.raises(Problem, match=rf"^[\w-]+ cannot be computed from .*{re.escape(column)} is missing$") as raised:
        outcome()
    assert "\n" not in str(raised.value)


def test_the_raw_files_are_those_that_are_named(published: Path):
    named = [(study, name) for study, spec in raw_data.read_sources(SOURCES).items() for name in spec.get("raw") or {}]
    assert len(named) == 4
    for study, name in named:
        files, absent = raw_data.fetch_files(
            raw_data.read_sources(SOURCES)[study], PRINTED / study, published, Path("nowhere")
        )
        assert absent == {}
        assert files[name].is_relative_to(published)


def test_a_printed_part_is_a_part_of_its_raw_file(published: Path):
    raw = pd.read_csv(next(published.rglob("all_metrics_long.csv")), dtype=str)
    part = pd.read_csv(PRINTED / "volumes/all_metrics_long.csv", dtype=str)
    assert len(part.merge(raw)) == len(part) == 40
    numbers = pd.read_csv(next(published.rglob("ec2-s3-libaws.csv"))).round(6)
    printed = pd.read_csv(PRINTED / "shots/ec2-s3-libaws.csv")
    keys = [
        "worker#",
        "obj-id",
        "open+read-data-time",
        "mean-obj-time",
        "mean-dset-time",
        "num-workers",
        "total-runtime",
    ]
    assert len(printed.merge(numbers, on=keys)) == len(printed) == 10
    for study in ("particles", "arrays", "blobs"):
        for path in (PRINTED / study).glob("*.csv"):
            if whole := sorted(published.rglob(path.name)):
                assert path.read_bytes() == whole[0].read_bytes()


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_regenerated_by_its_own_module(study: str):
    program = importlib.import_module(f"sbench.studies.{study}.published")
    files = {path.name: path for path in (PRINTED / study).glob("*.csv")}
    first = next(iter(program.load_records(files)))
    assert json.loads(json.dumps(first["cell"])) == first["cell"]
    assert first["repeat"] == 1


@pytest.mark.parametrize("study", STUDIES)
def test_the_audits_that_are_committed_are_those_of_the_raw_data(
    study: str, audited: Callable[[str], Path], tmp_path: Path
):
    folder = audited(study)
    # Without raw files the pages of the data are those made without a network.
    has_raw = bool(raw_data.read_sources(SOURCES)[study].get("raw"))
    for book, name in [("audit", f"{study}-audit"), *([(study, study)] if has_raw else [])]:
        page = tmp_path / f"{name}.html"
        given = {"tables": str(folder), "facts": str(folder / "facts.json")}
        notebook.build_page(ROOT / f"notebooks/{book}.ipynb", given, page)
        committed = ROOT / f"reports/published/{name}.md"
        assert page.with_suffix(".md").read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")
