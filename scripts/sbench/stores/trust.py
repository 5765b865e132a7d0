"""How clients come to trust the throw-away authority of an embedded server whose connections are encrypted (`tls`).

Python's clients and s2n, on which ROS3 of HDF5 2 stands, take its certificate from variables of the environment.
libcurl, on which that of 1.14 stands, reads the system's bundle alone: where the kernel allows it, the certificate is
mounted over that, in a mount namespace that only the measuring program has.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Of OpenSSL (s2n, urllib), botocore, requests.
VARIABLES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
# Where libcurl looks, on Debian, on Red Hat and on SUSE.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_MOUNT = 'bundle=$1; shift; while [ "$1" != -- ]; do mount --bind "$bundle" "$1" || exit; shift; done; shift; exec "$@"'


def install_certificate(certificate: str) -> dict[str, str]:
    """Keep a certificate (PEM) in the step's temporary folder; return what lets clients trust it, and no other.

    It holds for this process, too.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False, encoding="utf-8") as file:
        file.write(certificate)
    named = dict.fromkeys(VARIABLES, file.name)
    os.environ.update(named)
    return named


def build_command_prefix(env: Mapping[str, str]) -> list[str]:
    """Return what comes before a command so that it sees the certificate in `env` in place of the system's."""
    there = [str(Path(bundle).resolve()) for bundle in _BUNDLES if Path(bundle).exists()]
    return [*_build_unshare_command(), "sh", "-c", _MOUNT, "sh", env[VARIABLES[0]], *dict.fromkeys(there), "--"]


@functools.cache
def describe_mount_obstacle() -> str:
    """Return why no process here can have mounts of its own; "" where it can."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is not there"
    tried = subprocess.run(
        [*_build_unshare_command(), "mount", "--bind", "/", "/"], capture_output=True, text=True, check=False
    )
    words = " ".join(tried.stderr.split())
    return "" if not tried.returncode else words or f"unshare ended with status {tried.returncode}"


def _build_unshare_command() -> list[str]:
    """Mounts of one's own: root has them, and others where the kernel gives them a user namespace."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
