"""Says what failed, moves it aside so that the next call does just that again, and ends with status 1 then."""

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

from scripts.lib.program import Problem, read_json, run, write_json, write_text


def main(argv: list[str] | None = None) -> int:
    """Check all artefacts of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", required=True, type=Path, help="the run's folder in results/")
    parser.add_argument("--reports", required=True, type=Path, help="the run's folder in reports/")
    parser.add_argument("--log", required=True, type=Path, help="file that gets what is said")
    parser.add_argument("--out", required=True, type=Path, help="written where nothing failed, JSON")
    arguments = parser.parse_args(argv)
    failed = failures(arguments.results)
    if not failed:
        write_json(arguments.out, {"status": "done"})
        return 0
    attempt = arguments.results / "failed" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    by_reason: dict[str, list[Path]] = defaultdict(list)
    for path, artefact in failed.items():
        by_reason["; ".join(artefact.get("reasons", ["no reason given"]))].append(path)
        target = attempt / path.relative_to(arguments.results)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    lines = [f"{len(failed)} steps failed; the report shows the rest: {arguments.reports}/index.html"]
    for reason, paths in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines += [f"  {reason}", f"    {paths[0]}{more}"]
    lines.append(f"They were moved to {attempt}; the next call does just these again.")
    print("\n".join(lines), file=sys.stderr)
    write_text(arguments.log, "\n".join(lines) + "\n")
    return 1


def failures(results: Path) -> dict[Path, dict]:
    """Return the artefacts of a run that say they failed."""
    patterns = (
        "environments/*.json",
        "data/*/*.json",
        "*/ready.json",
        "*/imported.json",
        "*/records/*/repeat=*.json",
    )
    found = {}
    for pattern in patterns:
        for path in sorted(results.glob(pattern)):
            try:
                artefact = read_json(path)
            except Problem as problem:
                artefact = {"status": "failed", "reasons": [str(problem)]}
            if artefact.get("status") == "failed":
                found[path] = artefact
    return found


if __name__ == "__main__":
    run(main)
