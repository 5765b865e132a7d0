"""Walk the links of an HDF5 file, entering each group once, even if names are not UTF-8 or objects cannot be opened."""

from collections.abc import Iterator
from dataclasses import dataclass

import h5py

SOFT, EXTERNAL, _OTHER = "soft link", "external link", "link of a user-defined kind"
_KINDS = {h5py.h5l.TYPE_HARD: "", h5py.h5l.TYPE_SOFT: SOFT, h5py.h5l.TYPE_EXTERNAL: EXTERNAL}
Address = tuple
# Maximum nesting depth of groups. The memory for paths grows with the square of the depth, and no real file is deeper.
DEPTH = 2000


@dataclass(frozen=True, slots=True)
class Link:
    """A link in a group and its target.

    Attributes:
        path: path from the root, as stored in the file; usually UTF-8.
        object: the group, dataset or named datatype; None if it cannot be opened or is in another file.
        address: identifies the object within the file; an empty tuple if there is no `object`.
        first: whether this is the first hard link to the object.
        kind: type of the link, such as "soft link" or "external link"; an empty string for a hard link.
        target: target of a soft or external link, as a string.
        error: the exception raised when the object was opened or the links of the group were listed.
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
        """The path as a string, with bytes that are not UTF-8 escaped."""
        return to_text(self.path)


def to_text(name: str | bytes) -> str:
    """Convert a name to a string. h5py returns names that are not UTF-8 as bytes; their invalid bytes are escaped."""
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else name


def is_utf8(path: bytes) -> bool:
    """Return whether a path is valid UTF-8, so that all readers decode it in the same way."""
    return to_text(path).encode() == path


def walk_links(file: h5py.File) -> Iterator[Link]:
    """Yield the root and all links below it: groups before their members, and members sorted by name.

    Groups are entered only through hard links. Unlike HDF5's visit functions, this does not query the size of metadata,
    because HDF5 would have to read the chunk index of every dataset to determine it.
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
    """Yield the links in a group that has been walked before. The attribute `first` of all of them is false."""
    yield from _iter_links(group.object, group.path, None)


def _iter_links(group: h5py.h5g.GroupID, path: bytes, seen: set[Address] | None) -> Iterator[Link]:
    """Yield the links in the group at `path`, sorted by name; add the addresses of newly found objects to `seen`."""
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
            # The soft link leads through an external link to another file.
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
