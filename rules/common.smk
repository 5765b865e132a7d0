"""The resolved configuration and objects that the rules share; no rules.

Reads:  the configuration file
Writes: nothing
"""

import gc
import logging
import re
import shlex
import sys
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

# The package lies in the clone and need not be installed.
sys.path.insert(0, str(Path(workflow.basedir, "scripts")))

from sbench.build.environments import list_missing_packages
from sbench.court import tested_claim
from sbench.measure.call import Call, get_attempt, get_conda_of_study, get_study, list_printed
from sbench.probe.program import Problem
from sbench.stores import store as stores

# Jobs stay until the end: with 10,000 cells, Python would spend a sixth of the planning time on garbage collection.
gc.set_threshold(100_000)


def interpreter() -> str:
    """Return the interpreter of the programs, as a shell takes it.

    It is the interpreter of a rule's conda environment if Snakemake makes environments, else the interpreter of
    Snakemake if it has the packages of the programs, else the interpreter of .venv.
    """
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
        return '"$CONDA_PREFIX/bin/python"'
    return ".venv/bin/python" if list_missing_packages() else shlex.quote(sys.executable)


PYTHON = interpreter()
# Not a parameter of a rule, so that another interpreter does not repeat finished jobs.
shell.prefix('program() {{ name=$1; shift; exec {PYTHON} -sE scripts/"$name".py "$@"; }}; ')
try:
    CALL = Call(
        dict(config), workflow.config_settings.configfiles or ["config/config.yaml"], workflow, checkpoints, PYTHON
    )
except Problem as problem:
    # Snakemake's log may be on a full disk; its handler's message about that would hide the line.
    logging.raiseExceptions = False
    raise SystemExit(f"problem: {problem}")
CONFIG, RUN, STUDIES = CALL.config, CALL.run, CALL.studies
# The runs to compare; the program reports missing keys.
COMPARISON = CONFIG.get("comparison", {"a": [], "b": [], "paired": False, "fail_on": []})
# The user's notebooks, executed on each run.
EXTRA = sorted(path.stem for path in Path("notebooks/extra").glob("[!.]*.ipynb"))
# All published studies, whichever studies this run measures.
PUBLISHED = sorted(path.parent.name for path in Path("results/published").glob("*/audit/"))
CLAIMS = tested_claim.list_claims()
# Pages of a part of the published data never replace the pages of all data.
PAGES = "reports/published-partial" if CONFIG.get("published_partial") else "reports/published"


wildcard_constraints:
    **CALL.get_constraints(),
    cell="[^/]+",
    repeat="[0-9]+",
    number="[0-9]+",
    published="|".join(PUBLISHED) or "none",
    claim="|".join(CLAIMS) or "none",
    extra="|".join(map(re.escape, EXTRA)) or "none",
