"""What a report of any study reads: tables and facts of its run."""

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from scripts.lib.program import Problem
from scripts.report.markup import FOREIGN


def read_table(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """Return a table of which the columns `texts` are text, "" where empty; an absent table has no rows or columns.

    Raises:
        Problem: it cannot be read as a table.
    """
    try:
        table = pd.read_csv(opened(path), dtype=dict.fromkeys(texts, str), low_memory=False)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {error}") from error
    return table.assign(**{column: table[column].fillna("") for column in texts if column in table})


def opened(path: Path) -> StringIO:
    """Return a file's text without what no text from elsewhere may hold (`markup.FOREIGN`), U+FFFD in its place."""
    return StringIO(_cleaned(path.read_text(encoding="utf-8")))


def read_facts(path: Path | str | None) -> dict:
    """Return the facts of a run that are known, cleaned as `opened` does; {} where no file is named.

    Raises:
        Problem: the file cannot be read as JSON.
    """
    if not path:
        return {}
    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as JSON: {error}") from error
    facts = _cleaned(facts) if isinstance(facts, dict) else {}
    return {key: value for key, value in facts.items() if value is not None}


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return FOREIGN.sub("\ufffd", value)
        case list():
            return [_cleaned(one) for one in value]
        case dict():
            return {_cleaned(key): _cleaned(one) for key, one in value.items()}
        case _:
            return value
