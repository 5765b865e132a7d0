"""What a report of any study reads: tables and facts of its run."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from scripts.lib.program import Problem


class OfBlocks:
    """The cells of a study of blocks by what can be shown of them; `cells` is the table of cells."""

    cells: pd.DataFrame

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The cells that figures show: those with a valid repeat, without the A/A control's twins."""
        cells = self.cells
        return cells[(cells["control"] == "") & (cells["n"] > 0)].reset_index(drop=True)

    @cached_property
    def invalid(self) -> pd.DataFrame:
        """The cells without a valid repeat that broke a rule of measuring: drawn, in no summary."""
        cells = self.cells
        return cells[(cells["control"] == "") & (cells["n"] == 0) & (cells["invalid"] > 0)].reset_index(drop=True)


def read_table(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """Return a table of which the columns `texts` are text, "" where empty; an absent table has no rows or columns.

    Raises:
        Problem: it cannot be read as a table.
    """
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(texts, str), low_memory=False)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {error}") from error
    return table.assign(**{column: table[column].fillna("") for column in texts if column in table})


def read_facts(path: Path | str | None) -> dict:
    """Return the facts of a run that are known; {} where no file is named.

    Raises:
        Problem: the file cannot be read as JSON.
    """
    if not path:
        return {}
    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as JSON: {error}") from error
    return {key: value for key, value in facts.items() if value is not None} if isinstance(facts, dict) else {}
