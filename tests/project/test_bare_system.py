"""A machine that lacks what others have: one line says what, and the page is made all the same."""

import errno
import os
import subprocess

import pytest
from conftest import run_code

from sbench.probe.program import run_main

pytestmark = pytest.mark.late

_NO_LOOPBACK = ("unshare", "--net")
_NO_ADDRESS = (*_NO_LOOPBACK, "sh", "-c", 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$@"', "sh")
_NO_SHARED_MEMORY = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"', "sh")
_CALL = "from sbench.probe import dask_workers, processes, program; program.run_main(lambda: {})"


def call_in(namespace: tuple[str, ...], code: str) -> subprocess.CompletedProcess:
    """Run Python code in the folder of the project, on a machine that lacks something."""
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no machine that lacks something can be made without root")
    return run_code(code, within=namespace)


@pytest.mark.parametrize(
    "namespace, why",
    [(_NO_LOOPBACK, "Network is unreachable"), (_NO_ADDRESS, "Cannot assign requested address")],
    ids=["down", "IPv6 alone"],
)
def test_without_a_loopback_one_line_says_what_to_do(namespace, why):
    done = call_in(namespace, _CALL.format("print(processes.find_free_port())"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"problem: 127.0.0.1: {why}; bring up the loopback (ip link set lo up, ")


@pytest.mark.parametrize("what", ["processes.expect_shared_memory()", "dask_workers.start_cluster(1).__enter__()"])
def test_without_shared_memory_one_line_says_what_to_do(what):
    done = call_in(_NO_SHARED_MEMORY, _CALL.format(what))
    remedy = "mount a world-writable tmpfs there (mode=1777)"
    assert (done.returncode, done.stderr) == (
        2,
        f"problem: /dev/shm cannot be used (Read-only file system); {remedy}\n",
    )


def test_without_shared_memory_pages_are_drawn():
    code = "from sbench.pages import page; page.draw_aside(); print(page._start_drawing)"
    done = call_in(_NO_SHARED_MEMORY, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("written", ["program.write_text('results', '')", "program.expect_room('results')"])
def test_a_file_system_that_is_read_only_is_one_line_with_the_file_and_what_to_do(tmp_path, written):
    read_only = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    namespace = ("unshare", "--mount", "sh", "-c", f'{read_only} && exec "$@"', "sh")
    done = call_in(namespace, _CALL.format(written.replace("results", str(tmp_path / "results"))))
    remedy = "free the disk or make the folder writable"
    assert done.returncode == 2
    assert done.stderr == f"problem: {tmp_path}/results cannot be written: Read-only file system; {remedy}\n"


def test_what_the_system_refuses_a_package_is_one_line(capsys):
    def main() -> None:
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise RuntimeError("the cluster failed to start") from error

    with pytest.raises(SystemExit) as ended:
        run_main(main)
    assert ended.value.code == 2
    line = "the output: No space left on device; free the disk or make the folder writable"
    assert capsys.readouterr().err == f"problem: {line}\n"
