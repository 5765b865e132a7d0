"""HSDS Streaming: the limit of the size of a request no longer applies."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from sbench.court.judging import Judgement, Runs

_BINARY = ("binary read", "binary write")
_ANSWERED = "answered"
# Kinds of requests that the article excepts.
_EXCEPTED = "JSON|strings"


def tabulate(runs: "Runs") -> "pd.DataFrame":
    """Return a row per kind of request, its size and streaming, with the outcomes of all repeats."""
    keys = ["phase", "times_limit", "streaming"]
    outcomes = runs.frame.groupby(keys, sort=False)["outcome"].agg(lambda values: ", ".join(sorted(set(values))))
    titles = {"phase": "request", "times_limit": "size / limit", "outcome": "outcomes"}
    return outcomes.reset_index().rename(columns=titles)


def judge(runs: "Runs") -> "Judgement":
    """Require that streaming lifts the limit of binary requests, and of others that the article does not except."""
    from sbench.pages.prose import format_list

    above = runs.frame[runs.frame["times_limit"] > 1]
    phase, refused, on = above["phase"], above["outcome"] != _ANSWERED, above["streaming"] == "on"
    binary, excepted = phase.isin(_BINARY), phase.str.contains(_EXCEPTED)
    total, count = int((binary & on).sum()), int((refused & binary & on).sum())
    if not total:
        return runs.leave_open("no streamed binary request above the limit was sent")
    reason = (
        f"{total - count} of {total} streamed binary requests above the limit are answered, and"
        f" {int((~refused & ~on).sum())} of {int((~on).sum())} requests of all kinds without streaming"
    )
    if (refused & on & excepted).any():
        kinds = format_list(phase[refused & on & excepted].unique())
        reason += f"; with streaming, {kinds} are refused, as the article says"
    others = phase[refused & on & ~excepted].unique()
    if not count and len(others):
        return runs.limit(f"the request is no {format_list(others, 'or')}", count, reason)
    return runs.decide(not count, count, reason)
