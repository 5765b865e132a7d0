"""Define the claims of a published study as functions that compute each claim's value from the study's tables.

A study's `published_claims.py` lists them in the order of the audit:

    claims = Claims(timings="timings_from_notebook.csv")

    @claims.compares("after cell 34", "<0.5", "factor")
    def x10_futures(timings):
        '''The dask futures are surprisingly significantly faster.'''
        return _compare_methods(timings, [FUTURES_LOAD], [LOAD], X10)

The docstring is the quoted sentence, the function's name (with dashes) is the claim's id, and the parameter names
select the tables. A function returns None if the data cannot decide its claim. `sbench.court.claims` compares the
computed values with the printed value.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial, partialmethod
from itertools import product


@dataclass(frozen=True)
class Claim:
    """A sentence of a publication that compares, quantifies or explains, with the function that computes its value.

    Attributes:
        id: the identifier of the claim, unique within its study.
        kind: "compares", "quantifies" or "explains".
        quote: the sentence.
        where: the place of the sentence in the publication.
        printed: the value in `unit`, as printed or as worded (see `sbench.court.claims.parse_printed`).
        unit: the unit of the printed and the computed values.
        tested_by: the study, or the claim of config/claims, that measures what the published data cannot decide.
        compute: returns values in `unit` (a number, or a Series whose index names the subject of each value), or None.
        tables: parameter of `compute` -> name of its published table; ` + ` separates several tables.
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
    """The claims of a published study, in the order of their definition."""

    def __init__(self, **tables: str) -> None:
        """Map each parameter name of the claim functions to a published table, or to several, separated by ` + `.

        Several tables are concatenated, with a column `source`. The parameters `cells` and `samples` get tables that
        are built from the published ones.
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
        """Return a decorator that adds a claim.

        The parameters before `name` are attributes of `Claim`. `name` replaces the function's name in the claim's id.
        `levels` are arguments of the function other than tables. If one is a list, the decorator adds a claim for each
        entry and appends the entry to the claim's id.
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
        """Return the name of the table for each parameter of a function, except the parameters in `levels`."""
        return {name: self.tables[name] for name in inspect.signature(function).parameters if name not in levels}
