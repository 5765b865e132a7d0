"""Export the tables of a page as CSV, LaTeX (booktabs) and an Excel workbook, for papers and spreadsheets."""

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

LONG = 40  # rows; a longer table runs over pages
_MADE = (1980, 1, 1, 0, 0, 0)  # workbooks store creation times; a fixed time gives equal tables equal bytes
_MATHS = {"×": "times", "±": "pm", "≤": "leq", "≥": "geq", "µ": "mu", "▲": "blacktriangle", "△": "triangle"}
_WORDS = {"\\": "textbackslash", "~": "textasciitilde", "^": "textasciicircum", "|": "textbar"}
_WORDS |= {"<": "textless", ">": "textgreater", "…": "ldots", "·": "textperiodcentered"}
_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{sign: f"\\{word}{{}}" for sign, word in _WORDS.items()},
        **{sign: f"$\\{word}$" for sign, word in _MATHS.items()},
        # LaTeX reads a bracket at the start of a row as part of the previous row's end.
        **{"[": "{[}", "]": "{]}", "–": "--", "\N{MINUS SIGN}": "$-$", "“": "``", "”": "''", "’": "'"},
    }
)


def write_tables(study: str, results: Path, out: Path) -> int:
    """Write the tables of a study's page from the folder `results` to the folder `out`; return their number.

    Each is a CSV and a LaTeX table, `<study>/<name>`; all are sheets of `<study>.xlsx`.

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
    """Render a table as LaTeX, with booktabs and amssymb, and longtable for more than `LONG` rows."""
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
    """Write tables as sheets after a sheet of their captions, numbers as numbers; equal tables give equal bytes."""
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
    """List numbers as numbers or, if unknown, None, and other values as on a page."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return [value if math.isfinite(value) else None for value in column.astype(object).fillna(math.nan)]
    return ["" if pd.isna(value) else remove_marks(table.format_value(column.name, value)) for value in column]


def _add_row(sheet: Worksheet, values: Iterable) -> None:
    """Add a row; keep texts from elsewhere that begin with = from becoming formulas."""
    sheet.append(list(values))
    for cell in sheet[sheet.max_row]:
        cell.data_type = "s" if cell.data_type == "f" else cell.data_type


def _render_row(texts: Iterable[str]) -> str:
    return " & ".join(map(_escape_tex, texts)) + r" \\"


def _escape_tex(text: str) -> str:
    return remove_marks(text).translate(_TEX)
