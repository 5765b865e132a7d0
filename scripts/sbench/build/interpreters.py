"""Interpreters of Python on this machine, by release: for libraries under test that have another than the workflow."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sbench.build.shell import clean_environment
from sbench.probe.program import Problem

_ASK = """
import json, os, sys, sysconfig, venv
names = ("SOABI", "HOST_GNU_TYPE")
seen = {name: sysconfig.get_config_var(name) for name in names}
print(json.dumps(seen | {"path": os.path.realpath(sys.executable), "release": "%d.%d" % sys.version_info[:2]}))
"""


@cache
def find_python(release: str) -> dict[str, str]:
    """Return an interpreter of a release such as "3.13": its path, and what decides which wheels it takes.

    It is looked for on PATH, then among pyenv's versions and conda's environments, the newest first.

    Raises:
        Problem: there is none that works.
    """
    for path in _list_candidates(f"python{release}"):
        command = [path, "-I", "-c", _ASK]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
        if done.returncode == 0 and (seen := json.loads(done.stdout)).pop("release") == release:
            return seen
    raise Problem(
        f"there is no Python {release} here: not as python{release} on PATH, nor among pyenv's versions or conda's"
        f" environments; install one (apt install python{release}-venv, pyenv install {release}), or leave out python"
    )


def _list_candidates(name: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        if path := shutil.which(name, path=folder):
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    conda = Path(os.environ.get("CONDA_EXE") or "~/miniconda3/bin/conda").expanduser().parents[1]
    for pattern in (pyenv.glob(f"*/bin/{name}"), conda.glob(f"bin/{name}"), conda.glob(f"envs/*/bin/{name}")):
        yield from map(str, sorted(pattern, key=_read_version, reverse=True))


def _read_version(path: Path) -> list[int]:
    """Return the numbers in the name of an interpreter's environment, such as 3.13.0."""
    return [int(part) for part in path.parents[1].name.split(".") if part.isdecimal()]
