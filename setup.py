"""Adds to the package what else runs of a clone, and the servers of `sbench count`; all the rest: pyproject.toml."""

import json
import platform
import shutil
from pathlib import Path
from typing import ClassVar

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel


class WheelCommand(bdist_wheel):
    """The command `bdist_wheel`, with an option that includes compiled servers (`make wheel`)."""

    user_options: ClassVar = [*bdist_wheel.user_options, ("servers=", None, "artefact of the servers to include")]

    def initialize_options(self) -> None:
        """Set the default: no servers."""
        super().initialize_options()
        self.servers = None

    def finalize_options(self) -> None:
        """Make the wheel specific to a platform if it includes servers."""
        if self.servers:
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the wheel: static programs need no C library, so that they run with any of them."""
        if not self.servers:
            return super().get_tag()
        machine = platform.machine()
        return "py3", "none", f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"

    def run(self) -> None:
        """Copy the servers' cache entries into the package, where `find_piece` looks for them, and build the wheel."""
        if self.servers:
            contained = Path(self.get_finalized_command("build").build_lib, "sbench/build/contained")
            shutil.rmtree(contained, ignore_errors=True)
            artefact = json.loads(Path(self.servers).read_text(encoding="utf-8"))
            for name in artefact["versions"]:
                shutil.copytree(Path(artefact[name]).parent, contained / name)
        super().run()


# Beside the package its metadata would be a distribution of every library under test.
Path("build").mkdir(exist_ok=True)
setup(
    packages=[*find_packages("scripts"), "sbench.clone", "snakemake_logger_plugin_benchmark"],
    options={"egg_info": {"egg_base": "build"}},
    cmdclass={"bdist_wheel": WheelCommand},
)
