"""Measure the arms of a claim in blocks, over each emulated network, and write a row per run.

For a claim with cells, take the verdicts of its run.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pandas as pd

from sbench.build.shell import get_clean_environment
from sbench.court.tested_claim import Arm, TestedClaim, load_claim, read_commit, read_facts
from sbench.files import buckets, budget
from sbench.files.script_runs import find_reason
from sbench.probe import host, page_cache
from sbench.probe.processes import run_process
from sbench.probe.program import Problem, read_json, run_main, shorten_name, write_json
from sbench.stores import network as networks

_BUCKET = "claims"
_LIMIT_S = 600
# Requests that are drawn on the page.
_TRAFFIC = 2_000


def main(argv: list[str] | None = None) -> int:
    """Measure the claim that the arguments name; write runs.csv, traffic.json and facts.json, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claim", required=True, help="name of a file in config/claims, without its ending")
    parser.add_argument(
        "--measured", required=True, nargs="+", type=Path, help="artefacts of its libraries, or verdicts"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the results")
    given = parser.parse_args(argv)
    claim = load_claim(given.claim)
    commit = read_commit(claim)
    given.out.mkdir(parents=True, exist_ok=True)
    if claim.cells:
        table, traffic = pd.concat(map(pd.read_csv, given.measured)), {}
        # Samples include those of records that break a rule of measuring; verdicts do not.
        table = table[table["valid"]] if "valid" in table else table
    else:
        built = {path.stem: read_json(path) for path in given.measured}
        with (given.out / "log").open("w", encoding="utf-8") as log:
            rows, traffic = _Measurement(claim, built, log).measure()
        table = pd.DataFrame(rows)
    table.to_csv(given.out / "runs.csv", index=False)
    write_json(given.out / "traffic.json", traffic)
    # A run with cells may have been measured earlier, on another machine.
    cells = read_facts(claim)
    days = [session[:10] for one in cells for session in one["sessions"]]
    made = {"measured": max(days, default=time.strftime("%Y-%m-%d", time.gmtime()))}
    made["machine"] = cells[0]["machine"] if cells else host.read_facts()
    write_json(given.out / "facts.json", {"claim": claim.id, **commit, **made})
    return 0


class _Measurement:
    """A measurement of all arms of a claim.

    The data are made anew for each network, so that arms that write find the same bucket in each.
    """

    def __init__(self, claim: TestedClaim, built: Mapping[str, dict], log: IO[str]) -> None:
        self._claim, self._log = claim, log
        self._pythons = {name: Path(artefact["python"]) for name, artefact in built.items()}

    def measure(self) -> tuple[list[dict], dict[str, list[dict]]]:
        """Return a row per run, and the requests of each arm's first run."""
        claim, rows, traffic = self._claim, [], {}
        with tempfile.TemporaryDirectory(prefix="sbench-claim-") as scratch:
            folder = Path(scratch, "data")
            folder.mkdir()
            if hasattr(claim.import_module(), "make_data"):
                self._call(claim.made_by or next(iter(claim.libraries)), {"folder": str(folder)}, {}, Path(scratch))
            for place, network in enumerate(claim.networks):
                with buckets.serve_buckets({_BUCKET: folder}, network, anonymous=True) as served:
                    for block in range(claim.blocks):
                        arms = list(claim.list_arms().items())
                        random.Random(f"{claim.id} {place} {block}").shuffle(arms)
                        for name, arm in arms:
                            page_cache.evict_files(path for path in folder.rglob("*") if path.is_file())
                            row, requests = self._run_arm(name, arm, served, Path(scratch))
                            rows.append({"network": place, **network, "block": block, "arm": name, **row})
                            if not block and place == len(claim.networks) - 1:
                                traffic[name] = requests[:_TRAFFIC]
        order = list(claim.arms)
        rows.sort(key=lambda row: (row["network"], order.index(row["arm"]), row["block"]))
        return rows, {name: traffic[name] for name in order}

    def _run_arm(self, name: str, arm: Arm, served: buckets.Buckets, scratch: Path) -> tuple[dict, list[dict]]:
        print(f"## {name}", file=self._log, flush=True)
        numbers = self._call(arm.library, {"options": dict(arm.options)}, served.variables, scratch, served)
        requests = served.read_requests()
        passed = requests.passed
        row = {"library": arm.library} | budget.count_totals(requests) | networks.compute_in_flight(passed) | numbers
        return row, passed["exchanges"]

    def _call(
        self,
        library: str,
        task: dict,
        variables: Mapping[str, str],
        scratch: Path,
        served: buckets.Buckets | None = None,
    ) -> dict:
        """Run a task in the interpreter of a library, and return its numbers."""
        claim, log, out = self._claim, self._log, scratch / "numbers.json"
        out.unlink(missing_ok=True)
        env = buckets.build_environment(get_clean_environment(), variables)
        env |= {"PYTHONPATH": str(Path("scripts").resolve()), "TMPDIR": str(scratch), "PYTHONWARNINGS": "ignore"}
        python, module = self._pythons[library], claim.import_module().__name__
        read_end, write_end = os.pipe()
        command = [str(python), "-m", "sbench.court.run_arm", module, json.dumps(task), str(out), str(write_end)]
        begin = log.seek(0, os.SEEK_END)
        pipes = {"stdin": subprocess.PIPE, "pass_fds": (write_end,), "cwd": str(scratch)}
        with run_process(command, log, env, **pipes) as process, os.fdopen(read_end) as ready:
            os.close(write_end)
            if ready.readline() and served:
                served.reset_requests()
            try:
                process.communicate(b"go\n", timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise Problem(f"{claim.files[0]}: {library}: a run did not end within {_LIMIT_S} s") from None
        if process.returncode or (served and not out.exists()):
            with open(log.name, encoding="utf-8", errors="replace") as text:
                text.seek(begin)
                reason = shorten_name(find_reason(list(text)))
            raise Problem(
                f"{claim.files[0]}: {library} failed with status {process.returncode}: {reason}; see {log.name}"
            )
        return read_json(out) if served else {}


if __name__ == "__main__":
    run_main(main)
