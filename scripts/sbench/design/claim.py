"""Define the claims of a published study: each is a function that computes its value from the study's tables.

A study's `published_claims.py` has them in the order of the audit:

    claims = Claims(timings="timings_from_notebook.csv")

    @claims.compares("after cell 34", "<0.5", "factor")
    def x10_futures(timings):
        '''The dask futures are surprisingly significantly faster.'''
        return _compare_methods(timings, [FUTURES_LOAD], [LOAD], X10)

The docstring is the quote, the name with dashes the id, and the parameters name the tables. A function returns nothing
if the data cannot decide its claim. `sbench.court.claims` compares the values with the printed value.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial, partialmethod
from itertools import product


@dataclass(frozen=True)
class Claim:
    """A sentence of a study that compares, quantifies or explains, and the function that computes its value.

    Attributes:
        printed: its value in `unit`, as printed or as read from its words (`sbench.court.claims.parse_printed`).
        tested_by: the study of this project that tests it if the published data cannot.
        compute: returns values in `unit`, a number or a Series whose index names the subject of each value, or None.
        tables: the published table of each parameter of `compute`, several joined by ` + `.
    """

    id: str
    kind: str
    quote: str
    where: str
    printed: str
    unit: str
    tested_by: str
    compute: Callable
    tables: Mapping[str, str]


class Claims(list):
    """The claims of a study, in their order."""

    def __init__(self, **tables: str) -> None:
        """Name the published tables of the parameters of the claims' functions; ` + ` joins several.

        Joined tables have a column `source`; `cells` and `samples` are made of the published tables.
        """
        super().__init__()
        self.tables = tables

    def _add_claims(
        self,
        kind: str,
        where: str,
        printed: str = "",
        unit: str = "",
        tested_by: str = "",
        *,
        name: str = "",
        **levels: str | list[str],
    ) -> Callable:
        """Return a decorator that adds a claim; the first arguments are attributes of `Claim`.

        `name` is its id in place of the function's name. `levels` are arguments of the function other than tables: a
        list makes a claim of each entry, whose id ends with the entry.
        """
        place = len(self)
        options = [level if isinstance(level, list) else [level] for level in levels.values()]
        combinations = [dict(zip(levels, combination, strict=True)) for combination in product(*options)]
        self.extend([None] * len(combinations))

        def register_claims(function: Callable) -> Callable:
            quote, tables = " ".join((inspect.getdoc(function) or "").split("\n")), self.get_tables(function, levels)
            for number, given in enumerate(combinations, place):
                listed = [given[level] for level in levels if isinstance(levels[level], list)]
                own = re.sub(r"[_.]", "-", "-".join([name or function.__name__, *listed]))
                compute = partial(function, **given)
                self[number] = Claim(own, kind, quote, where, printed, unit, tested_by, compute, tables)
            return function

        return register_claims

    compares = partialmethod(_add_claims, "compares")
    quantifies = partialmethod(_add_claims, "quantifies")
    explains = partialmethod(_add_claims, "explains")

    def get_tables(self, function: Callable, levels: Collection[str] = ()) -> dict[str, str]:
        """Return the table of each parameter of a function, except `levels`."""
        return {name: self.tables[name] for name in inspect.signature(function).parameters if name not in levels}
