"""What was asked, how it was measured, how the verdict rule did on itself, and what the data cannot say."""

from scripts.report import judgement, prose
from scripts.studies.shots.report.results import Results, numbers


def method(results: Results) -> list[str]:
    """Return how it was measured and judged, in short."""
    if results.verdicts.empty:
        return ["Each value is drawn as it is; there are no repeats to judge differences by."]
    return [
        "A repeat is a block: every cell once, in a seeded random order, each in a fresh process, nothing else "
        "running.",
        "Times are medians with 95 % CI; throughput is all bytes divided by all time. The clock starts when the "
        "workers are up.",
        *judgement.method(results.facts),
        "The total runtime decides. Opens, first datasets and the rest are judged apart and say where a difference "
        "arises.",
        "Every repeat is drawn; none is removed as an outlier. Tasks, datasets, bytes and checksum of each valid "
        "repeat equal the manifest's.",
    ]


def limits(results: Results) -> list[str]:
    """Return what these data cannot say."""
    facts, cells = results.facts, results.measured
    lines = []
    told = [str(line) for line in facts.get("limits", [])]
    if told and max(map(len, told)) < 40:
        told = [f"measured with: {', '.join(told)}. It is not a verdict on other networks, stores or machines"]
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
