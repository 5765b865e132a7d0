"""Files of a folder, or where they were generated."""

import hashlib
import shutil
from collections.abc import Set
from pathlib import Path

from scripts.lib.program import Problem, sync
from scripts.stores import transfer
from scripts.stores.reading import Access, Reader
from scripts.stores.servers import Served
from scripts.stores.store import Place, Store, with_own

# Types of file systems whose files lie on other machines.
_FAR = {"lustre", "nfs", "nfs4", "cifs", "smb3", "ceph", "gpfs", "beegfs", "glusterfs", "9p", "fuse.sshfs"}


class Posix(Store):
    """Files; a store without a path reads them where they were generated."""

    files = True

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Copy files into the store's folder, or make them there."""
        made = any(path is None for _, path in files)
        if "path" not in self.spec and not made:
            folders = {path.parent for _, path in files}
            if len(folders) != 1:
                raise Problem(f"the files of {dataset} lie in several folders; put them into one")
            return {"location": {"folder": str(folders.pop())}, "local_files": [str(path) for _, path in files]}
        folder = Path(self.spec["path"]) / dataset if "path" in self.spec else place.generated / "objects"
        if "path" in self.spec and not (above := Path(self.spec["path"]).absolute().parent).is_dir():
            # Else a file system that is not mounted would be measured by the disk beneath it.
            raise Problem(f"there is no {above}; mount the file system, or correct the store's path")
        for entry, path in files:
            target = folder / entry["name"]
            if target.exists() and target.stat().st_size == entry["bytes"] and _sha256(target) == entry["sha256"]:
                continue
            try:
                folder.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f".{target.name}.part")
                with transfer.opened(entry, path) as source, open(part, "wb") as copy:
                    shutil.copyfileobj(source, copy, transfer.READ_BYTES)
                sync(part)
                part.replace(target)
            except OSError as error:
                raise Problem(
                    f"{target} cannot be written: {error.strerror}; correct the store's path or free its disk"
                ) from error
            if _sha256(target) != entry["sha256"]:
                raise Problem(f"{target} reads back differently than it was written")
            say(f"{'made' if path is None else 'copied'} {target}")
        return {"location": {"folder": str(folder)}, "local_files": [str(folder / entry["name"]) for entry, _ in files]}

    def locate(self, provision: dict, served: Served | None, env: dict[str, str]) -> tuple[dict, dict[str, str]]:
        """Return the folder, and the environment with AWS's settings where the volume is asked of the instance."""
        asks = self.spec.get("volume") == "instance"
        return provision["location"], with_own(env, "AWS_") if asks else env

    def reader(self, location: dict, access: Access) -> Reader:
        """Return what reads files."""
        from scripts.stores.posix import reader

        return reader.Reader(location, access)

    def limits(self, file_systems: Set[str]) -> str:
        """Return whose caches are not controlled."""
        if far := sorted(file_systems & _FAR):
            return f"a file system elsewhere ({', '.join(far)}); its servers' caches and other users are not known"
        return "a local file system; what the hypervisor and the device keep in their caches is not controlled"


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


KINDS = {"posix": Posix}
