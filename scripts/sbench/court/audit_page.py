"""The page that audits a published study: what its data say of what it says."""

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


def show(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Show the audit of a study whose tables are in a folder, and leave its answers for the index."""
    folder, said = Path(tables) / "audit", read_facts(facts)
    parts = {name: read_table(folder / f"{name}.csv", _TEXTS) for name in _PARTS}
    source, limits = said["published"], said.get("limits") or []
    page.text(heading(1, f"What the data say of “{source['title']}”"))
    made = [source["by"], "" if source["date"] == "unknown" else source["date"]]
    links = [link("the study", source["address"])]
    links.append(link("its data on a page of this project", f"{said['study']}.html"))
    links.append(link("all published studies", "index.html"))
    page.text(" · ".join(filter(None, [*made, *links])))
    answer = headline(parts, "here" if limits else "published")
    wrong, broken = contradicted(parts["claims"]), not_kept(parts["rules"])
    page.text(quotation(said["question"]), paragraph(answer))
    page.section("What the study concludes, and what its data support", bullets(concluded(source, parts)))
    page.section("What does not hold", bullets(wrong))
    page.section("How it was measured", bullets(broken))
    page.text(bullets(f"{prose.capital(line)}." for line in limits))
    for title, table, part, nothing in (
        ("Rules of measuring", _rules, "rules", "No table is declared."),
        ("Claims", _claims, "claims", "No claim was gathered."),
        ("Figures that do not follow from those beside them", _derived, "derived", "None."),
        ("Labels that do not say what the data are", _labels, "labels", "None."),
        ("Setup as printed", _setup, "setup", "Nothing is printed."),
    ):
        page.text(heading(2, title))
        page.table(table(parts[part]), nothing)
    answers = {
        **{"study": said["study"], "title": source["title"], "question": said["question"], "run": ""},
        **{"source": "Published studies, audited", "caution": "", "headline": answer, "picture": ""},
        # The first page has the first of each kind.
        **{"advice": [text for pair in itertools.zip_longest(wrong, broken) for text in pair if text]},
        **{"cells": len(parts["claims"]), "of": "claim", "failed": 0, "invalid": 0},
    }
    write_json(page.files / "answers.json", answers)


def headline(parts: dict[str, pd.DataFrame], source: str = "published") -> str:
    """Return in one bold sentence how many claims hold, figures agree with others, and rules are broken.

    `source` is what there is: all that is published, or what of it is here.
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
    figures = f"; {cells - wrong:,} of {cells:,} printed figures agree with those beside them" if cells else ""
    claimed = prose.count(len(parts["claims"]), "claim")
    listed = f": {prose.listing(counted)}" if counted else ""
    judged = parts["rules"].groupby("rule")["outcome"].agg(set)
    broken = sum(rules.BROKEN in outcomes for outcomes in judged)
    tested = sum(outcomes != {rules.UNTOLD} for outcomes in judged)
    measured = f"; {broken} of {tested} testable rules broken" if tested else ""
    return bold(f"{computed} of {claimed} can be computed from what is {source}{listed}{figures}{measured}.")


def concluded(source: dict, parts: dict[str, pd.DataFrame]) -> list[str]:
    """Return each claim that is the study's conclusion with what was computed of it."""
    rows = parts["claims"].set_index("id", drop=False).loc[source["conclusion"]].to_dict("records")
    return [_concluded(row) for row in rows]


def _concluded(row: dict) -> str:
    where = f" ({', '.join(filter(None, (row['where'], row['id'])))})"
    computed = f", claimed {_claimed(row)}, computed {row['computed']}" if row["computed"] else ""
    why = f" ({row['why']})" if row["why"] else ""
    return f"“{row['quote']}”{where}: {bold(row['outcome'])}{why}{computed}."


def contradicted(table: pd.DataFrame) -> list[str]:
    """Return the claims that do not hold, with what was computed, at most four."""
    rows = table[table["outcome"] == claims.NOT].head(_MOST).to_dict("records")
    return [f"“{row['quote']}”: claimed {_claimed(row)}, computed {row['computed']}." for row in rows]


def _claimed(row: dict) -> str:
    """What a claim says, or is read as, with its unit."""
    return f"{_value(row['printed'])} {row['unit']}".strip()


def _value(printed: str) -> str:
    return printed.replace("<=", "≤ ").replace(">=", "≥ ").replace("..", " to ")


def not_kept(table: pd.DataFrame) -> list[str]:
    """Return the rules that are broken, each with the first table that breaks it; last that of too few repeats."""
    rows = table[table["outcome"] == rules.BROKEN].drop_duplicates("rule")
    rows = rows.sort_values("rule", key=lambda names: names == rules.REPEATS, kind="stable").to_dict("records")
    return [f"Broken: {row['rule']} (METHOD {row['method']}): {row['data']}." for row in rows]


def _claims(table: pd.DataFrame) -> Table:
    frame = table[["quote", "where", "printed", "unit", "computed", "outcome", "why"]].fillna("")
    frame = frame.assign(printed=frame["printed"].map(_value)).rename(columns={"printed": "claimed"})
    caption = (
        "Every sentence that compares, quantifies or explains, as printed, with the value that it has, or that its "
        "words are read as, and the values that follow from the published data; a printed value stands for all that it "
        "could be rounded from."
    )
    over, meaning = _coloured(table), "does not hold, or only in part"
    return Table("claims", caption, frame, over=over, meaning=meaning, numbers=table, in_markdown=len(frame))


def _rules(table: pd.DataFrame) -> Table:
    caption = (
        "Rules of docs/method.md by their number, tested on the published tables; what a rule lacks is said. Arms are "
        "what a comparison compares, a cell is a combination of levels."
    )
    return Table("rules", caption, table.fillna(""), over=_coloured(table), meaning="broken")


def _labels(table: pd.DataFrame) -> Table:
    frame = table[[name for name in label_audit.COLUMNS if name != "data"]].fillna("")
    caption = "Labels as printed, what they say, what the data say where that can be computed, and what is right."
    meaning = "what the label says is not in the data"
    return Table("labels", caption, frame, over=_coloured(table), meaning=meaning, numbers=table)


def _setup(table: pd.DataFrame) -> Table:
    return Table("setup", "What the study says of what it was measured with.", table.fillna(""))


def _coloured(table: pd.DataFrame) -> dict[str, list[str]]:
    return {"outcome": [_COLOURS.get(outcome, "") for outcome in table["outcome"]]}


def _derived(table: pd.DataFrame) -> Table:
    wrong = table[table["row"].fillna("") != ""]
    rules = dict.fromkeys(f"{row['column']} = {row['expression']}" for row in wrong.to_dict("records"))
    frame = wrong[["table", "column", "row", "printed", "recomputed", "least", "most", "percent"]]
    frame = frame.assign(printed=frame["printed"].astype(float))
    caption = f"Printed figures outside what the others allow, however these were rounded. {'; '.join(rules)}."
    formats = {**dict.fromkeys(("printed", "recomputed", "least", "most"), "{:g}".format), "percent": "{:+.2f}".format}
    return Table("derived", caption, frame, formats, numbers=wrong)
