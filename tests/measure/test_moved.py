"""A clone and its cache, copied to another folder and mounted at the path of before, where there is no network."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import copy_project, make_ready
from small_runs import TINY, launch, records, write

from sbench.build.shell import find_uv

pytestmark = pytest.mark.late


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare (util-linux)")
def test_a_clone_and_its_cache_run_elsewhere_at_the_same_path_without_a_network(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    clone = make_ready(copy_project(here / "clone"))
    write(clone, TINY)
    packages = subprocess.run([find_uv(), "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    env = os.environ | {"XDG_CACHE_HOME": str(here / "cache")}
    done = launch(clone, "--yes", env=env | {"UV_CACHE_DIR": packages})
    assert done.returncode == 0, done.stdout + done.stderr
    here.rename(there)
    here.mkdir()
    run = f"cd {shlex.quote(str(clone))}; ./sbench run --yes --name elsewhere"
    mount = shlex.join(["mount", "--bind", str(there), str(here)])
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-euc", f"ip link set lo up; {mount}; {run}"],
        **{"cwd": tmp_path, "env": env, "capture_output": True, "text": True, "check": False},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    measured = records(there / "clone", "elsewhere").values()
    assert [record["status"] for record in measured] == ["done"] * 4
