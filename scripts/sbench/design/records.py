"""Write and read records; check that they are whole, in their place, in range, and unedited."""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sbench.design.schema import get_added_factors
from sbench.probe.program import Problem, read_json, read_yaml, write_json

SCHEMA = Path(__file__).with_name("record.yaml")
# The requests of a cell's first record, one row each, in a file in the record's folder.
REQUESTS = "requests.csv.gz"
_SHOWN = 40
_REMEDY = "remove it and run again"
EDITED = "the record was edited, as its digest does not match; restore it, or remove it and run again"


@dataclass(frozen=True)
class Kept:
    """A record in the folder of its cell, with `levels` as in the matrix; if it is unusable, None and the problem."""

    cell: str
    levels: Mapping[str, str]
    repeat: int
    path: Path
    record: dict | None
    problem: str = ""


def write_record(path: Path | str, record: dict) -> None:
    """Write a record with its digest, whole or not at all.

    Raises:
        Problem: a value has the wrong type or range, or writing fails. The record's other reasons come first, as likely
            causes.
    """
    try:
        expect_sound(record, "the record")
    except Problem as problem:
        raise Problem("; ".join([*record["reasons"], str(problem)])) from None
    write_json(path, record | {"digest": compute_digest(record)})


def read_record(path: Path, run: str, study: str, levels: Mapping[str, str] | None = None) -> dict:
    """Return the record in `path`, …/{name of the cell}/repeat={repeat}.json, of a run and study.

    `levels`: the cell's levels by factor, if known.

    Raises:
        Problem: the file is unreadable or incomplete, has a number out of range, or belongs to another place or other
            levels. The line names the file.
    """
    try:
        record = read_json(path)
        expect_sound(record, str(path), f"; {_REMEDY}")
        # Reject a record that is nested too deeply here, rather than while the report is made.
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
    """Yield the records `folder`/<cell>/repeat=<n>.json of cells, in their order, then by repeat.

    `cells`: levels by factor, by name of the cell. Report on standard error each unreadable or misplaced record, and
    the number of cells outside the matrix.
    """
    for cell, levels in cells.items():
        for repeat, path in list_repeats(folder / cell):
            try:
                yield Kept(cell, levels, repeat, path, read_record(path, run, study, levels))
            except Problem as problem:
                print(f"left out: {problem}", file=sys.stderr)
                yield Kept(cell, levels, repeat, path, None, str(problem))
    if strange := {path.name for path in folder.glob("*/")} - cells.keys():
        print(f"{folder}: left out {len(strange)} cells that are not in the matrix", file=sys.stderr)


def list_failure_reasons(path: Path, folder: Path, run: str) -> list[str]:
    """Return why an artefact of a run (a record or another file) has failed or is unusable; [] if it is usable.

    `folder`: the folder of the run's results, or of an earlier attempt whose failed artefacts were moved there.
    """
    study, kind = path.relative_to(folder).parts[:2]
    try:
        artefact = read_record(path, run, study) if kind == "records" else read_json(path)
    except Problem as problem:
        return [str(problem)]
    failed = artefact.get("status") == "failed" and not (artefact.get("unable") or is_injected_failure(artefact))
    return [*map(str, artefact.get("reasons") or ["no reason given"])] if failed else []


def find_unable_cells(kept: Iterable[Kept]) -> dict[str, str]:
    """Return the reasons, by cell, why cells without any measured record cannot read the existing data."""
    of_cells: dict[str, list[dict]] = {}
    for one in kept:
        of_cells.setdefault(one.cell, []).append(one.record or {})
    return {cell: "; ".join(of[0]["reasons"]) for cell, of in of_cells.items() if all(one.get("unable") for one in of)}


def is_injected_failure(record: dict) -> bool:
    """Return whether a read failed because of an injected fault: a result of its cell, not a broken run."""
    return record.get("status") == "failed" and bool(record.get("injected"))


def is_skipped(path: Path) -> bool:
    """Return whether an artefact belongs to a skipped step, whose inputs had failed."""
    with contextlib.suppress(Problem):
        return "cause" in read_json(path)
    return False


def is_edited(record: dict) -> bool:
    """Return whether a record changed after it was written (METHOD 23); False without a digest."""
    return "digest" in record and record["digest"] != compute_digest(record)


def compute_digest(record: dict) -> str:
    """Return the sha256 of a record without its digest, as sorted JSON; it guards against accident, not intent."""
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def list_repeats(cell: Path) -> Iterator[tuple[int, Path]]:
    """Yield (repeat, path) of the records in a cell's folder, in order; skip other files."""
    yield from sorted((_parse_repeat(path), path) for path in cell.glob("repeat=*.json") if _parse_repeat(path))


def _parse_repeat(path: Path) -> int:
    number = path.stem.partition("=")[2]
    return int(number) if number.isdecimal() else 0


def is_sound(record: object) -> bool:
    """Return whether all values of a record have their type and range."""
    with contextlib.suppress(Problem):
        expect_sound(record, "the record")
        return True
    return False


def expect_sound(record: object, name: str, remedy: str = "") -> None:
    """Check that all values of a record have their type and range.

    Raises:
        Problem: a value has the wrong type or range; the line begins with `name` and ends with `remedy`.
    """
    # Imported here: a library's conda environment lacks this package, and steps in it check no records.
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
    """Return the columns of samples that the schema of records names, with their subschemas."""
    columns: dict[str, dict] = read_yaml(SCHEMA)["then"]["properties"]["samples"]["items"]["properties"]
    return columns


@cache
def _build_check() -> Callable[[object], dict]:
    import fastjsonschema

    schema = read_yaml(SCHEMA)
    return fastjsonschema.compile(_resolve_references(schema, schema["definitions"]), use_default=False)


def _resolve_references(part: Any, definitions: dict) -> Any:
    """Inline definitions: a compiled check resolves its place again at every reference."""
    if isinstance(part, list):
        return [_resolve_references(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    reference = part.get("$ref", "").removeprefix("#/definitions/")
    own = {key: _resolve_references(value, definitions) for key, value in part.items() if key != "$ref"}
    return (definitions[reference] | own) if reference else own
