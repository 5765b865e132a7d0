"""Print the citation of a run, with its permanent name, or write its configuration."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from sbench.design import DEFAULT_CONFIG
from sbench.design import config as configuration
from sbench.design.matrix import build_permanent_name
from sbench.probe.program import escape_text, read_json, read_yaml, write_text
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
    with _open_run(source) as results:
        text = format_citation(results, by)
    print(*text.splitlines(), sep="\n")
    if not by:
        print(f"replace {_NOBODY} by your name, or add --by 'Ada Lovelace'", file=sys.stderr)
    return 0


def write_config(source: str, out: Path) -> int:
    """Write the configuration of a run, with all defaults, to a YAML file, and return exit status 0.

    Args:
        source: name or archive of the run; an empty string for the run configured in config/config.yaml.
        out: the file.
    """
    with _open_run(source) as results:
        configs = [read_json(results / study / "facts.json")["config"] for study in archive.read_study_names(results)]
    studies = {name: values for config in configs for name, values in config["studies"].items()}
    text = yaml.safe_dump(configs[0] | {"studies": studies}, sort_keys=False, width=120, default_flow_style=None)
    write_text(out, text)
    print(f"{out}: sbench run {out} --name NAME measures it")
    return 0


@contextlib.contextmanager
def _open_run(source: str) -> Iterator[Path]:
    """Yield the results folder of a run or an archive, for a `with` block."""
    if not source.endswith(archive.SUFFIX):
        yield Path("results", source or configuration.load_config(DEFAULT_CONFIG)["run"])
        return
    with archive.open_archive(Path(source)) as (results, manifest):
        # Do not trust the metadata in the archive: regenerate them from the records.
        archive.make_tables_again(results, manifest, Path(source))
        yield results


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
