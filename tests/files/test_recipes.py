"""The recipes of docs/recipes.md: the patched tests of other projects run with the plugin."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from conftest import ROOT, artefact

TEXT = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
PATCHES = re.findall(r"^```diff\n--- a/(\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run_tests(python: str, folder: Path, *words: str) -> str:
    """Run tests with the plugin and the packages of a library under test; return the output."""
    # The library's packages come first: its h5py has ROS3.
    own = [str(ROOT / "scripts"), sysconfig.get_path("purelib")]
    code = f"import sys\nsys.path += {own}\nimport pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    options = ["-q", "-p", "sbench.files.pytest_plugin", "-p", "no:cacheprovider", "-c", "pytest.ini"]
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = network\n", encoding="utf-8")
    command = [python, "-c", code, *options, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout


# A change of zarr that reads each chunk twice, with either client.
REGRESSION = """
import zarr.storage

def read_twice(get):
    async def wrapper(self, *words, **options):
        await get(self, *words, **options)
        return await get(self, *words, **options)
    return wrapper

for store in (zarr.storage.FsspecStore, zarr.storage.ObjectStore):
    store.get = read_twice(store.get)
"""


@pytest.mark.late
def test_the_test_of_zarr_detects_a_second_read(tmp_path: Path, with_readers: Path):
    python = artefact(with_readers / "readers.json")["python"]
    [code] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_zarr.py").write_text(code, encoding="utf-8")
    output = run_tests(python, tmp_path)
    assert "2 passed" in output, output
    (tmp_path / "conftest.py").write_text(REGRESSION, encoding="utf-8")
    output = run_tests(python, tmp_path)
    assert "2 failed" in output, output
    assert re.search(r"^get +4 +8$", output, re.MULTILINE), output


@pytest.mark.late
@pytest.mark.parametrize("path, patch", PATCHES, ids=[path for path, _ in PATCHES])
def test_a_patched_test_needs_no_public_bucket(path: str, patch: str, tmp_path: Path, with_readers: Path):
    python = artefact(with_readers / "readers.json")["python"]
    original = next(Path(python).parents[1].glob(f"lib/python3*/site-packages/{path}"))
    (tmp_path / path).parent.mkdir(parents=True)
    shutil.copy(original, tmp_path / path)
    done = subprocess.run(["git", "apply", "-"], input=f"--- a/{path}\n{patch}", text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    output = run_tests(python, tmp_path, path, "-k", "ros3", "-rs")
    passed = {"h5py": "4 passed, 2 skipped", "h5netcdf": "1 passed"}[path.partition("/")[0]]
    assert passed in output, output
    assert "Requires HDF5 < 2.0" in output or "skipped" not in output
