"""Checks of files with shots: what was read back from them against their label."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(3)
def check_layout(manifest: dict, label: dict) -> Iterator[str]:
    """Check that the data, as read back from the files, are what their label says."""
    layout = manifest["layout"]
    # Of a user's own files only the layout is promised; plain files have no pages.
    promised = {"layout"} if "files" in label else label.keys() - (set() if label.get("paged") else {"page_size"})
    for key in sorted(promised & layout.keys() - {"shots", "signals"}):
        if layout[key] != label[key]:
            yield f"{manifest['dataset']}: {key} was asked to be {label[key]}, the files have {layout[key]}"


@rule(3)
def check_pages(effective: dict, layout: dict) -> Iterator[str]:
    """Check that the files that were read have the pages of the manifest's layout."""
    for key in ("paged", "page_size") if layout["paged"] else ("paged",):
        # Of files of one's own, of which some are read, None is that they differ.
        if layout[key] is not None and effective.get(key, layout[key]) != layout[key]:
            yield f"the files that were read have {key} {effective[key]}, the manifest says {layout[key]}"
