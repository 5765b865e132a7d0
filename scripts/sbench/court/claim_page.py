"""Build the page of a claim that was tested here, and the index of all such claims."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sbench.court.judging import HOLDS, NOT, ONLY_IF, UNKNOWN, Judgement, Runs, estimate_seconds, judge_runs
from sbench.court.tested_claim import TestedClaim, load_claim, read_commit
from sbench.pages import prose, tiles
from sbench.pages.markup import bold, bullets, code, heading, link, paragraph, quotation, verbatim
from sbench.pages.page import Page, Table
from sbench.pages.plot import COLOURS, Bars, Figure, Panel
from sbench.probe import sizes
from sbench.probe.program import Problem, read_json, write_json

# Columns that are shown first, if arms have them.
_COUNTS = ("requests", "get", "head", "put", "list", "bytes", "distinct", "in_flight")
_TITLES = {name: name.upper() for name in ("get", "head", "put", "post", "delete", "list")}
_TITLES |= {"in_flight": "in flight", "seconds": "time (s)", "cpu_s": "CPU time (s)", "distinct": "distinct bytes"}
_TITLES |= {"latency_ms": "round trip (ms)", "per_connection_mib_s": "rate (MiB/s)"}
_LATENCIES_MS, _RATES_MIB_S = (1, 5, 20, 60, 150), (10, 50, 200, 1000)
# Numbers from here on are shown without decimals.
_WHOLE = 1000
# Requests of an arm that are drawn, the shortest bar as a share of the time axis, and the largest number of thin bars.
_DRAWN, _THINNEST, _ROWS = 400, 0.004, 150
_COLOURS = {NOT: "red", ONLY_IF: "yellow"}
_HEADLINE = {
    HOLDS: ("holds", "hold"),
    ONLY_IF: ("holds under a condition", "hold under a condition"),
    NOT: ("does not hold", "do not hold"),
    UNKNOWN: (UNKNOWN, UNKNOWN),
}


def show_claim(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Render the page of a claim, and write answers.json for the index.

    Args:
        page: page to render to.
        tables: folder with runs.csv and traffic.json.
        facts: path of facts.json.
    """
    folder, made = Path(tables), read_json(facts)
    claim = load_claim(made["claim"])
    commit = read_commit(claim).get("commit")
    if commit and made.get("commit", commit) != commit:
        files = " or ".join(map(str, claim.files))
        raise Problem(f"{files} is younger than {facts}; run ./sbench published {claim.id}")
    runs, judgement = judge_runs(claim, folder / "runs.csv")
    date = "date unknown" if claim.date == "unknown" else claim.date
    address = claim.address if "://" in claim.address else f"../../{claim.address}"
    page.show_text(heading(1, claim.title), quotation(claim.text), f"{claim.by}, {date} ({link('source', address)})")
    page.show_text(paragraph(f"{bold(prose.capitalize_first(judgement.outcome))}: {judgement.reason}."))
    numbers = (
        f"Claimed: {_format_claimed(claim)}. Found: {_format_found(judgement, claim)}. Decided by {claim.decided_by}."
    )
    page.show_text(paragraph(numbers))
    page.show_section("Right in the claim", paragraph(claim.right))
    page.show_text(bullets(_list_warnings(runs)))
    page.show_text(heading(2, "Before the run"))
    committed = f" ({_format_commit(made)})" if made.get("commit") else ""
    page.show_text(
        bullets(
            [
                f"Refuted if{committed}: {claim.refuted_if}",
                *(
                    f"Earlier version ({_format_commit(one)}; claimed {one['claimed']}): {one['refuted_if']}"
                    for one in made.get("earlier", [])
                ),
                f"Conditions of the claim: {claim.conditions}",
                f"Data of the claim: {claim.data}",
                f"Data here: {claim.made}",
                *([f"Later: {claim.later}"] if claim.later else []),
            ]
        )
    )
    page.show_text(heading(2, "Result"))
    page.show_table(_build_cells(runs) if claim.cells else _build_table(runs), "")
    if times := _build_times(runs):
        page.show_table(times, "")
    if claim.arms and (claim.decided_by == "seconds" or len(claim.networks) > 1):
        page.show_figure(_draw_region(runs))
    traffic = read_json(folder / "traffic.json")
    # The module of a claim counts requests to a server other than the bucket's.
    if claim.decided_by in ("requests", "bytes") and any(traffic[arm] for arm in claim.contrast):
        page.show_figure(draw_requests(traffic, runs))
    page.show_text(link("All claims", "index.html"), in_markdown=False)
    page.show_text(heading(2, "Reproduce"), verbatim(f"./sbench published {claim.id}"))
    machine = made["machine"]
    load = f", with a load average of {machine['load_before'][-1]:.1f}" if machine.get("load_before") else ""
    page.show_text(f"Measured on {made['measured']}: {machine.get('cpu')}, {machine.get('os')}{load}.")
    if claim.cells:
        names = prose.format_list(code(name[:10]) for name in made.get("records") or ["unknown"])
        page.show_text(paragraph(f"Judged from the run {claim.run}, whose records name the commit {names}."))
    if claim.reply:
        page.show_section("Reply of the authors", paragraph(claim.reply))
    _write_answers(page, claim, judgement)


def show_claims(page: Page, answers: Sequence[str]) -> None:
    """Render the index of claims: a row per claim, with its verdict and numbers."""
    rows = [read_json(path) for path in answers]
    page.show_text(heading(1, "Claims of the field, tested"))
    counts = Counter(row["verdict"] for row in rows)
    listed = [f"{counts[name]} {_HEADLINE[name][counts[name] != 1]}" for name in _HEADLINE if name in counts]
    page.show_text(paragraph(bold(f"{prose.format_count(len(rows), 'claim')}: {prose.format_list(listed)}.")))
    frame = pd.DataFrame(
        {
            "claim": [row["title"] for row in rows],
            "verdict": [row["outcome"] for row in rows],
            "claimed": [row["claimed_text"] for row in rows],
            "found": [row["found_text"] for row in rows],
            "decided by": [row["decided_by"] for row in rows],
        }
    )
    over = {"verdict": [_COLOURS.get(row["verdict"], "") for row in rows]}
    caption = "Claimed and found have the same unit. Requests and bytes are exact counts, and equal on any machine."
    numbers = pd.DataFrame(rows).drop(columns=["claimed_text", "found_text"])
    meaning = "does not hold, or only under a condition"
    page.show_table(Table("claims", caption, frame, over=over, meaning=meaning, numbers=numbers), "")
    page.show_text(bullets(_format_row(row) for row in rows))


def _format_row(row: dict) -> str:
    return f"{link(row['title'], row['id'] + '.html')} {bold(row['outcome'])}: {row['reason']}."


def _format_commit(made: dict) -> str:
    return f"commit {code(made['commit'][:10])}, {made['date']}"


def _write_answers(page: Page, claim: TestedClaim, judgement: Judgement) -> None:
    number = None if math.isnan(judgement.measured) else judgement.measured
    write_json(
        page.files / "answers.json",
        {
            **{"id": claim.id, "title": claim.title, "verdict": judgement.verdict, "outcome": judgement.outcome},
            **{"claimed": claim.claimed, "found": number, "unit": claim.unit, "decided_by": claim.decided_by},
            **{"reason": judgement.reason, "address": claim.address},
            **{"claimed_text": _format_claimed(claim), "found_text": _format_found(judgement, claim)},
        },
    )


def _format_claimed(claim: TestedClaim) -> str:
    text = claim.claimed.replace("<=", "≤ ").replace(">=", "≥ ").replace("..", " to ")
    return f"{text} {claim.unit}"


def _format_found(judgement: Judgement, claim: TestedClaim) -> str:
    return "no number" if math.isnan(judgement.measured) else f"{_format_number(judgement.measured)} {claim.unit}"


def _list_warnings(runs: Runs) -> list[str]:
    return [f"{arm} reads other values than {runs.claim.contrast[0]}." for arm in runs.list_unequal()]


def _build_cells(runs: Runs) -> Table:
    """Build the table of the comparisons of a run, with the factors that vary; or of its samples, by the module."""
    if runs.claim.table == "samples":
        caption = f"From the samples of the run {runs.claim.run}."
        return Table("samples", caption, runs.claim.import_module().tabulate(runs), numbers=runs.frame)
    rows = runs.select_totals()
    factors = list(rows.columns[: rows.columns.get_loc("control")])
    varying = [name for name in factors if rows[name].nunique(dropna=False) > 1 or name in ("baseline", "contender")]
    columns = ["verdict", "ratio", "ratio_low", "ratio_high"]
    caption = f"A row per comparison of the run {runs.claim.run}, with the ratio of times and its 95 % CI."
    formats = dict.fromkeys(columns[1:], prose.format_ratio)
    return Table("comparisons", caption, rows[[*varying, *columns]], formats, numbers=runs.frame)


def _build_table(runs: Runs) -> Table:
    """Build the table of all arms, with the median of each number over the first network."""
    frame = runs.frame[runs.frame["network"] == 0]
    others = [name for name in frame.columns if name not in ("network", "block", "latency_ms", "per_connection_mib_s")]
    numeric = [name for name in others if pd.api.types.is_numeric_dtype(frame[name])]
    medians = frame.groupby("arm", sort=False)[numeric].median()
    shown = [name for name in _COUNTS if name in numeric and (medians[name] > 0).any()]
    added = [name for name in numeric[numeric.index("cpu_s") + 1 :] if name not in shown]
    shown += ["seconds", "cpu_s", *added]
    frame = medians[shown].rename(columns=_TITLES).reset_index()
    caption = "A row per arm, over the first network. The counts come from the server; times are medians."
    return Table("arms", caption, frame, dict.fromkeys(frame.columns[1:], _format_number), numbers=runs.frame)


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= _WHOLE else prose.format_number(value)


def _build_times(runs: Runs) -> Table | None:
    if runs.claim.blocks < 6 or not runs.claim.contrast:
        return None
    column = "cpu_s" if runs.claim.decided_by == "CPU seconds" else "seconds"
    table, (arm, base) = runs.compare_times(column), runs.claim.contrast
    frame = table.assign(gain=1 / table["ratio"], least=1 / table["high"], most=1 / table["low"])
    shown = [
        name for name in ("latency_ms", "per_connection_mib_s", "verdict", "gain", "least", "most") if name in frame
    ]
    times = "CPU times" if column == "cpu_s" else "times"
    caption = f"Ratio of {times}: the gain of {arm} over {base}, with the 95 % CI from least to most."
    formats = dict.fromkeys(("gain", "least", "most"), prose.format_ratio)
    return Table("times", caption, frame[shown].rename(columns=_TITLES), formats, numbers=table)


def _draw_region(runs: Runs) -> Figure:
    """Draw the estimated ratio of times of the contrast over round trips and rates."""
    arm, base = runs.claim.contrast[0], runs.claim.contrast[-1]
    last = len(runs.claim.networks) - 1
    rows = [
        {name: runs.read_median(which, name, last) for name in ("requests", "in_flight", "bytes")}
        for which in (arm, base)
    ]
    ratios = {
        (f"{latency} ms", f"{rate} MiB/s"): estimate_seconds(rows[1], latency, rate)
        / estimate_seconds(rows[0], latency, rate)
        for latency, rate in itertools.product(_LATENCIES_MS, _RATES_MIB_S)
    }
    title = f"How many times as fast {arm} is as {base}"
    panel = tiles.build_panel(title, ratios, ["Round trip", "Rate of the network"], prose.format_ratio)
    caption = "Estimated from the requests, the requests in flight and the bytes that were counted, without CPU time."
    numbers = pd.DataFrame([(*pair, ratio) for pair, ratio in ratios.items()], columns=["round trip", "rate", "ratio"])
    return Figure("region", "Where the network decides", caption, (panel,), numbers)


def draw_requests(traffic: dict[str, list[dict]], runs: Runs) -> Figure:
    """Draw a bar per request of the contrast, from its start to its last byte; later requests are lower."""
    panels, parts = [], []
    for arm in runs.claim.contrast:
        rows = traffic[arm][:_DRAWN]
        if not rows:
            continue
        begun = min(row["begin"] for row in rows)
        table = pd.DataFrame(
            {
                "y": [-number for number in range(len(rows))],
                "left": [row["begin"] - begun for row in rows],
                "right": [(row["end"] or row["begin"]) - begun for row in rows],
            }
        )
        table["right"] = table["right"].clip(lower=table["left"] + _THINNEST * table["right"].max())
        bars = (Bars("", COLOURS[0], table, half=max(0.3, len(rows) / _ROWS)),)
        count = int(runs.read_median(arm, "requests", len(runs.claim.networks) - 1))
        more = f", the first {_DRAWN}" * (count > _DRAWN)
        title = f"{arm}: {sizes.format_count(count, 'request')}{more}"
        places = {"y_ticks": (0, 1 - len(rows)), "y_tick_texts": ("1", str(len(rows)))}
        panels.append(Panel(title, "Time (s)", "Request", bars=bars, y_ends=(-len(rows), 1), height=280, **places))
        parts.append(table.assign(arm=arm, method=[row["method"] for row in rows], path=[row["path"] for row in rows]))
    numbers = pd.concat(parts) if parts else pd.DataFrame()
    caption = "Each bar is a request, from its start to its last byte, in the order of their starts."
    return Figure("requests", "Requests over time", caption, tuple(panels), numbers, 2)
