"""Make clients trust the temporary certificate authority of an embedded server that uses TLS (setting `tls`).

Python clients and s2n (used by the ROS3 driver of HDF5 2) read the CA certificate from environment variables. libcurl
(used by the ROS3 driver of HDF5 1.14) reads only the system's CA bundle. If the kernel allows it, the certificate is
bind-mounted over this bundle, in a mount namespace that only the measuring program sees.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Environment variables of OpenSSL (s2n, urllib), botocore and requests.
VARIABLES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
# CA bundles that libcurl reads on Debian, Red Hat and SUSE.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
_MOUNT = 'bundle=$1; shift; while [ "$1" != -- ]; do mount --bind "$bundle" "$1" || exit; shift; done; shift; exec "$@"'


def install_certificate(certificate: str) -> dict[str, str]:
    """Write a PEM certificate to a temporary file, and set environment variables so that clients trust only it.

    Returns:
        The environment variables set: {name: path of the temporary file}.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False, encoding="utf-8") as file:
        file.write(certificate)
    named = dict.fromkeys(VARIABLES, file.name)
    os.environ.update(named)
    return named


def build_command_prefix(env: Mapping[str, str]) -> list[str]:
    """Return a command prefix that bind-mounts the certificate file named in `env` over the system's CA bundles."""
    there = [str(Path(bundle).resolve()) for bundle in _BUNDLES if Path(bundle).exists()]
    return [*_build_unshare_command(), "sh", "-c", _MOUNT, "sh", env[VARIABLES[0]], *dict.fromkeys(there), "--"]


@functools.cache
def describe_mount_obstacle() -> str:
    """Return the reason why processes cannot have private mounts on this machine, or an empty string if they can."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is missing"
    tried = subprocess.run(
        [*_build_unshare_command(), "mount", "--bind", "/", "/"], capture_output=True, text=True, check=False
    )
    words = " ".join(tried.stderr.split())
    return "" if not tried.returncode else words or f"unshare exited with status {tried.returncode}"


def _build_unshare_command() -> list[str]:
    """Return the `unshare` command for private mounts; without root privileges, it also creates a user namespace."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
