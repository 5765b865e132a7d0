"""Find Python interpreters by release, for libraries under test that use a different Python than the workflow."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sbench.build.shell import get_clean_environment
from sbench.probe.program import Problem, parse_json_object

_ASK = """
import json, os, sys, sysconfig, venv
names = ("SOABI", "HOST_GNU_TYPE")
seen = {name: sysconfig.get_config_var(name) for name in names}
seen |= {"path": os.path.realpath(sys.executable), "include": sysconfig.get_path("include")}
print(json.dumps(seen | {"release": "%d.%d" % sys.version_info[:2]}))
"""


def ask_python(python: Path | str, code: str, folder: Path | str, amiss: str = "") -> dict:
    """Run code with an interpreter in a working directory and return the JSON object that it prints.

    Args:
        python: interpreter.
        code: program text; the last line of its output is a JSON object.
        folder: working directory.
        amiss: beginning of the error message if the code fails; a default message if empty.

    Raises:
        Problem: the interpreter cannot be started, fails, or does not print a JSON object.
    """
    command = [str(python), "-sE", "-c", code]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=get_clean_environment(), check=False
        )
    except OSError as error:
        raise Problem(f"{python} cannot be started: {error.strerror}") from error
    if answer.returncode:
        reason = (answer.stderr.strip() or f"status {answer.returncode}").splitlines()[-1]
        raise Problem(f"{amiss or f'{python} cannot import the packages of a library under test'}: {reason}")
    # Parse the last line only, because an interpreter may print other text when it starts.
    return parse_json_object(answer.stdout.strip().rpartition("\n")[2], str(python), "; name a Python interpreter")


@cache
def find_python(release: str) -> dict[str, str]:
    """Return the path, header directory and wheel compatibility of an interpreter of a release such as "3.13".

    Search PATH, then pyenv's versions and conda's environments, newest first.

    Raises:
        Problem: no interpreter works.
    """
    for path in _list_candidates(f"python{release}"):
        # Ignore other programs with this name.
        with contextlib.suppress(Problem):
            if (seen := ask_python(path, _ASK, "/")).pop("release", "") == release:
                return seen
    raise Problem(
        f"Python {release} not found as python{release} on PATH, among pyenv's versions or in conda's environments;"
        f" install it (apt install python{release}-venv, pyenv install {release}), or remove python:"
    )


def _list_candidates(name: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        if path := shutil.which(name, path=folder):
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    conda = Path(os.environ.get("CONDA_EXE") or "~/miniconda3/bin/conda").expanduser().parents[1]
    for pattern in (pyenv.glob(f"*/bin/{name}"), conda.glob(f"bin/{name}"), conda.glob(f"envs/*/bin/{name}")):
        yield from map(str, sorted(pattern, key=_parse_version, reverse=True))


def _parse_version(path: Path) -> list[int]:
    """Parse the version numbers in the directory name of an interpreter's environment, such as 3.13.0."""
    return [int(part) for part in path.parents[1].name.split(".") if part.isdecimal()]
