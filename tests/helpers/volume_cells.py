"""A cell of the volumes study, which a test measures."""

import subprocess

from batteries import TINY, Place, options_of
from conftest import ROOT, artefact, program

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.design.plan import build_plan
from sbench.probe.program import build_command, write_json


class Cell:
    """A cell of the study: a battery of three jobs."""

    def __init__(
        self,
        place: Place,
        text: str = TINY,
        background: str = "none",
        store: dict | None = None,
        start: dict | None = None,
        **settings: object,
    ) -> None:
        """Plan the cell; `text` is that of its job, whatever its name."""
        matrix_of_one = {"store": ["disk"], "job": ["etcd-short"], "background": [background]}
        section = {"jobs": 3, "at_least_s": 0, "pause_s": 0, "time_limit_s": 600, "matrix": matrix_of_one, **settings}
        stores = {"disk": {"kind": "posix", **(store or {"path": str(place.volume)})}}
        config = configuration.resolve_config({"run": "test", "stores": stores, "studies": {"volumes": section}}, [])
        (cell,), _ = matrix.expand_matrix(config, "volumes")
        cell.settings["job"]["text"] = text
        cell.settings.update({"start": start} if start else {})
        self.folder, self.name = place.folder, cell.name
        self.out, self.log = place.folder / "repeat=1.json", place.folder / "log"
        write_json(place.folder / "plan.json", build_plan(config, "volumes", [cell]))

    def words(self) -> list[str]:
        """Return the arguments of the step that measures the cell."""
        named = {"plan": self.folder / "plan.json", "cell": self.name, "repeat": 1, "log": self.log, "out": self.out}
        return ["measure", *options_of(named)]

    def measure(self) -> dict:
        """Measure the cell and return its record."""
        done = program("step", *self.words())
        assert done.returncode == 0, done.stderr
        return artefact(self.out)

    def start(self) -> subprocess.Popen:
        """Begin to measure the cell, in a session of its own."""
        command = build_command("step", *self.words())
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)

    def said(self, words: str) -> bool:
        """Return whether the step's log has `words`."""
        return self.log.exists() and words in self.log.read_text(encoding="utf-8")
