"""HSDS Streaming: the limit of the size of a request no longer applies."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from sbench.court.judging import Judgement, Runs

_BINARY = ("binary read", "binary write")
_ANSWERED = "answered"


def tabulate(runs: "Runs") -> "pd.DataFrame":
    """Return a row per kind of request, its size and streaming, with the outcomes of all repeats."""
    keys = ["phase", "times_limit", "streaming"]
    outcomes = runs.frame.groupby(keys, sort=False)["outcome"].agg(lambda values: ", ".join(sorted(set(values))))
    titles = {"phase": "request", "times_limit": "size / limit", "outcome": "outcomes"}
    return outcomes.reset_index().rename(columns=titles)


def judge(runs: "Runs") -> "Judgement":
    """Require that no binary request above the limit is refused, with streaming; then look at the others."""
    from sbench.pages.prose import format_list

    above = runs.frame[runs.frame["times_limit"] > 1]
    refused = above["outcome"] != _ANSWERED
    streamed = above["phase"].isin(_BINARY) & (above["streaming"] == "on")
    if not streamed.any():
        return runs.leave_open("no streamed binary request above the limit was sent")
    count, others = int((refused & streamed).sum()), int((refused & ~streamed).sum())
    reason = (
        f"{int(streamed.sum()) - count} of {int(streamed.sum())} streamed binary requests above the limit are answered,"
        f" and {int((~streamed).sum()) - others} of {int((~streamed).sum())} others"
    )
    if count or not others:
        return runs.decide(not count, count, reason)
    kinds = format_list(dict.fromkeys(above["phase"][refused & (above["streaming"] == "on")]), "or")
    return runs.limit(f"streaming is on, and the request is no {kinds}", count, reason)
