"""Look up the type, size and performance of the EBS volume under a directory through the EC2 API.

A request is sent only for stores configured with `volume: instance`. The device is an NVMe disk whose serial number is
the volume id. The caller needs permission for DescribeVolumes.
"""

import os
import re
import stat
from pathlib import Path

from sbench.probe import host
from sbench.probe.program import Problem

_SYS = Path("/sys")
# Short timeouts, so that the request fails quickly on machines outside EC2.
_CONNECT_S, _READ_S = 5, 20


def fetch_volume_facts(place: Path | str) -> dict:
    """Return "type", "size_gib", "iops", "throughput_mib_s" and "source" of the EBS volume under a directory or device.

    Raises:
        Problem: the disk is not an EBS volume, or EC2 returned no description.
    """
    try:
        disk = _find_disk(Path(place))
        serial = disk / "device/serial"
        match = re.fullmatch(r"vol-?([0-9a-f]{8,17})\s*", serial.read_text(encoding="utf-8") if serial.exists() else "")
        if not match:
            raise Problem(f"the disk {disk.name} is not an EBS volume, by its serial number")
        facts = _fetch_description(f"vol-{match[1]}")
    except Problem as problem:
        raise Problem(
            f"the volume of {place} is unknown: {problem};"
            " give its type and size in the configuration, such as volume: {type: gp3, size_gib: 100}"
        ) from problem
    return {
        "type": facts["VolumeType"],
        "size_gib": facts["Size"],
        "iops": facts.get("Iops"),
        "throughput_mib_s": facts.get("Throughput"),
        "source": f"EC2's description of vol-{match[1]}",
    }


def _find_disk(place: Path) -> Path:
    """Return the sysfs directory of the single disk under a directory or device, below partitions and logical volumes.

    Raises:
        Problem: there is no disk, or more than one.
    """
    status = os.stat(place)
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    folder = _SYS / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not folder.exists():
        # Some file systems have anonymous device numbers. Then use the device of the mount.
        device = os.path.realpath(host.find_mount(place)["device"] or "")
        folder = _SYS / "class/block" / os.path.basename(device)
    if not (folder / "dev").exists():
        raise Problem(f"it is not on a disk ({host.find_mount(place)['file_system']})")
    folder = folder.resolve()
    while below := sorted((folder / "slaves").glob("*")):
        if len(below) > 1:
            raise Problem(f"{folder.name} spans several disks: {', '.join(path.name for path in below)}")
        folder = below[0].resolve()
    # A partition's directory is inside the directory of its disk.
    return folder.parent if (folder / "partition").exists() else folder


def _fetch_description(volume: str) -> dict:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.utils import IMDSRegionProvider
    except ImportError as error:
        raise Problem(f"{error.name} is not installed") from error
    try:
        session = boto3.session.Session()
        region = os.environ.get("AWS_REGION") or session.region_name or IMDSRegionProvider(session._session).provide()
        if not region:
            raise Problem("the instance's metadata lack its region; set AWS_REGION")
        limits = Config(connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries={"total_max_attempts": 2})
        client = session.client("ec2", region_name=region, config=limits)
        return client.describe_volumes(VolumeIds=[volume])["Volumes"][0]
    except (BotoCoreError, ClientError, LookupError) as error:
        raise Problem(f"EC2 returned no description of {volume}: {' '.join(str(error).split())}") from error
