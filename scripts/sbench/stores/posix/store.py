"""Define the store for files, either in a folder of the store or in the folder where they were generated."""

import shutil
from collections.abc import Set
from pathlib import Path

from sbench.probe.program import Problem, compute_file_digest, replace_file
from sbench.stores import transfer
from sbench.stores.embedded import Served
from sbench.stores.store import Store, apply_cloud_settings

# Types of remote file systems.
_FAR = {"lustre", "nfs", "nfs4", "cifs", "smb3", "ceph", "gpfs", "beegfs", "glusterfs", "9p", "fuse.sshfs"}


class Posix(Store):
    """A folder of files; without a `path` in the configuration, files are read from where they were generated."""

    @property
    def files(self) -> bool:
        """Whether programs on this machine can open its files; False for a store with the setting `shell`."""
        return "shell" not in self.spec

    def provide_dataset(
        self, dataset: str, files: list[transfer.File], folder: Path, binaries: Path | None, say: transfer.Say
    ) -> dict:
        """Copy or generate the files in the store's folder; without a `path`, use existing files in place."""
        if not self.files:
            raise Problem("a store with a shell cannot hold data; for a study with data, name a store without shell:")
        folder = Path(self.spec.get("path", folder)) / dataset
        local = [path for _, path in files]
        if "path" in self.spec:
            if not (above := folder.absolute().parents[1]).is_dir():
                # If the file system were not mounted, the underlying disk would be measured.
                raise Problem(f"{above} does not exist; mount the file system, or correct the store's path")
        elif None not in local:
            # Names may include subfolders.
            folders = {str(path).removesuffix(f"/{entry['name']}") for entry, path in files}
            if len(folders) != 1:
                raise Problem(f"the files of {dataset} must be in a single folder (got {len(folders)}); move them")
            return {"location": {"folder": folders.pop()}, "local_files": list(map(str, local))}
        for entry, path in files:
            _ensure_file(entry, path, folder / entry["name"], say)
        return {"location": {"folder": str(folder)}, "local_files": [str(folder / entry["name"]) for entry, _ in files]}

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return the data folder as {"folder"}, and the environment.

        The environment includes the AWS settings if EC2 must be queried for the type of the volume.
        """
        asks = self.spec.get("volume") == "instance"
        return provision["location"], apply_cloud_settings(env, "AWS_") if asks else env

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe the caches that the benchmark does not control."""
        if far := sorted(file_systems & _FAR):
            return f"a remote file system ({', '.join(far)}); caches and other users of its servers are not controlled"
        return "a local file system; caches of the hypervisor and the device are not controlled"


def _ensure_file(entry: dict, path: Path | None, target: Path, say: transfer.Say) -> None:
    if target.exists() and target.stat().st_size == entry["bytes"] and compute_file_digest(target) == entry["sha256"]:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with transfer.open_entry(entry, path) as source, replace_file(target) as part, open(part, "wb") as copy:
        shutil.copyfileobj(source, copy, transfer.MIB)
    if compute_file_digest(target) != entry["sha256"]:
        raise Problem(f"{target}: the data read back differ from the data written")
    say(f"{'generated' if path is None else 'copied'} {target}")


KINDS = {"posix": Posix}
