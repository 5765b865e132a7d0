"""Load the results of the particles study, and describe merged tasks and limitations."""

from pathlib import Path

import pandas as pd

from sbench.pages import prose, results, run_files
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts
from sbench.studies.particles.methods import METHODS
from sbench.studies.particles.report import MILLION, REPORT, format_method, format_particles, words
from sbench.studies.particles.snapshots import PRESETS

FACTORS = REPORT.names
ALIKE = ("listed", "particles_listed", "empty_s")  # equal in all samples of a record
NEEDED = ("cell", "repeat", "iteration", "iteration_s", "chunks", "particles_listed", *FACTORS)


def load_results(tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load the results in a directory. Replace the names of snapshots by their numbers of particles, if known.

    Args:
        tables: directory with samples.csv, cells.csv, verdicts.csv and matrix.csv.
        facts: JSON file of the workflow about machine, libraries and settings.

    Raises:
        Problem: both samples and cells are missing, or samples lack a column.
    """
    folder, run_facts = Path(tables), read_facts(facts)
    frames = run_files.read_tables(folder, REPORT, (), NEEDED)
    amounts = {name: str(particles) for name, (particles, *_) in PRESETS.items()}
    samples = frames["samples"]
    if len(samples) and len(own := samples[samples["particles"] == "own"]):
        amounts["own"] = str(int(own["particles_listed"].iloc[0]) // int(own["rereads"].iloc[0]))
    for table in (frames["samples"], frames["cells"], frames["verdicts"], frames["matrix"]):
        # Columns baseline and contender contain levels of any factor, but no other factor has levels of these names.
        for column in {"particles", "baseline", "contender"} & set(table):
            table[column] = table[column].replace(amounts)
    return results.build_results(frames, _compute_records, run_facts, REPORT, folder)


def _compute_records(samples: pd.DataFrame) -> pd.DataFrame:
    """Aggregate samples into one row per record, with its factors and the metrics of the report.

    `total_s` is the time of all iterations after the first (or of the only iteration), and `done` is the number of
    particles to be read in them.
    """
    each = samples.assign(launch=results.get_launches(samples)).groupby([*results.LAUNCH, "iteration"], sort=False)
    iterations = each[["valid", "control", *FACTORS, *ALIKE]].first()
    iterations["seconds"], iterations["most"] = each["iteration_s"].first(), each["read_s"].max()
    iterations["mean"] = each["read_s"].mean()
    records, _, timed = results.group_by_record(iterations.reset_index(), REPORT, ALIKE)
    records["total_s"], records["iteration_s"] = timed["seconds"].sum(), timed["seconds"].median()
    records["done"] = records["particles_listed"] * timed.size()
    records["rate"] = records["done"] / MILLION / records["total_s"]
    records["overhead_ms"] = 1000 * records["empty_s"] / records["listed"]
    with_dask = records["method"].map(lambda name: METHODS[name].dask if name in METHODS else False)
    records["spread"] = (timed["most"].max() / timed["mean"].mean()).where(with_dask)
    return records


def describe_merged_tasks(run: Results) -> list[str]:
    """Write a sentence for each cell in which Dask merged equal tasks, with the numbers of listed and read chunks."""
    lines = []
    for cell in run.measured[_is_pure(run)].to_dict("records"):
        samples = run.samples[run.samples["cell"] == cell["cell"]]
        iterations = samples.groupby(["repeat", results.get_launches(samples), "iteration"])
        listed, read = iterations["listed"].first().max(), iterations["chunks"].sum().max()
        fields = {"particles": format_particles(cell["particles"]), "listed": listed, "read": read}
        lines.append(words.fill("taken for one", who=format_method(cell), **fields))
    return lines


def list_limits(run: Results) -> list[str]:
    """List the limitations of the study's data that apply to this run."""
    again = run.measured[(run.measured["rereads"] != "1") & ~_is_pure(run)]
    lines = [words.fill("one machine")]
    if len(again):
        lines.append(words.fill("read again", cells=prose.format_count(len(again), "cell")))
    if run.facts.get("not_printed"):
        lines.append(words.fill("not printed", problem=run.facts["not_printed"]))
    return lines


def _is_pure(run: Results) -> pd.Series:
    return run.measured["method"].isin([name for name, method in METHODS.items() if method.pure])
