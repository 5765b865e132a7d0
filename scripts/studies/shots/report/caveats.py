"""What was asked, how it was measured, how the verdict rule did on itself, and what the data cannot say."""

from scripts.report import account, judgement, prose
from scripts.report.markup import paragraph, quotation
from scripts.studies.shots.report.results import ABSENT, Results, numbers


def question(results: Results) -> str:
    """Return what the run was asked, as a quotation, and what it measured."""
    asked = results.facts.get("question", "")
    repeats = prose.count(int(results.cells["n"].sum()), "valid repeat")
    measured = paragraph(f"{prose.count(len(results.cells), 'cell')}, {repeats} in all.")
    return account.not_provided(results.facts) + quotation(asked) + measured


def nothing_decided(results: Results) -> str:
    """Return what to say where no sentence tells of a verdict."""
    return ABSENT["verdicts"] if results.verdicts.empty else "Nothing was decided."


def method(results: Results) -> list[str]:
    """Return how it was measured and judged, in short."""
    if results.verdicts.empty:
        return ["Each value is drawn as it is; there are no repeats to judge differences by."]
    return [
        "A repeat is a block: every cell once, in a seeded random order, each in a fresh process, nothing else "
        "running.",
        "Times are medians with 95 % intervals; throughput is all bytes by all time. The clock starts when the workers "
        "are up.",
        *judgement.method(results.facts),
        "The total runtime decides. Opens, first data sets and the rest are judged apart and say where a difference "
        "arises.",
        "Every repeat is drawn; none is removed as an outlier. Tasks, data sets, bytes and checksum of each valid "
        "repeat equal the manifest's.",
    ]


def limits(results: Results) -> list[str]:
    """Return what these data cannot say."""
    facts, cells = results.facts, results.measured
    lines = []
    told = [str(line) for line in facts.get("limits", [])]
    if told and max(map(len, told)) < 40:
        told = [f"measured with: {', '.join(told)}. It is no verdict for other networks, stores or machines"]
    lines += [f"{prose.capital(line.rstrip('.'))}." for line in told]
    if (cells["cache"] == "cold").any():
        lines.append(
            '"Cold" is said of this machine\'s page cache only: caches of hypervisor, disk and remote services are not '
            "controlled."
        )
    if "cache_state" in cells and (
        odd := int(((cells["cache_state"] != cells["cache"]) & (cells["cache"] != "any")).sum())
    ):
        lines.append(f"The cache state that was asked for could not be verified in {prose.count(odd, 'cell')}.")
    if "oversubscribed" in cells and (many := int(judgement.is_true(cells["oversubscribed"]).sum())):
        lines.append(f"In {prose.count(many, 'cell')} more workers ran than there are cores (marked oversubscribed).")
    if "idle_workers" in cells and (idle := int((numbers(cells["idle_workers"]) > 0).sum())):
        lines.append(f"In {prose.count(idle, 'cell')} some workers had nothing to do.")
    return [*lines, *judgement.of_trouble(results.cells), *results.absent]
