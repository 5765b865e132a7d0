"""Check that the layout and pages read back from shot files match the configured settings."""

from collections.abc import Iterator

from sbench.design.checks import rule


@rule(3)
def check_layout(manifest: dict, label: dict) -> Iterator[str]:
    """Check that the layout read back from the files matches the configured settings in `label`."""
    layout = manifest["layout"]
    # For user files, only the layout is configured. Files without paged allocation have no page size.
    promised = {"layout"} if "files" in label else label.keys() - (set() if label.get("paged") else {"page_size"})
    for key in sorted(promised & layout.keys() - {"shots", "signals"}):
        if layout[key] != label[key]:
            yield f"{manifest['dataset']}: {key} must be {label[key]} as configured (got {layout[key]} in the files)"


@rule(3)
def check_pages(effective: dict, layout: dict) -> Iterator[str]:
    """Check that the files were paged when they were read, with the same page size, as in the manifest."""
    for key in ("paged", "page_size") if layout["paged"] else ("paged",):
        # None means that user files differ in this property, and the record may have read only some of them.
        if layout[key] is not None and effective.get(key, layout[key]) != layout[key]:
            yield f"{key} must be {layout[key]} as in the manifest (got {effective[key]} in the files that were read)"
