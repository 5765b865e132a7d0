"""Load the two sides of a comparison from local, archived or published runs, or from a saved baseline.

Baselines are meant to be committed, so machines, folders and addresses in their metadata are anonymised (`privacy`).
"""

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from sbench.measure import session_records
from sbench.probe.program import Problem, read_json, write_json
from sbench.runs import archive, privacy
from sbench.verdicts import sessions

PUBLISHED, BASELINE = "published/", ".json"
# Metadata to load from a run's facts.json, with their types: its names, and properties that may differ between runs.
_FACTS = {
    **dict.fromkeys(("run", "study", "name"), str),
    **dict.fromkeys(("sessions", "machines", "code", "git", "reads"), list),
    **dict.fromkeys(("libraries", "stores", "settings", "config", "software", "published"), dict),
    **{"dirty": object, "equivalence_percent": (int, float)},
}
# Columns that identify a session across runs.
UNIT = ["run", "session"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the measurements of one or more runs, by study.

    Attributes:
        records: rows of records.csv with a column `run`, without control measurements; factor levels are strings.
        facts: one dict per run with its anonymised metadata.
    """

    records: dict[str, pd.DataFrame] = field(default_factory=dict)
    facts: dict[str, list[dict]] = field(default_factory=dict)

    def get_name(self, study: str) -> str:
        """Return a display name built from the names of the study's runs: "a", "a and b", or "a … z"."""
        runs = list(dict.fromkeys(one["run"] for one in self.facts[study]))
        return runs[0] if len(runs) == 1 else " and ".join(runs) if len(runs) == 2 else f"{runs[0]} … {runs[-1]}"

    def get_sessions(self, study: str) -> set[tuple[str, str]]:
        """Return the set of (run, session) pairs of a study."""
        records = self.records[study]
        return set(records[UNIT].drop_duplicates().itertuples(index=False, name=None))


def load_side(sources: Sequence[str]) -> Side:
    """Load one side of a comparison.

    Args:
        sources: names of runs, paths of archives or of baselines (JSON), or published/<study>.

    Raises:
        Problem: a source is missing or cannot be compared, or two sources contain the same session.
    """
    side = Side()
    for source in sources:
        parts = _read_baseline(Path(source)) if source.endswith(BASELINE) else _read_run(source)
        for study, (records, facts) in parts.items():
            before = [side.records[study]] if study in side.records else []
            if before and (twice := side.get_sessions(study) & set(records[UNIT].itertuples(index=False, name=None))):
                run, session = min(twice)
                raise Problem(f"{source}: run {run}, session {session or 'unknown'}, is named twice on the same side")
            side.records[study] = pd.concat([*before, records], ignore_index=True).fillna({"control": ""})
            side.facts.setdefault(study, []).extend(facts)
    return side


def write_baseline(side: Side, path: Path) -> None:
    """Save a side as a baseline: a JSON file with one line per record, suitable for version control."""
    lines = {study: records.to_csv(index=False, lineterminator="\n") for study, records in side.records.items()}
    studies = {study: {"facts": side.facts[study], "records": text.splitlines()} for study, text in lines.items()}
    write_json(path, {"baseline": 1, "studies": studies})


def _read_run(source: str) -> dict[str, tuple[pd.DataFrame, list[dict]]]:
    with _open_folders(source) as folders:
        read = [_read_study(folder, source if source.startswith(PUBLISHED) else "") for folder in folders]
    return {facts["study"]: (records, [facts]) for facts, records in read}


@contextlib.contextmanager
def _open_folders(source: str) -> Iterator[list[Path]]:
    """Yield the folders with the tables of a source's studies.

    An archive is unpacked to a temporary directory for the duration of the `with` block, and its tables are made again
    from its records.
    """
    if source.endswith(archive.SUFFIX):
        with archive.open_run(source) as results:
            yield [results / study for study in archive.read_study_names(results)]
    elif source.startswith(PUBLISHED):
        folder = Path("results", source, "tables")
        if not (folder / "facts.json").exists():
            raise Problem(f"{folder} contains no tables; write them with sbench published")
        yield [folder]
    else:
        folders = [path.parent for path in sorted(Path("results", source).glob("*/facts.json"))]
        if not folders:
            raise Problem(
                f"{source!r} is not a run in results/, an archive (*{archive.SUFFIX}), a baseline or a published study"
            )
        yield folders


def _read_study(folder: Path, called: str = "") -> tuple[dict, pd.DataFrame]:
    """Read a study's anonymised metadata and its records.

    Args:
        folder: folder with facts.json and records.csv.
        called: name to use as the name of the run; if empty, the recorded name.
    """
    facts, path = read_json(folder / "facts.json"), folder / "records.csv"
    if not path.exists():
        raise Problem(f"{path} is missing: the tables are from an earlier version; write them again with sbench run")
    kept = {name: facts[name] for name in _FACTS if name in facts}
    # Of the order of reads, only these keys are needed to compare it.
    kept["reads"] = [{key: one[key] for key in ("access", "sha256")} for one in kept.get("reads", [])]
    kept = privacy.hide_identities(kept) | ({"run": called} if called else {})
    try:
        return kept, _parse_records(path.read_text(encoding="utf-8"), kept, run=kept["run"])
    except (KeyError, ValueError) as error:
        raise Problem(
            f"{path} is damaged, or from an earlier version ({error}); write it again with sbench run"
        ) from error


def _parse_records(text: str, *facts: dict, run: str = "") -> pd.DataFrame:
    """Parse the records in a CSV, and drop control measurements.

    Numeric columns are converted; factor levels remain strings. Records written by earlier versions do not name the
    machine, so it is taken from the metadata of their run.

    Args:
        text: content of the CSV.
        facts: metadata of the runs.
        run: value for the column `run`; if empty, the CSV must have this column.
    """
    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    table = table.assign(**{"run": run} if run else {})
    if lacking := [name for name in ("run", *sessions.COLUMNS) if name not in table]:
        raise KeyError(lacking[0])
    if sessions.MACHINE not in table:
        table[sessions.MACHINE] = table["run"].map({one["run"]: _get_machine(one) for one in facts}).fillna("")
    table["valid"] = table["valid"] == "True"
    for name in ("repeat", "value", *sessions.COUNTS):
        table[name] = pd.to_numeric(table[name], errors="coerce").replace([math.inf, -math.inf], math.nan)
    return table[table["control"] == ""].reset_index(drop=True) if "control" in table else table


def _get_machine(facts: dict) -> str:
    """Return the name of the machine in a run's metadata, or an empty string if there are none or several."""
    named = {session_records.name_machine(host) for host in facts.get("machines") or []}
    return named.pop() if len(named) == 1 else ""


def _read_baseline(path: Path) -> dict[str, tuple[pd.DataFrame, list[dict]]]:
    content = read_json(path, "restore it")
    if content.get("baseline") != 1:
        raise Problem(f"{path} is not a baseline; write one to a new file: sbench compare RUN… --keep NEW.json")
    try:
        parts = list(content["studies"].items())
        facts = {study: _validate_facts(of["facts"]) for study, of in parts}
        return {study: (_parse_records("\n".join(of["records"]), *facts[study]), facts[study]) for study, of in parts}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = str(error).strip().replace("\n", " ")
        raise Problem(f"{path} is damaged ({why}); restore it, or write a new file (sbench compare --keep)") from error


def _validate_facts(facts: list[dict]) -> list[dict]:
    """Check the types of a baseline's metadata, and return the anonymised metadata; raise ValueError if malformed."""
    if not isinstance(facts, list) or not facts:
        raise ValueError("facts")
    for of in facts:
        there = {key: value for key, value in {"run": None, **of}.items() if value is not None or key == "run"}
        if wrong := [key for key in there if not isinstance(there[key], _FACTS.get(key, object))]:
            raise ValueError(f"facts: {wrong[0]}")
    return list(map(privacy.hide_identities, facts))
