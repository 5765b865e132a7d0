"""What advice says: whether and how to repack files, how to open them, and what that gains against how things are."""

import math

import pandas as pd

from scripts.lib import sizes
from scripts.report import comparisons, names, pages, prose
from scripts.report.markup import bold, bullets, code
from scripts.report.page import Page, Table
from scripts.report.plot import Figure
from scripts.report.results import Results

_ORIGINAL = "original"
_ARM = ["layout", "driver", "page_buffer", "read_cache"]
# A copy has to be faster than the files as they are by more than this share, to be worth it.
_WORTH = 0.9
_KINDS = {
    "paged": "repack the files with pages",
    "chunks": "repack the files with pages and larger chunks",
    "large": "put all files into one, with pages",
}
# How files are opened, with h5py and with xarray: a line with a place for the settings.
_H5PY = {
    "sec2": 'h5py.File("file.h5"{})',
    "ros3": 'h5py.File("s3://bucket/file.h5", driver="ros3", aws_region=b"us-east-1"{})',
    "s3fs": 'h5py.File(s3fs.S3FileSystem().open("bucket/file.h5"{}))',
}
# To h5py.File a page buffer of 0 is none that was asked for, and ROS3 then takes its own.
_UNBUFFERED = (
    "plist = h5py.h5p.create(h5py.h5p.FILE_ACCESS); plist.set_page_buffer_size(0, 0, 0);"
    ' plist.set_fapl_ros3(b"us-east-1", b"", b"");'
    ' file = h5py.File(h5py.h5f.open(b"s3://bucket/file.h5", h5py.h5f.ACC_RDONLY, plist))'
)
_XARRAY = {
    "sec2": 'xarray.open_dataset("file.h5", engine="h5netcdf"{})',
    "ros3": 'xarray.open_dataset("s3://bucket/file.h5", engine="h5netcdf", driver="ros3",'
    ' driver_kwds={{"aws_region": b"us-east-1"{}}})',
    "s3fs": 'xarray.open_dataset(s3fs.S3FileSystem().open("bucket/file.h5"{}), engine="h5netcdf")',
}


def lines(run: Results) -> list[str]:
    """Return the three lines that advice ends with, in plain text; fewer where nothing could be measured."""
    arms = _arms(run)
    if not arms or not arms[0]["cell"]:
        return ["advice: none, as the files as they are could not be measured; the report has the reasons"]
    best = _best(arms)
    return [f"repack: {_repack(best, run)}", f"open:   {opening(best)}", f"gain:   {_gain(best, arms[0], run)}"]


def opening(arm: dict, form: dict[str, str] = _H5PY) -> str:
    """Return the line of code that opens a file with the driver and settings of an arm; "" where there is none."""
    setting, size = "", arm["page_buffer"]
    if size == "0":
        return _UNBUFFERED if form is _H5PY else ""
    if arm["driver"] == "s3fs" and arm["read_cache"] != "default":
        kind, _, block = arm["read_cache"].partition("-")
        setting = f', cache_type="{kind}", block_size={sizes.in_bytes(block)}'
    elif size != "unset":
        setting = f", page_buf_size={sizes.in_bytes(size)}"
        if form is _XARRAY:
            setting = f', "page_buf_size": {sizes.in_bytes(size)}'
            setting = setting if arm["driver"] == "ros3" else f", driver_kwds={{{setting[2:]}}}"
    return form[arm["driver"]].format(setting)


def answer(run: Results) -> pages.Answer | None:
    """Return the answer of a run that advice was asked of; None of other runs."""
    arms = _arms(run)
    if not arms or not arms[0]["cell"]:
        return None
    best = _best(arms)
    repack = f"Repack: {code(_repack(best, run))}" if best["layout"] != _ORIGINAL else "Leave the files as they are."
    lines_of = {"Open": opening(best), "With xarray": opening(best, _XARRAY)}
    to_do = [repack, *(f"{what}: {code(line)}" for what, line in lines_of.items() if line)]
    text = f"{bold(prose.capital(_words(best)))}: {_gain(best, arms[0], run)}."
    return pages.Answer(text, to_do, _picture(arms, run))


def outcome(run: Results) -> dict:
    """Return what came of advice: of what is advised, or else of what came next to it, against the files as they are.

    {"arm", "layout", "opened" (driver and settings in words), "verdict" ("" without one), "gain": how many times as
    fast it was, nan where it was not measured}.
    """
    arms = _arms(run)
    best = _best(arms)
    if best is arms[0]:
        rest = sorted((arm for arm in arms[1:] if arm["row"]), key=lambda arm: arm["row"]["ratio"])
        best = rest[0] if rest else best
    row = best["row"] or {"verdict": "", "ratio": math.nan}
    arm = {key: value for key, value in best.items() if key not in ("cell", "row")}
    said = {"arm": arm, "layout": best["layout"], "opened": _opened(best), "verdict": row["verdict"]}
    return said | {"gain": 1 / row["ratio"]}


def show(page: Page, run: Results) -> None:
    """Show what was considered, forecast and measured, and what copies took, where advice was asked of a run."""
    if _advice(run):
        page.section("What was considered", bullets(_copied(run)))
        page.table(_considered(run), "")


def _advice(run: Results) -> dict:
    return (run.facts.get("settings") or {}).get("advice") or {}


def _arms(run: Results) -> list[dict]:
    """Return the ways to read that were measured, with what was forecast of each, its `cell` (None if there is none).

    All but the first have the `row` of their comparison with the first, if there is one, turned so that the first is
    the baseline.
    """
    cells, rows = run.measured, pd.concat([run.contest, run.comparisons()])
    rows = {(row["baseline_cell"], row["contender_cell"]): row for row in rows.to_dict("records")}
    arms = []
    for arm in _advice(run).get("arms", []):
        own = cells[(cells[_ARM] == [arm[key] for key in _ARM]).all(axis=1)]
        cell = own.iloc[0].to_dict() if len(own) else None
        first = (arms[0] if arms else {}).get("cell")
        pair = (first["cell"], cell["cell"]) if first and cell else ("", "")
        turned = _turned(rows[pair[::-1]]) if pair[::-1] in rows else None
        arms.append(arm | {"cell": cell, "row": rows.get(pair, turned)})
    return arms


def _turned(row: dict) -> dict:
    """Return a comparison with its sides exchanged."""
    ratios = {"ratio": 1 / row["ratio"], "ratio_low": 1 / row["ratio_high"], "ratio_high": 1 / row["ratio_low"]}
    verdict = {"faster": "slower", "slower": "faster"}.get(row["verdict"], row["verdict"])
    return row | ratios | {"verdict": verdict}


def _picture(arms: list[dict], run: Results) -> Figure:
    """Return the picture of what was measured against the files as they are."""
    tried = [arm for arm in arms if arm["row"]]
    rows, names_of = pd.DataFrame([arm["row"] for arm in tried]), [f"{arm['layout']}, {_opened(arm)}" for arm in tried]
    title = f"Against the files as they are, {_opened(arms[0])}"
    axis = "Time of what is named / time of the files as they are"
    panels = (comparisons.panel(rows, names_of, title, axis, run),) if tried else ()
    said = comparisons.caption(run, rows) if tried else ""
    return Figure("advice", "What was measured", said, panels, comparisons.numbers(run, rows) if tried else rows)


def _best(arms: list[dict]) -> dict:
    """Return what to do: what is shown to be the fastest, of what is as fast that without a copy, else the first."""
    faster = [arm for arm in arms[1:] if arm["row"] and arm["row"]["verdict"] == "faster"]
    faster = sorted(faster, key=lambda arm: arm["cell"]["total_s"])
    without = [arm for arm in faster if arm["layout"] == _ORIGINAL]
    if faster and without and faster[0]["cell"]["total_s"] > _WORTH * without[0]["cell"]["total_s"]:
        return without[0]
    return faster[0] if faster else arms[0]


def _gain(best: dict, base: dict, run: Results) -> str:
    seconds, whole = (f"{prose.number(arm['cell']['total_s'])} s" for arm in (best, base))
    if best is base:
        return (
            "nothing that was tried was shown to be faster than the files as they are, read with"
            f" {_opened(base)} in {whole}; keep them"
        )
    ratio, *ends = (1 / best["row"][key] for key in ("ratio", "ratio_high", "ratio_low"))
    gain = f"{names.times(ratio)} [{', '.join(map(names.times, ends))}] times as fast"
    as_they_are = "" if best["layout"] == _ORIGINAL else "the files as they are and "
    than = f"as with {as_they_are}{_opened(base)}: {seconds} instead of {whole} per read"
    requests = _requests(best, base)
    return ", ".join(filter(None, [f"{gain} {than}", requests, _cost(best, run)]))


def _requests(best: dict, base: dict) -> str:
    counts = [arm["cell"].get("requests", math.nan) for arm in (best, base)]
    if any(map(pd.isna, counts)):
        return ""
    return f"{counts[0]:,.0f} requests instead of {counts[1]:,.0f}"


def _cost(best: dict, run: Results) -> str:
    if best["layout"] == _ORIGINAL:
        return "without a copy"
    copy = _copy(best, run)
    change = 100 * (copy["copy_bytes"] / copy["original_bytes"] - 1)
    took = copy["seconds"] / (copy["original_bytes"] / 2**30)
    return f"for a copy of {change:+.0f} % bytes that takes {prose.number(took)} s per GiB to make"


def _repack(best: dict, run: Results) -> str:
    return _copy(best, run)["typed"] if best["layout"] != _ORIGINAL else "no, leave the files as they are"


def _words(best: dict) -> str:
    files = "leave the files as they are" if best["layout"] == _ORIGINAL else _KINDS[best["layout"].partition("-")[0]]
    return f"{files}, and read them with {_opened(best)}"


def _opened(arm: dict) -> str:
    """Return driver and setting of an arm, in words: "s3fs (blockcache of 4 MiB)"."""
    setting, size = "defaults", arm["page_buffer"]
    if arm["read_cache"] != "default":
        kind, _, block = arm["read_cache"].partition("-")
        setting = f"{kind} of {names.size(block)}"
    elif size != "unset":
        setting = f"page buffer of {names.size(size)}" if size != "0" else "no page buffer"
    return f"{arm['driver']} ({setting})"


def _copy(arm: dict, run: Results) -> dict:
    return _advice(run)["copies"][arm["layout"]]


def _copied(run: Results) -> list[str]:
    return [
        f"{name}: {code(copy['typed'])}; {sizes.text(copy['original_bytes'])} became {sizes.text(copy['copy_bytes'])}"
        f" in {prose.number(copy['seconds'])} s"
        for name, copy in _advice(run)["copies"].items()
    ]


def _considered(run: Results) -> Table:
    """Return all ways to read with what they were forecast to ask for; what was measured of those that were chosen."""
    measured = {tuple(arm[key] for key in _ARM): arm["cell"] or {} for arm in _arms(run)}
    rows = []
    for arm in _advice(run)["considered"]:
        cell = measured.get(tuple(arm[key] for key in _ARM), {})
        row = {"files": arm["layout"], "driver and setting": _opened(arm), "requests": arm["requests"]}
        row |= {"MiB": arm["bytes"] / 2**20, "time / s": arm["seconds"]}
        rows.append(row | {"requests, measured": cell.get("requests"), "time, measured / s": cell.get("total_s")})
    caption = (
        "Ways to read one object, by what HDF5 was seen to read of the first file and what the driver makes of that:"
        " requests one after the other over the round trip, bytes at the rate. What is computed is not in it. Measured:"
        " medians of those that were chosen."
    )
    frame = pd.DataFrame(rows).sort_values("time / s", kind="stable", ignore_index=True)
    number = dict.fromkeys(("MiB", "time / s", "time, measured / s"), prose.number)
    return Table(
        "considered", caption, frame, number | {"requests": "{:,.0f}".format, "requests, measured": "{:,.0f}".format}
    )
