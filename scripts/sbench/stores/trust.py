"""Make clients trust the temporary authority of an embedded server with encrypted connections (`tls`).

Python's clients and s2n, used by ROS3 of HDF5 2, take its certificate from environment variables. libcurl, used by
ROS3 of HDF5 1.14, reads only the system's bundle: if the kernel allows it, the certificate is mounted over the
bundle, in a mount namespace of the measuring program alone.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Variables of OpenSSL (s2n, urllib), botocore and requests.
VARIABLES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
# Bundles that libcurl reads on Debian, Red Hat and SUSE.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_MOUNT = 'bundle=$1; shift; while [ "$1" != -- ]; do mount --bind "$bundle" "$1" || exit; shift; done; shift; exec "$@"'


def install_certificate(certificate: str) -> dict[str, str]:
    """Write a PEM certificate to a temporary file; set and return the variables that make clients trust it alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False, encoding="utf-8") as file:
        file.write(certificate)
    named = dict.fromkeys(VARIABLES, file.name)
    os.environ.update(named)
    return named


def build_command_prefix(env: Mapping[str, str]) -> list[str]:
    """Return a command prefix that puts the certificate in `env` in place of the system's."""
    there = [str(Path(bundle).resolve()) for bundle in _BUNDLES if Path(bundle).exists()]
    return [*_build_unshare_command(), "sh", "-c", _MOUNT, "sh", env[VARIABLES[0]], *dict.fromkeys(there), "--"]


@functools.cache
def describe_mount_obstacle() -> str:
    """Return the reason if processes here cannot have private mounts, else ""."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is missing"
    tried = subprocess.run(
        [*_build_unshare_command(), "mount", "--bind", "/", "/"], capture_output=True, text=True, check=False
    )
    words = " ".join(tried.stderr.split())
    return "" if not tried.returncode else words or f"unshare exited with status {tried.returncode}"


def _build_unshare_command() -> list[str]:
    """Return the command for private mounts: root may have them; others need a user namespace from the kernel."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
