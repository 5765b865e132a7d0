"""Define the outcomes of comparisons, limits and models with their texts in CSV; pages use `sbench.pages.words`."""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a comparison of times (METHOD 17), of exact counts, or of a limit (METHOD 18)."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NO_EVIDENCE = "no evidence"
    NOT_COMPARABLE = "not comparable"
    TOO_FEW = "too few repeats"

    FEWER = "fewer"
    MORE = "more"
    DEPENDS = "depends on what is read"

    MEETS = "meets"
    MISSES = "misses"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not judged"
    MODELLED = "modelled"

    @property
    def mirrored(self) -> "Outcome":
        """The outcome with the arms exchanged."""
        return _MIRRORED.get(self, self)


_MIRRORED = {
    Outcome.FASTER: Outcome.SLOWER,
    Outcome.SLOWER: Outcome.FASTER,
    Outcome.FEWER: Outcome.MORE,
    Outcome.MORE: Outcome.FEWER,
}
# Comparisons that show which arm takes less.
ORDERED = (Outcome.FASTER, Outcome.SLOWER)
# Comparisons that could be judged.
JUDGED = (*ORDERED, Outcome.SAME, Outcome.NO_EVIDENCE)
# Outcomes that decide about the arms, a limit or a model.
DECIDED = (*ORDERED, Outcome.SAME, Outcome.MEETS, Outcome.MISSES, Outcome.MODELLED)
