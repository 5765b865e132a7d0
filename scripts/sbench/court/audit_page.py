"""Build the page that shows the audit of a published study."""

import itertools
from pathlib import Path

import pandas as pd

from sbench.court import claims, label_audit, rules
from sbench.pages import prose
from sbench.pages.markup import bold, bullets, heading, link, paragraph, quotation
from sbench.pages.page import Page, Table
from sbench.pages.run_files import read_facts, read_table
from sbench.probe.program import write_json

_TEXTS = (*claims.COLUMNS, *label_audit.COLUMNS, *rules.COLUMNS, "column", "row", "what", "value")
_COLOURS = {claims.NOT: "red", claims.PARTLY: "yellow", rules.BROKEN: "red"}
_HELD = {
    claims.HOLDS: ("holds", "hold"),
    claims.PARTLY: ("holds in part", "hold in part"),
    claims.NOT: ("does not hold", "do not hold"),
}
_MOST = 4
_PARTS = ("claims", "rules", "derived", "labels", "setup")


def show_audit(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Render the page of a study's audit, and write answers.json for the index page.

    Args:
        page: page to render to.
        tables: folder with the study's tables.
        facts: path of facts.json.
    """
    folder, sentences = Path(tables) / "audit", read_facts(facts)
    parts = {name: read_table(folder / f"{name}.csv", _TEXTS) for name in _PARTS}
    source, limits = sentences["published"], sentences.get("limits") or []
    page.show_text(heading(1, f"Audit of “{source['title']}”"))
    made = [source["by"], "" if source["date"] == "unknown" else source["date"]]
    links = [link("the study", source["address"])]
    links.append(link("report on its data", f"{sentences['study']}.html"))
    links.append(link("all published studies", "index.html"))
    page.show_text(" · ".join(filter(None, [*made, *links])))
    answer = format_headline(parts, "available" if limits else "published")
    wrong, broken = list_contradicted(parts["claims"]), list_broken_rules(parts["rules"])
    contradicted = int((parts["claims"]["outcome"] == claims.NOT).sum())
    some = f" (the first {_MOST} of {contradicted})" if contradicted > _MOST else ""
    page.show_text(quotation(sentences["question"]), paragraph(answer))
    page.show_section("Conclusions of the study, tested with its data", bullets(list_conclusions(source, parts)))
    page.show_section(f"Claims that do not hold{some}", bullets(wrong))
    page.show_section("Broken rules of measuring", bullets(broken))
    page.show_text(bullets(f"{prose.capitalize_first(line)}." for line in limits))
    for title, table, part, nothing in (
        ("Rules of measuring", _build_rules_table, "rules", "Nothing to test: columns.yaml declares no table."),
        ("Claims", _build_claims_table, "claims", "No claims."),
        ("Derived figures that cannot be reproduced", _build_derived_table, "derived", "None."),
        ("Misleading labels", _build_labels_table, "labels", "None."),
        ("Setup as published", _build_setup_table, "setup", "The study publishes no setup."),
    ):
        page.show_text(heading(2, title))
        page.show_table(table(parts[part]), nothing)
    answers = {
        **{"study": sentences["study"], "title": source["title"], "question": sentences["question"], "run": ""},
        **{"source": "Published studies, audited", "caution": "", "headline": answer, "picture": ""},
        # Alternate both kinds, so that the index page, which shows the first entries, has some of each.
        **{"advice": [text for pair in itertools.zip_longest(wrong, broken) for text in pair if text]},
        **{"cells": len(parts["claims"]), "of": "claim", "failed": 0, "invalid": 0},
    }
    write_json(page.files / "answers.json", answers)


def format_headline(parts: dict[str, pd.DataFrame], source: str = "published") -> str:
    """Format a summary in bold: how many claims hold, derived numbers are reproducible, and rules are broken.

    Args:
        parts: tables of the audit by name.
        source: "published" if all published data are available, otherwise "available".
    """
    outcomes = parts["claims"]["outcome"].value_counts()
    counted = [
        f"{outcomes[outcome]} {singular if outcomes[outcome] == 1 else plural}"
        for outcome, (singular, plural) in _HELD.items()
        if outcome in outcomes
    ]
    computed = len(parts["claims"]) - outcomes.get(claims.UNKNOWN, 0)
    derived = parts["derived"]
    cells = int(derived.drop_duplicates(["table", "column"])["cells"].sum()) if len(derived) else 0
    wrong = int((derived["row"].fillna("") != "").sum()) if len(derived) else 0
    reproduced = f"{cells - wrong:,} of {cells:,}" if wrong else f"All {cells:,}"
    figures = f" {reproduced} derived figures can be reproduced." if cells else ""
    claimed = prose.format_count(len(parts["claims"]), "claim")
    listed = f": {prose.format_list(counted)}" if counted else ""
    judged = parts["rules"].groupby("rule")["outcome"].agg(set)
    broken = sum(rules.BROKEN in outcomes for outcomes in judged)
    tested = sum(outcomes != {rules.UNTOLD} for outcomes in judged)
    measured = f" Broken rules: {broken} of {tested} testable." if tested else ""
    return bold(f"{computed} of {claimed} are testable with the {source} data{listed}.{figures}{measured}")


def list_conclusions(source: dict, parts: dict[str, pd.DataFrame]) -> list[str]:
    """Format each claim in the study's conclusion with its outcome and the computed values."""
    rows = parts["claims"].set_index("id", drop=False).loc[source["conclusion"]].to_dict("records")
    return [_format_conclusion(row) for row in rows]


def _format_conclusion(row: dict) -> str:
    where = f" ({', '.join(filter(None, (row['where'], row['id'])))})"
    computed = f"; {_format_values(row)}" if row["computed"] else ""
    why = f" ({row['why']})" if row["why"] else ""
    return f"“{row['quote']}”{where}: {bold(row['outcome'])}{why}{computed}."


def list_contradicted(table: pd.DataFrame) -> list[str]:
    """Format the first four claims that do not hold, with their computed values."""
    rows = table[table["outcome"] == claims.NOT].head(_MOST).to_dict("records")
    return [f"“{row['quote']}”: {_format_values(row)}." for row in rows]


def _format_values(row: dict) -> str:
    """Format the claimed and the computed value of a claim."""
    claimed, computed, unit = _format_value(row["printed"]), row["computed"], row["unit"]
    if not unit.startswith("factor"):
        return f"claimed {claimed} {unit}".rstrip() + f", computed {computed}"
    ratio = unit.removeprefix("factor").lstrip(", ").removeprefix("of ")
    return f"claimed {claimed}×{f' ({ratio})' if ratio else ''}, computed {computed}×"


def _format_value(printed: str) -> str:
    return printed.replace("<=", "≤ ").replace(">=", "≥ ").replace("..", " to ")


def list_broken_rules(table: pd.DataFrame) -> list[str]:
    """Format each broken rule with the first table that breaks it; the rule on repeats comes last."""
    rows = table[table["outcome"] == rules.BROKEN].drop_duplicates("rule")
    rows = rows.sort_values("rule", key=lambda names: names == rules.REPEATS, kind="stable").to_dict("records")
    return [f"Broken rule “{row['rule']}” (METHOD {row['method']}): {row['data']}." for row in rows]


def _build_claims_table(table: pd.DataFrame) -> Table:
    frame = table[["quote", "where", "printed", "unit", "computed", "outcome", "why"]].fillna("")
    frame = frame.assign(printed=frame["printed"].map(_format_value)).rename(columns={"printed": "claimed"})
    caption = (
        "Every sentence of the study that compares, quantifies or explains. Claimed: the printed value, or the "
        "auditor's reading of the words. Computed: the values from the published data. A printed value represents all "
        "numbers that round to it."
    )
    over, meaning = _choose_colours(table), "does not hold, or holds in part"
    return Table("claims", caption, frame, over=over, meaning=meaning, numbers=table, in_markdown=len(frame))


def _build_rules_table(table: pd.DataFrame) -> Table:
    caption = (
        "Rules of docs/method.md, by number, tested on the published tables. A rule without its inputs is not "
        "testable: the row names the missing inputs. An arm is a side of a comparison, a cell a combination of levels."
    )
    return Table("rules", caption, table.fillna(""), over=_choose_colours(table), meaning="broken")


def _build_labels_table(table: pd.DataFrame) -> Table:
    frame = table[[name for name in label_audit.COLUMNS if name != "data"]].fillna("")
    frame = frame.rename(columns={"says": "stated"})
    caption = (
        "Labels of the study, the value that a label states, the value computed from the data (if a table has it), and "
        "the correct label."
    )
    meaning = "the data contradict the label"
    return Table("labels", caption, frame, over=_choose_colours(table), meaning=meaning, numbers=table)


def _build_setup_table(table: pd.DataFrame) -> Table:
    caption = "Machines, software and settings as the study reports them, or unknown."
    return Table("setup", caption, table.fillna("").rename(columns={"what": "property"}), numbers=table)


def _choose_colours(table: pd.DataFrame) -> dict[str, list[str]]:
    return {"outcome": [_COLOURS.get(outcome, "") for outcome in table["outcome"]]}


def _build_derived_table(table: pd.DataFrame) -> Table:
    wrong = table[table["row"].fillna("") != ""]
    rules = dict.fromkeys(f"{row['column']} = {row['expression']}" for row in wrong.to_dict("records"))
    frame = wrong[["table", "column", "row", "printed", "recomputed", "least", "most", "percent"]]
    frame = frame.assign(printed=frame["printed"].astype(float))
    caption = (
        f"Printed figures outside the range, least to most, that rounding of their inputs allows. {'; '.join(rules)}."
    )
    formats = {**dict.fromkeys(("printed", "recomputed", "least", "most"), "{:g}".format), "percent": "{:+.2f}".format}
    return Table("derived", caption, frame, formats, numbers=wrong)
