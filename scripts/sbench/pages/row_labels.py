"""Label the rows of a figure in one line each; if labels are long, state the levels that most rows share only once."""

from collections.abc import Callable, Sequence

from sbench.pages.results import Results

LONG = 100  # maximum number of characters that fit next to a verdict and its ratio


def format_row_labels(
    rows: Sequence[dict], factors: Sequence[str], run: Results, name: Callable[[dict], str]
) -> tuple[list[str], str]:
    """Return the label of each row, and a note that states the omitted levels (empty if all labels fit).

    Levels that describe the reader's work are omitted last, and only as many as necessary; the level of the question's
    factor is never omitted.

    Args:
        rows: levels of each row, by factor.
        factors: factors in the labels.
        run: results.
        name: function that labels a row by its levels, ignoring levels that are empty strings.
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
    """Map each factor to the level of most rows to which it applies, if there is such a level.

    The question's factor is not included.
    """
    usual = {}
    for factor in factors:
        levels = [row[factor] for row in rows if row[factor] and run.names.has_meaning(factor, row)]
        most = max(dict.fromkeys(levels), key=levels.count, default="")
        if factor != run.report.headline and levels.count(most) * 2 > len(levels):
            usual[factor] = most
    return usual
