"""axe-core, which checks a page for contrast and keyboard rules in a browser: an npm package that tests alone use."""

import json
from functools import cache
from pathlib import Path

import pytest

from sbench.build.cache import Recipe, provide_piece
from sbench.build.servers import install_npm, list_npm_files
from sbench.build.shell import Workshop
from sbench.build.sources import ENVS
from sbench.probe.program import Problem, compute_file_digest

PACKAGE = ENVS / "axe"
SCRIPT = "node_modules/axe-core/axe.min.js"
# Shows the code, as its switch does, and returns what breaks a rule: rule and place. Rows of a table are alike but for
# their colours, and figures are canvases, of which axe knows nothing: without them it takes a third of the time.
CHECK = """(async () => {
  document.body.classList.add("with-code");
  const alike = document.querySelectorAll("tbody tr:nth-child(n+7):not(:has(td[class])), .panel > div");
  alike.forEach((one) => one.remove());
  const {violations} = await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa"], resultTypes: ["violations"]});
  const grave = violations.filter((one) => ["serious", "critical"].includes(one.impact));
  return grave.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.target.join(" ")}`));
})()"""


@cache
def script() -> str:
    """Return JavaScript that checks the page it runs in; its answer is a text where axe-core cannot be installed."""

    def build(folder: Path, workshop: Workshop) -> dict:
        install_npm(PACKAGE, folder, workshop)
        return {}

    inputs = {"files": [compute_file_digest(file) for file in list_npm_files(PACKAGE)]}
    try:
        axe = provide_piece(Recipe("axe", inputs, build, (SCRIPT,))).folder / SCRIPT
    except Problem as problem:
        return json.dumps(f"pages were not checked for contrast and keyboard rules: {problem}")
    return f"{axe.read_text(encoding='utf-8')}; {CHECK}"


def expect_no_violation(*answers: list[str] | str) -> None:
    """Check answers of `script`; skip the test where there are none."""
    for answer in answers:
        if isinstance(answer, str):
            pytest.skip(answer)
        assert answer == [], answer
