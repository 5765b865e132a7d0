"""Name the rows of a figure, each in one line; if names are long, state the levels of most rows once."""

from collections.abc import Callable, Sequence

from sbench.pages.results import Results

LONG = 100  # characters of the longest name that fits next to a verdict and its ratio


def format_row_labels(
    rows: Sequence[dict], factors: Sequence[str], run: Results, name: Callable[[dict], str]
) -> tuple[list[str], str]:
    """Return the names of rows, and a note on the levels left out of them; "" if all names fit.

    `name` names a row by its levels, except levels that are "". Levels of the reader's work are left out last, and only
    as far as necessary; the question's factor never is.
    """
    usual = _find_usual_levels(rows, factors, run)
    given = [factor for factor in usual if run.report.get_factor(factor).given]
    own = [factor for factor in usual if factor not in given]
    steps = [[], own, *(own + given[-count:] for count in range(1, len(given) + 1))]
    for out in steps:
        labels = [name(row | {factor: "" for factor in out if row[factor] == usual[factor]}) for row in rows]
        if max(map(len, labels), default=0) <= LONG:
            break
    levels = [run.names.format_level(factor, usual[factor]) for factor in factors if factor in out]
    return labels, f"unless noted: {', '.join(levels)}" if levels else ""


def _find_usual_levels(rows: Sequence[dict], factors: Sequence[str], run: Results) -> dict[str, str]:
    """Return per factor the level of most rows to which it applies, except for the question's factor."""
    usual = {}
    for factor in factors:
        levels = [row[factor] for row in rows if row[factor] and run.names.has_meaning(factor, row)]
        most = max(dict.fromkeys(levels), key=levels.count, default="")
        if factor != run.report.headline and levels.count(most) * 2 > len(levels):
            usual[factor] = most
    return usual
