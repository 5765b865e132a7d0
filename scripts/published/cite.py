"""Says how to cite a run: a sentence and an entry for BibTeX, with its permanent name."""

import argparse
import sys
from pathlib import Path

from scripts.frame import config as configuration
from scripts.frame.matrix import permanent_name
from scripts.lib.program import read_json, read_yaml, run, shown
from scripts.published import archive

# No file says who measured: CITATION.cff is about the software.
_NOBODY = "NAME"
_ENTRY = """@misc{{{name},
  author = {{{by}}},
  title = {{{{Measurements {title}: {about}}}}},
  year = {{{year}}},
  note = {{Measured with {tool} {version}, commit {commit}; {names}}}
}}"""


def main(argv: list[str] | None = None) -> int:
    """Print how to cite the run that a configuration names, or an archive of one."""
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.published.cite", description=__doc__)
    parser.add_argument("--configfile", default="config/config.yaml", help="the configuration, which names the run")
    parser.add_argument("--run", default="", help="name of the run, in place of the configured one")
    parser.add_argument("--from", dest="source", type=Path, metavar="ARCHIVE", help="cite this archive")
    parser.add_argument("--by", default="", help="who measured it, as a citation names them")
    given = parser.parse_args(argv)
    if given.source:
        with archive.opened(given.source) as (results, manifest):
            # Facts may say anything: those of the records are made again.
            archive.gather(results, manifest, given.source)
            text = cited(results, given.by)
    else:
        name = configuration.load(given.configfile, {"run": given.run} if given.run else {})["run"]
        text = cited(Path("results", name), given.by)
    print(*text.splitlines(), sep="\n")
    if not given.by:
        print(f"write who measured in place of {_NOBODY}, or type the same with BY='Ada Lovelace'", file=sys.stderr)
    return 0


def cited(results: Path, by: str) -> str:
    """Return the sentence and the entry for a run, by its folder of results and who measured, which only they know."""
    studies, tool = archive.names_of(results), read_yaml(archive.CITATION)
    facts = [read_json(results / study / "facts.json") for study in studies]
    days = sorted({shown(str(session)[:10]) for of_study in facts for session in of_study["sessions"]})
    commits = sorted({shown(str(commit)[:12]) for of_study in facts for commit in of_study["git"]}) or ["unknown"]
    name = permanent_name(results.name, sorted(studies.values()))
    said = {
        # LaTeX takes a _ for an index.
        **{"name": name, "title": name.replace("_", r"\_")},
        **{"about": ", ".join(studies), "names": ", ".join(studies.values()), "by": by or _NOBODY},
        **{"tool": tool["title"], "version": tool["version"], "commit": " and ".join(commits)},
        "year": (days or ["n.d."])[-1][:4],
        "days": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "unknown date",
    }
    sentence = "{by}: measurements {name} ({about}), {days}, with {tool} {version}, commit {commit}."
    return f"{sentence.format(**said)}\n\n{_ENTRY.format(**said)}"


if __name__ == "__main__":
    run(main)
