"""Define the outcomes of comparisons, limits and models, with their values in CSV files.

`sbench.pages.words` has the texts for report pages.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a comparison of times (METHOD 17) or exact counts, or of a test against a limit (METHOD 18)."""

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
        """The outcome of the same comparison with its two sides exchanged."""
        return _MIRRORED.get(self, self)


_MIRRORED = {
    Outcome.FASTER: Outcome.SLOWER,
    Outcome.SLOWER: Outcome.FASTER,
    Outcome.FEWER: Outcome.MORE,
    Outcome.MORE: Outcome.FEWER,
}
# Outcomes of comparisons that show which side takes less time.
ORDERED = (Outcome.FASTER, Outcome.SLOWER)
# Outcomes of comparisons with enough data for the test.
JUDGED = (*ORDERED, Outcome.SAME, Outcome.NO_EVIDENCE)
# Outcomes that decide a comparison, a limit or a model.
DECIDED = (*ORDERED, Outcome.SAME, Outcome.MEETS, Outcome.MISSES, Outcome.MODELLED)
