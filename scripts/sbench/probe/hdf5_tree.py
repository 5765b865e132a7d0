"""Walk the links of an HDF5 file: each object once, whatever its name and type, and past all errors."""

from collections.abc import Iterator
from dataclasses import dataclass

import h5py

SOFT, EXTERNAL, _OTHER = "soft link", "external link", "link of a user-defined kind"
_KINDS = {h5py.h5l.TYPE_HARD: "", h5py.h5l.TYPE_SOFT: SOFT, h5py.h5l.TYPE_EXTERNAL: EXTERNAL}
Address = tuple
# Most nested groups to walk: paths take memory by the square of the depth, and no useful tree is deeper.
DEPTH = 2000


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a group and its target.

    Attributes:
        path: path from the root, as in the file: UTF-8 as a rule.
        object: the group, dataset or type; None if it cannot be opened, or for a link to another file.
        address: identifies the object within the file; () if it cannot be opened.
        first: whether this is the first hard link to the object.
        kind: "" of a hard link, else "soft link" or "external link".
        target: target of a soft or external link, in words.
        error: error of opening the object, or of listing the links of a group.
    """

    path: bytes
    object: h5py.h5g.GroupID | h5py.h5d.DatasetID | h5py.h5t.TypeID | None = None
    address: Address = ()
    first: bool = False
    kind: str = ""
    target: str = ""
    error: Exception | None = None

    @property
    def name(self) -> str:
        """The path in UTF-8; other bytes are escaped."""
        return to_text(self.path)


def to_text(name: str | bytes) -> str:
    """Return a name, which h5py leaves as bytes if it is not UTF-8; such bytes are escaped."""
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else name


def is_utf8(path: bytes) -> bool:
    """Return whether a path is UTF-8, so that all readers agree on it."""
    return to_text(path).encode() == path


def walk_links(file: h5py.File) -> Iterator[Link]:
    """Yield the root and all links below it, a group before its members, members by name; do not follow soft links.

    Unlike HDF5's visit, it asks for no sizes of metadata, which would read the index of each dataset's chunks.
    """
    root = h5py.h5g.open(file.id, b"/")
    seen = {_get_address(root)}
    yield Link(b"/", root, _get_address(root), first=True)
    stack = [_iter_links(root, b"", seen)]
    while stack:
        if (link := next(stack[-1], None)) is None:
            stack.pop()
            continue
        yield link
        if link.first and isinstance(link.object, h5py.h5g.GroupID):
            if len(stack) < DEPTH:
                stack.append(_iter_links(link.object, link.path, seen))
            else:
                yield Link(
                    link.path, error=RecursionError(f"it is nested in {DEPTH:,} groups; its members are left out")
                )


def list_members(group: Link) -> Iterator[Link]:
    """Yield the links of a group that was reached before, so that no link is the first to its object."""
    yield from _iter_links(group.object, group.path, None)


def _iter_links(group: h5py.h5g.GroupID, path: bytes, seen: set[Address] | None) -> Iterator[Link]:
    """Yield the links of a group at `path`, by name; add objects at their first hard link to `seen`."""
    links: list[tuple[bytes, int]] = []
    order = {"idx_type": h5py.h5.INDEX_NAME, "order": h5py.h5.ITER_INC}
    try:
        group.links.iterate(lambda name, info: links.append((name, info.type)), info=True, **order)
    except Exception as error:
        yield Link(path or b"/", error=error)
    for name, kind in links:
        yield _resolve_link(group, name, kind, path + b"/" + name, seen)


def _resolve_link(group: h5py.h5g.GroupID, name: bytes, kind: int, path: bytes, seen: set[Address] | None) -> Link:
    words, target = _KINDS.get(kind, _OTHER), ""
    try:
        target = _read_target(group, name, words)
        if words not in ("", SOFT):
            return Link(path, kind=words, target=target)
        member = h5py.h5o.open(group, name)
        address = _get_address(member)
        if words and address[0] != _get_address(group)[0]:
            # It leads through a link to another file.
            return Link(path, kind=EXTERNAL, target=target)
    except Exception as error:
        return Link(path, kind=words, target=target, error=error)
    first = seen is not None and not words and address not in seen
    if first:
        seen.add(address)
    return Link(path, member, address, first, words, target)


def _read_target(group: h5py.h5g.GroupID, name: bytes, kind: str) -> str:
    if kind == SOFT:
        return to_text(group.links.get_val(name))
    return ", ".join(map(to_text, group.links.get_val(name))) if kind == EXTERNAL else ""


def _get_address(member: h5py.h5i) -> Address:
    state = h5py.h5g.get_objinfo(member)
    return state.fileno, state.objno
