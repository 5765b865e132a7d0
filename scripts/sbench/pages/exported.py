"""Export a page's tables as CSV, LaTeX (booktabs) and an Excel workbook, for papers and spreadsheets."""

import io
import math
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pandas as pd
from openpyxl import Workbook
from openpyxl.styles import Font
from openpyxl.worksheet.worksheet import Worksheet

from sbench.pages import notebook
from sbench.pages.markup import remove_marks
from sbench.pages.page import (
    Table,
    add_marks,
    build_file_stem,
    find_numeric_columns,
    format_table,
    record_tables,
    write_csv,
)
from sbench.probe.program import replace_file, write_text

LONG = 40  # rows; a longer table may span several pages
_MADE = (1980, 1, 1, 0, 0, 0)  # fixed creation time, so that equal tables produce identical workbooks
_MATHS = {"×": "times", "±": "pm", "≤": "leq", "≥": "geq", "µ": "mu", "▲": "blacktriangle", "△": "triangle"}
_WORDS = {"\\": "textbackslash", "~": "textasciitilde", "^": "textasciicircum", "|": "textbar"}
_WORDS |= {"<": "textless", ">": "textgreater", "…": "ldots", "·": "textperiodcentered"}
_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{sign: f"\\{word}{{}}" for sign, word in _WORDS.items()},
        **{sign: f"$\\{word}$" for sign, word in _MATHS.items()},
        # LaTeX interprets a bracket at the start of a row as an optional argument of the previous row's end.
        **{"[": "{[}", "]": "{]}", "–": "--", "\N{MINUS SIGN}": "$-$", "“": "``", "”": "''", "’": "'"},
    }
)


def write_tables(study: str, results: Path, out: Path) -> int:
    """Write each table of a study's page to files, and return the number of tables.

    Each table is written as `<study>/<name>.csv` and `.tex`; `<study>.xlsx` contains all of them as sheets.

    Args:
        study: name of the study.
        results: directory with the study's tables and facts.json.
        out: output directory.

    Raises:
        Problem: a cell of the study's notebook fails.
    """
    given = {"tables": str(results), "facts": str(results / "facts.json")}
    with tempfile.TemporaryDirectory() as files, record_tables() as tables:
        notebook.run_notebook(Path(f"notebooks/{study}.ipynb"), given | {"files": files})
    for table in tables:
        numbers = table.frame if table.numbers is None else table.numbers
        write_csv(out / study / f"{build_file_stem(table.name)}.csv", numbers)
        write_text(
            out / study / f"{build_file_stem(table.name)}.tex",
            render_latex(table, f"tab:{study}-{build_file_stem(table.name)}"),
        )
    write_workbook(tables, out / f"{study}.xlsx")
    return len(tables)


def render_latex(table: Table, label: str) -> str:
    """Render a table as LaTeX that needs booktabs and amssymb, and also longtable if it has more than `LONG` rows."""
    texts = format_table(table)
    aligned = "".join("r" if column in find_numeric_columns(texts, table) else "l" for column in texts)
    head, *rows = [
        _render_row(texts.columns),
        *map(_render_row, add_marks(texts, table).itertuples(index=False, name=None)),
    ]
    name = f"\\caption{{{_escape_tex(table.full_caption)}}}\\label{{{label}}}"
    top = ["\\toprule", head, "\\midrule"]
    if len(rows) > LONG:
        lines = [f"\\begin{{longtable}}{{{aligned}}}", f"{name} \\\\", *top, "\\endhead", *rows]
        return "\n".join([*lines, "\\bottomrule", "\\end{longtable}", ""])
    lines = ["\\begin{table}", "\\centering", name, f"\\begin{{tabular}}{{{aligned}}}", *top, *rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def write_workbook(tables: Sequence[Table], path: Path) -> None:
    """Write tables to an Excel workbook, with a sheet of captions and a sheet per table.

    Numbers are stored as numbers, not as text. Equal tables produce identical files.
    """
    book, made = Workbook(), io.BytesIO()
    contents = book.active
    contents.title = "Contents"
    for number, table in enumerate(tables, 1):
        sheet = book.create_sheet(f"{number} {build_file_stem(table.name)}"[:31])
        _add_row(contents, [sheet.title, remove_marks(table.full_caption)])
        _add_row(sheet, map(remove_marks, table.frame.columns))
        for row in zip(*(_list_values(table.frame[column], table) for column in table.frame), strict=True):
            _add_row(sheet, row)
        sheet.freeze_panes = "A2"
        for cell in sheet[1]:
            cell.font = Font(bold=True)
    book.save(made)
    with replace_file(path) as part, ZipFile(made) as archive, ZipFile(part, "w") as written:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "docProps/core.xml":
                content = re.sub(rb"\d{4}-\d\d-\d\dT[\d:]{8}Z", b"1980-01-01T00:00:00Z", content)
            written.writestr(ZipInfo(name, _MADE), content, ZIP_DEFLATED)


def _list_values(column: pd.Series, table: Table) -> list:
    """List a column's values for a workbook: numbers as they are, unknown numbers as None, all else as page text."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return [value if math.isfinite(value) else None for value in column.astype(object).fillna(math.nan)]
    return ["" if pd.isna(value) else remove_marks(table.format_value(column.name, value)) for value in column]


def _add_row(sheet: Worksheet, values: Iterable) -> None:
    """Append a row. Untrusted text that begins with = is stored as text, not as a formula."""
    sheet.append(list(values))
    for cell in sheet[sheet.max_row]:
        cell.data_type = "s" if cell.data_type == "f" else cell.data_type


def _render_row(texts: Iterable[str]) -> str:
    return " & ".join(map(_escape_tex, texts)) + r" \\"


def _escape_tex(text: str) -> str:
    return remove_marks(text).translate(_TEX)
