"""Names of a figure's rows, each in one line: where they are long, what most rows share is said once."""

from collections.abc import Callable, Sequence

from sbench.pages.results import Results

LONG = 100  # characters of the longest name that has room, beside a verdict and its ratio


def format_row_labels(
    rows: Sequence[dict], factors: Sequence[str], run: Results, name: Callable[[dict], str]
) -> tuple[list[str], str]:
    """Return the rows' names, and what is left out of them and holds unless noted; "" where all have room.

    `name` makes a row's name of its levels without those that are "". What a reader's own work decides is left out
    last, and only as far as names need it; the factor that the question is about never is.
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
    """The level that most of those rows have to which a factor means something."""
    usual = {}
    for factor in factors:
        levels = [row[factor] for row in rows if row[factor] and run.names.has_meaning(factor, row)]
        most = max(dict.fromkeys(levels), key=levels.count, default="")
        if factor != run.report.headline and levels.count(most) * 2 > len(levels):
            usual[factor] = most
    return usual
