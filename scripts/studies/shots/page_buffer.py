"""The page buffer of a cell: what its level asks for, and what the library made of it. Nothing here imports HDF5."""

from scripts.lib import sizes

UNSET = -1


def in_bytes(level: str) -> int:
    """Return the bytes of a page buffer's level: "unset" (UNSET), "0", or a size such as "64MiB".

    Raises:
        Problem: it is none of these.
    """
    return UNSET if level == "unset" else sizes.in_bytes(level)


def ignored(requested: int, effective: int, page_size: int) -> str:
    """Say how the library departed from the page buffer that was asked for, "" where it did not (FACTS of HDF5).

    A buffer is rounded down to whole pages, which keeps the label true; one below a page is raised to a page, and
    one on a file that is not paged is dropped: both silently, and both make the label false.
    """
    if requested in (UNSET, effective):
        return ""
    if effective == 0:
        return f"the library ignored the page buffer of {requested} bytes (is the file paged?)"
    if effective > requested:
        return f"the library raised the page buffer of {requested} bytes to {effective} (one page)"
    if effective == requested // page_size * page_size:
        return ""
    return f"the library made a page buffer of {effective} bytes out of {requested}"
