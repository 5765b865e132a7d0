"""Build the page of a bisection: the releases around the change, their requests and bytes, and other differences."""

import pandas as pd

from sbench.files import words
from sbench.pages import cell_figures, names, pages, prose
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, bullets, code
from sbench.pages.page import Page, Table
from sbench.pages.plot import Figure
from sbench.pages.results import Results
from sbench.studies.shots.report import reads

MIB = 2**20


def build_answer(run: Results) -> pages.Answer | None:
    """Build the headline, next steps and figure of a bisection; return None if the run is not a bisection."""
    if not (section := _get_section(run)):
        return None
    headline = {"changed": _describe_change, "same": _describe_same, "undecided": _describe_undecided}[
        section["outcome"]
    ](run)
    return pages.Answer(bold(headline), _list_next_steps(section, run), _draw_requests(run))


def list_differences(run: Results) -> list[Sentence]:
    """Return a list with one sentence on the other differences between both libraries; empty without a change."""
    section = _get_section(run)
    if section.get("outcome") != "changed":
        return []
    differs = [f"{name} {old} → {new}" for name, old, new in section["differs"]]
    pair = f"{section['package']} {section['before']} and {section['after']}"
    return [(words.fill("these differ" if differs else "nothing differs", pair=pair, differs=", ".join(differs)), ())]


def show_releases(page: Page, run: Results) -> None:
    """Render the measured and skipped releases, further changes, and the order of reads.

    Do nothing if the run is not a bisection.
    """
    if section := _get_section(run):
        page.show_table(_build_releases_table(run), "")
        skipped, others = section["skipped"].items(), section["others"]
        lines = [words.fill("skipped", release=release, reason=reason) for release, reason in skipped]
        lines += [words.fill("other change", before=before, after=after) for before, after in others]
        page.show_section("Skipped releases and other changes", bullets(lines))
        page.show_section("Order of the reads", bullets(reads.describe_orders(run)))


def _get_section(run: Results) -> dict:
    return (run.facts.get("settings") or {}).get("bisect") or {}


def _find_cell(run: Results, release: str) -> pd.Series | None:
    library = _get_section(run)["libraries"].get(release)
    own = run.measured[run.measured["library"] == library]
    return own.iloc[0] if len(own) else None


def _format_counts(run: Results, *releases: str) -> str:
    """Format the requests and bytes of releases, as in "111 → 4 requests and 513 → 24.0 MiB"."""
    cells = [cell for cell in (_find_cell(run, release) for release in releases) if cell is not None]
    requests = " → ".join(f"{cell['requests']:,.0f}" for cell in cells)
    sizes = " → ".join(names.format_rate(cell["bytes_offered"] / MIB) for cell in cells)
    return words.fill("requests and bytes", requests=requests, sizes=sizes)


def _get_fields(section: dict) -> dict[str, str]:
    return {name: section[name] for name in ("package", "before", "after", "metric")}


def _describe_change(run: Results) -> str:
    section = _get_section(run)
    skipped = words.fill("or skipped", releases=", ".join(section["skipped"])) if section["skipped"] else ""
    times = f"{_format_times(run)}, " if section["metric"] == "seconds" else ""
    counts = _format_counts(run, section["before"], section["after"])
    return words.fill("changed", **_get_fields(section), skipped=skipped, times=times, counts=counts)


def _format_times(run: Results) -> str:
    """Format the median times of both releases and their ratio, as in "6.72 → 0.673 s (0.10 [0.0954, 0.10])"."""
    section, row = _get_section(run), _find_pair_row(run)
    both = (_find_cell(run, section[end])["total_s"] for end in ("before", "after"))
    ratio = (
        names.format_ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"]) if row is not None else ""
    )
    return f"{' → '.join(map(prose.format_number, both))} s{f' ({ratio})' if ratio else ''}"


def _describe_same(run: Results) -> str:
    section = _get_section(run)
    return words.fill("unchanged", **_get_fields(section), counts=_format_counts(run, section["after"]))


def _describe_undecided(run: Results) -> str:
    section = _get_section(run)
    counts = _format_counts(run, section["before"], section["after"])
    reason = f"; {section['unconfirmed']}" if section.get("unconfirmed") else ""
    return words.fill("where undecided", **_get_fields(section), counts=counts, reason=reason)


def _list_next_steps(section: dict, run: Results) -> list[str]:
    """List the commands to repeat the bisection, to measure both releases again, to archive and to cite the run."""
    name = run.facts["run"]
    both = ",".join(section["libraries"].get(section[end], "") for end in ("before", "after"))
    again = f"sbench run results/{name}/bisect.yaml --name {name}-again --only library={both}"
    archive, cite = code(f"sbench archive {name}"), code(f"sbench archive {name} --cite")
    return [
        words.fill("same again", command=code(section["command"])),
        words.fill("both again", command=code(again)),
        words.fill("archive and cite", archive=archive, cite=cite),
    ]


def _find_pair_row(run: Results) -> pd.Series | None:
    section, compared = _get_section(run), run.get_comparisons()
    both = [section["libraries"].get(section[end], "") for end in ("before", "after")]
    own = compared[(compared["baseline"] == both[0]) & (compared["contender"] == both[1])]
    return own.iloc[0] if len(own) else None


def _draw_requests(run: Results) -> Figure:
    """Draw a timeline of all requests for both releases, even if the run does not compare their times."""
    both = [_find_cell(run, _get_section(run)[end]) for end in ("before", "after")]
    if any(cell is None for cell in both):
        return Figure("requests-in-time", "Timeline of requests", "", (), pd.DataFrame())
    states = " | ".join(dict.fromkeys(run.get_cache_states(pd.DataFrame(both))))
    sides = zip(("baseline", "contender"), both, strict=True)
    pair = {key: cell[of] for side, cell in sides for key, of in ((side, "library"), (f"{side}_cell", "cell"))}
    return cell_figures.draw_waterfall(
        run, both[1][list(run.report.names)].to_dict() | pair | {"factor": "library", "state": states}
    )


def _build_releases_table(run: Results) -> Table:
    section, lines = _get_section(run), []
    for release in section["releases"]:
        if (cell := _find_cell(run, release)) is not None:
            mark = {section["before"]: "before", section["after"]: "after"}.get(release, "")
            counts = {"requests": cell["requests"], "MiB": cell["bytes_offered"] / MIB, "time / s": cell["total_s"]}
            lines.append({section["package"]: release, **counts, "the change is between": mark})
    releases = prose.format_count(len(lines), "release")
    caption = words.fill("table of releases", releases=releases, of=len(section["releases"]))
    formats = {"requests": "{:,.0f}".format, "MiB": names.format_rate, "time / s": prose.format_number}
    return Table("releases", caption, pd.DataFrame(lines), formats)
