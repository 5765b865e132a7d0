"""The workflow as a whole: configurations plan, the smoke run measures, and only what is missing is measured."""

import itertools
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from batteries import until
from conftest import ROOT, artefact, copy_project, processes_of, sbench
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from small_runs import MEASURE, PAGE, SINGLE, TINY, drop, launch, planned, records, snakemake, write

from tests.helpers import browser
from tests.helpers.fio_results import Battery, write_battery

SMOKE = ("--configfile", "config/smoke.yaml")
CONFIGS = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if path.name != "published.yaml")


# A name of a folder that a shell takes apart.
ODD = 'it\'s "my" $clone; a b'
SECRET = "A-SECRET-OF-THE-TESTS"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="module")
def smoke(once: Callable, environments: Path) -> Path:
    """Return a folder with a clone in which the smoke run was measured, by somebody with keys, and what that said."""

    def run(folder: Path) -> None:
        done = snakemake(copy_project(folder / "clone"), *SMOKE, env=os.environ | KEYS)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "said").write_text(done.stdout + done.stderr, encoding="utf-8")

    return once("smoke", run)


def test_the_workflow_is_linted():
    done = snakemake(ROOT, "--lint")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_every_shipped_configuration_can_be_planned(clone, name):
    (clone / "imports").mkdir()
    (clone / "imports/results.json").touch()
    jobs = planned(clone, "--configfile", f"config/{name}")
    assert jobs["measure" if name != "import.yaml" else "import_fio"] > 0
    assert jobs["check"] == 1


@pytest.mark.parametrize("run", ["|\n  x\n", "..", "x" * 300])
def test_a_run_named_on_the_command_line_obeys_the_schema(tiny, run):
    done = snakemake(tiny, "--dry-run", "--config", f"run={run}")
    said = done.stdout + done.stderr
    (line,) = [line for line in said.splitlines() if "problem: " in line]
    assert "config/config.yaml: run: " in line
    assert "Traceback" not in said


def assert_in_order(records: Iterable[dict]) -> None:
    """Cells are measured in the order of their positions."""
    order = sorted(records, key=lambda record: record["position"])
    assert [record["started_utc"] for record in order] == sorted(record["started_utc"] for record in order)


def assert_one_after_the_other(records: list[dict]) -> None:
    """No cell is measured while another is; the second in which one started is all that its record says of that."""
    spans = [(datetime.fromisoformat(record["started_utc"]), record["step_seconds"]) for record in records]
    for (started, seconds), (following, _) in itertools.pairwise(sorted(spans)):
        assert seconds < (following - started).total_seconds() + 1


@pytest.mark.rule(2, 4)
def test_the_smoke_run_measures_judges_and_reports_on_real_servers(smoke):
    clone = smoke / "clone"
    measured = records(clone, "smoke")
    # Two slowed controls among them.
    assert len(measured) == 8
    assert [record["reasons"] for record in measured.values() if not record["valid"]] == []
    assert_in_order(measured.values())
    batteries = records(clone, "smoke", "volumes")
    assert_one_after_the_other([*measured.values(), *batteries.values()])
    assert [record["reasons"] for record in batteries.values() if not record["valid"]] == []
    assert [len(record["samples"]) for record in batteries.values()] == [3, 3]
    # Cells of one study are not measured between those of another, and volumes in the order of the matrix.
    last = max(record["started_utc"] for record in measured.values())
    started = [record["started_utc"] for record in batteries.values()]
    assert [last, *started] == sorted([last, *started])
    assert not list((clone / "results/smoke").rglob("storage-benchmarks-fio"))
    index = (clone / "reports/smoke/index.html").read_text(encoding="utf-8")
    assert "HDF5" in index
    assert "fdatasync" in index
    for name in ("shots.html", "shots.md", "shots_files", "volumes.html", "volumes.md", "volumes_files"):
        assert (clone / "reports/smoke" / name).exists()
    verdicts = (clone / "results/smoke/shots/verdicts.csv").read_text(encoding="utf-8")
    assert "too few repeats" in verdicts
    loads = records(clone, "smoke", "particles")
    assert [record["reasons"] for record in loads.values() if not record["valid"]] == []
    pure = re.search(
        r"(\d+) of (\d+) listed chunks were read", (clone / "reports/smoke/particles.md").read_text("utf-8")
    )
    assert int(pure[2]) == 2 * int(pure[1]), "what Dask took for one is on the page"
    arrays = records(clone, "smoke", "arrays")
    assert {record["cell"]["backend"] for record in arrays.values()} == {"library", "hsds", "zarr"}
    assert [record["reasons"] for record in arrays.values() if not record["valid"]] == []
    page = (clone / "reports/smoke/arrays.md").read_text("utf-8")
    assert "the HDF5 library does not write to an object store" in page, "what is left out is on the page"
    containers = records(clone, "smoke", "containers")
    assert {record["cell"]["container"] for record in containers.values()} == {"hdf5", "zarr-shards"}
    assert [record["reasons"] for record in containers.values() if not record["valid"]] == []
    until(lambda: processes_of(str(clone)) == [])


def test_the_page_of_a_study_can_be_read_before_the_next_study_is_measured(smoke):
    said = (smoke / "said").read_text(encoding="utf-8").splitlines()
    page = next(number for number, line in enumerate(said) if line.endswith("page: reports/smoke/shots.html"))
    first = next(number for number, line in enumerate(said) if "started  measure volumes" in line)
    assert page < first
    assert said[-1].endswith("; report: reports/smoke/index.html")


def test_at_the_end_the_terminal_has_the_sentence_of_each_page(smoke):
    said = (smoke / "said").read_text(encoding="utf-8").splitlines()
    answers = []
    for path in sorted((smoke / "clone/reports/smoke").glob("*_answers.json")):
        left = artefact(path)
        said_of = " ".join(filter(None, (left["caution"], left["headline"])))
        sentence = re.sub(r"[\x00-\x08]", "", f"{left['title']}: {said_of}")
        answers += [sentence, f"    page: reports/smoke/{left['study']}.html"]
    assert len(answers) == 12
    assert [line.partition(" ")[2] for line in said[-1 - len(answers) : -1]] == answers
    again = launch(smoke / "clone", SMOKE[1])
    assert again.returncode == 0, again.stderr
    assert "Nothing to be done" in again.stderr
    end = [line.partition(" ")[2] for line in again.stderr.splitlines()[-1 - len(answers) :]]
    assert end == [*answers, "report: reports/smoke/index.html"]


@pytest.mark.late
def test_results_of_fio_are_reported_without_measuring_anything_in_a_folder_with_blanks_and_quotes(ready_clone):
    home = ready_clone.rename(ready_clone.with_name(ODD))
    battery = write_battery(home / "my it's results", Battery(jobs=8))
    (battery / "strange.json").write_text("no JSON", encoding="utf-8")
    command = ["./sbench", "import", "my it's results"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (home / "reports/imported/volumes.md").read_text(encoding="utf-8")
    assert "etcd's 10 ms" in page
    assert "strange.json" in page
    assert not (home / "results/imported/volumes/records").exists()
    again = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert "Nothing to be done" in again.stdout + again.stderr
    gone = launch(home, "config/import.yaml")
    assert gone.returncode == 2
    assert gone.stderr.splitlines()[-1] == "problem: imports: imports does not exist; correct the path"


def test_cells_are_measured_in_a_folder_with_blanks_and_quotes(ready_clone):
    home = ready_clone.rename(ready_clone.with_name(ODD))
    write(home, SINGLE)
    done = launch(home, "--only", "access=shots", "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["valid"] for record in records(home).values()] == [True]


@pytest.mark.late
def test_no_secret_is_in_any_artefact_log_or_report(smoke, tiny):
    elsewhere = {"kind": "s3", "bucket": "none", "endpoint": "http://127.0.0.1:9"}
    matrix = SINGLE["studies"]["shots"]["matrix"] | {"library": ["hdf5-2.1.1"]}
    matrices = [matrix, matrix | {"store": ["s3"], "driver": ["ros3"]}]
    libraries = {"hdf5-2.1.1": {"kind": "wheel", "hdf5": "2.1.1"}}
    stores = {"disk": {"kind": "posix"}, "s3": elsewhere}
    shots = SINGLE["studies"]["shots"] | {"matrix": matrices}
    write(tiny, SINGLE | {"libraries": libraries, "stores": stores, "studies": {"shots": shots}})
    done = snakemake(tiny, PAGE, env=os.environ | KEYS)
    assert "127.0.0.1:9 cannot be reached" in done.stdout + done.stderr
    assert sorted(record["status"] for record in records(tiny).values()) == ["done", "failed"]
    for clone in (smoke / "clone", tiny):
        written = [path for folder in ("results", "reports", ".snakemake") for path in (clone / folder).rglob("*")]
        texts = [
            path for path in written if path.is_file() and path.suffix in (".json", ".log", ".html", ".md", ".csv")
        ]
        assert len(texts) > 10
        assert [str(path) for path in texts if SECRET in path.read_text(encoding="utf-8", errors="replace")] == []


@pytest.mark.rule(2, 5)
def own_notebook(path: Path, heading: str, code: str) -> None:
    cells = [new_markdown_cell(f"Hello.\n\n{heading}"), new_code_cell('table = ""\nfiles = ""'), new_code_cell(code)]
    cells[1].metadata["tags"] = ["parameters"]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)


@pytest.mark.late
def test_own_notebooks_are_linked_from_the_first_page_and_one_that_fails_breaks_nothing(tiny_run):
    folder, index = tiny_run / "notebooks/extra", tiny_run / "reports/tiny/index.md"
    before = (tiny_run / PAGE).read_bytes()
    code = "import pandas\nset(pandas.read_parquet(table)['run'])"
    own_notebook(folder / "my cells.ipynb", "# Cells *measured*", code)
    own_notebook(folder / "broken.ipynb", "# Broken", "1 / 0")
    done = snakemake(tiny_run)
    assert done.returncode == 1
    assert "notebooks/extra/broken.ipynb: cell 2 failed: ZeroDivisionError" in done.stdout + done.stderr
    text = index.read_text(encoding="utf-8")
    assert "](extra/my%20cells.html)" in text
    assert "notebooks/extra/broken.ipynb failed: cell 2 failed: ZeroDivisionError: division by zero" in text
    assert "{'tiny'}" in (tiny_run / "reports/tiny/extra/my cells.md").read_text(encoding="utf-8")
    assert not (tiny_run / "reports/tiny/extra/broken.html").exists()
    assert (tiny_run / PAGE).read_bytes() == before
    (folder / "broken.ipynb").unlink()
    done = snakemake(tiny_run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken" not in index.read_text(encoding="utf-8")
    git = ["git", "check-ignore", "notebooks/extra/mine.ipynb", "notebooks/extra/README.md"]
    ignored = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout.splitlines() == ["notebooks/extra/mine.ipynb"]


# Opens the results of a study, and there its page; the links and rows are those that a reader sees.
OPEN = """(async () => {
  const wait = async (frames) => { while (frames--) await new Promise((done) => requestAnimationFrame(done)); };
  const entry = [...document.querySelectorAll("a")].find((link) => link.innerText.trim() === "shots");
  entry.click();
  await wait(10);
  const rows = [...document.querySelectorAll("tr")], page = rows.find((row) => row.innerText.startsWith("page"));
  page.querySelector("a").click();
  await wait(10);
  const names = rows.map((row) => row.innerText.trim().split(/\\s+/).join("."));
  return [names, document.querySelector("iframe").src.slice(0, 14)];
})()"""


def test_snakemakes_own_report_has_each_page_with_figures_and_tables_and_needs_no_network(tiny_run):
    for name in ("own.html", "own.zip"):
        done = snakemake(tiny_run, "--report", name)
        assert done.returncode == 0, done.stderr
    pages = sorted(
        path for path in (tiny_run / "reports/tiny").glob("**/*") if path.suffix in (".html", ".svg", ".csv")
    )
    held = [Path(name) for name in zipfile.ZipFile(tiny_run / "own.zip").namelist() if "/data/raw/" in name]
    assert sorted(path.name for path in held) == sorted(path.name for path in pages)
    text = (tiny_run / "own.html").read_text(encoding="utf-8")
    assert "The page of the study shots of the run tiny" in text
    assert "The pages of a run, with their figures and tables" in text
    if not browser.browser():
        pytest.skip("there is no Chromium to look at the report")
    visit = browser.visit(tiny_run / "own.html", {"text": "document.body.innerText", "opened": OPEN})
    assert visit.errors == []
    assert [url[:60] for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    assert {"all studies", "shots"} <= set(visit.answers["text"].splitlines())
    listed, frame = visit.answers["opened"]
    assert {"page.html", "total.svg", "total.csv"} <= set(listed)
    assert frame == "data:text/html"


def test_a_finished_cell_is_measured_again_for_no_edited_code_but_for_an_edited_setting(tiny_run):
    tiny = tiny_run
    assert_in_order(records(tiny).values())
    assert TINY["studies"]["shots"]["question"] in (tiny / "reports/tiny/shots.md").read_text(encoding="utf-8")
    before = records(tiny)
    for path in [*tiny.glob("scripts/**/*.py"), *tiny.glob("rules/*.smk"), *tiny.glob("envs/*"), tiny / "Snakefile"]:
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"\n")
    assert "measure" not in planned(tiny)
    changed = json.loads(json.dumps(TINY))
    changed["repeats"] = 3
    write(tiny, changed)
    assert planned(tiny)["measure"] == 2
    changed["studies"]["shots"]["rdcc_nbytes"] = 1
    write(tiny, changed)
    assert planned(tiny)["measure"] == 6
    write(tiny, TINY)
    assert records(tiny) == before


def test_records_unpacked_elsewhere_are_not_measured_again(tiny_run):
    before = records(tiny_run)
    for folder in (".snakemake", "reports"):
        shutil.rmtree(tiny_run / folder)
    assert "measure" not in planned(tiny_run)
    done = snakemake(tiny_run, *MEASURE)
    assert done.returncode == 0, done.stderr
    assert records(tiny_run) == before


def test_what_is_gone_is_made_again_though_what_was_made_from_it_is_there(tiny_run):
    assert planned(tiny_run) == {}
    folder = tiny_run / "results/tiny/shots"
    (folder / "facts.json").rename(folder / "facts.aside")
    assert planned(tiny_run)["gather"] == 1
    next(folder.glob("records/*/repeat=1.json")).unlink()
    assert planned(tiny_run)["measure"] > 0
    (folder / "facts.aside").rename(folder / "facts.json")
    assert planned(tiny_run)["measure"] > 0


@pytest.mark.late
def test_a_library_is_built_for_its_own_cells_and_what_was_measured_beside_it_stays_done(tiny_run):
    values = json.loads(json.dumps(TINY))
    values["libraries"]["hdf5-1.14.6"] = {"kind": "wheel", "hdf5": "1.14.6"}
    values["studies"]["shots"]["matrix"]["library"].append("hdf5-1.14.6")
    write(tiny_run, values)
    assert "environment" not in planned(tiny_run, "--config", 'only={"library": ["hdf5-2.0.0"]}')
    assert planned(tiny_run)["environment"] == 1
    done = launch(tiny_run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned(tiny_run) == {}


def test_a_call_that_builds_a_library_anew_measures_what_is_lacking(tiny_run):
    drop(tiny_run, "*/repeat=2.json")
    with open(tiny_run / "envs/measure.lock", "a", encoding="utf-8") as lock:
        lock.write("# the same packages, another file\n")
    jobs = planned(tiny_run)
    assert (jobs["environment"], jobs["measure"]) == (1, 2)


def test_a_mistake_in_the_configuration_stops_at_once_in_one_line(tiny):
    write(tiny, TINY | {"repeets": 3})
    done = snakemake(tiny)
    assert done.returncode != 0
    assert "repeets: unknown key; did you mean repeats?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tiny / "results").exists()


def test_one_cell_again_on_purpose_and_a_subset_by_levels(tiny_run):
    before = records(tiny_run)
    name = next(record["name"] for record in before.values() if record["cell"]["access"] == "signals")
    assert sbench("plan", "--again", name[:-3], cwd=tiny_run).returncode == 0
    assert records(tiny_run) == before
    done = launch(tiny_run, "--again", name[:-3], "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    after = records(tiny_run)
    again = {f"{name}/repeat={n}.json" for n in (1, 2)}
    assert {key for key in after if after[key] != before[key]} == again
    sessions = {key: record["session"] for key, record in after.items()}
    [first] = {sessions[key] for key in sessions.keys() - again}
    [second] = {sessions[key] for key in again}
    assert first < second, "one call of Snakemake is one session"
    assert len(list((tiny_run / "results/tiny/again").rglob("repeat=*.json"))) == 2
    wrong = launch(tiny_run, "--again", "no-such-cell")
    assert wrong.returncode == 2
    assert "no measured cell of results/tiny begins with 'no-such-cell'" in wrong.stderr
    drop(tiny_run, "*/repeat=2.json")
    done = launch(tiny_run, "--only", "access=shots", "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["cell"]["access"] for record in records(tiny_run).values()) == ["shots", "shots", "signals"]


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--only", "acces=shots"], "only.acces: no study of this run has this factor"),
        (["--only", "access=shot"], "only.access: 'shot' is not a level of access"),
        (["--only", "access"], "'access' is not FACTOR=LEVEL"),
        (["--study", "shot"], "only.study: 'shot' is not a level of study; known: shots"),
    ],
)
def test_a_subset_that_does_not_exist_is_one_line(tiny, arguments, line):
    done = launch(tiny, *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tiny / "results").exists()


def test_a_dear_run_is_asked_about_before_it_starts(tiny_run):
    drop(tiny_run, "*_signals_*/repeat=2.json")
    write(tiny_run, TINY | {"ask_above": {"hours": 0.0001}})
    refused = launch(tiny_run, stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "exceeds the limits of ask_above: hours" in refused.stderr
    assert "add --yes, or raise the limits" in refused.stderr
    assert len(records(tiny_run)) == 3
    assert sbench("plan", cwd=tiny_run).returncode == 0
    assert launch(tiny_run, "--yes", "--", *MEASURE, stdin=subprocess.DEVNULL).returncode == 0
    assert len(records(tiny_run)) == 5, "another block of both cells: what was missing is not filled up"
