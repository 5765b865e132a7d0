"""Audit CSV tables: test the rules of docs/method.md, and recompute numbers that follow from other columns."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from sbench.court import ceilings, derived, raw_data, roles, rules, timings
from sbench.design import csv_file
from sbench.pages import prose
from sbench.probe.program import Problem, expect_file

PUBLISHED, SOURCES = Path("results/published"), Path("config/published.yaml")
_KINDS = {"text": csv_file.TEXT, "count": csv_file.COUNT, "number": csv_file.PRINTED}
_REMEDY = "{} defines the columns"
# A file is recognised as a copy of a published table if it has at least this fraction of the table's columns.
_ALIKE = 0.5
_MOST = 5
_WIDTH, _INDENT = 118, 15


def print_audit(files: Sequence[str], study: str = "", columns: Sequence[str] = ()) -> int:
    """Print the outcome of each rule for CSV files.

    Files with the columns of the same published table are compared with each other, as arms.

    Args:
        files: paths of tables with the columns of a published study; with `columns`, paths of any tables.
        study: name of the published study; if empty, it is detected from the column names.
        columns: roles of the columns, as column=role (`roles.WORDS`).

    Returns:
        Exit status 0.
    """
    if columns:
        for path in map(Path, files):
            for line in _describe_named_columns(columns, path):
                print(*_format_line(line), sep="\n")
        return 0
    studies = {
        name: timings.read_declarations(PUBLISHED / name / timings.FILE) for name in raw_data.read_sources(SOURCES)
    }
    if study and study not in studies:
        raise Problem(f"--study must be a published study (got {study}); use {prose.format_list(studies, 'or')}")
    of_tables: dict[tuple[str, str], list[Path]] = {}
    for path in map(Path, files):
        of_tables.setdefault(_find_table(path, studies, study), []).append(path)
    for (own, table), of in of_tables.items():
        for line in describe_audit(own, table, studies[own], of):
            print(*_format_line(line), sep="\n")
    return 0


def describe_audit(study: str, table: str, declared: Sequence[Mapping], files: Sequence[Path]) -> list[str]:
    """Audit files that have the columns of a published table, and return the lines to print.

    Args:
        study: name of the published study.
        table: name of its table.
        declared: the study's declarations (`timings`).
        files: paths of the files.

    Raises:
        Problem: a file cannot be read, lacks a column or contains an invalid value, or two files have the same name.
    """
    of_table = [spec for spec in declared if spec["table"] == table]
    texts = _Printed(
        {str(path): partial(_read_table, path, of_table, PUBLISHED / study / timings.FILE) for path in files}
    )
    if len({path.stem for path in files}) < len(files):
        raise Problem(f"two files are named {files[-1].stem}, but the name identifies an arm; rename a file")
    joined = [" + ".join(texts)] if " + " in table else list(texts)
    specs = [spec | {"table": names} for names in joined for spec in of_table]
    # If `table` is a concatenation, declarations of its single tables apply to the files with the same name.
    specs += [spec | {"table": str(path)} for path in files for spec in declared if spec["table"] == path.name != table]
    lines = [f"{' + '.join(texts)}: columns of {table} ({study})"]
    for row in rules.judge_rules(specs, texts, ceilings.read_machines(study)).itertuples(index=False):
        of = f"{row.table}: " if len(joined) > 1 and row.table else ""
        lines.append(f"{row.outcome:{_INDENT}}{row.rule} (METHOD {row.method}): {of}{row.data}")
    return lines + [line for name in texts for line in _describe_figures(study, table, name, texts[name])]


class _Printed(dict):
    """A mapping from paths to tables that reads a table on each lookup, so that memory never contains all of them."""

    def __getitem__(self, path: str) -> pd.DataFrame:
        return super().__getitem__(path)()


def _describe_named_columns(named: Sequence[str], path: Path) -> list[str]:
    """Audit a file whose columns have the roles in `named` (column=role), and return the lines to print."""
    spec = roles.parse_declaration(named, _read_header(path), str(path))
    kinds = {name: _KINDS[kind] for name, kind in spec["kinds"].items()}
    texts = _Printed(
        {str(path): lambda: csv_file.read_table(path, kinds, "--columns defines the columns", printed=True)[[*kinds]]}
    )
    lines = [f"{path}: columns as in --columns"]
    for row in rules.judge_rules([spec], texts, {}).itertuples(index=False):
        if not row.data.startswith("missing: ") or row.outcome != ceilings.UNTOLD:
            lines.append(f"{row.outcome:{_INDENT}}{row.rule} (METHOD {row.method}): {row.data}")
    return lines + (roles.list_wrong_rates(spec, texts[str(path)]) if roles.has_rates(spec) else [])


def _format_line(line: str) -> list[str]:
    return textwrap.wrap(line, _WIDTH, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False)


def _describe_figures(study: str, table: str, name: str, texts: pd.DataFrame) -> list[str]:
    """Recompute the derived columns of a table, and describe the first printed numbers that disagree.

    The study's derived.csv lists these columns and their expressions.
    """
    numbered = texts.copy()
    numbered.insert(0, "row", (texts.index + 2).astype(str))
    rows = derived.judge_derived(PUBLISHED / study / "audit/derived.csv", {table.split(" + ")[0]: numbered})
    wrong = rows[rows["row"].notna()]
    cells = int(rows.drop_duplicates("column")["cells"].sum())
    reproduced = f"{cells - len(wrong):,} of {cells:,} derived figures can be reproduced"
    lines = [f"{name}: {reproduced}"] if cells else []
    for row in wrong.head(_MOST).itertuples(index=False):
        lines.append(
            f"  {row.row}, column {row.column}: printed {row.printed:g}, {row.expression} = {row.recomputed:g}"
        )
    return lines


def _find_table(path: Path, studies: Mapping[str, Sequence[Mapping]], study: str) -> tuple[str, str]:
    """Find the published table whose columns a file has, and return its study and its name.

    The file may lack some of the columns; the table with the largest fraction of columns present is chosen.
    """
    header = _read_header(path)
    alike = [
        (len(spec["kinds"].keys() & set(header)) / len(spec["kinds"]), path.name in spec["table"], name, spec["table"])
        for name, declared in studies.items()
        for spec in declared
        if "kinds" in spec and study in ("", name)
    ]
    best = max(alike, key=lambda of: of[:2], default=())
    if not best or (best[0] < _ALIKE and not study):
        raise Problem(
            f"{path}: the columns {', '.join(sorted(header))} match no published table; name the study with --study,"
            " or the role of each column with --columns COLUMN=ROLE …"
        )
    return best[2:]


def _read_header(path: Path) -> list[str]:
    expect_file(path)
    try:
        with open(path, encoding="utf-8") as file:
            header = [name.strip(' "\r\n') for name in re.split(r"[,;\t|]", file.readline())]
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {error}") from error
    if not any(header):
        raise Problem(f"{path} is empty, or its first row lacks column names")
    if twice := [name for name in header if name and header.count(name) > 1]:
        raise Problem(f"{path}: row 1, column {twice[0]}: the column name must be unique; rename or remove a column")
    return header


def _read_table(path: Path, specs: Sequence[Mapping], declared: Path) -> pd.DataFrame:
    """Read a CSV file as strings and add a column `source`; raise Problem if a value is invalid for its column."""
    kinds = {name: _KINDS[kind] for name, kind in next(spec for spec in specs if "kinds" in spec)["kinds"].items()}
    texts = csv_file.read_table(path, kinds, _REMEDY.format(declared), printed=True)
    for spec in specs:
        if not {"part", "time"} <= spec.keys():
            continue
        part, time = (derived.parse_numbers(texts[spec[role]])[0] for role in ("part", "time"))
        if (more := part > time).any():
            row = int(more.idxmax())
            raise Problem(
                f"{path}: row {row + 2}, column {spec['part']}: the part must be at most {spec['time']}, {time[row]:g}"
                f" (got {part[row]:g}); use the same unit in both columns"
            )
    return texts.assign(source=path.stem)
