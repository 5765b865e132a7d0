"""Checks of shot files: layout and pages as read back, against the label."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(3)
def check_layout(manifest: dict, label: dict) -> Iterator[str]:
    """Check that the layout read back from the files matches the label."""
    layout = manifest["layout"]
    # User files promise only their layout; plain files lack pages.
    promised = {"layout"} if "files" in label else label.keys() - (set() if label.get("paged") else {"page_size"})
    for key in sorted(promised & layout.keys() - {"shots", "signals"}):
        if layout[key] != label[key]:
            yield f"{manifest['dataset']}: {key} must be {label[key]} as configured (got {layout[key]} in the files)"


@rule(3)
def check_pages(effective: dict, layout: dict) -> Iterator[str]:
    """Check that the files read have the pages of the manifest's layout."""
    for key in ("paged", "page_size") if layout["paged"] else ("paged",):
        # None: user files differ, and the record may read only some of them.
        if layout[key] is not None and effective.get(key, layout[key]) != layout[key]:
            yield f"{key} must be {layout[key]} as in the manifest (got {effective[key]} in the files that were read)"
