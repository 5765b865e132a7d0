"""The page of a bisect: between which releases the change is, in requests and bytes, and what else differs there."""

import pandas as pd

from sbench.files import words
from sbench.pages import cell_figures, names, pages, prose
from sbench.pages.headline import Said
from sbench.pages.markup import bold, bullets, code
from sbench.pages.page import Page, Table
from sbench.pages.plot import Figure
from sbench.pages.results import Results
from sbench.studies.shots.report import reads

MIB = 2**20


def answer(run: Results) -> pages.Answer | None:
    """Return the answer of a run that is a bisect; None of other runs."""
    if not (section := _section(run)):
        return None
    headline = {"changed": _changed, "same": _same, "undecided": _undecided}[section["outcome"]](run)
    return pages.Answer(bold(headline), _next(section, run), _picture(run))


def why(run: Results) -> list[Said]:
    """Return what else differs between the releases with the change between them, in a sentence."""
    section = _section(run)
    if section.get("outcome") != "changed":
        return []
    differs = [f"{name} {old} → {new}" for name, old, new in section["differs"]]
    pair = f"{section['package']} {section['before']} and {section['after']}"
    return [(words.fill("these differ" if differs else "nothing differs", pair=pair, differs=", ".join(differs)), ())]


def show(page: Page, run: Results) -> None:
    """Show the releases that were measured, and what a reader types to see the same, where a run is a bisect."""
    if section := _section(run):
        page.table(_releases(run), "")
        skipped, others = section["skipped"].items(), section["others"]
        lines = [words.fill("skipped", release=release, reason=reason) for release, reason in skipped]
        lines += [words.fill("other change", before=before, after=after) for before, after in others]
        page.section("Not measured, and other changes", bullets(lines))
        page.section("What was read, in this order", bullets(reads.sentences(run)))


def _section(run: Results) -> dict:
    return (run.facts.get("settings") or {}).get("bisect") or {}


def _cell(run: Results, release: str) -> pd.Series | None:
    library = _section(run)["libraries"].get(release)
    own = run.measured[run.measured["library"] == library]
    return own.iloc[0] if len(own) else None


def _counts(run: Results, *releases: str) -> str:
    """Return requests and bytes of releases, as "111 → 4 requests and 513 → 24.0 MiB"."""
    cells = [cell for cell in (_cell(run, release) for release in releases) if cell is not None]
    requests = " → ".join(f"{cell['requests']:,.0f}" for cell in cells)
    sizes = " → ".join(names.rate(cell["bytes_offered"] / MIB) for cell in cells)
    return words.fill("requests and bytes", requests=requests, sizes=sizes)


def _said(section: dict) -> dict[str, str]:
    return {name: section[name] for name in ("package", "before", "after", "metric")}


def _changed(run: Results) -> str:
    section = _section(run)
    skipped = words.fill("or skipped", releases=", ".join(section["skipped"])) if section["skipped"] else ""
    times = f"{_times(run)}, " if section["metric"] == "seconds" else ""
    counts = _counts(run, section["before"], section["after"])
    return words.fill("changed", **_said(section), skipped=skipped, times=times, counts=counts)


def _times(run: Results) -> str:
    """Return the median times of both releases and their ratio, as "6.72 → 0.673 s (0.10 [0.0954, 0.10])"."""
    section, row = _section(run), _pair_row(run)
    both = (_cell(run, section[end])["total_s"] for end in ("before", "after"))
    ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"]) if row is not None else ""
    return f"{' → '.join(map(prose.number, both))} s{f' ({ratio})' if ratio else ''}"


def _same(run: Results) -> str:
    section = _section(run)
    return words.fill("unchanged", **_said(section), counts=_counts(run, section["after"]))


def _undecided(run: Results) -> str:
    section = _section(run)
    counts = _counts(run, section["before"], section["after"])
    reason = f"; {section['unconfirmed']}" if section.get("unconfirmed") else ""
    return words.fill("where undecided", **_said(section), counts=counts, reason=reason)


def _next(section: dict, run: Results) -> list[str]:
    """Return what to type: the bisect itself, both releases once more, and what packs and cites it."""
    name = run.facts["run"]
    both = ",".join(section["libraries"].get(section[end], "") for end in ("before", "after"))
    again = f"sbench run results/{name}/bisect.yaml --name {name}-again --only library={both}"
    archive, cite = code(f"sbench archive {name}"), code(f"sbench archive {name} --cite")
    return [
        words.fill("same again", command=code(section["command"])),
        words.fill("both again", command=code(again)),
        words.fill("archive and cite", archive=archive, cite=cite),
    ]


def _pair_row(run: Results) -> pd.Series | None:
    section, compared = _section(run), run.comparisons()
    both = [section["libraries"].get(section[end], "") for end in ("before", "after")]
    own = compared[(compared["baseline"] == both[0]) & (compared["contender"] == both[1])]
    return own.iloc[0] if len(own) else None


def _picture(run: Results) -> Figure:
    """Return the requests of both releases, one by one, whether or not their times are compared."""
    both = [_cell(run, _section(run)[end]) for end in ("before", "after")]
    if any(cell is None for cell in both):
        return Figure("requests-in-time", "Requests, one by one", "", (), pd.DataFrame())
    states = " | ".join(dict.fromkeys(run.states(pd.DataFrame(both))))
    sides = zip(("baseline", "contender"), both, strict=True)
    pair = {key: cell[of] for side, cell in sides for key, of in ((side, "library"), (f"{side}_cell", "cell"))}
    return cell_figures.waterfall(
        run, both[1][list(run.report.names)].to_dict() | pair | {"factor": "library", "state": states}
    )


def _releases(run: Results) -> Table:
    section, lines = _section(run), []
    for release in section["releases"]:
        if (cell := _cell(run, release)) is not None:
            mark = {section["before"]: "before", section["after"]: "after"}.get(release, "")
            counts = {"requests": cell["requests"], "MiB": cell["bytes_offered"] / MIB, "time / s": cell["total_s"]}
            lines.append({section["package"]: release, **counts, "the change is between": mark})
    releases = prose.count(len(lines), "release")
    caption = words.fill("table of releases", releases=releases, of=len(section["releases"]))
    formats = {"requests": "{:,.0f}".format, "MiB": names.rate, "time / s": prose.number}
    return Table("releases", caption, pd.DataFrame(lines), formats)
