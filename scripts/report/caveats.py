"""How a run was measured and judged, and what its data cannot say: computed from its records."""

from collections.abc import Iterable

from scripts.report import judgement, listings, prose
from scripts.report.markup import code
from scripts.report.results import Results
from scripts.statistics import HARNESS


def method(run: Results, own: Iterable[str]) -> list[str]:
    """Return how it was measured and judged, in short; `own` is what only the study knows."""
    if run.verdicts.empty:
        return ["Each value is drawn as it is; there are no repeats to judge differences by."]
    title = run.report.metrics[0].title
    return [
        *_order(run.facts.get("order") or {}),
        *own,
        *(f"{line}." for line in run.facts.get("on_purpose") or []),
        *judgement.method(run.facts),
        *judgement.families(run.verdicts),
        f"Verdicts use the {title}. The other metrics say where a difference arises.",
        "Every repeat is drawn; none is removed as an outlier. Failed and invalid repeats are shown and in no verdict.",
    ]


def _order(order: dict) -> list[str]:
    """In which order the cells were measured, and what ran beside them, as the records say."""
    if not order:
        return []
    repeats, complete, orders, overlapping = (order[key] for key in ("repeats", "complete", "orders", "overlapping"))
    many = prose.count(repeats, "repeat")
    every = f"in each of {many} every cell was measured once"
    if complete < repeats:
        every = f"every cell was measured once in {complete} of {many}, in the others some are missing"
    how = f", in {prose.count(orders, 'order')} only" if repeats > 1 else ""
    how = ", in an order of its own" if orders > 1 and orders >= repeats - 1 else how
    beside = "when each began and ended is not known" if overlapping is None else "no two records overlap in time"
    beside = f"{prose.count(overlapping, 'record')} began before an earlier one had ended" if overlapping else beside
    return [f"{prose.capital(every)}{how}; {beside}."]


def limits(run: Results, own: Iterable[str] = ()) -> list[str]:
    """Return what these data cannot say; `own` is what only the study knows."""
    cells = run.measured
    lines = [f"{prose.capital(str(line).rstrip('.'))}." for line in run.facts.get("limits") or []]
    if (cells["cache"] == "cold").any():
        lines.append(
            '"Cold" refers to the page caches of the machines that read and of an embedded server: caches of '
            "hypervisor, disk and remote services are not controlled."
        )
    share, decides = listings.share_of_harness(cells), run.report.metrics[0].title
    counts = {
        "The requested cache state could not be verified in {}.": listings.odd_state(cells),
        "In {} more workers or processes ran than there are cores: they compete for the cores, so the gain from more "
        "of them says little.": judgement.is_true(listings.column(cells, "oversubscribed")),
        f"In {{}} the harness itself takes more than {HARNESS} % of the {decides}, up to {share.max():.0f} %: "
        "see the table of its cost.": share > HARNESS,
    }
    lines += [text.format(prose.count(int(those.sum()), "cell")) for text, those in counts.items() if those.any()]
    if dropped := run.left_out:
        are, their = ("is", "its") if dropped == 1 else ("are", "their")
        lines.append(
            f"{prose.count(dropped, 'requested comparison')} {are} left out: {their} arms deliver different amounts."
        )
    unmade, lacking = (int(those.sum()) for those in run.apart(run.comparisons()))
    if unmade:
        lines.append(
            f"{prose.count(unmade, 'comparison')} {'is' if unmade == 1 else 'are'} left out: different versions of the "
            "measuring code measured the two sides, or they were never measured in one session on one machine; "
            f"{code('make again')} measures cells again."
        )
    if lacking:
        lines.append(
            f"{prose.count(lacking, 'comparison')} {'lacks' if lacking == 1 else 'lack'} blocks whose two sides were "
            f"not measured in one session on one machine; {code('verdicts.csv')} names them."
        )
    return [*lines, *own, *judgement.of_trouble(run.cells, run.report.unit == "block"), *run.absent]
