"""Format the citation of a run as a sentence and a BibTeX entry, with the run's permanent name."""

import sys
from pathlib import Path

from sbench.design.matrix import build_permanent_name
from sbench.probe.program import escape_text, read_json, read_yaml
from sbench.runs import archive

# Placeholder for the authors: no file contains them, because CITATION.cff is about the software.
_NOBODY = "NAME"
_ENTRY = """@misc{{{name},
  author = {{{by}}},
  title = {{{{Measurements {title}: {about}}}}},
  year = {{{year}}},
  note = {{Measured with {tool} {version}, {code}; {names}}}
}}"""


def print_citation(source: str, by: str) -> int:
    """Print the citation of a run, and return exit status 0.

    Args:
        source: name or archive of the run; an empty string for the run configured in config/config.yaml.
        by: authors of the measurements, formatted for a citation; if empty, a placeholder is printed.
    """
    with archive.open_run(source) as results:
        text = format_citation(results, by)
    print(*text.splitlines(), sep="\n")
    if not by:
        print(f"replace {_NOBODY} by your name, or add --by 'Ada Lovelace'", file=sys.stderr)
    return 0


def _describe_commits(commits: list[str]) -> str:
    """Describe the commits of the measuring code; an installed package has no known commit."""
    return "as a package" if commits == ["no clone"] else f"commit {' and '.join(commits) or 'unknown'}"


def format_citation(results: Path, by: str) -> str:
    """Format the citation of a run as a sentence and a BibTeX entry.

    Args:
        results: the run's results folder.
        by: authors of the measurements; if empty, a placeholder.
    """
    studies, tool = archive.read_study_names(results), read_yaml(archive.CITATION)
    facts = [read_json(results / study / "facts.json") for study in studies]
    days = sorted({escape_text(str(session)[:10]) for of_study in facts for session in of_study["sessions"]})
    commits = sorted({escape_text(str(commit)[:12]) for of_study in facts for commit in of_study["git"]})
    name = build_permanent_name(results.name, sorted(studies.values()))
    fields = {
        # Escaped, because LaTeX interprets _ as a subscript.
        **{"name": name, "title": name.replace("_", r"\_")},
        **{"about": ", ".join(studies), "names": ", ".join(studies.values()), "by": by or _NOBODY},
        **{"tool": tool["title"], "version": tool["version"], "code": _describe_commits(commits)},
        "year": (days or ["n.d."])[-1][:4],
        "days": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "unknown date",
    }
    sentence = "{by}: measurements {name} ({about}), {days}, with {tool} {version}, {code}."
    return f"{sentence.format(**fields)}\n\n{_ENTRY.format(**fields)}"
