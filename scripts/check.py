"""Says what failed, moves it aside so that the next call does just that again, and ends with status 1 then."""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.frame import records
from scripts.lib.program import expect_room, run, write_json, write_text


def main(argv: list[str] | None = None) -> int:
    """Check all artefacts of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", required=True, type=Path, help="the run's folder in results/")
    parser.add_argument("--reports", required=True, type=Path, help="the run's folder in reports/")
    parser.add_argument("--log", required=True, type=Path, help="the file to which the messages are written too")
    parser.add_argument("--out", required=True, type=Path, help="written where nothing failed, JSON")
    arguments = parser.parse_args(argv)
    failed = failures(arguments.results, artefacts(arguments.results))
    if not failed:
        write_json(arguments.out, {"status": "done"})
        return 0
    by_reason: dict[str, list[Path]] = defaultdict(list)
    skipped = set(filter(records.skipped, failed))
    for path, reasons in failed.items():
        if path not in skipped:
            by_reason["; ".join(reasons)].append(path)
    attempt = move_aside(arguments.results, failed)
    many = len(failed) - len(skipped)
    outcome = f"{many} step{'s' * (many != 1)} failed" + (f", {len(skipped)} skipped" if skipped else "")
    lines = [f"{outcome}; the report shows the rest: {arguments.reports}/index.html"]
    for reason, paths in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines += [f"  {reason}", f"    {paths[0]}{more}"]
    lines.append(f"They were moved to {attempt}; the next call does just these again.")
    print("\n".join(lines), file=sys.stderr)
    write_text(arguments.log, "\n".join(lines) + "\n")
    return 1


def failures(results: Path, paths: Iterable[Path]) -> dict[Path, list[str]]:
    """Return the artefacts of a run that say they failed, and the records that cannot be used, with the reasons."""
    return {path: reasons for path in paths if (reasons := records.reasons(path, results, results.name))}


def artefacts(results: Path) -> Iterator[Path]:
    """Yield all artefacts of a run: of environments, data and imports, then records."""
    for pattern in ("environments/*.json", "data/*/*.json", "*/ready.json", "*/imported.json"):
        yield from sorted(results.glob(pattern))
    for cell in sorted(results.glob("*/records/*/")):
        yield from (path for _, path in records.repeats(cell))


def left_behind(results: Path) -> Iterable[Path]:
    """Return the artefacts that say they failed, found without reading all of the others."""

    def may_have_failed(path: Path) -> bool:
        with open(path, "rb") as file:
            return b'"failed"' in file.read(4096)

    return failures(results, filter(may_have_failed, artefacts(results)))


def move_aside(results: Path, paths: Iterable[Path], aside: str = "failed") -> Path:
    """Move artefacts, or folders of them, to `results`/`aside`/<now>/…, so that they are made again; return that."""
    attempt = results / aside / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for path in paths:
        target = attempt / path.relative_to(results)
        expect_room(target)
        path.rename(target)
    return attempt


if __name__ == "__main__":
    run(main)
