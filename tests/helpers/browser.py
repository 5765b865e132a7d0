"""A headless Chromium that opens a page and tells what it asked for, what went wrong and what it drew."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
NOTHING = MappingProxyType({})
PAPER = 718  # pixels between the margins of a sheet of A4 or letter
# Opens every chapter, and waits for the browser's own frames until all figures are drawn, wherever they are.
READ_ON = """(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  document.querySelectorAll("details").forEach((part) => (part.open = true));
  for (const panel of document.querySelectorAll("div.panel")) {
    for (let frames = 0; frames < 3000 && !panel.querySelector(".bk-Figure"); frames += 1) await frame();
  }
  await frame();
  const panels = [...document.querySelectorAll("div.panel > div")];
  return {panels: panels.length, drawn: panels.filter((one) => one.querySelector(".bk-Figure")).length,
          tall: panels.every((one) => one.clientHeight > 50),
          wide: Math.min(...panels.map((one) => one.clientWidth))};
})()"""


# Waits until the page has seen that its window has another width.
SEEN = """(async () => {
  while (width !== innerWidth) await new Promise((done) => requestAnimationFrame(done));
})()"""


# Brings the n-th mark to hover over into sight and returns its figure, label and place, null after the last: of all
# texts on the page that differ in more than their digits the first, each at its first mark that is drawn.
MARK = """(async (number) => {
  const places = new Map();
  for (const view of Bokeh.index.roots) {
    for (const tool of (view.model.toolbar?.tools ?? []).filter((one) => one.type === "HoverTool")) {
      for (const {glyph, data_source: {data}} of tool.renderers) {
        const {x, y} = data, row = [...(x ?? data.left)].findIndex((_, at) => !x || isFinite(x[at] + y[at]));
        const form = JSON.stringify([glyph.type, data.tip?.[row] ?? tool.tooltips]).replace(/[\\d.,]+/g, "#");
        if (row >= 0 && !places.has(form)) places.set(form, {view, tool, glyph, data, row});
      }
    }
  }
  if (number >= places.size) return null;
  const {view, tool, glyph, data, row} = [...places.values()][number];
  const middle = (axis, from, to) => (glyph[axis] ? data[glyph[axis].field][row]
    : (data[glyph[from].field][row] + data[glyph[to].field][row]) / 2);
  const place = () => {
    const box = view.canvas_view.el.getBoundingClientRect();
    return {x: box.x + view.frame.x_scale.compute(middle("x", "left", "right")),
            y: box.y + view.frame.y_scale.compute(middle("y", "bottom", "top"))};
  };
  // Then the mark itself: a figure may be higher than the window.
  view.el.scrollIntoView({block: "center"});
  for (let frames = 0; frames < 3; frames += 1) await new Promise((done) => requestAnimationFrame(done));
  scrollBy({top: place().y - innerHeight / 2, behavior: "instant"});
  for (let frames = 0; frames < 3; frames += 1) await new Promise((done) => requestAnimationFrame(done));
  return {figure: view.el.parentElement.id, label: tool.tooltips[0][0], tip: data.tip?.[row], ...place()};
})"""
# Waits until a text stands over the mark under the mouse, and returns its lines; Bokeh draws in shadow trees.
TIP = """(async () => {
  const within = (root) => [...root.querySelectorAll("*")].flatMap((one) =>
    [...(one.matches(".bk-tooltip-row-value") ? [one] : []), ...(one.shadowRoot ? within(one.shadowRoot) : [])]);
  let lines = [];
  for (let frames = 0; frames < 100 && !lines.length; frames += 1) {
    await new Promise((done) => requestAnimationFrame(done));
    lines = within(document).filter((one) => one.getClientRects().length).map((one) => one.parentElement.textContent);
  }
  return lines.map((line) => line.trim());
})()"""
# Texts of figures of which a part is not seen: it lies beyond the canvas, or beyond what may be drawn on there.
CUT = """(() => {
  const pen = CanvasRenderingContext2D.prototype, own = {}, cut = [];
  let last, rooms;
  const corners = (context, x, y, wide, high) => {
    const ends = [[x, y], [x + wide, y + high]].map(([x, y]) => context.getTransform().transformPoint({x, y}));
    const [xs, ys] = [ends.map((end) => end.x), ends.map((end) => end.y)];
    return [Math.min(...xs), Math.min(...ys), -Math.max(...xs), -Math.max(...ys)];
  };
  const watched = {
    save: () => rooms.push(rooms.at(-1)),
    restore: () => rooms.length > 1 && rooms.pop(),
    rect: (context, ...sides) => (last = corners(context, ...sides)),
    clip: () => (rooms[rooms.length - 1] = last),
    fillText: (context, text, x, y) => {
      const ink = context.measureText(text), {width, height} = context.canvas;
      const [left, right] = [ink.actualBoundingBoxLeft, ink.actualBoundingBoxRight];
      const [above, below] = [ink.actualBoundingBoxAscent, ink.actualBoundingBoxDescent];
      const room = rooms.at(-1) ?? [0, 0, -width, -height];
      const box = corners(context, x - left, y - above, left + right, above + below);
      if (box.some((end, side) => end < room[side] - 1)) cut.push(text);
    },
  };
  for (const [name, watch] of Object.entries(watched)) {
    own[name] = pen[name];
    pen[name] = function (...given) {
      watch(this, ...given);
      return own[name].apply(this, given);
    };
  }
  for (const view of Bokeh.index.roots) {
    rooms = [null];
    view.export("png", false);
  }
  Object.assign(pen, own);
  const hidden = [...document.querySelectorAll("main *")].filter((one) => one.scrollWidth > one.clientWidth + 1
    && ["hidden", "clip"].includes(getComputedStyle(one).overflowX));
  return [...cut, ...hidden.map((one) => one.textContent)];
})()"""


@dataclass
class Visit:
    """What came of one visit."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seen: dict = field(default_factory=dict)
    answers: dict = field(default_factory=dict)
    hovered: list[dict] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


def browser() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def visit(
    page: Path,
    screen: Mapping[str, str] = NOTHING,
    paper: Mapping[str, str] = NOTHING,
    *widths: int,
    hover: bool = False,
    dark: Mapping[str, str] = NOTHING,
    sheets: Iterable[tuple[float, float]] = (),
) -> Visit:
    """Open `page`, have all of it drawn, ask questions (JavaScript) there and close the browser.

    Args:
        page: to be opened.
        screen: name -> expression, whose value is the answer of that name; a promise is waited for.
        paper: as `screen`, asked afterwards of the page as it is printed.
        widths: of the window in pixels, 1300 unless named; where there are several, all is drawn at each in turn.
        hover: move the mouse over a mark of each kind first, and note the lines that are shown there.
        dark: as `screen`, asked afterwards of a screen whose user prefers dark colours.
        sheets: widths and heights in inches of the paper on which the page is printed, as PDF (base64).
    """
    widths = widths or (1300,)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [browser(), *FLAGS, f"--window-size={widths[0]},900", f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "HOME": profile},
        )
        try:
            lines = iter(process.stderr.readline, "")
            address = next(line.split()[-1] for line in lines if line.startswith("DevTools listening on"))
            return asyncio.run(
                asyncio.wait_for(
                    _read(address, page.resolve().as_uri(), (screen, dark, paper), widths, hover, sheets), timeout=120
                )
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


async def _read(
    address: str,
    url: str,
    asked_of: tuple[Mapping, ...],
    widths: tuple[int, ...],
    hover: bool,
    sheets: Iterable[tuple[float, float]],
) -> Visit:
    found = Visit()
    socket = await websocket_connect(address, max_message_size=2**28)
    number, session = 0, {}

    async def call(method: str, **parameters) -> dict:
        nonlocal number
        number += 1
        await socket.write_message(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        while True:
            message = json.loads(await socket.read_message())
            if message.get("id") == number:
                return message.get("result", message)
            _note(message, found)

    target = await call("Target.createTarget", url="about:blank")
    attached = await call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    session["sessionId"] = attached["sessionId"]
    for domain in ("Network", "Page", "Runtime", "Log"):
        await call(f"{domain}.enable")

    async def resize(width: int) -> None:
        # A window is at least 500 pixels wide, a screen need not be.
        await call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    waited = {"awaitPromise": True, "returnByValue": True}
    await resize(widths[0])
    await call("Page.navigate", url=url)
    loaded = "new Promise((done) => document.readyState == 'complete' ? done() : addEventListener('load', done))"
    await call("Runtime.evaluate", expression=loaded, awaitPromise=True)
    for width in widths:
        if width != widths[0]:
            await resize(width)
            await call("Runtime.evaluate", expression=SEEN, awaitPromise=True)
        answer = await call("Runtime.evaluate", expression=READ_ON, awaitPromise=True, returnByValue=True)
        found.seen = answer.get("result", {}).get("value", {})
    while hover:
        answer = await call("Runtime.evaluate", expression=f"{MARK}({len(found.hovered)})", **waited)
        if not (mark := answer["result"].get("value")):
            break
        await call("Input.dispatchMouseEvent", type="mouseMoved", x=mark["x"], y=mark["y"])
        answer = await call("Runtime.evaluate", expression=TIP, **waited)
        found.hovered.append(mark | {"lines": answer["result"]["value"]})
    forms = (("screen", "light"), ("screen", "dark"), ("print", "light"))
    for (media, scheme), asked in zip(forms, asked_of, strict=True):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await call("Emulation.setEmulatedMedia", media=media, features=features)
        if media == "print" and asked:
            await resize(PAPER)
        for name, ask in asked.items():
            answer = await call("Runtime.evaluate", expression=ask, awaitPromise=True, returnByValue=True)
            found.answers[name] = answer.get("result", {}).get("value")
    for width, height in sheets:
        printed = await call("Page.printToPDF", paperWidth=width, paperHeight=height)
        found.printed.append(printed["data"])
    socket.close()
    return found


def _note(message: dict, found: Visit) -> None:
    told = message.get("params", {})
    match message.get("method"):
        case "Network.requestWillBeSent":
            found.requests.append(told["request"]["url"])
        case "Network.webSocketCreated":
            found.requests.append(told["url"])
        case "Runtime.exceptionThrown":
            found.errors.append(json.dumps(told["exceptionDetails"]))
        case "Log.entryAdded" if told["entry"]["level"] == "error":
            found.errors.append(told["entry"]["text"])
