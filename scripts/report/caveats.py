"""How a run was measured and judged, and what its data cannot say: computed from its records."""

from collections.abc import Iterable

from scripts.report import judgement, listings, prose
from scripts.report.markup import code
from scripts.report.results import Results


def method(run: Results, own: Iterable[str]) -> list[str]:
    """Return how it was measured and judged, in short; `own` is what only the study knows."""
    if run.verdicts.empty:
        return ["Each value is drawn as it is; there are no repeats to judge differences by."]
    title = run.report.metrics[0].title
    return [
        *_order(run.facts.get("order") or {}),
        *own,
        *judgement.method(run.facts),
        f"Verdicts use the {title}. The other metrics are judged one by one and say where a difference arises.",
        "Every repeat is drawn; none is removed as an outlier. Failed and invalid repeats are shown and in no verdict.",
    ]


def _order(order: dict) -> list[str]:
    """In which order the cells were measured, and what ran beside them, as the records say."""
    if not order:
        return []
    repeats, complete = order["repeats"], order["complete"]
    many = prose.count(repeats, "repeat")
    every = f"in each of {many} every cell was measured once"
    if complete < repeats:
        every = f"every cell was measured once in {complete} of {many}, in the others some are missing"
    if order["orders"] > 1 and order["orders"] >= repeats - 1:
        how = ", in an order of its own"
    else:
        how = f", in {prose.count(order['orders'], 'order')} only" if repeats > 1 else ""
    match order["overlapping"]:
        case None:
            beside = "when each began and ended is not known"
        case 0:
            beside = "no two records overlap in time"
        case many:
            beside = f"{prose.count(many, 'record')} began before an earlier one had ended"
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
    if odd := int(listings.odd_state(cells).sum()):
        lines.append(f"The requested cache state could not be verified in {prose.count(odd, 'cell')}.")
    if many := int(judgement.is_true(listings.column(cells, "oversubscribed")).sum()):
        lines.append(
            f"In {prose.count(many, 'cell')} more workers or processes ran than there are cores: they compete for "
            "the cores, so the gain from more of them says little."
        )
    share = listings.share_of_harness(cells)
    if heavy := int((share > listings.HARNESS).sum()):
        lines.append(
            f"In {prose.count(heavy, 'cell')} the harness itself takes more than {listings.HARNESS} % of the "
            f"{run.report.metrics[0].title}, up to {share.max():.0f} %: see the table of its cost."
        )
    if dropped := run.left_out:
        are, their = ("is", "its") if dropped == 1 else ("are", "their")
        lines.append(
            f"{prose.count(dropped, 'requested comparison')} {are} left out: {their} arms deliver different amounts."
        )
    rows = run.comparisons(run.report.metrics[0].name)
    if apart := int(run.of_other_code(rows).sum()) if len(rows) else 0:
        lines.append(
            f"{prose.count(apart, 'comparison')} of cells that different versions of the measuring code measured "
            f"{'is' if apart == 1 else 'are'} left out; {code('make again')} measures cells again."
        )
    return [*lines, *own, *judgement.of_trouble(run.cells, run.report.unit == "block"), *run.absent]
