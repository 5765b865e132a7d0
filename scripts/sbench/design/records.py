"""Write and read records. Check that they are complete, in the right folder, in range, and unedited."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sbench.design.schema import get_added_factors
from sbench.probe.program import Problem, read_json, read_yaml, write_json

SCHEMA = Path(__file__).with_name("record.yaml")
# The file in a cell's folder with the requests of the cell's first record, one per row.
REQUESTS = "requests.csv.gz"
_SHOWN = 40
_REMEDY = "remove it and run again"
EDITED = "the record was edited, as its digest does not match; restore it, or remove it and run again"


@dataclass(frozen=True)
class Kept:
    """A record file in the folder of a cell.

    Attributes:
        cell: the name of the cell.
        levels: factor -> level of the cell, from the matrix.
        repeat: the number of the repeat.
        path: the file.
        record: the content of the file; None if it is unusable.
        problem: why the record is unusable; an empty string if it is usable.
    """

    cell: str
    levels: Mapping[str, str]
    repeat: int
    path: Path
    record: dict | None
    problem: str = ""


def write_record(path: Path | str, record: dict) -> None:
    """Write a record with its digest, atomically.

    Raises:
        Problem: a value has the wrong type or range, or writing fails. If a value is wrong, the message starts with the
            record's `reasons`, since they are likely causes.
    """
    try:
        expect_sound(record, "the record")
    except Problem as problem:
        raise Problem("; ".join([*record["reasons"], str(problem)])) from None
    write_json(path, record | {"digest": compute_digest(record)})


def read_record(path: Path, run: str, study: str, levels: Mapping[str, str] | None = None) -> dict:
    """Read and check the record in `path`, which ends with {name of the cell}/repeat={number}.json.

    Args:
        path: the file to read.
        run: the run that the record must belong to.
        study: the study that the record must belong to.
        levels: factor -> level that the record must have; None to skip this check.

    Raises:
        Problem: the file is unreadable or incomplete, a value is out of range, or the record belongs to another run,
            study, cell or repeat, or has other levels. The message names the file.
    """
    try:
        record = read_json(path)
        expect_sound(record, str(path), f"; {_REMEDY}")
        # Reject a record that is nested too deeply now, rather than when the report is built.
        compute_digest(record)
    except RecursionError:
        raise Problem(f"{path} is nested too deeply; {_REMEDY}") from None
    for key, due in (("run", run), ("study", study), ("name", path.parent.name), ("repeat", _parse_repeat(path))):
        if record[key] != due:
            what = "cell" if key == "name" else key
            raise Problem(f"{path} is a record of another {what} ({record[key]}); {_REMEDY}")
    if levels is None:
        return record
    for factor in sorted(record["cell"].keys() | levels.keys()):
        before = get_added_factors(study).get(factor, "")
        level, due = record["cell"].get(factor, before), levels.get(factor, before)
        if level != due:
            raise Problem(f"{path} has {factor} {level or 'unknown'}, but the cell of its folder has {due or 'none'}")
    return record


def read_records(folder: Path, cells: Mapping[str, Mapping[str, str]], run: str, study: str) -> Iterator[Kept]:
    """Read the records `folder`/<cell>/repeat=<n>.json of `cells`, in the order of `cells`, then by repeat.

    `cells` maps the name of each cell to its levels by factor. Each unreadable or misplaced record, and the number of
    measured cells that are not in the matrix, are reported on standard error. Records whose files are missing are
    included as unusable (see `_find_missing`).
    """
    kept = []
    for cell, levels in cells.items():
        for repeat, path in list_repeats(folder / cell):
            try:
                kept.append(Kept(cell, levels, repeat, path, read_record(path, run, study, levels)))
            except Problem as problem:
                print(f"left out: {problem}", file=sys.stderr)
                kept.append(Kept(cell, levels, repeat, path, None, str(problem)))
    if strange := list_dropped_cells(folder, cells):
        print(f"{folder}: left out {len(strange)} cells that are not in the matrix", file=sys.stderr)
    for cell, repeat in _find_missing(kept):
        name = f"repeat={repeat}.json"
        why = f"{name} is missing, so the record counts as lost"
        kept.append(Kept(cell, cells[cell], repeat, folder / cell / name, None, why))
    places = {cell: place for place, cell in enumerate(cells)}
    yield from sorted(kept, key=lambda record: (places[record.cell], record.repeat))


def list_dropped_cells(folder: Path, cells: Container[str]) -> list[str]:
    """Return the cells that have records in `folder`, but are not among the cells of the configuration."""
    return sorted(path.name for path in folder.glob("*/") if path.name not in cells and any(list_repeats(path)))


def _find_missing(kept: Sequence[Kept]) -> Iterator[tuple[str, int]]:
    """Yield the cell and block of each record that its session must have measured, but whose file does not exist.

    All blocks of a round measure the same cells, so these are the cells that the session measured in other blocks of
    the round. Its last block is not considered, because the call may have ended there.
    """
    tried = [one.record for one in kept if one.record and "cause" not in one.record]
    rounds: dict[int, int] = {}
    for record in tried:
        rounds[record["repeat"]] = max(rounds.get(record["repeat"], 0), record.get("round", 0))
    by_round: dict[tuple[str, int], list[dict]] = {}
    for record in tried:
        by_round.setdefault((record.get("session", ""), rounds[record["repeat"]]), []).append(record)
    there = {(one.cell, one.repeat) for one in kept}
    for of_round in by_round.values():
        begun = {record["repeat"] for record in of_round}
        due = dict.fromkeys(record["name"] for record in of_round)
        yield from ((cell, block) for block in begun - {max(begun)} for cell in due if (cell, block) not in there)


def list_failure_reasons(path: Path, folder: Path, run: str) -> list[str]:
    """Return why an artefact of a run (a record or other JSON file) is failed or unusable.

    The list is empty if the artefact is usable. `folder` contains the results of the run, or the failed artefacts that
    were moved there from an earlier attempt.
    """
    study, kind = path.relative_to(folder).parts[:2]
    try:
        artefact = read_record(path, run, study) if kind == "records" else read_json(path)
    except Problem as problem:
        return [str(problem)]
    failed = artefact.get("status") == "failed" and not (artefact.get("unable") or is_injected_failure(artefact))
    return [*map(str, artefact.get("reasons") or ["no reason given"])] if failed else []


def find_unable_cells(kept: Iterable[Kept]) -> dict[str, str]:
    """Find the cells whose library or driver cannot read the existing data in any repeat.

    Returns:
        Name of the cell -> reasons.
    """
    of_cells: dict[str, list[dict]] = {}
    for one in kept:
        of_cells.setdefault(one.cell, []).append(one.record or {})
    return {cell: "; ".join(of[0]["reasons"]) for cell, of in of_cells.items() if all(one.get("unable") for one in of)}


def is_injected_failure(record: dict) -> bool:
    """Return whether the read of a record failed after faults were injected.

    Such a failure is a result of the cell, not a problem of the run.
    """
    return record.get("status") == "failed" and bool(record.get("injected"))


def is_skipped(path: Path) -> bool:
    """Return whether an artefact comes from a job that was skipped because its inputs had failed."""
    with contextlib.suppress(Problem):
        return "cause" in read_json(path)
    return False


def is_edited(record: dict) -> bool:
    """Return whether a record was changed after it was written (METHOD 23); False if it lacks a digest."""
    return "digest" in record and record["digest"] != compute_digest(record)


def compute_digest(record: dict) -> str:
    """Return the SHA-256 hash of a record (as sorted JSON without its `digest`).

    It protects against accidental changes, not against deliberate ones.
    """
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def list_repeats(cell: Path) -> Iterator[tuple[int, Path]]:
    """Yield (repeat, path) for each record in a cell's folder, sorted by repeat. Other files are skipped."""
    yield from sorted((_parse_repeat(path), path) for path in cell.glob("repeat=*.json") if _parse_repeat(path))


def _parse_repeat(path: Path) -> int:
    number = path.stem.partition("=")[2]
    return int(number) if number.isdecimal() else 0


def is_sound(record: object) -> bool:
    """Return whether all values of a record have the right type and are in range."""
    with contextlib.suppress(Problem):
        expect_sound(record, "the record")
        return True
    return False


def expect_sound(record: object, name: str, remedy: str = "") -> None:
    """Check that all values of a record have the right type and are in range.

    Raises:
        Problem: a value has the wrong type or is out of range; the message begins with `name` and ends with `remedy`.
    """
    # Imported here, because a library's conda environment lacks this package, and jobs in it check no records.
    import fastjsonschema

    try:
        _build_check()(record)
    except fastjsonschema.JsonSchemaValueException as error:
        place, _, rule = error.message.partition(" must ")
        what = place.partition(".")[2] or "it"
        if error.rule == "required":
            lacking = [key for key in error.rule_definition if key not in error.value]
            raise Problem(f"{name}: {what} lacks {', '.join(lacking)}{remedy}") from None
        text = json.dumps(error.value, default=str)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise Problem(f"{name}: {what} must {rule} (got {shown}){remedy}") from None


def read_sample_columns() -> dict[str, dict]:
    """Return the sample columns that the record schema defines: column -> subschema."""
    columns: dict[str, dict] = read_yaml(SCHEMA)["then"]["properties"]["samples"]["items"]["properties"]
    return columns


@cache
def _build_check() -> Callable[[object], dict]:
    import fastjsonschema

    schema = read_yaml(SCHEMA)
    return fastjsonschema.compile(_resolve_references(schema, schema["definitions"]), use_default=False)


def _resolve_references(part: Any, definitions: dict) -> Any:
    """Replace each `$ref` by its definition, because compiled checks resolve references slowly, every time."""
    if isinstance(part, list):
        return [_resolve_references(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref", "").removeprefix("#/definitions/")
    own = {key: _resolve_references(value, definitions) for key, value in part.items() if key != "$ref"}
    return (definitions[reference] | own) if reference else own
