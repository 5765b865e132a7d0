"""What the records of several studies are checked for."""

from scripts.lib import cache


def undone(work: dict) -> list[str]:
    """Return where the work that was done is not the work that was asked (METHOD 9)."""
    names = {
        "tasks_done": ("tasks_asked", "tasks"),
        "datasets": ("datasets_asked", "datasets"),
        "logical_bytes": ("logical_bytes_asked", "logical bytes"),
        "blocks_verified": ("blocks_asked", "blocks with the right checksum"),
    }
    reasons = [
        f"{work[done]} {what} were done, {work[expected]} asked"
        for done, (expected, what) in names.items()
        if expected in work and work[done] != work[expected]
    ]
    if work["checksum"] != work["checksum_asked"]:
        reasons.append("the values that were read do not have the checksum of the manifest")
    return reasons


def uncounted(record: dict, settings: dict) -> list[str]:
    """Return why no request can be told for an embedded server."""
    if settings["store"].get("server") == "embedded" and not record["requests"].get("GET", {}).get("count"):
        return ["no request reached the embedded server, or none was counted"]
    return []


def lost_pages(state: dict) -> list[str]:
    """Return that files of a warm cell were no longer in the page cache when it was done (METHOD 8)."""
    after = state["resident_after"]
    if state["asked"] != "warm" or after is None or after >= cache.WARM_AT_LEAST:
        return []
    return [f"the page cache lost pages while the cell ran ({cache.in_percent(after)} resident after), warm was asked"]
