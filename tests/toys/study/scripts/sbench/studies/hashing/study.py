"""What the workflow must know of the study: which cells can exist, what they cost, what makes a record invalid."""

from collections.abc import Iterator

from sbench.design.checks import check_work
from sbench.design.study import Study
from sbench.stores import store as stores


class Hashing(Study):
    """Checksums of a file."""

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield that a store has no files."""
        store = config["stores"][levels["store"]]
        if not stores.get_store(store).files:
            yield f"a file is read, and a store of the kind {store['kind']} has none"

    def estimate_record(self, settings: dict) -> dict:
        """Estimate one record: a file is read at some 500 MB/s."""
        size = settings["data"]["bytes"]
        return {"requests": 1, "bytes": size, "seconds": size / 5e8}

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the bytes of the file."""
        return data["bytes"]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return whether all of the file was read and its checksum is that of the manifest."""
        return check_work(record["work"])


STUDY = Hashing("hashing")
